"""Over smpps:, only a peer that is vouched for learns the password."""

from contextlib import contextmanager

import pytest
from smpp_peer import SmppPeer
from smpp_texts import outcomes

from carrier_errors import meaning, refused
from carrier_servers import self_signed
from carriers import smpp_session


@contextmanager
def tls_peer(folder):
    """A peer over TLS with a self-signed certificate, and the certificate."""
    context, certificate = self_signed(folder)
    server = SmppPeer(context)
    try:
        yield server, certificate
    finally:
        server.close()


@pytest.mark.slow
def test_smpps_trusts_only_what_is_vouched_for(tmp_path, monkeypatch, connect):
    with tls_peer(tmp_path) as (server, certificate):
        error = refused(connect(server.url))
        assert meaning(error) == "for now"
        assert "unknown authority" in str(error)
        assert not server.logins, "no password for a stranger"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert meaning(refused(connect(server.url.replace("localhost", "127.0.0.1")))) == "for now"
        assert not server.logins
        carrier = connect(server.url)
        server.delay = 0.01
        assert {*outcomes(carrier, 40)} == {f"id-{n}" for n in range(1, 41)}
        carrier.close()
        assert len(server.logins) == server.unbinds == 1


@pytest.mark.slow
def test_smpps_to_a_peer_without_tls_is_for_now_and_sends_no_password(peer, connect, monkeypatch):
    monkeypatch.setattr(smpp_session, "CONNECT_TIMEOUT", 1)
    assert meaning(refused(connect(peer.url.replace("smpp:", "smpps:")))) == "for now"
    assert not peer.logins
