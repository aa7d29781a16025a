"""Receipts of texts whose reference is not known, found by the recipient's number.

Only SMPP needs this: the reference comes with the answer to a text, and if that answer is lost, a
receipt names nothing else that we know. At all other carriers it names the message.
"""

from collections.abc import Collection
from datetime import datetime

from peewee import ModelSelect, fn

from texting.carriers import Receipt
from texting.messages.attempts import Attempt, Result
from texting.messages.early_receipts import RECEIPTS_KEPT, EarlyReceipt
from texting.messages.model import Message

MOST_COPIES = 20
"""How many copies of texts to a number are searched for the one that a receipt is about."""

MOST_KEPT = 100
"""How many kept receipts for some numbers are read when texts to them are recorded."""


def only_doubt(said: Receipt, at: datetime, carrier: str) -> Attempt | None:
    """Return the copy in doubt, if its text is the only recent one to this number at the carrier.

    If the carrier was given that twice, only `delivered` counts: the rest may be about either copy.
    """
    copies = _recent_copies(said.number, at, carrier)
    open = [copy for copy in copies if copy.result != Result.TAKEN]
    unclear = [each for each in open if each.result == Result.UNCLEAR and each.begun_at <= at]
    if len({copy.message_id for copy in copies}) != 1 or len(copies) == MOST_COPIES:
        return None
    counts = said.delivered or len(open) == 1
    return min(unclear, key=lambda copy: copy.claim_number, default=None) if counts else None


def _recent_copies(phone, at, carrier):
    """Return some copies of texts to a number that a carrier recently got, or may have got."""
    recent = Message.finished_at.is_null() | (Message.finished_at > at - RECEIPTS_KEPT)
    given = Attempt.is_open() | (Attempt.ended_at > at - RECEIPTS_KEPT)
    return [
        *Attempt.given_to(phone, Attempt.carrier == carrier).where(recent, given).limit(MOST_COPIES)
    ]


def kept_lately(phones: Collection[str]) -> ModelSelect:
    """Select the latest kept receipts for these numbers; older ones are hardly ours."""
    kept = EarlyReceipt.select().where(EarlyReceipt.phone.in_([*phones]))
    return kept.order_by(EarlyReceipt.received_at.desc()).limit(MOST_KEPT)


def forget_number(phone: str) -> None:
    """Erase a number from its kept receipts, unless a message to it is left."""
    kept = EarlyReceipt.phone == phone
    kept &= ~fn.EXISTS(Message.select().where(Message.to == phone))
    EarlyReceipt.update(phone=None).where(kept).execute()
