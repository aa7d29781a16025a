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
from sending.replies import Reply as Kept
from several_carriers import UNREACHED
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
