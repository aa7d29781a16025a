"""Limits of keys and recipients: how they are written, what keys have used up, the refusal.

A key's windows are the seconds, minutes, hours and days of UTC. A recipient's window slides.
"""

import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import NamedTuple

from peewee import BigIntegerField, IntegerField

from database import EPOCH, Table, db, on_postgres

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}  # seconds
SIZES = tuple(UNITS.values())
SECOND = timedelta(seconds=1)
NO_LIMIT = 2**31 - 1


class Limit(NamedTuple):
    """So many messages in a window."""

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
        limit = _read(part, f"/({'|'.join(UNITS)})", "5/s,1000/d, per s, min, h or d")
        if limits.setdefault(limit.seconds, limit) is not limit:
            raise ValueError("must be a list with no unit twice: one limit per s, min, h or d")
    return tuple(limits[size] for size in sorted(limits))


def parse_recipient_limit(text: str) -> Limit | None:
    """Return the limit of a recipient, like 3/24h, or None; raise ValueError with the problem."""
    every = r"/([1-9][0-9]{0,3})(min|h|d)"
    return _read(text, every, "3/24h, per a number of min, h or d") if text.strip() else None


def _read(text, window, example):
    text = text.strip()
    if not re.fullmatch(rf"[^/]*{window}", text):
        raise ValueError(f"must be a number and a window, like {example}")
    number, _, every = text.partition("/")
    if not re.fullmatch("[1-9][0-9]{0,8}", number):
        raise ValueError(f"must be a whole number from 1 to 999999999, like {example}")
    times, unit = re.fullmatch("([0-9]*)([a-z]+)", every).groups()
    return Limit(text, int(number), int(times or 1) * UNITS[unit])


def lock_numbers(numbers: Collection[str]) -> None:
    """Let no other transaction count the messages to these numbers before this one ends."""
    if numbers and on_postgres():  # SQLite's transaction is alone
        db.execute_sql(
            "SELECT pg_advisory_xact_lock(hashtextextended(number, 0)) "
            "FROM unnest(%s::text[]) AS number",
            [sorted(numbers)],
        )


# What a key has used up

_USED = [f"used_{unit}" for unit in UNITS]
_COLUMNS = ", ".join(["second", *_USED])


class KeyUse(Table):
    """How many messages of a key were accepted in the windows around a second.

    All four are counted, whichever are limited. Whoever changes a row has locked it. A missing row
    is counted anew from the messages.
    """

    key_id = IntegerField(primary_key=True)
    second = BigIntegerField()  # since 1970, the latest with a message
    used_s = IntegerField()
    used_min = IntegerField()
    used_h = IntegerField()
    used_d = IntegerField()

    # As SQL: for peewee to write these takes longer than for a database to run them

    @classmethod
    def lock(cls, key: int) -> tuple[int, ...] | None:
        """Lock the row of a key for this transaction and return it; None if it is a new one."""
        lock = " FOR UPDATE" if db.for_update else ""
        select = f"SELECT {_COLUMNS} FROM key_use WHERE key_id = {db.param}{lock}"
        is_new = False
        while not (row := db.execute_sql(select, (key,)).fetchone()):
            insert = f"INSERT INTO key_use (key_id, {_COLUMNS}) VALUES ({db.param}, 0, 0, 0, 0, 0)"
            db.execute_sql(f"{insert} ON CONFLICT DO NOTHING", (key,))
            is_new = True
        return None if is_new else tuple(row)

    @classmethod
    def put(cls, key: int, row: tuple[int, ...]) -> None:
        """Store the row of a key, which is locked."""
        changes = ", ".join(f"{name} = {db.param}" for name in ("second", *_USED))
        db.execute_sql(f"UPDATE key_use SET {changes} WHERE key_id = {db.param}", (*row, key))

    @classmethod
    def forget(cls, key: int) -> None:
        """Have the use of a key counted anew from its messages."""
        cls.delete().where(cls.key_id == key).execute()

    @classmethod
    def all(cls) -> dict[int, tuple[int, ...]]:
        """Return the rows by key."""
        rows = db.execute_sql(f"SELECT key_id, {_COLUMNS} FROM key_use").fetchall()
        return {key: tuple(row) for key, *row in rows}


@cache
def count_if_room(keys: int) -> str:
    """Return the CTEs that count messages of so many keys on Postgres where limits allow it.

    `counted` are the ids of these keys. For each there are parameters, named with its position: id,
    second, n (messages), and the limits by unit. In the order of ids, or two batches could be a
    deadlock. One UPDATE each, because a join makes those wait twice as long that wait for a lock.
    """
    updates, positions = [], range(keys)
    for at in positions:
        n = {
            unit: f"CASE WHEN second / {size} = %(second{at})s / {size} "
            f"THEN used_{unit} ELSE 0 END + %(n{at})s"
            for unit, size in UNITS.items()
        }
        counts = ", ".join(f"used_{unit} = {sql}" for unit, sql in n.items())
        room = " AND ".join(f"{sql} <= %({unit}{at})s" for unit, sql in n.items())
        updates.append(
            f"counted{at} AS (UPDATE key_use SET second = %(second{at})s, {counts} "
            f"WHERE key_id = %(id{at})s AND second <= %(second{at})s AND {room} RETURNING key_id)"
        )
    counted = " UNION ALL ".join(f"SELECT key_id FROM counted{at}" for at in positions)
    return f"{', '.join(updates)}, counted AS ({counted})"


class Tally:
    """What a key has used up of any window, while its row is locked.

    `count` counts the stored messages between two seconds: for windows before those of the row, or
    for all windows if the row has only the second of the latest message.
    """

    def __init__(self, row: tuple[int, ...], count: Callable[[int, int], int]):
        self.read, (self.second, *used) = row, row
        self._count, self._is_new = count, not used
        self._used = {(s, self.second // s): n for s, n in zip(SIZES, used, strict=False)}

    def used(self, size: int, second: int) -> int:
        """Return how many messages were accepted in the window of this size around a second."""
        window = second // size
        if (size, window) not in self._used:
            is_counted = not self._is_new and window > self.second // size
            n = 0 if is_counted else self._count(window * size, window * size + size)
            self._used[size, window] = n
        return self._used[size, window]

    def refusals(self, limits: tuple[Limit, ...], second: int) -> list[LimitReached]:
        """Return a refusal for each of these limits that allows no more around a second."""
        return [
            LimitReached("key", limit, EPOCH + (second // limit.seconds + 1) * limit.window)
            for limit in limits
            if self.used(limit.seconds, second) >= limit.number
        ]

    def add(self, second: int, number: int = 1) -> None:
        """Count messages of a second."""
        for size in SIZES:
            if (size, second // size) in self._used or second >= self.second:
                self._used[size, second // size] = self.used(size, second) + number
        self.second = max(self.second, second)

    def row(self) -> tuple[int, ...]:
        """Return the row as it is to be stored, once the messages are."""
        return self.second, *(self.used(size, self.second) for size in SIZES)
