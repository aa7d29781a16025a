"""Reports: what people and monitoring ask of the messages. Nothing here changes any."""

import heapq
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from peewee import SQL, ModelSelect, NodeList, Select, Tuple, Value, ValuesList, fn

from database import EPOCH, MILLISECOND, PAGE, Refused, db, on_postgres
from keys import ApiKey, Identity, Role
from models import (
    AWAITS_APPROVAL,
    AWAITS_GROUP,
    FINISHED,
    HAS_ENDED,
    HAS_ERROR,
    IS_RETRYING,
    IS_SENDABLE,
    TAKEN,
    WAITING,
    Message,
    Status,
    first_id,
    has_status,
)

HOUR = timedelta(hours=1)

SAMPLE = 1_000
"""Messages by which the commonest error is found."""


# Counts and instants


def awaiting_approval() -> int:
    """Count the messages that wait for approval."""
    return _count(AWAITS_APPROVAL)


def awaiting_carrier() -> int:
    """Count the messages that may be sent now."""
    return _count(IS_SENDABLE)


def oldest_due(now: datetime) -> datetime | None:
    """Return when the message that has waited longest to be sent was due, if any waits."""
    due = Message.select(fn.MIN(Message.send_at)).where(
        has_status(Status.SCHEDULED), Message.send_at <= now
    )
    tried = Message.select(fn.MIN(Message.due_since)).where(IS_RETRYING)
    sendable = Message.select().where(IS_SENDABLE).order_by(Message.send_at).first()
    instants = due.scalar(), tried.scalar(), sendable and sendable.became_due
    return min(filter(None, instants), default=None)


def retrying() -> int:
    """Count the messages that wait for another try."""
    return _count(IS_RETRYING)


def last_sent_at() -> datetime | None:
    """Return when a carrier last took a text."""
    latest = (
        Message.select(fn.MAX(Message.finished_at))
        .where(Message.status == status, HAS_ENDED)
        .scalar()
        for status in TAKEN
    )
    return max(filter(None, latest), default=None)


def commonest_error(since: datetime) -> tuple[str, int] | None:
    """Return the commonest error that messages have had since an instant, and of how many.

    Of the latest SAMPLE that are tried again and the latest SAMPLE that failed, so that an
    outage with a million of them is told as quickly.
    """
    counts = Counter()
    failed = (Message.status == Status.FAILED) & HAS_ENDED
    for which, at in ((HAS_ERROR, Message.last_error_at), (failed, Message.finished_at)):
        latest = (
            Message.select(Message.last_error)
            .where(which, at >= since, Message.last_error.is_null(False))
            .order_by(at.desc())
            .limit(SAMPLE)
        )
        counts.update(error for (error,) in latest.tuples())
    return next(iter(counts.most_common(1)), None)


def by_status() -> dict[str, int]:
    """Count the messages in each status: an index counts what waits, Tally what has ended."""
    waiting = {
        Status.SCHEDULED: _count(has_status(Status.SCHEDULED)),
        Status.QUEUED: _count(IS_SENDABLE) + _count(AWAITS_APPROVAL & has_status(Status.QUEUED)),
        Status.SENDING: _count(has_status(Status.SENDING)),
    }
    sums = Message.select(Message.status, fn.COUNT(SQL("*"))).where(HAS_ENDED).group_by(Message.status)
    ended = {status: int(total) for status, total in sums.tuples()}
    return waiting | dict.fromkeys(FINISHED, 0) | ended


def ended_since(instant: datetime, most: int | None = None) -> dict[str, int]:
    """Count the messages that were finished from an instant on, by status, each up to `most`.

    Status by status, which takes an index alone; GROUP BY takes ten times as long.
    """
    since = Message.finished_at >= instant
    return {
        status: _count((Message.status == status) & since, most, Message.finished_at)
        for status in FINISHED
    }


def going_out(first: datetime, hours: int, most: int) -> list[tuple[int, int]]:
    """Count what is to be sent, and what of it lacks approval, in each hour from an instant on.

    Each up to `most`. What is due since before counts for the first hour; what is queued, only
    with its approval.
    """
    instants = [EPOCH, *(first + number * HOUR for number in range(1, hours + 1))]
    scheduled = has_status(Status.SCHEDULED)
    totals = _count_between(instants, scheduled, most)
    totals[0] = min(most, totals[0] + _count(IS_SENDABLE, most, Message.send_at))
    unapproved = _count_between(instants, scheduled & AWAITS_APPROVAL, most)
    return list(zip(totals, unapproved, strict=True))


def _count(condition, most=None, *order):
    """Count the messages that meet a condition, up to `most` of them."""
    return _counting(condition, most, *order).scalar(db)


def _counting(condition, most, *order):
    """Select the number of messages that meet a condition, up to `most` of them.

    Up to a number only in the order of an index, or Postgres reads the table, however far.
    """
    few = Message.select(SQL("1")).where(condition).order_by(*order).limit(most)
    return Select([few.alias("few")], [fn.COUNT(SQL("*"))])


def _count_between(instants, condition, most):
    """Count the messages that are to be sent between each two of these instants, up to `most`."""
    edges = [(instant - EPOCH) // MILLISECOND for instant in instants]
    spans = ValuesList([*pairwise(edges)]).cte("span", columns=("since", "until"))
    within = condition & SQL("send_at >= since AND send_at < until")
    number = _counting(within, most, Message.send_at)
    counts = Select([spans], [number]).order_by(SQL("since")).with_cte(spans)
    return [count for (count,) in db.execute(counts)]


# Listings for the commands


def listing(
    *,
    statuses: Collection[str] = (),
    awaiting_approval: bool = False,
    to: str | None = None,
    since: datetime | None = None,
    key: str | None = None,
    group: str | None = None,
    visible_to: ApiKey | None = None,
    limit: int | None = None,
) -> Iterator[Message]:
    """Read messages with their keys, the newest first.

    In pages: nothing stays open meanwhile. For each key and status, an index gives the newest
    ids, so that a page of a million messages costs no more than one of a thousand.
    """
    narrow = [AWAITS_APPROVAL if awaiting_approval else SQL("true")]
    newest = (_unhelped(Message.id) if awaiting_approval else Message.id).desc()
    if to:
        narrow.append(Message.to == to)
    if since:
        narrow.append(Message.id >= first_id(since))
    ranges = [
        ((*of_key, *in_status, *narrow), order)
        for of_key in _of_keys(key, group, visible_to)
        for in_status, order in _ranges(statuses, newest)
    ]
    left, before = limit, ()
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        ids = heapq.nlargest(
            size,
            (
                id
                for conditions, order in ranges
                for (id,) in Message.select(Message.id)
                .where(*conditions, *before)
                .order_by(order)
                .limit(size)
                .tuples()
            ),
        )
        page = _with_keys().where(Message.id.in_(ids))
        yield from page.order_by(Message.id.desc()) if ids else ()
        if len(ids) < size:
            return
        left, before = left and left - size, (Message.id < ids[-1],)


def _of_keys(name, group, visible_to):
    """Return a condition for each key that messages are wanted of, an empty one for all."""
    if name is group is visible_to is None:
        return [()]
    keys = ApiKey.select()
    if name is not None:
        keys = keys.where(ApiKey.name == name)
    if group is not None:
        keys = keys.where(ApiKey.group == group)
    if not keys:
        raise Refused("there is no such key")
    if visible_to:
        own = ApiKey.id == visible_to
        keys = keys.where(own | (ApiKey.group == visible_to.group) if visible_to.group else own)
    return [
        (Message.key == key,)
        if visible_to in (None, key)
        else (Message.key == key, Message.available_to_group)
        for key in keys
    ]


def _ranges(statuses, newest):
    """Return a condition and an order for each of these statuses, so that an index serves it."""
    ranges = []
    few = _unhelped(Message.id).desc()
    for status in statuses:
        if status == Status.QUEUED:
            ranges += [((IS_SENDABLE,), few), ((has_status(status), AWAITS_APPROVAL), few)]
        elif status in FINISHED:
            ranges.append(((has_status(status), HAS_ENDED), newest))
        else:
            ranges.append(((has_status(status),), few))
    return ranges or [((), newest)]


def _unhelped(column):
    """Return a column to sort by as it is: SQLite would read the whole table to spare a sort."""
    return column if on_postgres() else NodeList((SQL("+"), column))


def _with_keys():
    return Message.select(Message, ApiKey).join(ApiKey)


# Pages for the desk: each goes on where the last one ended


class Place(NamedTuple):
    """Where a page of messages ends, and the next begins."""

    send_at: datetime
    id: uuid.UUID


def seen_by(person: Identity) -> ModelSelect:
    """Select the messages, with their keys, that somebody at the desk may see."""
    messages = _with_keys()
    if person.role == Role.OPERATOR:
        return messages
    # As a Value, so that without a group it is "= NULL", which is never true
    return messages.where(Message.available_to_group, ApiKey.group == Value(person.group))


def awaiting(person: Identity, after: Place | None, limit: int) -> list[Message]:
    """Return some that wait for this person's approval, the first to be sent first."""
    return _soonest(_awaiting(person), after, limit)


def count_awaiting(person: Identity, most: int) -> int:
    """Count the messages that wait for this person's approval, up to `most`."""
    return min(most, sum(_count(which, most, Message.send_at) for which in _awaiting(person)))


def _awaiting(person):
    """Return conditions, each served by an index: a status or a group's key at a time."""
    if person.role == Role.OPERATOR:
        return [AWAITS_APPROVAL & has_status(status) for status in WAITING]
    keys = ApiKey.select(ApiKey.id).where(ApiKey.group == Value(person.group))
    return [(Message.key == key) & AWAITS_GROUP for key in keys]


def page(
    status: Status | None,
    number: str | None,
    after: Place | None,
    limit: int,
) -> list[Message]:
    """Return some messages: what waits the soonest first, all else the newest first."""
    if number is None and status in (Status.SCHEDULED, Status.SENDING):
        return _soonest([has_status(status)], after, limit)
    if number is None and status == Status.QUEUED:
        return _soonest([IS_SENDABLE, AWAITS_APPROVAL & has_status(status)], after, limit)
    messages = _with_keys().order_by(Message.id.desc()).limit(limit)
    if number:
        messages = messages.where(Message.to == number)
    if status in FINISHED:
        messages = messages.where(HAS_ENDED)
    if status:
        messages = messages.where(Message.status == status)
    if after:
        messages = messages.where(Message.id < after.id)
    return list(messages)


def _soonest(conditions, after, limit):
    """Return the first messages of several conditions; each index is asked for few."""
    found = []
    for condition in conditions:
        places = Message.select(Message.send_at, Message.id).where(condition)
        if after:
            at, id = Message.send_at.db_value(after.send_at), Message.id.db_value(after.id)
            last = Tuple(Value(at, converter=False), Value(id, converter=False))
            places = places.where(Tuple(Message.send_at, Message.id) > last)
        found.extend(places.order_by(Message.send_at, Message.id).limit(limit).tuples())
    ids = [id for _, id in sorted(found)[:limit]]
    messages = _with_keys().where(Message.id.in_(ids)) if ids else ()
    return sorted(messages, key=lambda message: (message.send_at, message.id))
