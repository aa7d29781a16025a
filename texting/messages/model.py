"""Messages: their table, and every change of their state until a carrier accepts them."""

import secrets
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from peewee import (
    SQL,
    BooleanField,
    Case,
    ForeignKeyField,
    IntegerField,
    ModelSelect,
    ModelUpdate,
    TextField,
    UUIDField,
    Value,
    fn,
)

from texting.access.do_not_call import DoNotCallHistory
from texting.access.keys import ApiKey
from texting.database import (
    EPOCH,
    MILLISECOND,
    PAST,
    CarrierTextField,
    InstantField,
    Refused,
    Table,
    db,
    isoformat,
    locked,
)
from texting.database.clock import SKEW
from texting.database.statements import array, statement
from texting.events.outbox import Event, EventAddress

SEND_DATE_LASTS = timedelta(hours=1)
"""How long a send_date is obeyed; a later message keeps to business hours."""

ANSWER_WITHIN = timedelta(minutes=2)
"""How long after a reply its automatic answer may be sent."""

SET_ASIDE = timedelta(minutes=10)
"""How long a message that breaks a change of many is set aside."""

FURTHEST_AHEAD = timedelta(days=60)
"""How far ahead an opening of business hours can be."""


class Status(StrEnum):
    SCHEDULED = "scheduled"  # waits for its time
    QUEUED = "queued"  # may be sent now
    SENDING = "sending"  # claimed by a sender, until the claim times out
    SENT = "sent"  # the carrier took it
    DELIVERED = "delivered"  # the carrier says that it reached the phone
    UNDELIVERED = "undelivered"  # the carrier took it, and says that it did not
    FAILED = "failed"  # refused for good, or every retry is used up
    BLOCKED = "blocked"  # on the Do Not Call list when it was due
    CANCELLED = "cancelled"  # by an operator, or approval was refused
    EXPIRED = "expired"  # could not be sent in time


WAITING = (Status.SCHEDULED, Status.QUEUED)
TAKEN = (Status.SENT, Status.DELIVERED, Status.UNDELIVERED)
"""The carrier has taken the message: only a receipt changes these."""
WITHDRAWN = "cancelled, unless the carrier has it already"
RETRYABLE = (Status.FAILED, Status.BLOCKED, Status.UNDELIVERED, Status.EXPIRED)
FINISHED = tuple(status for status in Status if status not in (*WAITING, Status.SENDING))


def has_status(*statuses: Status) -> SQL:
    """Return the condition that a message is in one of these statuses."""
    return SQL("status IN ({})".format(", ".join(f"'{status}'" for status in statuses)))


# An index below is used only if a query repeats its condition word for word
IS_WAITING = has_status(*WAITING)
IS_SENDABLE = has_status(Status.QUEUED) & SQL("approved")
AWAITS_APPROVAL = has_status(*WAITING) & SQL("NOT approved")
AWAITS_GROUP = AWAITS_APPROVAL & SQL("available_to_group")
IS_RETRYING = has_status(*WAITING) & SQL("due_since IS NOT NULL")
IS_DECIDED = has_status(Status.SCHEDULED) & SQL("send_date IS NULL")
HAS_ENDED = SQL("finished_at IS NOT NULL")


def new_id(now: datetime) -> uuid.UUID:
    """Return a UUID of version 7 (RFC 9562), which sorts by time."""
    tail = secrets.randbits(74)
    return uuid.UUID(
        int=first_id(now).int | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
    )


def first_id(instant: datetime) -> uuid.UUID:
    """Return the smallest id that can be made at or after an instant."""
    return uuid.UUID(int=(max(instant, EPOCH) - EPOCH) // MILLISECOND << 80)


class Message(Table):
    id = UUIDField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    to = TextField(null=True)  # E.164; null once redacted, like the message
    message = TextField(null=True)
    send_date = InstantField(null=True)  # as requested
    first_send_at = InstantField()  # the first decision
    # The current decision; moves with every retry
    send_at = InstantField(FURTHEST_AHEAD, lambda now: IS_DECIDED)
    expires_at = InstantField()  # when it expires; decided together with first_send_at
    # When it should have gone, while attempts fail
    due_since = InstantField(PAST, lambda now: IS_RETRYING, null=True)
    status = TextField()
    manual_mode = BooleanField()
    available_to_group = BooleanField()
    check_dnc = BooleanField()
    approved = BooleanField()
    approved_by = TextField(null=True)  # the name of a key, or "shell"
    approved_at = InstantField(null=True)
    cancelled_by = TextField(null=True)
    note = CarrierTextField(null=True)  # why, in that person's words
    attempts = IntegerField(default=0)
    max_retries = IntegerField()
    claim_number = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])  # times claimed so far
    # claim_number when a person last retried it
    claims_before_retry = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    # Unclear attempts since then, as `doubts.recount` counts them
    in_doubt = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    finished_at = InstantField(PAST, lambda now: has_status(*FINISHED) & HAS_ENDED, null=True)
    last_error = CarrierTextField(null=True)
    last_error_at = InstantField(null=True)
    carrier = TextField(null=True)  # the name of the one that was last given it
    carrier_reference = CarrierTextField(null=True)
    lane = TextField()  # routing facts, see Lane
    heard_of = BooleanField(default=False, constraints=[SQL("DEFAULT false")])  # by any report
    receipt_at = InstantField(null=True)
    event_delivered_at = InstantField(null=True)  # when an event about it was last delivered
    created_at = InstantField(PAST, lambda now: Message.id > first_id(now))
    idempotency_key = TextField(null=True)
    request_digest = TextField(null=True)
    # What redaction leaves of idempotency_key: its HMAC by the key's secret, which is not stored
    idempotency_digest = TextField(null=True)
    response = TextField(null=True)  # the body of the 201, if there is an idempotency key
    parts = IntegerField()
    country = TextField()  # ISO 3166, or 001
    # The keyword (STOP or HELP) to which this is the automatic reply: it ignores list and hours,
    # and has one try
    auto_reply_to = TextField(null=True)

    @classmethod
    def change(cls, update: ModelUpdate) -> list[tuple[Status, str | None]]:
        """Execute an UPDATE of messages; write an event for each message that it ended.

        Both happen in one transaction. Return the status and number of each changed message.
        """
        columns = (cls.to, cls.id, cls.status, cls.attempts, cls.parts, cls.last_error, cls.note)
        receiver = EventAddress.receiving(cls.key)  # no extra statement for keys without one
        return cls._tell(update.returning(*columns, cls.finished_at, cls.receipt_at, receiver))

    @classmethod
    def accept(cls, rows: Collection[dict[str, Any]], carrier: str, now: datetime) -> list[str]:
        """Note that a carrier accepted locked messages, like `change`.

        A row has an `id`, the `reference`, and how many `tries` it counts for. Return the numbers
        of those that were not accepted before, None if redacted.
        """
        at = cls.finished_at.db_value(now)
        sql, values = statement("accept", rows=array(rows), carrier=carrier, now=at)
        return [number for _, number in cls._tell(cls.raw(sql, *values))]

    @classmethod
    def _tell(cls, change):
        """Execute a change that returns what events tell, and write them."""
        with db.transaction():  # unlike atomic, without a savepoint in an outer one
            changed = list(change.execute())
            Event.write([each for each in changed if each.receiver and each.status in FINISHED])
        return [(each.status, each.to) for each in changed]

    # Sending it

    def apply(self, outcome: Any, now: datetime, **more: Any) -> bool:
        """Apply an Outcome to this claimed message; return False if the claim has been lost.

        `more` are values for other columns.
        """
        changes = more | self._changes(outcome, now)
        changes["attempts"] = self.attempts + outcome.counted
        return self._end_claim(**changes)

    def _changes(self, outcome, now):
        changes = {"status": outcome.status}
        if outcome.status in WAITING:
            late = outcome.reason or outcome.status == Status.QUEUED
            changes["due_since"] = (self.due_since or self.ready_at) if late else None
        else:
            changes["finished_at"] = now
        if outcome.reason:
            changes |= {"last_error": outcome.reason, "last_error_at": now}
        if outcome.send_at:
            changes["send_at"] = outcome.send_at
        return changes

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Make queued messages due by now, and date back the rest as in any table.

        A retry waits as long as if the last attempt had failed now, and what waits behind an equal
        text is judged now. What broke, and was never claimed, waits as if it were set aside now.
        None goes before its send_date.
        """
        begins = fn.COALESCE(cls.send_date, 0)
        at_once, later = (
            Value(cls.send_at.db_value(at), converter=False) for at in (now, now + SET_ASIDE)
        )

        def put_off_to(at, **more):
            return cls.update(send_at=Case(None, [(begins > at, begins)], at), **more)

        delayed = cls.send_at - cls.last_error_at + at_once
        retry = put_off_to(delayed, last_error_at=now)
        is_retry = IS_RETRYING & has_status(Status.SCHEDULED)
        is_put_off = has_status(Status.SCHEDULED) & (cls.send_at > begins) & cls.due_since.is_null()
        was_claimed = cls.claim_number > cls.claims_before_retry
        was_moved = cls.send_at > cls.first_send_at
        ahead, far_ahead = cls.send_at > now + SKEW, cls.send_at > now + SET_ASIDE + SKEW
        change = cls._change_some
        return (
            change(cls.update(send_at=now), IS_SENDABLE, ahead)
            or change(retry, is_retry, cls.last_error_at > now + SKEW)
            or change(put_off_to(at_once), is_put_off, was_claimed, ahead)
            or change(put_off_to(later), is_put_off, was_moved, far_ahead)
            or super().date_back(now)
        )

    @classmethod
    def put_back(cls, messages: Collection[Self]) -> None:
        """Give up the claims of messages that could not go yet; they keep their places.

        Claims that another sender has since made are kept.
        """
        for each in messages:
            each._end_claim(status=Status.QUEUED)

    def _end_claim(self, **changes):
        """Change this message if its claim is still the one that was read; return whether so."""
        is_ours = (Message.id == self.id) & (Message.claim_number == self.claim_number)
        is_ours &= has_status(Status.SENDING)
        return bool(self.change(Message.update(changes).where(is_ours)))

    def queue_again(self, lost: Any) -> bool:
        """Queue this message again if it is claimed for a lost Attempt; return whether it is."""
        queue = Message.update(status=Status.QUEUED, carrier=lost.carrier)
        is_claimed = has_status(Status.SENDING) & (Message.claim_number == lost.claim_number)
        return queue.where(Message.id == self.id, is_claimed).execute() == 1

    def apply_waiting(self, outcome: Any, now: datetime, **more: Any) -> bool:
        """Apply an Outcome to this message, which waits in doubt; return whether it waited."""
        changes = more | self._changes(outcome, now)
        waits = (Message.id == self.id) & has_status(*WAITING)
        return bool(self.change(Message.update(changes).where(waits)))

    @classmethod
    def locked(cls, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Self]:
        """Lock messages in the order in which everybody does; return them by id."""
        these = cls.select().where(cls.id.in_([*ids])).order_by(cls.id)
        return {each.id: each for each in db.lock_rows(these)}

    def read_again(self) -> None:
        """Lock this message, and read again its doubts and people's decisions."""
        columns = Message.in_doubt, Message.lane, Message.cancelled_by, Message.expires_at
        this = Message.select(*columns, Message.claims_before_retry).where(Message.id == self.id)
        if found := db.lock_rows(this).first():
            self.__data__.update(found.__data__)

    def record_error(self, error: str, now: datetime) -> None:
        """Store what a carrier said about this message, which goes on waiting."""
        waits = (Message.id == self.id) & has_status(*WAITING)
        Message.update(last_error=error, last_error_at=now).where(waits).execute()

    @classmethod
    def record_notified(cls, ids: Collection[uuid.UUID], now: datetime) -> None:
        """Note that events of these messages were delivered.

        It waits for no lock, to avoid a deadlock on Postgres. A message that is being changed at
        this moment is left out: delivering its next event will note it.
        """
        if ids:
            notified = cls.select(cls.id).where(cls.id.in_(ids))
            cls.update(event_delivered_at=now).where(locked(cls.id, notified)).execute()

    # Questions about one

    @classmethod
    def find(cls, message_id: uuid.UUID) -> Self:
        """Return one message with its key; raise Refused if there is none."""
        message = cls.select(cls, ApiKey).join(ApiKey).where(cls.id == message_id).first()
        if message is None:
            raise Refused("there is no such message")
        return message

    def is_too_late(self, now: datetime) -> bool:
        """Return whether it is too late to send this message."""
        return self.expires_at <= now

    @property
    def ready_at(self) -> datetime:
        """Return the earliest time at which this message could have been sent."""
        return max(self.send_at, self.approved_at or EPOCH)

    @property
    def blocked_because(self) -> str | None:
        """Return why the Do Not Call list blocked this message, if that is known."""
        if self.status != Status.BLOCKED or self.to is None:
            return None
        return DoNotCallHistory.why_at(self.to, self.finished_at)

    @property
    def is_withdrawn(self) -> bool:
        """Return whether it was cancelled while in doubt, and the carrier is yet to be asked."""
        return self.cancelled_by is not None and self.finished_at is None

    def obeys_send_date(self, now: datetime) -> bool:
        """Return whether a send_date lets this message go now, whatever the recipient's hours."""
        # Counted back from now: no instant is later than the year 9999
        return self.send_date is not None and now - SEND_DATE_LASTS < self.send_date

    def state(self) -> str:
        """Return where this message stands, in an operator's words."""
        if self.status == Status.SENDING:
            return "being sent right now"
        if self.finished_at:
            return f"{self.status} at {isoformat(self.finished_at)}"
        if self.is_withdrawn:
            return WITHDRAWN
        return self.status if self.approved else f"{self.status}, awaiting approval"


def accepted_to(number: str, since: datetime, own: int | None) -> ModelSelect:
    """Select the messages to a number that count for its limit, the latest first.

    For a key's own limit (`own` is the key's id) these are its messages alone, for RECIPIENT_LIMIT
    those of all keys that are not counted apart. Messages that a person stopped do not count.
    """
    counts = (Message.id >= first_id(since)) & (Message.created_at >= since)
    counts &= Message.key.not_in(ApiKey.counted_apart()) if own is None else Message.key == own
    counts &= Message.status != Status.CANCELLED
    latest = Message.created_at.desc(), Message.id.desc()
    return Message.select().where(Message.to == number, counts).order_by(*latest)


IS_FORGOTTEN = SQL("idempotency_key IS NULL AND idempotency_digest IS NOT NULL")

for _name, _columns, _where in (
    ("message_due", [Message.send_at, Message.id], has_status(Status.SCHEDULED)),
    ("message_sendable_key", [Message.key, Message.send_at, Message.id], IS_SENDABLE),
    ("message_lane", [Message.lane, Message.key, Message.send_at, Message.id], IS_SENDABLE),
    (
        "message_awaiting",
        [Message.status, Message.send_at, Message.id, Message.expires_at],
        AWAITS_APPROVAL,
    ),
    ("message_awaiting_key", [Message.key, Message.send_at, Message.id], AWAITS_GROUP),
    ("message_expires", [Message.expires_at], IS_WAITING),
    ("message_forgotten", [Message.key, Message.idempotency_digest], IS_FORGOTTEN),
    ("message_retrying", [Message.due_since], IS_RETRYING),
    (
        "message_finished",
        [
            Message.status,
            Message.finished_at,
            Message.carrier,
            Message.receipt_at,
            Message.heard_of,
        ],
        HAS_ENDED,
    ),
    ("message_ended", [Message.status, Message.id], HAS_ENDED),
    ("message_key", [Message.key, Message.id], None),
    ("message_to", [Message.to, Message.id], None),
):
    Message.add_index(Message.index(*_columns, where=_where, name=_name))
Message.add_index(
    Message.index(
        Message.key,
        Message.idempotency_key,
        unique=True,
        where=SQL("idempotency_key IS NOT NULL"),
        name="message_idempotency",
    )
)
