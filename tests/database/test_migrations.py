"""Migrations: whatever way they came about, the tables are those of the models."""

import re
import uuid

import psycopg
import pytest
from playhouse.migrations import Runner
from playhouse.schema_diff import diff_models

import models
from databases import on_both, renamed
from running import ROOT
from samples import TUESDAY_NOON
from texting import database
from texting.access.audit import Audit
from texting.access.keys import ApiKey
from texting.database import db, isoformat
from texting.events.outbox import Event
from texting.messages.model import Message

pytestmark = on_both

TABLES = models.TABLES
NAMES = sorted(table._meta.table_name for table in TABLES)
MIGRATIONS = sorted(path.stem for path in (ROOT / "migrations").glob("[0-9]*.py"))


@pytest.fixture
def migrated(empty_database_url):
    """An empty database, once it was migrated."""
    database.connect(empty_database_url)
    applied = database.upgrade()
    yield applied
    database.disconnect()


@pytest.fixture
def migrated_by(empty_database_url, tmp_path):
    """Connect to an empty database, and migrate it by these migrations."""

    def migrate(names):
        for name in names:
            (tmp_path / f"{name}.py").write_text((ROOT / "migrations" / f"{name}.py").read_text())
        database.connect(empty_database_url)
        with db.atomic():
            Runner(db.obj, str(tmp_path)).up()

    yield migrate
    database.disconnect()


def columns():
    """Name, type, whether it may be null, whether it is the primary key, and its default."""
    return {name: sorted(tuple(column) for column in db.get_columns(name)) for name in NAMES}


def indexes():
    """Columns, whether they are unique, and name and condition where it has one.

    Without the primary keys' own.
    """
    found = set()
    for name in NAMES:
        for index in db.get_indexes(name):
            definition = re.sub(r"[\"()\s]|::text|public\.", "", (index.sql or "").lower())
            named = definition if "where" in definition else ""  # other names are peewee's choice
            if index.columns != db.get_primary_keys(name):
                found.add((name, tuple(index.columns), index.unique, named))
    return found


def foreign_keys():
    return {tuple(key) for name in NAMES for key in db.get_foreign_keys(name)}


def test_all_migrations_are_applied_in_order_to_an_empty_database(migrated):
    assert migrated == MIGRATIONS
    assert database.upgrade() == []


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_does_not_hold_every_text_is_refused(postgres, encoding):
    name = f"encoded_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' "
            "TEMPLATE template0"
        )
        database.connect(renamed(postgres, name))
        with pytest.raises(database.Refused) as refused:
            database.upgrade()
        assert str(refused.value) == (
            f"the database's encoding is {encoding}: create one with ENCODING 'UTF8'"
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_schema_diff_finds_no_difference(migrated):
    assert str(diff_models(db, TABLES)) == ""
    assert {*NAMES} <= {*db.get_tables()}


def test_columns_and_indexes_are_those_that_the_models_would_make(migrated):
    migrated = columns(), indexes(), foreign_keys()
    db.drop_tables(TABLES)
    assert not {*NAMES} & {*db.get_tables()}
    db.create_tables(TABLES)
    assert (columns(), indexes(), foreign_keys()) == migrated


def test_a_database_of_a_draft_is_refused(migrated):
    first = MIGRATIONS[0]
    db.execute_sql(f"UPDATE schema_migration SET name = '0001_initial' WHERE name = '{first}'")
    with pytest.raises(database.Refused, match="this database was made by a draft"):
        database.upgrade()
    assert not database.is_migrated()


def test_tables_of_a_later_version_are_no_draft(migrated):
    db.execute_sql(
        "INSERT INTO schema_migration (name, applied) VALUES ('0002_next', '2027-01-01')"
    )
    assert database.upgrade() == []
    assert database.is_migrated()


BEFORE_0004 = """
INSERT INTO api_key (id, name, digest, created_at) VALUES (1, 'app', 'd', 0);
INSERT INTO event (id, webhook_id, key_id, message_id, at, body, tries, next_try_at)
    VALUES (3, 'evt_3', 1, '00000000000000000000000000000003', 1, '{}', 2, 5),
           (7, 'evt_7', 1, '00000000000000000000000000000007', 1, '{}', 0, 5);
INSERT INTO audit (at, who, who_key, what, details)
    VALUES (9, 'Ann', 1, 'signed in', NULL),
           (9, 'Ann', 1, 'signed in', 'by the link of 2026-03-03T17:00:00.123Z');
"""
MESSAGE_BEFORE_0004 = """
INSERT INTO message (id, key_id, "to", message, first_send_at, send_at, expires_at, status,
    manual_mode, available_to_group, check_dnc, approved, attempts, max_retries, lane, created_at,
    idempotency_key, parts, country)
    VALUES ('{id}', 1, {text}, {text}, 1, 1, 1, 'sent', false, false, false, true, 1, 3, 'US', 1,
            '{name}', 1, 'US')
"""


def test_what_was_there_before_0004_is_kept_and_counts_once(migrated_by):
    migrated_by([name for name in MIGRATIONS if name < "0004"])
    statements = [each for each in BEFORE_0004.split(";") if each.strip()]
    for number, text in ((1, "'x'"), (2, "NULL")):
        id, name = f"{number:032x}", f"order-{number}"
        statements.append(MESSAGE_BEFORE_0004.format(id=id, text=text, name=name))
    for statement in statements:
        db.execute_sql(statement)
    assert "0004_once" in database.upgrade()
    events = [(each.id, each.webhook_id, each.tries) for each in Event.select().order_by(Event.id)]
    assert events == [(3, "evt_3", 2), (7, "evt_7", 0)]
    links = [each.link_made_at for each in Audit.select().order_by(Audit.id)]
    assert [each and isoformat(each) for each in links] == [None, "2026-03-03T17:00:00.123Z"]
    names = {each.id.int: each.idempotency_key for each in Message.select()}
    assert names == {1: "order-1", 2: None}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_on_sqlite_too_the_id_of_a_deleted_event_is_not_given_again(migrated):
    key = ApiKey.create(name="app", digest="d", created_at=TUESDAY_NOON)
    given = set()
    for _ in range(3):
        message_id = uuid.uuid4()
        event = Event.create(
            webhook_id="evt", key=key, message_id=message_id, at=TUESDAY_NOON, body="{}"
        )
        given.add(event.id)
        Event.delete().execute()
    assert len(given) == 3


def test_a_migration_that_fails_leaves_nothing_behind(migrated_by, tmp_path):
    (tmp_path / "9999_broken.py").write_text(
        "def up(migrator, db):\n    db.execute_sql('CREATE TABLE half (a int)')\n    1 / 0\n"
    )
    with pytest.raises(ZeroDivisionError):
        migrated_by(MIGRATIONS)
    assert not {*NAMES, "half"} & {*db.get_tables()}
    assert database.upgrade() == MIGRATIONS
