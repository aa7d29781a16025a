"""What a text went through: each time that it was given to a carrier, and what came of it.

An attempt is written in the transaction that claims its message, and ended in the one that records
the answer; who changes attempts has changed their messages before, in this transaction.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from peewee import (
    SQL,
    CompositeKey,
    Expression,
    ForeignKeyField,
    IntegerField,
    ModelSelect,
    Select,
    TextField,
    UUIDField,
    Value,
    ValuesList,
    fn,
)

from carriers.money import Money
from carriers.ways import Way
from database import AmountField, CarrierTextField, InstantField, Table, db
from database.clock import is_ahead
from models import LONGEST_WAIT, WAITING, Message, has_status

DIED = "its scheduler died before the carrier's answer was recorded"


REFERENCE_FORM = SQL("ltrim(lower(reference), '0')")
"""What references of one id in the same digits have in common."""


# The indexes below serve these only because their conditions are spelt the same
IS_UNCLEAR = SQL("result = 'unclear'")
IS_ASKED_ABOUT = IS_UNCLEAR & SQL("ask_at IS NOT NULL")


class Result(StrEnum):
    TAKEN = "taken"
    REFUSED = "refused"
    UNCLEAR = "unclear"  # the carrier may have taken it
    NOT_TAKEN = "not taken"  # the carrier said so when it was asked


class Attempt(Table):
    """One time that a text was given to a carrier; it goes with its message."""

    message = ForeignKeyField(Message, on_delete="CASCADE", index=False)
    number = IntegerField()  # of the claim by which it was given
    carrier = TextField(null=True)
    sender = UUIDField(null=True)
    begun_at = InstantField()
    ended_at = InstantField(null=True)
    result = TextField(null=True)  # null while it is under way
    reference = CarrierTextField(null=True)
    words = CarrierTextField(null=True)  # the carrier's, or why it is unclear
    receipt = TextField(null=True)  # delivered or undelivered
    receipt_at = InstantField(null=True)
    ask_at = InstantField(null=True)  # when its carrier is asked whether it has it, while unclear
    price = AmountField(null=True)  # if the carrier told it
    currency = TextField(null=True)  # ISO 4217

    class Meta:
        primary_key = CompositeKey("message", "number")

    @classmethod
    def begin(
        cls, messages: Collection[Message], carrier: str, sender: uuid.UUID, now: datetime
    ) -> None:
        """Note that claimed messages are given to a carrier."""
        fields = (cls.message, cls.number, cls.carrier, cls.sender, cls.begun_at)
        rows = [(each.id, each.claim_number, carrier, sender, now) for each in messages]
        if rows:
            cls.insert_many(rows, fields).execute()

    @classmethod
    def take_back(cls, messages: Collection[Message]) -> None:
        """Forget that messages were to be given to a carrier: they were not."""
        for each in messages:
            cls.delete().where(cls._is_of(each), cls.result.is_null()).execute()

    @classmethod
    def end(cls, message: Message, now: datetime, result: Result, **told: Any) -> bool:
        """Note what came of giving a claimed message to its carrier, unless that is known.

        Return whether it was unclear before: its scheduler was taken for dead.
        """
        end, own = cls.update(result=result, ended_at=now, **told), cls._is_of(message)
        if end.where(own, cls.result.is_null()).execute():
            return False
        return end.where(own, IS_UNCLEAR).execute() == 1

    @classmethod
    def take(
        cls,
        message_id: uuid.UUID,
        reference: str | None,
        number: int | None,
        carrier: Way | None,
        now: datetime,
        price: Money | None = None,
    ) -> Self | None:
        """Note the yes of a carrier to a copy; return that if it was unclear.

        Without its `number` it is the first copy of which nothing else is known.
        """
        open = (cls.message == message_id) & cls.is_open()
        if number is None:
            first = cls.select(cls.number).where(open, *cls.by(carrier)).order_by(cls.number)
            number = first.limit(1).scalar()
        own = open & (cls.number == number)
        told = {"result": Result.TAKEN, "ended_at": now, "reference": reference, "words": None}
        told |= cost(price)
        if carrier:
            told["carrier"] = fn.COALESCE(cls.carrier, carrier.name)
        taken = cls.update(told)
        if taken.where(own, cls.result.is_null()).execute():
            return None
        was_unclear = taken.where(own).returning(cls.number, cls.carrier).execute()
        return next(iter(was_unclear), None)

    @classmethod
    def has_reference(cls, reference: Any, carrier: Way | None) -> Expression:
        """Return the condition that a reference is a carrier's for a copy of a message."""
        same = (cls.message == Message.id) & (cls.reference == reference)
        return fn.EXISTS(cls.select(SQL("1")).where(same, *cls.by(carrier)))

    @classmethod
    def is_of_twin(cls, reference: Any, carrier: Way | None) -> Expression:
        """Return the condition that a reference was found to be that of an equal text in doubt.

        That happened since the message was given to a carrier first.
        """
        own, twin = cls.alias(), Message.alias()
        since = own.select(fn.MIN(own.begun_at)).where(own.message == Message.id)
        alike = (twin.to == Message.to) & (twin.message == Message.message)
        given = cls.select(SQL("1")).join(twin, on=cls.message == twin.id)
        given = given.where(cls.reference == reference, alike, twin.id != Message.id)
        given = given.where(cls.ask_at.is_null(False), cls.ended_at >= since, *cls.by(carrier))
        return fn.EXISTS(given)

    @classmethod
    def counts_now(cls, copies: Collection[tuple[uuid.UUID, int]], latest: bool) -> Expression:
        """Return the condition that one of these copies is a message's since a person retried it.

        They are given by message and number. With `latest`, it is the last one that was taken.
        """
        own = (cls.message == Message.id) & cls._is_one_of(copies)
        own &= cls.number > Message.tries_before
        if latest:
            other = cls.alias()
            last = other.select(fn.MAX(other.number)).where(
                other.message == Message.id, other.result == Result.TAKEN
            )
            own &= cls.number == last
        return fn.EXISTS(cls.select(SQL("1")).where(own))

    @classmethod
    def correct(cls, now: datetime) -> None:
        """Let open attempts of a clock that has been set back since have begun before that.

        How far it was ahead is not known, so they began as long ago as they seem to be ahead.
        """
        mirrored = Value(2 * cls.begun_at.db_value(now), converter=False) - cls.begun_at
        for is_open in (cls.result.is_null(), IS_ASKED_ABOUT):  # an index serves each
            ahead = is_open & is_ahead(cls.begun_at, now)
            cls.update(begun_at=mirrored).where(ahead).execute()

    @classmethod
    def in_hand(cls, sender: uuid.UUID) -> ModelSelect:
        """Select what a sender has given to carriers, and knows no answer to."""
        return cls.select().where(cls.sender == sender, cls.result.is_null())

    @classmethod
    def lose(cls, sender: uuid.UUID, now: datetime) -> None:
        """Note that a sender died: nobody knows when, or what came of what it had in hand."""
        lost = cls.update(result=Result.UNCLEAR, words=DIED, ask_at=now)
        lost.where(cls.sender == sender, cls.result.is_null()).execute()

    @classmethod
    def to_ask(cls, carrier: Way, now: datetime, limit: int) -> list[Self]:
        """Return some attempts about which a carrier is to be asked now, the longest due first.

        They are of messages that wait: who asks about others may find the copy of an equal text
        that is purged.
        """
        due = cls._is_unclear_at(carrier) & cls._is_to_ask(now)
        waiting = cls.select().join(Message).where(due, has_status(*WAITING))
        return [*waiting.order_by(cls.ask_at).limit(limit)]

    @classmethod
    def ask_again_at(
        cls, message_id: uuid.UUID, carrier: Way, at: datetime, now: datetime | None = None
    ) -> bool:
        """Decide when a carrier is asked about a message.

        With `now`, only if it is due: False if another scheduler has done so.
        """
        own = cls._is_unclear_at(carrier) & (cls.message == message_id)
        if now:
            own &= cls._is_to_ask(now)
        return cls.update(ask_at=at).where(own).execute() > 0

    @classmethod
    def unclear_at(cls, carrier: Way, message_id: uuid.UUID) -> list[Self]:
        """Return the copies of a message that a carrier may have, the first one first."""
        own = cls._is_unclear_at(carrier) & (cls.message == message_id)
        return [*cls.select().where(own).order_by(cls.number)]

    @classmethod
    def rule_out(cls, message: Message, carrier: Way, now: datetime) -> int:
        """Note that a carrier, asked, has none of the copies of a message that were unclear.

        Return how many of them were given to it since a person retried the message.
        """
        own = cls._is_unclear_at(carrier) & (cls.message == message.id)
        ruled_out = cls.update(result=Result.NOT_TAKEN, ended_at=now, ask_at=None).where(own)
        numbers = [each.number for each in ruled_out.returning(cls.number).execute()]
        return sum(number > message.tries_before for number in numbers)

    @classmethod
    def deaths(cls, message: Message) -> int:
        """Count the schedulers that died with a message since a person retried it."""
        since = (cls.message == message.id) & (cls.number > message.tries_before)
        return cls.select().where(since, cls.words == DIED).count()

    @classmethod
    def note_receipt(
        cls,
        copies: Collection[tuple[uuid.UUID, int]],
        receipt: str,
        at: datetime,
        price: Decimal | None,
        currency: str | None,
    ) -> None:
        """Note what a carrier reports of copies; `delivered` is the last word.

        The price is that of one part, so it replaces the one in the answer only if there are not
        several.
        """
        own = cls.message.in_([id for id, _ in copies]) & cls._is_one_of(copies)
        own &= cls.receipt.is_null() | (cls.receipt != "delivered")
        if price is not None:
            of_one = Message.select(Message.id).where(Message.id == cls.message, Message.parts == 1)
            cls.update(price=price, currency=currency).where(own, fn.EXISTS(of_one)).execute()
        cls.update(receipt=receipt, receipt_at=at).where(own).execute()

    @classmethod
    def prices(cls, accepted: Expression) -> list[tuple]:
        """Sum what carriers told that messages on a condition cost.

        By the message's key and country, the carrier and the currency.
        """
        columns = Message.key, Message.country, cls.carrier, cls.currency
        total = fn.SUM(cls.price).converter(cls.price.python_value)
        sums = cls.select(*columns, total).join(Message).group_by(*columns)
        return [*sums.where(accepted, cls.price.is_null(False)).tuples()]

    @classmethod
    def of_messages(cls, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, list[Self]]:
        """Return the attempts of messages by their ids, the oldest first."""
        found = defaultdict(list)
        for attempt in cls.select().where(cls.message.in_([*ids])).order_by(cls.number):
            found[attempt.message_id].append(attempt)
        return found

    def as_object(self) -> dict:
        """Return what operators read of it."""
        told = {"at": self.begun_at, "carrier": self.carrier, "ended_at": self.ended_at}
        return told | {"result": self.result, "reference": self.reference, "words": self.words}

    @classmethod
    def _is_one_of(cls, copies):
        pairs = [(Message.id.db_value(id), number) for id, number in copies]
        named = ValuesList(pairs, alias="copies")
        id, number = db.typed(named, "uuid", "integer")
        same = (id == cls.message) & (number == cls.number)
        return fn.EXISTS(Select([named], [SQL("1")]).where(same))

    @classmethod
    def _is_to_ask(cls, now):
        return (cls.ask_at <= now) | is_ahead(cls.ask_at, now, LONGEST_WAIT)

    @classmethod
    def _is_unclear_at(cls, carrier):
        (own,) = cls.by(carrier)
        return own & IS_UNCLEAR

    @classmethod
    def by(cls, carrier: Way | None) -> list[Expression]:
        """Return the condition that a copy is a carrier's, in a list; none if that is any.

        One of which none was noted may be any carrier's.
        """
        return [cls.carrier.in_(carrier.names) | cls.carrier.is_null()] if carrier else []

    @classmethod
    def _is_of(cls, message):
        return (cls.message == message.id) & (cls.number == message.claim_number)

    @classmethod
    def is_open(cls) -> Expression:
        """Return the condition that it is not known what came of a copy."""
        return cls.result.is_null() | IS_UNCLEAR


def cost(price: Money | None) -> dict[str, Any]:
    """Return the columns of an attempt that hold a price; none if there is none."""
    return {"price": price.amount, "currency": price.currency} if price else {}


for _name, _columns, _where in (
    ("attempt_reference", [Attempt.reference], SQL("reference IS NOT NULL")),
    ("attempt_reference_form", [REFERENCE_FORM], SQL("reference IS NOT NULL")),
    ("attempt_ask", [Attempt.carrier, Attempt.ask_at], IS_ASKED_ABOUT),
    ("attempt_sender", [Attempt.sender], SQL("result IS NULL")),
):
    Attempt.add_index(Attempt.index(*_columns, where=_where, name=_name))
