"""Heartbeats by a clock in hand: since when a scheduler has beaten, and how it watches others."""

import uuid

import pytest

from databases import on_both
from samples import HOUR, SECOND, TUESDAY_NOON
from stored_messages import held
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Status
from texting.sending.heartbeats import FRESH, GAP, WATCHED, Pulse
from texting.sending.runtime import Clock

OTHER = uuid.UUID(int=2)


class HandClock(Clock):
    seconds = 0

    def monotonic(self):
        return self.seconds

    def now(self):
        return TUESDAY_NOON + self.seconds * SECOND


@pytest.fixture
def clock(database_url):
    return HandClock()


@pytest.fixture
def pulse(clock):
    pulse = Pulse(clock)
    pulse.beat()
    return pulse


@on_both
@pytest.mark.parametrize("status", [Status.SENDING, Status.SENT])
def test_a_scheduler_that_ends_is_forgotten_unless_texts_may_be_in_its_hands(pulse, status):
    mine = {"claimed_by": pulse.sender} if status == Status.SENDING else {}
    held(status, **mine)
    pulse.end()
    assert Heartbeat.select().exists() == (status == Status.SENDING)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_beat_counts_from_before_the_database_was_asked_however_late_that_answers(
    clock, monkeypatch, is_first
):
    pulse = Pulse(clock)
    if not is_first:
        pulse.beat()
    name = "insert" if is_first else "beat"
    ask = getattr(Heartbeat, name)

    def ask_slowly(*arguments, **columns):
        clock.seconds += FRESH - 1
        return ask(*arguments, **columns)

    monkeypatch.setattr(Heartbeat, name, ask_slowly)
    pulse.beat()
    assert pulse.is_fresh(pulse.sender)
    clock.seconds += 2
    assert not pulse.is_fresh(pulse.sender)


@pytest.mark.parametrize(("stands_still", "is_dead"), [(GAP, True), (GAP + 1, False)])
def test_after_a_standstill_the_others_are_watched_from_the_start_again(
    clock, pulse, stands_still, is_dead
):
    """The database may have been away for all."""
    Heartbeat.insert(sender=OTHER, beat_at=TUESDAY_NOON - HOUR).execute()
    while clock.seconds < WATCHED - GAP:
        assert pulse.watch(60) == ([], True)
        clock.seconds += GAP / 2
    assert pulse.watch(60) == ([], True)
    clock.seconds += stands_still
    dead, suspects = pulse.watch(60)
    assert ([each.sender for each in dead], suspects) == ([OTHER] * is_dead, not is_dead)


@pytest.mark.parametrize("ahead", [16 * HOUR, -16 * HOUR])
def test_one_that_beats_by_a_wrong_clock_is_alive(clock, pulse, ahead):
    Heartbeat.create(sender=OTHER, beat_at=TUESDAY_NOON + ahead)
    for _ in range(2 * WATCHED):
        assert pulse.watch(60) == ([], True)
        clock.seconds += 1
        assert Heartbeat.beat(OTHER, clock.now() + ahead)


def test_a_dead_one_whose_clock_was_ahead_is_seen_to_be_dead_all_the_same(clock, pulse):
    """It beat by it; nobody dates that back while it gives nothing."""
    Heartbeat.create(sender=OTHER, beat_at=TUESDAY_NOON + 16 * HOUR)
    for _ in range(WATCHED):
        assert pulse.watch(60) == ([], True)
        clock.seconds += 1
    ((dead,), _) = pulse.watch(60)
    assert dead.sender == OTHER
