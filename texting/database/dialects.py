"""Where SQLite and Postgres differ: each has its own form of the same methods.

Nothing else asks which database it is.
"""

import json
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from peewee import Expression, Field, Select, fn

from texting.database.errors import Refused


class SqliteDialect:
    """SQLite locks no rows and no texts: a transaction that writes is alone."""

    product = "SQLite"
    sees_disk = True  # whether bytes_left() can tell
    lock_unlocked = ""
    """The clause that makes a query in SQL find, and lock, the rows that nobody has locked."""

    def read_clock(self) -> float | None:
        """Return the database's time in seconds since 1970; None if its clock is ours."""
        return None

    def begin_upgrade(self) -> None:
        """Keep other upgrades out until this transaction ends; refuse a database that is unfit."""

    def lock_rows(self, rows: Select) -> Select:
        """Return a query that also locks the rows that it finds, until the transaction ends."""
        return rows

    def in_batch(self, key: Field, batch: Select) -> Expression:
        """Return the condition that a key is in a batch, whose rows are locked.

        Those that others have locked are left out.
        """
        return key.in_(batch)

    def lock_texts(self, texts: list[str]) -> None:
        """Let no other transaction lock any of these texts before this one ends."""

    def array(self, values: Collection[Any]) -> Any:
        """Return several values as one parameter, for `rows_of_array`."""
        return json.dumps([*values])

    def rows_of_array(self, name: str, type: str) -> str:
        """Return the SQL of a table of the values of an `array`, in its column `value`."""
        return f"(SELECT value FROM json_each({self.param})) AS {name}"

    def few_of_each(self, rows: str, table: str, columns: str, first: str) -> str:
        """Return the SQL of some rows, each beside the `few` of a table that belong to it.

        `first` is what follows FROM in the query that finds these by their id.
        """
        return f"{rows} CROSS JOIN {table} AS few ON few.id IN (SELECT id FROM {first})"

    def among(self, query: str) -> str:
        """Return the SQL condition that a value is in a query's result; it runs the query once."""
        return f"IN ({query})"

    def by_index(self, name: str) -> str:
        """Return the clause that has rows of a table looked up by an index."""
        return f"INDEXED BY {name}"

    def reading(self) -> AbstractContextManager:
        """Return a transaction that only reads; none here, as it would wait for one that writes."""
        return nullcontext()

    def avoid_sorts(self) -> None:
        """Have the queries of this transaction read rows in the order of an index.

        Postgres' statistics may be of a time with hardly any rows. Going by them, it would read and
        sort all rows that are there by now for each one that is asked for.
        """

    def contains(self, text: Field, word: str) -> Expression:
        """Return the condition that a text, with its ASCII letters in lower case, has a word.

        Whatever the two are, the time that this takes grows with the length of the text alone;
        LIKE begins anew at every character.
        """
        return fn.INSTR(fn.LOWER(text), word) > 0

    def insert_rows(self, table: str, rows: list[dict[str, Any]], and_more: str) -> list[tuple]:
        """Insert some rows, their values by column, in one statement; return what that returns."""
        marks = f"({', '.join([self.param] * len(rows[0]))})"
        sql = f"INSERT INTO {table} ({_columns(rows)}) VALUES {', '.join([marks] * len(rows))}"
        values = [value for row in rows for value in row.values()]
        return self.execute_sql(f"{sql} {and_more}", values).fetchall()


class PostgresDialect:
    """Each method does what SQLite's of the same name says."""

    product = "Postgres"
    sees_disk = False
    lock_unlocked = "FOR UPDATE SKIP LOCKED"

    def read_clock(self) -> float | None:
        asked = "SELECT extract(epoch FROM clock_timestamp())::float"
        return self.execute_sql(asked).fetchone()[0]

    def begin_upgrade(self) -> None:
        ((encoding,),) = self.execute_sql("SHOW server_encoding").fetchall()
        if encoding != "UTF8":
            raise Refused(f"the database's encoding is {encoding}: create one with ENCODING 'UTF8'")
        self.execute_sql("SET LOCAL lock_timeout = 0")
        self.execute_sql("SELECT pg_advisory_xact_lock(hashtext('text-messages upgrade'))")

    def lock_rows(self, rows: Select) -> Select:
        return rows.for_update()

    def in_batch(self, key: Field, batch: Select) -> Expression:
        """Use an array, or the planner may run the query twice and lock two batches."""
        return key == fn.ANY(fn.ARRAY(batch.for_update(self.lock_unlocked)))

    def lock_texts(self, texts: list[str]) -> None:
        each = self.rows_of_array("each", "text")
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended(value, 0)) FROM {each}"
        self.execute_sql(lock, [texts])

    def array(self, values: Collection[Any]) -> Any:
        return [*values]

    def rows_of_array(self, name: str, type: str) -> str:
        return f"unnest(CAST({self.param} AS {type}[])) AS {name}(value)"

    def few_of_each(self, rows: str, table: str, columns: str, first: str) -> str:
        return f"{rows} CROSS JOIN LATERAL (SELECT {columns} FROM {first}) AS few"

    def among(self, query: str) -> str:
        """Use an array, for the same reason."""
        return f"= ANY(ARRAY({query}))"

    def by_index(self, name: str) -> str:
        return ""  # it finds the index itself

    def reading(self) -> AbstractContextManager:
        return self.atomic()

    def avoid_sorts(self) -> None:
        self.execute_sql("SET LOCAL enable_sort = off")

    def contains(self, text: Field, word: str) -> Expression:
        """Use a regular expression that is all literal, as strpos compares from each character."""
        return fn.LOWER(text.collate('"C"')).regexp(f"***={word}")

    def insert_rows(self, table: str, rows: list[dict[str, Any]], and_more: str) -> list[tuple]:
        """Give the rows as one JSON parameter.

        So the text is always the same, and psycopg reads and prepares it once: half the cost of a
        row.
        """
        columns = _columns(rows)
        sql = f"INSERT INTO {table} ({columns}) SELECT {columns}"
        sql += f" FROM json_populate_recordset(NULL::{table}, {self.param}) {and_more}"
        values = [json.dumps(rows, default=str)]  # UUIDs
        return self.execute_sql(sql, values).fetchall()


def _columns(rows):
    return ", ".join(f'"{column}"' for column in rows[0])
