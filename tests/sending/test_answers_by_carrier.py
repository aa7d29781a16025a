"""What answers a reply goes through the carrier that the reply came from, and no other."""

import pytest

from access.do_not_call import DoNotCall
from carriers import Reply
from carriers.ways import Way
from models import Message, Status
from samples import MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from sending import inbound
from sending.carrier_state import CarrierState
from sending.inbound import ReplyRules
from sending.outcomes import MAY_HAVE_TAKEN_IT
from sending.replies import Reply as Kept
from several_carriers import SILENT, UNREACHED, NamedCarrier
from stored_messages import store


@pytest.fixture
def replied(database_url, at):
    """A STOP of a recipient that came by a carrier, to whom two carriers have sent a text each."""

    def reply(carrier):
        at(TUESDAY_NOON)
        for number, name in enumerate(("us", "eu"), 1):
            finished_at = TUESDAY_NOON - number * MINUTE
            store(status=Status.SENT, carrier=name, finished_at=finished_at)
        said = Reply(NEW_YORK, "STOP")
        inbound.record([said], TUESDAY_NOON, ReplyRules(Way(carrier), False, "You are off.", None))

    return reply


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["us", "eu"])
def test_it_goes_through_the_carrier_of_the_reply(replied, run_both, us, eu, carrier):
    replied(carrier)
    assert DoNotCall.lists(NEW_YORK)
    belongs = Message.get_by_id(Kept.get().message_id)
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


@pytest.mark.slow
def test_it_goes_through_the_carrier_of_the_reply_that_has_another_name_since(
    replied, run_both, us, eu
):
    replied("us")
    us.name, ways = "new", [Way("eu"), Way("new", was=("us",))]
    assert run_both(TUESDAY_NOON + SECOND, ways, [eu, us], stop_reply="You are off.")["sent"] == 1
    assert (len(us.texts), len(eu.texts)) == (1, 0)


GONE = {"ways": [Way("eu", countries={"US"})], "help_reply": "Ask us."}


def ask_for_help(carrier, at, now):
    at(now)
    inbound.record([Reply(NEW_YORK, "HELP")], now, ReplyRules(Way(carrier), False, None, "Ask us."))


def the_answers():
    answers = Message.select().where(Message.answers == "HELP").order_by(Message.id)
    return [message.status for message in answers]


@pytest.mark.parametrize(("seconds", "status"), [(119, Status.QUEUED), (120, Status.EXPIRED)])
def test_if_its_carrier_is_gone_it_expires_as_any_does(replied, run_both, at, eu, seconds, status):
    replied("us")
    ask_for_help("us", at, TUESDAY_NOON)
    run_both(TUESDAY_NOON + seconds * SECOND, carriers=[eu], **GONE)
    assert the_answers() == [status]


def test_what_expired_so_does_not_keep_the_next_one_from_being_sent(replied, run_both, at, eu):
    replied("us")
    ask_for_help("us", at, TUESDAY_NOON)
    run_both(TUESDAY_NOON + 2 * MINUTE, carriers=[eu], **GONE)
    ask_for_help("eu", at, TUESDAY_NOON + 3 * MINUTE)
    run_both(TUESDAY_NOON + 3 * MINUTE + SECOND, carriers=[eu], **GONE)
    assert eu.texts == [(NEW_YORK, "Ask us.")]
    assert the_answers() == [Status.EXPIRED, Status.SENT]


def asked(name):
    return NamedCarrier(name, can_be_asked=True)


@pytest.mark.parametrize("is_there", [True, False], ids=["is down", "is gone"])
def test_one_in_doubt_whose_carrier_does_not_say_ends_in_time(replied, run_both, at, eu, is_there):
    us = asked("us")
    us.answer = us.health = SILENT
    replied("us")
    ask_for_help("us", at, TUESDAY_NOON)
    two = {"ways": [Way("us"), Way("eu", countries={"US"})], "help_reply": "Ask us."}
    run_both(TUESDAY_NOON, carriers=[us, eu], **two)
    us.answer = us.health = UNREACHED
    for seconds in (60, 90, 119):
        left = {"carriers": [us, eu], **two} if is_there else {"carriers": [eu], **GONE}
        run_both(TUESDAY_NOON + seconds * SECOND, **left)
        assert the_answers()[0] in (Status.SCHEDULED, Status.QUEUED)
    for minutes in (3, 4, 5):
        run_both(TUESDAY_NOON + minutes * MINUTE, **left)
    message = Message.get(Message.answers == "HELP")
    assert message.status == Status.EXPIRED
    assert MAY_HAVE_TAKEN_IT in message.last_error
    assert us.texts.count((NEW_YORK, "Ask us.")) == 1
    assert eu.texts == []
