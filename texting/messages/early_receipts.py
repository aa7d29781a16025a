"""Receipts that came before the acceptance of their text was recorded."""

from datetime import datetime, timedelta

from peewee import EXCLUDED, SQL, BooleanField, TextField, UUIDField

from texting.carriers import Receipt, Shown
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
    is_final = BooleanField(default=True, constraints=[SQL("DEFAULT true")])
    delivered = BooleanField()
    reason = CarrierTextField(null=True)
    received_at = InstantField(PAST, index=True)
    phone = TextField(null=True, index=True)  # the recipient, if the carrier names it
    message_id = UUIDField(null=True, index=True)  # if the carrier repeats it

    @classmethod
    def keep(cls, said: Receipt | Shown, now: datetime, carrier: str) -> None:
        """Keep a receipt until the acceptance is recorded.

        `delivered` replaces any earlier one, and a final one those that are not.
        """
        early = cls(carrier=carrier, received_at=now, message_id=said.message_id)
        early.is_final, early.delivered = isinstance(said, Receipt), False
        if early.is_final:
            early.delivered, early.reason, early.phone = said.delivered, said.reason, said.number
        early.reference = f"{carrier} {said.reference}"
        key, *others = cls._meta.sorted_fields
        row = cls.insert(early.__data__)
        news = (~cls.delivered & EXCLUDED.delivered) | (~cls.is_final & EXCLUDED.is_final)
        row.on_conflict(conflict_target=[key], preserve=others, where=news).execute()

    @property
    def receipt(self) -> Receipt | Shown:
        """The receipt as it came."""
        reference = self.reference.removeprefix(f"{self.carrier} ")
        if not self.is_final:
            return Shown(reference)
        return Receipt(reference, self.delivered, self.reason, self.phone, self.message_id)
