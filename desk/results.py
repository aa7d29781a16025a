"""The strip: what a person's buttons did within the last minute, where the last card was.

The session's cookie keeps the ids, so the strip outlasts a reload and the browser's Back. A page
shows the results about the cards of its kind, texts or replies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import session

from database import EPOCH, MILLISECOND
from desk import lists
from desk.lists import PAGE
from reports.listings import Cursor
from sending.decisions import UNDO_WITHIN

MOST = 2 * (PAGE + 1)
"""The most ids of all results, each with one more for its cursor: two pages.

They take 3 KB at most. The web refuses a head with more than 4 KB of cookies, of whoever's.
"""


@dataclass
class Result:
    """What one button did: the ids in the cookie, their cards as they are now on the page."""

    action: str
    cursor: Cursor  # where the first card was
    changed: list[Any]
    unchanged: list[Any]
    shown_for: int = 0  # seconds

    @property
    def left(self) -> int:
        """The seconds in which it can be undone."""
        return self.shown_for


def seconds_left(at: datetime, now: datetime) -> int:
    """Return the seconds in which something done at an instant can still be undone."""
    left = (at + UNDO_WITHIN - now) // timedelta(seconds=1)
    return max(0, left)


def keep(new: Result, now: datetime) -> None:
    """Keep what a button did, in place of earlier results about the same ids."""
    at, ids = (now - EPOCH) // MILLISECOND, {*new.changed, *new.unchanged}
    kept = [[at, new.action, lists.write(new.cursor), new.changed, new.unchanged]]
    room = MOST - len(ids) - 1
    for *result, done, missed in session.get("results", ()):
        done, missed = ([id for id in each if id not in ids] for each in (done, missed))
        room -= len(done) + len(missed) + 1
        if room >= 0 and (done or missed):
            kept.append([*result, done, missed])
    session["results"] = kept


def strip(kind: type[Result], cards: Callable[[set], list], now: datetime) -> list[Result]:
    """Return the results of the last minute with their cards, the latest first.

    `cards` reads cards by their ids; a result without any card that still exists is left out.
    """
    kept = [
        kind(action, lists.read(cursor), done, missed, left)
        for at, action, cursor, done, missed in session.get("results", ())
        if (left := seconds_left(EPOCH + at * MILLISECOND, now))
    ]
    ids = {id for result in kept for id in (*result.changed, *result.unchanged)}
    found = {card.cursor.id: card for card in cards(ids)}
    for result in kept:
        result.changed = [found[id] for id in result.changed if id in found]
        result.unchanged = [found[id] for id in result.unchanged if id in found]
    return [result for result in kept if result.changed or result.unchanged]


def page(cards: list[Any], strip: list[Result], order: Callable[[Cursor], Any]) -> dict[str, Any]:
    """Return what a page of a list shows: cards, with the strip where the last decided card was.

    There is one more card than the page shows, unless it is the last page. The focus moves to
    `next`: the card below the strip, or the strip if there is none.
    """
    cards, is_last = cards[:PAGE], len(cards) <= PAGE
    above = [card for card in cards if strip and order(card.cursor) < order(strip[0].cursor)]
    below = cards[len(above) :]
    return {
        "rows": [*above, strip, *below] if strip else cards,
        "cards": len(cards),
        "strip": strip,
        "next": below[0] if below else strip,
        "more": None if is_last else lists.write(cards[-1].cursor),
    }
