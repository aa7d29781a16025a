"""What buttons did within the last minute, shown where the cards were.

The session's cookie keeps the ids, so results outlast a reload and the browser's Back. Each list of
the desk keeps its own.
"""

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from flask import session

import reports
from database import EPOCH, MILLISECOND
from database.clock import is_ahead
from desk import lists
from desk.lists import PAGE, Place
from models import UNDO_WITHIN
from sending import replies

TEXTS, REPLIES = "texts", "replies"  # lists
PLACES = {TEXTS: reports.Place, REPLIES: replies.Place}
MOST = 75  # ids of all lists: a cookie holds 4 KB


@dataclass
class Result:
    """What one button did."""

    action: str
    at: datetime
    place: Place  # of the first card
    done: list[uuid.UUID]
    missed: list[uuid.UUID]
    now: datetime
    is_result = True  # unlike the cards beside it

    @property
    def left(self) -> int:
        """Return for how many seconds this can still be undone."""
        return seconds_left(self.at, self.now)

    @property
    def ids(self) -> set[uuid.UUID]:
        return {*self.done, *self.missed}

    @property
    def value(self) -> str:
        """Return the ids of what was done, as the value of a button that undoes it."""
        return ".".join(id.hex for id in self.done)

    def without(self, ids: Collection[uuid.UUID]) -> Self:
        """Return what remains of this result if some ids are left out."""
        done, missed = ([id for id in each if id not in ids] for each in (self.done, self.missed))
        return Result(self.action, self.at, self.place, done, missed, self.now)


@dataclass
class Told(Result):
    """A result with its cards as they are now."""

    changed: list[Any]
    unchanged: list[Any]


def seconds_left(at: datetime, now: datetime) -> int:
    """Return for how many seconds what was done at an instant can still be undone."""
    left = (at + UNDO_WITHIN - now) // timedelta(seconds=1)
    return 0 if is_ahead(at, now) else max(0, left)


def keep(
    which: str,
    action: str,
    place: Place,
    done: Collection[uuid.UUID],
    missed: Collection[uuid.UUID],
    now: datetime,
) -> None:
    """Keep a result for the list `which`, in place of earlier ones about the same ids."""
    new = Result(action, now, place, [*done], [*missed], now)
    others = [(each, result.without(new.ids)) for each in PLACES for result in recent(each, now)]
    oldest_first = [*sorted(others, key=lambda other: other[1].at), (which, new)]
    kept, room = {each: [] for each in PLACES}, MOST
    for each, result in reversed(oldest_first):
        room -= len(result.ids)
        if room >= 0 and result.ids:
            kept[each].insert(0, _packed(result))
    session.update(kept)


def recent(which: str, now: datetime) -> list[Result]:
    """Return the results of a list that are younger than a minute, the oldest first."""
    results = [_unpacked(packed, PLACES[which], now) for packed in session.get(which, ())]
    return [result for result in results if result.left]


def _packed(result):
    at = (result.at - EPOCH) // MILLISECOND
    done, missed = ([id.hex for id in ids] for ids in (result.done, result.missed))
    return [result.action, at, *lists.fields(result.place), done, missed]


def _unpacked(packed, kind, now):
    action, at, *place, done, missed = packed
    done, missed = ([uuid.UUID(each) for each in ids] for ids in (done, missed))
    place = lists.place_of(kind, place)
    return Result(action, EPOCH + at * MILLISECOND, place, done, missed, now)


def told(kept: list[Result], cards: dict[uuid.UUID, Any], kind: type[Told]) -> list[Told]:
    """Return results with their cards, unless none of these is there any more."""
    filled = []
    for result in kept:
        changed, unchanged = (
            [cards[id] for id in ids if id in cards] for ids in (result.done, result.missed)
        )
        filled.append(kind(**vars(result), changed=changed, unchanged=unchanged))
    return [result for result in filled if result.changed or result.unchanged]


def page(
    cards: list[Any], results: list[Told], key: Callable[[Place], Any], after: Place | None
) -> dict[str, Any]:
    """Return what a page of a list shows: cards, results where cards were, and what follows.

    Of the cards there is one more than the page shows, unless it is the last page.
    """
    cards, is_last = cards[:PAGE], len(cards) <= PAGE
    rows, latest, next = among(cards, results, key, after, is_last)
    more = None if is_last else lists.write(cards[-1].place)
    return {"rows": rows, "cards": len(cards), "latest": latest, "next": next, "more": more}


def among(
    cards: list[Any],
    results: list[Result],
    key: Callable[[Place], Any],
    after: Place | None,
    is_last: bool,
) -> tuple[list[Any], Result | None, Any]:
    """Return a page's cards with each result before the place of its card.

    Return the latest of these results, too, and the card below it, where the focus goes on to; the
    result itself if it is the last. `results` begin with the oldest; `key` orders cards by their
    `place`; the page begins behind `after`.
    """
    begins = after and key(after)
    ends = None if is_last or not cards else key(cards[-1].place)
    shown = [
        result
        for result in results
        if (begins is None or key(result.place) > begins)
        and (ends is None or key(result.place) <= ends)
    ]
    rows = sorted([*shown, *cards], key=lambda row: key(row.place))
    latest = shown[-1] if shown else None
    below = rows[rows.index(latest) :] if latest else []
    following = next((row for row in below if not isinstance(row, Result)), latest)
    return rows, latest, following
