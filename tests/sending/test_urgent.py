"""Urgent keys: their texts are claimed before those of all others, and they take turns."""

import threading
import time
from collections import Counter

import pytest

import stored_messages
from access.keys import ApiKey, Role
from carriers.lanes import TESTERS
from database import clock, db
from samples import NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import key_named, store, store_many


def key_of(name, urgent=False, role=Role.SENDER):
    key = key_named(name)
    ApiKey.update(urgent=urgent, role=role).where(ApiKey.id == key.id).execute()
    return ApiKey.get_by_id(key.id)


def claim(limit, **options):
    """Claim messages; return the names of their keys."""
    names = dict(ApiKey.select(ApiKey.id, ApiKey.name).tuples())
    claimed = stored_messages.claim(limit, **options)
    return [names[message.key_id] for message in claimed]


def test_urgent_texts_go_first_and_the_rest_of_the_room_is_shared(database_url):
    for name, count in (("a", 50), ("b", 50)):
        store_many(count, key=key_of(name))
    for name, count in (("u", 1), ("v", 2)):
        store_many(count, key=key_of(name, urgent=True))
    assert claim(2) == ["u", "v"]
    assert Counter(claim(5)) == {"v": 1, "a": 2, "b": 2}
    assert Counter(claim(4)) == {"a": 2, "b": 2}


def test_urgent_keys_take_turns_among_themselves(database_url):
    store_many(20, key=key_of("a"))
    urgent = [key_of(name, urgent=True) for name in "uvw"]
    for key in urgent:
        store_many(20, key=key)
    assert Counter(claim(6)) == {"u": 2, "v": 2, "w": 2}
    assert claim(1, first_urgent=urgent[1].id) == ["v"]
    assert claim(2, first_urgent=urgent[2].id) == ["w", "u"]
    assert claim(2, first_urgent=urgent[2].id + 1, first_key=99) == ["u", "v"]


def test_a_change_counts_at_the_next_claim(database_url):
    a, b = key_of("a"), key_of("b")
    for key in (a, b):
        store_many(5, key=key)
    assert claim(1) == ["a"]
    b.rule({"urgent": True}, TUESDAY_NOON, lambda own: None)
    assert claim(2) == ["b", "b"]
    b.rule({"urgent": False}, TUESDAY_NOON, lambda own: None)
    assert claim(1) == ["a"]


def test_an_urgent_tester_comes_before_testers_and_not_before_senders(database_url):
    store(key=key_of("a"))
    store(key=key_of("t", role=Role.TESTER))
    store(key=key_of("u", urgent=True, role=Role.TESTER))
    assert claim(5) == ["a"]
    assert claim(5, carrier=TESTERS) == ["u", "t"]


@pytest.fixture
def send_one(settings, carrier, at):
    """Send one text by a pass of a process of its own; return the text."""
    at(TUESDAY_NOON)

    def send():
        one = Scheduler(settings._replace(send_concurrency=1), carrier)
        carrier.answers = {NEW_YORK: one.stop.request}
        before = len(carrier.texts)
        one.run_pass()
        ((_, text),) = carrier.texts[before:]
        return text

    return send


def test_both_kinds_take_turns_over_passes(send_one):
    for name in "abcduv":
        for _ in range(2):
            store(key=key_of(name, urgent=name in "uv"), message=name)
    assert "".join(send_one() for _ in range(12)) == "uvuvabcdabcd"


def test_urgent_texts_in_between_change_no_turn_of_the_others(send_one):
    for name in "abc":
        for _ in range(2):
            store(key=key_of(name), message=name)
    sent = ""
    for _ in range(6):
        store(key=key_of("u", urgent=True), message="u")
        sent += send_one() + send_one()
    assert sent == "uaubucuaubuc"


@pytest.mark.parametrize("names", ["abc", "uvw", "abuv"])
def test_what_the_rate_holds_back_is_the_next_in_turn(names, settings, carrier, at, run_pass):
    """Three texts are claimed at once, of which one may go."""
    for name in names:
        for _ in range(2):
            store(key=key_of(name, urgent=name in "uvw"), message=name, parts=3)
    for second in range(2 * len(names)):
        run_pass(TUESDAY_NOON + second * SECOND, send_rate=5)
    urgent, others = (
        "".join(name for name in names if (name in "uvw") == is_urgent)
        for is_urgent in (True, False)
    )
    assert "".join(text for _, text in carrier.texts) == 2 * urgent + 2 * others


@pytest.mark.timed
def test_a_repeated_pass_begins_early_for_an_urgent_text(settings, carrier):
    """Between two passes a minute apart, a second is all that it waits."""
    every = Scheduler(settings._replace(business_hours=(0, 1440)), carrier)  # of today's clock
    key_of("u", urgent=True), key_of("a")
    waits = {}

    def create():
        now = clock.now()
        for name in "au":
            store(now=now, key=key_named(name), message=name)
        waits["since"] = time.monotonic()
        db.close()

    def sent():
        waits.setdefault("until", time.monotonic())
        every.stop.request()

    carrier.answers = {NEW_YORK: sent}
    timer = threading.Timer(1.5, create)
    timer.start()
    giving_up = threading.Timer(15, every.stop.request)
    giving_up.start()
    every.run(60, lambda counts: None)
    giving_up.cancel()
    assert carrier.texts[0] == (NEW_YORK, "u")
    assert waits["until"] - waits["since"] < 2
