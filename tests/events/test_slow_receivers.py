"""Receivers that hang, however many, hold up no other key's events; one has two at once."""

import threading
import time
from collections import Counter

import pytest

from carrier_servers import HANG, Answer
from receivers import cancelled, many
from running import wait_until
from stored_messages import key_named
from texting.carriers import http
from texting.database import clock
from texting.events import delivery
from texting.events.outbox import Event, EventAddress
from texting.messages.model import Message

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
            if events:
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
    assert {*shares(server).values()} == {2}


def count_threads():
    """How many threads deliver events now."""
    return sum(each.name.endswith("(deliver)") for each in threading.enumerate())


@pytest.fixture
def busiest(monkeypatch):
    """How many threads delivered events whenever one began; the test takes the most."""
    counts = [0]
    deliver = delivery.Deliveries.deliver

    def counted(*about):
        counts.append(count_threads())
        deliver(*about)

    counted.__name__ = "deliver"
    monkeypatch.setattr(delivery.Deliveries, "deliver", counted)
    return counts


@pytest.mark.slow
def test_however_many_hang_tries_are_bounded_and_who_answered_is_told(
    hanging, receivers, deliveries, busiest
):
    good = receivers()
    deliveries()
    told("good", good)
    wait_until(lambda: len(good.events) == 1)
    server = hanging(150)
    wait_until(lambda: len(server.requests) >= delivery.FOR_UNTRIED)
    told("good", good, 30)
    wait_until(lambda: len(good.events) == 31)
    assert len(server.requests) == delivery.FOR_UNTRIED, "it waited for them"
    assert max(busiest) <= delivery.IN_ALL


@pytest.mark.slow
def test_known_ones_that_hang_leave_room_for_those_that_were_never_tried(
    hanging, receivers, deliveries, busiest
):
    server, other = hanging(150), receivers()
    EventAddress.update(failures=1, failing_since=clock.now()).execute()  # a process before this
    deliveries()
    wait_until(lambda: len(server.requests) == delivery.FOR_SLOW)
    told("other", other, 30)
    wait_until(lambda: len(other.events) == 30)
    assert len(server.requests) == delivery.FOR_SLOW
    assert max(busiest) <= delivery.FOR_SLOW + delivery.AT_ONCE


@pytest.mark.slow
def test_good_ones_that_come_to_hang_hold_others_up_no_longer_than_one_try(
    hanging, receivers, deliveries, busiest, monkeypatch
):
    monkeypatch.setattr(delivery, "TIMEOUT", 3)
    monkeypatch.setattr(delivery, "SLOW", 1)
    server, other = hanging(70, events=3), receivers()
    server.answer = None
    deliveries()
    wait_until(lambda: not Event.select().count())
    server.answer, before = HANG, len(server.requests)
    for number in range(70):
        many(60, f"hangs {number}")
    wait_until(lambda: len(server.requests) >= before + delivery.IN_ALL)
    told("other", other, 30)
    wait_until(lambda: len(other.events) == 30)
    assert max(busiest) <= delivery.IN_ALL
    failing = EventAddress.select().where(EventAddress.failures > 0)
    wait_until(lambda: failing.count() == 70 and count_threads() <= delivery.FOR_SLOW)
    busiest.clear()
    told("another", other, 30)
    wait_until(lambda: len(other.events) == 60)
    assert max(busiest) <= delivery.FOR_SLOW + 2 * delivery.AT_ONCE


@pytest.mark.slow
def test_a_slow_one_that_answers_at_once_again_counts_as_slow_no_more(
    hanging, receiver, deliveries, monkeypatch
):
    monkeypatch.setattr(delivery, "SLOW", 1)
    server = hanging(30, events=0)
    EventAddress.update(failures=1, failing_since=clock.now()).execute()
    deliveries()
    for receiver.delay in (1.5, 0):
        told("slow", receiver)
        wait_until(lambda: not Event.select().count())
    for number in range(30):
        many(60, f"hangs {number}")
    wait_until(lambda: len(server.requests) >= delivery.FOR_SLOW)
    told("slow", receiver, 30)
    wait_until(lambda: len(receiver.events) == 32)
    assert len(server.requests) == delivery.FOR_SLOW


def test_an_address_gets_two_requests_at_once(receiver, deliveries):
    receiver.delay = 0.1
    for key in ("first", "second"):
        told(key, receiver, 10)
    deliveries()
    wait_until(lambda: len(receiver.events) == 20)
    assert receiver.most == delivery.AT_ONCE == 2


def test_keys_that_share_an_address_take_turns(receiver, deliveries):
    told("many", receiver, 300)
    told("few", receiver, 1)
    few = str(Message.select().where(Message.key == key_named("few")).get().id)
    deliveries()
    wait_until(lambda: any(event["data"]["message_id"] == few for event in receiver.events))
    assert len(receiver.events) < 150


class TurnedTime:
    """The module `time`, whose monotonic clock a test turns on."""

    ahead = 0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def __getattr__(self, name):
        return getattr(time, name)


def test_a_connection_that_waits_a_minute_for_its_next_event_is_used_again(
    app_key, receiver, delivering, monkeypatch
):
    turned = TurnedTime()
    monkeypatch.setattr(http, "time", turned)
    monkeypatch.setattr(delivery, "time", turned)
    monkeypatch.setattr(delivery, "IDLE", 0.01)
    receiver.answers["cancelled"] = HANG  # so the receiver is in use all the time
    cancelled()
    wait_until(lambda: len(receiver.requests) == 1)
    for told in (1, 2):
        many(1)
        wait_until(lambda told=told: receiver.types == ["expired"] * told)
        wait_until(lambda: Event.select().count() == 1)
        turned.ahead += 60
        time.sleep(0.1)  # it looks at the database some times
    assert receiver.connections == 2
    assert Event.get().tries == 0
    receiver.closing.set()  # ends the one that hangs
