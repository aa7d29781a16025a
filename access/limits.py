"""Limits of keys and recipients: how they are written, what keys have used up, the refusal.

A key's windows are the seconds, minutes, hours, days and months of UTC; a recipient's slides.
"""

import math
import re
import uuid
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from operator import add
from typing import NamedTuple, Self

from peewee import SQL, BigIntegerField, IntegerField, UUIDField

from access.rules import LAST
from database import EPOCH, Table, db, lock_texts

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "mo": 31 * 86_400}  # seconds, at most
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def window(unit: str, second: int) -> tuple[int, int]:
    """Return the first second of the window of UTC that holds a second, and of the next."""
    if unit != "mo":
        begins = second // UNITS[unit] * UNITS[unit]
        return begins, begins + UNITS[unit]
    first = (EPOCH + second * SECOND).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    next_first = (first + 31 * DAY).replace(day=1)
    return (first - EPOCH) // SECOND, (next_first - EPOCH) // SECOND


class Limit(NamedTuple):
    """A maximum number of messages, or of their parts, per window."""

    text: str  # "5/s", or "2000p/d"
    number: int
    seconds: int

    @property
    def unit(self) -> str:
        return self.text.partition("/")[2]

    @property
    def in_parts(self) -> bool:
        return "p/" in self.text

    @property
    def window(self) -> timedelta:
        return self.seconds * SECOND

    def __str__(self) -> str:
        return self.text


class LimitReached(Exception):
    """A message is refused; from `free_at` on, one more would be accepted."""

    def __init__(self, whose: str, limit: Limit, free_at: datetime):
        super().__init__(f"The {whose}'s limit of {limit} is reached.")
        self.whose, self.limit, self.free_at = whose, limit, free_at


class TooManyParts(Exception):
    """A message has more parts than a limit of its key ever allows."""

    free_at = LAST  # never: of several refusals, the one that counts

    def __init__(self, parts: int, limit: Limit):
        super().__init__(f"The text has {parts} parts, which the key's limit of {limit} forbids.")


# How they are written


@lru_cache
def parse(text: str) -> tuple[Limit, ...]:
    """Return the limits of a key, the shortest window first; raise ValueError with the problem."""
    limits = {}
    for part in text.split(",") if text.strip() else ():
        limit = _read(part, "()(s|min|h|d|mo)", "5/s,2000p/mo (s, min, h, d or mo)", "p")
        if limits.setdefault((limit.seconds, limit.in_parts), limit) is not limit:
            raise ValueError(
                "must be a list with each unit (s, min, h, d, mo) once, and once more in parts"
            )
    return tuple(limits[each] for each in sorted(limits))


def parse_recipient_limit(text: str) -> Limit | None:
    """Return the limit of a recipient, like 3/24h, or None; raise ValueError with the problem."""
    every = "([1-9][0-9]{0,3})(min|h|d)"
    return _read(text, every, "3/24h (a number of min, h or d)") if text.strip() else None


def _read(text, window, example, suffix=""):
    parts = re.fullmatch(rf"([^/]*)/{window}", text.strip())
    if not parts:
        raise ValueError(f"must be a number and a window, like {example}")
    number, times, unit = parts.groups()
    if not re.fullmatch("[1-9][0-9]{0,8}", number.removesuffix(suffix)):
        raise ValueError(f"must be a whole number from 1 to 999999999, like {example}")
    return Limit(text.strip(), int(number.removesuffix(suffix)), int(times or 1) * UNITS[unit])


def lock_numbers(numbers: Collection[str]) -> None:
    """Let no other transaction count the messages to these numbers before this one ends."""
    lock_texts(numbers)


# What has been used up


class KeyUse(Table):
    """How many messages of a key, and parts, were accepted in the windows around a second.

    All are counted, whichever are limited. A row is changed only under its lock. It does not count
    messages that are newer than `last_id`, accepted while the key had no limits. It is stale if a
    version before migration 0039 has changed it, which counts neither parts nor months.
    """

    key_id = IntegerField(primary_key=True)
    second = BigIntegerField()  # since 1970, the latest with a message
    used_s = IntegerField()
    used_min = IntegerField()
    used_h = IntegerField()
    used_d = IntegerField()
    used_mo = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    parts_s = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    parts_min = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    parts_h = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    parts_d = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    parts_mo = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    last_id = UUIDField(null=True)  # of the latest message that was counted
    parts_id = UUIDField(null=True)  # of the latest message whose parts were counted

    @classmethod
    def lock(cls, key: int) -> Self:
        """Return the row of a key, locked until the transaction ends."""
        while not (row := db.lock_rows(cls.select().where(cls.key_id == key)).first()):
            nothing = {"second": 0} | {f"used_{unit}": 0 for unit in UNITS}
            cls.insert(key_id=key, **nothing).on_conflict_ignore().execute()
        return row

    def used(self, unit: str) -> list[int]:
        """Return the messages and the parts in the latest window of a unit."""
        return [getattr(self, f"used_{unit}"), getattr(self, f"parts_{unit}")]

    def put(self, tally: "KeyTally") -> None:
        """Store what is used up now, if that has changed."""
        changes = {"second": tally.second, "last_id": tally.last_id, "parts_id": tally.last_id}
        for unit in UNITS:
            changes[f"used_{unit}"], changes[f"parts_{unit}"] = tally.in_window(unit, tally.second)
        if any(getattr(self, name) != value for name, value in changes.items()):
            KeyUse.update(changes).where(KeyUse.key_id == self.key_id).execute()


class KeyTally:
    """What a key has used up: messages and parts, by the unit and the first second of a window.

    `second` is the latest in which a message was accepted, and `last_id` the id of the latest.
    """

    def __init__(
        self, counts: dict[tuple[str, int], list[int]], second: int, last_id: uuid.UUID | None
    ):
        self._counts, self.second, self.last_id = counts, second, last_id

    @classmethod
    def read(
        cls,
        row: KeyUse | None,
        latest: uuid.UUID | None,
        seconds: Iterable[int],
        count: Callable[..., list[int]],
    ) -> Self:
        """Return what a key has used up in the windows around these seconds.

        `latest` is the id of its latest message. `count` counts its messages and their parts from
        one second to another, and after an id, if its row does not count them all.
        """
        last_id = row and row.parts_id
        is_known = row is not None and (latest is None or (last_id and last_id == row.last_id))
        is_all = is_known and (latest is None or latest <= last_id)
        later = [*seconds, row.second if is_known else 0, _second_of(latest) if latest else 0]
        last = row.second if is_all else max(later)
        counts = {}
        for unit in UNITS:
            known = window(unit, row.second)[0] if is_known else math.inf
            for begins, ends in {window(unit, second) for second in (*seconds, last)}:
                used = row.used(unit) if begins == known else [0, 0]
                if not is_all or begins < known:
                    # Purged messages are only in the row, and a slow one may have an older id
                    since = [*map(add, used, count(begins, ends, last_id))]
                    used = [*map(max, since, count(begins, ends))]
                counts[unit, begins] = used
        return cls(counts, last, max(filter(None, (latest, last_id)), default=None))

    def in_window(self, unit: str, second: int) -> list[int]:
        """Return the messages and the parts accepted in the window around a second."""
        return self._counts[unit, window(unit, second)[0]]

    def used(self, limit: Limit, second: int) -> int:
        """Return what counts for a limit in its window around a second."""
        return self.in_window(limit.unit, second)[limit.in_parts]

    def reached(
        self, limits: tuple[Limit, ...], second: int, parts: int
    ) -> list[LimitReached | TooManyParts]:
        """Return a refusal for each of these limits that allows no message of this many parts."""
        refusals = []
        for limit in limits:
            needed = parts if limit.in_parts else 1
            if needed > limit.number:
                refusals.append(TooManyParts(parts, limit))
            elif self.used(limit, second) + needed > limit.number:
                free_at = EPOCH + window(limit.unit, second)[1] * SECOND
                refusals.append(LimitReached("key", limit, free_at))
        return refusals

    def add(self, second: int, id: uuid.UUID, parts: int) -> None:
        """Count a message of a second."""
        for unit in UNITS:
            used = self.in_window(unit, second)
            used[0], used[1] = used[0] + 1, used[1] + parts
        self.second = max(self.second, second)
        self.last_id = max(filter(None, (id, self.last_id)))


def _second_of(id):
    """Return the second since 1970 in which a UUID of version 7 was made."""
    return (id.int >> 80) // 1000


def recipient_reached(
    accepted_at: list[datetime], limit: Limit, at: datetime
) -> list[LimitReached]:
    """Return a refusal if the window that ends at an instant has as many messages as allowed.

    `accepted_at` is when those to the number were accepted, the latest first.
    """
    if len(accepted_at) < limit.number or accepted_at[limit.number - 1] <= at - limit.window:
        return []
    oldest = accepted_at[limit.number - 1]
    return [LimitReached("recipient", limit, oldest + limit.window)]
