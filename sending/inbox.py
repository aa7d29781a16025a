"""The replies of recipients, as people list, find and count them."""

import uuid
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import reduce
from itertools import groupby
from operator import attrgetter, or_
from typing import NamedTuple

from peewee import SQL, Case, Expression, Tuple, Value, fn

from access.keys import ApiKey, Role
from database import PAGE, in_pages
from reports.listings import Cursor
from reports.matching import look_through, matches
from sending.replies import MAY_BE_NO, WAITS, Reply

RANKS = (WAITS & MAY_BE_NO, WAITS & SQL("NOT may_be_no"), SQL("(read_at IS NOT NULL OR opted_out)"))
"""The conditions of the ranks in which the desk lists replies, the first rank first."""

OF_A_NUMBER = 5  # replies that are shown together


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
    """Read replies, the newest first, in pages."""
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
    """Return what some numbers wrote, in the order in which `page` has the first reply of each."""
    found, seen = [], set()
    while len(found) < limit and (some := page(person, after, limit, now, excluded=seen)):
        numbers = {reply.number for reply in some}
        # Without those whose first reply is on an earlier page
        firsts = {group[0].id: group for group in _of_each(numbers, person, now)}
        found += [firsts[reply.id] for reply in some if reply.id in firsts]
        seen |= numbers
        after = some[-1].cursor
    return found[:limit]


def _of_each(numbers, person, now):
    """Return the first replies of each number, in the order of `page`, with their `total`."""
    ranks = Case(None, [(rank, n) for n, rank in enumerate(RANKS)])
    place = fn.ROW_NUMBER().over(
        partition_by=[Reply.number], order_by=[ranks, Reply.at.desc(), Reply.id.desc()]
    )
    total = fn.COUNT(Reply.id).over(partition_by=[Reply.number])
    visible = reduce(or_, _visible_to(person))
    theirs = Reply.shown(now).where(Reply.number.in_([*numbers]), visible)
    placed = theirs.select(Reply, place.alias("place"), total.alias("total"))
    first = Reply.select(SQL("*")).from_(placed).where(SQL("place") <= OF_A_NUMBER)
    in_order = first.order_by(SQL("number"), SQL("place"))
    return [[*group] for _, group in groupby(in_order, key=attrgetter("number"))]


def search(
    person: ApiKey, words: str, after: Cursor | None, limit: int, now: datetime
) -> tuple[list[list[Reply]], Cursor | None]:
    """Return replies that have words or digits, by number, and where to look further.

    Look through LOOKED_THROUGH replies, the newest first, including those of others.
    """
    before = _is_before(after) if after else SQL("true")
    newest_first = Reply.at.desc(), Reply.id.desc()
    rows = Reply.select().where(before).order_by(*newest_first)
    visible = reduce(or_, _visible_to(person), SQL("false"))
    matching = Reply.shown(now).where(before, visible, matches(words, Reply.number, Reply.text))
    matching = matching.order_by(*newest_first)
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
    """Return some replies, those that may be a no first, those that were read last.

    Leave out those of the `excluded` numbers.
    """
    found = []
    for rank in range(after.rank if after else 0, len(RANKS)):
        some = []
        for visible in _visible_to(person):
            replies = Reply.shown(now).where(RANKS[rank], visible)
            if excluded:
                replies = replies.where(Reply.number.not_in([*excluded]))
            if after and after.rank == rank:
                replies = replies.where(_is_before(after))
            replies = replies.order_by(Reply.at.desc(), Reply.id.desc())
            some.extend(replies.limit(limit - len(found)))
        found += sorted(some, key=lambda each: (each.at, each.id), reverse=True)
        if len(found) >= limit:
            break
    return found[:limit]


def of_message(message_id: uuid.UUID, now: datetime, limit: int = PAGE) -> list[Reply]:
    """Return the latest replies to a message, the oldest of them first."""
    replies = Reply.shown(now).where(Reply.message_id == message_id)
    return list(replies.order_by(Reply.at.desc(), Reply.id.desc()).limit(limit))[::-1]


def seen_by(person: ApiKey, ids: Collection[uuid.UUID]) -> list[Reply]:
    """Return the replies with these ids that a person at the desk may see."""
    found = list(Reply.select().where(Reply.id.in_([*ids]))) if ids else []
    if person.role != Role.OPERATOR:
        keys = {key.id for key in ApiKey.in_group(person.group)}
        found = [each for each in found if each.available_to_group and each.key in keys]
    return found


def count_waiting(person: ApiKey, most: int, now: datetime) -> int:
    """Count the replies that this person has yet to read, up to `most`."""
    counts = (
        Reply.shown(now).where(WAITS, visible).limit(most).count()
        for visible in _visible_to(person)
    )
    return min(most, sum(counts))


def waiting(now: datetime) -> Waiting:
    """Count the replies that wait to be read, and those of them that may be a no."""
    newest = fn.MAX(Reply.id.cast("text")).coerce(False)  # Postgres has no largest UUID
    all, may_be_no = fn.COUNT(SQL("*")), fn.COUNT(SQL("*")).filter(MAY_BE_NO)
    shown = Reply.shown(now).where(WAITS).select(all, may_be_no, newest)
    return Waiting(*shown.tuples().get())


def _visible_to(person) -> list[Expression]:
    """Return conditions that an index serves: one for each key of a group."""
    if person.role == Role.OPERATOR:
        return [SQL("true")]
    of_group = SQL("available_to_group")
    return [(Reply.key == key.id) & of_group for key in ApiKey.in_group(person.group)]


def _is_before(last):
    """Return the condition that a reply is listed after this one, or this cursor."""
    place = (
        Value(field.db_value(value), converter=False)
        for field, value in ((Reply.at, last.at), (Reply.id, last.id))
    )
    return Tuple(Reply.at, Reply.id) < Tuple(*place)
