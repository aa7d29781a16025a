"""What each database says in its own words: both do the same."""

import pytest

from databases import on_both
from samples import TUESDAY_NOON
from texting.access.keys import ApiKey
from texting.database import clock, db

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]
ODD = ["", " ", "NULL", "a,b", '"', "'", "{}", "[1]", "\\", "%s", "?", "ü\n🙂", "a", "a"]


@pytest.mark.parametrize(
    ("type", "values"), [("text", []), ("text", ODD), ("integer", [3, -1, 3, 0])]
)
def test_an_array_has_a_row_for_each_value_as_it_is(type, values):
    found = db.execute_sql(
        f"SELECT value FROM {db.rows_of_array('each', type)}", (db.array(values),)
    )
    assert [value for (value,) in found.fetchall()] == values


def test_rows_are_inserted_in_one_statement_that_returns_theirs():
    rows = [
        {"name": name, "digest": name, "created_at": 1, "role": "app", "urgent": name == "a"}
        for name in ("a", "b'\"\\%s?")
    ]
    assert len(db.insert_rows("api_key", rows, "RETURNING id")) == 2
    assert db.insert_rows("api_key", rows[:1], "ON CONFLICT DO NOTHING RETURNING id") == []
    keys = {key.name: key.urgent for key in ApiKey.select()}
    assert keys == {"a": True, "b'\"\\%s?": False}


def test_a_query_that_locks_rows_finds_them():
    ApiKey.create(name="a", digest="-", created_at=TUESDAY_NOON)
    with db.atomic():
        sql = f"SELECT name FROM api_key {db.lock_unlocked}"
        assert db.execute_sql(sql).fetchall() == [("a",)]
        assert db.lock_rows(ApiKey.select()).get().name == "a"


def test_the_database_knows_its_name_and_its_time(clock_of_postgres, kind):
    theirs = db.read_clock()
    assert db.product.lower() == kind
    assert (theirs is None) == (kind == "sqlite")
    assert theirs is None or abs(theirs - clock.now().timestamp()) < 5
