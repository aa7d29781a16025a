"""The health of the queue: counts and instants."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from peewee import SQL, Case, Select, ValuesList, fn

from texting.access.keys import ApiKey
from texting.database import InstantField, db
from texting.events.outbox import FEWEST_TRIES, Event, EventAddress
from texting.messages import model
from texting.messages.attempts import IS_UNDER_WAY, Attempt
from texting.messages.model import Message, Status, has_status

HOUR = timedelta(hours=1)

UNFINISHED = {
    Status.SCHEDULED: [has_status(Status.SCHEDULED)],
    Status.QUEUED: [model.IS_SENDABLE, model.AWAITS_APPROVAL & has_status(Status.QUEUED)],
    Status.SENDING: [
        has_status(Status.SENDING)
        & Message.id.in_(Attempt.select(Attempt.message).where(IS_UNDER_WAY))
    ],
}
"""Conditions for the statuses that are not final; an index serves each."""

UNDER_WAY = """
SELECT attempt.carrier, COUNT(*) FROM attempt JOIN message ON message.id = attempt.message_id
WHERE attempt.sender IS NOT NULL AND attempt.result IS NULL AND message.status IN ('sending')
GROUP BY attempt.carrier ORDER BY attempt.carrier
"""
"""Count the messages that each carrier was given and has yet to answer."""


def awaiting_approval(most: int | None = None) -> int:
    """Count the messages that wait for approval, up to `most`."""
    return count_up_to(model.AWAITS_APPROVAL, most, Message.status, Message.send_at)


def waiting_of_revoked() -> dict[str, int]:
    """Count the texts to be sent of revoked keys that were not paused before, by name."""
    stops = ApiKey.revoked_at.is_null() | ApiKey.paused_at.is_null(False)
    waits = has_status(*model.WAITING, Status.SENDING) & Message.cancelled_by.is_null()
    texts = Message.select(ApiKey.name, fn.COUNT(SQL("*"))).join(ApiKey).where(waits, ~stops)
    return dict(texts.group_by(ApiKey.name).order_by(ApiKey.name).tuples())


class Approvals(NamedTuple):
    """The messages that wait for approval."""

    messages: int
    newest: str | None  # the largest id
    first_at: datetime | None  # when the first would leave
    expires_at: datetime | None  # when the first expires


def approvals() -> Approvals:
    """Return how many messages wait for approval, and the first and the newest of them.

    Nothing but the index is read.
    """
    newest = fn.MAX(Message.id.cast("text")).coerce(False)  # Postgres has no largest UUID
    first = fn.MIN(Message.send_at), fn.MIN(Message.expires_at)
    row = Message.select(fn.COUNT(SQL("*")), newest, *first)
    return Approvals(*row.where(model.AWAITS_APPROVAL).tuples().get())


def approvals_by_key() -> list[tuple[str, int]]:
    """Count the messages that wait for approval by the names of their keys, the most first."""
    messages = fn.COUNT(SQL("*"))
    counts = Message.select(ApiKey.name, messages).join(ApiKey).where(model.AWAITS_APPROVAL)
    return list(counts.group_by(ApiKey.name).order_by(messages.desc(), ApiKey.name).tuples())


def awaiting_carrier(most: int | None = None) -> int:
    """Count the messages that may be sent now, up to `most`; none of paused keys."""
    keys = ApiKey.alias("api_key")
    return _sendable_of(keys.select(keys.id).where(keys.paused_at.is_null()), most)


def awaiting_paused_key(most: int | None = None) -> int:
    """Count the messages that might be sent now if their keys were not paused, up to `most`."""
    return _sendable_of(ApiKey.paused(), most)


def _sendable_of(keys, most):
    return count_up_to(
        model.IS_SENDABLE & Message.key.in_(keys), most, Message.key, Message.send_at
    )


def to_be_sent(now: datetime) -> int:
    """Count the messages that are due or under way, or wait for another try; none of paused keys.

    Those that are due are queued by a scheduler only, which may be what is missing.
    """
    is_due = Message.send_at <= now
    due = has_status(Status.SCHEDULED) & is_due & ~model.AWAITS_APPROVAL
    later = model.IS_RETRYING & has_status(Status.SCHEDULED) & ~is_due & ~model.AWAITS_APPROVAL
    ready = (count_up_to(each & may_go()) for each in (model.IS_SENDABLE, due, later))
    return sum(ready) + sum(under_way().values())


def under_way() -> dict[str, int]:
    """Count the messages whose carriers have yet to answer, by the names of the carriers."""
    return {name: messages for name, messages in db.execute_sql(UNDER_WAY).fetchall() if name}


def in_lane(lane: str, excluded: Collection[int]) -> int:
    """Count the messages in a lane that may be sent now, except those of the excluded keys."""
    in_lane = (Message.lane == lane) & Message.key.not_in([*excluded])
    return count_up_to(model.IS_SENDABLE & in_lane)


class Due(NamedTuple):
    """Since when the first of some texts that go the same way has been due."""

    since: datetime
    lane: str | None = None
    key_id: int | None = None
    carrier: str | None = None  # the one that has yet to answer, if they are under way


def due(now: datetime, ready: Iterable[tuple[datetime, str, int]]) -> list[Due]:
    """Return since when messages have been due, by the ways that they go; the longest due first.

    `ready` has since when those that may be sent could have been, by lane and key. One that its
    carrier has yet to answer waits, too. What awaits approval, or is of a paused key, does not
    count: it waits for a person.
    """
    may_be_sent = SQL("approved") & may_go()
    promoted_next = Message.select(Message.send_at, Message.lane, Message.key)
    promoted_next = promoted_next.where(has_status(Status.SCHEDULED), may_be_sent)
    promoted_next = promoted_next.order_by(Message.send_at, Message.id).limit(1)
    tried = Message.select(fn.MIN(Message.due_since), Message.lane, Message.key)
    tried = tried.where(model.IS_RETRYING, may_be_sent).group_by(Message.lane, Message.key)
    found = [Due(*row) for query in (promoted_next, tried) for row in query.tuples()]
    found += [Due(*each) for each in ready] + _under_way()
    return sorted((each for each in found if each.since <= now), key=lambda each: each.since)


def _under_way():
    """Return since when the first message that each carrier has yet to answer has been due."""
    ready_at = Case(
        None, [(Message.approved_at > Message.send_at, Message.approved_at)], Message.send_at
    )
    first = fn.MIN(fn.COALESCE(Message.due_since, ready_at))
    given = Attempt.select(first, Attempt.carrier).join(Message).group_by(Attempt.carrier)
    given = given.where(IS_UNDER_WAY, has_status(Status.SENDING), may_go())
    at = Message.send_at.python_value
    return [Due(at(since), carrier=carrier) for since, carrier in given.tuples()]


def taken_since(instant: datetime, carrier: str) -> bool:
    """Return whether a carrier has taken a text at or after an instant."""
    latest = Message.select(SQL("1")).where(Message.finished_at >= instant, model.HAS_ENDED)
    latest = latest.where(Message.carrier == carrier).order_by(Message.finished_at.desc()).limit(1)
    return any(latest.where(Message.status == status).exists() for status in model.TAKEN)


def oldest_event(now: datetime) -> datetime | None:
    """Return since when an event has been due though none is tried at its address.

    If one there is claimed, or waits for its next try, the others wait for their turn.
    """
    theirs = Event.key == EventAddress.key
    due = Event.select(fn.MIN(Event.next_try_at)).where(theirs, Event.next_try_at <= now)
    later = (Event.next_try_at > now) & (Event.next_try_at <= now + HOUR)
    is_tried = fn.EXISTS(Event.select(SQL("1")).where(theirs, later))
    oldest = EventAddress.select(fn.MIN(due)).where(EventAddress.off.is_null(), ~is_tried)
    return Event.next_try_at.python_value(oldest.scalar())


def dead_receivers(since: datetime) -> list[str]:
    """Return the names of keys whose receivers have taken no event since an instant.

    They have refused at least FEWEST_TRIES since then, and events wait for them.
    """
    theirs = Event.key == EventAddress.key
    waits = Event.select(SQL("1")).where(theirs, Event.next_try_at.is_null(False))
    dead = EventAddress.off.is_null() & (EventAddress.failing_since <= since) & fn.EXISTS(waits)
    dead &= EventAddress.failures >= FEWEST_TRIES
    keys = ApiKey.select(ApiKey.name).join(EventAddress).where(dead)
    return [name for (name,) in keys.order_by(ApiKey.name).tuples()]


def may_go():
    """Return the condition that a message is of a key that is not paused."""
    return Message.key.not_in(ApiKey.paused())


def retrying() -> int:
    """Count the messages that wait for another try."""
    return count_up_to(model.IS_RETRYING)


def last_sent_at() -> datetime | None:
    """Return when a carrier last took a text."""
    latest = Message.select(fn.MAX(Message.finished_at)).where(model.HAS_ENDED)
    instants = (latest.where(Message.status == status).scalar() for status in model.TAKEN)
    return max(filter(None, instants), default=None)


def waiting() -> dict[str, int]:
    """Count the messages in each status that is not final; indexes serve it."""
    return {status: sum(map(count_up_to, which)) for status, which in UNFINISHED.items()}


def by_status() -> dict[str, int]:
    """Count the messages in every status; reads the whole table."""
    counts = Message.select(Message.status, fn.COUNT(SQL("*"))).group_by(Message.status)
    return dict.fromkeys(Status, 0) | dict(counts.tuples())


def count_ended(before: datetime) -> int:
    """Count the messages that ended before an instant."""
    ended = has_status(*model.FINISHED) & model.HAS_ENDED
    return count_up_to(ended & (Message.finished_at < before))


def ended_since(instant: datetime, most: int | None = None) -> dict[str, int]:
    """Count the messages that ended at or after an instant, by status, each up to `most`.

    One query for each status needs the index alone; GROUP BY takes ten times as long.
    """
    since = Message.finished_at >= instant
    return {
        status: count_up_to((Message.status == status) & since, most, Message.finished_at)
        for status in model.FINISHED
    }


def going_out(first: datetime, hours: int, most: int) -> list[tuple[int, int]]:
    """Count the messages to be sent, and those without approval, in each hour from an instant.

    Each count stops at `most`. Overdue messages count for the first hour; queued ones count once
    they are approved.
    """
    ends = [InstantField().db_value(first + number * HOUR) for number in range(1, hours + 1)]
    spans = ValuesList([*pairwise([0, *ends])], alias="span")
    since, until = spans.c.column1, spans.c.column2  # as both databases name them
    is_there = (Message.send_at >= since) & (Message.send_at < until)
    due = has_status(Status.SCHEDULED) & is_there
    conditions = due, due & model.AWAITS_APPROVAL
    counted = [_counted(each, most, Message.send_at) for each in conditions]
    counts = [*Select([spans], counted).order_by(since).tuples().execute(db)]
    total, unapproved = counts[0]
    queued = count_up_to(model.IS_SENDABLE, most, Message.key, Message.send_at)
    return [(min(most, total + queued), unapproved), *counts[1:]]


def due_once_approved(most: int) -> int:
    """Count the messages that only an approval keeps from being sent now, up to `most`."""
    return count_up_to(has_status(Status.QUEUED) & model.AWAITS_APPROVAL, most, Message.send_at)


def count_up_to(condition, most=None, *order):
    """Count the messages that meet a condition, up to `most` of them.

    A count with a limit needs the order of an index, or Postgres may read the whole table.
    """
    return _counted(condition, most, *order).scalar(db)


def _counted(condition, most, *order):
    few = Message.select(SQL("1")).where(condition).order_by(*order).limit(most)
    return Select([few.alias("few")], [fn.COUNT(SQL("*"))])
