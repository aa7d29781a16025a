"""A round does a batch of what is due, however much that is: then it beats, and texts go."""

import time
from itertools import pairwise

import pytest

from databases import on_both
from fake_carrier import FakeCarrier
from own_threads import IN_ORDER
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import key_named, store, store_many
from texting.access.keys import ApiKey
from texting.carriers import Receipt
from texting.database import db
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.messages.receipts import EarlyReceipt
from texting.replies import inbound
from texting.replies.model import Reply
from texting.sending import reports, retention
from texting.sending.carrier_state import CarrierState
from texting.sending.runtime import Clock

pytestmark = on_both

FEW = 5
"""Rows of a batch here."""

MANY = 12 * FEW
OLD = TUESDAY_NOON - 9 * DAY


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    for name in (
        "texting.database.tables.FEW",
        "texting.messages.waiting.FEW",
        "texting.messages.doubts.FEW",
        "texting.database.FEW",
    ):
        monkeypatch.setattr(name, FEW)
    monkeypatch.setattr(retention, "PAGE", FEW)
    monkeypatch.setattr("texting.replies.model.PAGE", FEW)
    monkeypatch.setattr(inbound, "SETTLED_AT_ONCE", FEW)
    monkeypatch.setattr(reports, "RECORDED_AT_ONCE", FEW)


class Slow(Clock):
    """A clock by which a change of rows takes four seconds, while `is_slow`."""

    def __init__(self):
        self.passed, self.is_slow = 0, False

    def monotonic(self):
        return time.monotonic() / 1000 + self.passed

    def note(self, event):
        if self.is_slow and event.sql.startswith(("UPDATE", "DELETE")):
            self.passed += 4 * ('"heartbeat"' not in event.sql)


@pytest.fixture
def begun(settings, at, without_waiting):
    """A scheduler of which each `round()` is one, with the tending as slow as said above."""
    hands = Slow()
    db.query_hooks.append(hands.note)

    def begin(carrier=None, **changes):
        at(TUESDAY_NOON)
        one = Scheduler(
            settings._replace(**changes), carrier or FakeCarrier(), IN_ORDER._replace(clock=hands)
        )
        tend, collect = one.tend, one.collect

        def slowly(action):
            hands.is_slow = True
            try:
                action()
            finally:
                hands.is_slow = False

        one.tend, one.collect = lambda: slowly(tend), lambda: slowly(collect)
        return one

    yield begin
    db.query_hooks.remove(hands.note)


# Much that is due, and how to count what is left of it


def many_to_expire():
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/", TUESDAY_NOON)
    store_many(MANY, expires_at=OLD, manual_mode=True, approved=False)
    return Message.select().where(Message.status == Status.QUEUED)


def many_to_promote():
    key = key_named("paused")
    ApiKey.update(paused_at=OLD).where(ApiKey.id == key.id).execute()
    store_many(MANY, key=key, status=Status.SCHEDULED)
    return Message.select().where(Message.status == Status.SCHEDULED)


def many_ended():
    store_many(MANY, status=Status.SENT, finished_at=OLD)


def many_to_purge():
    many_ended()
    return Message.select().where(Message.finished_at == OLD)


def many_to_redact():
    many_ended()
    return Message.select().where(Message.finished_at == OLD, Message.message.is_null(False))


def many_replies(**columns):
    columns = {"text": "", "at": OLD, "received_at": OLD} | columns
    for n in range(MANY):
        Reply.create(number=f"+1212555{n:04}", carrier="fake", id=inbound.new_id(OLD), **columns)


def many_replies_to_purge():
    many_replies()
    return Reply.select()


def many_parts_of_replies():
    many_replies(due_at=TUESDAY_NOON - MINUTE)
    return Reply.select().where(Reply.due_at.is_null(False))


def many_receipts_that_match_nothing():
    rows = [(f"fake {n}", "fake", True, OLD) for n in range(MANY)]
    fields = EarlyReceipt.reference, EarlyReceipt.carrier, EarlyReceipt.delivered
    EarlyReceipt.insert_many(rows, [*fields, EarlyReceipt.received_at]).execute()
    return EarlyReceipt.select()


def many_events(**columns):
    row = {"webhook_id": "evt", "key": key_named("app"), "message_id": inbound.new_id(OLD)}
    row |= {"at": OLD, "body": "{}"} | columns
    Event.insert_many([row] * MANY).execute()


def many_events_of_an_address_that_is_off():
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/", OLD)
    EventAddress.update(off="by hand").execute()
    many_events(next_try_at=OLD)
    return Event.select().where(Event.next_try_at.is_null(False))


def many_events_given_up_long_ago():
    many_events(given_up_at=TUESDAY_NOON - 40 * DAY)
    return Event.select()


def many_of_a_clock_that_was_ahead():
    CarrierState.record_pass(TUESDAY_NOON + DAY, {"fake": []})
    store_many(MANY, status=Status.SENT, finished_at=TUESDAY_NOON + DAY)
    return Message.select().where(Message.finished_at > TUESDAY_NOON)


def many_attempts_of_a_clock_that_was_ahead():
    CarrierState.record_pass(TUESDAY_NOON + DAY, {"fake": []})
    columns = {"in_doubt": 1, "status": Status.SCHEDULED, "in_doubt_since": TUESDAY_NOON + DAY}
    store_many(MANY, TUESDAY_NOON + DAY, carrier="fake", **columns)
    Attempt.update(ask_at=TUESDAY_NOON + HOUR).execute()
    return Attempt.select().where(Attempt.begun_at > TUESDAY_NOON)


MUCH = {
    make.__name__.replace("_", " "): (make, changes)
    for make, changes in (
        (many_to_expire, {}),
        (many_to_promote, {}),
        (many_to_purge, {"keep_messages": 7 * DAY}),
        (many_to_redact, {"keep_texts": 7 * DAY}),
        (many_replies_to_purge, {"keep_messages": 7 * DAY}),
        (many_parts_of_replies, {}),
        (many_receipts_that_match_nothing, {}),
        (many_events_of_an_address_that_is_off, {}),
        (many_events_given_up_long_ago, {}),
        (many_of_a_clock_that_was_ahead, {}),
        (many_attempts_of_a_clock_that_was_ahead, {}),
    )
}
much = pytest.mark.parametrize("what", MUCH)


@much
def test_of_much_that_is_due_a_round_does_one_batch_and_beats(begun, what):
    make, changes = MUCH[what]
    left = make()
    one, counts, beats = begun(**changes), [left.count()], set()
    while counts[-1] and len(counts) < 5 * MANY:
        one.round()
        assert counts[-1] - left.count() <= FEW
        counts.append(left.count())
        beats.add(Heartbeat.get().beats)
    assert counts[-1] == 0, "in the end all is done"
    assert len(beats) >= MANY / FEW, "no round is without a beat that took so long"


@much
def test_an_urgent_text_goes_in_the_round_after_the_one_in_which_it_came(begun, what):
    make, changes = MUCH[what]
    carrier, left = FakeCarrier(), make()
    one = begun(carrier, **changes)
    for n in range(3):
        one.round()
        one.await_answers()
        text = store(to=f"+1212556000{n}")
        assert left.count() > 0, "there is still much to be done"
        one.round()
        one.await_answers()
        assert text.to in carrier.numbers


@much
def test_after_the_request_to_stop_no_further_batch_is_begun(begun, what):
    make, changes = MUCH[what]
    left = make()
    one = begun(**changes)
    one.round()
    one.stop.request()
    before = left.count()
    assert before > 0
    one.round()
    one.finish()
    assert left.count() == before


def test_of_many_receipts_a_wait_records_one_batch_and_texts_go_meanwhile(begun):
    """The carrier hands over all that it has at once."""
    arrived = [Receipt(f"R{n}", True) for n in range(MANY)]

    class Telling(FakeCarrier):
        def received(self):
            given, arrived[:] = [*arrived], []
            return given

    columns = {"status": Status.SENT, "finished_at": TUESDAY_NOON - HOUR, "carrier": "fake"}
    for n in range(MANY):
        store(carrier_reference=f"R{n}", **columns)
    carrier = Telling()
    one, left = begun(carrier), Message.select().where(Message.status == Status.SENT)
    one.pulse.beat()
    while before := left.count():
        one.await_answers()
        assert 0 < before - left.count() <= FEW
        text = store(to=NEW_YORK, key=key_named("urgent"))
        one.round()
        sender = one.senders[0]
        assert text.id in {each.message.id for each in sender.sends.under_way.values()}
        one.await_answers()
        one.round()
        Message.delete().where(Message.id == text.id).execute()
    assert len(carrier.texts) >= MANY / FEW / 2


def test_what_many_dead_schedulers_had_in_hand_is_taken_over_in_batches(begun):
    for n in range(1, 3 * FEW):
        sender = inbound.new_id(TUESDAY_NOON - n * SECOND)
        store(status=Status.SENDING, claimed_by=sender, claimed_at=TUESDAY_NOON - HOUR)
    one = begun()
    left = Attempt.select().where(Attempt.claim_number == 1, Attempt.result.is_null())
    counts = [left.count()]
    while counts[-1] and len(counts) < 3 * MANY:
        one.round()
        counts.append(left.count())
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= FEW


def test_what_a_clock_that_was_set_back_left_is_found_again_by_the_next_if_one_stops(begun):
    left = many_of_a_clock_that_was_ahead()
    one = begun()
    while left.count() == MANY:
        one.round()
    assert left.count() > 0
    next_one = begun()
    for _ in range(3 * MANY):
        next_one.round()
    assert left.count() == 0
    assert CarrierState.get_by_id("fake").last_pass_at == TUESDAY_NOON
