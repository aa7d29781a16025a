"""One pass: what is promoted, sent, tried again, held back and counted, and at which instant."""

import argparse
import itertools
import re
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

import scheduler
from databases import on_both
from fake_carrier import FOR_GOOD, FOR_NOW, TOO_FAST
from faulty_database import FaultyDatabase
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
from stored_messages import (
    FAKE,
    again,
    claim,
    decide_on,
    held,
    look,
    statuses,
    store,
    store_many,
)
from texting import database, recipients
from texting.access import do_not_call
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.carriers import CarrierError, Fault, Receipt
from texting.messages import receipts, waiting
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import TAKEN, WAITING, Message, Status
from texting.recipients.hours import Clocks
from texting.sending import heartbeats
from texting.sending.claims import claim_these
from texting.sending.outcomes import Outcome
from texting.sending.runtime import Clock, Runtime

pytestmark = on_both

TUESDAY_EVENING = datetime(2026, 3, 3, 22, 0, tzinfo=UTC)  # 5 PM in New York: just closed
TUESDAY_NIGHT = datetime(2026, 3, 4, 4, 0, tzinfo=UTC)  # 11 PM in New York
WEDNESDAY_OPENING = datetime(2026, 3, 4, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "", "86401"])
def test_what_is_no_pause_between_passes_is_refused(text):
    with pytest.raises((ValueError, argparse.ArgumentTypeError)):
        scheduler.seconds(text)


# Promotion


def test_what_is_sent_is_recorded_with_the_carriers_reference_and_sent_no_more(run_pass, carrier):
    text = " \t‮ 👩‍👩‍👧\r\n%s {to} 'x' \\ é "
    message = store(message=text, last_error="out of order", attempts=2)
    carrier.answers[NEW_YORK] = "SM123"
    run_pass(TUESDAY_NOON + MINUTE)
    sent = again(message)
    assert (sent.status, sent.attempts, sent.last_error) == (Status.SENT, 3, None)
    assert (sent.carrier_reference, sent.finished_at) == ("SM123", TUESDAY_NOON + MINUTE)
    assert [each.result for each in Attempt.select()] == ["taken"]
    assert not +run_pass(TUESDAY_NOON + DAY)
    assert carrier.texts == [(NEW_YORK, text)], "as it came"


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
    """Otherwise cron would start more and more of them on a busy day."""
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
    "approve": (lambda m: decide_on(m).approve("shell", TUESDAY_NOON), {*WAITING}),
    "cancel": (lambda m: decide_on(m).cancel("shell", TUESDAY_NOON), {*WAITING}),
    "retry": (lambda m: decide_on(m).retry(TUESDAY_NOON, 3 * DAY), RETRIED),
    "sent": (
        lambda m: receipts.record_accepted({m.id: "SM1"}, TUESDAY_NOON, FAKE) == 1,
        set(Status) - {*TAKEN},
    ),
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
        assert bool(transition(message)) == (status in allowed), status
        if status not in allowed:
            assert again(message).__data__ == before, status
        elif move != "approve":
            assert again(message).status != status


@pytest.mark.parametrize("how", ["in turn", "by ids"])
def test_only_what_is_queued_and_approved_can_be_claimed(database_url, how):
    """What is found to be claimed may have been claimed by another meanwhile."""
    each = itertools.product(Status, (True, False))
    ids = [held(status, approved=approved).id for status, approved in each]
    (claimed,) = claim(100) if how == "in turn" else claim_these(ids)
    assert (claimed.status, claimed.approved) == (Status.SENDING, True)
    assert again(claimed).status == Status.SENDING


def test_only_what_is_scheduled_and_due_is_promoted(database_url):
    for status, late in itertools.product(Status, (0, 1)):
        held(status, send_at=TUESDAY_NOON + late * MILLISECOND, finished_at=TUESDAY_NOON)
    assert waiting.promote(TUESDAY_NOON) == {Status.QUEUED: 1}
    assert statuses() == dict.fromkeys(Status, 2) | {Status.SCHEDULED: 1, Status.QUEUED: 3}


# The Do Not Call list


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_a_number_that_joined_the_list_meanwhile_gets_no_text(run_pass, carrier, status):
    message = store(status=status, check_dnc=True)
    later = store(status=Status.SCHEDULED, check_dnc=True, send_at=TUESDAY_NOON + DAY)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    assert +run_pass(TUESDAY_NOON) == Counter({"blocked": 1})
    assert carrier.texts == []
    blocked = again(message)
    assert (blocked.status, blocked.finished_at, blocked.attempts) == ("blocked", TUESDAY_NOON, 0)
    do_not_call.remove([NEW_YORK], TUESDAY_NOON, "shell", opted_out=True)
    run_pass(TUESDAY_NOON + DAY)
    assert again(later).status == Status.SENT, "it was not due"
    assert again(message).status == Status.BLOCKED


def test_a_number_that_joins_the_list_in_the_middle_of_a_pass_gets_no_text(run_pass, carrier):
    store(to=NEIGHBOUR, send_at=TUESDAY_NOON - MINUTE)
    second = store(check_dnc=True)
    carrier.answers[NEIGHBOUR] = lambda: (
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator") and None
    )
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert carrier.numbers == [NEIGHBOUR]
    assert again(second).status == Status.BLOCKED


def test_a_recipient_that_opted_out_joins_the_list_and_gets_no_more_texts(run_pass, carrier):
    first = store(send_at=TUESDAY_NOON - MINUTE)
    second = store(check_dnc=True)
    carrier.answers[NEW_YORK] = CarrierError("opted out", Fault.OPTED_OUT)
    counts = run_pass(TUESDAY_NOON, send_concurrency=1)
    assert +counts == Counter({"failed": 1, "blocked": 1})
    assert OptedOut.lists(NEW_YORK)
    assert (again(first).status, again(first).last_error) == (Status.FAILED, "opted out")
    assert again(second).status == Status.BLOCKED
    assert len(carrier.texts) == 1


# Business hours

SATURDAY = datetime(2026, 3, 7, 17, tzinfo=UTC)
WEEKDAYS = {"business_days": frozenset(range(5))}
CHRISTMAS = datetime(2026, 12, 25, 17, tzinfo=UTC)  # a Friday, noon in New York
OF_THE_COUNTRY = {"business_days": None, "skip_holidays": True}
AT_NIGHT = {"send_date": TUESDAY_NIGHT, "first_send_at": TUESDAY_NIGHT}


@pytest.mark.parametrize(
    ("columns", "now", "opening", "changes"),
    [
        ({}, TUESDAY_EVENING - MILLISECOND, None, {}),
        ({}, TUESDAY_EVENING, WEDNESDAY_OPENING, {}),
        ({"manual_mode": True, "approved": True}, TUESDAY_NIGHT, WEDNESDAY_OPENING, {}),
        ({"send_at": TUESDAY_NOON}, TUESDAY_NIGHT + DAY, WEDNESDAY_OPENING + DAY, {}),
        (AT_NIGHT, TUESDAY_NIGHT, None, {}),
        (AT_NIGHT, TUESDAY_NIGHT + HOUR - MILLISECOND, None, {}),  # it is obeyed for an hour
        (AT_NIGHT, TUESDAY_NIGHT + HOUR, WEDNESDAY_OPENING, {}),
        ({"status": Status.SCHEDULED}, CHRISTMAS, "2026-12-28T09:00-05:00", OF_THE_COUNTRY),
        ({}, SATURDAY, "2026-03-09T09:00-04:00", WEEKDAYS),  # the clocks go forward on Sunday
        ({}, "2026-03-07T23:30-05:00", "2026-03-08T09:00-04:00", {}),
        ({}, "2026-10-31T23:30-04:00", "2026-11-01T09:00-05:00", {}),  # and back
        ({}, "2028-02-28T23:30-05:00", "2028-02-29T09:00-05:00", {}),  # a leap day
        ({}, "2028-02-29T23:30-05:00", "2028-03-01T09:00-05:00", {}),
        ({}, "2026-12-31T23:30-05:00", "2027-01-01T09:00-05:00", {}),
    ],
)
def test_outside_business_hours_a_text_waits_for_the_opening_by_the_wall_clock(
    run_pass, carrier, columns, now, opening, changes
):
    now, opening = (
        datetime.fromisoformat(each).astimezone(UTC) if isinstance(each, str) else each
        for each in (now, opening)
    )
    message = store(now, attempts=1, last_error="busy", **columns)
    counts = run_pass(now, **changes)
    if opening:
        assert counts["rescheduled"] == 1
        waiting = again(message)
        assert (waiting.status, waiting.send_at) == (Status.SCHEDULED, opening)
        assert (waiting.attempts, waiting.last_error) == (1, "busy")
        run_pass(opening - MILLISECOND, **changes)
        assert carrier.texts == []
        run_pass(opening, **changes)
    assert carrier.numbers == [NEW_YORK]


# Carriers that say no


@pytest.mark.parametrize(
    ("attempts", "first", "minutes"), [(0, 60, 1), (1, 60, 5), (2, 60, 25), (0, 1200, 20)]
)
def test_a_failed_send_is_tried_again_after_1_5_and_25_minutes_or_as_the_setting_says(
    run_pass, carrier, attempts, first, minutes
):
    for number in store_many(30, attempts=attempts):
        carrier.answers[number] = FOR_NOW
    assert +run_pass(TUESDAY_NOON, retry_delay=first) == Counter({"retrying": 30})
    delays = [(m.send_at - TUESDAY_NOON) / MINUTE for m in Message.select()]
    assert all(0.9 * minutes <= delay <= 1.1 * minutes for delay in delays)
    assert len(set(delays)) > 20
    assert {m.attempts for m in Message.select()} == {attempts + 1}
    assert {m.last_error for m in Message.select()} == {"out of order"}


def test_a_text_is_late_since_it_should_have_gone_first_however_often_it_is_refused(
    run_pass, carrier
):
    message, since = store(send_at=TUESDAY_NOON - MINUTE), TUESDAY_NOON - MINUTE
    carrier.answers[message.to] = FOR_NOW
    for minutes in (0, 2, 10):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
        assert (again(message).due_since, again(message).status) == (since, Status.SCHEDULED)
    assert again(message).attempts == 3


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


@pytest.mark.parametrize("words", ["SM\0", "SM\ud800"], ids=ascii)
def test_words_that_no_database_holds_hide_neither_a_yes_nor_a_no(run_pass, carrier, words):
    taken, refused, other = store(), store(to=NEIGHBOUR), store(to=THIRD)
    carrier.answers = {NEW_YORK: words, NEIGHBOUR: CarrierError(words, Fault.PERMANENT)}
    for hours in (0, 1):
        run_pass(TUESDAY_NOON + hours * HOUR)
    assert sorted(carrier.numbers) == sorted([NEW_YORK, NEIGHBOUR, THIRD])
    statuses = [again(each).status for each in (taken, refused, other)]
    assert statuses == [Status.SENT, Status.FAILED, Status.SENT]


def test_a_hundred_retries_are_too_many_for_no_calendar(run_pass, carrier):
    message = store(max_retries=100, attempts=99)
    carrier.answers[NEW_YORK] = FOR_NOW
    assert run_pass(TUESDAY_NOON, retry_delay=86_400)["retrying"] == 1
    assert again(message).send_at.year < 2030


# Senders that die


@pytest.mark.parametrize("timeout", [300, 10])
def test_what_a_dead_sender_held_is_sent_by_another_after_claim_timeout(run_pass, carrier, timeout):
    held(Status.SENDING, claimed_at=TUESDAY_NOON)
    over = TUESDAY_NOON + timeout * SECOND
    assert not +run_pass(over, claim_timeout=timeout)
    counts = run_pass(over + MILLISECOND, claim_timeout=timeout)
    assert +counts == Counter({"taken over": 1, "sent": 1})
    assert carrier.numbers == [NEW_YORK]


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
    slow = Scheduler(settings._replace(**ALWAYS_OPEN), carrier)
    assert slow.run_pass()["sent"] == 1
    slow.close()
    assert len(beats) > 3, "but for a busy machine, three a second"
    assert again(message).status == Status.SENT
    assert not Heartbeat.select().exists(), "it has nothing in hand"


# A database that fails


@pytest.fixture
def faulty(database_url, monkeypatch):
    return FaultyDatabase(monkeypatch)


@on_both
def test_a_pass_whose_end_fails_leaves_no_transaction_open(settings, carrier, faulty, monkeypatch):
    """A session delivers a receipt as it is closed; neither can what is begun be rolled back."""
    number, said = 0, []
    monkeypatch.setattr(carrier, "close", lambda: said.append(Receipt("R", True)))
    monkeypatch.setattr(carrier, "received", lambda: [said.pop()] if said else [])
    while faulty.statements >= number:
        number += 1
        faulty.statements, faulty.fails = 0, range(number, number + 2).__contains__
        Scheduler(settings, carrier).run(None, print)
        faulty.fails = (0,).__contains__
        with database.db.transaction():
            pass
    assert number > 20


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

    first = 1 + (2 * (database.db.product == "Postgres") + after) % every
    for failing in itertools.count(first, every):
        Message.delete().execute()
        messages = [
            store(to=NEW_YORK, check_dnc=True, status=Status.SCHEDULED),
            store(to=NEIGHBOUR, send_at=TUESDAY_NOON - MINUTE),
            store(to=THIRD, send_date=TUESDAY_NOON),
        ]
        carrier.texts.clear()
        carrier.answers, refusals = {NEIGHBOUR: refuse_once}, 0
        faulty.after = after
        faulty.fail_at(failing)
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


def test_after_a_moments_failure_of_the_database_texts_go_within_seconds_not_after_the_hour(
    settings, carrier, faulty, at
):
    at(TUESDAY_NOON)
    message, clock = store(), Sleeper()
    scheduler = Scheduler(settings, carrier, Runtime(clock))
    faulty.fail_at(1)
    scheduler.run(3600, show=lambda counts: scheduler.stop.request())
    assert again(message).status == Status.SENT
    assert 0 < clock.slept <= 6


class Sleeper(Clock):
    """A clock by which nothing takes time but sleep, which ends at once."""

    slept = 0

    def monotonic(self):
        return self.slept

    def sleep(self, seconds):
        self.slept += seconds


@pytest.mark.slow
@pytest.mark.usefixtures("hours_pass")
def test_a_scheduler_that_is_to_stop_does_not_wait_for_the_database_for_ever(
    settings, carrier, faulty, at
):
    at(TUESDAY_NOON)
    scheduler_ = Scheduler(settings._replace(shutdown_timeout=1), carrier)
    store()

    def go_away():
        faulty.fails = lambda number: True
        scheduler_.stop.request()

    carrier.answers[NEW_YORK] = go_away
    with pytest.raises(database.ERRORS):
        scheduler_.run_pass()


# Time


def test_a_zone_whose_rules_changed_since_is_judged_by_todays_rules(run_pass, carrier, monkeypatch):
    message = store(status=Status.SCHEDULED, send_at=WEDNESDAY_OPENING)
    find = recipients.find
    moved = Clocks("US", (ZoneInfo("America/Chicago"),))  # the law now has New York an hour later
    monkeypatch.setattr(recipients, "find", lambda *to: find(*to)._replace(clocks=moved))
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


def test_the_line_names_each_count_that_is_not_0(run_pass, carrier):
    held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR)
    store(to="+12125550101", status=Status.SCHEDULED)
    store(to="+12125550102", send_date=TUESDAY_NOON)
    store(to="+442083661177")
    store(check_dnc=True, to="+12125550103")
    store(manual_mode=True)
    DoNotCall.add(["+12125550103"], TUESDAY_NOON, "operator")
    carrier.answers |= {"+12125550101": FOR_NOW, "+12125550102": FOR_GOOD}
    assert scheduler.line(run_pass(TUESDAY_NOON)) == (
        "1 promoted, 1 sent, 1 retrying, 1 failed, 1 blocked, 1 rescheduled, "
        "1 taken over, 1 waiting for approval"
    )


@pytest.mark.parametrize(("waiting", "told"), [(999, "999"), (1000, "1,000+"), (1001, "1,000+")])
def test_what_waits_is_counted_up_to_a_thousand_after_a_pass(run_pass, waiting, told):
    """The thread that sends counts it, and a million would take it seconds."""
    store_many(waiting)
    store_many(waiting, approved=False)
    counts = run_pass(TUESDAY_NOON, carrier=None)
    assert scheduler.line(counts) == (f"{told} waiting for approval, {told} waiting for a carrier")
    assert [counts[each] for each in scheduler.WAITS] == [*[min(waiting, scheduler.MANY)] * 2, 0]


def test_the_log_has_a_line_an_event_without_number_or_text(run_pass, carrier, caplog):
    caplog.set_level("INFO")
    sent, failed = store(message="attack at dawn"), store(message="attack at dusk", to=NEIGHBOUR)
    carrier.answers[NEIGHBOUR] = FOR_GOOD
    run_pass(TUESDAY_NOON)
    lines = [r.getMessage() for r in caplog.records if r.name == "scheduler"]
    assert f"message {sent.id} sent" in lines
    assert f"message {failed.id} failed: no such number" in lines
    assert not re.search("attack|1212555", caplog.text)


@pytest.mark.parametrize(("seconds", "is_closed"), [(60, True), (0, False)])
def test_a_carrier_stays_open_once_the_time_to_stop_is_up(settings, carrier, seconds, is_closed):
    """To say goodbye may take long, and what is not acknowledged comes again."""
    closed = []
    carrier.close = lambda: closed.append(carrier)
    stopped = Scheduler(settings._replace(shutdown_timeout=seconds), carrier)
    stopped.stop.request()
    stopped.close()
    assert bool(closed) == is_closed
