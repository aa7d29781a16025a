"""What is claimed under a scheduler's name without its knowledge: it did not hear of the commit."""

from concurrent.futures import Future

import pytest
from peewee import OperationalError

from databases import on_both
from fake_carrier import TOO_FAST
from own_threads import IN_ORDER
from running import wait_until
from samples import HOUR, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import FAKE, SENDER, again, store, store_many
from texting import database
from texting.messages import doubts
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Status
from texting.sending.carrier_state import CarrierState
from texting.sending.runtime import Clock, Runtime
from texting.sending.sends import Kind

pytestmark = on_both

LATER = TUESDAY_NOON + 300 * SECOND  # CLAIM_TIMEOUT


@pytest.fixture(autouse=True)
def noon(at, without_waiting):
    at(TUESDAY_NOON)


class Unheard:
    """Do something; the first time that it came to anything, the database fails afterwards."""

    def __init__(self, owner, name, monkeypatch):
        self.action, self.happened = getattr(owner, name), False
        monkeypatch.setattr(owner, name, self)

    def __call__(self, *arguments):
        result = self.action(*arguments)
        if self.happened or not result:
            return result
        self.happened = True
        raise OperationalError("the server closed the connection unexpectedly")


class Impatient(Clock):
    """A clock by which a second is short."""

    def sleep(self, seconds):
        super().sleep(seconds / 20)


@pytest.fixture
def scheduler(settings):
    def begin(carrier, **changes):
        changed = settings._replace(business_hours=(0, 1440), **changes)
        return Scheduler(changed, carrier, Runtime(Impatient(), IN_ORDER.submit))

    return begin


def busy_until(condition):
    """Return an answer that comes once a condition is true."""
    return lambda: wait_until(condition, 20) and None


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_question_that_is_claimed_unheard_is_put_at_once(
    scheduler, askable, monkeypatch, is_busy
):
    message = store(in_doubt=1, in_doubt_with="fake", to=NEW_YORK)
    askable.taken.append((NEW_YORK, "Hello"))
    one = scheduler(askable, send_concurrency=2)
    if is_busy:
        store(to=NEIGHBOUR, message="Another")
        askable.answers[NEIGHBOUR] = busy_until(lambda: askable.asked)
    asks = Unheard(one.senders[0].questions, "ask", monkeypatch)
    sender, ask = one.senders[0], asks.action
    if is_busy:  # once the other text is under way
        asks.action = lambda room: ask(room) if sender.sends.under_way else []
        one.run_pass()
    else:
        with pytest.raises(database.ERRORS):
            one.run_pass()
        one.run_pass()
    assert asks.happened
    assert len(askable.asked) == 1
    assert again(message).status == Status.SENT


def test_a_question_in_hand_stays_there_while_another_is_taken_back(scheduler, askable):
    one = scheduler(askable)
    one.pulse.beat()
    (sender, _), me = one.senders, one.pulse.sender
    asked = store(in_doubt=1, in_doubt_with="fake", to=NEW_YORK)
    unheard = store(in_doubt=2, in_doubt_with="fake other", to=NEIGHBOUR)
    for each in (asked, unheard):
        assert doubts.claim(each.id, FAKE, me, TUESDAY_NOON)
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    assert doubts.claim(unheard.id, "other", SENDER, TUESDAY_NOON)
    question = sender.send_of(asked)
    question.kind, question.since = Kind.FIND, TUESDAY_NOON
    sender.sends.under_way[Future()] = question
    sender.take_back_unheard()
    held = Attempt.select(Attempt.message, Attempt.sender).tuples()
    assert {*held} == {(asked.id, me), (unheard.id, None), (unheard.id, SENDER)}


def test_who_was_to_go_first_unheard_goes_first_at_once(scheduler, carrier, monkeypatch, at):
    store_many(5)
    carrier.answer = TOO_FAST
    one = scheduler(carrier, send_concurrency=1)
    one.run_pass()
    at(TUESDAY_NOON + MINUTE)
    carrier.answer, carrier.texts = None, []
    unheard = Unheard(one.senders[0].watch, "permission", monkeypatch)
    with pytest.raises(database.ERRORS):
        one.run_pass()
    assert carrier.texts == []
    assert one.run_pass()["sent"] == 5
    assert unheard.happened


def test_what_another_asks_about_is_asked_about_once_it_is_dead(scheduler, askable, at):
    message = store(in_doubt=1, in_doubt_with="fake")
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    assert doubts.claim(message.id, FAKE, SENDER, TUESDAY_NOON)
    one = scheduler(askable)
    one.run_pass()
    at(LATER)
    one.run_pass()
    assert askable.asked == [], "it may be alive"
    askable.taken.append((NEW_YORK, "Hello"))
    at(LATER + SECOND)
    one.run_pass()
    assert len(askable.asked) == 1
    assert again(message).status == Status.SENT


def test_what_another_is_to_send_first_is_left_to_the_next_once_it_is_dead(scheduler, carrier, at):
    store()
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    CarrierState.create(
        name="fake",
        retry_at=TUESDAY_NOON,
        paused_at=TUESDAY_NOON,
        probe_claimed_at=TUESDAY_NOON,
        probe_claimed_by=SENDER,
    )
    one = scheduler(carrier)
    one.run_pass()
    at(LATER)
    one.run_pass()
    assert carrier.texts == [], "it may be alive"
    at(LATER + SECOND)
    assert one.run_pass()["sent"] == 1


def test_a_scheduler_that_ends_leaves_what_it_did_not_hear_of_to_others(
    scheduler, askable, monkeypatch
):
    store(in_doubt=1, in_doubt_with="fake")
    CarrierState.create(name="fake", retry_at=TUESDAY_NOON - HOUR, paused_at=TUESDAY_NOON - HOUR)
    one, other = scheduler(askable), scheduler(askable)
    Unheard(one.senders[0].questions, "ask", monkeypatch)
    with pytest.raises(database.ERRORS):
        one.run_pass()
    other.run_pass()
    assert askable.asked == [], "it is the other's"
    one.close()
    other.run_pass()
    assert len(askable.asked) == 1
    assert not Heartbeat.select().where(Heartbeat.sender == one.pulse.sender).exists()


def test_an_equal_text_that_is_under_way_puts_a_question_off_by_a_minute(scheduler, askable, at):
    """A person has retried it: the carrier could not tell the two apart."""
    doubted = store(in_doubt=1, in_doubt_with="fake")
    store(status=Status.SENDING, claimed_by=SENDER, claimed_for="fake", claim_number=1)
    one = scheduler(askable)
    one.run_pass()
    (attempt,) = Attempt.select().where(Attempt.message == doubted)
    assert (askable.asked, attempt.ask_at, attempt.sender) == ([], TUESDAY_NOON + MINUTE, None)


@pytest.mark.parametrize("is_question", [True, False])
def test_who_was_declared_dead_while_it_stood_still_leaves_nothing_to_others(
    scheduler, askable, at, is_question
):
    message = store(in_doubt=1, in_doubt_with="fake") if is_question else store()
    CarrierState.create(name="fake", retry_at=None if is_question else TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    at(LATER)
    one, other = scheduler(askable), scheduler(askable)
    one.pulse.beat()
    died = one.pulse.sender
    Heartbeat.delete().where(Heartbeat.sender == died).execute()
    doubts.take_over(LATER, unable=())
    one.senders[0].step(may_claim=True)  # it goes on, and is killed
    assert not Attempt.select().where(Attempt.sender == died).exists()
    assert not CarrierState.select().where(CarrierState.probe_claimed_by == died).exists()
    other.run_pass()
    assert again(message).status == Status.SENT
