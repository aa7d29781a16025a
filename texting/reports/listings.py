"""Listings of messages, for the commands and the desk."""

import uuid
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from peewee import SQL, Expression, Select, Tuple, Value, chunked, fn

from texting.access.keys import ApiKey, Role
from texting.database import EPOCH, MILLISECOND, PAGE, Refused, db, in_pages, pause, with_pauses
from texting.messages import model
from texting.messages.model import Message, Status, first_id, has_status
from texting.reports.queue import UNFINISHED
from texting.reports.search import look_through, matches

AWAITS_OPERATOR = [model.AWAITS_APPROVAL & has_status(status) for status in model.WAITING]
"""What waits for an operator's approval; an index serves each condition."""

# In SQL, as the indexes that begin with the key have them
IS_SENDABLE = f"{has_status(Status.QUEUED).sql} AND approved"
AWAITS_GROUP = f"{has_status(*model.WAITING).sql} AND NOT approved AND available_to_group"

THEIRS = """
    message WHERE key_id = api_key.id AND {which}
    AND (send_at, id) > (?, ?) AND id >= ? AND id < ? ORDER BY send_at, id LIMIT
"""
SOONEST_KEYS = """(
    SELECT id FROM (
        SELECT id,
            (SELECT send_at FROM {theirs} 1) AS first_send_at,
            (SELECT id FROM {theirs} 1) AS first_id
        FROM api_key WHERE {chosen}
    ) AS api_key
    WHERE first_id IS NOT NULL ORDER BY first_send_at, first_id LIMIT ?
) AS api_key"""
AT_ONCE = 400
"""How many rows of what waits are read at once; in a web worker, others go first after each."""

SOONEST = "SELECT {columns} FROM {few} ORDER BY few.send_at, few.id LIMIT ?"
"""The first messages of some keys. Of a page's many keys, those whose own first comes first do."""


class Filter(NamedTuple):
    """Which messages a listing has; the fields are options of `flask messages`."""

    status: str | None = None
    awaiting_approval: bool = False
    to: str | None = None
    key: str | None = None
    country: str | None = None
    group: str | None = None
    visible_to: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Awaiting(NamedTuple):
    """What waits for approval: what tells which texts are alike, and when they go."""

    id: uuid.UUID
    send_at: datetime
    send_date: datetime | None
    to: str | None
    key_id: int
    country: str
    parts: int
    message: str | None

    @property
    def cursor(self) -> "Cursor":
        return Cursor(0, self.send_at, self.id)


class Cursor(NamedTuple):
    """Where a page of a list ends and the next begins: after this row."""

    rank: int  # of a reply; 0 for a message
    at: datetime
    id: uuid.UUID


def listing(
    only: Filter,
    limit: int | None = None,
    among: Expression | None = None,
    after: Cursor | None = None,
) -> Iterator[Message]:
    """Read messages with their keys, the newest first; raise Refused if there is no such key.

    `among` is a condition on those to choose from. Messages are read in pages, so nothing stays
    open between them.
    """
    messages = _chosen(only).order_by(Message.id.desc())
    if among is not None:
        messages = messages.where(among)
    if after:
        messages = messages.where(Message.id < after.id)
    yield from in_pages(messages, limit, lambda last: Message.id < last.id)


def count(only: Filter) -> int:
    """Count the messages of a listing; raise Refused if there is no such key."""
    return _chosen(only).count()


def _chosen(only):
    return _with_keys().where(SQL("true"), *_conditions(only), *_creation_filters(only))


def _conditions(only):
    """Yield the conditions on whose messages are listed, and in which state."""
    if only.status:
        yield has_status(Status(only.status))
    if only.status in model.FINISHED and not only.to:  # few messages have the same number
        yield model.HAS_ENDED  # names the index
    if only.awaiting_approval:
        yield model.AWAITS_APPROVAL
    if only.to:
        yield Message.to == only.to
    if only.country:
        yield Message.country == only.country
    if only.visible_to:
        key = ApiKey.named(only.visible_to)
        yield Message.key.in_([key, *ApiKey.in_group(key.group)])
        yield (Message.key == key) | Message.available_to_group


def _creation_filters(only):
    """Yield the conditions on when, and with which key, messages were created."""
    if only.since:
        yield Message.id >= first_id(only.since)
    if only.until:
        yield Message.id < first_id(only.until)
    if only.key or only.group:
        yield Message.key.in_(chosen_keys(only.key, only.group))


def chosen_keys(name, group):
    """Return the keys with a name, in a group; raise Refused if there are none."""
    keys = ApiKey.select()
    if name:
        keys = keys.where(ApiKey.name == name)
    if group:
        keys = keys.where(ApiKey.group == group)
    if not keys:
        raise Refused("there is no such key")
    return list(keys)


def _with_keys():
    return Message.select(Message, ApiKey).join(ApiKey)


def seen_by(person: ApiKey, ids: Collection[uuid.UUID]) -> list[Message]:
    """Return the messages with these ids that a person at the desk may see, with their keys."""
    if not ids:
        return []
    messages = _with_keys().where(Message.id.in_(list(ids)))
    if person.role != Role.OPERATOR:
        group = Message.key.in_(ApiKey.in_group(person.group))
        messages = messages.where(Message.available_to_group, group)
    return list(messages)


def awaiting(person: ApiKey, after: Cursor | None, limit: int) -> list[Awaiting]:
    """Return some of what waits for this person's approval, the next to be sent first."""
    if person.role != Role.OPERATOR:
        group = {'"group"': person.group}
        columns = [f'"{name}"' for name in Awaiting._fields]
        return _read(_soonest_of_keys(group, AWAITS_GROUP, columns, after, limit))
    rows, found = Message.select(*(getattr(Message, name) for name in Awaiting._fields)), []
    for condition in AWAITS_OPERATOR:
        found.extend(_in_order(rows.where(condition), after, limit).tuples())
    return sorted(map(Awaiting._make, found), key=lambda each: each.cursor)[:limit]


def many_awaiting(person: ApiKey, after: Cursor | None, limit: int) -> list[Awaiting]:
    """Return what `awaiting` does, read in batches: each text once, even if it has moved."""
    found = {}
    while len(found) < limit:
        size = min(AT_ONCE, limit - len(found))
        batch = awaiting(person, after, size)
        found |= {row.id: row for row in batch}
        if len(batch) < size:
            break
        after = batch[-1].cursor
        pause()
    return sorted(found.values(), key=lambda each: each.cursor)


def as_awaiting(message: Message) -> Awaiting:
    """Return what `awaiting` does of a message."""
    return Awaiting._make(getattr(message, name) for name in Awaiting._fields)


def still_awaiting(person: ApiKey, ids: list[uuid.UUID]) -> list[uuid.UUID]:
    """Return which of these messages wait for this person's approval, in the same order."""
    waits, found = model.AWAITS_APPROVAL, set()
    if person.role != Role.OPERATOR:
        waits = model.AWAITS_GROUP & Message.key.in_(ApiKey.in_group(person.group))
    for some in with_pauses(chunked(ids, PAGE)):
        rows = Message.select(Message.id).where(Message.id.in_(some), waits)
        found |= {id for (id,) in rows.tuples()}
    return [id for id in ids if id in found]


def _read(rows):
    """Return rows of the database as what waits for approval."""
    reads = [getattr(Message, name).python_value for name in Awaiting._fields]
    return [
        Awaiting(*(read(value) for read, value in zip(reads, row, strict=True))) for row in rows
    ]


def count_awaiting(person: ApiKey, most: int, since: datetime = EPOCH) -> int:
    """Count the messages that wait for this person's approval and were created since an instant.

    They are looked for among the first `most` to be sent, of each key of a group.
    """
    first = Message.id.db_value(first_id(since))
    if person.role != Role.OPERATOR:
        keys = '(SELECT id FROM api_key WHERE "group" = ?) AS api_key'
        theirs = f"message WHERE key_id = api_key.id AND {AWAITS_GROUP} ORDER BY send_at LIMIT ?"
        few = db.few_of_each(keys, "message", "id", theirs)
        sql = f"SELECT COUNT(*) FILTER (WHERE few.id >= ?) FROM {few}".replace("?", db.param)
        return min(most, db.execute_sql(sql, (first, person.group, most)).fetchone()[0])
    count = 0
    for which in AWAITS_OPERATOR:
        few = Message.select(Message.id).where(which).order_by(Message.send_at).limit(most)
        few = few.alias("few")
        is_new = few.c.id >= Value(first, converter=False)
        count += Select([few], [fn.COUNT(SQL("*"))]).where(is_new).scalar(db)
    return min(most, count)


def page(only: Filter, after: Cursor | None, limit: int) -> list[Message]:
    """Return a page of messages: the next to be sent first if all wait, or the newest first."""
    if only.to or only.status not in UNFINISHED:
        return list(listing(only, limit, after=after))
    conditions = UNFINISHED[only.status]
    if only.status == Status.QUEUED:  # its index begins with the key
        _, awaiting = conditions
        keys = {"name": only.key, '"group"': only.group}
        given = {column: value for column, value in keys.items() if value}
        created = only.since, only.until
        rows = _soonest_of_keys(given, IS_SENDABLE, ["id", "send_at"], after, limit, *created)
        ids = [Message.id.python_value(id) for id, _ in rows]
        conditions = [Message.id.in_(ids), awaiting]
    return _soonest(conditions, after, limit, *_creation_filters(only))


def search(
    only: Filter, words: str, after: Cursor | None, limit: int
) -> tuple[list[Message], Cursor | None]:
    """Return messages of a listing that have words or digits, and where to look further, or None.

    Look through LOOKED_THROUGH messages, the newest first, whether or not the listing has them.
    """
    before = Message.id < after.id if after else SQL("true")
    created = _creation_filters(only._replace(key=None))
    rows = Message.select(Message.id).where(before, *created).order_by(Message.id.desc())
    matching = _chosen(only).where(before, matches(words, Message.to, Message.message))
    matching = matching.order_by(Message.id.desc())
    found, end = look_through(rows, matching, lambda last: Message.id >= last.id, limit)
    return found, end and Cursor(0, EPOCH, end.id)


def _soonest_of_keys(keys, which, columns, after, limit, since=None, until=None):
    """Return columns, as they are stored, of the first messages of a kind that some keys have.

    One statement finds them, by an index that begins with the key. `keys` has columns' values.
    """
    after = after or Cursor(0, EPOCH - MILLISECOND, uuid.UUID(int=0))
    end = first_id(until) if until else uuid.UUID(int=2**128 - 1)
    ids = map(Message.id.db_value, (after.id, first_id(since or EPOCH), end))
    bounds = [Message.send_at.db_value(after.at), *ids]
    chosen = " AND ".join([f"{column} = ?" for column in keys] or ["true"])
    theirs = THEIRS.format(which=which)
    soonest_keys = SOONEST_KEYS.format(theirs=theirs, chosen=chosen)
    few = db.few_of_each(soonest_keys, "message", ", ".join(columns), f"{theirs} ?")
    values = *bounds, *bounds, *keys.values(), limit, *bounds, limit, limit
    sql = SOONEST.format(columns=", ".join(f"few.{each}" for each in columns), few=few)
    return db.execute_sql(sql.replace("?", db.param), values).fetchall()


def _soonest(conditions, after, limit, *all_meet):
    """Return the first messages that meet any of several conditions, each served by an index."""
    found = []
    for condition in conditions:
        found.extend(_in_order(_with_keys().where(condition, *all_meet), after, limit))
    return sorted(found, key=lambda message: (message.send_at, message.id))[:limit]


def _in_order(messages, after, limit):
    """Return the first of some messages after a cursor, the next to be sent first."""
    if after:
        at, id = Message.send_at.db_value(after.at), Message.id.db_value(after.id)
        last = Tuple(Value(at, converter=False), Value(id, converter=False))
        messages = messages.where(Tuple(Message.send_at, Message.id) > last)
    return messages.order_by(Message.send_at, Message.id).limit(limit)


def times_texted(numbers: Collection[str], since: datetime) -> dict[str, int]:
    """Count the texts that a carrier took for each of these numbers since an instant.

    Those of testers count for no number.
    """
    taken = has_status(*model.TAKEN) & (Message.finished_at >= since)
    taken &= Message.key.not_in(ApiKey.testers())
    texts = Message.select(Message.to, fn.COUNT(SQL("*"))).where(Message.to.in_([*numbers]), taken)
    return dict(texts.group_by(Message.to).tuples()) if numbers else {}
