"""No scheduler runs: told after STALLED_AFTER, whether something is due or not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from databases import on_both
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import decide_on, key_named, store, store_many
from texting import database
from texting.database import clock
from texting.events.outbox import EventAddress
from texting.messages.model import Status
from texting.monitoring import dead_scheduler, notices
from texting.sending.carrier_state import CarrierState

NO_SCHEDULER = "no scheduler is running"


@pytest.fixture
def make_passes(settings, carrier, at):
    """Make a single pass at each of these instants."""

    def make(*instants, carrier=carrier):
        for now in instants:
            at(now)
            Scheduler(settings, carrier).run(None, lambda counts: None)

    return make


def last(now):
    return f"{NO_SCHEDULER}: one last ran at {now:%Y-%m-%dT%H:%M:%S}.000Z"


@pytest.mark.parametrize("has_carrier", [True, False])
def test_after_two_minutes_without_a_scheduler_nothing_need_be_due(
    problems, make_passes, carrier, has_carrier
):
    make_passes(TUESDAY_NOON, carrier=carrier if has_carrier else None)
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    assert problems(TUESDAY_NOON + 2 * MINUTE + SECOND) == [last(TUESDAY_NOON)]
    now = TUESDAY_NOON + 15 * HOUR
    assert problems(now) == [last(TUESDAY_NOON)]
    make_passes(now)
    assert problems(now + MINUTE) == []


def test_stalled_after_is_how_long_nobody_need_run(problems, settings, make_passes):
    make_passes(TUESDAY_NOON)
    patient = settings._replace(stalled_after=15 * MINUTE)
    assert problems(TUESDAY_NOON + 15 * MINUTE, patient) == []
    assert problems(TUESDAY_NOON + 16 * MINUTE, patient) == [last(TUESDAY_NOON)]


def test_stalled_after_is_how_long_nothing_need_go(problems, settings, make_passes):
    make_passes(TUESDAY_NOON + 14 * MINUTE, carrier=None)
    store(send_at=TUESDAY_NOON)
    patient = settings._replace(stalled_after=15 * MINUTE)
    assert problems(TUESDAY_NOON + 15 * MINUTE, patient) == []
    assert problems(TUESDAY_NOON + 16 * MINUTE, patient) == [
        "No text has gone for 15 minutes, although some have been due since "
        "2026-03-03T17:00:00.000Z: CARRIER_URL is not set"
    ]


def test_without_a_scheduler_nothing_else_is_said_of_texts_that_are_due(problems, make_passes):
    make_passes(TUESDAY_NOON)
    store()
    assert problems(TUESDAY_NOON + 3 * HOUR) == [last(TUESDAY_NOON)]


@on_both
def test_without_a_scheduler_events_and_receipts_that_it_owes_are_no_problem_of_their_own(
    problems, make_passes, settings
):
    key, later = key_named("shop"), TUESDAY_NOON + 15 * MINUTE
    EventAddress.set(key, "http://127.0.0.1:1/", TUESDAY_NOON)
    decide_on(store(key=key)).cancel("shell", TUESDAY_NOON)
    make_passes(TUESDAY_NOON)
    store_many(10, carrier="smpp", status=Status.SENT, finished_at=TUESDAY_NOON)
    told = settings._replace(carrier_url="smpp://user:password@127.0.0.1:1/From")
    assert problems(later, told) == [last(TUESDAY_NOON)]
    CarrierState.record_pass(later, {"smpp": []})
    assert len(problems(later, told)) == 2, "of events, and of receipts"


def test_problems_that_a_dead_scheduler_hides_are_not_over(settings, make_passes, at):
    EventAddress.set(key_named("shop"), "http://127.0.0.1:1/", TUESDAY_NOON)
    decide_on(store(key=key_named("shop"))).cancel("shell", TUESDAY_NOON)
    later = TUESDAY_NOON + 3 * MINUTE
    make_passes(later)
    assert [each.title for each in notices.pending(settings, later)] == ["events are not delivered"]
    much_later = TUESDAY_NOON + HOUR
    assert [each.title for each in notices.pending(settings, much_later)] == [NO_SCHEDULER]
    make_passes(much_later)
    assert [each.title for each in notices.pending(settings, much_later)] == [
        f"over: {NO_SCHEDULER}"
    ]


def test_a_pass_that_lasts_is_alive(problems, make_passes):
    make_passes(TUESDAY_NOON)
    for now in (TUESDAY_NOON + 2 * MINUTE, TUESDAY_NOON + 4 * MINUTE):  # every few seconds
        CarrierState.record_pass(now, {"fake": []})
    assert problems(TUESDAY_NOON + 6 * MINUTE) == []
    assert problems(TUESDAY_NOON + 7 * MINUTE) == [last(TUESDAY_NOON + 4 * MINUTE)]


def test_of_several_schedulers_one_is_enough(problems, make_passes, carrier):
    make_passes(TUESDAY_NOON, carrier=None)
    make_passes(TUESDAY_NOON + 2 * MINUTE)
    assert problems(TUESDAY_NOON + 4 * MINUTE) == []
    CarrierState.prepare("testers")  # by a thread, before its pass
    assert problems(TUESDAY_NOON + 5 * MINUTE) == [last(TUESDAY_NOON + 2 * MINUTE)]


def test_a_scheduler_that_never_ran_is_missed_from_when_the_tables_were_made(
    problems, make_passes, monkeypatch
):
    monkeypatch.setattr(database, "made_at", lambda: TUESDAY_NOON)
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    assert problems(TUESDAY_NOON + 3 * MINUTE) == [f"{NO_SCHEDULER}: none has run yet"]
    make_passes(TUESDAY_NOON + 4 * MINUTE)
    assert problems(TUESDAY_NOON + 5 * MINUTE) == []


@on_both
def test_new_tables_know_when_they_were_made(empty_database_url):
    database.connect(empty_database_url)
    before = clock.now()
    database.upgrade()
    assert before - SECOND <= database.made_at() <= clock.now() + SECOND
    database.disconnect()


# Notices, by the web


def test_of_all_workers_one_a_minute_begins_to_tell(database_url):
    assert dead_scheduler.is_first(TUESDAY_NOON)
    assert not dead_scheduler.is_first(TUESDAY_NOON)
    assert not dead_scheduler.is_first(TUESDAY_NOON - 2 * SECOND)  # a machine's clock is behind
    assert not dead_scheduler.is_first(TUESDAY_NOON + MINUTE - SECOND)
    assert dead_scheduler.is_first(TUESDAY_NOON + MINUTE + SECOND)
    assert not dead_scheduler.is_first(TUESDAY_NOON + MINUTE + SECOND)


def test_of_workers_that_look_at_once_one_begins_to_tell(database_url):
    def look(_):
        try:
            return dead_scheduler.is_first(TUESDAY_NOON)
        finally:
            database.db.close()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(look, range(8))) == 1


def test_schedulers_that_are_back_tell_that_it_is_well(settings, make_passes, at):
    make_passes(TUESDAY_NOON)
    (told,) = notices.pending(settings, TUESDAY_NOON + 3 * MINUTE)
    assert (told.title, told.text[: len(last(TUESDAY_NOON))]) == (NO_SCHEDULER, last(TUESDAY_NOON))
    make_passes(TUESDAY_NOON + 4 * MINUTE)
    (told,) = notices.pending(settings, TUESDAY_NOON + 4 * MINUTE)
    assert told.title == f"over: {NO_SCHEDULER}"
