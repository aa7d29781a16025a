"""What tables share: their base, instants, a carrier's words, and batches of rows."""

import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta

from peewee import BigIntegerField, Expression, Field, Model, Select, TextField

from database.clock import is_ahead
from database.connections import db

BATCH = 5_000
"""Rows that a bulk change moves in one transaction; other writers wait for one batch at most."""

PAGE = 500
"""Rows that a report of all rows reads at a time."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


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
    def count_as_now(
        cls,
        field: Field,
        now: datetime,
        *conditions: Expression,
        longest: timedelta = timedelta(0),
    ) -> None:
        """Move instants to now that are further ahead than the longest of their kind.

        The clock was set back since they were noted.
        """
        cls._in_batches(cls.update({field: now}), is_ahead(field, now, longest), *conditions)

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

    Instants sort and compare alike on SQLite and Postgres.
    """

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
