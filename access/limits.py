"""Limits of keys and recipients: how they are written, what keys have used up, the refusal.

A key's windows are the seconds, minutes, hours and days of UTC. A recipient's window slides.
"""

import bisect
import re
import uuid
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Self

from peewee import BigIntegerField, IntegerField, UUIDField

from database import EPOCH, Table, db, lock_texts
from database.clock import is_ahead

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}  # seconds
SECOND = timedelta(seconds=1)


class Limit(NamedTuple):
    """A maximum number of messages per window."""

    text: str  # "5/s"
    number: int
    seconds: int

    @property
    def unit(self) -> str:
        return self.text.partition("/")[2]

    @property
    def window(self) -> timedelta:
        return self.seconds * SECOND

    def __str__(self) -> str:
        return self.text


class LimitReached(Exception):
    """A message is refused; one more would be accepted at an instant."""

    def __init__(self, whose: str, limit: Limit, free_at: datetime):
        super().__init__(f"The {whose}'s limit of {limit} is reached.")
        self.whose, self.limit, self.free_at = whose, limit, free_at


# How they are written


@lru_cache
def parse(text: str) -> tuple[Limit, ...]:
    """Return the limits of a key, the shortest window first; raise ValueError with the problem."""
    limits = {}
    for part in text.split(",") if text.strip() else ():
        limit = _read(part, "()(s|min|h|d)", "5/s,1000/d, per s, min, h or d")
        if limits.setdefault(limit.seconds, limit) is not limit:
            raise ValueError("must be a list with no unit twice: one limit per s, min, h or d")
    return tuple(limits[size] for size in sorted(limits))


def parse_recipient_limit(text: str) -> Limit | None:
    """Return the limit of a recipient, like 3/24h, or None; raise ValueError with the problem."""
    every = "([1-9][0-9]{0,3})(min|h|d)"
    return _read(text, every, "3/24h, per a number of min, h or d") if text.strip() else None


def _read(text, window, example):
    parts = re.fullmatch(rf"([^/]*)/{window}", text.strip())
    if not parts:
        raise ValueError(f"must be a number and a window, like {example}")
    number, times, unit = parts.groups()
    if not re.fullmatch("[1-9][0-9]{0,8}", number):
        raise ValueError(f"must be a whole number from 1 to 999999999, like {example}")
    return Limit(text.strip(), int(number), int(times or 1) * UNITS[unit])


def lock_numbers(numbers: Collection[str]) -> None:
    """Let no other transaction count the messages to these numbers before this one ends."""
    lock_texts(numbers)


# What has been used up


class KeyUse(Table):
    """How many messages of a key were accepted in the windows around a second.

    All four are counted, whichever are limited. A row is changed only under its lock. It is stale
    if the key has a newer message than `last_id`, accepted while it had no limits.
    """

    key_id = IntegerField(primary_key=True)
    second = BigIntegerField()  # since 1970, the latest with a message
    used_s = IntegerField()
    used_min = IntegerField()
    used_h = IntegerField()
    used_d = IntegerField()
    last_id = UUIDField(null=True)  # of the latest message that was counted

    @classmethod
    def lock(cls, key: int) -> Self:
        """Return the row of a key, locked until the transaction ends."""
        while not (row := db.lock_rows(cls.select().where(cls.key_id == key)).first()):
            nothing = {"second": 0} | {f"used_{unit}": 0 for unit in UNITS}
            cls.insert(key_id=key, **nothing).on_conflict_ignore().execute()
        return row

    def put(self, tally: "KeyTally") -> None:
        """Store what is used up by now, if that has changed."""
        changes = {"second": tally.second, "last_id": tally.last_id}
        for unit, size in UNITS.items():
            changes[f"used_{unit}"] = tally.used(size, tally.second)
        if any(getattr(self, name) != value for name, value in changes.items()):
            KeyUse.update(changes).where(KeyUse.key_id == self.key_id).execute()


class KeyTally:
    """What a key has used up, by the size of a window and its number since 1970.

    `second` is the latest in which a message was accepted, and `last_id` the id of the latest.
    """

    def __init__(self, counts: dict[tuple[int, int], int], second: int, last_id: uuid.UUID | None):
        self._counts, self.second, self.last_id = counts, second, last_id

    @classmethod
    def read(
        cls,
        row: KeyUse | None,
        latest: uuid.UUID | None,
        seconds: Iterable[int],
        count: Callable[[int, int], int],
    ) -> Self:
        """Return what a key has used up in the windows around these seconds.

        `latest` is the id of its latest message. `count` counts its messages from one second to
        another, for windows of which its row says nothing.
        """
        last_id = row.last_id if row else None
        is_known = row is not None and (latest is None or (last_id and latest <= last_id))
        last = row.second if is_known else max(seconds)
        counts = {}
        for unit, size in UNITS.items():
            for window in {second // size for second in (*seconds, last)}:
                if is_known and window > last // size:
                    counts[size, window] = 0
                elif is_known and window == last // size:
                    counts[size, window] = getattr(row, f"used_{unit}")
                else:
                    counts[size, window] = count(window * size, window * size + size)
        return cls(counts, last, max(filter(None, (latest, last_id)), default=None))

    def used(self, size: int, second: int) -> int:
        """Return how many messages were accepted in the window of this size around a second."""
        return self._counts[size, second // size]

    def reached(self, limits: tuple[Limit, ...], second: int) -> list[LimitReached]:
        """Return a refusal for each of these limits that allows no more around a second."""
        return [
            LimitReached("key", limit, EPOCH + (second // limit.seconds + 1) * limit.window)
            for limit in limits
            if self.used(limit.seconds, second) >= limit.number
        ]

    def add(self, second: int, id: uuid.UUID) -> None:
        """Count a message of a second."""
        for size in UNITS.values():
            self._counts[size, second // size] += 1
        self.second = max(self.second, second)
        self.last_id = max(filter(None, (id, self.last_id)))


class NumberTally:
    """When the messages to one number were accepted, the latest first."""

    def __init__(self, accepted_at: list[datetime]):
        self._accepted_at = accepted_at

    def reached(self, limit: Limit, at: datetime) -> list[LimitReached]:
        """Return a refusal if the window that ends at an instant has as many as allowed."""
        return [
            LimitReached("recipient", limit, (at if is_ahead(each, at) else each) + limit.window)
            for each in self._accepted_at[limit.number - 1 : limit.number]
            if each > at - limit.window
        ]

    def add(self, at: datetime) -> None:
        """Count one more message."""
        bisect.insort(self._accepted_at, at, key=lambda each: EPOCH - each)
