"""What a person's buttons did to texts within the last minute, for decisions with Undo.

The session's cookie keeps the ids, so it outlasts a reload and the browser's Back. Of more than a
page it keeps the first ones and how many there were: the audit has the others.
"""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from flask import session

from texting.access.audit import Action
from texting.access.keys import ApiKey
from texting.database import EPOCH, MILLISECOND
from texting.desk.entries import Entry
from texting.desk.lists import PAGE
from texting.desk.words import counted
from texting.messages.decisions import UNDO_WITHIN, decided_at, stay_until

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

NOUNS = {"approve": "Approval", "refuse": "Refusal", "cancel": "Cancellation"}
NAMED = 3  # texts that a result names
OF_MANY = {"approve": Action.APPROVED, "refuse": Action.REFUSED}
"""What can be done to more than a page of texts, by the names of the buttons."""

_MANY = re.compile("at[.]([0-9]{1,15})")


@dataclass
class Result:
    """What one button did, with the texts as they are now."""

    action: str
    changed: list[Entry]
    unchanged: list[Entry]
    shown_for: int  # seconds
    many: "Many | None" = None

    @property
    def count(self) -> int:
        """How many texts were changed."""
        return self.many.changed if self.many else len(self.changed)

    @property
    def others(self) -> int:
        """How many were not, and are not among `unchanged`."""
        return self.many.unchanged - len(self.unchanged) if self.many else 0

    def said(self, count: int) -> str:
        """Return what became of so many texts: "2 texts refused", "Refusal of 2 texts undone"."""
        texts = counted(count, "text")
        if self.undoes:
            return f"{NOUNS[self.action.removeprefix('undo-')]} of {texts} undone"
        return f"{texts} {PAST[self.action]}"

    @property
    def already(self) -> str | None:
        """Who has decided before, if that was all there was to decide; None otherwise."""
        if self.count or self.others or len(self.unchanged) > 1 or self.undoes:
            return None
        return self.unchanged[0].already

    @property
    def undoes(self) -> bool:
        """Whether it takes another back."""
        return self.action.startswith("undo-")

    @property
    def undo(self) -> str | None:
        """The name of the button that takes this back; None if nothing does."""
        name = f"undo-{self.action}"
        return name if name in PAST and self.count else None

    @property
    def left(self) -> int:
        """The seconds in which all texts that are still here can be undone for certain."""
        return self.many.left if self.many else min(self._left.values(), default=0)

    @property
    def value(self) -> str:
        """The value of that button: the ids of these texts."""
        return f"at.{self.many.at}" if self.many else ".".join(id.hex for id in self._left)

    @cached_property
    def _left(self):
        """The seconds for each text that can be undone."""
        each = ((e.message.id, e.undone_within(self.action, self.shown_for)) for e in self.changed)
        return {id: left for id, left in each if left}


@dataclass
class Many:
    """What a button did to more than a page of texts."""

    at: int  # milliseconds since 1970
    changed: int
    unchanged: int
    left: int  # seconds in which some can be undone


def keep(action: str, changed: list[uuid.UUID], unchanged: list[uuid.UUID], now: datetime) -> None:
    """Keep what a button did, in place of earlier results about the same texts."""
    ids, counts = {*changed, *unchanged}, []
    if len(ids) > PAGE:
        counts = [len(changed), len(unchanged)]
        changed, unchanged = changed[:NAMED], unchanged[:NAMED]
    kept = [[(now - EPOCH) // MILLISECOND, action, changed, unchanged, *counts]]
    room = MOST - len(changed) - len(unchanged) - 1
    for at, earlier, *texts, counts in map(_whole, session.get("results", ())):
        done, missed = ([id for id in each if id not in ids] for each in texts)
        room -= len(done) + len(missed) + 1
        if room >= 0 and (done or missed):
            kept.append([at, earlier, done, missed, *counts])
    session["results"] = kept


def of_many(value: str, action: str, person: ApiKey) -> list[uuid.UUID] | None:
    """Return the ids of the texts that a person's button undoes, if it is that of Many."""
    found, done = _MANY.fullmatch(value), OF_MANY.get(action.removeprefix("undo-"))
    if not found or not done or not action.startswith("undo-"):
        return None
    return decided_at(EPOCH + int(found[1]) * MILLISECOND, done, person.id)


def latest(
    entries: Callable[[set[uuid.UUID]], list[Entry]], person: ApiKey, now: datetime
) -> list[Result]:
    """Return the results of the last minute, the latest first.

    `entries` reads texts by their ids; a result without any that still exists is left out.
    """
    kept = [
        (at, action, texts, counts, left)
        for at, action, *texts, counts in map(_whole, session.get("results", ()))
        if (left := _seconds(EPOCH + at * MILLISECOND + UNDO_WITHIN - now))
    ]
    ids = {id for _, _, texts, *_ in kept for id in (*texts[0], *texts[1])}
    found = {entry.message.id: entry for entry in entries(ids)}
    results = []
    for at, action, texts, counts, left in kept:
        done, missed = ([found[id] for id in each if id in found] for each in texts)
        if done or missed:
            many = (
                Many(at, *counts, _left_of_many(at, action, person, left, now)) if counts else None
            )
            results.append(Result(action, done, missed, left, many))
    return results


def _whole(kept):
    at, action, done, missed, *counts = kept
    return at, action, done, missed, counts


def _left_of_many(at, action, person, shown_for, now):
    """Return for how many of these seconds some of many texts can be undone for certain."""
    if action not in OF_MANY:
        return 0
    until = stay_until(EPOCH + at * MILLISECOND, OF_MANY[action], person.id, now)
    return min(shown_for, _seconds(until - now)) if until else 0


def _seconds(length):
    """Return the whole seconds of a length of time; 0 if it is over."""
    return max(0, length // timedelta(seconds=1))
