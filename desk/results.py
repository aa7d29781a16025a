"""What a person's buttons did to texts within the last minute, for decisions with Undo.

The session's cookie keeps the ids, so it outlasts a reload and the browser's Back.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from flask import session

from database import EPOCH, MILLISECOND
from desk.entries import Entry
from desk.lists import PAGE
from messages.decisions import UNDO_WITHIN

MOST = 2 * (PAGE + 1)
"""The most ids of all results, where each result counts as one more: two pages.

They take 3 KB at most. The web refuses a head with more than 4 KB of cookies, of whoever's.
"""

PAST = {
    "approve": "approved",
    "refuse": "refused",
    "cancel": "cancelled",
    "retry": "retried",
    "undo-approve": "no longer approved",
    "undo-refuse": "no longer refused",
    "undo-cancel": "no longer cancelled",
}
"""The names of the buttons, with the words for what became of the texts."""


@dataclass
class Result:
    """What one button did, with the texts as they are now."""

    action: str
    changed: list[Entry]
    unchanged: list[Entry]
    shown_for: int  # seconds

    @property
    def past(self) -> str:
        """The word for what became of the texts that were changed."""
        return PAST[self.action]

    @property
    def undo(self) -> str | None:
        """The name of the button that takes this back; None if nothing does."""
        name = f"undo-{self.action}"
        return name if name in PAST and self.changed else None

    @property
    def left(self) -> int:
        """The seconds in which all texts that are still here can be undone for certain."""
        return min(self._left.values(), default=0)

    @property
    def value(self) -> str:
        """The value of that button: the ids of these texts."""
        return ".".join(id.hex for id in self._left)

    @cached_property
    def _left(self):
        """The seconds for each text that can be undone."""
        each = ((e.message.id, e.undone_within(self.action, self.shown_for)) for e in self.changed)
        return {id: left for id, left in each if left}


def keep(action: str, changed: list[uuid.UUID], unchanged: list[uuid.UUID], now: datetime) -> None:
    """Keep what a button did, in place of earlier results about the same texts."""
    ids = {*changed, *unchanged}
    kept = [[(now - EPOCH) // MILLISECOND, action, changed, unchanged]]
    room = MOST - len(ids) - 1
    for at, earlier, *texts in session.get("results", ()):
        done, missed = ([id for id in each if id not in ids] for each in texts)
        room -= len(done) + len(missed) + 1
        if room >= 0 and (done or missed):
            kept.append([at, earlier, done, missed])
    session["results"] = kept


def latest(entries: Callable[[set[uuid.UUID]], list[Entry]], now: datetime) -> list[Result]:
    """Return the results of the last minute, the latest first.

    `entries` reads texts by their ids; a result without any that still exists is left out.
    """
    kept = [
        (action, done, missed, left)
        for at, action, done, missed in session.get("results", ())
        if (left := _seconds_left(EPOCH + at * MILLISECOND, now))
    ]
    ids = {id for _, done, missed, _ in kept for id in (*done, *missed)}
    found = {entry.message.id: entry for entry in entries(ids)}
    results = []
    for action, *texts, left in kept:
        done, missed = ([found[id] for id in each if id in found] for each in texts)
        if done or missed:
            results.append(Result(action, done, missed, left))
    return results


def _seconds_left(at, now):
    """Return the seconds in which something done at an instant can still be undone."""
    left = (at + UNDO_WITHIN - now) // timedelta(seconds=1)
    return max(0, left)
