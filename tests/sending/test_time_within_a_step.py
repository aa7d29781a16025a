"""Time that passes within a step: while a text waits for its turn, is claimed, or is under way."""

import itertools
import threading
import time
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial

import pytest

from databases import on_both
from fake_carrier import ACCOUNT, FOR_GOOD, FOR_NOW, TOO_FAST, FakeCarrier, die_instead
from own_threads import at_once, thread_after
from running import wait_until
from samples import ALWAYS_OPEN, HOUR, MILLISECOND, MINUTE, NEW_YORK, SECOND, THIRD, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, store, store_many
from texting.carriers import CarrierError
from texting.database import clock, db
from texting.messages.model import Status
from texting.sending import heartbeats
from texting.sending.runtime import THIS_MACHINE, Clock, Runtime

pytestmark = on_both

CLAIM_TIMEOUT = 300 * SECOND
LATE = TUESDAY_NOON + CLAIM_TIMEOUT + MINUTE
CLOSING = TUESDAY_NOON + 5 * HOUR


class Leaping(Clock):
    """A clock of which either hand, or both, leap ahead when `leap` is called."""

    def __init__(self, at, wall, monotonic):
        self.at, self.wall, self.apart = at, wall, monotonic
        self.ahead = 0

    def leap(self, to):
        if self.apart:
            self.ahead += (to - clock.now()).total_seconds()
        if self.wall:
            self.at(to)

    def monotonic(self):
        return time.monotonic() + self.ahead


@contextmanager
def at_statement(number, act):
    """Do something before a statement of this thread; yield what is empty once that has come."""
    left = [*range(number + 1)]

    def count(event):
        if left and threading.current_thread() is threading.main_thread():
            left.pop()
            if not left:
                act()

    db.query_hooks.append(count)
    yield left
    db.query_hooks.remove(count)


# A lease that is over


@pytest.mark.parametrize(
    ("wall", "monotonic"),
    [(True, False), (True, True)],
    ids=["the machine slept", "the process stood still"],
)
def test_what_another_has_taken_over_between_claim_and_send_is_not_given_again(
    settings, run_pass, carrier, at, wall, monotonic
):
    message, other, hands = store(), FakeCarrier(), Leaping(at, wall, monotonic)

    def stand_still():
        if not other.texts:
            hands.leap(LATE)
            at_once(Scheduler(settings, other).run_pass)

    run_pass.runtime = Runtime(hands, thread_after(stand_still))
    run_pass(TUESDAY_NOON)
    assert len(other.texts) == 1
    assert carrier.texts == []
    assert again(message).status == Status.SENT


@pytest.mark.slow
def test_whichever_statement_of_a_pass_lasts_too_long_each_text_goes_once(
    settings, run_pass, carrier, at
):
    """While a text is under way, another scheduler looks for what dead ones hold.

    It takes a text that the carrier may have for one in doubt, so no time is lost while it has it.
    """

    def submit(*call):
        future = THIS_MACHINE.submit(*call)
        wait([future])
        return future

    other, hands = FakeCarrier(), Leaping(at, True, True)
    run_pass.runtime, always = Runtime(hands, submit), settings._replace(**ALWAYS_OPEN)

    def run_other():
        at_once(Scheduler(always, other).run_pass)

    carrier.answers[NEW_YORK] = run_other
    for statement in itertools.count():
        now = TUESDAY_NOON + statement * HOUR
        message = store(now, first_send_at=now)
        with at_statement(statement, partial(hands.leap, now + CLAIM_TIMEOUT + SECOND)) as left:
            run_pass(now, **ALWAYS_OPEN)
        run_pass(now + HOUR / 2, **ALWAYS_OPEN)
        assert again(message).status == Status.SENT
        assert len(carrier.texts) + len(other.texts) == statement + 1, "each once"
        if left:
            break
    assert statement > 10


def test_at_whichever_statement_of_a_pass_a_stop_comes_no_text_is_given_after_it(
    settings, carrier, at
):
    given = []  # whether there had been a stop
    for statement in itertools.count():
        at(TUESDAY_NOON)
        message, one = store(), Scheduler(settings, carrier)
        carrier.answers[NEW_YORK] = lambda one=one: given.append(one.stop.is_requested)
        with at_statement(statement, one.stop.request):
            one.run_pass()
        assert again(message).status == (Status.SENT if given else Status.QUEUED)
        message.delete_instance()
        if given:
            break
    assert statement > 10
    assert given == [False]


@pytest.mark.parametrize(
    "cause", [TOO_FAST, ACCOUNT, CarrierError("down", unreached=True)], ids=str
)
def test_a_dead_scheduler_that_was_to_go_first_is_waited_for_until_its_claim_ends_each_time(
    run_pass, carrier, cause
):
    numbers = store_many(5)
    carrier.answers = dict.fromkeys(numbers, cause)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    carrier.answers, first_at = {}, TUESDAY_NOON + 5 * SECOND
    for _ in range(2):
        run_pass.runtime = Runtime(submit=die_instead)
        with pytest.raises(SystemExit):
            run_pass(first_at, send_concurrency=1)
        run_pass.runtime = THIS_MACHINE
        run_pass(first_at + CLAIM_TIMEOUT)
        assert len(carrier.texts) == 1
        first_at += CLAIM_TIMEOUT + MILLISECOND
    assert run_pass(first_at)["sent"] >= 4


@pytest.mark.slow
@pytest.mark.parametrize("late", [None, FOR_GOOD, FOR_NOW, TOO_FAST], ids=str)
def test_a_late_answer_to_the_text_that_went_first_leaves_the_next_one_alone(
    settings, run_pass, carrier, at, late
):
    """Its scheduler stood still, so another text went first, which is still under way."""
    numbers = store_many(6)
    carrier.answers = dict.fromkeys(numbers, TOO_FAST)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    second, ends = FakeCarrier(), threading.Event()
    second.answers = dict.fromkeys(numbers, lambda: ends.wait(60) and None)
    others = Scheduler(settings._replace(send_concurrency=1), second)
    thread = threading.Thread(target=lambda: [others.run_pass(), db.close()])

    def stand_still():
        at(LATE)
        thread.start()
        wait_until(lambda: second.texts)
        return late

    carrier.answers = dict.fromkeys(numbers, stand_still)
    counts = run_pass(TUESDAY_NOON + SECOND, send_concurrency=1)
    assert (len(carrier.texts), len(second.texts)) == (2, 1), counts
    if late is TOO_FAST:
        at(LATE + SECOND)
    third = FakeCarrier()
    Scheduler(settings._replace(send_concurrency=1), third).run_pass()
    assert len(third.texts) == (5 if late is TOO_FAST else 0)
    ends.set()
    thread.join(60)
    assert not thread.is_alive()


# A text that waits for its turn within SEND_RATE


class Napping(Clock):
    """A clock on which it is late after a nap."""

    def __init__(self, nap):
        self.nap = nap

    def sleep(self, seconds):
        super().sleep(seconds)
        self.nap()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("until", "becomes", "changes"),
    [
        (CLOSING, Status.SENT, {}),
        (CLOSING, Status.SCHEDULED, {"quiet_hours": (17 * 60, 9 * 60)}),
        (CLOSING + SECOND, Status.EXPIRED, {}),
    ],
    ids=["it was open when it was judged", "quiet hours have begun", "it is too old"],
)
def test_a_text_that_has_waited_for_the_rate_keeps_to_what_holds_then(
    run_pass, carrier, at, until, becomes, changes, monkeypatch
):
    at(TUESDAY_NOON)
    monkeypatch.setattr(heartbeats, "FRESH", 86_400)
    store(send_at=TUESDAY_NOON - MINUTE)
    long = store(message="x" * 300, to=THIRD, expires_at=CLOSING + SECOND)
    rate = {"send_rate": 1.5, "claim_timeout": 86_400}
    run_pass.runtime = Runtime(Napping(lambda: at(until)))
    run_pass(TUESDAY_NOON, **rate | changes)
    run_pass(TUESDAY_NOON + SECOND / 2, **rate | changes)
    assert again(long).status == becomes
    assert len(carrier.texts) == 1 + (becomes == Status.SENT)


def test_the_carrier_is_told_what_is_left_of_the_time_when_it_is_given_the_text(run_pass, at):
    """Not when it was claimed."""

    class Noting(FakeCarrier):
        def send(self, outgoing):
            self.valid_for = outgoing.valid_for

    at(TUESDAY_NOON)
    store(expires_at=TUESDAY_NOON + HOUR)
    noting, late = Noting(), TUESDAY_NOON + 100 * SECOND
    run_pass.runtime = Runtime(submit=thread_after(lambda: at(late)))
    run_pass(TUESDAY_NOON, noting)
    assert noting.valid_for == 3500


@pytest.mark.slow
def test_a_single_pass_waits_for_the_rate(carrier, settings):
    store_many(5, clock.now())
    counts = Scheduler(settings._replace(send_rate=2, **ALWAYS_OPEN), carrier).run_pass()
    assert counts["sent"] == 5
