"""One text that the carrier refuses, whatever its key, keeps no others from going."""

import itertools
import logging

import pytest

from databases import on_both
from fake_carrier import ACCOUNT, FOR_GOOD, TOO_FAST, AskableCarrier
from samples import DAY, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, statuses, store, store_many
from texting.access.keys import ApiKey
from texting.carriers import CarrierError
from texting.messages.model import Message, Status
from texting.monitoring import health

PAGE = CarrierError("a gateway's page", silent=True)
NO_CONNECTION = CarrierError("there is no connection", unreached=True)
POISON = "+12125559999"


def key_of(name, urgent=None):
    """A key; those whose names begin with `u` are urgent."""
    key = key_named(name)
    is_urgent = name.startswith("u") if urgent is None else urgent
    ApiKey.update(urgent=is_urgent).where(ApiKey.id == key.id).execute()
    return ApiKey.get_by_id(key.id)


@pytest.fixture
def run_for(run_on):
    """Run passes of one scheduler from one second after Tuesday noon to another."""

    def run(begin, end, every=1, **changes):
        for second in range(begin, end, every):
            run_on(TUESDAY_NOON + second * SECOND, **changes)

    return run


def names_in_turn(carrier, begin=0):
    """The texts that were given to a carrier; each is the name of its key."""
    return [text for _, text in carrier.texts[begin:]]


# Beside others


@pytest.mark.slow
@pytest.mark.parametrize("name", ["u", "z", "a"], ids=["urgent", "not urgent", "of the same key"])
@pytest.mark.parametrize(
    ("first", "no"), [(ACCOUNT, ACCOUNT), (TOO_FAST, TOO_FAST), (NO_CONNECTION, PAGE)], ids=str
)
def test_a_text_that_is_always_refused_holds_up_no_other(run_for, carrier, name, first, no):
    store(to=POISON, key=key_of(name))
    numbers = store_many(30, key=key_of("a"))
    carrier.answers = dict.fromkeys([POISON, *numbers], first)
    run_for(0, 1, send_concurrency=4)
    carrier.answers = {POISON: no}
    run_for(5, 90, 5, send_concurrency=4)
    assert statuses()[Status.SENT] == 30


# The text itself


@pytest.fixture
def refused(run_for, carrier):
    """A text that was refused as "the account" twice, and others taken in between."""
    message = store(to=POISON, key=key_of("u"))
    store_many(20, key=key_of("a"))
    carrier.answers[POISON] = ACCOUNT
    run_for(0, 40, 5)
    return message


@on_both
def test_it_is_tried_again_like_any_that_is_refused_for_now_until_it_has_failed(refused, run_pass):
    """A person who retries it then gives it its first chance again."""
    waits = again(refused)
    assert (waits.status, waits.attempts) == (Status.SCHEDULED, 1)
    assert waits.last_error == str(ACCOUNT)
    assert 0.9 * MINUTE <= waits.send_at - waits.last_error_at <= 1.1 * MINUTE
    assert statuses()[Status.SENT] == 20
    for minutes in (2, 10, 60, 120):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
    ended = again(refused)
    assert (ended.status, ended.attempts) == (Status.FAILED, 4)
    assert ended.last_error == str(ACCOUNT)
    decide_on(ended).retry(TUESDAY_NOON + 121 * MINUTE, 3 * DAY)
    run_pass(TUESDAY_NOON + 121 * MINUTE)
    assert (again(refused).status, again(refused).attempts) == (Status.QUEUED, 0)


def test_its_further_tries_are_no_trouble_of_the_carrier(
    refused, run_for, carrier, settings, caplog
):
    assert health.read(TUESDAY_NOON + 40 * SECOND, settings).problems() == []
    caplog.clear()
    given = len(carrier.texts)
    run_for(40, 120, 10)
    assert len(carrier.texts) == given + 1
    assert again(refused).attempts == 2
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []
    store_many(20, TUESDAY_NOON + MINUTE, key=key_of("a"), message="more")
    run_for(120, 121)
    assert statuses()[Status.SENT] == 40, "no pause either"


def test_as_the_text_that_goes_first_after_a_pause_it_does_not_end_that(
    refused, run_pass, carrier, settings
):
    """The account is refused in earnest meanwhile; it costs this text nothing more, either."""
    other = store(TUESDAY_NOON + 50 * SECOND, key=key_of("a"))
    carrier.answers[NEW_YORK] = ACCOUNT
    run_pass(TUESDAY_NOON + 50 * SECOND)
    assert decide_on(other).cancel("shell", TUESDAY_NOON + 50 * SECOND)
    run_pass(TUESDAY_NOON + 2 * MINUTE)
    assert carrier.numbers[-2:] == [NEW_YORK, POISON]
    waits = again(refused)
    assert (waits.status, waits.attempts) == (Status.QUEUED, 1)
    assert health.read(TUESDAY_NOON + 2 * MINUTE, settings).problems()


def test_a_text_that_is_refused_again_while_no_other_is_taken_loses_no_retry(run_for, carrier):
    message = store(key=key_of("u"), max_retries=0)
    other = store(to=POISON, key=key_of("a"), max_retries=0)
    carrier.answers = {NEW_YORK: ACCOUNT, POISON: ACCOUNT}
    run_for(0, 200, 10)
    assert len(carrier.texts) > 4
    for each in (again(message), again(other)):
        assert (each.status, each.attempts) == (Status.QUEUED, 0)
    carrier.answers = {}
    run_for(200, 262, 60)
    assert statuses() == {Status.SENT: 2}


@pytest.mark.parametrize("is_set_back", [False, True], ids=["", "the clock was a day ahead"])
def test_that_others_are_refused_for_good_does_not_say_that_they_are_taken(
    run_for, run_pass, carrier, is_set_back
):
    if is_set_back:
        store(TUESDAY_NOON + DAY)
        carrier.answers = {NEW_YORK: ACCOUNT}
        run_pass(TUESDAY_NOON + DAY)
        carrier.answers = {}
        assert run_pass(TUESDAY_NOON + DAY + MINUTE)["sent"] == 1
    message = store(to=POISON, key=key_of("u"), max_retries=0)
    store(to=NEIGHBOUR, key=key_of("a"))
    carrier.answers = {POISON: ACCOUNT, NEIGHBOUR: FOR_GOOD}
    run_for(0, 20, 5, send_concurrency=1)
    assert carrier.numbers.count(NEIGHBOUR) == 1
    assert carrier.numbers.count(POISON) > 1
    assert carrier.numbers[-1] == POISON
    assert (again(message).status, again(message).attempts) == (Status.QUEUED, 0)


def test_a_no_for_now_before_makes_no_difference_to_an_account_that_is_refused(run_for, carrier):
    """The account was refused and mended before: this text has had its no for another reason."""
    store(to=NEW_YORK, key=key_of("a"))
    carrier.answers = {NEW_YORK: ACCOUNT}
    run_for(0, 1)
    late = store(to=POISON, key=key_of("b"), max_retries=1)
    carrier.answers = {POISON: CarrierError("busy")}
    run_for(5, 7)
    assert (again(late).status, again(late).attempts) == (Status.SCHEDULED, 1)
    assert statuses()[Status.SENT] == 1
    carrier.answers = {POISON: ACCOUNT}
    run_for(80, 81)
    assert (again(late).status, again(late).attempts) == (Status.QUEUED, 1)


@pytest.mark.slow
def test_a_question_that_is_refused_as_the_account_holds_up_no_others(run_for, settings, at):
    """Of a carrier that can be asked; the text stays in doubt meanwhile."""
    asked = AskableCarrier()
    find = asked.find

    def refuse_one(to, text, since):
        find(to, text, since)
        if to == POISON:
            raise ACCOUNT
        return []

    asked.find = refuse_one
    doubtful = store(
        to=POISON, key=key_of("u"), in_doubt=1, in_doubt_with="fake", in_doubt_since=TUESDAY_NOON
    )
    store_many(30, key=key_of("a"))
    run_for(0, 40, 5, carrier=asked)
    assert statuses() == {Status.SENT: 30, Status.QUEUED: 1}
    waits = again(doubtful)
    assert (waits.in_doubt, waits.attempts) == (1, 0)
    assert POISON not in asked.numbers


# Whose text goes first after a pause


@pytest.mark.slow
@pytest.mark.parametrize("no", [ACCOUNT, TOO_FAST, PAGE], ids=["account", "too fast", "pages"])
@pytest.mark.parametrize("names", ["u a", "a b", "u v", "u v a", "u a b c"])
def test_keys_have_their_turns_one_after_the_other_urgent_or_not(run_on, carrier, names, no):
    begun = names.split()
    for name, number in zip(begun, itertools.count(), strict=False):
        key = key_of(name, urgent=name in "uv")
        for each in range(3):
            store(to=f"+1212555{number}00{each}", key=key, message=name)
    every = [m.to for m in Message.select()]
    carrier.answers = dict.fromkeys(every, NO_CONNECTION if no is PAGE else no)
    run_on(TUESDAY_NOON, send_concurrency=1)
    first = len(carrier.texts)
    carrier.answers = dict.fromkeys(every, no)
    for minutes in range(1, 10):
        run_on(TUESDAY_NOON + minutes * MINUTE)
    turns = names_in_turn(carrier, first)
    assert len(turns) >= 9
    assert all(one != next for one, next in itertools.pairwise(turns)), turns
    assert {*turns} == {*begun}, "and each has its turn"


@on_both
@pytest.mark.parametrize("no", [ACCOUNT, TOO_FAST, PAGE], ids=["account", "too fast", "pages"])
def test_a_key_that_had_its_turn_goes_to_the_end_though_it_is_urgent(run_on, carrier, no):
    store(key=key_of("a"), message="a")
    carrier.answers = {NEW_YORK: NO_CONNECTION if no is PAGE else no}
    run_on(TUESDAY_NOON)
    store(to=POISON, key=key_of("u"), message="u")
    carrier.answers = {NEW_YORK: no, POISON: no}
    for minutes in range(2, 6):
        run_on(TUESDAY_NOON + minutes * MINUTE)
    assert names_in_turn(carrier)[1:5] in ([*"uaua"], [*"auau"])
