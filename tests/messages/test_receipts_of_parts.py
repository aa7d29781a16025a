"""Receipts of a text that its carrier counts as several: none is one that matches no message."""

from functools import partial

import pytest

from databases import on_both, on_postgres
from own_threads import at_once
from samples import DAY, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import FAKE, again, claim, decide_on, held
from texting.carriers import Receipt
from texting.messages import receipts, waiting
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Status

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]


def unmatched():
    """The receipts of the last day that match no message."""
    return EarlyReceipt.select().count()


THREE_PARTS = "x" * 400


def sending(**columns):
    return held(Status.SENDING, message=THREE_PARTS, **columns)


def receipt(part, message, delivered=True):
    why = None if delivered else "barred"
    return Receipt(part, delivered, why, message_id=str(message.id), of_part=True)


def record(*said):
    receipts.record_receipts(said, TUESDAY_NOON, FAKE)


@pytest.mark.parametrize("order", [("P1", "P2", "P3"), ("P3", "P1", "P2")])
def test_receipts_of_all_parts_after_the_yes_match_the_message(order):
    message = sending()
    receipts.record_accepted({message.id: "P3"}, TUESDAY_NOON, FAKE)
    for part in order:
        record(receipt(part, message))
        assert unmatched() == 0
    assert again(message).status == Status.DELIVERED
    assert again(message).carrier_reference == "P3"
    assert unmatched() == 0


def test_receipts_of_all_parts_before_the_yes_match_the_message_once_it_is_recorded():
    message, other = sending(), sending(to=LONDON)
    record(*(receipt(part, message) for part in ("P1", "P2", "P3")), receipt("Q1", other))
    assert unmatched() == 4
    receipts.record_accepted({message.id: "P3"}, TUESDAY_NOON, FAKE)
    assert again(message).status == Status.DELIVERED
    assert {row.receipt.reference for row in EarlyReceipt.select()} == {"Q1"}


def test_the_receipt_of_another_part_is_not_the_messages(database_url):
    message = sending()
    receipts.record_accepted({message.id: "P2"}, TUESDAY_NOON, FAKE)
    record(receipt("P1", message, delivered=False))
    assert again(message).status == Status.SENT
    record(receipt("P2", message))
    assert again(message).status == Status.DELIVERED


def test_the_receipt_of_a_text_that_was_tried_again_waits_for_its_yes():
    of = {"carrier_reference": "P1", "finished_at": TUESDAY_NOON}
    message = held(Status.UNDELIVERED, message=THREE_PARTS, **of)
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    waiting.promote(TUESDAY_NOON)
    claim(1)
    record(receipt("P2", message))  # the yes to which is still under way
    receipts.record_accepted({message.id: "P2"}, TUESDAY_NOON, FAKE)
    assert again(message).status == Status.DELIVERED


@pytest.mark.parametrize("given", ["019cb4b5-0000-7000-8000-000000000000", "an order's number", ""])
def test_what_names_no_message_of_ours_matches_none(given):
    record(Receipt("P1", True, None, NEW_YORK, given))
    assert unmatched() == 1


@on_postgres
def test_a_part_whose_receipt_is_recorded_beside_the_yes_matches_too():
    """Neither transaction sees what the other is about to write."""
    for number in range(20):
        message = sending()
        at_once(
            partial(record, receipt(f"A{number}", message)),
            partial(receipts.record_accepted, {message.id: f"B{number}"}, TUESDAY_NOON, FAKE),
        )
    assert unmatched() == 0
