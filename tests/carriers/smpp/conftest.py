"""An SMPP peer, and carriers connected to it."""

import pytest

from smpp_peer import delivery
from smpp_texts import received
from texting import carriers
from texting.carriers import smpp, smpp_session


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(smpp, "PAUSE", 0.05)


@pytest.fixture
def connect():
    """Connect to a URL with options, `connect(peer.url, binds=2)`; close everything at the end."""
    connected = []

    def begin(url, concurrency=8, timeout=20, **options):
        query = "&".join(f"{name}={value}" for name, value in options.items())
        connected.append(carriers.connect(f"{url}?{query}", concurrency, timeout))
        return connected[-1]

    yield begin
    for carrier in connected:
        carrier.close()


@pytest.fixture
def carrier(connect, peer):
    return connect(peer.url)


@pytest.fixture
def impatient(connect, peer):
    """A carrier that waits two seconds for an answer."""
    return connect(peer.url, timeout=2)


@pytest.fixture
def deliver(peer, carrier):
    """Have the peer deliver a text, as number 5; return what the carrier makes of it."""

    def deliver(octets, *source, **options):
        carrier.check()
        peer.sessions[0].deliver(delivery(octets, *source, **options), 5)
        (event,) = received(carrier, 1)
        return event

    return deliver
