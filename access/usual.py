"""What is usual for a key: how many parts it sends to a country on a day of UTC."""

from collections.abc import Callable, Iterable
from typing import Self

from peewee import CompositeKey, IntegerField, TextField, fn

from database import Table, db, lock_texts

DAYS = 14  # the days before one that show what is usual
FEW = 20  # parts on a day, which are never odd
TIMES = 3  # more than this many times the most of a usual day is odd

IS_KNOWN = "SELECT 1 FROM key_day WHERE key_id = {param} AND day = {param} LIMIT 1"
"""In SQL: it is part of each create, and peewee takes 25 times as long to write it."""


class KeyDay(Table):
    """The parts of a key's messages to a country that were accepted on a day.

    Messages that wait for approval, or that people refused or cancelled, do not count. Only days
    on which odd texts are held have rows; of other days, the messages are counted.
    """

    key_id = IntegerField()
    country = TextField()
    day = IntegerField()  # since 1970
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("key_id", "country", "day")

    most = 0  # parts on a usual day; read only if it matters

    @classmethod
    def _is(cls, key, country, day):
        return (cls.key_id == key) & (cls.country == country) & (cls.day == day)

    @classmethod
    def add(cls, key: int, country: str, day: int, parts: int) -> None:
        """Add parts to a day, or take some away if negative, if it has a row."""
        cls._lock_counting(key)
        cls.update(parts=cls.parts + parts).where(cls._is(key, country, day)).execute()

    @classmethod
    def forget(cls, days: Iterable[tuple[int, int]]) -> None:
        """Forget the days of keys, (key, day), whose messages are no longer all counted."""
        for key, day in sorted(days):
            if db.execute_sql(IS_KNOWN.format(param=db.param), (key, day)).fetchone():
                cls._forget((cls.key_id == key) & (cls.day == day))

    @classmethod
    def forget_key(cls, key: int) -> None:
        """Forget all days of a key."""
        cls._forget(cls.key_id == key)

    @classmethod
    def _forget(cls, these):
        """Delete some rows of a key; lock them in order, against deadlocks."""
        with db.transaction():
            list(db.lock_rows(cls.select().where(these).order_by(cls.country, cls.day)))
            cls.delete().where(these).execute()

    @classmethod
    def lock(cls, key: int, country: str, day: int) -> Self | None:
        """Return the row of a day, locked until the transaction ends; None if there is none."""
        return db.lock_rows(cls.select().where(cls._is(key, country, day))).first()

    def most_before(self) -> int:
        """Return the most parts on any of the DAYS before this one."""
        days = KeyDay.day.between(self.day - DAYS, self.day - 1)
        theirs = (KeyDay.key_id == self.key_id) & (KeyDay.country == self.country)
        return KeyDay.select(fn.MAX(KeyDay.parts)).where(theirs, days).scalar() or 0

    def is_odd(self, parts: int) -> bool:
        """Return whether this many more parts on this day are odd."""
        return self.parts + parts > max(FEW, TIMES * self.most)

    def put(self) -> None:
        """Store the parts of this row, which is locked, if they have changed."""
        if self.is_dirty():
            mine = self._is(self.key_id, self.country, self.day)
            KeyDay.update(parts=self.parts).where(mine).execute()

    @classmethod
    def begin(cls, key: int, country: str, day: int, count: Callable[[int], Iterable]) -> None:
        """Store the first row of a key, a country and a day, and of the days before it.

        `count` returns what the key has sent on a day without rows, by country.
        """
        if cls.select().where(cls._is(key, country, day)).exists():
            return
        first = day - DAYS
        known = cls.select(cls.day).where(cls.key_id == key, cls.day >= first).distinct().tuples()
        columns = [cls.key_id, cls.country, cls.day, cls.parts]
        for of in sorted({*range(first, day + 1)} - {each for (each,) in known}):
            with db.transaction():  # one for each day, because on SQLite other writers wait
                cls._lock_counting(key)
                if rows := [(key, each, of, parts) for each, parts in count(of)]:
                    cls.insert_many(rows, columns).on_conflict_ignore().execute()
        cls.insert_many([(key, country, day, 0)], columns).on_conflict_ignore().execute()
        cls._forget((cls.key_id == key) & (cls.country == country) & (cls.day < first))

    @classmethod
    def _lock_counting(cls, key):
        """Let no days be counted while a decision is under way, which would not count then."""
        lock_texts([f"days of key {key}"])
