"""What is usual for a key: how many parts it sends to a country on a day of UTC."""

from collections.abc import Callable, Iterable
from typing import Self

from peewee import CompositeKey, IntegerField, TextField

from database import Table, db

DAYS = 14  # before a day, that tell what is usual
FEW = 20  # parts on a day, which are never odd
TIMES = 3  # what is more than so often the most is odd

# As SQL: to have peewee write it would be an eighth of a create
ADD = """
UPDATE key_day SET parts = parts + {param}
WHERE key_id = {param} AND country = {param} AND day = {param}
"""
COUNT = (
    ADD
    + f"""
RETURNING parts, (
    SELECT max(parts) FROM key_day AS earlier
    WHERE earlier.key_id = key_day.key_id AND earlier.country = key_day.country
    AND earlier.day BETWEEN key_day.day - {DAYS} AND key_day.day - 1
)
"""
)


class KeyDay(Table):
    """The parts of a key's messages to a country that were accepted on a day.

    Not of those that wait for approval, or that people refused or cancelled. There are rows only
    while what is odd is held; of a day without any, the messages are counted.
    """

    key_id = IntegerField()
    country = TextField()
    day = IntegerField()  # since 1970
    parts = IntegerField()

    class Meta:
        primary_key = CompositeKey("key_id", "country", "day")

    @classmethod
    def add(cls, key: int, country: str, day: int, parts: int) -> None:
        """Count parts of a day more or, below zero, less, where there is a row."""
        db.execute_sql(ADD.replace("{param}", db.param), (parts, key, country, day))

    @classmethod
    def begin(cls, key: int, country: str, day: int, count: Callable[[int], Iterable]) -> None:
        """Store the first row of a key, a country and a day, and of the days before it.

        `count` counts by country what the key has sent on a day of which nothing is known.
        """
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


class Usual:
    """What a key sends to a country: the parts of a day, and the most of what is usual."""

    def __init__(self, row: tuple[int, str, int], asked: int, parts: int, most: int):
        self.row, self.parts, self.most = row, parts, most
        self.not_added = asked

    @classmethod
    def count(cls, key: int, country: str, day: int, asked: int) -> Self | None:
        """Count the parts that are asked for, and return what is usual without them.

        None if there is no row. The row is locked until the transaction ends; `put` takes back what
        was not added.
        """
        sql = COUNT.replace("{param}", db.param)
        found = db.execute_sql(sql, (asked, key, country, day)).fetchall()
        if not found:
            return None
        ((parts, most),) = found
        return cls((key, country, day), asked, parts - asked, most or 0)

    def is_odd(self, parts: int) -> bool:
        """Say whether so many parts more are odd."""
        return self.parts + parts > max(FEW, TIMES * self.most)

    def add(self, parts: int) -> None:
        """Count parts of a message that is accepted."""
        self.parts += parts
        self.not_added -= parts

    def put(self) -> None:
        """Store what was added in place of what was asked for."""
        if self.not_added:
            KeyDay.add(*self.row, -self.not_added)
