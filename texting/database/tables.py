"""What tables share: their base, instants, a carrier's words, and batches of rows."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from peewee import SQL, BigIntegerField, Expression, Field, Model, Select, TextField

from texting.database.clock import SKEW
from texting.database.connections import db

BATCH = 5_000
"""Rows that a bulk change moves in one transaction; other writers wait for one batch at most."""

FEW = 500
"""Rows that a scheduler changes at a time, between two looks at everything else."""

PAGE = 500
"""Rows that a report of all rows reads at a time."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
"""The last instant that there is."""

MILLISECOND = timedelta(milliseconds=1)
PAST = timedelta(0)
"""How far ahead an instant can be that says when something has happened."""


class Table(Model):
    """A table of this database; `is_migrated` looks for every one that is defined."""

    class Meta:
        database = db
        legacy_table_names = False

    @classmethod
    def delete_some(cls, condition: Expression) -> int:
        """Delete a batch of the rows that meet a condition; return how many."""
        return cls._change_some(cls.delete(), condition)

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Date instants now that are further ahead than they can be: the clock was set back.

        A call changes a batch of rows, and returns how many: 0 once nothing is left.
        """
        for field in cls._meta.sorted_fields:
            if isinstance(field, InstantField) and field.longest is not None:
                ahead = field > now + field.longest + SKEW
                change = cls.update({field: now})
                if changed := cls._change_some(change, ahead, field.among(now)):
                    return changed
        return 0

    @classmethod
    def _change_some(cls, change, *conditions):
        """Change a batch of the rows that meet the conditions; return how many.

        If there are none, take no lock.
        """
        key = cls._key_of_batches()
        batch = cls.select(key).where(*conditions).limit(FEW)
        if not batch.exists():
            return 0
        return change.where(locked(key, batch), *conditions).execute()

    @classmethod
    def _key_of_batches(cls):
        """Return the column by which a batch is found."""
        return cls._meta.primary_key


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


class CarrierTextField(TextField):
    """A carrier's words; characters that no database can hold are replaced.

    An odd word must not keep the outcome from being recorded.
    """

    def db_value(self, value: str | None) -> str | None:
        return value and re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


class JSONField(TextField):
    """A value as JSON, for reading whole; databases have no part in it."""

    def db_value(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value)

    def python_value(self, value: str | None) -> Any:
        return None if value is None else json.loads(value)


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
