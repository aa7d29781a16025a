"""The cards of what waits for approval: texts that are alike are one card, decided together."""

import base64
import re
import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from flask import current_app
from markupsafe import Markup

from texting import recipients
from texting.access.keys import ApiKey, rules_of
from texting.database import with_pauses
from texting.desk import grouping
from texting.desk.entries import Entry
from texting.desk.lists import PAGE
from texting.desk.words import counted, marked
from texting.messages.model import Message
from texting.reports import listings
from texting.reports.listings import Awaiting, Cursor
from texting.sending import outcomes

LOOKED_OVER = 10_000
"""Among how many texts those that are alike are found; the form of a button has room for these.

They are shown in the order in which they go. Those that follow are as the database has them.
"""

GROUPED_AT_ONCE = 100
"""Of how many texts the groups are found before others have a turn: 50 ms for the longest."""

FURTHER = 1  # the rank of a cursor behind LOOKED_OVER

COUNTRIES = 3  # that a card names

_VALUE = re.compile("all[.]([0-9A-Za-z_-]+)")


@dataclass
class Pile:
    """Texts that are alike, the next to go first; most often there is only one."""

    rows: list[Awaiting]
    alike: grouping.Alike | None = None  # None of a text by itself
    to_read: list[Markup] | None = None

    @property
    def first(self) -> Awaiting:
        return self.rows[0]

    @property
    def cursor(self) -> Cursor:
        return self.first.cursor

    @property
    def count(self) -> int:
        return len(self.rows)

    def read(self) -> None:
        """Set `to_read`, if there are several texts."""
        if self.alike and self.count > 1:
            texts = (row.message for row in self.rows)
            read = self.alike.to_read(with_pauses(texts, GROUPED_AT_ONCE))
            self.to_read = [marked(pieces) for pieces in read]

    @property
    def countries(self) -> str:
        """To which countries they go, most of them first: "27 to United States"."""
        found = Counter(row.country for row in self.rows).most_common()
        said = [f"{number:,} to {recipients.country_name(each)}" for each, number in found]
        if more := found[COUNTRIES:]:
            said[COUNTRIES:] = [f"{sum(n for _, n in more):,} to {counted(len(more), 'other')}"]
        return ", ".join(said)

    @property
    def parts(self) -> int:
        return sum(row.parts for row in self.rows)

    @property
    def value(self) -> str:
        """The value of the buttons that decide on all: the ids of these texts."""
        ids = b"".join(row.id.bytes for row in self.rows)
        return f"all.{base64.urlsafe_b64encode(ids).decode().rstrip('=')}"


@dataclass
class Card:
    """A pile with its first text as the desk shows it."""

    pile: Pile
    entry: Entry


class Page(NamedTuple):
    """Piles, and what is around them."""

    piles: list[Pile]
    more: Cursor | None  # after which more follows
    opened: Pile | None  # the pile of a text
    count: int  # of what waits, up to LOOKED_OVER


def page(person: ApiKey, after: Cursor | None, now: datetime, of: Awaiting | None = None) -> Page:
    """Return a page of what waits; with a text, the texts that are like it, each by itself."""
    is_further = after is not None and after.rank == FURTHER
    after = after and after._replace(rank=0)
    rows = listings.many_awaiting(person, after if is_further else None, LOOKED_OVER)
    last = rows[-1].cursor if len(rows) == LOOKED_OVER else None
    waiting = {row.id for row in rows}
    rows += [of] if of and of.id not in waiting else []
    piles, opened = _piles(rows if is_further else _in_order(rows, now)), None
    if of:
        opened = next(pile for pile in piles if of.id in (row.id for row in pile.rows))
        opened.rows = [row for row in opened.rows if row.id in waiting]
        piles = [Pile([row]) for row in opened.rows]
    rest = [pile for pile in piles if not after or pile.cursor > after]
    shown = rest[:PAGE]
    for pile in with_pauses([*shown, opened] if opened else shown):
        pile.read()
    if len(rest) > PAGE:
        more = shown[-1].cursor._replace(rank=FURTHER if is_further else 0)
    else:
        more = last and last._replace(rank=FURTHER)
    return Page(shown, more, opened, LOOKED_OVER if is_further else len(waiting))


def _in_order(rows: Collection[Awaiting], now: datetime) -> list[Awaiting]:
    """Return texts in the order in which they go once approved, with these times."""
    general, own = current_app.extensions["rules"], rules_of({row.key_id for row in rows})
    rules = {id: general.of(each) for id, each in own.items()}
    timed = (_when(row, rules[row.key_id], now) for row in with_pauses(rows, GROUPED_AT_ONCE))
    return sorted(timed, key=lambda row: row.cursor)


def _when(row, rules, now):
    """Return a text with the time at which it goes; what is due keeps its place."""
    try:
        message = Message(send_at=row.send_at, send_date=row.send_date)
        at, _ = outcomes.leaves_at(message, recipients.find(row.to or ""), rules, now)
    except recipients.InvalidNumber:
        return row
    return row._replace(send_at=at) if at > now else row


def _piles(rows):
    texts = ((row.key_id, row.message) for row in with_pauses(rows, GROUPED_AT_ONCE))
    groups = grouping.groups(texts)
    return [Pile([rows[place] for place in group.members], group) for group in groups]


def read_value(value: str) -> list[uuid.UUID]:
    """Return the ids of a card's texts; raise ValueError if this is not its buttons' value."""
    found = _VALUE.fullmatch(value)
    ids = base64.urlsafe_b64decode(f"{found[1]}==") if found else b""
    if not ids or len(ids) % 16 or len(ids) > 16 * LOOKED_OVER:
        raise ValueError("this is not the value of a card")
    return [uuid.UUID(bytes=ids[at : at + 16]) for at in range(0, len(ids), 16)]
