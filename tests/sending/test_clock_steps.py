"""A wall clock that is set back or jumps ahead, while texts wait, are under way, or are refused."""

import threading
import time
from datetime import timedelta

import pytest

from database import clock
from events.delivery import Deliveries
from events.outbox import Event, EventAddress
from fake_carrier import SLOWLY
from models import Status
from samples import HOUR, MILLISECOND, MINUTE, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending import heartbeats
from sending.carrier_state import CarrierState
from stored_messages import again, held, key_named, store, store_many

BACK = TUESDAY_NOON - 10 * MINUTE
CLAIM_TIMEOUT = 300 * SECOND


def test_a_pause_lasts_no_longer_than_its_length(run_pass, carrier):
    carrier.answers = dict.fromkeys(store_many(3), SLOWLY)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    carrier.answers = {}
    run_pass(BACK)
    run_pass(BACK + 30 * SECOND - MILLISECOND)
    assert len(carrier.texts) == 1
    assert run_pass(BACK + 30 * SECOND)["sent"] == 3


def test_clocks_that_differ_by_a_few_seconds_shorten_no_pause(run_pass, carrier):
    carrier.answers = dict.fromkeys(store_many(3), SLOWLY)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    carrier.answers = {}
    run_pass(TUESDAY_NOON - 5 * SECOND)
    run_pass(TUESDAY_NOON + 30 * SECOND - MILLISECOND)
    assert len(carrier.texts) == 1


def test_a_probe_that_was_claimed_by_a_clock_ahead_is_not_waited_for(run_pass, carrier):
    store()
    CarrierState.create(
        name="fake", retry_at=BACK - HOUR, paused_at=BACK - HOUR, tried_at=TUESDAY_NOON, pause=1
    )
    assert run_pass(BACK)["sent"] == 1


def test_what_a_dead_sender_held_is_taken_over_after_claim_timeout(run_pass, carrier):
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON)
    run_pass(BACK)
    run_pass(BACK + CLAIM_TIMEOUT)
    assert again(message).status == Status.SENDING
    counts = run_pass(BACK + CLAIM_TIMEOUT + MILLISECOND)
    assert (counts["taken over"], counts["sent"]) == (1, 1)


def test_a_doubt_from_the_future_began_before_the_clock_was_set_back(run_pass, carrier):
    """Otherwise the carrier would be asked for texts of a time that is yet to come."""
    carrier.can_be_asked, asked = True, []
    carrier.find = lambda to, text, since: asked.append(since) or ["SM1"]
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON)
    run_pass(BACK)
    run_pass(BACK + CLAIM_TIMEOUT + MILLISECOND)
    assert again(message).status == Status.SENT
    store(BACK, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    run_pass(BACK + MINUTE)
    assert len(asked) == 2
    assert max(asked) <= BACK - 8 * MINUTE


@pytest.mark.slow
@pytest.mark.parametrize("step", [10 * MINUTE, HOUR, -10 * MINUTE])
def test_a_living_sender_is_not_taken_over_by_another_after_a_step(
    settings, carrier, monkeypatch, step, database_url
):
    """Both run on a machine whose clock is set while a text is under way."""
    ahead, now = [timedelta(0)], clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + ahead[0])
    monkeypatch.setattr(heartbeats, "WATCHED", 4)
    monkeypatch.setattr(heartbeats, "BEAT_EVERY", 0.5)
    patient = settings._replace(business_hours=(0, 1440))
    stepped, done = threading.Event(), threading.Event()
    message = store(clock.now())

    def answer():
        ahead[0] = step
        stepped.set()
        done.wait(30)
        return "SM1"

    carrier.answers[message.to] = answer
    other = Scheduler(patient, carrier)
    other.pulse.beat()
    other.take_over()  # as every few seconds
    living = threading.Thread(target=Scheduler(patient, carrier).run_pass)
    living.start()
    stepped.wait(30)
    counts = other.run_pass()
    time.sleep(1)
    counts += other.run_pass()
    done.set()
    living.join()
    assert counts["taken over"] == 0
    assert again(message).status == Status.SENT
    assert again(message).in_doubt == 0
    assert len(carrier.texts) == 1


# Events


@pytest.fixture
def event(database_url):
    """An event whose first try is due at noon."""
    key = key_named("app")
    EventAddress.set(key, "http://127.0.0.1:9/", TUESDAY_NOON)
    store().cancel("shell", TUESDAY_NOON)
    return Event.get()


def test_a_scheduler_that_runs_tells_what_a_clock_ahead_has_put_off(event, at):
    """The clock was set back before it began, and once more while it runs."""
    at(BACK)
    deliveries = Deliveries(300, lambda ids, now: None)
    deliveries.exchange(BACK)
    assert deliveries.in_hand.keys() == {event.id}
    Event.renew(list(deliveries.in_hand.values()), BACK + HOUR)
    at(BACK - HOUR)
    deliveries.in_hand.clear(), deliveries.endpoints.clear()
    deliveries.exchange(BACK - HOUR)
    assert deliveries.in_hand.keys() == {event.id}
