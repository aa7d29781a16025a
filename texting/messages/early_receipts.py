"""Receipts that came before the acceptance of their text was recorded."""

from datetime import datetime, timedelta

from peewee import EXCLUDED, BooleanField, TextField, UUIDField

from texting.carriers import Receipt
from texting.database import PAST, CarrierTextField, InstantField, Table

RECEIPTS_KEPT = timedelta(days=3)
"""How long an unmatched receipt is kept. Most belong to other users of the account.

A repeat does not prolong it.
"""


class EarlyReceipt(Table):
    """A receipt that matches no message: its acceptance is not recorded yet, or it is not ours."""

    # After the carrier's name and a space
    reference = CarrierTextField(primary_key=True)
    carrier = TextField(null=True)
    delivered = BooleanField()
    reason = CarrierTextField(null=True)
    received_at = InstantField(PAST, index=True)
    phone = TextField(null=True, index=True)  # the recipient, if the carrier names it
    message_id = UUIDField(null=True, index=True)  # if the carrier repeats it

    @classmethod
    def keep(cls, said: Receipt, now: datetime, carrier: str) -> None:
        """Keep a receipt until the acceptance is recorded; `delivered` replaces any earlier one."""
        early = cls(carrier=carrier, received_at=now)
        early.delivered, early.reason = said.delivered, said.reason
        early.phone, early.message_id = said.number, said.message_id
        early.reference = f"{carrier} {said.reference}"
        key, *others = cls._meta.sorted_fields
        row = cls.insert(early.__data__)
        news = ~cls.delivered & EXCLUDED.delivered
        row.on_conflict(conflict_target=[key], preserve=others, where=news).execute()

    @property
    def receipt(self) -> Receipt:
        """The receipt as it came."""
        reference = self.reference.removeprefix(f"{self.carrier} ")
        return Receipt(reference, self.delivered, self.reason, self.phone, self.message_id)
