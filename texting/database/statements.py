"""Statements with names: what runs for each text, or in each round of a scheduler.

`sqlite.sql` and `postgres.sql` have the same ones. Several values or rows are one JSON parameter,
so no statement is written anew for each number of rows. {name} stands for another one before it.
All others are peewee's.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from texting.database.connections import db

PARAMETER = r":(\w+)"


class Statement(NamedTuple):
    """A statement, with what it does in one sentence."""

    sentence: str
    sql: str  # as its driver takes it
    parameters: tuple[str, ...]  # their names, in order


def read(product: str, mark: str) -> dict[str, Statement]:
    """Read the statements for a database, by name; `mark` stands for a parameter."""
    text = (Path(__file__).parent / f"{product.lower()}.sql").read_text()
    found, texts = {}, {}
    for name, sentence, sql in re.findall(r"^-- (\w+): (.+)\n((?:.+\n)+)", text, re.MULTILINE):
        texts[name] = sql = sql.format(**texts)
        parameters = tuple(re.findall(PARAMETER, sql))
        found[name] = Statement(sentence, re.sub(PARAMETER, mark, sql), parameters)
    return found


STATEMENTS = {"SQLite": read("SQLite", "?"), "Postgres": read("Postgres", "%s")}


def statement(name: str, /, **values: Any) -> tuple[str, list[Any]]:
    """Return the SQL of a statement of this database, and its parameters in order."""
    found = STATEMENTS[db.product][name]
    return found.sql, [values[each] for each in found.parameters]


def run(name: str, /, **values: Any) -> Any:
    """Run a statement; return the cursor."""
    return db.execute_sql(*statement(name, **values))


def array(values: Iterable[Any]) -> str:
    """Return values, such as ids, as one parameter."""
    return json.dumps([*values], default=_hex)


def _hex(id):
    return id.hex
