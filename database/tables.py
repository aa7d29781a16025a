"""What tables share: their base, instants, a carrier's words, and batches of rows."""

import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from peewee import SQL, BigIntegerField, Expression, Field, Model, Select, TextField

from database.clock import SKEW
from database.connections import db

BATCH = 5_000
"""Rows that a bulk change moves in one transaction; other writers wait for one batch at most."""

PAGE = 500
"""Rows that a report of all rows reads at a time."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
PAST = timedelta(0)
"""How far ahead an instant can be that says when something has happened."""


class Table(Model):
    """A table of this database; `is_migrated` looks for every one that is defined."""

    class Meta:
        database = db
        legacy_table_names = False

    @classmethod
    def delete_where(cls, condition: Expression) -> None:
        """Delete the rows that meet a condition."""
        cls._in_batches(cls.delete(), condition)

    @classmethod
    def date_back(cls, now: datetime) -> None:
        """Date instants now that are further ahead than they can be: the clock was set back."""
        for field in cls._meta.sorted_fields:
            if isinstance(field, InstantField) and field.longest is not None:
                ahead = field > now + field.longest + SKEW
                cls._in_batches(cls.update({field: now}), ahead, field.among(now))

    @classmethod
    def _in_batches(cls, change, *conditions):
        """Change the rows that meet the conditions, in batches, so that others do not wait long.

        If there are none, take no lock.
        """
        key = cls._meta.primary_key
        batch = cls.select(key).where(*conditions).limit(BATCH)
        if batch.exists():
            change = change.where(locked(key, batch), *conditions)
            while change.execute():
                pass


class InstantField(BigIntegerField):
    """An aware UTC datetime, stored as whole milliseconds since 1970.

    Instants sort and compare alike on SQLite and Postgres. `longest` is how far ahead of now one
    can be, or None if it can be as far as it likes, or is only shown. `among` returns a condition
    of all that `date_back` is to look at, for which there is an index.
    """

    def __init__(
        self,
        longest: timedelta | None = None,
        among: Callable[[datetime], Expression] = lambda now: SQL("true"),
        **options: Any,
    ):
        super().__init__(**options)
        self.longest, self.among = longest, among

    def db_value(self, value: datetime | None) -> int | None:
        return value if value is None else (value - EPOCH) // MILLISECOND

    def python_value(self, value: int | None) -> datetime | None:
        return value if value is None else EPOCH + value * MILLISECOND


def isoformat(instant: datetime) -> str:
    """Return an aware UTC datetime as text, like `2026-03-02T14:00:00.000Z`."""
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


class CarrierTextField(TextField):
    """A carrier's words; characters that no database can hold are replaced.

    An odd word must not keep the outcome from being recorded.
    """

    def db_value(self, value: str | None) -> str | None:
        return value and re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


def in_pages(
    rows: Select, limit: int | None, after: Callable[[Model], Expression]
) -> Iterator[Model]:
    """Read ordered rows in pages, so that nothing stays open between them; None: all of them.

    `after` returns the condition of the rows that come after one.
    """
    page = rows
    while limit is None or limit > 0:
        size = PAGE if limit is None else min(PAGE, limit)
        found = list(page.limit(size))
        yield from found
        if len(found) < size:
            return
        limit = limit and limit - size
        page = rows.where(after(found[-1]))


def locked(key: Field, batch: Select) -> Expression:
    """Return the condition that a row's key is in a batch, and lock the batch.

    On Postgres, rows that others have locked are left out.
    """
    return db.in_batch(key, batch)


def lock_texts(texts: Collection[str]) -> None:
    """Let no other transaction lock any of these texts, like a number, before this one ends."""
    if texts:
        db.lock_texts(sorted(texts))  # two batches in opposite orders would be a deadlock
