"""A receiver's name is judged by where it leads when an event is sent."""

import socket

import pytest
from urllib3.util import connection

from carrier_servers import Answer, CarrierServer
from carriers import CarrierError
from events.delivery import Receiver


class Disguised(socket.socket):
    """A connection whose other end seems to have another address."""

    __slots__ = ("address",)

    def getpeername(self):
        return (self.address, 80)


@pytest.fixture
def leads_to(monkeypatch):
    """Have every name lead to an address; return the server on loopback that is there in truth."""
    server, create = CarrierServer(), connection.create_connection

    def begin(address):
        def connect(_, *arguments, **options):
            real = create(server.server_address, *arguments, **options)
            disguised = Disguised(fileno=real.detach())
            disguised.address = address
            return disguised

        monkeypatch.setattr(connection, "create_connection", connect)
        return server

    yield begin
    server.close()


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.0.1"]
)
def test_a_name_that_leads_to_the_link_is_sent_nothing(leads_to, address):
    server = leads_to(address)
    receiver = Receiver("http://shop.example.com/events", 1, 5)
    for _ in range(2):
        with pytest.raises(CarrierError, match="is at a link-local address") as refused:
            receiver.post_signed("1", "{}", ())
        assert not refused.value.in_doubt
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://shop.example.com/events", "10.0.0.1"),
        ("http://shop.example.com/events", "::1"),
        ("http://169.254.7.7/events", "169.254.7.7"),  # --any-address
        ("http://[fe80::7]/events", "fe80::7"),
    ],
)
def test_any_other_is_sent_what_it_is_to_know(leads_to, url, address):
    server = leads_to(address)
    server.read = lambda request: (None, None)
    server.answer = Answer(204)
    assert Receiver(url, 1, 5).post_signed("1", "{}", ()).status == 204
    assert len(server.requests) == 1
