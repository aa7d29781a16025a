"""What an SMPP peer is sent, and over which URLs and binds."""

import logging
import threading
import time

import pytest

from carrier_errors import SECRETS, meaning, refused, send
from phone import show
from running import wait_until
from smpp_peer import BIND_TRANSCEIVER, BIND_TRANSMITTER, HANG_UP
from smpp_texts import outcomes
from texting import carriers
from texting.carriers import smpp_session


def test_a_text_goes_out_as_a_submit_sm_with_all_its_fields(peer, carrier):
    assert send(carrier, text="héllo [€]\n", valid_for=3 * 86_400) == "id-1"
    (part,) = peer.parts
    addresses = (1, 1, "15005550006", 1, 1, "12125550123")
    octets = b"h\x05llo \x1b<\x1be\x1b>\n"
    assert part == (*addresses, 0, "000003000000000R", 1, 0, octets)


@pytest.mark.parametrize(
    ("options", "coding", "octets"),
    [
        ({"alphabet": "gsm"}, 0, b"h\x05llo"),
        ({"alphabet": "latin1"}, 3, b"h\xe9llo"),
        ({"alphabet": "ucs2"}, 8, "héllo".encode("utf-16-be")),
    ],
)
def test_the_alphabet_is_the_one_asked_for(peer, connect, options, coding, octets):
    send(connect(peer.url, **options), text="héllo")
    assert [(part.coding, part.octets) for part in peer.parts] == [(coding, octets)]


@pytest.mark.parametrize(
    ("seconds", "validity"),
    [
        (1, "000000000001000R"),
        (0.4, "000000000001000R"),
        (86_399, "000000235959000R"),
        (3 * 86_400, "000003000000000R"),
        (400 * 86_400, "000030000000000R"),
    ],
)
def test_a_text_has_a_validity_period(peer, carrier, seconds, validity):
    send(carrier, valid_for=seconds)
    assert peer.parts[0].validity == validity


@pytest.mark.parametrize(
    ("sender", "options", "fields"),
    [
        *(
            (number, {}, (1, 1, "15005550006", 1, 1))
            for number in ("15005550006", "+15005550006", "%2B15005550006", "15005550006/{to}")
        ),
        ("12345", {}, (3, 0, "12345", 1, 1)),
        ("ACME", {}, (5, 0, "ACME", 1, 1)),
        ("ACME%20Shop", {}, (5, 0, "ACME Shop", 1, 1)),
        ("12345", {"source_ton": 0, "source_npi": 9}, (0, 9, "12345", 1, 1)),
        ("12345", {"dest_ton": 2, "dest_npi": 8}, (3, 0, "12345", 2, 8)),
    ],
)
def test_a_sender_is_a_number_a_short_code_or_a_name(peer, connect, sender, options, fields):
    send(connect(peer.url.replace("15005550006", sender), **options))
    assert peer.parts[0][:6] == (*fields, "12125550123")


def test_a_long_text_goes_in_numbered_parts_and_asks_for_one_receipt(peer, carrier):
    assert send(carrier, text="x" * 153 + "y" * 153 + "z") == "id-3"
    assert [part.esm_class for part in peer.parts] == [0x40] * 3
    assert [part.receipt for part in peer.parts] == [0, 0, 1]
    headers = [part.octets[:6] for part in peer.parts]
    assert {header[:4] for header in headers} == {headers[0][:4]}
    assert [header[4:] for header in headers] == [b"\3\1", b"\3\2", b"\3\3"]
    assert "".join(show(part.octets[6:], 0) for part in peer.parts) == "x" * 153 + "y" * 153 + "z"


def test_a_text_of_too_many_parts_is_refused_for_good_before_it_is_sent(peer, carrier):
    assert meaning(refused(carrier, text="я" * 67 * 256)) == "for good"
    assert not peer.parts


# One bind


def test_all_texts_of_all_threads_go_over_one_bind_within_the_window(peer, connect):
    peer.delay = 0.02
    carrier = connect(peer.url, concurrency=4)
    assert not peer.logins, "nothing is sent before it is needed"
    assert {*outcomes(carrier, 40)} == {f"id-{n}" for n in range(1, 41)}
    carrier.close()
    assert peer.logins == [(BIND_TRANSCEIVER, "user", "s3cret", "", 0x34)]
    assert peer.most == 4
    assert peer.unbinds == 1


def test_answers_in_another_order_find_their_texts(peer, connect):
    """The peer answers after all have arrived, the last one first."""
    waiting, all_came = [], threading.Event()

    def answer(part):
        waiting.append(part)
        if len(waiting) == 8:
            all_came.set()
        all_came.wait(60)
        time.sleep(0.01 * (8 - waiting.index(part)))
        return 0

    peer.answer, peer.delay = answer, 0.01
    references = outcomes(connect(peer.url), 8)
    for number, reference in enumerate(references):
        assert peer.parts[int(reference.removeprefix("id-")) - 1].octets == b"text %d" % number


@pytest.mark.slow
def test_several_binds_share_the_texts(peer, connect):
    peer.delay = 0.5
    carrier = connect(peer.url, binds=3)
    send(carrier)
    wait_until(lambda: len(peer.bound) == 3)
    outcomes(carrier, 8)
    assert len({session for session in peer.bound if session.parts}) == 3
    carrier.close()
    assert peer.unbinds == 3


def test_a_peer_that_allows_fewer_binds_gets_all_texts_over_those(peer, connect):
    peer.most_binds, peer.delay = 2, 0.02
    carrier = connect(peer.url, binds=3)
    assert all(isinstance(outcome, str) for outcome in outcomes(carrier, 8) + outcomes(carrier, 8))


def test_a_transmitter_asks_for_no_receipt_and_does_not_listen(peer, connect):
    carrier = connect(peer.url, bind="transmitter", system_type="VMA")
    assert carrier.received() == []
    send(carrier)
    assert peer.logins == [(BIND_TRANSMITTER, "user", "s3cret", "VMA", 0x34)]
    assert peer.parts[0].receipt == 0
    assert carrier.received() == []


def test_a_long_password_is_sent_whole(peer, connect):
    """SMPP 3.4 limits it to 8 characters; many carriers give out longer ones."""
    password = "0123456789abcdef/@:"
    send(connect(peer.url.replace("s3cret", password.replace("/", "%2F"))))
    assert peer.logins[0].password == password


def test_a_peer_that_does_not_answer_unbind_is_left_all_the_same(peer, carrier, monkeypatch):
    monkeypatch.setattr(smpp_session, "UNBIND_TIMEOUT", 0.2)
    peer.accepts = False
    send(carrier)
    carrier.close()
    assert peer.unbinds == 1
    wait_until(lambda: not peer.bound)


def test_a_carrier_that_was_never_used_is_closed_at_once(peer, connect):
    connect(peer.url).close()
    assert not peer.sessions


@pytest.mark.parametrize(
    "url",
    [
        "smpp://user:s3cret@127.0.0.1/15005550006",
        "smpps://user:s3cret@127.0.0.1/15005550006/{to}",
        "SMPP://user:s3cret@127.0.0.1:2775/12345?binds=2&bind=transmitter&alphabet=latin1",
        "smpp://us%40er:s3%2F%3F@127.0.0.1/ACME",
        "smpp://user:s3/c@r:et@[::1]:2775/ACME",
    ],
)
def test_a_url_is_taken(connect, url):
    carrier = carriers.connect(url)
    assert carrier.name == url.partition(":")[0].lower()
    carrier.close()


def test_nothing_of_a_text_gets_into_logs_or_output(peer, impatient, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    send(impatient)
    peer.answer = HANG_UP
    refused(impatient)
    impatient.close()
    output = "".join([caplog.text, *capfd.readouterr()])
    assert not [secret for secret in SECRETS[:5] if secret in output], output
