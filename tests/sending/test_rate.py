"""SEND_RATE as a pure matter: which texts may go, and when the next ones may."""

import random
from datetime import timedelta

import pytest

from databases import on_both
from samples import TUESDAY_NOON
from texting.sending.carrier_state import CarrierState
from texting.sending.rate import Rate


def send_for(seconds, rate, parts_of, seed=0):
    """Play three schedulers that always have texts; return when how many parts were sent."""
    chance, used_until, sent = random.Random(seed), None, []
    looks = [chance.random() for _ in range(3)]
    queues = [[parts_of(chance) for _ in range(8)] for _ in looks]
    while (at := min(looks)) < seconds:
        number, now = looks.index(at), TUESDAY_NOON + timedelta(seconds=at)
        delay = rate.wait(used_until, now)
        if not delay:
            queue = queues[number]
            going, used_until, delay = rate.claim(used_until, queue, now)
            sent += [(at + delay, parts) for parts in queue[:going]]
            queue[:going] = [parts_of(chance) for _ in range(going)]
        looks[number] = at + delay + chance.uniform(0.001, 0.03)
    return sorted(sent)


def most_within(seconds, sent):
    """Return the most parts that are sent within so many seconds."""
    return max(
        sum(parts for at, parts in sent[number:] if at < first + seconds)
        for number, (first, _) in enumerate(sent)
    )


@pytest.mark.slow
@pytest.mark.parametrize("longest", [1, 2, 3, 10])
@pytest.mark.parametrize("per_second", [0.5, 1, 1.5, 2, 5, 20, 100])
@pytest.mark.parametrize("seed", range(3))
def test_no_second_has_twice_the_rate_and_no_ten_seconds_more_than_eleven_times_the_rate(
    per_second, longest, seed
):
    if longest > 2 * per_second:
        pytest.skip("such a text goes alone")
    seconds = max(20, 40 / per_second)
    sent = send_for(seconds, Rate(per_second), lambda chance: chance.randint(1, longest), seed)
    assert most_within(1, sent) <= 2 * per_second
    assert most_within(10, sent) <= 11 * per_second
    assert sum(parts for _, parts in sent) >= 0.8 * per_second * seconds


def test_a_text_of_more_parts_than_two_seconds_worth_goes_alone_and_is_waited_for():
    sent = send_for(60, Rate(2), lambda chance: chance.choice([1, 1, 1, 10]))
    assert {parts for _, parts in sent} == {1, 10}
    for at, parts in sent:
        if parts == 10:
            assert [other for other, _ in sent if abs(other - at) < 1] == [at]
    assert sum(parts for _, parts in sent) <= 2 * 60 + 10


def test_after_a_pause_the_first_text_goes_at_once():
    rate = Rate(1 / 60)
    going, used_until, delay = rate.claim(None, [1, 1], TUESDAY_NOON)
    assert (going, delay) == (1, 0)
    assert rate.wait(used_until, TUESDAY_NOON) == pytest.approx(60, abs=2)
    assert rate.claim(used_until, [1], TUESDAY_NOON + timedelta(seconds=50))[0] == 0


@on_both
@pytest.mark.parametrize("used_until", [None, 5])
def test_of_two_schedulers_one_uses_the_rate(database_url, used_until):
    CarrierState.create(name="x", rate_used_until=used_until)
    assert CarrierState.use_rate("x", used_until, 10)
    assert not CarrierState.use_rate("x", used_until, 11)
    assert CarrierState.get_by_id("x").rate_used_until == 10
