"""What the two databases say in different words: each has its own form of the same methods.

So nobody else asks which database it is. SQLite's transaction that writes is alone, so it locks
nothing besides.
"""

import json
from collections.abc import Collection
from typing import Any

from peewee import Column, Select, ValuesList


class SqliteDialect:
    product = "SQLite"

    def read_clock(self) -> float | None:
        """Return the database's time in seconds since 1970; None if its clock is ours."""
        return None

    def lock_rows(self, rows: Select) -> Select:
        """Return a query that also locks the rows that it finds, until the transaction ends."""
        return rows

    def row_lock(self, clause: str) -> str:
        """Return the clause, like FOR SHARE, that makes a query in SQL lock the rows it finds."""
        return ""

    def array(self, values: Collection[Any]) -> Any:
        """Return several values as one parameter, for `rows_of_array`."""
        return json.dumps([*values])

    def rows_of_array(self, name: str, type: str) -> str:
        """Return the SQL of a table of the values of an `array`, in its column `value`."""
        return f"(SELECT value FROM json_each({self.param})) AS {name}"

    def typed(self, rows: ValuesList, *types: str) -> list[Column]:
        """Return the columns of rows of parameters, which are of these types."""
        return [getattr(rows.c, f"column{n}") for n, _ in enumerate(types, 1)]

    def insert_rows(self, table: str, rows: list[dict[str, Any]], and_more: str) -> list[tuple]:
        """Insert some rows, their values by column, in one statement; return what that returns."""
        marks = f"({', '.join([self.param] * len(rows[0]))})"
        sql = f"INSERT INTO {table} ({_columns(rows)}) VALUES {', '.join([marks] * len(rows))}"
        values = [value for row in rows for value in row.values()]
        return self.execute_sql(f"{sql} {and_more}", values).fetchall()


class PostgresDialect:
    product = "Postgres"

    def read_clock(self) -> float | None:
        asked = "SELECT extract(epoch FROM clock_timestamp())::float"
        return self.execute_sql(asked).fetchone()[0]

    def lock_rows(self, rows: Select) -> Select:
        return rows.for_update()

    def row_lock(self, clause: str) -> str:
        return clause

    def array(self, values: Collection[Any]) -> Any:
        return [*values]

    def rows_of_array(self, name: str, type: str) -> str:
        return f"unnest(CAST({self.param} AS {type}[])) AS {name}(value)"

    def typed(self, rows: ValuesList, *types: str) -> list[Column]:
        """Do so: Postgres would guess them."""
        return [getattr(rows.c, f"column{n}").cast(type) for n, type in enumerate(types, 1)]

    def insert_rows(self, table: str, rows: list[dict[str, Any]], and_more: str) -> list[tuple]:
        """Do so with one JSON parameter.

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
