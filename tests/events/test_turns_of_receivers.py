"""Receivers take turns: those that hang, however many, hold up no other key's events."""

from collections import Counter

import pytest

from carrier_servers import HANG, Answer
from database import clock
from events import delivery
from events.outbox import EventAddress
from models import Message
from receivers import many
from running import wait_until
from stored_messages import key_named

pytestmark = pytest.mark.usefixtures("database_url")


@pytest.fixture
def hanging(receivers):
    """Keys whose receivers hang, with events that wait: `hanging(16)`, all of one server."""

    def make(count, events=10):
        server = receivers()
        server.answer = HANG
        for number in range(count):
            key = key_named(f"hangs {number}")
            EventAddress.set(key, f"{server.url}&key={number}", clock.now())
            many(events, key.name)
        return server

    return make


def told(key, receiver, count=1):
    """Give a key a receiver and some events."""
    EventAddress.set(key_named(key), receiver.url, clock.now())
    many(count, key)


def shares(server):
    """How many requests each key's receiver got."""
    return Counter(request.path.partition("&key=")[2] for request in server.requests)


@pytest.mark.slow
@pytest.mark.parametrize("status", [204, 500])
def test_many_that_hang_hold_up_nobody_who_comes_later(hanging, receivers, deliveries, status):
    server, other = hanging(40), receivers()
    other.answer = Answer(status)
    deliveries()
    wait_until(lambda: len(shares(server)) == 40)
    told("other", other, 30)
    wait_until(lambda: len({*other.ids}) == 30, 8)
    assert max(shares(server).values()) == 1, "one that has not answered gets one event at a time"


@pytest.mark.slow
def test_more_that_hang_than_there_is_room_for_take_turns_and_leave_half_of_it(
    hanging, receivers, deliveries, monkeypatch
):
    monkeypatch.setattr(delivery, "TIMEOUT", 1)
    monkeypatch.setattr(delivery, "MOST", 16)
    server, good = hanging(20, events=20), receivers()
    deliveries()
    wait_until(lambda: len(shares(server)) == 20 and min(shares(server).values()) >= 2)
    assert max(shares(server).values()) <= 4, "some have had more than their turn"
    server.most = 0
    wait_until(lambda: max(shares(server).values()) >= 5)
    assert server.most <= 16 // 2
    good.delay = 0.1
    told("good", good, 20)
    wait_until(lambda: len(good.events) == 20)
    assert good.most == delivery.AT_ONCE


def test_keys_that_share_an_address_take_turns(receiver, deliveries):
    receiver.delay = 0.01
    told("many", receiver, 1500)
    told("few", receiver, 1)
    few = str(Message.select().where(Message.key == key_named("few")).get().id)
    deliveries()
    wait_until(lambda: any(event["data"]["message_id"] == few for event in receiver.events))
    assert len(receiver.events) < 750
