"""The replies of recipients, as people list, find and count them."""

import uuid
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from peewee import SQL, Tuple, Value, fn

from texting.access.keys import ApiKey, Role
from texting.database import LAST, PAGE, db, in_pages, pause
from texting.replies.model import IS_DONE, MAY_BE_NO, OF_GROUP, URGENCY, WAITS, Reply
from texting.reports.listings import Cursor
from texting.reports.search import look_through, matches

RANKS = (
    ("waiting", f"{WAITS.sql} AND may_be_no = true"),
    ("waiting", f"{WAITS.sql} AND may_be_no = false"),
    ("done", IS_DONE.sql),
)
"""The ranks in which the desk lists replies: ends of indexes' names, and conditions; first first.

The indexes have all that pages look at: a number may have sent any number of long replies.
"""

KEYS = '(SELECT id FROM api_key WHERE "group" = ?) AS api_key'
IS_SHOWN = "(due_at IS NULL OR due_at <= ?)"
OF_KEY = f"key = api_key.id AND available_to_group AND {IS_SHOWN}"
"""The SQL condition for the replies that a key's group may see."""

OF_A_NUMBER, MOST_OTHERS = 5, 1_000  # replies shown together, and counted, at most


class Waiting(NamedTuple):
    """The replies that wait to be read."""

    replies: int
    may_be_no: int
    newest: str | None  # the largest id


def listing(
    now: datetime,
    limit: int | None = None,
    *,
    unread: bool = False,
    may_be_no: bool = False,
    to: str | None = None,
    since: datetime | None = None,
) -> Iterator[Reply]:
    """Read replies, newest first, in pages."""
    chosen = Reply.shown(now).order_by(Reply.at.desc(), Reply.id.desc())
    if unread:
        chosen = chosen.where(WAITS)
    if may_be_no:
        chosen = chosen.where(WAITS, MAY_BE_NO)
    if to:
        chosen = chosen.where(Reply.number == to)
    if since:
        chosen = chosen.where(Reply.at >= since)
    yield from in_pages(chosen, limit, _is_before)


def conversations(
    person: ApiKey, after: Cursor | None, limit: int, now: datetime
) -> list[list[Reply]]:
    """Return what some numbers wrote, in the order in which `page` lists their first replies.

    The first reply of each number has counted the `others`.
    """
    found, seen = [], set()
    while len(found) < limit and (some := page(person, after, limit, now, excluded=seen)):
        numbers = {reply.number for reply in some}
        # Without those whose first reply is on an earlier page
        firsts = {replies[0].id: replies for replies in _first_of_each(numbers, person, now)}
        found += [firsts[reply.id] for reply in some if reply.id in firsts]
        seen |= numbers
        after = some[-1].cursor
        pause()
    del found[limit:]
    _count_others([group[0] for group in found if len(group) == OF_A_NUMBER], person, now)
    return found


def _first_of_each(numbers, person, now):
    """Return the first few replies of each number, in the order of `page`."""
    visible, parameters = _seen_of_number(person, now)
    first = f"reply WHERE {visible} ORDER BY {URGENCY} DESC, at DESC, id DESC LIMIT {OF_A_NUMBER}"
    few = db.few_of_each(db.rows_of_array("given", "text"), "reply", "*", first)
    sql = f"SELECT few.* FROM {few}".replace("?", db.param)
    found = Reply.raw(sql, db.array(numbers), *parameters)
    in_order = sorted(found, key=lambda each: (each.number, -each.rank, each.at, each.id))[::-1]
    return [[*replies] for _, replies in groupby(in_order, key=attrgetter("number"))]


def _count_others(replies, person, now):
    """Count the replies of each number beyond those that are shown."""
    if not replies:
        return
    visible, parameters = _seen_of_number(person, now)
    some = f"SELECT 1 FROM reply WHERE {visible} LIMIT {OF_A_NUMBER + MOST_OTHERS}"
    given = db.rows_of_array("given", "text")
    sql = f"SELECT value, (SELECT COUNT(*) FROM ({some}) AS few) FROM {given}"
    numbers = db.array({reply.number for reply in replies})
    counts = dict(db.execute_sql(sql.replace("?", db.param), (*parameters, numbers)).fetchall())
    for reply in replies:
        reply.others = counts[reply.number] - OF_A_NUMBER


def _seen_of_number(person, now):
    """Return the SQL condition for visible replies of a `given` number, and its values."""
    sql = f"number = given.value AND {IS_SHOWN}"
    values = [Reply.due_at.db_value(now)]
    if person.role != Role.OPERATOR:
        sql += ' AND available_to_group AND key IN (SELECT id FROM api_key WHERE "group" = ?)'
        values.append(person.group)
    return sql, values


def search(
    person: ApiKey, words: str, after: Cursor | None, limit: int, now: datetime
) -> tuple[list[list[Reply]], Cursor | None]:
    """Return the replies that contain words or digits, by number, and where to go on searching.

    Search LOOKED_THROUGH of the replies that this person may see, newest first.
    """
    before = _is_before(after) if after else SQL("true")
    theirs = Reply.shown(now).where(before, _is_visible(person))
    rows = theirs.order_by(Reply.at.desc(), Reply.id.desc())
    matching = rows.where(matches(words, Reply.number, Reply.text))
    found, end = look_through(rows, matching, lambda last: ~_is_before(last), limit)
    grouped = {}
    for reply in found:
        grouped.setdefault(reply.number, []).append(reply)
    return [*grouped.values()], end and end.cursor


def page(
    person: ApiKey,
    after: Cursor | None,
    limit: int,
    now: datetime,
    excluded: Collection[str] = (),
) -> list[Reply]:
    """Return some replies: first those that may be a no, last those that were read.

    Leave out the `excluded` numbers.
    """
    found = []
    for rank in range(after.rank if after else 0, len(RANKS)):
        begin = after if after and after.rank == rank else None
        left = limit - len(found)
        if person.role == Role.OPERATOR:
            ids = _latest_of_all(rank, begin, left, now, excluded)
        else:
            ids = _latest_of_group(person.group, rank, begin, left, now, excluded)
        replies = [*Reply.select().where(Reply.id.in_(ids))] if ids else []
        replies = [each for each in replies if each.rank == rank]  # unless it has just changed
        found.extend(sorted(replies, key=attrgetter("at", "id"), reverse=True))
        if len(found) >= limit:
            break
    return found


def _latest_of_all(rank, after, limit, now, excluded):
    """Return the ids of the latest replies of a rank, in the order of `page`."""
    after = after or Cursor(rank, LAST, uuid.UUID(int=0))
    index, of_rank = RANKS[rank]
    given = db.rows_of_array("given", "text")
    sql = (
        f"SELECT id FROM reply {db.by_index(f'reply_{index}')} WHERE {of_rank} AND {IS_SHOWN} "
        f"AND (at, id) < (?, ?) AND number NOT IN (SELECT value FROM {given}) "
        "ORDER BY at DESC, id DESC LIMIT ?"
    )
    due = Reply.due_at.db_value(now)
    values = (
        due,
        Reply.at.db_value(after.at),
        Reply.id.db_value(after.id),
        db.array(excluded),
        limit,
    )
    found = db.execute_sql(sql.replace("?", db.param), values).fetchall()
    return [Reply.id.python_value(id) for (id,) in found]


def _latest_of_group(group, rank, after, limit, now, excluded):
    """Return the ids of the latest replies of a rank that a group may see, in the order of `page`.

    One statement finds them, through an index that begins with the key.
    """
    after = after or Cursor(rank, LAST, uuid.UUID(int=0))
    index, of_rank = RANKS[rank]
    theirs = (
        f"reply {db.by_index(f'reply_group_{index}')} WHERE {OF_KEY} AND {of_rank} "
        "AND (at, id) < (?, ?) AND number NOT IN "
        f"(SELECT value FROM {db.rows_of_array('given', 'text')}) "
        "ORDER BY at DESC, id DESC LIMIT ?"
    )
    few = db.few_of_each(KEYS, "reply", "id, at", theirs)
    sql = f"SELECT few.id FROM {few} ORDER BY few.at DESC, few.id DESC LIMIT ?"
    place = Reply.at.db_value(after.at), Reply.id.db_value(after.id)
    due = Reply.due_at.db_value(now)
    values = group, due, *place, db.array(excluded), limit, limit
    found = db.execute_sql(sql.replace("?", db.param), values).fetchall()
    return [Reply.id.python_value(id) for (id,) in found]


def of_message(message_id: uuid.UUID, now: datetime, limit: int = PAGE) -> list[Reply]:
    """Return the latest replies to a message, in the order in which they came."""
    replies = Reply.shown(now).where(Reply.message_id == message_id)
    return list(replies.order_by(Reply.at.desc(), Reply.id.desc()).limit(limit))[::-1]


def seen_by(person: ApiKey, ids: Collection[uuid.UUID]) -> list[Reply]:
    """Return those of these replies that a person at the desk may see."""
    found = list(Reply.select().where(Reply.id.in_([*ids]))) if ids else []
    if person.role != Role.OPERATOR:
        keys = {key.id for key in ApiKey.in_group(person.group)}
        found = [each for each in found if each.available_to_group and each.key in keys]
    return found


def count_waiting(person: ApiKey, most: int, now: datetime) -> int:
    """Count this person's unread replies, up to `most`."""
    if person.role == Role.OPERATOR:
        return Reply.shown(now).where(WAITS).limit(most).count()
    few = db.few_of_each(KEYS, "reply", "id", f"reply WHERE {OF_KEY} AND {WAITS.sql} LIMIT ?")
    sql = f"SELECT COUNT(*) FROM (SELECT few.id FROM {few} LIMIT ?) AS found"
    values = person.group, Reply.due_at.db_value(now), most, most
    return db.execute_sql(sql.replace("?", db.param), values).fetchone()[0]


def waiting(now: datetime) -> Waiting:
    """Count the unread replies, and how many of them may be a no."""
    newest = fn.MAX(Reply.id.cast("text")).coerce(False)  # Postgres has no largest UUID
    all, may_be_no = fn.COUNT(SQL("*")), fn.COUNT(SQL("*")).filter(MAY_BE_NO)
    shown = Reply.shown(now).where(WAITS).select(all, may_be_no, newest)
    return Waiting(*shown.tuples().get())


def _is_visible(person):
    """Match replies that a person at the desk may see."""
    if person.role == Role.OPERATOR:
        return SQL("true")
    return OF_GROUP & Reply.key.in_(ApiKey.in_group(person.group))


def _is_before(last):
    """Match replies that are listed after this reply, or after this cursor."""
    place = (
        Value(field.db_value(value), converter=False)
        for field, value in ((Reply.at, last.at), (Reply.id, last.id))
    )
    return Tuple(Reply.at, Reply.id) < Tuple(*place)
