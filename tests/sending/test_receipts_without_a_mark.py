"""Over SMPP a receipt may come as an ordinary text, which anybody with a phone can write.

It counts for messages to the number that it came from, and is a reply otherwise.
"""

import pytest

from carriers import Receipt
from carriers import Reply as Said
from carriers.ways import Way
from databases import on_both, on_sqlite
from models import Message, Status
from samples import DAY, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from sending import inbound, receipts
from sending.inbound import ReplyRules
from sending.receipts import EarlyReceipt
from sending.replies import Reply
from stored_messages import again, held, store, take_over

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

LATER = TUESDAY_NOON + MINUTE


def hear(number, reference="7a", delivered=False, now=LATER, carrier="smpp"):
    """Record what looks like a receipt and has no mark."""
    text = f"id:{reference} stat:{'DELIVRD' if delivered else 'UNDELIV'} err:099"
    receipt = Receipt(reference, delivered, None if delivered else "SMPP: UNDELIV", number)
    rules = ReplyRules(Way(carrier), "asked", None, None)
    inbound.record([Said(number, text, receipt=receipt)], now, rules)


def hear_marked(reference="7a", delivered=False):
    receipts.record_receipts([Receipt(reference, delivered, "marked")], LATER, Way("smpp"))


def say_yes(message, reference="7a"):
    receipts.sent({message.id: reference}, TUESDAY_NOON, Way("smpp"))
    return again(message).status


def sent(to=NEW_YORK, reference="7a", carrier="smpp", at=TUESDAY_NOON):
    columns = {"carrier_reference": reference, "carrier": carrier, "finished_at": at}
    return store(status=Status.SENT, to=to, **columns)


def doubtful(to=NEW_YORK, **columns):
    doubt = {"in_doubt": 1, "in_doubt_since": TUESDAY_NOON, "in_doubt_with": "smpp"}
    return store(status=Status.SCHEDULED, to=to, attempts=1, **doubt | columns)


def replies():
    return [reply.number for reply in Reply.select()]


@pytest.mark.parametrize("told", ["7a", "7A", "007a", "122"])
def test_of_a_message_to_its_number_it_is_a_receipt(told):
    message = sent()
    hear(NEW_YORK, told)
    assert again(message).status == Status.UNDELIVERED
    hear(NEW_YORK, told, delivered=True)
    hear(NEW_YORK, told)
    assert again(message).status == Status.DELIVERED
    assert (replies(), EarlyReceipt.select().count()) == ([], 0)


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("make", [sent, doubtful, lambda: held(Status.SENDING)])
def test_of_a_message_to_another_number_it_is_a_reply(make, delivered):
    message = make()
    before = again(message).status
    hear(LONDON, delivered=delivered)
    assert replies() == [LONDON]
    assert again(message).status == before
    if make is not sent:
        assert say_yes(message) == Status.SENT


@pytest.mark.parametrize("delivered", [True, False])
def test_it_waits_for_the_yes_to_a_message_to_its_number(delivered):
    message = held(Status.SENDING)
    hear(NEW_YORK, delivered=delivered)
    assert replies() == []
    assert say_yes(message) == (Status.DELIVERED if delivered else Status.UNDELIVERED)
    assert not EarlyReceipt.select().exists()


@pytest.mark.parametrize("forged_first", [True, False])
@pytest.mark.parametrize("forged", [True, False])
@pytest.mark.parametrize("genuine", ["marked", "without a mark"])
def test_while_it_waits_it_is_of_no_message_to_another_number(forged_first, forged, genuine):
    """Its number has a text under way, too, and guesses which reference comes next."""
    message, own = held(Status.SENDING), held(Status.SENDING, to=LONDON)
    said = [
        lambda: hear(LONDON, delivered=forged),
        lambda: hear_marked() if genuine == "marked" else hear(NEW_YORK),
    ]
    for say in said if forged_first else reversed(said):
        say()
    assert say_yes(message) == Status.UNDELIVERED
    assert say_yes(own, "7b") == Status.SENT


def test_of_two_messages_with_its_reference_the_one_to_its_number_counts():
    ours, newer = sent(), sent(LONDON, at=TUESDAY_NOON + DAY)
    hear(NEW_YORK)
    assert (again(ours).status, again(newer).status) == (Status.UNDELIVERED, Status.SENT)


def test_where_its_number_has_had_the_reference_twice_the_latest_message_counts():
    old, new = sent(), sent(at=TUESDAY_NOON + DAY)
    hear(NEW_YORK)
    assert (again(old).status, again(new).status) == (Status.SENT, Status.UNDELIVERED)


@pytest.mark.parametrize("early", [True, False])
def test_it_settles_the_doubt_about_the_only_message_to_its_number(early):
    message = held(Status.SENDING) if early else doubtful()
    hear(NEW_YORK, delivered=True)
    if early:
        take_over(TUESDAY_NOON)
        assert receipts.look_again(NEW_YORK, [], LATER) == {message.id}
    assert again(message).status == Status.DELIVERED
    assert replies() == []


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("is_marked", [True, False])
def test_of_a_message_that_is_redacted_it_settles_no_doubt(is_marked, delivered):
    """With a mark, its reference is in other digits."""
    sent(to=None)
    message = doubtful()
    if is_marked:
        marked = Receipt("122", delivered, number=NEW_YORK)
        receipts.record_receipts([marked], LATER, Way("smpp"))
    else:
        hear(NEW_YORK, delivered=delivered)
    assert again(message).status == Status.SCHEDULED
    assert say_yes(message, "7b") == Status.SENT


@pytest.mark.parametrize(
    "columns",
    [
        {"status": Status.QUEUED},
        {"status": Status.FAILED, "in_doubt": 0, "finished_at": TUESDAY_NOON},
        {"status": Status.FAILED, "in_doubt": 1, "finished_at": TUESDAY_NOON - 4 * DAY},
        {"status": Status.SENDING, "claimed_for": "eu"},
    ],
)
def test_where_no_yes_to_its_number_is_awaited_it_is_a_reply_at_once(columns):
    store(**columns)
    hear(NEW_YORK)
    assert replies() == [NEW_YORK]
    assert not EarlyReceipt.select().exists()


@on_sqlite
def test_a_number_that_is_redacted_is_left_in_none_that_waits(run, database_url):
    held(Status.SENDING)
    hear(NEW_YORK)
    Message.update(status=Status.FAILED, finished_at=TUESDAY_NOON).execute()
    run("messages", "redact", "--to", NEW_YORK)
    assert not [row for row in EarlyReceipt.select().tuples() if NEW_YORK[1:] in str(row)]
