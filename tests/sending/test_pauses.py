"""Pauses of a carrier: who may end one, what goes out in one, and when an outage is over."""

from collections import Counter
from datetime import timedelta

import pytest

from carriers import CarrierError, TooFast
from database import db
from fake_carrier import ACCOUNT, FOR_GOOD, SLOWLY, TOO_FAST, FakeCarrier
from models import Message, Status
from monitoring import health
from samples import MILLISECOND, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending.attempts import Attempt
from sending.carrier_state import CarrierState
from sending.sends import Answer, Send
from sending.watch import CarrierWatch
from stored_messages import again, statuses, store, store_many

DOWN = CarrierError("no connection", unreached=True)
SILENCE = CarrierError("a gateway's page", silent=True)


@pytest.fixture
def after_looking(monkeypatch):
    """Have something happen between a scheduler's look at the carrier's state and its claim."""
    look, actions = CarrierWatch.permission, []

    def look_and_wait(watch, *arguments):
        seen = look(watch, *arguments)
        if actions:
            actions.pop()()
        return seen

    monkeypatch.setattr(CarrierWatch, "permission", look_and_wait)
    return actions.append


@pytest.fixture
def sibling_is_too_fast(settings, at, after_looking):
    """Let another scheduler be told "too fast", which this one does not know when it begins."""

    def begin(no, instant=TUESDAY_NOON):
        other = FakeCarrier()

        def pause():
            other.answers = dict.fromkeys([m.to for m in Message.select()], no)
            Scheduler(settings._replace(send_concurrency=1), other).run_pass()
            assert len(other.texts) == 1
            at(instant + MILLISECOND)

        after_looking(pause)

    return begin


# Who ends one


def test_a_text_that_did_not_know_of_a_pause_does_not_end_it(
    run_pass, carrier, sibling_is_too_fast
):
    store_many(20)
    sibling_is_too_fast(SLOWLY)
    sent = run_pass(TUESDAY_NOON, send_concurrency=2)["sent"]
    assert sent <= 2
    run_pass(TUESDAY_NOON + 30 * SECOND - MILLISECOND)
    assert len(carrier.texts) == sent
    assert run_pass(TUESDAY_NOON + 30 * SECOND)["sent"] == 20 - sent


def test_a_text_that_did_not_know_of_a_pause_does_not_double_it(
    run_pass, carrier, sibling_is_too_fast
):
    carrier.answers = dict.fromkeys(store_many(20), TOO_FAST)
    sibling_is_too_fast(TOO_FAST)
    run_pass(TUESDAY_NOON, send_concurrency=4)
    state = CarrierState.get_by_id("fake")
    assert (state.pause, state.retry_at) == (1, TUESDAY_NOON + SECOND + MILLISECOND)


def test_a_pause_is_not_cut_short_by_a_later_shorter_one(run_pass, carrier):
    numbers = store_many(8)
    waits = iter([30, 2, 5, 1, 20, 3, 2, 1])
    carrier.answers = dict.fromkeys(
        numbers, lambda: CarrierError("slow", too_fast=True, retry_after=next(waits))
    )
    run_pass(TUESDAY_NOON, send_concurrency=8)
    asked = len(carrier.texts)
    carrier.answers = {}
    run_pass(TUESDAY_NOON + 30 * SECOND - MILLISECOND)
    assert len(carrier.texts) == asked
    assert run_pass(TUESDAY_NOON + 30 * SECOND)["sent"] == 8


def test_a_pause_that_is_lengthened_is_not_ended_by_the_probe_under_way(run_pass, carrier):
    """By the answer to a text that another scheduler had under way."""
    numbers = store_many(10)
    carrier.answers = dict.fromkeys(numbers, TOO_FAST)
    run_pass(TUESDAY_NOON, send_concurrency=1)

    def lengthen():
        CarrierState.begin_pause("fake", TUESDAY_NOON + SECOND, asked_for=30)
        db.close()  # of this thread

    carrier.answers = dict.fromkeys(numbers, lengthen)
    run_pass(TUESDAY_NOON + SECOND, send_concurrency=4)
    assert len(carrier.texts) == 2, "the probe, and nothing after it"
    carrier.answers = {}
    run_pass(TUESDAY_NOON + 31 * SECOND - MILLISECOND)
    assert len(carrier.texts) == 2
    assert run_pass(TUESDAY_NOON + 31 * SECOND)["sent"] == 9


def test_the_answer_to_the_probe_of_an_earlier_pause_does_not_end_the_present_one(database_url):
    CarrierState.create(name="x")
    CarrierState.begin_pause("x", TUESDAY_NOON)
    state = CarrierState.current("x", TUESDAY_NOON + SECOND)
    state.permission(TUESDAY_NOON + SECOND, 60)
    earlier = state.tried_at
    hour = TUESDAY_NOON + timedelta(hours=1)  # its scheduler stands still
    state.permission(hour, 60)
    CarrierState.begin_pause("x", hour, state.tried_at, asked_for=90)
    assert not CarrierState.end_pause("x", earlier)
    assert CarrierState.get_by_id("x").retry_at == hour + 90 * SECOND


# What goes out in one


class Listing(FakeCarrier):
    """A carrier that can be asked, and has of what is in doubt only what was `found`."""

    can_be_asked = True

    def __init__(self):
        super().__init__()
        self.found, self.finding = [], lambda: None

    def find(self, to, *_):
        self.finding()
        return [reference for reference in self.found if reference == to]


@pytest.fixture
def listing():
    return Listing()


def in_doubt(count):
    return store_many(count, in_doubt=1, in_doubt_since=TUESDAY_NOON)


def test_what_the_carrier_asked_does_not_have_waits_for_the_end_of_a_pause(run_pass, listing):
    in_doubt(4)

    def pause():
        CarrierState.begin_pause("fake", TUESDAY_NOON, asked_for=30)
        db.close()  # of this thread

    listing.finding = pause
    run_pass(TUESDAY_NOON, carrier=listing)
    assert listing.texts == []
    assert statuses() == {Status.QUEUED: 4}
    assert {each.result for each in Attempt.select()} == {"not taken"}
    listing.finding = lambda: None
    run_pass(TUESDAY_NOON + 30 * SECOND - MILLISECOND, carrier=listing)
    assert listing.texts == []
    assert run_pass(TUESDAY_NOON + 30 * SECOND, carrier=listing)["sent"] == 4


@pytest.mark.parametrize("found", [True, False], ids=["taken", "not taken"])
@pytest.mark.parametrize("cause", [{}, {"trouble": "no credit"}], ids=["too fast", "the account"])
def test_after_a_pause_an_answered_question_lets_one_text_go_and_not_all(
    run_pass, listing, found, cause
):
    (number,) = in_doubt(1)
    listing.found = [number] if found else []
    rest = [store(to=f"+1212555{n}", send_at=TUESDAY_NOON + SECOND).to for n in range(3000, 3020)]
    CarrierState.create(name="fake")
    CarrierState.begin_pause("fake", TUESDAY_NOON - MINUTE, **cause)
    listing.answers = dict.fromkeys([number, *rest], ACCOUNT if cause else TOO_FAST)
    run_pass(TUESDAY_NOON, carrier=listing)
    assert len(listing.texts) == 1


# When an outage is over


def test_an_outage_ends_while_nothing_waits_as_soon_as_the_carrier_answers(run_pass, carrier):
    message, checks = store(), []
    carrier.answers[NEW_YORK] = DOWN
    carrier.check = lambda: checks.append(True)
    run_pass(TUESDAY_NOON)
    assert message.cancel("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON + 4 * SECOND)
    assert not checks, "the pause lasts"
    assert health.read(TUESDAY_NOON).problems()
    run_pass(TUESDAY_NOON + 5 * SECOND)
    assert health.read(TUESDAY_NOON).problems() == []
    run_pass(TUESDAY_NOON + MINUTE)
    assert len(checks) == 1


@pytest.mark.slow
@pytest.mark.parametrize("no", [DOWN, SILENCE, CarrierError("busy"), ACCOUNT], ids=str)
def test_a_carrier_that_is_down_is_asked_after_pauses_that_grow(run_pass, carrier, no):
    message, checks = store(), []

    def check():
        checks.append(True)
        raise no

    carrier.answers[NEW_YORK], carrier.check = DOWN, check
    run_pass(TUESDAY_NOON)
    message.cancel("shell", TUESDAY_NOON)
    asked = []
    for second in (4, 5, 6, 14, 15, 16, 34, 35, 74, 75, 134, 135, 194, 195):
        before = len(checks)
        run_pass(TUESDAY_NOON + second * SECOND)
        if len(checks) > before:
            asked.append(second)
    assert asked == [5, 15, 35, 75, 135, 195]
    assert health.read(TUESDAY_NOON).problems()


def test_a_carrier_that_cannot_be_asked_is_down_until_a_text_is_answered(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = DOWN
    run_pass(TUESDAY_NOON)
    message.cancel("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON + MINUTE)
    assert health.read(TUESDAY_NOON).problems()
    store(to=NEIGHBOUR)
    assert run_pass(TUESDAY_NOON + MINUTE)["sent"] == 1
    assert health.read(TUESDAY_NOON).problems() == []


def test_too_fast_as_the_first_answer_ends_an_outage_and_begins_a_pause_of_a_second(
    run_pass, carrier
):
    carrier.answers = dict.fromkeys(store_many(3), DOWN)
    for second in (0, 5, 15):
        run_pass(TUESDAY_NOON + second * SECOND, send_concurrency=1)
    carrier.answers = dict.fromkeys(carrier.answers, TOO_FAST)
    then = TUESDAY_NOON + 35 * SECOND
    run_pass(then)
    state = CarrierState.get_by_id("fake")
    assert (state.trouble, state.trouble_since, state.is_down) == (None, None, False)
    assert state.retry_at == then + SECOND
    assert health.read(then).problems() == []
    carrier.answers = {}
    assert run_pass(then + SECOND)["sent"] == 2, "the other one is to be tried again"


def test_too_fast_says_nothing_of_an_account_that_is_refused(run_pass, carrier):
    carrier.answers = dict.fromkeys(store_many(3), ACCOUNT)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    carrier.answers = dict.fromkeys(carrier.answers, TOO_FAST)
    run_pass(TUESDAY_NOON + 5 * SECOND)
    assert CarrierState.get_by_id("fake").trouble == "the token is wrong"


# Silences in a row


@pytest.mark.parametrize("own", [None, FOR_GOOD, TOO_FAST], ids=["a yes", "a no", "too fast"])
def test_an_answer_of_its_own_in_the_same_batch_ends_a_row_of_silences(
    settings, carrier, at, own, database_url
):
    at(TUESDAY_NOON)
    CarrierState.prepare("fake")
    watch = Scheduler(settings, carrier).senders[0].watch
    watch.permission(False)
    answers = [*4 * [SILENCE], own]
    watch.note([answer_to(error) for error in answers])
    watch.permission(False)
    assert CarrierState.get_by_id("fake").silences == 0
    watch.note([answer_to(SILENCE)])
    assert not CarrierState.get_by_id("fake").is_down


def test_silences_after_an_answer_of_its_own_in_the_same_batch_are_a_row(
    settings, carrier, at, database_url
):
    at(TUESDAY_NOON)
    CarrierState.prepare("fake")
    watch = Scheduler(settings, carrier).senders[0].watch
    watch.permission(False)
    watch.note([answer_to(error) for error in [*4 * [SILENCE], None, *4 * [SILENCE]]])
    watch.permission(False)
    state = CarrierState.get_by_id("fake")
    assert (state.silences, state.is_down) == (4, False)
    watch.note([answer_to(SILENCE)])
    assert CarrierState.get_by_id("fake").is_down


def answer_to(error):
    return Answer(Send(Message(), None, 0, None), error)


# Too fast between the parts of a text


def test_too_fast_between_the_parts_of_a_text_is_a_pause_for_all(run_pass, carrier):
    numbers = store_many(10)
    words = []
    carrier.received = lambda: [words.pop()] if words else []
    carrier.answers[numbers[0]] = lambda: words.append(TooFast("too many texts"))
    run_pass(TUESDAY_NOON, send_concurrency=1)
    sent = len(carrier.texts)
    assert sent <= 2
    carrier.answers = {}
    run_pass(TUESDAY_NOON + SECOND - MILLISECOND)
    assert len(carrier.texts) == sent
    assert run_pass(TUESDAY_NOON + SECOND) == Counter(
        {"sent": 10 - sent, "waiting for approval": 0, "waiting for a carrier": 0}
    )
    assert again(Message.get()).status == Status.SENT
