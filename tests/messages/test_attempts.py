"""One text, try by try: what its carrier says, and then its status, its attempts and the copies."""

import json
import sys
from itertools import product

import pytest

from databases import on_both, on_sqlite
from fake_carrier import ACCOUNT, FOR_GOOD, FOR_NOW, TOO_FAST, die_instead
from own_threads import thread_after
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import FAKE, again, decide_on, die_with_one, held, store, take_over
from texting.access.do_not_call import DoNotCall
from texting.carriers import CarrierError, LateAnswer, OptOut, Receipt
from texting.database import db
from texting.messages import doubts
from texting.messages.attempts import Attempt, Result, was_refused
from texting.messages.model import Message, Status
from texting.replies import inbound, opt_outs
from texting.sending import retention
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT, MOST_DEATHS
from texting.sending.runtime import THIS_MACHINE, Runtime

pytestmark = on_both

SILENCE = CarrierError("no answer within 60 s", in_doubt=True, silent=True)
UNCLEAR = ("unclear", str(SILENCE))
TOOK, DIES = "it takes the text and does not answer", "the scheduler dies with it"
DIED = ("unclear", "its scheduler died before the carrier's answer was recorded")


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


@pytest.fixture
def give(run_pass):
    """Let a pass an hour give a text to a carrier, which says these things, one after another."""

    def hours(carrier, says, since=TUESDAY_NOON, after=1):
        for number, said in enumerate(says):
            run_pass.runtime = Runtime(submit=die_instead) if said == DIES else THIS_MACHINE
            lost = lambda: carrier.take(NEW_YORK, "Hello", SILENCE)  # noqa: E731
            carrier.answers[NEW_YORK] = lost if said == TOOK else said
            try:
                run_pass(since + number * HOUR, carrier, retry_delay=1, **ALWAYS_OPEN)
            except SystemExit:
                assert said == DIES
        run_pass.runtime = THIS_MACHINE
        for number in range(after):
            run_pass(since + (len(says) + number) * HOUR, carrier, retry_delay=1, **ALWAYS_OPEN)

    return hours


@pytest.mark.parametrize(
    ("retries", "says", "status", "attempts", "told"),
    [
        (3, ["SM1"], Status.SENT, 1, [("taken", "SM1")]),
        (3, [None], Status.SENT, 1, [("taken", None)]),
        (3, [FOR_GOOD], Status.FAILED, 1, [("refused", "no such number")]),
        (0, [FOR_NOW], Status.FAILED, 1, [("refused", "out of order")]),
        (1, [FOR_NOW, "SM1"], Status.SENT, 2, [("refused", "out of order"), ("taken", "SM1")]),
        (3, [FOR_NOW] * 4, Status.FAILED, 4, [("refused", "out of order")] * 4),
        (0, [TOO_FAST, "SM1"], Status.SENT, 1, [("refused", "slow down"), ("taken", "SM1")]),
        (0, [ACCOUNT, "SM1"], Status.SENT, 1, [("refused", str(ACCOUNT)), ("taken", "SM1")]),
        (3, [SILENCE, "SM2"], Status.SENT, 2, [UNCLEAR, ("taken", "SM2")]),
        (3, [SILENCE, SILENCE], Status.FAILED, 2, [UNCLEAR] * 2),
        (0, [SILENCE], Status.FAILED, 1, [UNCLEAR]),
        (0, [DIES, "SM2"], Status.SENT, 1, [DIED, ("taken", "SM2")]),
        (3, [DIES, DIES], Status.FAILED, 0, [DIED] * 2),
        (3, [SILENCE, DIES], Status.FAILED, 1, [UNCLEAR, DIED]),
    ],
)
def test_a_carrier_that_cannot_be_asked_gets_two_copies_at_most(
    give, carrier, history, retries, says, status, attempts, told
):
    message = store(max_retries=retries)
    give(carrier, says)
    ended = again(message)
    assert (ended.status, ended.attempts) == (status, attempts)
    assert history(message) == told
    assert len(carrier.texts) == len(says) - says.count(DIES)
    may_have_it = status == Status.FAILED and told[-1][0] == "unclear"
    assert (MAY_HAVE_TAKEN_IT in (ended.last_error or "")) == may_have_it


NOT_TAKEN = ("not taken", str(SILENCE))


@pytest.mark.parametrize(
    ("retries", "says", "status", "attempts", "told"),
    [
        (3, [TOOK], Status.SENT, 1, [("taken", "SM0")]),
        (0, [TOOK], Status.SENT, 1, [("taken", "SM0")]),
        (3, [SILENCE, TOOK], Status.SENT, 2, [NOT_TAKEN, ("taken", "SM0")]),
        (5, [SILENCE] * 4 + [TOOK] * 3, Status.SENT, 5, [NOT_TAKEN] * 4 + [("taken", "SM0")]),
        (0, [SILENCE], Status.FAILED, 1, [NOT_TAKEN]),
        (0, [DIES, TOOK], Status.SENT, 1, [("not taken", DIED[1]), ("taken", "SM0")]),
        *(
            (retries, [DIES] * MOST_DEATHS, Status.FAILED, 0, [("not taken", DIED[1])] * 3)
            for retries in (0, 1, 10)
        ),
    ],
)
def test_a_carrier_that_can_be_asked_never_gets_a_second_copy(
    give, askable, history, retries, says, status, attempts, told
):
    """However often its answers are lost, or schedulers die."""
    message = store(max_retries=retries)
    give(askable, says)
    ended = again(message)
    assert (ended.status, ended.attempts) == (status, attempts)
    assert history(message) == told
    assert len(askable.taken) == (status == Status.SENT)
    assert len(askable.texts) == len(told) - says.count(DIES)
    if DIES in says and status == Status.FAILED:
        assert ended.last_error == f"{MOST_DEATHS} schedulers died with it"


def test_a_text_that_an_operator_retries_may_see_as_many_deaths_again(give, askable, run):
    message = store(max_retries=0)
    give(askable, [DIES] * MOST_DEATHS)
    assert again(message).status == Status.FAILED
    run("messages", "retry", str(message.id))
    give(askable, [DIES] * (MOST_DEATHS - 1), TUESDAY_NOON + DAY, after=0)
    assert again(message).finished_at is None
    give(askable, [None], TUESDAY_NOON + 2 * DAY)
    assert again(message).status == Status.SENT


def test_a_text_that_an_operator_retries_may_be_given_twice_again(give, carrier, run):
    message = store(max_retries=3)
    give(carrier, [SILENCE] * 2)
    assert (again(message).status, again(message).in_doubt) == (Status.FAILED, 2)
    run("messages", "retry", str(message.id))
    give(carrier, [SILENCE, "SM4"], TUESDAY_NOON + DAY)
    assert (again(message).status, len(carrier.texts)) == (Status.SENT, 4)


def test_a_no_from_before_a_retry_is_no_repeated_one(database_url):
    """A refusal of the account that is repeated says that the text is at fault."""
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON, claim_number=1)
    told = {"result": Result.REFUSED, "words": "no credit", "ended_at": TUESDAY_NOON}
    Attempt.create(message=message, claim_number=1, carrier="fake", begun_at=TUESDAY_NOON, **told)
    assert was_refused(message, FAKE, "no credit", TUESDAY_NOON + HOUR)
    assert decide_on(message).retry(TUESDAY_NOON + HOUR, 3 * DAY)
    assert not was_refused(again(message), FAKE, "no credit", TUESDAY_NOON + HOUR)


def test_the_death_of_a_scheduler_takes_no_text_from_the_next_one_that_has_it(database_url):
    message = held(Status.SENDING, claim_number=2)
    Attempt.create(message=message, claim_number=1, carrier="fake", begun_at=TUESDAY_NOON)
    assert doubts.take_over(TUESDAY_NOON + HOUR, unable=()) == 0
    assert (again(message).status, again(message).in_doubt) == (Status.SENDING, 1)
    assert [each.result for each in attempts_of(message)] == ["unclear", None]


def test_a_carrier_is_asked_since_the_first_death_also_after_a_second(run_pass, give, askable):
    """Its copy of the first would not be found otherwise, and it would get another."""
    message = store()
    give(askable, [DIES], after=0)
    run_pass.runtime = Runtime(submit=thread_after(sys.exit))
    for hours in (1, 2):
        with pytest.raises(SystemExit):
            run_pass(TUESDAY_NOON + hours * HOUR, askable)
    askable.taken.append((NEW_YORK, "Hello"))
    give(askable, [None], TUESDAY_NOON + 3 * HOUR)
    assert [since for *_, since in askable.asked] == [TUESDAY_NOON - DAY], "clocks differ"
    assert (again(message).status, askable.texts) == (Status.SENT, [])


# What is kept back while in doubt

BAD = "+99912345678"  # which libphonenumber holds to be valid no longer
KEPT_BACK = {
    "stop": Status.BLOCKED,
    "cancel": Status.CANCELLED,
    "expire": Status.EXPIRED,
    "number": Status.FAILED,
}
ANSWERS = ("it has it", "it has it not", "it cannot be asked")


@pytest.mark.parametrize(
    ("why", "said"),
    [*product(KEPT_BACK, ANSWERS), ("stop while it is asked", "it has it not")],
)
def test_what_is_kept_back_in_doubt_is_sent_only_if_the_carrier_has_it(
    give, run_pass, carrier, askable, why, said
):
    can_be_asked = said != "it cannot be asked"
    asked = askable if can_be_asked else carrier
    message = store(check_dnc=True, first_send_at=TUESDAY_NOON)
    give(asked, [TOOK if said == "it has it" else SILENCE], after=0)
    if why == "stop":
        stop = OptOut(NEW_YORK, stop=True, source="reply")
        opt_outs.record_opt_out(stop, TUESDAY_NOON + MINUTE, "asked")
    elif why == "stop while it is asked":
        askable.finding = lambda: DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    elif why == "cancel":
        assert decide_on(again(message)).cancel("shell", TUESDAY_NOON + MINUTE)
    elif why == "number":
        Message.update(to=BAD).execute()
        askable.taken = [(BAD, text) for _, text in askable.taken]
    assert again(message).status == Status.SCHEDULED, "the carrier is asked first"
    then = TUESDAY_NOON + (5 * DAY if why == "expire" else 10 * MINUTE)
    for seconds in (0, 10):
        run_pass(then + seconds * SECOND, asked)
    ended = again(message)
    assert ended.status == (
        Status.SENT if said == "it has it" else KEPT_BACK.get(why, Status.BLOCKED)
    )
    assert (MAY_HAVE_TAKEN_IT in (ended.last_error or "")) != can_be_asked
    assert len(asked.texts) == 1


def test_what_expires_in_doubt_between_claim_and_send_says_so(give, run_pass, carrier, at):
    """The process stood still after it had judged the message."""
    message = store(first_send_at=TUESDAY_NOON - 3 * DAY + HOUR, send_at=TUESDAY_NOON)
    give(carrier, [SILENCE], after=0)
    run_pass.runtime = Runtime(submit=thread_after(lambda: at(TUESDAY_NOON + 2 * HOUR)))
    run_pass(TUESDAY_NOON + HOUR / 2)
    assert len(carrier.texts) == 1
    assert again(message).status == Status.EXPIRED
    assert MAY_HAVE_TAKEN_IT in again(message).last_error


def test_the_approval_of_a_text_that_is_withdrawn_in_doubt_is_refused(flask):
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert decide_on(message).cancel("shell", TUESDAY_NOON)
    result = flask("messages", "approve", str(message.id))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"{message.id}: not approved: cancelled, unless the carrier has it already\n"
    )
    assert decide_on(again(message)).undo_cancel("shell", TUESDAY_NOON)
    assert "approved" in flask("messages", "approve", str(message.id)).stdout


def test_a_text_that_is_withdrawn_in_doubt_can_be_cancelled_again(database_url):
    message = store(in_doubt=1)
    for by in ("Ann", "Bert"):
        assert decide_on(message).cancel(by, TUESDAY_NOON) == [message.id]
        assert again(message).cancelled_by == by


def test_what_a_carrier_turns_out_not_to_have_waits_if_it_has_closed_meanwhile(
    run_pass, askable, at
):
    closing = TUESDAY_NOON + 5 * HOUR
    opening = closing + 16 * HOUR
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, attempts=1)
    askable.finding = lambda: at(closing)
    assert run_pass(closing - SECOND, askable)["rescheduled"] == 1
    assert (again(message).send_at, askable.texts) == (opening, [])
    askable.finding = lambda: at(opening)
    assert run_pass(opening, askable)["sent"] == 1


# Words that come late


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("others", [{}, {"number": NEW_YORK, "message_id": None}])
def test_a_late_word_is_that_of_the_first_copy_in_doubt(give, carrier, history, others, copies):
    message = store()
    give(carrier, [SILENCE] * copies, after=0)
    now = TUESDAY_NOON + 2 * HOUR
    said = Receipt("SM7", True, **others) if others else LateAnswer(str(message.id), "SM7")
    inbound.record_reports([said], now, False, "fake")
    assert history(message) == [("taken", "SM7"), UNCLEAR][:copies]
    assert attempts_of(message)[0].receipt == ("delivered" if others else None)
    give(carrier, [], now)
    assert again(message).status == (Status.DELIVERED if others else Status.SENT)
    assert len(carrier.texts) == copies


def test_a_late_no_to_a_text_from_before_a_retry_leaves_the_doubt_of_another(run_pass, carrier):
    """Its scheduler was taken for dead, and so was the next one that had the text."""
    message, later = store(), TUESDAY_NOON + HOUR

    def refuse_late():
        carrier.answers = {}
        take_over(later, [FAKE])
        Message.update(status=Status.EXPIRED, finished_at=later).execute()
        assert decide_on(again(message)).retry(later, 3 * DAY)
        assert die_with_one(later) == 1
        take_over(later, [FAKE])
        Message.update(status=Status.CANCELLED, finished_at=later).execute()
        db.close()  # of this thread
        return FOR_GOOD

    carrier.answers[NEW_YORK] = refuse_late
    run_pass(TUESDAY_NOON)
    assert [each.result for each in attempts_of(message)] == ["refused", "unclear"]
    assert again(message).in_doubt == 1


def test_a_no_beside_the_late_no_of_a_dead_scheduler_brings_its_doubt_not_back(run_pass, carrier):
    message = held(Status.SENDING)
    take_over(TUESDAY_NOON, [FAKE])

    def refuse_both():
        with db.atomic():
            assert Attempt.end(message, TUESDAY_NOON, Result.REFUSED)
            doubts.recount([message.id])
        db.close()  # of this thread
        return FOR_NOW

    carrier.answers[NEW_YORK] = refuse_both
    run_pass(TUESDAY_NOON + MINUTE)
    assert [each.result for each in attempts_of(message)] == ["refused"] * 2
    ended = again(message)
    assert (ended.status, ended.in_doubt, ended.lane) == (Status.SCHEDULED, 0, "US")


def test_a_no_that_comes_after_the_take_over_is_noted_with_its_copy(database_url):
    message = held(Status.SENDING, claim_number=1)
    take_over(TUESDAY_NOON + HOUR)
    Attempt.end(message, TUESDAY_NOON + 2 * HOUR, "refused", words="no")
    (attempt,) = attempts_of(message)
    assert (attempt.result, attempt.words) == ("refused", "no")
    Attempt.end(message, TUESDAY_NOON + 3 * HOUR, "unclear")  # it is known by now
    assert attempts_of(message)[0].result == "refused"


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_given_stays_though_its_reference_went_to_an_older_copy(
    give, run_on, carrier, history, dies
):
    """A receipt that names only the number, while the second copy is under way."""
    message = store()

    def answer():
        inbound.record_reports([Receipt("7", True, None, NEW_YORK)], TUESDAY_NOON, False, FAKE)
        if dies:
            take_over(TUESDAY_NOON + 2 * HOUR)
        db.close()  # of this thread
        return "7"

    for hour, said in enumerate([SILENCE, answer, None]):
        carrier.answers[NEW_YORK] = said
        run_on(TUESDAY_NOON + hour * HOUR, retry_delay=1)
    assert history(message) == [("taken", "7")] * 2
    assert (again(message).status, len(carrier.texts)) == (Status.DELIVERED, 2)
    assert again(message).lane == "US"


def test_an_undelivered_of_one_of_two_copies_is_that_of_the_one_in_doubt(run_on, carrier, history):
    """It names only the number, and which copy it is about is known with the other's reference."""
    message, later = store(), TUESDAY_NOON + HOUR

    def answer():
        inbound.record_reports([Receipt("7", False, "off", NEW_YORK)], later, False, FAKE)
        db.close()  # of this thread
        return "8"

    for instant, said in ((TUESDAY_NOON, SILENCE), (later, answer)):
        carrier.answers[NEW_YORK] = said
        run_on(instant, retry_delay=1)
    assert history(message) == [("taken", "7"), ("taken", "8")]
    assert again(message).status == Status.SENT


def test_a_late_undelivered_of_an_earlier_copy_changes_nothing(give, carrier, history):
    """A later copy was taken, and may yet arrive."""
    message = store()
    give(carrier, [SILENCE, "SM2"], after=0)
    late = LateAnswer(str(message.id), "SM1")
    for said in (late, Receipt("SM1", False, "off"), Receipt("SM1", False, "off")):
        inbound.record_reports([said], TUESDAY_NOON + 2 * HOUR, False, FAKE)
    assert history(message) == [("taken", "SM1"), ("taken", "SM2")]
    assert (again(message).status, again(message).last_error) == (Status.SENT, None)
    inbound.record_reports([Receipt("SM2", False, "off")], TUESDAY_NOON + DAY, False, FAKE)
    assert again(message).status == Status.UNDELIVERED


def test_a_late_yes_of_an_earlier_copy_leaves_the_undelivered_of_a_later_one(give, carrier):
    message = store()
    give(carrier, [SILENCE, "SM2"], after=0)
    for said in (Receipt("SM2", False, "off"), LateAnswer(str(message.id), "SM1")):
        inbound.record_reports([said], TUESDAY_NOON + 2 * HOUR, False, FAKE)
    assert [each.reference for each in attempts_of(message)] == ["SM1", "SM2"]
    ended = again(message)
    assert (ended.status, ended.last_error, ended.carrier_reference) == (
        "undelivered",
        "off",
        "SM2",
    )


# What is no try


def test_what_is_given_to_nobody_was_never_tried(run_pass, run):
    run("dnc", "add", NEW_YORK)
    message = store(check_dnc=True)
    run_pass(TUESDAY_NOON)
    assert attempts_of(message) == []


def test_a_text_that_waits_for_the_rate_was_not_tried(run_pass, carrier, history):
    messages = [store(parts=2) for _ in range(9)]
    run_pass(TUESDAY_NOON, send_rate=10)
    assert sorted(map(len, map(history, messages))) == [0] * 6 + [1] * 3
    assert len(carrier.texts) == 3


@on_sqlite
def test_attempts_outlast_a_retry_and_go_with_their_message(give, carrier, history, run):
    message = store()
    give(carrier, [FOR_GOOD])
    run("messages", "retry", str(message.id))
    give(carrier, ["SM1"], TUESDAY_NOON + MINUTE)
    assert history(message) == [("refused", "no such number"), ("taken", "SM1")]
    retention.purge(TUESDAY_NOON + DAY, TUESDAY_NOON + DAY)
    assert not Attempt.select().exists()
