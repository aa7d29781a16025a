"""No scheduler makes a pass: told at once, whether something is due or not, and not too soon."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import database
from database import clock
from monitoring import dead_scheduler, notices
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending import passes
from sending.carrier_state import CarrierState
from sending.passes import Passes
from stored_messages import store

NO_PASS = "no scheduler makes a pass"


@pytest.fixture
def make_passes(settings, carrier, at):
    """Make passes at these instants, single ones or one every so many seconds."""

    def make(*instants, every=None, carrier=carrier):
        for now in instants:
            at(now)
            one = Scheduler(settings, carrier)
            if every:  # one of them is enough
                one.listen = lambda _, stop=one.stop: stop.request()
            one.run(every, lambda counts: None)

    return make


def last(now):
    return f"{NO_PASS}: the last one was at {now:%Y-%m-%dT%H:%M:%S}.000Z"


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, 5])
@pytest.mark.parametrize("has_carrier", [True, False])
def test_after_two_minutes_without_a_pass_nothing_need_be_due(
    problems, make_passes, carrier, every, has_carrier
):
    make_passes(TUESDAY_NOON, every=every, carrier=carrier if has_carrier else None)
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    assert problems(TUESDAY_NOON + 2 * MINUTE + SECOND) == [last(TUESDAY_NOON)]
    assert problems(TUESDAY_NOON + 9 * MINUTE, 600) == []
    assert problems(TUESDAY_NOON + 11 * MINUTE, 600) == [last(TUESDAY_NOON)]
    now = TUESDAY_NOON + 15 * HOUR
    assert problems(now) == [last(TUESDAY_NOON)]
    make_passes(now, every=every)
    assert problems(now + MINUTE) == []


def test_what_is_due_and_does_not_go_for_that_reason_hides_it_not(problems, make_passes):
    make_passes(TUESDAY_NOON)
    store()
    assert problems(TUESDAY_NOON + 3 * MINUTE) == [
        f"nothing was sent for 120 s though texts are due: {NO_PASS}",
        last(TUESDAY_NOON),
    ]


def minutes(*numbers):
    return [TUESDAY_NOON + number * MINUTE for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begun", "allowed"),
    [
        ([0, 1, 2, 3, 4, 5], 3),
        ([0, 10], 30),
        ([0, 10, 20, 30, 40, 50, 60], 30),
        ([0, 10, 20, 32], 36),
        ([0, 10, 20, 23], 9),
        ([0, 0.1, 0.2, 0.3, 0.4], 2),
    ],
)
def test_passes_of_cron_may_be_three_times_as_far_apart_as_the_last_two(
    problems, make_passes, begun, allowed
):
    make_passes(*minutes(*begun))
    (end,) = minutes(begun[-1])
    assert problems(end + allowed * MINUTE) == []
    assert problems(end + allowed * MINUTE + SECOND)[0].startswith(NO_PASS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "allowed"), [(5, 2 * MINUTE), (60, 3 * MINUTE), (600, 30 * MINUTE)]
)
def test_a_scheduler_says_itself_how_far_its_passes_are_apart(
    problems, make_passes, every, allowed
):
    make_passes(TUESDAY_NOON, every=every)
    assert problems(TUESDAY_NOON + allowed) == []
    assert problems(TUESDAY_NOON + allowed + SECOND) == [last(TUESDAY_NOON)]


@pytest.mark.slow
@pytest.mark.parametrize(("every", "allowed"), [(5, 2 * MINUTE), (600, 30 * MINUTE)])
def test_how_long_such_a_scheduler_was_away_is_no_distance(problems, make_passes, every, allowed):
    make_passes(TUESDAY_NOON, TUESDAY_NOON + 10 * MINUTE, every=every)
    by_hand = TUESDAY_NOON + 12 * HOUR
    make_passes(by_hand)
    assert problems(by_hand + allowed) == []
    assert problems(by_hand + allowed + SECOND) == [last(by_hand)]


def test_a_long_pass_is_alive_and_its_length_is_no_distance(problems, make_passes):
    make_passes(*minutes(0, 10, 20))
    for now in minutes(20, 35, 50, 80):  # what is done every few seconds
        CarrierState.record_pass(now, {"fake": []})
    assert problems(TUESDAY_NOON + 100 * MINUTE) == []
    assert problems(TUESDAY_NOON + 111 * MINUTE) == [last(TUESDAY_NOON + 80 * MINUTE)]


def test_passes_of_cron_that_last_are_as_far_apart_as_they_begin(problems, make_passes):
    for begun in (0, 10, 20):
        make_passes(*minutes(begun))
        CarrierState.record_pass(*minutes(begun + 9), {"fake": []})
    assert problems(TUESDAY_NOON + 59 * MINUTE) == []
    assert problems(TUESDAY_NOON + 60 * MINUTE)[0].startswith(NO_PASS)


def test_of_several_schedulers_one_is_enough(problems, make_passes, carrier):
    make_passes(TUESDAY_NOON, every=5, carrier=None)
    make_passes(TUESDAY_NOON + 2 * MINUTE, every=5)
    assert problems(TUESDAY_NOON + 4 * MINUTE) == []
    CarrierState.prepare("testers")  # by a thread, before its pass
    assert problems(TUESDAY_NOON + 5 * MINUTE) == [last(TUESDAY_NOON + 2 * MINUTE)]


def test_a_clock_that_is_set_back_is_no_reason_to_wait_longer(problems, make_passes):
    make_passes(*minutes(0, 1, 2, 3))
    make_passes(*minutes(-57, -56, -55))
    assert problems(TUESDAY_NOON - 52 * MINUTE) == []
    assert problems(TUESDAY_NOON - 51 * MINUTE)[0].startswith(NO_PASS)


def test_a_scheduler_that_never_ran_is_told_two_minutes_after_the_tables_were_made(
    problems, make_passes
):
    Passes.create(id=1, expected_since=TUESDAY_NOON)
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    assert problems(TUESDAY_NOON + 3 * MINUTE) == [f"{NO_PASS}: there has been none yet"]
    make_passes(TUESDAY_NOON + 4 * MINUTE)
    assert problems(TUESDAY_NOON + 5 * MINUTE) == []
    assert Passes.get().expected_since == TUESDAY_NOON


def test_new_tables_say_when_a_pass_was_to_be_expected(empty_database_url):
    database.connect(empty_database_url)
    before = clock.now()
    database.upgrade()
    assert before - SECOND <= passes.pass_times().expected_since <= clock.now() + SECOND
    database.disconnect()


# Notices, by the web


@pytest.mark.parametrize(("minutes_later", "needed"), [(3, True), (2, False)])
def test_the_web_tells_where_no_scheduler_does(make_passes, at, minutes_later, needed):
    make_passes(TUESDAY_NOON)
    at(TUESDAY_NOON + minutes_later * MINUTE)
    assert dead_scheduler.is_needed() is needed


def test_of_all_workers_one_a_minute_begins_to_tell(database_url):
    assert dead_scheduler.is_first(TUESDAY_NOON)
    assert not dead_scheduler.is_first(TUESDAY_NOON)
    assert not dead_scheduler.is_first(TUESDAY_NOON - 2 * SECOND)  # a machine's clock is behind
    assert not dead_scheduler.is_first(TUESDAY_NOON + MINUTE - SECOND)
    assert dead_scheduler.is_first(TUESDAY_NOON + MINUTE + SECOND)
    assert not dead_scheduler.is_first(TUESDAY_NOON + MINUTE + SECOND)


def test_a_clock_that_is_set_back_lets_the_web_tell_in_a_minute(database_url):
    assert dead_scheduler.is_first(TUESDAY_NOON + HOUR)
    assert not dead_scheduler.is_first(TUESDAY_NOON)
    assert dead_scheduler.is_first(TUESDAY_NOON + MINUTE + SECOND)


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
    assert (told.title, told.text[: len(last(TUESDAY_NOON))]) == (NO_PASS, last(TUESDAY_NOON))
    make_passes(TUESDAY_NOON + 4 * MINUTE)
    (told,) = notices.pending(settings, TUESDAY_NOON + 4 * MINUTE)
    assert told.title == f"over: {NO_PASS}"
