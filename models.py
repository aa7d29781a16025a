"""Messages: their table, and every change of their state up to a carrier's yes."""

import logging
import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
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

from access.audit import Action, Audit
from access.do_not_call import DoNotCall, DoNotCallHistory
from access.keys import ApiKey
from access.limits import DAY, SECOND, KeyTally, KeyUse, Limit, lock_numbers
from access.rules import LAST, KeyRules
from access.usual import KeyDay
from carriers.lanes import FIRST, Lane
from carriers.ways import Way
from database import (
    BATCH,
    EPOCH,
    MILLISECOND,
    PAGE,
    CarrierTextField,
    InstantField,
    Refused,
    Table,
    db,
    is_outage,
    isoformat,
    locked,
    passed_over,
)
from database.clock import is_within
from events.outbox import Event, EventAddress

SEND_DATE_LASTS = timedelta(hours=1)
"""How long a send_date is obeyed; a message that is later keeps to business hours."""

ANSWER_WITHIN = timedelta(minutes=2)
"""How long after a reply the text that answers it may be sent."""

LATEST = "SELECT id FROM message WHERE key_id = {param} ORDER BY id DESC LIMIT 1"
"""Return the id of a key's latest message."""

LONGEST_WAIT = timedelta(days=60)
"""How far ahead a retry or an opening can be, but not a send_date."""

SET_ASIDE = timedelta(minutes=10)
"""How long a message is left alone that breaks what the scheduler does with all that are due."""

UNDO_WITHIN = timedelta(minutes=1)
"""How long people can undo what they decided, if the text still waits."""

UNDO_FOR_CERTAIN = timedelta(seconds=10)
"""How long a text stays at least that is approved at the desk."""

NOTHING = dict.fromkeys(("to", "message", "answer", "request_digest"))
"""What a redacted message has of these; a digest tells who tries all numbers the right one."""

log = logging.getLogger("scheduler")


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
"""The carrier has taken it: nothing but a receipt changes these."""
WITHDRAWN = "cancelled, unless the carrier has it already"
RETRYABLE = (Status.FAILED, Status.BLOCKED, Status.UNDELIVERED, Status.EXPIRED)
FINISHED = tuple(status for status in Status if status not in (*WAITING, Status.SENDING))
ANEW = {
    "status": Status.SCHEDULED,
    "expires_at": None,
    "due_since": None,
    "finished_at": None,
    "attempts": 0,
    "in_doubt": 0,
    "refused_at": None,
    "cancelled_by": None,
    "receipt_at": None,  # the reference stays: it names the first text, and not the next
}
"""What a message has of these that a person sends again."""


def has_status(*statuses: Status) -> SQL:
    """Return the condition that a message is in one of these statuses."""
    return SQL("status IN ({})".format(", ".join(f"'{status}'" for status in statuses)))


# The indexes below serve these only because their conditions are spelt the same
IS_WAITING = has_status(*WAITING)
IS_SENDABLE = has_status(Status.QUEUED) & SQL("approved")
IS_ANSWER = IS_SENDABLE & SQL("answers IS NOT NULL")
AWAITS_APPROVAL = has_status(*WAITING) & SQL("NOT approved")
AWAITS_GROUP = AWAITS_APPROVAL & SQL("available_to_group")
IS_RETRYING = has_status(*WAITING) & SQL("due_since IS NOT NULL")
HAS_ERROR = has_status(*WAITING) & SQL("last_error_at IS NOT NULL")
HAS_ENDED = SQL("finished_at IS NOT NULL")
HAS_REFERENCE = SQL("carrier_reference IS NOT NULL")
IS_KEPT = SQL("approved AND cancelled_by IS NULL AND answers IS NULL")
REFERENCE_FORM = SQL("ltrim(lower(carrier_reference), '0')")
IS_IN_DOUBT = SQL("in_doubt > 0")


def new_id(now: datetime) -> uuid.UUID:
    """Return a UUID of version 7 (RFC 9562), which sorts by time."""
    tail = secrets.randbits(74)
    return uuid.UUID(
        int=first_id(now).int | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
    )


def first_id(instant: datetime) -> uuid.UUID:
    """Return the least id that can be made from an instant on."""
    return uuid.UUID(int=(max(instant, EPOCH) - EPOCH) // MILLISECOND << 80)


class Message(Table):
    id = UUIDField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    to = TextField(null=True)  # E.164; null once redacted, like the message
    message = TextField(null=True)
    send_date = InstantField(null=True)  # asked for
    first_send_at = InstantField(null=True)  # decided first, never null
    send_at = InstantField()  # decided; moves with every retry
    # Too late; decided with first_send_at. Null until the next pass if a version before migration
    # 0035 stored it
    expires_at = InstantField(null=True)
    due_since = InstantField(null=True)  # when it should have gone, while sends of it fail
    status = TextField()
    manual_mode = BooleanField()
    available_to_group = BooleanField()
    check_dnc = BooleanField()
    approved = BooleanField()
    approved_by = TextField(null=True)  # the name of a key, or "shell"
    approved_at = InstantField(null=True)
    held_because = TextField(null=True)  # why it waits for approval though nobody asked for that
    cancelled_by = TextField(null=True)
    attempts = IntegerField(default=0)
    max_retries = IntegerField()
    claim_number = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])  # times claimed, ever
    # Its claims until it was retried by a person last
    tries_before = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    # Attempts since then that are unclear
    in_doubt = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    refused_at = InstantField(null=True)  # by a carrier that said "the account"; the last time
    finished_at = InstantField(null=True)
    last_error = CarrierTextField(null=True)
    last_error_at = InstantField(null=True)
    carrier = TextField(null=True)  # the name of the one that it was given to last
    carrier_reference = CarrierTextField(null=True)
    # What is true of it for carriers; null until the next pass if a version before migration 0037
    # stored it
    lane = TextField(null=True)
    receipt_at = InstantField(null=True)
    told_at = InstantField(null=True)  # when an event of it was delivered last
    created_at = InstantField()
    idempotency_key = TextField(null=True)
    request_digest = TextField(null=True)
    answer = TextField(null=True)  # the body of the 201, if there is an idempotency key
    # Both null if a version before migration 0014 stored it: one part, of no known country
    parts = IntegerField(null=True)
    country = TextField(null=True)  # ISO 3166, or 001
    # STOP or HELP, if it answers such a reply: sent at once and once, whatever list and hours say
    answers = TextField(null=True)
    # Unused since migration 0037; a version before it, which may run beside, reads them
    claimed_by = UUIDField(null=True)
    claimed_at = InstantField(null=True)
    claimed_for = TextField(null=True)
    in_doubt_since = InstantField(null=True)
    in_doubt_with = TextField(null=True)
    take_overs = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])

    # Requests

    @classmethod
    def accepted(cls, key: int, since: int, until: int) -> list[int]:
        """Count the messages of a key that were accepted from one second to another, and parts."""
        first, end = (first_id(EPOCH + second * SECOND) for second in (since, until))
        parts = fn.COALESCE(fn.SUM(PARTS), 0)
        counts = cls.select(fn.COUNT(SQL("*")), parts)
        return [*counts.where(cls.key == key, cls.id >= first, cls.id < end).tuples().get()]

    @classmethod
    def tally_of(cls, key: int, row: KeyUse | None, seconds: Iterable[int]) -> KeyTally:
        """Return what a key, of whose use this is the row, has used up around these seconds."""
        found = db.execute_sql(LATEST.format(param=db.param), (key,)).fetchall()
        latest = cls.id.python_value(found[0][0]) if found else None
        return KeyTally.read(row, latest, seconds, partial(cls.accepted, key))

    @classmethod
    def _count_as_usual(cls, ids, times, approved=True):
        """Count messages on their days once more (1), or less (-1), if they are `approved` now."""
        if not times:
            return
        day = SQL(f"created_at / {DAY // MILLISECOND}")
        columns = (cls.key, cls.country, day)
        sums = cls.select(*columns, fn.SUM(PARTS)).group_by(*columns)
        sums = sums.where(cls.id.in_([*ids]), cls.approved == approved, cls.country.is_null(False))
        for key, country, day, parts in sorted(sums.tuples()):
            KeyDay.add(key, country, day, times * parts)

    @classmethod
    def accepted_to(cls, number: str, since: datetime) -> ModelSelect:
        """Select the messages to a number that count for its limit, the latest first.

        Those that a person kept back count no more, and those of testers never did.
        """
        counts = (cls.to == number) & (cls.id >= first_id(since)) & (cls.created_at >= since)
        counts &= cls.key.not_in(ApiKey.testers()) & (cls.status != Status.CANCELLED)
        return cls.select().where(counts).order_by(cls.created_at.desc(), cls.id.desc())

    @classmethod
    def answered(cls, key: int, idempotency_key: str) -> Self | None:
        """Return the message that this key's request with this idempotency key created."""
        return cls.get_or_none(cls.key == key, cls.idempotency_key == idempotency_key)

    # Every change of the status that may end a message

    @classmethod
    def change(cls, update: ModelUpdate) -> list[tuple[Status, str | None]]:
        """Execute an UPDATE of messages; write an event for each message that it ended.

        Both happen in one transaction. Return status and number of the messages that it changed.
        """
        columns = (cls.to, cls.id, cls.status, cls.attempts, cls.parts, cls.last_error)
        receiver = EventAddress.receiving(cls.key)  # so a key without one costs no more statements
        update = update.returning(*columns, cls.finished_at, cls.receipt_at, receiver)
        with db.transaction():  # unlike atomic, no savepoint within another
            changed = list(update.execute())
            Event.write([each for each in changed if each.receiver and each.status in FINISHED])
        return [(each.status, each.to) for each in changed]

    @classmethod
    def _change_due(
        cls, update: ModelUpdate, due: ModelSelect, still: SQL, now: datetime
    ) -> Iterator[list]:
        """Change all messages that are due, as `change` does; yield what each batch has changed.

        In batches: writers wait for one only. `due` selects the ids; each is changed while it is
        `still` so. Those that break this are set aside.
        """
        changed, batch = True, due.limit(BATCH)
        while changed:
            try:
                changed = cls.change(update.where(locked(cls.id, batch), still))
            except Exception as error:
                if is_outage(error):
                    raise
                ids = [message.id for message in batch]
                changed = cls._change_but_broken(update, ids, still, now)
            yield changed

    @classmethod
    def _change_but_broken(cls, update, ids, still, now):
        """Change these messages; set those that break it aside, and log their ids.

        They are halved until such a message is alone.
        """
        try:
            these = locked(cls.id, cls.select(cls.id).where(cls.id.in_(ids)))
            return cls.change(update.where(these, still))
        except Exception as error:
            if is_outage(error):
                raise
            kind = type(error).__name__  # its words may hold the number
        if len(ids) > 1:
            half = len(ids) // 2
            changed = cls._change_but_broken(update, ids[:half], still, now)
            return changed + cls._change_but_broken(update, ids[half:], still, now)
        log.error("message %s is set aside: %s", *ids, kind)
        with passed_over(log, f"message {ids[0]} stays due"):
            cls.update(send_at=now + SET_ASIDE).where(cls.id.in_(ids), still).execute()
        return []

    # Transitions by the scheduler

    @classmethod
    def correct(cls, now: datetime) -> None:
        """Let what was noted by a clock that has been set back since be of now."""
        cls.count_as_now(cls.created_at, now, cls.id > first_id(now))
        cls.count_as_now(cls.finished_at, now, has_status(*FINISHED), HAS_ENDED)
        decided = cls.send_date.is_null() | cls.due_since.is_null(False)
        scheduled = has_status(Status.SCHEDULED)
        cls.count_as_now(cls.send_at, now, scheduled, decided, longest=LONGEST_WAIT)

    @classmethod
    def promote(
        cls,
        now: datetime,
        *,
        check_dnc: str = "asked",
    ) -> Counter:
        """Queue, expire or block all messages that are due; count them by their new status.

        `check_dnc` is for keys without a rule of their own. A text in doubt is left to the sender,
        which asks the carrier first.
        """
        due = has_status(Status.SCHEDULED) & (cls.send_at <= now)
        blocked = (cls.in_doubt == 0) & cls._is_kept_off(check_dnc)
        expired = (cls.in_doubt == 0) & (cls.expires_at <= now)
        became = Case(None, [(blocked, Status.BLOCKED), (expired, Status.EXPIRED)], Status.QUEUED)
        finished = Case(None, [(blocked | expired, cls.finished_at.db_value(now))], None)
        move = cls.update(status=became, finished_at=finished)
        due = cls.select(cls.id).where(due).order_by(cls.send_at)
        counts = Counter()
        for moved in cls._change_due(move, due, has_status(Status.SCHEDULED), now):
            counts.update(status for status, _ in moved)
        return counts

    @classmethod
    def decide_expiry(cls, setting: timedelta, among: Collection[uuid.UUID] | None = None) -> None:
        """Decide when it is too late to send messages that wait, where that is not decided yet.

        By the rules that their keys have now; `setting` is for keys without one. `among` are the
        ids to choose from, if not all.
        """
        undecided = IS_WAITING & cls.expires_at.is_null()
        if among is not None:
            undecided &= cls.id.in_([*among])
        kinds = list(cls.select(cls.key, cls.answers).where(undecided).distinct())
        own = ApiKey.rules_of({each.key_id for each in kinds})
        for each in kinds:
            alike = cls.answers == each.answers if each.answers else cls.answers.is_null()
            these = cls.select(cls.id).where(undecided, cls.key == each.key_id, alike)
            decide = cls._expire_after(each.lasts(own[each.key_id], setting))
            decide = decide.where(locked(cls.id, these.limit(BATCH)))
            while decide.execute():  # in batches, so that others do not wait long
                pass

    @classmethod
    def _expire_after(cls, lasts):
        """Return the UPDATE to messages that last so long from their first scheduled time on."""
        never = cls.first_send_at > LAST - lasts
        ends = cls.first_send_at + Value(lasts // MILLISECOND, converter=False)
        return cls.update(expires_at=Case(None, [(never, cls.expires_at.db_value(LAST))], ends))

    @classmethod
    def expire(cls, now: datetime, among: Collection[uuid.UUID] | None = None) -> int:
        """Expire messages that wait though it is too late to send them; count them.

        `among` are the ids to choose from, if not all. What waits for a later time keeps it.
        """
        late = IS_WAITING & (cls.expires_at <= now) & (cls.send_at <= now) & (cls.in_doubt == 0)
        if among is not None:
            late &= cls.id.in_([*among])
        give_up = cls.update(status=Status.EXPIRED, finished_at=now)
        due = cls.select(cls.id).where(late)
        return sum(map(len, cls._change_due(give_up, due, IS_WAITING, now)))

    @classmethod
    def _is_kept_off(cls, setting):
        """Return the condition that the Do Not Call list keeps a message from its number."""
        is_listed = cls.to.in_(DoNotCall.select(DoNotCall.number))
        asked = is_listed & (cls.check_dnc | cls.key.in_(ApiKey.checking("always", setting)))
        stops = cls.key.in_(ApiKey.checking("opted-out", setting))
        return asked | (stops & DoNotCall.has_opted_out(cls.to))

    @classmethod
    def expire_in_doubt(cls, lanes: Collection[str], reason: str, now: datetime) -> int:
        """Give up messages in doubt whose carriers, to be asked about them, do not answer.

        They have expired, or are cancelled if somebody has done so; return how many.
        """
        old = IS_SENDABLE & cls.lane.in_(lanes) & (cls.in_doubt > 0) & (cls.expires_at <= now)
        withdrawn = cls.cancelled_by.is_null(False), Status.CANCELLED
        status = Case(None, [withdrawn], Status.EXPIRED)
        told = {"finished_at": now, "last_error": reason, "last_error_at": now}
        give_up, due = cls.update(status=status, **told), cls.select(cls.id).where(old)
        return sum(map(len, cls._change_due(give_up, due, old, now)))

    def apply(self, outcome: Any, now: datetime, **more: Any) -> bool:
        """Move this claimed message as an Outcome says; False if the claim is another's by now.

        `more` are further changes of columns.
        """
        changes = more | {"status": outcome.status, "attempts": self.attempts + outcome.counted}
        if outcome.status in WAITING:
            late = outcome.reason or outcome.status == Status.QUEUED
            changes["due_since"] = (self.due_since or self.ready_at) if late else None
        else:
            changes["finished_at"] = now
        if outcome.reason:
            changes |= {"last_error": outcome.reason, "last_error_at": now}
        if outcome.send_at:
            changes["send_at"] = outcome.send_at
        if outcome.doubt:
            changes["in_doubt"] = self.in_doubt + 1
        return self._move({Status.SENDING}, **changes)

    @classmethod
    def put_back(cls, messages: Collection[Self]) -> None:
        """Give up the claims of messages that could not go yet; they keep their places.

        Claims that are another's by now stay.
        """
        for each in messages:
            each._move({Status.SENDING}, status=Status.QUEUED)

    def lose(self, carrier: str | None, number: int) -> bool:
        """Queue this message, of which a sender has died that had claimed it for a carrier.

        It is in doubt: the sender may have died after the carrier's yes. `number` is the claim's.
        """
        dead = Message.update(
            status=Status.QUEUED,
            carrier=carrier,
            lane=str(Lane.read(self.lane).in_doubt(carrier or FIRST)),
            in_doubt=Message.in_doubt + 1,
        )
        held = has_status(Status.SENDING) & (Message.claim_number == number)
        return dead.where(Message.id == self.id, held).execute() == 1

    def settle(self, outcome: Any, now: datetime) -> bool:
        """End this message, which waits in doubt, as an Outcome says; say whether that happened."""
        ended = {"status": outcome.status, "finished_at": now}
        if outcome.reason:
            ended |= {"last_error": outcome.reason, "last_error_at": now}
        return self._move({*WAITING}, **ended)

    def read_doubts(self) -> None:
        """Lock this message, and read its doubts: some may be settled since it was claimed."""
        this = Message.select(Message.in_doubt, Message.lane).where(Message.id == self.id)
        if found := db.lock_rows(this).first():
            self.in_doubt, self.lane = found.in_doubt, found.lane

    def settle_doubts(self, carrier: Way, settled: int, once: bool = False) -> Self | None:
        """Note that copies of this message are unclear no more, and return it as it is now.

        `settled` of them were given to the carrier since a person retried it. All that the carrier
        may have had are settled, or `once` one. Return None if the message is gone.
        """
        with db.transaction():
            this = Message.select().where(Message.id == self.id)
            message = db.lock_rows(this).first()
            if message:
                message.in_doubt = max(0, message.in_doubt - settled)
                message.lane = str(Lane.read(message.lane).settled(carrier.names, once))
                message.save(only=[Message.in_doubt, Message.lane])
        return message

    def note_error(self, error: str, now: datetime) -> None:
        """Keep what a carrier said of this message, which waits on as it does."""
        waits = (Message.id == self.id) & has_status(*WAITING)
        Message.update(last_error=error, last_error_at=now).where(waits).execute()

    def has_twin_under_way(self) -> bool:
        """Say whether an equal text is being sent for another message."""
        alike = (Message.to == self.to) & (Message.message == self.message)
        being_sent = alike & has_status(Status.SENDING) & (Message.id != self.id)
        return Message.select().where(being_sent).exists()

    # Transitions by people

    def approve(self, by: str, now: datetime) -> bool:
        """Let this message be sent when its time comes; once more changes nothing.

        Return False if it waits no more, or is withdrawn.
        """
        again = Message.approved & Message.cancelled_by.is_null()
        return self.decide(True, by, now) or self._move({*WAITING}, again, approved=True)

    def decide(self, yes: bool, by: str, now: datetime, not_before: datetime | None = None) -> bool:
        """Approve or refuse this message; False if it does not wait for approval any more.

        Once approved, it waits for its time, or for `not_before` if that is later.
        """
        if yes:
            action, usual = Action.APPROVED, 1
            changes = {"approved": True, "approved_by": by, "approved_at": now}
            if not_before:
                sooner = (Message.send_at < not_before, Message.send_at.db_value(not_before))
                send_at = Case(None, [sooner], Message.send_at)
                changes |= {"status": Status.SCHEDULED, "send_at": send_at}
        else:
            action, usual = Action.REFUSED, 0
            changes = {"status": Status.CANCELLED, "cancelled_by": by, "finished_at": now}
        kept = Message.cancelled_by.is_null()  # or it is withdrawn
        return self._act(action, now, {*WAITING}, ~Message.approved, kept, usual=usual, **changes)

    def cancel(self, by: str, now: datetime) -> bool:
        """Cancel this message; return False if it waits no more.

        A message in doubt is withdrawn: it waits until the sender has asked the carrier.
        """
        cancelled = {"status": Status.CANCELLED, "cancelled_by": by, "finished_at": now}
        cancel = partial(self._act, Action.CANCELLED, now, {*WAITING})
        if cancel(Message.in_doubt == 0, usual=-1, **cancelled):
            return True
        withdraw = partial(cancel, Message.in_doubt > 0, cancelled_by=by, send_at=now)
        withdrawn = withdraw(Message.cancelled_by.is_null(), usual=-1) or withdraw()  # once more
        if withdrawn:
            self.cancelled_by = by
        return withdrawn

    def undo_approval(self, by: str, now: datetime) -> bool:
        """Have this message wait for approval as it did before; False if it may have gone.

        Only who approved it may, and only within UNDO_WITHIN.
        """
        mine = (Message.approved_by == by) & is_within(Message.approved_at, UNDO_WITHIN, now)
        before = {"approved": False, "approved_by": None, "approved_at": None, "due_since": None}
        before["send_at"] = Message.first_send_at
        undo = partial(
            self._undo, Action.APPROVED, now, {*WAITING}, Message.in_doubt == 0, mine, usual=-1
        )
        was_queued = Message.approved & (Message.first_send_at <= Message.approved_at)
        return undo(was_queued, status=Status.QUEUED, **before) or undo(
            Message.approved, status=Status.SCHEDULED, **before
        )

    def undo_cancel(self, by: str, now: datetime, limit: Limit | None = None) -> bool:
        """Have this message, which was cancelled or refused, wait again; False if it is too late.

        Only who cancelled it may, and only within UNDO_WITHIN. The `limit` of its recipient counts
        it again, and must allow that. The next pass queues what is due, unless its number has
        joined the Do Not Call list.
        """
        mine, since = Message.cancelled_by == by, now - UNDO_WITHIN
        last = is_within(Message.finished_at, UNDO_WITHIN, now)
        waits = {"status": Status.SCHEDULED, "cancelled_by": None, "finished_at": None}
        refused = Audit.latest(self.id, (Action.CANCELLED, Action.REFUSED), since)
        undone = refused or Action.CANCELLED
        with db.transaction():
            if limit and self._use_of(limit) >= limit.number:
                return False
            if self._undo(undone, now, {Status.CANCELLED}, mine, last, usual=1, **waits):
                return True
        withdrawn = mine & (Message.in_doubt > 0) & is_within(Message.send_at, UNDO_WITHIN, now)
        return self._undo(undone, now, {*WAITING}, withdrawn, usual=1, cancelled_by=None)

    def _use_of(self, limit):
        """Return how many others to this number have counted since a window before this one."""
        lock_numbers([self.to])
        others = Message.accepted_to(self.to, self.created_at - limit.window + MILLISECOND)
        return others.where(Message.id != self.id).limit(limit.number).count()

    def retry(self, now: datetime, expire_after: timedelta) -> bool:
        """Send this message, which did not reach its recipient, again with all its retries.

        It goes at once, or at a send_date that is still to come, and expires as if it were new:
        `expire_after` is for a key without a rule of its own. What answers a reply has one try.
        """
        later = (Message.send_date > now, Message.send_date)
        send_at = Case(None, [later], Message.send_at.db_value(now))
        ids = [*self.ids]
        with db.transaction():
            done = self._act(
                Action.RETRIED,
                now,
                {*RETRYABLE},
                Message.answers.is_null(),
                first_send_at=send_at,
                send_at=send_at,
                tries_before=Message.claim_number,
                lane=_lane_anew(ids),
                **ANEW,
            )
            Message.decide_expiry(expire_after, ids)
        return done

    @classmethod
    def block_number(cls, number: str, now: datetime, check_dnc: str = "asked") -> int:
        """Block messages that wait for a number that has opted out; return how many.

        A text in doubt is left to the sender, which asks the carrier first.
        """
        waiting = (cls.to == number) & has_status(*WAITING) & (cls.in_doubt == 0)
        waiting &= cls.check_dnc | cls.key.not_in(ApiKey.checking("asked", check_dnc))
        waiting &= cls.answers.is_null()
        block = cls.update(status=Status.BLOCKED, finished_at=now).where(waiting)
        return len(cls.change(block))

    @classmethod
    def note_notified(cls, ids: Collection[uuid.UUID], now: datetime) -> None:
        """Note that events of these messages were delivered.

        It waits for no lock, which could be a deadlock on Postgres: a message that is being changed
        right now is left out, because its next event is noted.
        """
        if ids:
            notified = cls.select(cls.id).where(cls.id.in_(ids))
            cls.update(told_at=now).where(locked(cls.id, notified)).execute()

    # Growing old: in batches, so that others do not wait long

    @classmethod
    def purge(cls, before: datetime, now: datetime) -> int:
        """Delete some messages that were finished before an instant; return how many.

        A message stays while an equal text is in doubt, which would take its copy for its own.
        """
        with db.transaction():
            gone = cls.purge_old(before)
            cls._audit_many(Action.PURGED, now, gone, f"ended before {isoformat(before)}")
        return gone

    @classmethod
    def purge_old(cls, before: datetime) -> int:
        """Do as `purge`, without a word in the audit: nobody has asked for it."""
        old = cls.finished_at < before
        with db.transaction():
            # Apart from the deletion, or Postgres may select a batch for each row that it looks at
            some = cls.select(cls.id).where(old, ~cls._has_twin_in_doubt(), has_status(*FINISHED))
            ids = [message.id for message in some.limit(PAGE)]
            return cls.delete().where(old, cls.id.in_(ids)).execute()

    @classmethod
    def redact_oldest(cls, since: datetime | None, before: datetime) -> tuple[int, datetime]:
        """Redact some of those that ended between two instants, the oldest first.

        Return how many, and until when nothing is left to be redacted: there a later call begins,
        or it would read all that was redacted before. One that an equal text in doubt still needs
        stays. Nothing is written to the audit.
        """
        old = HAS_ENDED & cls.message.is_null(False) & (cls.finished_at < before)
        if since:
            old &= cls.finished_at >= since
        found = []
        for status in FINISHED:  # one index lookup each
            some = cls.select(cls.finished_at, cls.id).where(cls.status == status, old)
            found.extend(some.order_by(cls.finished_at).limit(PAGE).tuples())
        oldest = sorted(found)[:PAGE]
        old &= cls.id.in_([id for _, id in oldest])
        redacted = cls.update(NOTHING).where(old, ~cls._has_twin_in_doubt()).execute()
        if left := cls.select(cls.finished_at).where(old).order_by(cls.finished_at).first():
            return redacted, left.finished_at
        return redacted, oldest[-1][0] if len(oldest) == PAGE else before

    @classmethod
    def redact(cls, before: datetime, now: datetime) -> int:
        """Forget number and text of some messages finished before an instant; return how many.

        Not of one that an equal text in doubt still needs, as in `purge`.
        """
        old, spared = cls.finished_at < before, cls._has_twin_in_doubt()
        return cls._forget(old, now, f"ended before {isoformat(before)}", ~spared)

    @classmethod
    def spared(cls, before: datetime) -> int:
        """Count the messages finished before an instant that `redact` has spared."""
        kept = (cls.finished_at < before) & HAS_ENDED & cls.message.is_null(False)
        return cls.select().where(kept, cls._has_twin_in_doubt()).count()

    @classmethod
    def redact_number(cls, number: str, now: datetime) -> int:
        """Forget a number and its texts in some messages that have ended; return how many."""
        return cls._forget(cls.to == number, now, "to one number")

    @classmethod
    def _forget(cls, which, now, details, *conditions):
        which &= HAS_ENDED & cls.message.is_null(False)
        some = cls.select(cls.id).where(which, *conditions).limit(PAGE)
        ids = [each.id for each in some]
        with db.transaction():
            forgotten = cls.update(NOTHING).where(which, cls.id.in_(ids)).execute()
            cls._audit_many(Action.REDACTED, now, forgotten, details)
        return forgotten

    @classmethod
    def _has_twin_in_doubt(cls):
        """Return the condition that the carrier may yet be asked about an equal text."""
        twin = cls.alias()
        alike = (twin.to == cls.to) & (twin.message == cls.message)
        in_doubt = twin.status.in_([*WAITING]) & (twin.in_doubt > 0)
        unsettled = in_doubt | (twin.status == Status.SENDING)  # its scheduler may be dead
        return fn.EXISTS(twin.select(twin.id).where(alike, unsettled))

    @staticmethod
    def _audit_many(action, now, count, details):
        if count:
            Audit.note(action, now, count=count, details=details)

    # One message

    @classmethod
    def find(cls, message_id: uuid.UUID) -> Self:
        """Return one message with its key; raise Refused if there is none."""
        message = cls.select(cls, ApiKey).join(ApiKey).where(cls.id == message_id).first()
        if message is None:
            raise Refused("there is no such message")
        return message

    @property
    def ids(self) -> list[uuid.UUID]:
        """Return what a Selection has of several messages."""
        return [self.id]

    def lasts(self, own: KeyRules, setting: timedelta) -> timedelta:
        """Return how long after its first scheduled time this message may still be sent."""
        return ANSWER_WITHIN if self.answers else own.lasts(setting)

    def is_too_late(self, now: datetime) -> bool:
        """Say whether it is too late to send this message."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def ready_at(self) -> datetime:
        """Return when this message could have been sent first, as far as the clock decides it."""
        return max(self.send_at, self.approved_at or EPOCH)

    @property
    def goes_before_others(self) -> bool:
        """Return whether this message is claimed before those of keys that are not urgent."""
        return self.key.urgent or self.answers is not None

    @property
    def blocked_because(self) -> str | None:
        """Say why the Do Not Call list kept this message from its number, if that is known."""
        if self.status != Status.BLOCKED or self.to is None:
            return None
        return DoNotCallHistory.why_at(self.to, self.finished_at)

    @property
    def is_withdrawn(self) -> bool:
        """Return whether this message was cancelled in doubt: the carrier is yet to be asked."""
        return self.cancelled_by is not None and self.finished_at is None

    def obeys_send_date(self, now: datetime) -> bool:
        """Say whether a send_date lets this message go now, whatever hours the recipient has."""
        # From now back: no instant is later than the year 9999
        return self.send_date is not None and now - SEND_DATE_LASTS < self.send_date

    def state(self) -> str:
        """Say where this message stands, in an operator's words."""
        if self.status == Status.SENDING:
            return "being sent right now"
        if self.finished_at:
            return f"{self.status} at {isoformat(self.finished_at)}"
        if self.is_withdrawn:
            return WITHDRAWN
        return self.status if self.approved else f"{self.status}, awaiting approval"

    def _act(self, action, now, among, *conditions, undone=None, usual=0, **changes):
        """Make a transition of a person, and note it in the audit; return whether it happened.

        `undone` is the action that it takes back; `usual` as in `_count_as_usual`.
        """
        with db.transaction():
            done = self._move(among, *conditions, **changes)
            if done:
                Audit.note(action, now, message_id=self.id, details=undone)
                Message._count_as_usual(self.ids, usual, changes.get("approved", True))
        return done

    def _undo(self, action, now, among, *conditions, **changes):
        """Take back an action, as `_act` does one."""
        return self._act(Action.UNDONE, now, among, *conditions, undone=action, **changes)

    def _move(self, among, *conditions, **changes):
        """Change this message if its status is among these, atomically; return whether it did.

        Only the sender that claimed it may move it out of `sending`. A redacted one is not sent.
        """
        allowed = (Message.id == self.id) & _allowed(among, changes)
        if among == {Status.SENDING}:
            allowed &= Message.claim_number == self.claim_number
        move = Message.update(changes).where(allowed, *conditions)
        return len(self.change(move)) == 1


PARTS = fn.COALESCE(Message.parts, 1)
"""The parts of a message; one where a version before migration 0014 stored none."""


def _allowed(among, changes):
    """Return the condition that a message is in one of these statuses and may be changed so."""
    allowed = Message.status.in_(sorted(among))
    return allowed & Message.to.is_null(False) if changes.get("status") in WAITING else allowed


def _lane_anew(ids):
    """Return the lanes that messages have when they are sent again, by those that they have."""
    lanes = Message.select(Message.lane).where(Message.id.in_(ids), Message.lane.is_null(False))
    anew = [(each.lane, str(Lane.read(each.lane).anew())) for each in lanes.distinct()]
    return Case(Message.lane, anew, None) if anew else None


class Selection:
    """Several messages that a person decides on together: some thousand a second.

    It has the transitions of a message, each in one transaction for those that can make it.
    `left` are the ids of the others.
    """

    approve, decide = Message.approve, Message.decide
    cancel, retry = Message.cancel, Message.retry

    def __init__(self, ids: Collection[uuid.UUID]):
        self.left = {*ids}

    @property
    def ids(self) -> set[uuid.UUID]:
        """Return the messages that may yet make a transition."""
        return self.left

    def make(self, transition: Callable[[Self], Any]) -> None:
        """Have all messages make a transition that can, each by the first way open to it."""
        with db.transaction():
            while self.left and transition(self):
                pass

    def _act(self, action, now, among, *conditions, usual=0, **changes):
        moved = self._move(among, *conditions, **changes)
        Audit.note_each(action, now, Audit.message_id, moved)
        Message._count_as_usual(moved, usual)
        return moved

    def _move(self, among, *conditions, **changes):
        """Change those that it is possible for; lock them first, sorted, against deadlocks."""
        some = Message.id.in_([*self.left]) & _allowed(among, changes)
        able = Message.select(Message.id).where(some, *conditions).order_by(Message.id)
        moved = [each.id for each in db.lock_rows(able)]
        if moved:
            Message.change(Message.update(changes).where(Message.id.in_(moved)))
        self.left.difference_update(moved)
        return moved


for _name, _columns, _where in (
    ("message_due", [Message.send_at, Message.id], has_status(Status.SCHEDULED)),
    ("message_sendable_key", [Message.key, Message.send_at, Message.id], IS_SENDABLE),
    ("message_lane", [Message.lane, Message.key, Message.send_at, Message.id], IS_SENDABLE),
    ("message_answers", [Message.send_at, Message.id], IS_ANSWER),
    ("message_awaiting", [Message.status, Message.send_at, Message.id], AWAITS_APPROVAL),
    ("message_awaiting_key", [Message.key, Message.send_at, Message.id], AWAITS_GROUP),
    ("message_expires", [Message.expires_at], IS_WAITING),
    ("message_approved", [Message.key, Message.approved_at], SQL("approved_at IS NOT NULL")),
    ("message_claimed", [Message.claimed_at], has_status(Status.SENDING)),
    ("message_retrying", [Message.due_since], IS_RETRYING),
    ("message_last_error", [Message.last_error_at], HAS_ERROR),
    ("message_finished", [Message.status, Message.finished_at], HAS_ENDED),
    ("message_reference", [Message.carrier_reference], HAS_REFERENCE),
    ("message_reference_form", [Message.to, REFERENCE_FORM], HAS_REFERENCE),
    ("message_in_doubt", [Message.to], IS_IN_DOUBT),
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
