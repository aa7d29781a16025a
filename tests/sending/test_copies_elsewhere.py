"""A carrier may have a copy of a text that another took later: replies and receipts go by that."""

import pytest

import carriers
from carriers import Receipt
from carriers.ways import Way
from models import Message, Status
from samples import DAY, HOUR, MINUTE, NEIGHBOUR, NEW_YORK, TUESDAY_NOON
from sending import inbound, receipts
from sending.attempts import Attempt
from sending.inbound import ReplyRules
from sending.replies import Reply
from several_carriers import SILENT, UNREACHED
from stored_messages import again, claim, store

US = Way("us")


@pytest.fixture
def in_doubt_at_us(run_both, us):
    """Store a text, of which us may have a copy."""

    def begin(now):
        us.answer = SILENT
        message = store(now)
        run_both(now)
        assert again(message).in_doubt == 1
        return message

    return begin


def go_on_through_eu(run_both, us, now):
    """Send what waits while us is down, for some minutes."""
    us.answer, us.health = UNREACHED, UNREACHED
    run_both(now)
    us.health = None
    run_both(now + 5 * MINUTE)


def test_a_reply_to_the_first_copy_belongs_to_the_text_that_another_carrier_took(
    in_doubt_at_us, run_both, us, eu
):
    message = in_doubt_at_us(TUESDAY_NOON)
    go_on_through_eu(run_both, us, TUESDAY_NOON + HOUR)
    assert (again(message).status, again(message).carrier) == (Status.SENT, "eu")
    said = carriers.Reply(NEW_YORK, "Which shop?")
    inbound.record([said], TUESDAY_NOON + 2 * HOUR, ReplyRules(US, "asked", None, None))
    assert Reply.get().message_id == message.id


def test_a_reply_belongs_to_no_text_that_the_carrier_was_not_given(run_both, us, eu):
    us.answer = UNREACHED
    message = store()
    run_both(TUESDAY_NOON)
    assert again(message).carrier == "eu"
    said = carriers.Reply(NEW_YORK, "Which shop?")
    inbound.record([said], TUESDAY_NOON + HOUR, ReplyRules(US, "asked", None, None))
    assert Reply.get().message_id is None


@pytest.mark.parametrize("through_eu", [True, False], ids=["sent by another", "waits again"])
def test_a_late_receipt_of_a_copy_from_before_a_retry_is_no_other_texts(
    in_doubt_at_us, run_both, us, eu, through_eu
):
    first = in_doubt_at_us(TUESDAY_NOON)
    run_both(TUESDAY_NOON + HOUR)
    assert again(first).status == Status.FAILED
    again(first).retry(TUESDAY_NOON + HOUR, 3 * DAY)
    if through_eu:
        go_on_through_eu(run_both, us, TUESDAY_NOON + 2 * HOUR)
        assert again(first).carrier == "eu"
    else:
        first.update(send_at=TUESDAY_NOON + DAY).execute()
    second = in_doubt_at_us(TUESDAY_NOON + 4 * HOUR)
    late = Receipt("SM1", True, number=NEW_YORK)
    receipts.record([late], TUESDAY_NOON + 5 * HOUR, False, US)
    assert again(second).status == Status.SCHEDULED, "which of the two is not known"


def test_of_several_receipts_at_once_each_is_of_its_own_copy(database_url):
    """Two carriers have used one reference, for two messages."""
    us, gb = Way("us"), Way("gb")
    one = store(to=NEW_YORK, send_at=TUESDAY_NOON - MINUTE)
    two = store(to=NEIGHBOUR)
    for message, carrier, reference in ((one, us, "1"), (two, us, "2"), (two, gb, "1")):
        Message.update(status=Status.QUEUED).where(Message.id == message.id).execute()
        claim(1)
        Attempt.update(carrier=carrier.name).where(Attempt.result.is_null()).execute()
        receipts.sent({message.id: reference}, TUESDAY_NOON, carrier=carrier)
    said = [Receipt("1", False, "off"), Receipt("2", False, "off")]
    receipts.record(said, TUESDAY_NOON, False, us)
    assert (again(one).status, again(two).status) == (Status.UNDELIVERED, Status.SENT)
    told = {(each.carrier, each.reference): each.receipt for each in Attempt.select()}
    assert told == {("us", "1"): "undelivered", ("us", "2"): "undelivered", ("gb", "1"): None}
