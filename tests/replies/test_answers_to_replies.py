"""The texts that answer a STOP or HELP: one try, soon or not at all, beside list and hours.

They go through the carrier that the reply came from, and no other.
"""

import pytest

from databases import on_both
from fake_carrier import FOR_GOOD, FOR_NOW, TOO_FAST, die_instead
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import decide_on, held, store, store_many
from texting.access.do_not_call import OptedOut
from texting.carriers import CarrierError, Fault, IncomingText
from texting.carriers.configs import CarrierConfig
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply
from texting.sending.carrier_state import CarrierState
from texting.sending.runtime import Runtime

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

NIGHT = TUESDAY_NOON + 14 * HOUR  # two in the morning in New York
RULES = ReplyRules("fake", "always", "You get no more texts.", "Ask us.")
ANSWERING = {"stop_reply": RULES.stop_reply, "help_reply": RULES.help_reply}
ANSWERING["check_dnc"] = "always"
UNREACHED = CarrierError("unreached", unreached=True)
REFUSED = CarrierError("wrong password", Fault.ACCOUNT)
IN_DOUBT = CarrierError("no answer", in_doubt=True, silent=True)


def hear(text="STOP", now=NIGHT, **fields):
    held(Status.SENT, finished_at=now - HOUR, created_at=now - HOUR)
    inbound.record([IncomingText(NEW_YORK, text, **fields)], now, RULES)
    return the_answer()


def the_answer():
    return Message.get(Message.auto_reply_to.is_null(False))


def test_it_is_sent_in_the_night_to_a_number_on_the_list(run_pass, carrier):
    hear()
    assert OptedOut.lists(NEW_YORK)
    quiet = {"quiet_hours": (21 * 60, 8 * 60)}
    run_pass(NIGHT + SECOND, **ANSWERING, **quiet)
    assert carrier.texts == [(NEW_YORK, "You get no more texts.")]
    assert the_answer().status == Status.SENT


def test_a_second_stop_does_not_keep_it_back(run_pass, carrier):
    hear()
    inbound.record([IncomingText(NEW_YORK, "STOP")], NIGHT, RULES)
    run_pass(NIGHT + SECOND, **ANSWERING)
    assert len(carrier.texts) == 1


def test_one_that_a_person_cancels_is_sent_after_an_undo_to_a_number_on_the_list(run_pass, carrier):
    answer = hear()
    decide_on(answer).cancel("ann", NIGHT)
    decide_on(answer).undo_cancel("ann", NIGHT + SECOND)
    run_pass(NIGHT + 2 * SECOND, **ANSWERING)
    assert the_answer().status == Status.SENT
    assert len(carrier.texts) == 1


@pytest.mark.parametrize(("seconds", "status"), [(119, Status.SENT), (120, Status.EXPIRED)])
def test_it_is_sent_within_two_minutes_of_the_reply_or_not_at_all(
    run_pass, carrier, seconds, status
):
    hear(at=NIGHT - 20 * SECOND)
    run_pass(NIGHT + (seconds - 20) * SECOND, **ANSWERING)
    assert the_answer().status == status
    assert len(carrier.texts) == (status == Status.SENT)


@pytest.mark.slow
@pytest.mark.parametrize("error", [FOR_NOW, FOR_GOOD, TOO_FAST, UNREACHED, REFUSED, IN_DOUBT])
def test_it_has_one_try_whatever_comes_of_it(run_pass, carrier, error):
    hear()
    carrier.answers[NEW_YORK] = error
    for n in range(10):
        run_pass(NIGHT + n * 10 * SECOND, **ANSWERING)
    assert len(carrier.texts) == 1
    assert (the_answer().status, the_answer().attempts) == (Status.FAILED, 1)
    assert not decide_on(the_answer()).retry(NIGHT + HOUR, 3 * DAY)


def test_a_text_whose_sender_died_is_not_sent_again(run_pass, carrier):
    hear()
    run_pass.runtime, living = Runtime(submit=die_instead), run_pass.runtime
    with pytest.raises(SystemExit):
        run_pass(NIGHT, **ANSWERING)
    run_pass.runtime = living
    Heartbeat.update(beat_at=NIGHT - DAY).execute()
    run_pass(NIGHT + SECOND, **ANSWERING)
    assert not carrier.texts
    assert the_answer().status == Status.FAILED
    assert "may have taken it" in the_answer().last_error


@pytest.mark.slow
@pytest.mark.parametrize("has_it", [True, False])
def test_a_carrier_that_can_be_asked_settles_the_doubt_and_gets_no_second_copy(
    run_pass, askable, has_it
):
    hear()
    askable.taken = [(NEW_YORK, RULES.stop_reply)] if has_it else []
    askable.answers[NEW_YORK] = IN_DOUBT
    for n in range(20):
        run_pass(NIGHT + n * 60 * SECOND, askable, **ANSWERING)
    assert len(askable.texts) == 1
    assert the_answer().status == (Status.SENT if has_it else Status.FAILED)


def test_what_joins_while_a_long_pass_sends_goes_next(carrier, run_pass):
    numbers = store_many(30, check_dnc=False)
    held(Status.SENT, finished_at=TUESDAY_NOON, to="+12125559999")

    def hear_now():
        inbound.record([IncomingText("+12125559999", "STOP")], TUESDAY_NOON, RULES)
        return "id"

    carrier.answers[numbers[3]] = hear_now
    run_pass(TUESDAY_NOON + SECOND, send_concurrency=1, **ANSWERING)
    assert "+12125559999" in carrier.numbers[4:8]


# Through the carrier that the reply came from


@pytest.fixture
def replied(database_url, at):
    """A STOP of a recipient that came by a carrier, to whom two carriers have sent a text each."""

    def reply(carrier):
        at(TUESDAY_NOON)
        for number, name in enumerate(("us", "eu"), 1):
            finished_at = TUESDAY_NOON - number * MINUTE
            store(status=Status.SENT, carrier=name, finished_at=finished_at)
        said = IncomingText(NEW_YORK, "STOP")
        inbound.record([said], TUESDAY_NOON, ReplyRules(carrier, "asked", "You are off.", None))

    return reply


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["us", "eu"])
def test_it_goes_through_the_carrier_of_the_reply(replied, run_both, us, eu, carrier):
    replied(carrier)
    assert OptedOut.lists(NEW_YORK)
    belongs = Message.get_by_id(Reply.get().message_id)
    assert belongs.carrier == carrier, "not to the other carrier's text, the latest or not"
    assert run_both(TUESDAY_NOON + SECOND, stop_reply="You are off.")["sent"] == 1
    assert [len(each.texts) for each in (us, eu)] == [carrier == "us", carrier == "eu"]


@pytest.mark.slow
def test_no_other_takes_the_place_of_that_carrier(replied, run_both, us, eu):
    replied("us")
    us.answer = UNREACHED
    for seconds in (1, 20, 60, 200):
        run_both(TUESDAY_NOON + seconds * SECOND, stop_reply="You are off.")
    assert CarrierState.get_by_id("us").is_down
    assert eu.texts == []


GONE = {"configs": [CarrierConfig("eu", countries={"US"})], "help_reply": "Ask us."}


def ask_for_help(carrier, at, now):
    at(now)
    inbound.record(
        [IncomingText(NEW_YORK, "HELP")], now, ReplyRules(carrier, "asked", None, "Ask us.")
    )


def the_answers():
    answers = Message.select().where(Message.auto_reply_to == "HELP").order_by(Message.id)
    return [message.status for message in answers]


@pytest.mark.parametrize(("seconds", "status"), [(119, Status.QUEUED), (120, Status.EXPIRED)])
def test_if_its_carrier_is_gone_it_expires_as_any_does(replied, run_both, at, eu, seconds, status):
    replied("us")
    ask_for_help("us", at, TUESDAY_NOON)
    run_both(TUESDAY_NOON + seconds * SECOND, carriers=[eu], **GONE)
    assert the_answers() == [status]
