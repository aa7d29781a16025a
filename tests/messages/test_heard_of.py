"""Texts on which their carrier has reported, if nothing final: they are not unheard of."""

from functools import partial
from itertools import permutations

import pytest

from databases import on_both, on_postgres
from own_threads import at_once
from samples import DAY, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import FAKE, SENDER, again, decide_on, held, store
from texting.carriers import Receipt, Shown
from texting.messages import receipts
from texting.messages.attempts import Attempt
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.reports.arrivals import arrivals

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

LATER = TUESDAY_NOON + 30 * MINUTE
LONG = "x" * 400


def report(*said, carrier=FAKE, now=TUESDAY_NOON):
    inbound.record_reports(said, now, "asked", carrier)


def sent(reference="SM1", carrier=FAKE, **columns):
    usual = {"finished_at": TUESDAY_NOON, "carrier": carrier, "carrier_reference": reference}
    return held(Status.SENT, **usual | columns)


def sending(**columns):
    of = {"claimed_by": SENDER, "claimed_at": TUESDAY_NOON, "carrier": FAKE}
    return store(status=Status.SENDING, **of | columns)


def accept(message, reference="SM1"):
    receipts.record_accepted({message.id: reference}, TUESDAY_NOON, FAKE, {message.id: 1})


def unheard(carrier=FAKE):
    (found,) = arrivals(LATER, [carrier])
    return found.unheard


def of(message, reference="SM1", **more):
    return Shown(reference, str(message.id), **more)


NAMED = {"by its id": of, "by its reference": lambda message: Shown("SM1")}
by_name = pytest.mark.parametrize("say", NAMED.values(), ids=NAMED)


@by_name
def test_a_report_counts_for_its_text_alone_however_often_it_comes(say):
    message = sent()
    sent("SM2")
    for _ in range(2):
        report(say(message))
        assert unheard() == 1
        assert again(message).status == Status.SENT
    assert not EarlyReceipt.select().exists()


@by_name
def test_it_counts_though_it_comes_before_the_yes(say):
    message = sending()
    report(say(message))
    accept(message)
    assert again(message).status == Status.SENT
    assert (unheard(), EarlyReceipt.select().count()) == (0, 0)


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
def test_a_report_on_another_part_counts(is_final, is_early):
    message = sending(message=LONG)
    another = of(message, "P1", of_part=True)
    if is_final:
        another = Receipt("P1", False, "off", message_id=str(message.id), of_part=True)
    steps = [partial(report, another), partial(accept, message, "P3")]
    for step in steps if is_early else steps[::-1]:
        step()
    assert again(message).status == Status.SENT
    assert (unheard(), EarlyReceipt.select().count()) == (0, 0)


def test_a_receipt_that_changes_nothing_counts():
    """It is of an earlier copy, and a later one was taken."""
    message = sent("SM2", claim_number=2)
    Attempt.create(
        message=message,
        claim_number=1,
        carrier=FAKE,
        begun_at=TUESDAY_NOON,
        ended_at=TUESDAY_NOON,
        result="taken",
        reference="SM1",
    )
    report(Receipt("SM1", False, "off"))
    assert again(message).status == Status.SENT
    assert unheard() == 0


@by_name
def test_a_report_of_another_carrier_says_nothing_of_it(say):
    message = sent()
    report(say(message), carrier="other")
    assert unheard() == 1
    sent(carrier="other")
    report(say(message), carrier="other")
    assert unheard() == 1


def test_a_late_report_of_the_first_carrier_says_nothing_of_the_next():
    message = held(
        Status.UNDELIVERED, finished_at=TUESDAY_NOON, carrier="first", carrier_reference="SM1"
    )
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    begun = {"carrier": FAKE, "begun_at": TUESDAY_NOON}
    Attempt.create(message=message, claim_number=2, **begun)
    Message.update(status=Status.SENDING, claim_number=2).execute()
    receipts.record_accepted({message.id: "SM2"}, TUESDAY_NOON, FAKE, {message.id: 2})
    report(of(message), Shown("SM1"), carrier="first")
    assert unheard() == 1


def test_a_text_that_a_person_sends_again_is_another_one():
    message = held(Status.UNDELIVERED, finished_at=TUESDAY_NOON, heard_of=True)
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    assert not again(message).heard_of


@pytest.mark.parametrize("order", [*permutations(["pending", "no", "yes"])], ids="-".join)
@pytest.mark.parametrize("final", [True, False])
def test_whatever_is_not_final_keeps_no_receipt_back(order, final):
    message = sending()
    say = {
        "pending": lambda: report(Shown("SM1")),
        "no": lambda: report(Receipt("SM1", final, None if final else "off", NEW_YORK)),
        "yes": lambda: accept(message),
    }
    for step in order:
        say[step]()
    assert again(message).status == (Status.DELIVERED if final else Status.UNDELIVERED)
    assert not EarlyReceipt.select().exists()


def test_reports_on_others_texts_are_no_unmatched_receipts():
    report(Shown("SM1"), Shown("SM\0"), Shown("x" * 255))
    assert receipts.unmatched(TUESDAY_NOON, LATER) == 0
    receipts.forget_unmatched(TUESDAY_NOON + 4 * DAY)
    assert not EarlyReceipt.select().exists()


def test_a_report_without_an_id_settles_no_doubt():
    of_doubt = {"in_doubt": 1, "in_doubt_since": TUESDAY_NOON, "carrier": FAKE}
    message = store(status=Status.SCHEDULED, to=LONDON, **of_doubt)
    report(Shown("SM1"))
    receipts.look_again(LONDON, LATER)
    assert again(message).status == Status.SCHEDULED


@on_postgres
def test_reports_on_many_texts_and_their_yes_at_once_are_all_heard():
    for number in range(5):
        messages = [sending() for _ in range(10)]
        said = {each.id: f"R{number}-{n}" for n, each in enumerate(messages)}
        reports = [Shown(reference) for reference in said.values()]
        yes = partial(receipts.record_accepted, said, TUESDAY_NOON, FAKE, dict.fromkeys(said, 1))
        named = [of(each, said[each.id]) for each in messages]
        at_once(yes, partial(report, *reports[::-1]), partial(report, *named), yes)
        assert (unheard(), EarlyReceipt.select().count()) == (0, 0)
