"""What a person's buttons did to texts within the last minute, for decisions with Undo.

The audit has the texts that a button changed. The session's cookie has when it was pressed, and
what it left unchanged, so results outlast a reload and the browser's Back.
"""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from flask import session

from texting.access.audit import Action
from texting.access.keys import ApiKey
from texting.database import EPOCH, MILLISECOND, clock
from texting.desk.entries import Entry
from texting.desk.lists import PAGE
from texting.desk.words import counted
from texting.messages.decisions import UNDO_WITHIN, can_undo, decided_at

MOST = 2 * (PAGE + 1)
"""The most texts of all results, where each result counts as one more: two pages.

So many ids take 3 KB of the cookie at most. The web refuses a head with more than 4 KB of cookies,
of whoever's.
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
AUDITED = {
    "approve": Action.APPROVED,
    "refuse": Action.REFUSED,
    "cancel": Action.CANCELLED,
    "retry": Action.RETRIED,
    **dict.fromkeys(("undo-approve", "undo-refuse", "undo-cancel"), Action.UNDONE),
}
"""What the audit calls them."""

NAMED = 3  # texts of a result of more than a page
_MANY = re.compile("at[.]([0-9]{1,14})")  # up to the year 5138


@dataclass
class Result:
    """What one button did, with the texts as they are now."""

    action: str
    changed: list[Entry]  # the first ones, if they are more than a page
    unchanged: list[Entry]  # likewise
    count: int  # of all that were changed
    others: int  # that were not, and are not among `unchanged`
    seconds_left: int  # until then, all texts that are still here can be undone for certain
    value: str  # of the button that undoes them

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


def instant(action: str, person: ApiKey) -> datetime:
    """Return now, or the next instant at which the person did nothing alike.

    By it the audit tells what a button has changed. Of two tabs in the same millisecond, it tells
    what both did.
    """
    now = clock.now()
    while decided_at(now, AUDITED[action], person.id):
        now += MILLISECOND
    return now


def keep(action: str, changed: int, unchanged: list[uuid.UUID], now: datetime) -> None:
    """Keep when a button was pressed, and what it left unchanged beside so many changed texts."""
    named = unchanged if changed + len(unchanged) <= PAGE else unchanged[:NAMED]
    kept = [((now - EPOCH) // MILLISECOND, action, named, len(unchanged) - len(named))]
    kept += session.get("pressed", ())
    sizes = accumulate(len(missed) + 1 for _, _, missed, _ in kept)
    session["pressed"] = [each for each, size in zip(kept, sizes, strict=True) if size <= MOST]
    session.pop("results", None)  # as an older version kept them: there is no room for both


def of_many(value: str, action: str, person: ApiKey) -> list[uuid.UUID] | None:
    """Return the ids of the texts that a person's button undoes, if it is that of many."""
    found, undone = _MANY.fullmatch(value), action.removeprefix("undo-")
    if not found or undone == action:
        return None
    return decided_at(EPOCH + int(found[1]) * MILLISECOND, AUDITED[undone], person.id)


def latest(
    entries: Callable[[set[uuid.UUID]], list[Entry]], person: ApiKey, now: datetime
) -> list[Result]:
    """Return the results of the last minute, the latest first, each without texts of a later one.

    `entries` reads texts by their ids; a result without any that still exists is left out.
    """
    pressed, seen, room = [], set(), MOST
    for milliseconds, action, missed, others in session.get("pressed", ()):
        at = EPOCH + milliseconds * MILLISECOND
        if seconds := max(0, (at + UNDO_WITHIN - now) // timedelta(seconds=1)):
            done = decided_at(at, AUDITED[action], person.id)
            done, missed = ([id for id in ids if id not in seen] for ids in (done, missed))
            seen.update(done, missed)
            named = done if len(done) <= PAGE else done[:NAMED]
            room -= len(named) + len(missed) + 1
            if room >= 0:
                pressed.append((at, action, len(done), named, missed, others, seconds))
    ids = {id for _, _, _, named, missed, _, _ in pressed for id in (*named, *missed)}
    found = {entry.message.id: entry for entry in entries(ids)}
    results = []
    for at, action, count, named, missed, others, seconds in pressed:
        changed, unchanged = ([found[id] for id in ids if id in found] for ids in (named, missed))
        if count > PAGE:
            left = seconds if can_undo(at, AUDITED[action], person.id) else 0
            value = f"at.{(at - EPOCH) // MILLISECOND}"
        else:
            each = {e.message.id: e.undone_within(action, seconds) for e in changed}
            left = min(filter(None, each.values()), default=0)
            count, value = len(changed), ".".join(id.hex for id, left in each.items() if left)
        if changed or unchanged:
            results.append(Result(action, changed, unchanged, count, others, left, value))
    return results
