"""A receiver that takes none of three events for five minutes is a problem until it takes one."""

import pytest

from carrier_servers import Answer
from databases import on_both
from samples import HOUR, MILLISECOND, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import decide_on, key_named, store
from texting.access.keys import ApiKey
from texting.events.outbox import Event, EventAddress
from texting.monitoring import health

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]


@pytest.fixture
def pass_at(deliver, at, problems):
    """Deliver what is due at an instant, as a single pass does; return the problems then."""

    def problems_at(instant):
        at(instant)
        deliver()
        return problems(instant)

    return problems_at


@pytest.fixture
def problems(settings):
    """Return what is wrong with receivers at an instant."""

    def found(now):
        found = health.read(now, settings).problems()
        return [each.sentence for each in found if each.kind == "receiver"]

    return found


def ended(key, now=TUESDAY_NOON, count=3):
    """Messages of a key that have just ended, so events wait."""
    for _ in range(count):
        assert decide_on(store(key=key_named(key), send_at=now)).cancel("shell", now)


FIVE_MINUTES = TUESDAY_NOON + 5 * MINUTE


def of(receiver, name="app"):
    EventAddress.set(key_named(name), receiver.url, TUESDAY_NOON)
    return key_named(name)


def test_a_receiver_that_takes_nothing_for_five_minutes_is_told_until_it_does(
    receiver, pass_at, problems
):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app")
    assert pass_at(TUESDAY_NOON) == []
    assert problems(FIVE_MINUTES - MILLISECOND) == []
    told = ["webhooks for app have failed for five minutes"]
    assert problems(FIVE_MINUTES) == told
    assert pass_at(TUESDAY_NOON + 2 * HOUR) == told
    receiver.answer = Answer(204)
    assert pass_at(TUESDAY_NOON + 5 * HOUR) == []
    assert Event.select().count() == 0


def test_less_than_three_tries_say_nothing_and_the_third_may_be_of_one_event(receiver, pass_at):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app", count=1)
    pass_at(TUESDAY_NOON)
    assert pass_at(TUESDAY_NOON + 10 * SECOND) == []
    told = ["webhooks for app have failed for five minutes"]
    assert pass_at(TUESDAY_NOON + 7 * MINUTE) == told


def test_two_tries_are_too_few_however_long_ago(receiver, pass_at, problems):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app", count=2)
    pass_at(TUESDAY_NOON)
    assert problems(TUESDAY_NOON + HOUR) == []


def test_tries_before_a_success_do_not_count(receiver, pass_at, problems):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app", count=2)
    pass_at(TUESDAY_NOON)
    receiver.answer = Answer(204)
    pass_at(TUESDAY_NOON + 10 * SECOND)
    receiver.answer = Answer(500)
    ended("app", count=2)
    pass_at(TUESDAY_NOON + MINUTE)
    assert problems(TUESDAY_NOON + HOUR) == []
    ended("app", TUESDAY_NOON + MINUTE, count=1)
    assert pass_at(TUESDAY_NOON + 5 * MINUTE) == []
    assert problems(TUESDAY_NOON + 6 * MINUTE) != []


def test_tries_of_another_address_do_not_count(receiver, pass_at, problems):
    key = of(receiver)
    receiver.answer = Answer(500)
    ended("app", count=2)
    pass_at(TUESDAY_NOON)
    EventAddress.set(key, f"{receiver.url}&new", TUESDAY_NOON)
    pass_at(TUESDAY_NOON + 10 * SECOND)
    assert problems(TUESDAY_NOON + HOUR) == []


def test_another_address_has_its_own_five_minutes(receiver, pass_at, problems):
    key = of(receiver)
    receiver.answer = Answer(500)
    ended("app")
    pass_at(TUESDAY_NOON)
    later = TUESDAY_NOON + HOUR
    EventAddress.set(key, f"{receiver.url}&new", later)
    ended("app", later)
    assert pass_at(later) == []
    assert problems(later + 5 * MINUTE) != []


def test_one_event_that_is_never_taken_beside_others_that_are_is_none(receiver, pass_at, problems):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app")
    pass_at(TUESDAY_NOON)
    receiver.answer = Answer(204)
    Event.update(next_try_at=TUESDAY_NOON + 5 * HOUR).execute()
    ended("app")
    assert pass_at(TUESDAY_NOON + 4 * MINUTE) == []
    assert problems(TUESDAY_NOON + 2 * HOUR) == [], "it takes others"
    assert Event.select().count() == 3


def test_a_failure_after_a_success_begins_anew(receiver, pass_at, problems):
    of(receiver)
    receiver.answer = Answer(500)
    ended("app")
    pass_at(TUESDAY_NOON)
    receiver.answer = Answer(204)
    pass_at(TUESDAY_NOON + 3 * MINUTE)
    receiver.answer = Answer(500)
    ended("app")
    pass_at(TUESDAY_NOON + 4 * MINUTE)
    assert problems(TUESDAY_NOON + 9 * MINUTE - MILLISECOND) == []
    assert problems(TUESDAY_NOON + 9 * MINUTE) != []


@pytest.mark.parametrize("then", ["off", "another address", "given up"])
def test_it_is_over_when_nothing_waits_for_that_address(receiver, pass_at, problems, then):
    key = of(receiver)
    receiver.answer = Answer(500)
    ended("app")
    pass_at(TUESDAY_NOON)
    later = TUESDAY_NOON + 2 * HOUR
    assert problems(later) != []
    if then == "off":
        EventAddress.switch_off(key.id, "by an operator", later)
    elif then == "another address":
        EventAddress.set(key, "http://127.0.0.1:1/new", later)
    else:
        Event.update(next_try_at=None, given_up_at=later).execute()
    assert problems(later) == []


def test_another_keys_receiver_takes_nothing_back(receiver, pass_at, problems):
    for name in ("app", "shop"):
        EventAddress.set(key_named(name), f"{receiver.url}&key={name}", TUESDAY_NOON)
        ended(name)
    receiver.answer = Answer(500)
    pass_at(TUESDAY_NOON)
    told = [f"webhooks for {name} have failed for five minutes" for name in ("app", "shop")]
    assert problems(FIVE_MINUTES) == told
    Event.delete().where(Event.key != ApiKey.named("shop")).execute()
    receiver.answer = Answer(204)
    pass_at(TUESDAY_NOON + 3 * HOUR)
    ended("app", TUESDAY_NOON + 3 * HOUR)
    (told,) = problems(TUESDAY_NOON + 4 * HOUR)
    assert told.startswith("webhooks for app have failed")
