"""Receivers take turns: those that hang, however many, hold up no other key's events."""

import time
from collections import Counter

import pytest

from carrier_servers import HANG, Answer
from database import clock
from databases import on_sqlite
from events import delivery
from events.delivery import Deliveries
from events.outbox import EventAddress
from models import Message
from running import wait_until
from samples import TUESDAY_NOON
from stored_messages import key_named, store_many

pytestmark = pytest.mark.usefixtures("database_url")


@pytest.fixture
def delivering():
    """Begin to deliver, until the end of the test: `delivering()`."""
    begun = []

    def begin():
        begun.append(Deliveries(300, Message.note_notified))
        begun[0].start()

    yield begin
    begun[0].stop(1)
    begun[0].finish()


@pytest.fixture
def hanging(receivers):
    """Keys whose receivers hang, with events that wait: `hanging(16)`, all of one server."""

    def make(count, events=10):
        server = receivers()
        server.answer = HANG
        for number in range(count):
            key = key_named(f"hangs {number}")
            EventAddress.set(key, f"{server.url}&key={number}", clock.now())
            with_events(key.name, events)
        return server

    return make


def with_events(key, count):
    """Let as many messages of a key end."""
    store_many(count, key=key_named(key), expires_at=TUESDAY_NOON)
    Message.expire(clock.now())


def told(key, receiver, count=1):
    """Give a key a receiver and some events."""
    EventAddress.set(key_named(key), receiver.url, clock.now())
    with_events(key, count)


def shares(server):
    """How many requests each key's receiver got."""
    return Counter(request.path.partition("&key=")[2] for request in server.requests)


@pytest.mark.slow
def test_sixteen_that_hang_hold_up_nobody_who_comes_later(hanging, receivers, delivering):
    server, good = hanging(16), receivers()
    delivering()
    wait_until(lambda: len(server.requests) >= 48)
    time.sleep(1)  # whatever may be begun was begun
    told("good", good, 30)
    wait_until(lambda: len(good.events) == 30, 8)


@pytest.mark.slow
def test_they_leave_room_for_who_does_not_understand_either(hanging, receivers, delivering):
    server, bad = hanging(16), receivers()
    bad.answer = Answer(500)
    delivering()
    wait_until(lambda: len(server.requests) >= 48)
    time.sleep(1)
    assert len(server.requests) == delivery.MOST // 2 - delivery.KEPT_FREE
    told("bad", bad, 5)
    wait_until(lambda: len(bad.requests) >= 5, 8)


@pytest.mark.slow
@on_sqlite
def test_a_first_try_waits_for_none_of_sixty_four_that_hang(hanging, receivers, delivering):
    server, good = hanging(64, events=3), receivers()
    delivering()
    wait_until(lambda: len(server.requests) == 64)
    told("good", good)
    wait_until(lambda: good.events, 8)


@pytest.mark.slow
@on_sqlite
def test_more_that_hang_than_there_is_room_for_have_equal_shares(
    hanging, receivers, delivering, monkeypatch
):
    monkeypatch.setattr(delivery, "TIMEOUT", 1)
    monkeypatch.setattr(delivery, "MOST", 32)
    monkeypatch.setattr(delivery, "KEPT_FREE", 4)
    server, good = hanging(40, events=20), receivers()
    delivering()
    wait_until(lambda: len(shares(server)) == 40, 30)
    assert max(shares(server).values()) <= 8, "some have had more than their turn"
    told("good", good, 10)
    wait_until(lambda: len(good.events) == 10, 10)


def test_keys_that_share_an_address_take_turns(receiver, delivering):
    receiver.delay = 0.01
    told("many", receiver, 1500)
    told("few", receiver, 1)
    few = str(Message.select().where(Message.key == key_named("few")).get().id)
    delivering()
    wait_until(lambda: any(event["data"]["message_id"] == few for event in receiver.events))
    assert len(receiver.events) < 750


@pytest.mark.slow
def test_an_address_is_given_no_more_than_four_at_once_whatever_the_turn(
    hanging, receiver, delivering
):
    server = hanging(1, events=20)
    receiver.delay = 0.1
    told("app", receiver, 20)
    delivering()
    wait_until(lambda: len(receiver.events) == 20)
    assert (len(server.requests), receiver.most) == (delivery.AT_ONCE, delivery.AT_ONCE)
