"""Attempts: each time that a text was given to a carrier, and the result.

An attempt is written in the transaction that claims its message, and ended in the one that records
the answer. Until then it is under way. If the answer is lost, its result is unclear, and its
message in doubt. Both kinds are open. Messages are locked before their attempts.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from peewee import (
    SQL,
    Case,
    CompositeKey,
    Expression,
    ForeignKeyField,
    IntegerField,
    ModelSelect,
    TextField,
    Value,
    fn,
)

from texting.carriers import LISTED_WITHIN
from texting.database import (
    MILLISECOND,
    PAST,
    CarrierTextField,
    InstantField,
    JSONField,
    Table,
)
from texting.database.clock import SKEW
from texting.database.statements import array, run
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status, first_id

DIED = "its scheduler died before the carrier's answer was recorded"


# An index below is used only if a query repeats its condition word for word
IS_UNDER_WAY = SQL("sender IS NOT NULL") & SQL("result IS NULL")
IS_ORPHANED = SQL("sender IS NULL") & SQL("result IS NULL")
IS_UNCLEAR = SQL("result = 'unclear'")
IS_ASKED_ABOUT = IS_UNCLEAR & SQL("ask_at IS NOT NULL")


class Result(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"
    UNCLEAR = "unclear"  # the carrier may have taken it
    NOT_TAKEN = "not taken"  # the carrier said so when it was asked


class Copy(NamedTuple):
    """An attempt that is open, or has a reference, with its message's status."""

    message_id: uuid.UUID
    claim_number: int
    carrier: str
    result: Result | None
    words: str | None
    reference: str | None
    status: Status

    @property
    def is_open(self) -> bool:
        """Whether its result is not known."""
        return self.result in (None, Result.UNCLEAR)


def copies_of(ids: Collection[uuid.UUID]) -> list[Copy]:
    """Return the copies of messages that are open, or have a reference, oldest first."""
    as_id = Attempt.message.python_value
    return [Copy(as_id(id), *more) for id, *more in run("copies", ids=array(ids)).fetchall()]


class Attempt(Table):
    """One time that a text was given to a carrier; deleted with its message."""

    message = ForeignKeyField(Message, on_delete="CASCADE", index=False)
    claim_number = IntegerField()  # which of the message's claims this is
    carrier = TextField(null=True)
    # How many copies any carrier had taken before: see `carriers.key_of`
    copy = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    # The scheduler that is giving the text or, while the result is unclear, asking about it
    sender = ForeignKeyField(
        Heartbeat, null=True, on_delete="SET NULL", column_name="sender", index=False
    )
    begun_at = InstantField(PAST, lambda now: Attempt.message > first_id(now))
    ended_at = InstantField(null=True)
    result = TextField(null=True)  # null while it is under way
    reference = CarrierTextField(null=True)
    words = CarrierTextField(null=True)  # the carrier's, or why the result is unclear
    allowed = JSONField(null=True)  # why it was; null in rows of older versions
    receipt = TextField(null=True)  # delivered or undelivered
    receipt_at = InstantField(null=True)
    # When to ask the carrier about it, while the result is unclear
    ask_at = InstantField(LISTED_WITHIN, lambda now: IS_ASKED_ABOUT, null=True)

    class Meta:
        primary_key = CompositeKey("message", "claim_number")

    @classmethod
    def begin(
        cls,
        messages: Collection[Message],
        carrier: str,
        sender: uuid.UUID,
        now: datetime,
        allowed: Mapping[uuid.UUID, dict] = MappingProxyType({}),
    ) -> Counter[uuid.UUID]:
        """Insert the attempts to give claimed messages to a carrier.

        `allowed` says why each of them may go. Return, by message id, the numbers of their copies.
        """
        copies = cls._count_taken([each.id for each in messages if each.claims_before_retry])
        rows = [
            {
                "id": each.id,
                "claim_number": each.claim_number,
                "copy": copies[each.id],
                "allowed": cls.allowed.db_value(allowed.get(each.id)),
            }
            for each in messages
        ]
        if rows:
            at = cls.begun_at.db_value(now)
            run("begin_attempts", rows=array(rows), carrier=carrier, sender=sender.hex, now=at)
        return copies

    @classmethod
    def take_back(cls, messages: Collection[Message]) -> None:
        """Delete the attempts of messages that were not given to their carrier after all."""
        for each in messages:
            cls.delete().where(cls._is_of(each), cls.result.is_null()).execute()

    @classmethod
    def end(
        cls, message: Message, now: datetime, result: Result, even_unclear: bool = True, **told: Any
    ) -> bool:
        """Record the result of the attempt of a claimed message, unless it has one.

        Return whether it was unclear until now, because its scheduler was taken for dead.
        """
        end = cls.update(result=result, ended_at=now, sender=None, **told)
        own = cls._is_of(message)
        if end.where(own, cls.result.is_null()).execute() or not even_unclear:
            return False
        return end.where(own, IS_UNCLEAR).execute() == 1

    @classmethod
    def record_accepted(
        cls,
        copies: Mapping[uuid.UUID, Copy],
        references: Mapping[uuid.UUID, str | None],
        now: datetime,
    ) -> None:
        """Record that their carrier accepted copies of locked messages; both are by message id."""
        rows = [
            {"id": id, "claim_number": copy.claim_number, "reference": references[id]}
            for id, copy in copies.items()
        ]
        if rows:
            run("end_accepted", rows=array(rows), now=cls.ended_at.db_value(now))

    @classmethod
    def given_to(cls, phone: str, of_carrier: Expression) -> ModelSelect:
        """Select the copies of texts to a phone number that some carrier has, or may have."""
        may_have_it = cls.is_open() | (cls.result == Result.TAKEN)
        copies = cls.select(cls).join(Message)
        return copies.where(Message.to == phone, of_carrier, may_have_it)

    def is_current(self) -> Expression:
        """Match the message if this attempt was made since a person last retried it.

        An earlier attempt matches, too, if its acceptance kept the message from being sent again.
        """
        is_since = Message.claims_before_retry < self.claim_number
        if self.reference:
            is_since |= Message.carrier_reference == self.reference
        return (Message.id == self.message_id) & is_since

    def is_latest_taken(self) -> Expression:
        """Match the message if this attempt is current, and no later one was taken."""
        taken = Attempt.select(fn.MAX(Attempt.claim_number)).where(
            Attempt.message == self.message_id, Attempt.result == Result.TAKEN
        )
        return self.is_current() & (Value(self.claim_number) == taken)

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Date open attempts back beyond now: carriers are asked what they took since those began.

        Nobody knows how far ahead the clock was; assume as far as the attempts are ahead now. A
        carrier is asked once it is sure to list what it has just taken.
        """
        mirrored = Value(2 * cls.begun_at.db_value(now), converter=False) - cls.begun_at
        for is_open in (IS_UNDER_WAY, IS_ASKED_ABOUT):  # each has an index
            change = cls.update(begun_at=mirrored)
            if changed := cls._change_some(change, is_open, cls.begun_at > now + SKEW):
                return changed
        ask = cls.update(ask_at=now + LISTED_WITHIN)
        ahead = cls.ask_at > now + LISTED_WITHIN + SKEW
        for waits in (IS_ASKED_ABOUT, IS_ORPHANED):  # the latter if it could not be taken over
            if changed := cls._change_some(ask, waits, ahead):
                return changed
        return super().date_back(now)

    @classmethod
    def _key_of_batches(cls):
        """Find batches by message: half of the key, but no plan needs more than that."""
        return cls.message

    @classmethod
    def under_way(cls, sender: uuid.UUID) -> ModelSelect:
        """Select the attempts of a sender that are under way."""
        return cls.select().where(cls.sender == sender, cls.result.is_null())

    @classmethod
    def open_of(cls, sender: uuid.UUID, carrier: str) -> list[tuple[uuid.UUID, int, Result | None]]:
        """Return what a sender is giving to a carrier (no result yet) or asking it about."""
        rows = run("open_of_sender", sender=sender.hex, carrier=carrier)
        as_id = cls.sender.python_value
        return [(as_id(id), claim, result) for id, claim, result in rows.fetchall()]

    @classmethod
    def let_go(cls, sender: uuid.UUID, messages: Collection[uuid.UUID]) -> None:
        """Leave a sender's questions about these messages to others."""
        asked = (cls.sender == sender) & cls.result.is_null(False)
        cls.update(sender=None).where(asked, cls.message.in_([*messages])).execute()

    @classmethod
    def mark_unclear(
        cls, messages: Collection[uuid.UUID], now: datetime, unable: Collection[str]
    ) -> list[Self]:
        """Mark the attempts at these messages whose sender is gone as unclear; return them.

        `unable` are carriers that cannot be asked about them.
        """
        recent = cls.begun_at > now - LISTED_WITHIN
        later = cls.begun_at + Value(LISTED_WITHIN // MILLISECOND, converter=False)
        never = cls.carrier.in_([*unable]), None
        at_once = Value(cls.ask_at.db_value(now), converter=False)
        ask_at = Case(None, [never, (recent, later)], at_once)
        lost = cls.update(result=Result.UNCLEAR, words=DIED, ask_at=ask_at)
        lost = lost.where(IS_ORPHANED, cls.message.in_([*messages])).returning(cls)
        return [*lost.execute()]

    def record_receipt(self, receipt: str, at: datetime) -> None:
        """Store a receipt for this attempt; nothing overrides `delivered`."""
        told = {"receipt": receipt, "receipt_at": at}
        is_news = Attempt.receipt.is_null() | (Attempt.receipt != "delivered")
        self.update(told).where(self._is_this(), is_news).execute()

    @classmethod
    def forget(cls, messages: Collection[uuid.UUID], part: Callable[[dict], dict]) -> None:
        """Replace why the copies of messages were allowed by what a function leaves of it."""
        rows = cls.select(cls.message, cls.claim_number, cls.allowed)
        for attempt in rows.where(cls.message.in_([*messages]), cls.allowed.is_null(False)):
            if (left := part(attempt.allowed)) != attempt.allowed:
                cls.update(allowed=left).where(attempt._is_this()).execute()

    @classmethod
    def of_messages(cls, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, list[Self]]:
        """Return the attempts of each message by its id, oldest first."""
        found = defaultdict(list)
        for attempt in cls.select().where(cls.message.in_([*ids])).order_by(cls.claim_number):
            found[attempt.message_id].append(attempt)
        return found

    @classmethod
    def _count_taken(cls, ids):
        """Count the copies of these messages that were taken, whatever the carrier is called.

        Two names may stand for one account, which knows a copy by its id.
        """
        if not ids:
            return Counter()
        taken = cls.message.in_(ids) & (cls.result == Result.TAKEN)
        return Counter(each.message_id for each in cls.select(cls.message).where(taken))

    def _is_this(self):
        return (Attempt.message == self.message_id) & (Attempt.claim_number == self.claim_number)

    @classmethod
    def _is_of(cls, message):
        return (cls.message == message.id) & (cls.claim_number == message.claim_number)

    @classmethod
    def is_open(cls) -> Expression:
        """Match attempts whose result is not known."""
        return cls.result.is_null() | IS_UNCLEAR

    @classmethod
    def in_doubt(cls) -> Expression:
        """Match messages that a carrier may have, also from before a person retried them."""
        return fn.EXISTS(cls.select(SQL("1")).where(cls.message == Message.id, IS_UNCLEAR))


def was_refused(message: Message, carrier: str, words: str, before: datetime) -> bool:
    """Return whether a carrier refused a message in these words before an instant.

    Refusals from before a person retried it do not count.
    """
    refused = (Attempt.message == message.id) & (Attempt.claim_number > message.claims_before_retry)
    refused &= (Attempt.result == Result.REFUSED) & (Attempt.words == words)
    refused &= (Attempt.carrier == carrier) & (Attempt.ended_at < before)
    return Attempt.select().where(refused).exists()


for _name, _columns, _where in (
    ("attempt_reference", [Attempt.reference], SQL("reference IS NOT NULL")),
    ("attempt_ask", [Attempt.carrier, Attempt.ask_at], IS_ASKED_ABOUT),
    ("attempt_sender", [Attempt.sender, Attempt.carrier], SQL("sender IS NOT NULL")),
    ("attempt_orphaned", [Attempt.message], IS_ORPHANED),
):
    Attempt.add_index(Attempt.index(*_columns, where=_where, name=_name))
