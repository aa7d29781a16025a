"""SMPP peers that others wrote, in their own processes."""

import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMPP_NPM = HERE / "smpp_npm.js"


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
        peer = ForeignPeer(["node", SMPP_NPM], NODE_PATH=str(modules))
    else:
        perl = shutil.which("perl")
        if not perl or subprocess.run([perl, "-MNet::SMPP", "-e", ""], stderr=-3).returncode:
            pytest.skip("there is no Perl with Net::SMPP (Debian: libnet-smpp-perl)")
        peer = ForeignPeer([perl, HERE / "smpp_perl.pl"])
    yield peer
    peer.close()
