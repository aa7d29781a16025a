"""One pass: what is promoted, sent, tried again, held back and counted, and at which instant."""

import argparse
import itertools
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import peewee
import pytest

import database
import recipients
import scheduler
from access.do_not_call import DoNotCall
from carriers import CarrierError
from database import pool
from databases import END_OTHER_CONNECTIONS
from fake_carrier import FOR_GOOD, FOR_NOW, TOO_FAST
from models import TAKEN, Message, Status
from recipients.hours import Clocks
from samples import (
    ALWAYS_OPEN,
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    NEIGHBOUR,
    NEW_YORK,
    SECOND,
    THIRD,
    TUESDAY_NOON,
)
from scheduler import Scheduler
from sending import heartbeats, receipts
from sending.attempts import Attempt
from sending.heartbeats import Heartbeat
from sending.outcomes import Outcome
from sending.runtime import Clock, Runtime
from stored_messages import (
    again,
    claim,
    connection_of,
    held,
    look,
    statuses,
    store,
    store_many,
    take_over,
)

TUESDAY_EVENING = datetime(2026, 3, 3, 22, 0, tzinfo=UTC)  # 5 PM in New York: just closed
TUESDAY_NIGHT = datetime(2026, 3, 4, 4, 0, tzinfo=UTC)  # 11 PM in New York
WEDNESDAY_OPENING = datetime(2026, 3, 4, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "", "86401"])
def test_what_is_no_pause_between_passes_is_refused(text):
    with pytest.raises((ValueError, argparse.ArgumentTypeError)):
        scheduler.seconds(text)


# Promotion


def test_a_scheduled_message_is_sent_at_its_time_and_not_a_millisecond_before(run_pass, carrier):
    message = store(status=Status.SCHEDULED, send_date=TUESDAY_NOON, send_at=TUESDAY_NOON)
    assert not +run_pass(TUESDAY_NOON - MILLISECOND)
    assert again(message).status == Status.SCHEDULED
    assert +run_pass(TUESDAY_NOON) == Counter({"promoted": 1, "sent": 1})
    assert carrier.texts == [(NEW_YORK, "Hello")]


def test_what_is_sent_is_recorded_with_the_carriers_reference_and_sent_no_more(run_pass, carrier):
    message = store(last_error="out of order", attempts=2)
    carrier.answers[NEW_YORK] = "SM123"
    run_pass(TUESDAY_NOON + MINUTE)
    sent = again(message)
    assert (sent.status, sent.attempts, sent.last_error) == (Status.SENT, 3, None)
    assert (sent.carrier_reference, sent.finished_at) == ("SM123", TUESDAY_NOON + MINUTE)
    assert [each.result for each in Attempt.select()] == ["taken"]
    assert not +run_pass(TUESDAY_NOON + DAY)
    assert len(carrier.texts) == 1


def test_the_text_is_sent_as_it_came(run_pass, carrier):
    text = " \t‮ 👩‍👩‍👧\r\n%s {to} 'x' \\ é "
    store(message=text)
    run_pass(TUESDAY_NOON)
    assert carrier.texts == [(NEW_YORK, text)]


def test_the_longest_due_is_sent_first(run_pass, carrier):
    for minutes in (3, 1, 5, 2, 4):
        store(to=f"+1212555000{minutes}", send_at=TUESDAY_NOON - minutes * MINUTE)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert [number[-1] for number in carrier.numbers] == ["5", "4", "3", "2", "1"]


def test_one_pass_sends_all_that_is_queued_each_once(run_pass, carrier):
    numbers = store_many(50)
    assert +run_pass(TUESDAY_NOON) == Counter({"sent": 50})
    assert sorted(carrier.numbers) == numbers


def test_sends_run_side_by_side_as_many_as_the_setting_says(run_pass, carrier):
    together = threading.Barrier(5)
    for number in store_many(10):
        carrier.answers[number] = lambda: together.wait(60) and None
    assert run_pass(TUESDAY_NOON, send_concurrency=5)["sent"] == 10
    together.reset()
    most, under_way, guard = [], set(), threading.Lock()

    def count():
        me = object()
        with guard:
            under_way.add(me)
            most.append(len(under_way))
        time.sleep(0.02)
        with guard:
            under_way.remove(me)

    for number in store_many(10):
        carrier.answers[number] = count
    assert run_pass(TUESDAY_NOON, send_concurrency=3)["sent"] == 10
    assert max(most) <= 3


def test_a_pass_ends_although_new_messages_never_stop_coming(run_pass, carrier):
    """Otherwise, on a busy day, nothing that is scheduled would ever become due."""
    due = store(to=NEIGHBOUR, status=Status.SCHEDULED, send_at=TUESDAY_NOON + MINUTE)
    store()

    def another():
        if len(carrier.texts) < 100:
            store(TUESDAY_NOON + HOUR)

    carrier.answers[NEW_YORK] = another
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert len(carrier.texts) < 100, "the pass ended only when no more came"
    assert again(due).status == Status.SCHEDULED
    run_pass(TUESDAY_NOON + MINUTE, send_concurrency=1)
    assert again(due).status == Status.SENT


# Transitions

RETRIED = {Status.FAILED, Status.BLOCKED, Status.UNDELIVERED, Status.EXPIRED}
MOVES = {
    "approve": (lambda m: m.approve("shell", TUESDAY_NOON), {Status.SCHEDULED, Status.QUEUED}),
    "cancel": (lambda m: m.cancel("shell", TUESDAY_NOON), {Status.SCHEDULED, Status.QUEUED}),
    "retry": (lambda m: m.retry(TUESDAY_NOON, 3 * DAY), RETRIED),
    "sent": (lambda m: receipts.sent({m.id: "SM1"}, TUESDAY_NOON) == 1, set(Status) - {*TAKEN}),
    **{
        f"apply {status}": (
            lambda m, status=status: m.apply(Outcome(status, "busy"), TUESDAY_NOON),
            {Status.SENDING},
        )
        for status in Status
        if status not in (*TAKEN, Status.SENDING)
    },
}


@pytest.mark.parametrize("move", MOVES)
def test_a_transition_happens_from_its_states_alone_and_says_whether_it_did(database_url, move):
    transition, allowed = MOVES[move]
    for status in Status:
        message = held(status, approved=False)
        before = again(message).__data__
        assert transition(message) is (status in allowed), status
        if status not in allowed:
            assert again(message).__data__ == before, status
        elif move != "approve":
            assert again(message).status != status


def test_what_is_taken_over_is_queued_and_in_doubt(database_url):
    message = held(Status.SENDING)
    assert take_over(TUESDAY_NOON + MINUTE) == 1
    assert (again(message).status, again(message).in_doubt) == (Status.QUEUED, 1)
    (copy,) = Attempt.of_messages([message.id])[message.id]
    assert (copy.result, copy.begun_at) == ("unclear", TUESDAY_NOON)


def test_a_sender_that_lost_its_claim_changes_nothing(database_url):
    message = held(Status.SENDING)
    take_over(TUESDAY_NOON + MINUTE)
    (anew,) = claim(1)  # by the same process
    before = again(message).__data__
    for status in (Status.QUEUED, Status.SCHEDULED, Status.FAILED, Status.BLOCKED):
        assert not message.apply(Outcome(status, "no"), TUESDAY_NOON)
        assert again(message).__data__ == before
    Message.put_back([message])
    assert again(message).__data__ == before
    assert anew.apply(Outcome(Status.FAILED, "no"), TUESDAY_NOON)


def test_a_late_yes_counts_although_the_claim_is_lost(database_url):
    message = held(Status.SENDING)
    take_over(TUESDAY_NOON + MINUTE)
    assert receipts.sent({message.id: "SM1"}, TUESDAY_NOON, numbers={message.id: 1}) == 1
    assert (again(message).status, again(message).in_doubt) == (Status.SENT, 0)


def test_only_what_is_queued_and_approved_can_be_claimed(database_url):
    for status, approved in itertools.product(Status, (True, False)):
        held(status, approved=approved)
    (claimed,) = claim(100)
    assert (claimed.status, claimed.approved) == (Status.SENDING, True)
    assert again(claimed).status == Status.SENDING


def test_only_what_is_scheduled_and_due_is_promoted(database_url):
    for status, late in itertools.product(Status, (0, 1)):
        held(status, send_at=TUESDAY_NOON + late * MILLISECOND, finished_at=TUESDAY_NOON)
    assert Message.promote(TUESDAY_NOON) == {Status.QUEUED: 1}
    assert statuses() == dict.fromkeys(Status, 2) | {Status.SCHEDULED: 1, Status.QUEUED: 3}


def test_no_more_is_claimed_than_asked_for(database_url):
    store_many(5)
    assert [len(claim(3)) for _ in range(3)] == [3, 2, 0]


def test_a_cancelled_message_is_never_sent(run_pass, carrier):
    for status in (Status.SCHEDULED, Status.QUEUED):
        assert store(status=status).cancel("shell", TUESDAY_NOON)
    assert not +run_pass(TUESDAY_NOON + DAY)
    assert carrier.texts == []


# Approval


def test_nothing_is_sent_before_somebody_approves_it(run_pass, carrier):
    queued = store(manual_mode=True)
    scheduled = store(manual_mode=True, status=Status.SCHEDULED, to=NEIGHBOUR)
    store(manual_mode=True, status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    assert +run_pass(TUESDAY_NOON) == Counter({"promoted": 1, "waiting for approval": 3})
    assert carrier.texts == []
    assert queued.approve("shell", TUESDAY_NOON)
    assert scheduled.approve("shell", TUESDAY_NOON)
    assert +run_pass(TUESDAY_NOON) == Counter({"sent": 2, "waiting for approval": 1})
    assert sorted(carrier.numbers) == [NEW_YORK, NEIGHBOUR]


def test_what_is_approved_before_its_time_is_sent_at_its_time(run_pass, carrier):
    message = store(manual_mode=True, status=Status.SCHEDULED, send_at=TUESDAY_NOON)
    message.approve("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON - MILLISECOND)
    assert carrier.texts == []
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]


def test_approved_at_night_it_waits_for_the_opening(run_pass, carrier):
    message = store(manual_mode=True)
    run_pass(TUESDAY_NOON)
    message.approve("shell", TUESDAY_NOON)
    assert +run_pass(TUESDAY_NIGHT) == Counter({"rescheduled": 1})
    assert (again(message).status, again(message).send_at) == (Status.SCHEDULED, WEDNESDAY_OPENING)
    assert not +run_pass(WEDNESDAY_OPENING - MILLISECOND)
    run_pass(WEDNESDAY_OPENING)
    assert carrier.numbers == [NEW_YORK]


@pytest.mark.parametrize("late", [timedelta(0), HOUR - MILLISECOND])
def test_approved_within_an_hour_of_its_send_date_it_is_sent_at_night(run_pass, carrier, late):
    message = store(manual_mode=True, send_date=TUESDAY_NIGHT, send_at=TUESDAY_NIGHT)
    message.approve("shell", TUESDAY_NIGHT)
    run_pass(TUESDAY_NIGHT + late)
    assert carrier.numbers == [NEW_YORK]


def test_approved_an_hour_after_its_send_date_it_keeps_to_business_hours(run_pass, carrier):
    message = store(manual_mode=True, send_date=TUESDAY_NIGHT, send_at=TUESDAY_NIGHT)
    message.approve("shell", TUESDAY_NIGHT)
    assert +run_pass(TUESDAY_NIGHT + HOUR) == Counter({"rescheduled": 1})
    assert again(message).send_at == WEDNESDAY_OPENING
    run_pass(WEDNESDAY_OPENING)
    assert carrier.numbers == [NEW_YORK]


# The Do Not Call list


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_a_number_that_joined_the_list_meanwhile_gets_no_text(run_pass, carrier, status):
    message = store(status=status, check_dnc=True)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    assert +run_pass(TUESDAY_NOON) == Counter({"blocked": 1})
    assert carrier.texts == []
    blocked = again(message)
    assert (blocked.status, blocked.finished_at, blocked.attempts) == ("blocked", TUESDAY_NOON, 0)
    DoNotCall.remove([NEW_YORK], TUESDAY_NOON, "operator")
    assert not +run_pass(TUESDAY_NOON + DAY)


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_without_check_dnc_a_number_on_the_list_gets_its_text(run_pass, carrier, status):
    store(status=status, check_dnc=False)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]


def test_the_list_blocks_a_message_with_check_dnc_and_not_its_neighbour(run_pass, carrier):
    asked, did_not = (store(check_dnc=asked, message=str(asked)) for asked in (True, False))
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON)
    assert carrier.texts == [(NEW_YORK, "False")]
    assert (again(asked).status, again(did_not).status) == (Status.BLOCKED, Status.SENT)


def test_the_list_does_not_touch_what_is_not_due(run_pass, carrier):
    message = store(status=Status.SCHEDULED, check_dnc=True, send_at=TUESDAY_NOON + MILLISECOND)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    assert not +run_pass(TUESDAY_NOON)
    DoNotCall.remove([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON + MILLISECOND)
    assert again(message).status == Status.SENT


def test_a_number_that_joins_the_list_in_the_middle_of_a_pass_gets_no_text(run_pass, carrier):
    store(to=NEIGHBOUR, send_at=TUESDAY_NOON - MINUTE)
    second = store(check_dnc=True)
    carrier.answers[NEIGHBOUR] = lambda: (
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator") and None
    )
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert carrier.numbers == [NEIGHBOUR]
    assert again(second).status == Status.BLOCKED


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_with_check_dnc_always_no_number_on_the_list_gets_a_text(run_pass, carrier, status):
    message = store(status=status, check_dnc=False)
    store(to=NEIGHBOUR, status=status, check_dnc=False)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    assert run_pass(TUESDAY_NOON, check_dnc="always")["blocked"] == 1
    assert carrier.numbers == [NEIGHBOUR]
    assert again(message).status == Status.BLOCKED


def test_a_retry_looks_at_the_list_again(run_pass, carrier):
    message = store(check_dnc=True)
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_NOON)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON + 2 * MINUTE)
    assert len(carrier.texts) == 1
    assert again(message).status == Status.BLOCKED


def test_a_recipient_that_opted_out_joins_the_list_and_gets_no_more_texts(run_pass, carrier):
    first = store(send_at=TUESDAY_NOON - MINUTE)
    second = store(check_dnc=True)
    carrier.answers[NEW_YORK] = CarrierError("opted out", opted_out=True)
    counts = run_pass(TUESDAY_NOON, send_concurrency=1)
    assert +counts == Counter({"failed": 1, "blocked": 1})
    assert DoNotCall.lists(NEW_YORK)
    assert (again(first).status, again(first).last_error) == (Status.FAILED, "opted out")
    assert again(second).status == Status.BLOCKED
    assert len(carrier.texts) == 1


def test_a_recipient_that_opted_out_twice_is_on_the_list_once(run_pass, carrier):
    store()
    store()
    carrier.answers[NEW_YORK] = CarrierError("opted out", opted_out=True)
    assert run_pass(TUESDAY_NOON)["failed"] == 2
    assert DoNotCall.select().count() == 1


# Business hours


@pytest.mark.parametrize("now", [TUESDAY_EVENING, TUESDAY_NIGHT])
def test_held_up_past_closing_it_waits_for_the_next_opening(run_pass, carrier, now):
    message = store(send_at=TUESDAY_NOON, attempts=1, last_error="busy")
    assert +run_pass(now) == Counter({"rescheduled": 1})
    waiting = again(message)
    assert (waiting.status, waiting.send_at) == (Status.SCHEDULED, WEDNESDAY_OPENING)
    assert (waiting.attempts, waiting.last_error) == (1, "busy")
    run_pass(WEDNESDAY_OPENING)
    assert carrier.numbers == [NEW_YORK]


def test_in_the_last_minute_before_closing_it_is_sent(run_pass, carrier):
    store()
    run_pass(TUESDAY_EVENING - MILLISECOND)
    assert carrier.numbers == [NEW_YORK]


def test_closing_time_comes_in_the_middle_of_a_pass(run_pass, carrier, at):
    numbers = store_many(3)
    carrier.answers[numbers[1]] = lambda: at(TUESDAY_EVENING)
    counts = run_pass(TUESDAY_EVENING - MINUTE, send_concurrency=1)
    assert +counts == Counter({"sent": 2, "rescheduled": 1})
    assert carrier.numbers == numbers[:2]


def test_a_send_date_is_obeyed_at_night(run_pass, carrier):
    store(status=Status.SCHEDULED, send_date=TUESDAY_NIGHT, send_at=TUESDAY_NIGHT)
    run_pass(TUESDAY_NIGHT)
    assert carrier.numbers == [NEW_YORK]


def test_on_a_day_without_business_hours_it_waits_for_one_that_has_them(run_pass, carrier):
    saturday, monday = datetime(2026, 3, 7, 17, tzinfo=UTC), datetime(2026, 3, 9, 13, tzinfo=UTC)
    message = store(saturday)
    weekdays = {"business_days": frozenset(range(5))}
    run_pass(saturday, **weekdays)
    assert again(message).send_at == monday  # and the clocks changed on Sunday
    run_pass(monday, **weekdays)
    assert carrier.numbers == [NEW_YORK]


def test_a_scheduler_that_was_off_for_a_day_still_keeps_to_business_hours(run_pass, carrier):
    kept = store(status=Status.SCHEDULED, send_at=WEDNESDAY_OPENING)
    late = store(status=Status.SCHEDULED, send_at=TUESDAY_NOON, send_date=TUESDAY_NOON)
    assert +run_pass(TUESDAY_NIGHT + DAY) == Counter({"promoted": 2, "rescheduled": 2})
    assert carrier.numbers == []
    assert {again(kept).send_at, again(late).send_at} == {WEDNESDAY_OPENING + DAY}
    run_pass(WEDNESDAY_OPENING + DAY)
    assert carrier.numbers == [NEW_YORK, NEW_YORK]


def test_a_retry_that_falls_into_the_night_waits_for_the_opening(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_EVENING - SECOND)
    run_pass(TUESDAY_EVENING + 2 * MINUTE)
    assert len(carrier.texts) == 1
    assert (again(message).send_at, again(message).attempts) == (WEDNESDAY_OPENING, 1)
    carrier.answers.clear()
    run_pass(WEDNESDAY_OPENING)
    assert again(message).status == Status.SENT


def test_a_retry_of_a_message_with_a_send_date_does_not_wait(run_pass, carrier):
    store(send_date=TUESDAY_NIGHT)
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_NIGHT)
    run_pass(TUESDAY_NIGHT + 2 * MINUTE)
    assert len(carrier.texts) == 2


# Carriers that say no


@pytest.mark.parametrize(("attempts", "minutes"), [(0, 1), (1, 5), (2, 25)])
def test_a_failed_send_is_tried_again_after_1_5_and_25_minutes(
    run_pass, carrier, attempts, minutes
):
    for number in store_many(30, attempts=attempts):
        carrier.answers[number] = FOR_NOW
    assert +run_pass(TUESDAY_NOON) == Counter({"retrying": 30})
    delays = [(m.send_at - TUESDAY_NOON) / MINUTE for m in Message.select()]
    assert all(0.9 * minutes <= delay <= 1.1 * minutes for delay in delays)
    assert len(set(delays)) > 20
    assert {m.attempts for m in Message.select()} == {attempts + 1}
    assert {m.last_error for m in Message.select()} == {"out of order"}


def test_the_first_delay_is_a_setting(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_NOON, retry_delay=1000)
    assert 900 <= (again(message).send_at - TUESDAY_NOON).total_seconds() <= 1100


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_it_is_given_up_after_exactly_max_retries(run_pass, carrier, max_retries):
    message = store(max_retries=max_retries, send_date=TUESDAY_NOON)
    carrier.answers[NEW_YORK] = FOR_NOW
    for hours in range(max_retries + 3):
        run_pass(TUESDAY_NOON + hours * HOUR, max_retries=7)  # the message's own counts
    assert len(carrier.texts) == 1 + max_retries
    failed = again(message)
    assert (failed.status, failed.attempts) == (Status.FAILED, 1 + max_retries)
    assert failed.finished_at == TUESDAY_NOON + max_retries * HOUR
    assert failed.last_error == "out of order"


def test_what_the_carrier_refuses_for_good_is_not_tried_again(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = FOR_GOOD
    assert +run_pass(TUESDAY_NOON) == Counter({"failed": 1})
    assert not +run_pass(TUESDAY_NOON + DAY)
    assert len(carrier.texts) == 1
    assert (again(message).status, again(message).last_error) == ("failed", "no such number")


def test_too_fast_uses_no_retry_up(run_pass, carrier):
    message = store(max_retries=0, send_date=TUESDAY_NOON)
    carrier.answers[NEW_YORK] = TOO_FAST
    for hours in range(5):
        run_pass(TUESDAY_NOON + hours * HOUR)
    assert (again(message).status, again(message).attempts) == (Status.QUEUED, 0)
    assert again(message).last_error == "slow down"
    carrier.answers.clear()
    run_pass(TUESDAY_NOON + DAY)
    assert again(message).status == Status.SENT


@pytest.mark.parametrize(("retry_after", "pauses"), [(7, [7, 7, 7]), (None, [1, 2, 4])])
def test_too_fast_is_a_pause_for_all_schedulers(run_pass, carrier, retry_after, pauses):
    """As long as the carrier asks for, or growing; then one text goes first."""
    numbers = store_many(3)
    too_fast = CarrierError("slow", too_fast=True, retry_after=retry_after)
    carrier.answers = dict.fromkeys(numbers, too_fast)
    now = TUESDAY_NOON
    for sends, pause in enumerate(pauses, start=1):
        run_pass(now, send_concurrency=1)
        assert len(carrier.texts) == sends
        run_pass(now + timedelta(seconds=pause) - MILLISECOND)
        assert len(carrier.texts) == sends, "nothing goes before the pause ends"
        now += timedelta(seconds=pause)
    carrier.answers.clear()
    assert run_pass(now)["sent"] == 3
    assert Message.select().where(Message.attempts > 1).count() == 0


def test_after_too_fast_the_refused_text_keeps_its_place(run_pass, carrier):
    numbers = [f"+1212555{n:04}" for n in range(5)]
    for n, number in enumerate(numbers):
        store(to=number, send_at=TUESDAY_NOON - (5 - n) * SECOND)
    carrier.answers[numbers[1]] = TOO_FAST
    counts = run_pass(TUESDAY_NOON, send_concurrency=1)
    assert +counts == Counter({"sent": 1, "waiting for a carrier": 4})
    assert carrier.numbers == numbers[:2]
    carrier.answers.clear()
    assert run_pass(TUESDAY_NOON + SECOND, send_concurrency=1)["sent"] == 4
    assert carrier.numbers[2:] == numbers[1:]


def test_a_carrier_that_fails_in_an_unforeseen_way_is_tried_again(run_pass, carrier, caplog):
    message = store()
    carrier.answers[NEW_YORK] = KeyError("+12125550123 Hello")
    assert run_pass(TUESDAY_NOON)["retrying"] == 1
    assert (again(message).attempts, again(message).last_error) == (1, "unexpected KeyError")
    assert "Hello" not in caplog.text
    assert "2125550123" not in caplog.text


UNSTORABLE = ["SM\0", "SM\ud800"]


@pytest.mark.parametrize("reference", UNSTORABLE, ids=ascii)
def test_a_reference_that_no_database_holds_does_not_hide_the_carriers_yes(
    run_pass, carrier, reference
):
    message, other = store(), store(to=NEIGHBOUR)
    carrier.answers[NEW_YORK] = reference
    run_pass(TUESDAY_NOON)
    run_pass(TUESDAY_NOON + HOUR)
    assert sorted(carrier.numbers) == [NEW_YORK, NEIGHBOUR]
    assert (again(message).status, again(other).status) == (Status.SENT, Status.SENT)


@pytest.mark.parametrize("reason", UNSTORABLE, ids=ascii)
def test_a_reason_that_no_database_holds_stops_nothing(run_pass, carrier, reason):
    message, other = store(), store(to=NEIGHBOUR)
    carrier.answers[NEW_YORK] = CarrierError(reason, permanent=True)
    run_pass(TUESDAY_NOON)
    assert (again(message).status, again(other).status) == (Status.FAILED, Status.SENT)


@pytest.mark.parametrize("number", ["+12125550", "+99912345678", "+10000000000"])
def test_a_number_that_a_newer_libphonenumber_refuses_fails_alone(run_pass, carrier, number):
    message = store(to=number)
    store()
    counts = run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]
    assert +counts == Counter({"failed": 1, "sent": 1})
    assert "not a valid phone number" in again(message).last_error


def test_a_hundred_retries_are_too_many_for_no_calendar(run_pass, carrier):
    message = store(max_retries=100, attempts=99)
    carrier.answers[NEW_YORK] = FOR_NOW
    assert run_pass(TUESDAY_NOON, retry_delay=86_400)["retrying"] == 1
    assert again(message).send_at.year < 2030


# Senders that die


def test_what_a_dead_sender_held_is_sent_by_another_after_claim_timeout(run_pass, carrier):
    held(Status.SENDING, claimed_at=TUESDAY_NOON)
    assert not +run_pass(TUESDAY_NOON + 300 * SECOND)
    counts = run_pass(TUESDAY_NOON + 300 * SECOND + MILLISECOND)
    assert +counts == Counter({"taken over": 1, "sent": 1})
    assert carrier.numbers == [NEW_YORK]


def test_claim_timeout_is_a_setting(run_pass, carrier):
    held(Status.SENDING, claimed_at=TUESDAY_NOON)
    assert not +run_pass(TUESDAY_NOON + 10 * SECOND, claim_timeout=10)
    assert run_pass(TUESDAY_NOON + 11 * SECOND, claim_timeout=10)["sent"] == 1


def test_what_is_taken_over_passes_all_gates_again(run_pass, carrier):
    held(Status.SENDING, claimed_at=TUESDAY_NOON, check_dnc=True)
    held(Status.SENDING, claimed_at=TUESDAY_NOON, to=NEIGHBOUR)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    counts = run_pass(TUESDAY_NIGHT)
    assert +counts == Counter({"taken over": 2, "blocked": 1, "rescheduled": 1})
    assert carrier.texts == []


@pytest.mark.slow
def test_a_sender_that_is_only_slow_beats_on(settings, carrier, monkeypatch):
    message, beats = store(), set()
    monkeypatch.setattr(heartbeats, "BEAT_EVERY", 0.3)

    def slow():
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            beats.update(look(settings.database_url, "SELECT beats FROM heartbeat"))
            time.sleep(0.05)

    carrier.answers[NEW_YORK] = slow
    assert Scheduler(settings._replace(**ALWAYS_OPEN), carrier).run_pass()["sent"] == 1
    assert len(beats) > 3, "but for a busy machine, three a second"
    assert again(message).status == Status.SENT
    assert not Heartbeat.select().exists(), "it has nothing in hand"


# A database that fails


class FaultyDatabase:
    """Stand before the database and let statements fail, before or after they have been done."""

    def __init__(self, monkeypatch):
        self.statements, self.fails, self.after = 0, lambda number: False, False
        cursor = database.db.obj.cursor
        monkeypatch.setattr(
            database.db.obj, "cursor", lambda *name: FaultyCursor(self, cursor(*name))
        )


class FaultyCursor:
    def __init__(self, database, cursor):
        self.database, self.cursor = database, cursor

    def __getattr__(self, name):
        return getattr(self.cursor, name)

    def execute(self, *statement):
        self.database.statements += 1
        fails = self.database.fails(self.database.statements)
        if not fails or self.database.after:
            self.cursor.execute(*statement)
        if fails:
            raise peewee.OperationalError("the server closed the connection unexpectedly")


@pytest.fixture
def faulty(database_url, monkeypatch):
    return FaultyDatabase(monkeypatch)


@pytest.fixture
def hours_pass(run_pass):
    """Let the scheduler's waiting take no time, and each look at its stopwatch 100 seconds.

    For the threads that send it stands still: their claims are fresh.
    """
    stopwatch = itertools.count(0, 100)

    class Hurried(Clock):
        def monotonic(self):
            return next(stopwatch) if threading.current_thread() is threading.main_thread() else 0

        def sleep(self, seconds):
            pass

    run_pass.runtime = Runtime(Hurried())


@pytest.mark.slow
@pytest.mark.usefixtures("hours_pass")
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("after", [False, True], ids=["undone", "done"])
def test_whichever_statement_fails_nothing_is_lost_or_sent_twice(
    run_pass, carrier, faulty, after, every
):
    """Each statement of a pass in turn, COMMIT among them, is the one that fails.

    On a workday it is each twenty-third, and others for each database and fault.
    """
    refusals = 0

    def refuse_once():
        nonlocal refusals
        refusals += 1
        return FOR_NOW if refusals == 1 else None

    first = 1 + (2 * database.on_postgres() + after) % every
    for failing in itertools.count(first, every):
        Message.delete().execute()
        messages = [
            store(to=NEW_YORK, check_dnc=True, status=Status.SCHEDULED),
            store(to=NEIGHBOUR, send_at=TUESDAY_NOON - MINUTE),
            store(to=THIRD, send_date=TUESDAY_NOON),
        ]
        carrier.texts.clear()
        carrier.answers, refusals = {NEIGHBOUR: refuse_once}, 0
        faulty.statements, faulty.after = 0, after
        faulty.fails = lambda number, failing=failing: number == failing
        for minutes in (0, 15, 30):
            try:
                run_pass(TUESDAY_NOON + minutes * MINUTE, send_concurrency=2)
            except database.ERRORS:
                database.disconnect()  # as main() does
        if faulty.statements < failing:
            break
        assert {again(m).status for m in messages} == {Status.SENT}, failing
        assert Counter(carrier.numbers) == {NEW_YORK: 1, NEIGHBOUR: 2, THIRD: 1}, failing
        assert [again(m).attempts for m in messages] == [1, 2, 1], failing
    assert failing > 30


@pytest.mark.usefixtures("hours_pass")
def test_what_was_sent_is_recorded_however_long_the_database_is_away(run_pass, carrier, faulty):
    message = store()

    def go_away():
        until = faulty.statements + 50
        faulty.fails = lambda number: number <= until

    carrier.answers[NEW_YORK] = go_away
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert again(message).status == Status.SENT


@pytest.mark.slow
@pytest.mark.usefixtures("hours_pass")
def test_a_scheduler_that_is_to_stop_does_not_wait_for_the_database_for_ever(
    settings, carrier, faulty, at
):
    at(TUESDAY_NOON)
    scheduler_ = Scheduler(settings, carrier)
    store()

    def go_away():
        faulty.fails = lambda number: True
        scheduler_.stop.request()

    carrier.answers[NEW_YORK] = go_away
    with pytest.raises(database.ERRORS):
        scheduler_.run_pass()


@pytest.fixture
def break_database(database_url):
    """Break the database for half a second: close Postgres' connections, lock SQLite."""
    connection = connection_of(database_url)

    def begin():
        if database_url.startswith("sqlite"):
            connection.execute("BEGIN IMMEDIATE")
            threading.Timer(0.5, connection.execute, ["ROLLBACK"]).start()
        else:
            connection.execute(END_OTHER_CONNECTIONS)

    yield begin
    connection.close()


@pytest.mark.slow
def test_a_database_that_breaks_while_texts_are_under_way_doubles_none(
    run_pass, carrier, break_database, monkeypatch
):
    numbers = store_many(20)
    monkeypatch.setattr(pool, "PATIENCE", 0.1)
    carrier.answers[numbers[3]] = break_database
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert sorted(carrier.numbers) == numbers
    assert statuses() == {Status.SENT: 20}


# Time


def test_a_clock_that_is_set_back_sends_nothing_twice_and_nothing_early(run_pass, carrier):
    failing, later = store(), store(to=NEIGHBOUR, status=Status.SCHEDULED, send_date=TUESDAY_NOON)
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_NOON)
    carrier.answers.clear()
    for minutes in (-60, -30, -1, 0):
        assert not +run_pass(TUESDAY_NOON + minutes * MINUTE)
    run_pass(TUESDAY_NOON + 2 * MINUTE)
    assert sorted(carrier.numbers) == [NEW_YORK, NEW_YORK, NEIGHBOUR]
    assert {again(failing).status, again(later).status} == {Status.SENT}


def test_a_clock_that_is_set_forward_and_back_loses_nothing(run_pass, carrier):
    store(status=Status.SCHEDULED, send_date=TUESDAY_NOON + HOUR, send_at=TUESDAY_NOON + HOUR)
    store(to=NEIGHBOUR)
    for minutes in (0, 60, 0, 60):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
    assert carrier.numbers == [NEIGHBOUR, NEW_YORK]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_during_a_send_doubles_nothing(run_pass, carrier, at, hours):
    numbers = store_many(4)
    carrier.answers[numbers[1]] = lambda: at(TUESDAY_NOON + hours * HOUR)
    assert run_pass(TUESDAY_NOON, send_concurrency=2)["sent"] == 4
    for minutes in (0, 30, 120):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
    assert sorted(carrier.numbers) == numbers


def test_what_was_queued_by_a_clock_that_went_ahead_is_sent_all_the_same(run_pass, carrier):
    store(TUESDAY_NOON + HOUR)
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]


@pytest.mark.parametrize(
    ("night", "opening"),
    [
        ("2026-03-07T23:30-05:00", "2026-03-08T09:00-04:00"),  # clocks go forward that night
        ("2026-10-31T23:30-04:00", "2026-11-01T09:00-05:00"),  # and back
        ("2028-02-28T23:30-05:00", "2028-02-29T09:00-05:00"),  # a leap day
        ("2028-02-29T23:30-05:00", "2028-03-01T09:00-05:00"),
        ("2026-12-31T23:30-05:00", "2027-01-01T09:00-05:00"),
    ],
)
def test_the_opening_is_the_wall_clocks_on_any_day(run_pass, carrier, night, opening):
    night, opening = (datetime.fromisoformat(text).astimezone(UTC) for text in (night, opening))
    message = store(night)
    run_pass(night)
    assert again(message).send_at == opening
    run_pass(opening - MILLISECOND)
    assert carrier.texts == []
    run_pass(opening)
    assert carrier.numbers == [NEW_YORK]


def test_a_holiday_and_the_weekend_after_it_are_waited_out(run_pass, carrier):
    christmas = datetime(2026, 12, 25, 17, 0, tzinfo=UTC)  # a Friday, noon in New York
    monday_opening = datetime(2026, 12, 28, 14, 0, tzinfo=UTC)
    message = store(status=Status.SCHEDULED, send_at=christmas)
    local = {"business_days": None, "skip_holidays": True}
    assert +run_pass(christmas, **local) == Counter({"promoted": 1, "rescheduled": 1})
    assert again(message).send_at == monday_opening
    run_pass(monday_opening - MILLISECOND, **local)
    assert carrier.texts == []
    run_pass(monday_opening, **local)
    assert carrier.numbers == [NEW_YORK]


def test_a_zone_whose_rules_changed_since_is_judged_by_todays_rules(run_pass, carrier, monkeypatch):
    message = store(status=Status.SCHEDULED, send_at=WEDNESDAY_OPENING)
    find = recipients.find
    moved = Clocks("US", (ZoneInfo("America/Chicago"),))  # the law now has New York an hour later
    monkeypatch.setattr(recipients, "find", lambda to: find(to)._replace(clocks=moved))
    assert +run_pass(WEDNESDAY_OPENING) == Counter({"promoted": 1, "rescheduled": 1})
    assert again(message).send_at == WEDNESDAY_OPENING + HOUR
    run_pass(WEDNESDAY_OPENING + HOUR)
    assert carrier.numbers == [NEW_YORK]


# What a pass says


def test_without_a_carrier_messages_are_promoted_and_wait(run_pass):
    store(status=Status.SCHEDULED)
    store()
    store(manual_mode=True)
    assert +run_pass(TUESDAY_NOON, carrier=None) == Counter(
        {"promoted": 1, "waiting for a carrier": 2, "waiting for approval": 1}
    )
    assert statuses() == {Status.QUEUED: 3}


def test_a_pass_with_nothing_to_do_counts_nothing(run_pass):
    assert not +run_pass(TUESDAY_NOON)


def test_the_line_names_each_count(run_pass, carrier):
    held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR)
    store(to="+12125550101", status=Status.SCHEDULED)
    store(to="+12125550102", send_date=TUESDAY_NOON)
    store(to="+442083661177")
    store(check_dnc=True, to="+12125550103")
    store(manual_mode=True)
    DoNotCall.add(["+12125550103"], TUESDAY_NOON, "operator")
    carrier.answers |= {"+12125550101": FOR_NOW, "+12125550102": FOR_GOOD}
    assert scheduler.line(run_pass(TUESDAY_NOON)) == (
        "1 promoted, 1 sent, 1 retrying, 1 failed, 1 blocked, 0 expired, 1 rescheduled, "
        "1 taken over, 1 waiting for approval, 0 waiting for a carrier"
    )


def test_the_log_has_a_line_an_event_without_number_or_text(run_pass, carrier, caplog):
    caplog.set_level("INFO")
    sent, failed = store(message="attack at dawn"), store(message="attack at dusk", to=NEIGHBOUR)
    carrier.answers[NEIGHBOUR] = FOR_GOOD
    run_pass(TUESDAY_NOON)
    lines = [r.getMessage() for r in caplog.records if r.name == "scheduler"]
    assert f"message {sent.id} sent" in lines
    assert f"message {failed.id} failed: no such number" in lines
    assert not re.search("attack|1212555", caplog.text)
