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
from texting import database
from texting.database import db
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message
from texting.sending.carrier_state import CarrierState

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


def test_what_1_0_0_left_open_keeps_the_id_with_which_it_was_given(migrated_by):
    """Of its carrier's own earlier copies: a retried text in doubt may be given again."""
    migrated_by(["0001_tables"])
    id, attempts = (
        uuid.uuid4().hex,
        "INSERT INTO attempt (message_id, claim_number, carrier, result",
    )
    db.execute_sql(
        "INSERT INTO api_key (id, name, digest, created_at) VALUES (1, 'app', 'digest', 0)"
    )
    db.execute_sql(
        "INSERT INTO message (id, key_id, first_send_at, send_at, expires_at, status, manual_mode,"
        " available_to_group, check_dnc, approved, attempts, max_retries, lane, created_at, parts,"
        f" country) VALUES ('{id}', 1, 0, 0, 0, 'scheduled', false, false, false, true, 2, 3, 'US',"
        " 0, 1, 'US')"
    )
    of_each = [("eu", "'taken'"), ("us", "'taken'"), ("us", "'unclear'"), ("eu", "NULL")]
    for number, (carrier, result) in enumerate(of_each, 1):
        db.execute_sql(f"{attempts}, begun_at) VALUES ('{id}', {number}, '{carrier}', {result}, 0)")
    assert database.upgrade() == MIGRATIONS[1:]
    (found,) = Attempt.of_messages([id]).values()
    assert [each.copy for each in found] == [0, 0, 1, 1]


def test_what_1_0_0_left_in_doubt_is_recounted_and_dead_owners_are_forgotten(migrated_by):
    migrated_by(["0001_tables"])
    new = "INSERT INTO {} ({}) VALUES ({})".format
    db.execute_sql(new("api_key", "id, name, digest, created_at", "1, 'app', 'digest', 0"))
    ids, owner = [uuid.uuid4().hex for _ in range(3)], uuid.uuid4().hex
    db.execute_sql(new("heartbeat", "sender, beats, beat_at", f"'{owner}', 1, 0"))
    columns = "id, key_id, first_send_at, send_at, expires_at, status, manual_mode, created_at"
    columns += ", available_to_group, check_dnc, approved, attempts, max_retries, parts, country"
    columns += ", lane, in_doubt, claims_before_retry"
    usual = "1, 0, 0, 0, 'queued', false, 0, false, false, true, 2, 3, 1, 'US'"
    of_each = ("US!eu>us?us?us?eu", 1, 0), ("US?us", 5, 1), ("US", 0, 0)
    for id, (lane, in_doubt, before) in zip(ids, of_each, strict=True):
        values = f"'{id}', {usual}, '{lane}', {in_doubt}, {before}"
        db.execute_sql(new("message", columns, values))
    attempts = [
        *((ids[0], 1, "us", "'unclear'", 7, None), (ids[0], 2, "eu", "'unclear'", "NULL", None)),
        *((ids[0], 3, "us", "'taken'", "NULL", None), (ids[1], 1, "us", "'unclear'", 7, owner)),
        *((ids[1], 2, "us", "'unclear'", 7, uuid.uuid4().hex),),
        *((ids[2], 1, "us", "NULL", "NULL", owner),),
    ]
    columns = "message_id, claim_number, carrier, result, ask_at, sender, begun_at"
    for id, number, carrier, result, ask_at, sender in attempts:
        sender = f"'{sender}'" if sender else "NULL"
        values = f"'{id}', {number}, '{carrier}', {result}, {ask_at}, {sender}, 0"
        db.execute_sql(new("attempt", columns, values))
    columns = "name, pause, probe_claimed_at, probe_claimed_by"
    for name, sender in (("eu", owner), ("us", uuid.uuid4().hex)):
        db.execute_sql(new("carrier_state", columns, f"'{name}', 0, 0, '{sender}'"))
    database.upgrade()
    found = {each.id.hex: each for each in Message.select()}
    repeated = [(found[id].lane, found[id].in_doubt) for id in ids]
    assert repeated == [("US!eu>us?us?", 2), ("US?us", 1), ("US", 0)]
    owners = [each.sender_id for each in Attempt.of_messages([ids[1]])[uuid.UUID(ids[1])]]
    assert owners == [uuid.UUID(owner), None]
    states = CarrierState.select().order_by(CarrierState.name)
    assert [each.probe_claimed_by_id for each in states] == [uuid.UUID(owner), None]
    Heartbeat.delete().execute()
    assert not Attempt.select().where(Attempt.sender.is_null(False)).exists()


def test_a_database_of_a_draft_is_refused(migrated):
    db.execute_sql("UPDATE schema_migration SET name = '0001_initial' WHERE name = '0001_tables'")
    with pytest.raises(database.Refused, match="this database was made by a draft"):
        database.upgrade()
    assert not database.is_migrated()


def test_tables_of_a_later_version_are_no_draft(migrated):
    db.execute_sql(
        "INSERT INTO schema_migration (name, applied) VALUES ('0002_next', '2027-01-01')"
    )
    assert database.upgrade() == []
    assert database.is_migrated()


def test_a_migration_that_fails_leaves_nothing_behind(migrated_by, tmp_path):
    (tmp_path / "9999_broken.py").write_text(
        "def up(migrator, db):\n    db.execute_sql('CREATE TABLE half (a int)')\n    1 / 0\n"
    )
    with pytest.raises(ZeroDivisionError):
        migrated_by(MIGRATIONS)
    assert not {*NAMES, "half"} & {*db.get_tables()}
    assert database.upgrade() == MIGRATIONS
