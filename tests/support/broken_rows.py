"""Rows that break what is done with them: the database refuses it, or they cannot be read."""

import pytest

from texting.database import db
from texting.messages.model import Message

BAD, TEXT = "+12125559999", "a secret of 12 words"
"""What a row that breaks has, and nothing says."""


def breaks(table, row, when, change="UPDATE"):
    """Have the database refuse a change of a row, in words that repeat its number."""
    if table == "attempt":
        column, id = "message_id", Message.id.db_value(row.message_id)
    else:
        column, id = "id", type(row).id.db_value(row.id)
    name = f"broken_{table}"
    condition = f"OLD.{column} = '{id}' AND ({when})"
    if db.product != "Postgres":
        db.execute_sql(
            f"CREATE TRIGGER {name} BEFORE {change} ON {table} WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, 'broken: {BAD} {TEXT}'); END"
        )
        return lambda: db.execute_sql(f"DROP TRIGGER {name}")
    db.execute_sql(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'broken: {BAD} {TEXT}' USING ERRCODE = '22000'; END $$"
    )
    db.execute_sql(
        f"CREATE TRIGGER {name} BEFORE {change} ON {table} FOR EACH ROW WHEN ({condition}) "
        f"EXECUTE FUNCTION {name}()"
    )
    return lambda: db.execute_sql(f"DROP TRIGGER {name} ON {table}")


@pytest.fixture
def broken(database_url):
    """Break rows until `broken.mend()`, or the test ends: the tables are not made anew."""
    mended = []

    def break_row(*arguments):
        mended.append(breaks(*arguments))

    def mend():
        while mended:
            mended.pop()()

    break_row.mend = mend
    yield break_row
    mend()


def unreadable(table, row):
    """An instant that is no date, as only a hand in the database can have written."""
    id = type(row).id.db_value(row.id)
    column = {"message": "event_delivered_at", "event": "given_up_at"}[table]
    db.execute_sql(f"UPDATE {table} SET {column} = 10000000000000000 WHERE id = {db.param}", [id])
