"""Limits of keys and recipients: how they are written, how much is used up, the refusal.

A key's windows are the seconds, minutes, hours, days and months of UTC; a recipient's slides.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from peewee import BigIntegerField, BooleanField, CompositeKey, IntegerField

from texting.database import EPOCH, LAST, Table, db, lock_texts
from texting.database.clock import SKEW

UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "mo": 31 * 86_400}  # seconds, at most
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)

WINDOWS_KEPT = 100
"""How many windows of each unit to keep, for late requests and steps of the clock."""

OR_ADD = (
    "ON CONFLICT (key_id, begins, seconds, in_parts)"
    " DO UPDATE SET used = key_use.used + excluded.used, refused_parts ="
    " CASE WHEN key_use.refused_parts <= excluded.refused_parts THEN key_use.refused_parts"
    " ELSE COALESCE(excluded.refused_parts, key_use.refused_parts) END"
    " RETURNING key_id, begins, seconds, in_parts, used"
)
"""In SQL, because each request of a key with limits runs it."""


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

    def span(self, second: int) -> tuple[int, int]:
        """Return the first second of the window of UTC that holds a second, and of the next."""
        if self.unit != "mo":
            begins = second // self.seconds * self.seconds
            return begins, begins + self.seconds
        day = EPOCH + second * SECOND
        first = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        next_first = (first + 31 * DAY).replace(day=1)
        return (first - EPOCH) // SECOND, (next_first - EPOCH) // SECOND

    def window_of(self, key: int, second: int) -> "Window":
        """Return the window in which a key's message counts if it is accepted in this second."""
        return Window(key, self.span(second)[0], self.seconds, self.in_parts)

    def needs(self, parts: int) -> int:
        """Return what a message of this many parts uses up."""
        return parts if self.in_parts else 1

    def refusal(self, used: int, second: int, parts: int) -> "LimitReached | TooManyParts | None":
        """Return why this limit of a key allows no message of this many parts, or None.

        `used` is what is used up in the window that holds the second.
        """
        if self.needs(parts) > self.number:
            return TooManyParts(parts, self)
        if used + self.needs(parts) > self.number:
            return LimitReached("key", self, EPOCH + self.span(second)[1] * SECOND)
        return None


class LimitReached(Exception):
    """A message is refused; from `free_at` on, one more would be accepted."""

    def __init__(self, whose: str, limit: Limit, free_at: datetime):
        super().__init__(f"The {whose}'s limit of {limit} is reached.")
        self.whose, self.limit, self.free_at = whose, limit, free_at


class TooManyParts(Exception):
    """A message has more parts than a limit of its key ever allows."""

    free_at = LAST  # never: the longest wait of several refusals counts

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
    return read_recipient_limit(text) if text.strip() else None


@lru_cache
def read_recipient_limit(text: str) -> Limit:
    """Return the limit of a recipient, like 3/24h; raise ValueError with the problem."""
    every = "([1-9][0-9]{0,3})(min|h|d)"
    return _read(text, every, "3/24h (a number of min, h or d)")


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


class Window(NamedTuple):
    """A span of time in which a limit of a key counts."""

    key_id: int
    begins: int  # the second since 1970
    seconds: int  # as in Limit
    in_parts: bool


class KeyUse(Table):
    """How many messages of a key, or parts, were accepted in a window of one of its limits."""

    key_id = IntegerField()
    begins = BigIntegerField()
    seconds = IntegerField()
    in_parts = BooleanField()
    used = BigIntegerField()
    # The fewest parts of a text for which the rest was too small
    refused_parts = IntegerField(null=True)

    class Meta:
        primary_key = CompositeKey("key_id", "begins", "seconds", "in_parts")

    @classmethod
    def of(cls, windows: Collection[Window]) -> Counter[Window]:
        """Return what is used up in these windows, and in some others of their keys."""
        return Counter(cls._read("used", windows))

    @classmethod
    def refused_in(cls, windows: Collection[Window]) -> dict[Window, int | None]:
        """Return the fewest parts refused in each of these windows, and in some others."""
        return cls._read("refused_parts", windows)

    @classmethod
    def _read(cls, column, windows):
        if not windows:
            return {}
        sets = {each.key_id for each in windows}, {each.begins for each in windows}
        one_of = db.among(f"SELECT value FROM {db.rows_of_array('given', 'bigint')}")
        found = db.execute_sql(
            f"SELECT key_id, begins, seconds, in_parts, {column} FROM key_use"
            f" WHERE key_id {one_of} AND begins {one_of}",
            [*map(db.array, sets)],
        )
        return {Window(*window): value for *window, value in found.fetchall()}

    @classmethod
    def add(
        cls, more: Counter[Window], refused: Mapping[Window, int] = MappingProxyType({})
    ) -> Counter[Window]:
        """Add to these windows; return what is then used up in each.

        `refused` has the fewest parts of texts for which the rest of a window was too small.
        They stay locked until the transaction ends, and are locked in order against deadlocks.
        """
        if not more and not refused:
            return Counter()
        rows = [
            window._asdict() | {"used": more[window], "refused_parts": refused.get(window)}
            for window in sorted({*more, *refused})
        ]
        found = db.insert_rows("key_use", rows, OR_ADD)
        after = Counter({Window(*window): used for *window, used in found})
        for window in sorted(more):
            if after[window] == more[window]:  # it has just begun
                cls._forget_before(window)
        return after

    @classmethod
    def _forget_before(cls, window):
        """Delete windows like this one that are long over."""
        alike = (cls.key_id == window.key_id) & (cls.seconds == window.seconds)
        cls.delete().where(
            alike, cls.begins < window.begins - WINDOWS_KEPT * window.seconds
        ).execute()

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Delete windows that have not begun: the clock was ahead, and has been set back."""
        return cls.delete().where(cls.begins > (now + SKEW - EPOCH) // SECOND).execute()


def needs(limits: Iterable[Limit], key: int, second: int, parts: int) -> Counter[Window]:
    """Return what a message of this many parts, accepted in a second, uses of a key's limits."""
    return Counter({each.window_of(key, second): each.needs(parts) for each in limits})


def recipient_reached(
    accepted_at: list[datetime], limit: Limit, at: datetime
) -> list[LimitReached]:
    """Return a refusal if the window that ends at an instant has as many messages as allowed.

    `accepted_at` has the times at which messages to the number were accepted, latest first.
    """
    if len(accepted_at) < limit.number or accepted_at[limit.number - 1] <= at - limit.window:
        return []
    oldest = accepted_at[limit.number - 1]
    return [LimitReached("recipient", limit, oldest + limit.window)]
