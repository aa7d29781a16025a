"""Locks on Postgres: taken in one order, so nobody is a deadlock's victim, and passed over."""

import contextlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from databases import on_postgres
from running import wait_until
from samples import DAY, HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import (
    FAKE,
    SENDER,
    again,
    claim,
    connection_of,
    decide_on,
    held,
    key_named,
    look,
    new_message,
    store,
    store_many,
)
from texting.access.audit import Audit
from texting.access.do_not_call import OptedOut
from texting.access.keys import ApiKey
from texting.access.limits import KeyUse, lock_numbers, parse, parse_recipient_limit
from texting.access.texted_countries import KeyCountry
from texting.carriers import OptOut, Receipt
from texting.database import clock, db
from texting.events.delivery import Deliveries, Try
from texting.events.outbox import Event, EventAddress
from texting.messages import doubts, receipts, waiting
from texting.messages.admission import AlreadyAnswered, NewMessage, Request
from texting.messages.attempts import Attempt
from texting.messages.model import Message, Status
from texting.messages.storing import insert_all
from texting.replies import opt_outs
from texting.sending import retention

pytestmark = on_postgres

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
FIRST, SECOND = sorted([LONDON, NEW_YORK])


@pytest.fixture
def in_order(database_url):
    """Let another lock two things in their order, and `action` both of them in between.

    `in_order(lock, one, two, action)` calls `lock(one)`, begins `action` in a thread, waits until
    that waits, and calls `lock(two)`: a deadlock if the thread has locked that already. Return what
    `action` returned.
    """

    def run(lock, one, two, action):
        with ThreadPoolExecutor(1) as pool:
            with db.atomic():
                lock(one)
                other = pool.submit(action)
                wait_until(lambda: look(database_url, WAITING)[0][0], 10)
                lock(two)
            return other.result(20)

    yield run
    db.close()


def closing(action, *arguments):
    """Call something in a thread, which gives its connection back."""

    def call():
        try:
            return action(*arguments)
        finally:
            db.close()

    return call


def locking(action, *arguments):
    """Call something in a transaction of a thread."""

    def call():
        with db.atomic():
            return action(*arguments)

    return closing(call)


def test_numbers_in_opposite_orders_are_no_deadlock(in_order):
    both = locking(lock_numbers, [SECOND, FIRST])
    in_order(lambda one: lock_numbers([one]), FIRST, SECOND, both)


def requests(*messages, limits=(), recipient_limit=None):
    return [Request(message, limits, recipient_limit) for message in messages]


def kinds(outcomes):
    return [type(each) for each in outcomes]


def insert_of(messages, **limits):
    """Store messages together, as the web does."""
    return closing(insert_all, requests(*messages, **limits))


def test_messages_to_numbers_with_a_limit_in_opposite_orders_are_no_deadlock(in_order):
    limit = parse_recipient_limit("9/24h")
    both = [new_message(to=SECOND), new_message(to=FIRST)]
    insert = insert_of(both, recipient_limit=limit)
    outcomes = in_order(lambda one: lock_numbers([one]), FIRST, SECOND, insert)
    assert kinds(outcomes) == [NewMessage] * 2


def test_messages_of_keys_with_limits_in_opposite_orders_are_no_deadlock(in_order):
    one, two = 1001, 1008
    assert [*{one, two}] == [two, one]  # a set has the other order
    for key in (one, two):
        ApiKey.create(id=key, name=str(key), digest=str(key), created_at=TUESDAY_NOON)
    messages, (limit,) = [new_message(key=two), new_message(key=one)], parse("9/d")
    second = messages[0].second

    def count(key):
        KeyUse.add(Counter({limit.window_of(key, second): 8}))

    insert = insert_of(messages, limits=[limit])
    assert kinds(in_order(count, one, two, insert)) == [NewMessage] * 2
    assert [each.used for each in KeyUse] == [9, 9]


def stop():
    waiting.block_number(NEW_YORK, TUESDAY_NOON, "always")


def purge():
    retention.purge(TUESDAY_NOON + DAY, TUESDAY_NOON + DAY)


def redact():
    retention.redact(TUESDAY_NOON + DAY, TUESDAY_NOON + DAY)


def record_receipt():
    receipts.record_receipts([Receipt("SM1", True)], TUESDAY_NOON, FAKE)


def decide(how, *arguments):
    getattr(decide_on(Message.get()), how)(*arguments)


cancel, retry = (
    partial(decide, "cancel", "Ann", TUESDAY_NOON),
    partial(decide, "retry", TUESDAY_NOON, DAY),
)


@pytest.mark.parametrize(
    ("before", "first", "then", "after"),
    [
        (Status.QUEUED, partial(claim, 1), cancel, Status.SENDING),
        (Status.QUEUED, partial(claim, 1), stop, Status.SENDING),
        (Status.UNDELIVERED, record_receipt, retry, Status.DELIVERED),
        (Status.UNDELIVERED, retry, record_receipt, Status.SCHEDULED),
        (Status.UNDELIVERED, retry, purge, Status.SCHEDULED),
        (Status.UNDELIVERED, retry, redact, Status.SCHEDULED),
        (Status.UNDELIVERED, retry, retry, Status.SCHEDULED),
    ],
)
def test_of_two_changes_of_a_text_at_once_the_second_knows_the_first(
    in_order, before, first, then, after
):
    ended = before != Status.QUEUED
    message = held(before, finished_at=TUESDAY_NOON if ended else None, carrier_reference="SM1")
    in_order(lambda act: act(), first, lambda: None, closing(then))
    assert again(message).status == after
    assert Audit.select().count() == (retry in (first, then) and after == Status.SCHEDULED)


def test_countries_of_keys_in_opposite_orders_are_no_deadlock(in_order):
    one, two = key_named("app").id, key_named("shop").id
    both = locking(KeyCountry.note, dict.fromkeys([(two, "US"), (one, "US")], TUESDAY_NOON))
    in_order(lambda key: KeyCountry.note({(key, "US"): TUESDAY_NOON}), one, two, both)


def test_events_of_keys_that_failed_in_opposite_orders_are_no_deadlock(in_order):
    tries, url = [], "http://127.0.0.1/events"
    for name in ("app", "shop"):
        EventAddress.set(key_named(name), url, TUESDAY_NOON)
        decide_on(store(key=key_named(name))).cancel("shell", TUESDAY_NOON)
        event, address = Event.get(Event.key == key_named(name)), EventAddress.of(key_named(name))
        tries.insert(0, Try(event, address, None, "no answer", 0))
    record = Deliveries(300, Message.record_notified).record_tries
    one, two = key_named("app").id, key_named("shop").id

    def fail(key):
        EventAddress.record_failure(key, url, TUESDAY_NOON)

    in_order(fail, one, two, closing(record, tries, TUESDAY_NOON))
    assert {each.failures for each in EventAddress.select()} == {2}


def test_the_same_idempotency_keys_in_opposite_orders_are_no_deadlock(in_order):
    def named(name):
        return new_message(idempotency_key=name, request_digest="", response="")

    def store_one(name):
        assert kinds(insert_all(requests(named(name)))) == [NewMessage]

    insert = insert_of([named("b"), named("a")])
    outcomes = in_order(store_one, "a", "b", insert)
    assert kinds(outcomes) == [AlreadyAnswered] * 2


@pytest.mark.parametrize("what", ["receipts", "yes", "found"])
def test_references_in_opposite_orders_are_no_deadlock(in_order, what):
    one, two = held(Status.SENDING), held(Status.SENDING, to=LONDON)
    both = {two.id: "SM2", one.id: "SM1"}
    (copy,) = Attempt.of_messages([one.id])[one.id]
    actions = {
        "receipts": (
            receipts.record_receipts,
            [Receipt("SM2", True), Receipt("SM1", True)],
            TUESDAY_NOON,
            FAKE,
        ),
        "yes": (receipts.record_accepted, both, TUESDAY_NOON, FAKE),
        "found": (receipts.found, copy, ["SM2", "SM1"], TUESDAY_NOON, FAKE),
    }
    record, *arguments = actions[what]

    def hear(reference):
        receipts.record_receipts([Receipt(reference, False)], TUESDAY_NOON, FAKE)

    in_order(hear, "SM1", "SM2", closing(record, *arguments))


def test_an_undo_beside_a_new_text_keeps_to_the_limit_of_their_number(in_order):
    """Whoever is second waits for the first, and counts it."""
    cancelled = held(Status.QUEUED, to=FIRST)
    decide_on(cancelled).cancel("Ann", TUESDAY_NOON)
    limit = parse_recipient_limit("1/24h")
    undo = closing(decide_on(cancelled).undo_cancel, "Ann", TUESDAY_NOON, limit)
    text = new_message(to=FIRST, created_at=TUESDAY_NOON)
    store_text = partial(insert_all, requests(text, recipient_limit=limit))
    assert not in_order(lambda act: act(), store_text, lambda: None, undo)
    assert again(cancelled).status == Status.CANCELLED


def test_a_text_that_is_read_again_is_read_as_another_leaves_it(in_order):
    """A doubt that is being settled is none any more for who records an answer meanwhile."""
    message = held(Status.QUEUED, carrier="fake", in_doubt=1)
    stale = again(message)
    read_again = locking(stale.read_again)

    def settle():
        message.read_again()
        doubts.rule_out(message, FAKE, TUESDAY_NOON)

    in_order(lambda act: act(), settle, lambda: None, read_again)
    assert (stale.in_doubt, stale.lane) == (0, again(message).lane)


# Passed over


@pytest.fixture
def locked_row(database_url):
    """Have another transaction lock the rows that a condition names, until the end of the test."""
    with contextlib.closing(connection_of(database_url)) as other:
        other.execute("BEGIN")
        yield lambda table, id: other.execute(
            f"SELECT 1 FROM {table} WHERE id = %s FOR UPDATE", [id]
        )


PASS_OVER = {
    "promote": lambda: waiting.promote(TUESDAY_NOON),
    "expire": lambda: waiting.expire(TUESDAY_NOON + 3 * DAY),
    "claim": lambda: claim(10),
    "note": lambda: Message.record_notified([each.id for each in Message.select()], TUESDAY_NOON),
}


@pytest.mark.parametrize("name", PASS_OVER)
def test_messages_that_another_has_locked_are_passed_over_and_the_others_moved(locked_row, name):
    status = Status.SCHEDULED if name == "promote" else Status.QUEUED
    store_many(3, status=status, first_send_at=TUESDAY_NOON)
    before = {each.id: each for each in Message.select()}
    taken, *others = before
    locked_row("message", taken)
    began = clock.now()
    PASS_OVER[name]()
    assert clock.now() - began < timedelta(seconds=2)  # and lock_timeout is five
    after = {id: again(each) for id, each in before.items()}
    changed = {id for id in before if after[id].__data__ != before[id].__data__}
    assert changed == {*others}


@pytest.mark.parametrize("name", ["claim", "give up", "forget"])
def test_events_that_another_has_locked_are_passed_over(locked_row, name):
    key, now = key_named("app"), TUESDAY_NOON
    EventAddress.set(key, "http://127.0.0.1:9/", now)
    old = {"given_up_at": now - 40 * 24 * HOUR} if name == "forget" else {}
    due = None if name == "forget" else now
    taken, *_ = [
        Event.create(
            webhook_id="evt", key=key, message_id=SENDER, at=now, body="{}", next_try_at=due, **old
        ).id
        for _ in range(3)
    ]
    locked_row("event", taken)
    if name == "give up":
        EventAddress.update(off="by hand").execute()
    began = clock.now()
    if name == "claim":
        assert taken not in {each.id for each in Event.claim(key, 9, now, now + HOUR, None)}
    elif name == "give up":
        assert Event.give_up(now) == 2
    else:
        Event.forget(now)
        assert [each.id for each in Event.select()] == [taken]
    assert clock.now() - began < timedelta(seconds=2)


def test_a_start_that_comes_while_people_note_an_opt_out_ends_it(in_order):
    OptedOut.add([FIRST], TUESDAY_NOON, "reply")
    start = locking(opt_outs.obey, OptOut(FIRST, False, "reply"), TUESDAY_NOON + HOUR, "asked")

    def note(number):
        OptedOut.add([number], TUESDAY_NOON + HOUR, "operator")

    in_order(note, FIRST, SECOND, start)
    assert not OptedOut.lists(FIRST)
