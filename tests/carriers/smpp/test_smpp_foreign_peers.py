"""SMPP peers that others wrote, in their own processes."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from smpp_texts import received

from carrier_errors import NUMBER, meaning, refused, send
from carriers import IncomingText, Receipt
from phone import show

HERE = Path(__file__).parent


class ForeignPeer:
    """A peer in its own process, which writes what it receives as lines of JSON."""

    def __init__(self, words, **environ):
        self.popen = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | environ,
        )
        port = next(self.lines())
        self.url = f"smpp://user:secret@127.0.0.1:{port}/15005550006"

    def lines(self):
        for line in self.popen.stdout:
            with suppress(ValueError):  # a library's own words
                yield json.loads(line)

    def parts(self, count):
        """Return the next parts that the peer received."""
        found = (line for line in self.lines() if isinstance(line, dict) and "to" in line)
        return [next(found) for _ in range(count)]

    def close(self):
        self.popen.stdin.close()
        self.popen.terminate()
        self.popen.stdout.close()
        self.popen.wait(60)


@pytest.fixture(params=["npm smpp", "Net::SMPP"])
def foreign_peer(request):
    if request.param == "npm smpp":
        modules = request.getfixturevalue("npm_package")("smpp", "0.5.1")
        peer = ForeignPeer(["node", HERE / "smpp_npm.js"], NODE_PATH=str(modules))
    else:
        perl = shutil.which("perl")
        if not perl or subprocess.run([perl, "-MNet::SMPP", "-e", ""], stderr=-3).returncode:
            pytest.skip("there is no Perl with Net::SMPP (Debian: libnet-smpp-perl)")
        peer = ForeignPeer([perl, HERE / "smpp_perl.pl"])
    yield peer
    peer.close()


def test_a_foreign_peer_gets_each_text_whole(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    texts = {
        "hello": 1,
        "  héllo\n[€] ^{}\\~| `not§ ": 1,
        "  héllo\n[€] ^{}\\~| not§ ": 1,
        "Привет, 🚀": 1,
        "x" * 160: 1,
        "x" * 152 + "€" * 4 + "y" * 1400: 11,
        "й" * 66 + "🚀" * 3: 2,
        "日本語" * 200: 9,
    }
    references = [send(carrier, text=text) for text in texts]
    assert len({*references}) == len(texts)
    for text, count in texts.items():
        parts = foreign_peer.parts(count)
        assert [part["part"] for part in parts] == [[n, count] for n in range(1, count + 1)]
        assert {(part["to"], part["from"]) for part in parts} == {("12125550123", "15005550006")}
        seen = [
            part.get("text") or show(bytes.fromhex(part["octets"]), part["coding"])
            for part in parts
        ]
        assert "".join(seen) == text


def test_a_foreign_peers_receipts_and_opt_outs_are_read(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    reference = send(carrier, text="stop me")
    words = received(carrier, 2)
    (receipt,) = (word for word in words if isinstance(word, Receipt))
    assert receipt[:3] == (reference, True, None)
    assert IncomingText(NUMBER, " Stop. ") in words


def test_a_foreign_peer_refuses_a_wrong_password(foreign_peer, connect):
    carrier = connect(foreign_peer.url.replace("secret", "s3cret"))
    error = refused(carrier)
    assert meaning(error) == "the account"
    assert "password" in str(error)
