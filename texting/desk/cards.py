"""The cards of what waits for approval: texts that are alike are one card, decided together."""

import base64
import re
import uuid
from collections import Counter
from dataclasses import dataclass

from texting import recipients
from texting.access.keys import ApiKey
from texting.database import with_pauses
from texting.desk import grouping
from texting.desk.entries import Entry
from texting.desk.lists import PAGE
from texting.desk.words import counted
from texting.reports import listings
from texting.reports.listings import Awaiting, Cursor

LOOKED_OVER = 10_000
"""Among how many texts those that are alike are found; the form of a button has room for these."""

GROUPED_AT_ONCE = 250
"""Of how many texts the groups are found before others have a turn: 40 ms for the longest."""

TO_READ, COUNTRIES = 3, 3  # that a card shows

_TAIL = 4  # bytes of an id: by chance, one text in 400,000 has one of 10,000
_VALUE = re.compile("all[.]([0-9]{1,9})[.]([0-9A-Za-z_-]+)")


@dataclass
class Pile:
    """Texts that are alike, the next to be sent first; most often there is only one."""

    rows: list[Awaiting]
    alike: grouping.Alike | None = None  # None of a text by itself
    to_read: list[list[tuple[str, bool]]] | None = None
    """Some of the texts in pieces, each with whether the texts differ there."""

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
        """Set `to_read`, if there are several texts.

        It has the first, the shortest and the longest, where a name is missing or long.
        """
        if self.alike and self.count > 1:
            texts = [row.message for row in self.rows]
            some = dict.fromkeys([texts[0], min(texts, key=len), max(texts, key=len), *texts])
            marked = self.alike.marked(with_pauses(texts, GROUPED_AT_ONCE), [*some][:TO_READ])
            self.to_read = marked

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
        """The value of the buttons that decide on all: which texts they are.

        Whole ids would be more than a form may have, so it has their ends, which are random.
        """
        tails = b"".join(row.id.bytes[-_TAIL:] for row in self.rows)
        return f"all.{self.first.key_id}.{base64.urlsafe_b64encode(tails).decode().rstrip('=')}"


@dataclass
class Card:
    """A pile with its first text as the desk shows it."""

    pile: Pile
    entry: Entry


def page(
    person: ApiKey, after: Cursor | None, of: Awaiting | None = None
) -> tuple[list[Pile], Cursor | None, Pile | None]:
    """Return the piles of a page, the cursor after which more follows, and the pile of a text.

    With such a text, the piles are the texts that are alike, each by itself.
    """
    rows = listings.many_awaiting(person, None, LOOKED_OVER)
    if after and len(rows) == LOOKED_OVER and after >= rows[-1].cursor:
        rows = listings.many_awaiting(person, after, LOOKED_OVER)
    waiting = {row.id for row in rows}
    piles, opened = _piles([*rows, of] if of and of.id not in waiting else rows), None
    if of:
        opened = next(pile for pile in piles if of.id in (row.id for row in pile.rows))
        opened.rows = [row for row in opened.rows if row.id in waiting]
        piles = [Pile([row]) for row in opened.rows]
    rest = [pile for pile in piles if not after or pile.cursor > after]
    shown, more = rest[:PAGE], rows[-1].cursor if len(rows) == LOOKED_OVER else None
    for pile in with_pauses([*shown, opened] if opened else shown):
        pile.read()
    return shown, shown[-1].cursor if len(rest) > PAGE else more, opened


def _piles(rows):
    texts = ((row.key_id, row.message) for row in with_pauses(rows, GROUPED_AT_ONCE))
    groups = grouping.groups(texts)
    return [Pile([rows[place] for place in group.members], group) for group in groups]


def read_value(value: str, person: ApiKey) -> tuple[list[uuid.UUID], int]:
    """Return which of a card's texts still wait for this person's approval, and how many do not.

    Raise ValueError if this is not the value of a card's button.
    """
    found = _VALUE.fullmatch(value)
    if not found:
        raise ValueError("this is not the value of a card")
    key_id, tails = int(found[1]), base64.urlsafe_b64decode(f"{found[2]}==")
    shown = [tails[at : at + _TAIL] for at in range(0, len(tails), _TAIL)]
    among = {*shown}
    ids = [id for id in listings.ids_awaiting(person, key_id) if id.bytes[-_TAIL:] in among]
    return ids, max(0, len(shown) - len(ids))
