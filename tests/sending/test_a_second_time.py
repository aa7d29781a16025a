"""A second pause, outage or death is treated as the first was, and nothing of the first is left."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from carriers import CarrierError
from database import isoformat
from fake_carrier import ACCOUNT, TOO_FAST, DyingPool
from models import Message, Status
from samples import HOUR, MILLISECOND, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from sending.runtime import THIS_MACHINE, Runtime
from several_carriers import SILENT, NamedCarrier
from stored_messages import again, store, store_many

DOWN = CarrierError("nobody listens", unreached=True)
SILENCE = CarrierError("a gateway's page", silent=True)

CAUSES = {
    "too fast": (TOO_FAST, [0, 1, 3, 7, 15], None, "says too fast"),
    "down": (DOWN, [0, 5, 15], "has been down", "is down"),
    "account": (ACCOUNT, [0, 5, 15], "has refused the account", "refuses the account"),
}
"""An answer, when one text is tried (in seconds), what is told of it, and its line in the log."""


@pytest.fixture
def tries(run_pass, carrier):
    """Answer all texts alike; return in which of the next 20 seconds one was tried."""

    def count(since, answer):
        carrier.answers = dict.fromkeys(store_many(40, since), answer)
        seconds = []
        for second in range(20):
            before = len(carrier.texts)
            run_pass(since + second * SECOND, send_concurrency=1)
            seconds += [second] * (len(carrier.texts) - before)
        carrier.answers = {}
        return seconds

    return count


@pytest.mark.slow
@pytest.mark.parametrize("second", CAUSES)
@pytest.mark.parametrize("first", CAUSES)
def test_a_second_trouble_is_as_if_there_had_been_no_first(
    tries, run_pass, known_problems, caplog, first, second
):
    answer, seconds, _, _ = CAUSES[first]
    assert tries(TUESDAY_NOON, answer) == seconds
    run_pass(TUESDAY_NOON + 5 * MINUTE)
    assert known_problems(TUESDAY_NOON + 5 * MINUTE) == []
    caplog.clear()
    caplog.set_level("INFO", "scheduler")
    again_at = TUESDAY_NOON + 10 * MINUTE
    answer, seconds, told, line = CAUSES[second]
    assert tries(again_at, answer) == seconds
    problems = known_problems(again_at + 20 * SECOND)
    began = [f"fake {told} since {isoformat(again_at)}: {answer}"] if told else []
    assert problems == began
    assert caplog.text.count(line) == 1
    run_pass(again_at + 5 * MINUTE)
    assert known_problems(again_at + 5 * MINUTE) == []
    assert caplog.text.count("takes texts again") == len(began)


@pytest.mark.parametrize(
    ("first", "second"),
    [("too fast", "down"), ("too fast", "account"), ("down", "account"), ("account", "down")],
)
def test_another_trouble_within_a_pause_is_told_and_logged(
    run_pass, carrier, known_problems, caplog, first, second
):
    carrier.answers = dict.fromkeys(store_many(3), CAUSES[first][0])
    run_pass(TUESDAY_NOON, send_concurrency=1)
    answer, _, told, line = CAUSES[second]
    carrier.answers = dict.fromkeys(carrier.answers, answer)
    for seconds in (5, 15):
        run_pass(TUESDAY_NOON + seconds * SECOND, send_concurrency=1)
    assert len(carrier.texts) == 3
    (problem,) = known_problems(TUESDAY_NOON + 15 * SECOND)
    assert problem.startswith(f"fake {told} since ")
    assert caplog.text.count(line) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", ["a question", "a text"])
def test_after_an_outage_it_takes_five_silent_texts_again(
    run_pass, carrier, known_problems, ended_by
):
    def is_down(instant):
        return any("has been down" in problem for problem in known_problems(instant))

    *silent, last = store_many(5)
    outage = DOWN if ended_by == "a question" else SILENCE  # only a text ends silence
    carrier.answers = dict.fromkeys(silent, SILENCE) | {last: outage}
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert is_down(TUESDAY_NOON)
    if ended_by == "a question":
        carrier.check = lambda: None
    else:
        store(to=NEIGHBOUR)
    run_pass(TUESDAY_NOON + 5 * SECOND)
    downs = [is_down(TUESDAY_NOON + 5 * SECOND)]
    for number in range(5):
        silent = store(to=f"+121255599{number:02}")
        carrier.answers[silent.to] = SILENCE
        run_pass(TUESDAY_NOON + 10 * SECOND)
        downs.append(is_down(TUESDAY_NOON + 10 * SECOND))
    assert downs == [*5 * [False], True]


@pytest.mark.parametrize("serves", [True, False], ids=["asked, it serves", "it cannot be asked"])
def test_too_fast_goes_on_though_nothing_waited_when_the_pause_was_over(run_pass, carrier, serves):
    message = store()
    carrier.answers[NEW_YORK] = TOO_FAST
    if serves:
        carrier.check = lambda: None
    run_pass(TUESDAY_NOON)
    assert message.cancel("shell", TUESDAY_NOON)
    for seconds in (1, 2, 60):
        run_pass(TUESDAY_NOON + seconds * SECOND)
    then = TUESDAY_NOON + HOUR
    carrier.answers = dict.fromkeys(store_many(20, then), TOO_FAST)
    run_pass(then)
    assert len(carrier.texts) == 2, "one goes first"
    carrier.answers = {}
    run_pass(then + 2 * SECOND - MILLISECOND)
    assert len(carrier.texts) == 2, "the next pause is twice as long"
    assert run_pass(then + 2 * SECOND)["sent"] == 20


# Take-overs


class DyingAsking(ThreadPoolExecutor):
    """A pool of a scheduler that dies as soon as it asks the carrier about a text."""

    def submit(self, action, *arguments):
        raise SystemExit


def test_a_carrier_is_asked_since_the_first_death_also_after_a_second(run_pass, askable):
    """Its copy of the first would not be found otherwise, and it would get another."""
    message = store()
    for minutes, pool in enumerate((DyingPool, DyingAsking, DyingAsking)):
        run_pass.runtime = Runtime(make_pool=pool)
        with pytest.raises(SystemExit):
            run_pass(TUESDAY_NOON + minutes * 10 * MINUTE, askable)
    askable.taken.append((NEW_YORK, "Hello"))
    run_pass.runtime = THIS_MACHINE
    run_pass(TUESDAY_NOON + HOUR, askable)
    assert [since for *_, since in askable.asked] == [TUESDAY_NOON]
    assert (again(message).status, askable.texts) == (Status.SENT, [])


def test_a_second_death_leaves_the_doubt_with_the_carrier_of_the_first(run_both, eu):
    """It was not in CARRIER_URL meanwhile, so another copy went elsewhere."""
    us = NamedCarrier("us", can_be_asked=True)
    us.answer, us.has[NEW_YORK] = SILENT, ["SM1"]
    message = store()
    run_both(TUESDAY_NOON, carriers=[us])
    run_both.runtime = Runtime(make_pool=DyingPool)
    with pytest.raises(SystemExit):
        run_both(TUESDAY_NOON + 10 * MINUTE, carriers=[eu])
    run_both.runtime = THIS_MACHINE
    run_both(TUESDAY_NOON + 20 * MINUTE, carriers=[eu, us])
    assert us.asked == [NEW_YORK]
    assert (again(message).status, again(message).carrier) == (Status.SENT, "us")
    assert eu.texts == []


def test_what_is_taken_over_is_of_the_carrier_of_the_dead_sender(run_both, us, eu):
    """The first refused it for now; it is too old for another try."""
    us.answer = CarrierError("busy")
    store(first_send_at=TUESDAY_NOON - 71 * HOUR)
    run_both(TUESDAY_NOON)
    assert Message.get().carrier == "us"
    run_both.runtime = Runtime(make_pool=DyingPool)
    with pytest.raises(SystemExit):
        run_both(TUESDAY_NOON + 10 * MINUTE)
    run_both.runtime = THIS_MACHINE
    run_both(TUESDAY_NOON + 2 * HOUR)
    message = Message.get()
    assert (message.status, message.carrier) == (Status.EXPIRED, "eu")
    assert "may have taken it" in message.last_error
    assert len(us.texts) == 1
