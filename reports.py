"""Reports: what people and monitoring ask about messages. Nothing here changes a message."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from peewee import SQL, Case, Select, Tuple, Value, ValuesList, fn

from database import EPOCH, PAGE, InstantField, Refused, db
from keys import MAY_SEND, ApiKey, Identity, Role
from limits import SECOND, KeyUse, Limit, parse
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
"""Messages in which the commonest error is looked for."""

LATEST, FEWEST = 20, 5
"""Messages that ended lately: how many are judged at most, and at least."""

RECEIPT_WITHIN = timedelta(minutes=1)
"""How long a text without a receipt is neither a good end nor a bad one."""


PARTS = fn.COALESCE(Message.parts, 1)
"""The parts of a message; one where a version before migration 0014 stored none."""

UNFINISHED = {
    Status.SCHEDULED: [has_status(Status.SCHEDULED)],
    Status.QUEUED: [IS_SENDABLE, AWAITS_APPROVAL & has_status(Status.QUEUED)],
    Status.SENDING: [has_status(Status.SENDING)],
}
"""Conditions for the statuses that are not final; an index serves each."""


# Counts and instants


def awaiting_approval() -> int:
    """Count the messages that wait for approval."""
    return _count(AWAITS_APPROVAL)


class Approvals(NamedTuple):
    """The messages that wait for approval."""

    messages: int
    newest: str | None  # the largest id
    first_at: datetime | None  # when the first would leave


def approvals() -> Approvals:
    """Return how many messages wait for approval, and the first and the newest of them."""
    newest = fn.MAX(Message.id.cast("text")).coerce(False)  # Postgres has no largest UUID
    row = Message.select(fn.COUNT(SQL("*")), newest, fn.MIN(Message.send_at))
    return Approvals(*row.where(AWAITS_APPROVAL).tuples().get())


def approvals_by_key() -> list[tuple[str, int]]:
    """Count the messages that wait for approval by the names of their keys, the most first."""
    messages = fn.COUNT(SQL("*"))
    counts = Message.select(ApiKey.name, messages).join(ApiKey).where(AWAITS_APPROVAL)
    return list(counts.group_by(ApiKey.name).order_by(messages.desc(), ApiKey.name).tuples())


def awaiting_carrier(testers: bool | None = None) -> int:
    """Count the messages that may be sent now: all, those of testers, or those of the others."""
    if testers is None:
        return _count(IS_SENDABLE)
    # In one statement: between two, a claim of testers' texts would hide as many of the others
    return _count(IS_SENDABLE & (Message.key.in_(ApiKey.testers()) if testers else _of_senders()))


def next_parts(limit: int) -> list[int]:
    """Return the parts of some messages of senders that may be sent now, one number for each."""
    found = Message.select(PARTS).where(IS_SENDABLE, _of_senders()).limit(limit)
    return [parts for (parts,) in found.tuples()]


def claimed_before(instant: datetime) -> bool:
    """Say whether a claim has not been renewed since an instant."""
    held = has_status(Status.SENDING) & (Message.claimed_at < instant)
    return Message.select().where(held).exists()


def oldest_due(now: datetime) -> datetime | None:
    """Return when the message that has waited longest to be sent was due, if any waits.

    Here and below, testers' messages do not count: they say nothing about the service.
    """
    due = Message.select(fn.MIN(Message.send_at)).where(
        has_status(Status.SCHEDULED), Message.send_at <= now, _of_senders()
    )
    tried = Message.select(fn.MIN(Message.due_since)).where(IS_RETRYING, _of_senders())
    instants = due.scalar(), tried.scalar(), _oldest_sendable()
    return min(filter(None, instants), default=None)


def _oldest_sendable():
    """Return since when the first message of any key could have been sent."""
    ready_at = Case(
        None, [(Message.approved_at > Message.send_at, Message.approved_at)], Message.send_at
    )
    first = (
        Message.select(ready_at)
        .where(Message.key == ApiKey.id, IS_SENDABLE)
        .order_by(Message.send_at, Message.id)
        .limit(1)
    )
    earliest = ApiKey.select(fn.MIN(first)).where(ApiKey.role != Role.TESTER)
    return Message.send_at.python_value(earliest.scalar())


def _of_senders():
    """Return the condition that a message is of a key whose texts go to the carrier."""
    return Message.key.not_in(ApiKey.testers())


def retrying() -> int:
    """Count the messages that wait for another try."""
    return _count(IS_RETRYING)


def last_sent_at() -> datetime | None:
    """Return when a carrier last took a text."""
    latest = (
        Message.select(fn.MAX(Message.finished_at))
        .where(Message.status == status, HAS_ENDED, _of_senders())
        .scalar()
        for status in TAKEN
    )
    return max(filter(None, latest), default=None)


def commonest_error(since: datetime) -> tuple[str, int] | None:
    """Return the commonest error since an instant, and how many messages had it.

    Only the latest SAMPLE retried messages, failed ones and undelivered ones count, so an outage
    with a million failures does not slow this down.
    """
    counts = Counter()
    errors = [(HAS_ERROR, Message.last_error_at)]
    for status in (Status.FAILED, Status.UNDELIVERED):
        errors.append(((Message.status == status) & HAS_ENDED, Message.finished_at))
    for which, at in errors:
        latest = (
            Message.select(Message.last_error)
            .where(which, _of_senders(), at >= since, Message.last_error.is_null(False))
            .order_by(at.desc())
            .limit(SAMPLE)
        )
        counts.update(error for (error,) in latest.tuples())
    return next(iter(counts.most_common(1)), None)


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


def bad_end(now: datetime) -> FailureSpike | None:
    """Return why most of the latest messages ended badly, if they did so for one reason.

    The latest LATEST of the last hour are judged, if there are FEWEST. Once none of the latest
    FEWEST ended for this reason, it is over.

    A text is undelivered by a receipt, which takes a while. Only what ended before the first text
    that still awaits one is judged: those under way are not better, and bad receipts may be faster
    than good ones.
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
    sent = (Message.status == Status.SENT) & HAS_ENDED & _of_senders() & recent
    return Message.select(fn.MIN(Message.finished_at)).where(sent).scalar()


def _latest_ended(since, until):
    """Return the latest LATEST messages that a carrier took or that failed, the latest first."""
    found, ended = [], _of_senders() & HAS_ENDED & (Message.finished_at >= since)
    if until:
        ended &= Message.finished_at < until
    columns = (Message.id, Message.status, Message.finished_at, Message.last_error)
    for status in (*TAKEN, Status.FAILED):  # one index lookup each
        each = Message.select(*columns).where(Message.status == status, ended)
        found.extend(each.order_by(Message.finished_at.desc(), Message.id.desc()).limit(LATEST))
    return sorted(found, key=lambda each: (each.finished_at, each.id), reverse=True)[:LATEST]


def waiting() -> dict[str, int]:
    """Count the messages in each status that is not final; indexes serve it."""
    return {status: sum(map(_count, which)) for status, which in UNFINISHED.items()}


def by_status() -> dict[str, int]:
    """Count the messages in every status; reads the whole table."""
    counts = Message.select(Message.status, fn.COUNT(SQL("*"))).group_by(Message.status)
    return dict.fromkeys(Status, 0) | dict(counts.tuples())


def ended_since(instant: datetime, most: int | None = None) -> dict[str, int]:
    """Count the messages that ended at or after an instant, by status, each up to `most`.

    One query for each status needs the index alone; GROUP BY takes ten times as long.
    """
    since = Message.finished_at >= instant
    return {
        status: _count((Message.status == status) & since, most, Message.finished_at)
        for status in FINISHED
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
    counted = [_counted(each, most, Message.send_at) for each in (due, due & AWAITS_APPROVAL)]
    counts = [*Select([spans], counted).order_by(since).tuples().execute(db)]
    total, unapproved = counts[0]
    queued = _count(IS_SENDABLE, most, Message.key, Message.send_at)
    return [(min(most, total + queued), unapproved), *counts[1:]]


def due_once_approved(most: int) -> int:
    """Count the messages that only an approval keeps from being sent now, up to `most`."""
    return _count(has_status(Status.QUEUED) & AWAITS_APPROVAL, most, Message.send_at)


def _count(condition, most=None, *order):
    """Count the messages that meet a condition, up to `most` of them.

    A count with a limit needs the order of an index, or Postgres may read the whole table.
    """
    return _counted(condition, most, *order).scalar(db)


def _counted(condition, most, *order):
    few = Message.select(SQL("1")).where(condition).order_by(*order).limit(most)
    return Select([few.alias("few")], [fn.COUNT(SQL("*"))])


# Listings for the commands


class Filter(NamedTuple):
    """Which messages a listing has; each field is an option of `flask messages`."""

    status: str | None = None
    awaiting_approval: bool = False
    to: str | None = None
    key: str | None = None
    group: str | None = None
    visible_to: str | None = None
    since: datetime | None = None


def listing(
    only: Filter, limit: int | None = None, among: Collection[str] = ()
) -> Iterator[Message]:
    """Read messages with their keys, the newest first; Refused if a key does not exist.

    `among` names the statuses to choose from, if not all. Messages are read in pages, so nothing
    stays open between them.
    """
    messages = _chosen(only).order_by(Message.id.desc())
    if among:
        messages = messages.where(has_status(*among))
    while limit is None or limit > 0:
        size = PAGE if limit is None else min(PAGE, limit)
        page = list(messages.limit(size))
        yield from page
        if len(page) < size:
            return
        limit = limit and limit - size
        messages = messages.where(Message.id < page[-1].id)


def _chosen(only):
    messages = _with_keys()
    if only.status:
        messages = messages.where(has_status(Status(only.status)))
    if only.status in FINISHED and not only.to:  # few messages have the same number
        messages = messages.where(HAS_ENDED)  # names the index
    if only.awaiting_approval:
        messages = messages.where(AWAITS_APPROVAL)
    if only.to:
        messages = messages.where(Message.to == only.to)
    if only.since:
        messages = messages.where(Message.id >= first_id(only.since))
    if only.key or only.group:
        messages = messages.where(Message.key.in_(_keys(only.key, only.group)))
    if only.visible_to:
        key = ApiKey.named(only.visible_to)
        seen = (Message.key == key) | Message.available_to_group
        messages = messages.where(Message.key.in_([key, *_keys_of(key.group)]), seen)
    return messages


def _keys(name, group):
    keys = ApiKey.select()
    if name:
        keys = keys.where(ApiKey.name == name)
    if group:
        keys = keys.where(ApiKey.group == group)
    if not keys:
        raise Refused("there is no such key")
    return list(keys)


def _keys_of(group):
    """Select the keys of a group; none without a group."""
    # As a Value, so that None becomes "= NULL", which is never true
    return ApiKey.select(ApiKey.id).where(ApiKey.group == Value(group))


def _with_keys():
    return Message.select(Message, ApiKey).join(ApiKey)


# Messages for the desk


class Place(NamedTuple):
    """Where a page of messages ends and the next begins."""

    send_at: datetime
    id: uuid.UUID


def seen_by(person: Identity, ids: Collection[uuid.UUID]) -> list[Message]:
    """Return those of some messages that a person at the desk may see, with their keys."""
    if not ids:
        return []
    messages = _with_keys().where(Message.id.in_(list(ids)))
    if person.role != Role.OPERATOR:
        group = Message.key.in_(_keys_of(person.group))
        messages = messages.where(Message.available_to_group, group)
    return list(messages)


def awaiting(person: Identity, after: Place | None, limit: int) -> list[Message]:
    """Return some messages that wait for this person's approval, the next to be sent first."""
    return _soonest(_awaiting(person), after, limit)


def count_awaiting(person: Identity, most: int) -> int:
    """Count the messages that wait for this person's approval, up to `most`."""
    return min(most, sum(_count(which, most, Message.send_at) for which in _awaiting(person)))


def _awaiting(person):
    """Return conditions that an index serves: one for each status, or for each key of a group."""
    if person.role == Role.OPERATOR:
        return [AWAITS_APPROVAL & has_status(status) for status in WAITING]
    return [(Message.key == key) & AWAITS_GROUP for key in _keys_of(person.group)]


def page(
    status: Status | None, number: str | None, after: Place | None, limit: int
) -> list[Message]:
    """Return some messages: the next to be sent first if all wait, otherwise the newest first."""
    if number is None and status in UNFINISHED:
        conditions = UNFINISHED[status]
        if status == Status.QUEUED:  # its index begins with the key
            sendable, awaiting = conditions
            conditions = [*(sendable & (Message.key == key) for key in _with_sendable()), awaiting]
        return _soonest(conditions, after, limit)
    messages = _chosen(Filter(status=status, to=number)).order_by(Message.id.desc())
    if after:
        messages = messages.where(Message.id < after.id)
    return list(messages.limit(limit))


def _with_sendable():
    """Select the keys that have messages to be sent."""
    keys = ApiKey.alias("api_key")
    theirs = Message.select().where(Message.key == keys.id, IS_SENDABLE)
    return keys.select().where(fn.EXISTS(theirs))


def _soonest(conditions, after, limit):
    """Return the first messages that meet any of several conditions, each served by an index."""
    found = []
    for condition in conditions:
        messages = _with_keys().where(condition)
        if after:
            at, id = Message.send_at.db_value(after.send_at), Message.id.db_value(after.id)
            last = Tuple(Value(at, converter=False), Value(id, converter=False))
            messages = messages.where(Tuple(Message.send_at, Message.id) > last)
        found.extend(messages.order_by(Message.send_at, Message.id).limit(limit))
    return sorted(found, key=lambda message: (message.send_at, message.id))[:limit]


def times_texted(numbers: Collection[str], since: datetime) -> dict[str, int]:
    """Count the texts that a carrier took for each of these numbers since an instant."""
    taken = has_status(*TAKEN) & (Message.finished_at >= since) & _of_senders()
    texts = Message.select(Message.to, fn.COUNT(SQL("*"))).where(Message.to.in_([*numbers]), taken)
    return dict(texts.group_by(Message.to).tuples()) if numbers else {}


# Usage


USED = (Status.SENT, Status.DELIVERED, Status.UNDELIVERED, Status.FAILED)
"""The statuses that count as use."""


class Usage(NamedTuple):
    """What the keys of one name have sent to one country in a month."""

    key: str
    country: str | None  # None where a version before migration 0014 stored the texts
    texts: int
    parts: int
    sent: int
    delivered: int
    undelivered: int
    failed: int


def usage(since: datetime, until: datetime, key: str | None = None) -> list[Usage]:
    """Return what was accepted from one instant to another, by key and country.

    Raise Refused if no key has this name.
    """
    accepted = (Message.id >= first_id(since)) & (Message.id < first_id(until))
    if key:
        accepted &= Message.key.in_(_keys(key, None))
    columns = Message.key, Message.country, Message.status
    sums = Message.select(*columns, fn.COUNT(SQL("*")), fn.SUM(PARTS)).group_by(*columns)
    sums = sums.where(accepted, has_status(*USED))
    names = dict(ApiKey.select(ApiKey.id, ApiKey.name).tuples())
    of_status, of_parts = {}, Counter()
    for key_id, country, status, texts, parts in sums.tuples():
        used = names[key_id], country
        of_status.setdefault(used, Counter())[status] += texts
        of_parts[used] += parts
    return [
        Usage(*used, counts.total(), of_parts[used], *(counts[status] for status in USED))
        for used in sorted(of_parts, key=lambda used: (used[0], used[1] or ""))
        for counts in [of_status[used]]
    ]


# Limits


class Use(NamedTuple):
    """A limit of a key, and how much of it is used up."""

    limit: Limit
    used: int
    is_default: bool  # one of KEY_LIMITS

    @property
    def is_up(self) -> bool:
        return self.used >= self.limit.number


def use_of_limits(
    keys: Collection[ApiKey], now: datetime, defaults: tuple[Limit, ...]
) -> dict[int, list[Use]]:
    """Return the limits of keys by id; a key that is revoked or sends nothing has none."""
    rows, second, found = KeyUse.all(), (now - EPOCH) // SECOND, {}
    for key in keys:
        own = parse(key.limits or "")
        limits = () if key.revoked_at or key.role not in MAY_SEND else own or defaults
        tally = Message.tally_of(key.id, rows.get(key.id), [second]) if limits else None
        found[key.id] = [Use(each, tally.used(each.seconds, second), not own) for each in limits]
    return found


def at_limit(now: datetime, defaults: tuple[Limit, ...]) -> list[tuple[str, Limit]]:
    """Return the names of the keys that have a limit used up now, and the longest such limit."""
    uses = _uses_today(now, defaults)
    up = ((key.name, [use.limit for use in limits if use.is_up]) for key, limits in uses)
    return [(name, limits[-1]) for name, limits in up if limits]


def use_of_days(now: datetime, defaults: tuple[Limit, ...]) -> list[tuple[ApiKey, Use]]:
    """Return the keys that were used today and have a limit of a day, with its use."""
    uses = _uses_today(now, defaults)
    return [(key, use) for key, limits in uses for use in limits if use.limit.unit == "d"]


def _uses_today(now, defaults):
    """Return the keys that were used today, by name, with the use of their limits."""
    today = (now - EPOCH).days * 86_400
    keys = ApiKey.live(now).join(KeyUse, on=(KeyUse.key_id == ApiKey.id))
    used_today = list(keys.where(KeyUse.second >= today).order_by(ApiKey.name))
    uses = use_of_limits(used_today, now, defaults)
    return [(key, uses[key.id]) for key in used_today]
