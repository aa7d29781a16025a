"""The health of the queue: counts and instants."""

import uuid
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from peewee import SQL, Case, Select, ValuesList, fn

import models
from access.keys import ApiKey, Role, names_of
from database import InstantField, db
from events.outbox import Event, EventAddress
from models import Message, Status, has_status

HOUR = timedelta(hours=1)

SAMPLE = 1_000
"""Messages that are looked at, of many: for the commonest error, and for their parts."""

LATEST, FEWEST = 20, 5
"""Messages that ended lately: how many are judged at most, and at least."""

RECEIPT_WITHIN = timedelta(minutes=1)
"""How long a text without a receipt counts as neither delivered nor undelivered."""


UNFINISHED = {
    Status.SCHEDULED: [has_status(Status.SCHEDULED)],
    Status.QUEUED: [models.IS_SENDABLE, models.AWAITS_APPROVAL & has_status(Status.QUEUED)],
    Status.SENDING: [
        has_status(Status.SENDING)
        & Message.id.in_(SQL("(SELECT message_id FROM attempt WHERE result IS NULL)"))
    ],
}
"""Conditions for the statuses that are not final; an index serves each."""


def awaiting_approval() -> int:
    """Count the messages that wait for approval."""
    return count_up_to(models.AWAITS_APPROVAL)


class Approvals(NamedTuple):
    """The messages that wait for approval."""

    messages: int
    newest: str | None  # the largest id
    first_at: datetime | None  # when the first would leave


def approvals() -> Approvals:
    """Return how many messages wait for approval, and the first and the newest of them."""
    newest = fn.MAX(Message.id.cast("text")).coerce(False)  # Postgres has no largest UUID
    row = Message.select(fn.COUNT(SQL("*")), newest, fn.MIN(Message.send_at))
    return Approvals(*row.where(models.AWAITS_APPROVAL).tuples().get())


def unusual() -> list[Message]:
    """Return, of each key and country, the newest text that waits because it is unusual."""
    held = models.AWAITS_APPROVAL & Message.held_because.is_null(False)
    newest = fn.MAX(Message.id.cast("text")).coerce(False)  # as above
    ids = Message.select(newest).where(held).group_by(Message.key, Message.country).tuples()
    found = Message.select(Message, ApiKey).join(ApiKey)
    return list(found.where(Message.id.in_([uuid.UUID(id) for (id,) in ids])))


def approvals_by_key() -> list[tuple[str, int]]:
    """Count the messages that wait for approval by the names of their keys, the most first."""
    messages = fn.COUNT(SQL("*"))
    counts = Message.select(ApiKey.name, messages).join(ApiKey).where(models.AWAITS_APPROVAL)
    return list(counts.group_by(ApiKey.name).order_by(messages.desc(), ApiKey.name).tuples())


def awaiting_carrier(testers_too: bool = True) -> int:
    """Count the messages that may be sent now, with those of testers and paused keys or without."""
    return count_up_to(models.IS_SENDABLE if testers_too else models.IS_SENDABLE & may_go())


def in_lane(lane: str, excluded: Collection[int]) -> int:
    """Count the messages in a lane that may be sent now, except those of the excluded keys."""
    in_lane = (Message.lane == lane) & Message.key.not_in([*excluded])
    return count_up_to(models.IS_SENDABLE & in_lane)


def next_parts() -> list[int]:
    """Return the parts of SAMPLE messages of senders that may be sent now, a number for each."""
    found = Message.select(Message.parts).where(models.IS_SENDABLE, may_go()).limit(SAMPLE)
    return [parts for (parts,) in found.tuples()]


def oldest_due(now: datetime) -> datetime | None:
    """Return when the message that has waited longest to be sent was due, if any waits.

    Here and below, testers' messages do not count: they say nothing about the service. Nor do those
    of paused keys, which wait for a person.
    """
    is_due = has_status(Status.SCHEDULED) & (Message.send_at <= now)
    due = Message.select(fn.MIN(Message.send_at)).where(is_due, may_go())
    tried = Message.select(fn.MIN(Message.due_since)).where(models.IS_RETRYING, may_go())
    instants = due.scalar(), tried.scalar(), _oldest_sendable()
    return min(filter(None, instants), default=None)


def _oldest_sendable():
    """Return since when the first message of any key could have been sent."""
    approved = (Message.approved_at > Message.send_at, Message.approved_at)
    ready_at = Case(None, [approved], Message.send_at)
    theirs = Message.select(ready_at).where(Message.key == ApiKey.id, models.IS_SENDABLE)
    first = theirs.order_by(Message.send_at, Message.id).limit(1)
    sends = (ApiKey.role != Role.TESTER) & ApiKey.paused_at.is_null()
    earliest = ApiKey.select(fn.MIN(first)).where(sends)
    return Message.send_at.python_value(earliest.scalar())


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
    """Return the names of keys whose events wait though none was taken since an instant."""
    theirs = Event.key == EventAddress.key
    waits = Event.select(SQL("1")).where(theirs, Event.next_try_at.is_null(False))
    dead = EventAddress.off.is_null() & (EventAddress.failing_since <= since) & fn.EXISTS(waits)
    keys = ApiKey.select(ApiKey.name).join(EventAddress).where(dead, ApiKey.role != Role.TESTER)
    return [name for (name,) in keys.order_by(ApiKey.name).tuples()]


def of_senders():
    """Return the condition that a message is of a key whose texts go to the carrier."""
    return Message.key.not_in(ApiKey.testers())


def may_go():
    """Return the condition that a message is of such a key, and that is not paused."""
    return of_senders() & Message.key.not_in(ApiKey.paused())


def retrying() -> int:
    """Count the messages that wait for another try."""
    return count_up_to(models.IS_RETRYING)


def last_sent_at() -> datetime | None:
    """Return when a carrier last took a text."""
    latest = Message.select(fn.MAX(Message.finished_at)).where(models.HAS_ENDED, of_senders())
    instants = (latest.where(Message.status == status).scalar() for status in models.TAKEN)
    return max(filter(None, instants), default=None)


def commonest_error(since: datetime) -> tuple[str, int] | None:
    """Return the commonest of `errors_by_key`, and how many messages had it."""
    counts = Counter()
    for error, _, messages in errors_by_key(since):
        counts[error] += messages
    return next(iter(counts.most_common(1)), None)


def errors_by_key(since: datetime) -> list[tuple[str, str, int]]:
    """Return errors since an instant, each with a key's name and how many of its messages had it.

    The commonest comes first. Only the latest SAMPLE retried messages, failed ones and undelivered
    ones count, so an outage with a million failures does not slow this down.
    """
    counts, kinds = Counter(), [(models.HAS_ERROR, Message.last_error_at)]
    for status in (Status.FAILED, Status.UNDELIVERED):
        kinds.append(((Message.status == status) & models.HAS_ENDED, Message.finished_at))
    for which, at in kinds:
        told = which & of_senders() & (at >= since) & Message.last_error.is_null(False)
        latest = Message.select(Message.last_error, Message.key).where(told).order_by(at.desc())
        counts.update(latest.limit(SAMPLE).tuples())
    names = names_of({key for _, key in counts})
    return [(error, names[key], messages) for (error, key), messages in counts.most_common()]


class FailureSpike(NamedTuple):
    """The reason for which most of the latest messages ended badly."""

    status: Status  # FAILED or UNDELIVERED
    reason: str
    messages: int
    latest: int

    @property
    def summary(self) -> str:
        words = "failed" if self.status == Status.FAILED else "were undelivered"
        return f"{self.messages} of the latest {self.latest} texts {words}"


def failure_spike(now: datetime) -> FailureSpike | None:
    """Return why most of the latest messages ended badly, if they did so for one reason.

    The latest LATEST of the last hour are judged, if there are FEWEST. Once none of the latest
    FEWEST ended for this reason, it is over.

    A receipt, which makes a text undelivered, takes a while. Only texts that ended before the first
    that still awaits one are judged: bad receipts may be faster than good ones.
    """
    for status, until in ((Status.FAILED, None), (Status.UNDELIVERED, _first_in_flight(now))):
        latest = _latest_ended(now - HOUR, until)
        reasons = [each.last_error if each.status == status else None for each in latest]
        for reason, messages in Counter(filter(None, reasons)).most_common(1):
            is_most = len(latest) >= FEWEST and messages > len(latest) / 2
            if is_most and reason in reasons[:FEWEST]:
                return FailureSpike(status, reason, messages, len(latest))
    return None


def _first_in_flight(now):
    """Return when the first text was sent that may still get its receipt, or None."""
    recent = Message.finished_at > now - RECEIPT_WITHIN
    sent = (Message.status == Status.SENT) & models.HAS_ENDED & of_senders() & recent
    return Message.select(fn.MIN(Message.finished_at)).where(sent).scalar()


def _latest_ended(since, until):
    """Return the latest LATEST messages that a carrier took or that failed, the latest first."""
    found, ended = [], of_senders() & models.HAS_ENDED & (Message.finished_at >= since)
    if until:
        ended &= Message.finished_at < until
    columns = (Message.id, Message.status, Message.finished_at, Message.last_error)
    for status in (*models.TAKEN, Status.FAILED):  # one index lookup each
        each = Message.select(*columns).where(Message.status == status, ended)
        found.extend(each.order_by(Message.finished_at.desc(), Message.id.desc()).limit(LATEST))
    return sorted(found, key=lambda each: (each.finished_at, each.id), reverse=True)[:LATEST]


def waiting() -> dict[str, int]:
    """Count the messages in each status that is not final; indexes serve it."""
    return {status: sum(map(count_up_to, which)) for status, which in UNFINISHED.items()}


def by_status() -> dict[str, int]:
    """Count the messages in every status; reads the whole table."""
    counts = Message.select(Message.status, fn.COUNT(SQL("*"))).group_by(Message.status)
    return dict.fromkeys(Status, 0) | dict(counts.tuples())


def count_ended(before: datetime) -> int:
    """Count the messages that ended before an instant."""
    ended = has_status(*models.FINISHED) & models.HAS_ENDED
    return count_up_to(ended & (Message.finished_at < before))


def ended_since(instant: datetime, most: int | None = None) -> dict[str, int]:
    """Count the messages that ended at or after an instant, by status, each up to `most`.

    One query for each status needs the index alone; GROUP BY takes ten times as long.
    """
    since = Message.finished_at >= instant
    return {
        status: count_up_to((Message.status == status) & since, most, Message.finished_at)
        for status in models.FINISHED
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
    conditions = due, due & models.AWAITS_APPROVAL
    counted = [_counted(each, most, Message.send_at) for each in conditions]
    counts = [*Select([spans], counted).order_by(since).tuples().execute(db)]
    total, unapproved = counts[0]
    queued = count_up_to(models.IS_SENDABLE, most, Message.key, Message.send_at)
    return [(min(most, total + queued), unapproved), *counts[1:]]


def due_once_approved(most: int) -> int:
    """Count the messages that only an approval keeps from being sent now, up to `most`."""
    return count_up_to(has_status(Status.QUEUED) & models.AWAITS_APPROVAL, most, Message.send_at)


def count_up_to(condition, most=None, *order):
    """Count the messages that meet a condition, up to `most` of them.

    A count with a limit needs the order of an index, or Postgres may read the whole table.
    """
    return _counted(condition, most, *order).scalar(db)


def _counted(condition, most, *order):
    few = Message.select(SQL("1")).where(condition).order_by(*order).limit(most)
    return Select([few.alias("few")], [fn.COUNT(SQL("*"))])
