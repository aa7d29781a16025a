"""What is usual for a key: how many parts it sends to a country on a day of UTC."""

from collections.abc import Callable, Iterable
from typing import Self

from peewee import CompositeKey, IntegerField, TextField, fn

from database import Table, db

DAYS = 14  # before a day, that tell what is usual
FEW = 20  # parts on a day, which are never odd
TIMES = 3  # what is more than so often the most is odd

IS_KNOWN = "SELECT 1 FROM key_day WHERE key_id = {param} AND day = {param} LIMIT 1"
"""As SQL: it is part of each create, and to have peewee write it takes 25 times as long."""


class KeyDay(Table):
    """The parts of a key's messages to a country that were accepted on a day.

    Not of those that wait for approval, or that people refused or cancelled. There are rows only
    of days on which what is odd is held; of a day without any, the messages are counted.
    """

    key_id = IntegerField()
    country = TextField()
    day = IntegerField()  # since 1970
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("key_id", "country", "day")

    most = 0  # that is usual, as far as it matters

    @classmethod
    def _is(cls, key, country, day):
        return (cls.key_id == key) & (cls.country == country) & (cls.day == day)

    @classmethod
    def add(cls, key: int, country: str, day: int, parts: int) -> None:
        """Count parts of a day more or, below zero, less, where there is a row."""
        cls.update(parts=cls.parts + parts).where(cls._is(key, country, day)).execute()

    @classmethod
    def forget(cls, days: Iterable[tuple[int, int]]) -> None:
        """Forget the days of keys on which messages are stored that are not judged: (key, day).

        Lock their rows in order, against deadlocks.
        """
        for key, day in sorted(days):
            if db.execute_sql(IS_KNOWN.format(param=db.param), (key, day)).fetchone():
                of_day = (cls.key_id == key) & (cls.day == day)
                list(db.lock_rows(cls.select().where(of_day).order_by(cls.country)))
                cls.delete().where(of_day).execute()

    @classmethod
    def lock(cls, key: int, country: str, day: int) -> Self | None:
        """Return the row of a day, locked until the transaction ends; None if there is none."""
        return db.lock_rows(cls.select().where(cls._is(key, country, day))).first()

    def most_before(self) -> int:
        """Return the most parts of one of the DAYS before."""
        days = KeyDay.day.between(self.day - DAYS, self.day - 1)
        theirs = (KeyDay.key_id == self.key_id) & (KeyDay.country == self.country)
        return KeyDay.select(fn.MAX(KeyDay.parts)).where(theirs, days).scalar() or 0

    def is_odd(self, parts: int) -> bool:
        """Say whether so many parts more on this day are odd."""
        return self.parts + parts > max(FEW, TIMES * self.most)

    def put(self) -> None:
        """Store the parts of this row, which is locked, if they have changed."""
        if self.is_dirty():
            mine = self._is(self.key_id, self.country, self.day)
            KeyDay.update(parts=self.parts).where(mine).execute()

    @classmethod
    def begin(cls, key: int, country: str, day: int, count: Callable[[int], Iterable]) -> None:
        """Store the first row of a key, a country and a day, and of the days before it.

        `count` counts by country what the key has sent on a day of which nothing is known.
        """
        if cls.select().where(cls._is(key, country, day)).exists():
            return
        first = day - DAYS
        known = cls.select(cls.day).where(cls.key_id == key, cls.day >= first).distinct().tuples()
        unknown = {*range(first, day + 1)} - {each for (each,) in known}
        counted = {(each, of): parts for of in unknown for each, parts in count(of)}
        counted.setdefault((country, day), 0)
        # In order, or two of these could be a deadlock
        rows = [(key, *which, parts) for which, parts in sorted(counted.items())]
        columns = [cls.key_id, cls.country, cls.day, cls.parts]
        cls.insert_many(rows, columns).on_conflict_ignore().execute()
        cls.delete().where(cls.key_id == key, cls.country == country, cls.day < first).execute()
