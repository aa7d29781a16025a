"""What a text went through is kept: when it was given to a carrier, and what came of it."""

import json

import pytest

from carriers import CarrierError, LateAnswer, Receipt
from carriers.ways import Way
from databases import on_sqlite
from fake_carrier import FOR_GOOD, FOR_NOW, DyingPool
from models import Message, Status
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from sending import receipts
from sending.attempts import Attempt
from sending.runtime import Runtime
from stored_messages import again, held, store, take_over

SILENCE = CarrierError("no answer within 60 s", in_doubt=True, silent=True)


def attempts_of(message):
    return Attempt.of_messages([message.id])[message.id]


@pytest.fixture
def history(run):
    """What `flask messages show` prints of it: results with the carrier's words or reference."""

    def read(message):
        told = json.loads(run("messages", "show", str(message.id)))["history"]
        assert all(each["at"] and each["carrier"] == "fake" for each in told)
        return [(each["result"], each["words"] or each["reference"]) for each in told]

    return read


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["SM1"], [("taken", "SM1")]),
        ([None], [("taken", None)]),
        ([FOR_GOOD], [("refused", "no such number")]),
        ([FOR_NOW, "SM1"], [("refused", "out of order"), ("taken", "SM1")]),
        ([FOR_NOW] * 4, [("refused", "out of order")] * 4),
        ([SILENCE, "SM2"], [("unclear", str(SILENCE)), ("taken", "SM2")]),
        ([SILENCE, SILENCE], [("unclear", str(SILENCE))] * 2),
    ],
)
def test_each_try_is_told_with_what_came_of_it(run_pass, carrier, history, answers, told):
    message, left = store(), iter(answers)
    carrier.answers[NEW_YORK] = lambda: next(left)
    for hours in range(4):
        run_pass(TUESDAY_NOON + hours * HOUR)
    assert history(message) == told
    assert again(message).finished_at


@pytest.mark.parametrize(
    ("is_there", "told"),
    [
        (True, [("taken", "SM0")]),
        (False, [("not taken", str(SILENCE)), ("taken", "SM0")]),
    ],
)
def test_a_question_is_no_try_and_settles_the_one_in_doubt(
    run_pass, askable, history, is_there, told
):
    message = store()
    lose = lambda: askable.take(NEW_YORK, "Hello", SILENCE) if is_there else SILENCE  # noqa: E731
    askable.answers[NEW_YORK] = lose
    run_pass(TUESDAY_NOON, askable)
    assert history(message) == [("unclear", str(SILENCE))]
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    run_pass(TUESDAY_NOON + HOUR, askable)
    assert history(message) == told
    assert again(message).status == Status.SENT


def test_a_scheduler_that_dies_leaves_it_unclear(run_pass, carrier, history):
    message = store()
    living, run_pass.runtime = run_pass.runtime, Runtime(make_pool=DyingPool)
    with pytest.raises(SystemExit):
        run_pass(TUESDAY_NOON)
    assert history(message) == [(None, None)]
    run_pass.runtime = living
    run_pass(TUESDAY_NOON + HOUR)
    died = "its scheduler died before the carrier's answer was recorded"
    assert history(message) == [("unclear", died), ("taken", None)]


@pytest.mark.parametrize("others", [{}, {"number": NEW_YORK, "message_id": None}])
def test_a_late_word_is_that_of_the_first_copy_in_doubt(run_pass, carrier, history, others):
    message = store()
    carrier.answers[NEW_YORK] = SILENCE
    run_pass(TUESDAY_NOON)
    now = TUESDAY_NOON + 10 * SECOND
    said = Receipt("SM7", True, **others) if others else LateAnswer(str(message.id), "SM7")
    receipts.record([said], now, False, Way("fake"))
    assert history(message) == [("taken", "SM7")]
    (attempt,) = attempts_of(message)
    assert attempt.receipt == ("delivered" if others else None)


def test_of_two_copies_in_doubt_a_late_yes_is_that_of_the_first(run_pass, carrier, history):
    message = store()
    carrier.answers[NEW_YORK] = SILENCE
    for hours in (0, 1):
        run_pass(TUESDAY_NOON + hours * HOUR)
    late = LateAnswer(str(message.id), "SM7")
    receipts.record([late], TUESDAY_NOON + 2 * HOUR, False, Way("fake"))
    assert history(message) == [("taken", "SM7"), ("unclear", str(SILENCE))]


@pytest.mark.parametrize(
    ("words", "receipt"),
    [([True], "delivered"), ([False], "undelivered"), ([False, True], "delivered"),
     ([True, False], "delivered")],
)  # fmt: skip
@pytest.mark.parametrize("early", [True, False])
def test_a_receipt_is_kept_with_its_copy(run_pass, carrier, words, receipt, early):
    message = store()
    carrier.answers[NEW_YORK] = "SM1"
    if not early:
        run_pass(TUESDAY_NOON)
    for delivered in words:
        receipts.record([Receipt("SM1", delivered)], TUESDAY_NOON, False, Way("fake"))
    if early:
        run_pass(TUESDAY_NOON)
    (attempt,) = attempts_of(message)
    assert (attempt.result, attempt.receipt) == ("taken", receipt)


@pytest.mark.parametrize(
    "columns", [{"check_dnc": True}, {"approved": False}, {"first_send_at": TUESDAY_NOON - 4 * DAY}]
)
def test_what_is_given_to_nobody_was_never_tried(run_pass, run, columns):
    run("dnc", "add", NEW_YORK)
    message = store(**columns)
    run_pass(TUESDAY_NOON)
    assert attempts_of(message) == []


def test_a_text_that_waits_for_the_rate_was_not_tried(run_pass, carrier, history):
    messages = [store(parts=2) for _ in range(9)]
    run_pass(TUESDAY_NOON, send_rate=10)
    assert sorted(map(len, map(history, messages))) == [0] * 6 + [1] * 3
    assert len(carrier.texts) == 3


def test_a_retry_by_a_person_forgets_none(run_pass, carrier, history, run):
    message = store()
    carrier.answers[NEW_YORK] = FOR_GOOD
    run_pass(TUESDAY_NOON)
    run("messages", "retry", str(message.id))
    carrier.answers[NEW_YORK] = "SM1"
    run_pass(TUESDAY_NOON + MINUTE)
    assert history(message) == [("refused", "no such number"), ("taken", "SM1")]


def test_a_no_that_comes_after_the_take_over_is_noted_with_its_copy(database_url):
    message = held(Status.SENDING, claim_number=1)
    take_over(TUESDAY_NOON + HOUR)
    Attempt.end(message, TUESDAY_NOON + 2 * HOUR, "refused", words="no")
    (attempt,) = attempts_of(message)
    assert (attempt.result, attempt.words) == ("refused", "no")
    Attempt.end(message, TUESDAY_NOON + 3 * HOUR, "unclear")  # it is known by now
    assert attempts_of(message)[0].result == "refused"


@on_sqlite
def test_attempts_go_with_their_message(run_pass, run):
    message = store()
    run_pass(TUESDAY_NOON)
    assert attempts_of(message)
    Message.purge(TUESDAY_NOON + DAY, TUESDAY_NOON + DAY)
    assert not Attempt.select().exists()
