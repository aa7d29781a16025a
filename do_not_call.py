"""The Do Not Call list: the numbers that get no text, and why and when each joined."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Self

from peewee import SQL, TextField

from database import PAGE, InstantField, Table, db, json_values

PEOPLE = ("operator", "import")


class DoNotCall(Table):
    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()
    source = TextField(null=True)  # operator, import, reply or carrier; null before that was kept

    @classmethod
    def lists(cls, number: str) -> bool:
        """Return whether a number is on the list."""
        return cls.select().where(cls.number == number).exists()

    @classmethod
    def listed(cls, numbers: Iterable[str]) -> set[str]:
        """Return the numbers that are on the list."""
        numbers = list(numbers)
        found = cls.select().where(cls.number.in_(numbers)) if numbers else ()
        return {row.number for row in found}

    @classmethod
    def entry(cls, number: str) -> Self | None:
        """Return the entry of a number, or None if it is not on the list."""
        return cls.get_or_none(cls.number == number)

    @classmethod
    def size(cls) -> int:
        """Return how many numbers are on the list."""
        return cls.select().count()

    @classmethod
    def add(cls, numbers: Iterable[str], now: datetime, source: str) -> int:
        """Put numbers on the list; return how many were not on it yet.

        A number that people add stays after a START, even if a reply listed it first. The numbers
        are sorted, so two calls at once cannot deadlock on Postgres.
        """
        values, numbers = json_values(), json.dumps(sorted(numbers))
        if source in PEOPLE:
            these = SQL(f"number IN (SELECT value FROM {values}({db.param}))", (numbers,))
            cls.update(source=source).where(cls.source == "reply", these).execute()
        sql = (
            f"INSERT INTO do_not_call (number, added_at, source) SELECT value, {db.param}, "
            f"{db.param} FROM {values}({db.param}) WHERE true ON CONFLICT (number) DO UPDATE "
            "SET source = excluded.source WHERE do_not_call.source = 'reply' "
            f"AND excluded.source IN {PEOPLE}"  # a STOP that came in between
        )
        return db.execute_sql(sql, (cls.added_at.db_value(now), source, numbers)).rowcount

    @classmethod
    def remove(cls, numbers: Iterable[str], source: str | None = None) -> int:
        """Take numbers off the list, only those of a source if one is given; return how many."""
        listed = cls.number.in_(list(numbers))
        if source:
            listed &= cls.source == source
        return cls.delete().where(listed).execute()

    @classmethod
    def entries(cls) -> Iterator[Self]:
        """Read the whole list by number, in pages: no query stays open between them."""
        after = ""
        while page := list(cls.select().where(cls.number > after).order_by(cls.number).limit(PAGE)):
            yield from page
            after = page[-1].number
