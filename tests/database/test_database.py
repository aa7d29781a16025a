"""The database: connections, and what errors mean."""

import contextlib
import os
import resource
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playhouse.pool import MaxConnectionsExceeded

from answers import refusal
from databases import on_both, on_postgres, on_sqlite
from proxy import Proxy
from samples import NEW_YORK
from stored_messages import connection_of, create, key_named, store
from texting import database
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey
from texting.database import clock, db, pool
from texting.messages.model import Message

pytestmark = on_both

# Plain use of peewee


def test_a_message_stored_in_a_transaction_that_is_rolled_back_is_gone_alone(database_url):
    kept = threading.Event()

    def undo():
        with db.atomic() as transaction:
            create("undone")
            kept.wait(60)
            transaction.rollback()
        db.close()

    def keep():
        create("kept")
        db.close()

    create("before")  # a first text to a country is noted, for which another would wait
    db.close()
    with ThreadPoolExecutor(2) as pool:
        undone = pool.submit(undo)
        if db.obj.for_update:  # SQLite has one writer: the other waits
            pool.submit(keep).result()
        kept.set()
        undone.result()
        if not db.obj.for_update:
            pool.submit(keep).result()
    assert sorted(message.message for message in Message.select()) == ["before", "kept"]


@pytest.fixture
def impatient_pool(database_url, monkeypatch):
    """A pool that waits for a connection no longer than a fifth of a second."""
    monkeypatch.setitem(pool.POOL, "timeout", 0.2)
    database.connect("sqlite:///:memory:")  # the pool of the same URL would stay
    database.connect(database_url)
    yield
    database.connect("sqlite:///:memory:")


def test_a_thread_that_finds_all_connections_in_use_is_told_of_an_outage_in_time(impatient_pool):
    size = pool.POOL["max_connections"]
    all_taken, go_on = threading.Barrier(size + 1), threading.Event()

    def hold():
        db.connect()
        all_taken.wait(60)
        go_on.wait(60)
        db.close()

    with ThreadPoolExecutor(size) as threads:
        holders = [threads.submit(hold) for _ in range(size)]
        all_taken.wait(60)
        with pytest.raises(MaxConnectionsExceeded) as busy:
            db.connect()
        assert isinstance(busy.value, database.ERRORS)
        assert database.is_outage(busy.value)
        go_on.set()
        for holder in holders:
            holder.result()
    assert Message.select().count() == 0


@on_postgres
@pytest.mark.parametrize("where", ["environment", "url", "database"])
def test_an_emoji_is_kept_whatever_encoding_is_asked_for(database_url, post, monkeypatch, where):
    if where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    elif where == "url":
        database_url += f"{'&' if '?' in database_url else '?'}client_encoding=LATIN1"
    else:
        name = db.execute_sql("SELECT current_database()").fetchone()[0]
        db.execute_sql(f"ALTER DATABASE {name} SET client_encoding = 'LATIN1'")
        database.disconnect()
    try:
        database.connect(database_url)
        assert post(message="Grüße 🎉").status_code == 201
        assert Message.get().message == "Grüße 🎉"
    finally:
        if where == "database":
            db.execute_sql(f"ALTER DATABASE {name} RESET client_encoding")


def test_rows_that_meet_a_condition_are_deleted_a_batch_at_a_time(database_url, monkeypatch):
    monkeypatch.setattr(database.tables, "FEW", 2)
    for number in range(6):
        DoNotCall.create(number=f"+1212555010{number}", added_at=clock.now(), source="operator")
    others = DoNotCall.number != "+12125550105"
    assert [DoNotCall.delete_some(others) for _ in range(4)] == [2, 2, 1, 0]
    assert [each.number for each in DoNotCall.select()] == ["+12125550105"]


# What errors mean


def broken_sql():
    db.execute_sql("SELEC 1")


def violated_rule():
    for _ in "12":
        DoNotCall.create(number=NEW_YORK, added_at=clock.now(), source="operator")


def unfit_value():
    Message.update(send_at=None).execute()
    store()
    Message.update(send_at=None).execute()


@pytest.mark.parametrize("bug", [broken_sql, violated_rule, unfit_value])
def test_a_bug_is_no_outage(app, bug, caplog):
    app.add_url_rule("/bug", view_func=bug)
    response = app.test_client().get("/bug")
    assert refusal(response, 500) == {}
    assert "OperationalError" in caplog.text or "Error" in caplog.text
    assert NEW_YORK not in caplog.text


def test_a_lock_that_another_holds_is_an_outage_in_any_language(database_url, monkeypatch):
    """Postgres translates its words; the code stays."""
    key_named("app")
    with contextlib.closing(connection_of(database_url)) as connection:
        if db.obj.for_update:
            db.execute_sql("SET lock_timeout = '100ms'")
            connection.execute("BEGIN")
            connection.execute("LOCK TABLE api_key IN ACCESS EXCLUSIVE MODE")
        else:
            monkeypatch.setattr(pool, "PATIENCE", 0.1)
            connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(database.ERRORS) as caught:
            ApiKey.update(group="x").execute()
        connection.execute("ROLLBACK")
    assert database.is_outage(caught.value)
    database.disconnect()  # the session with its short timeout


@contextlib.contextmanager
def no_file_grows():
    """As on a full disk: no file may be longer than the database's log is now."""
    size = max(path.stat().st_size for path in Path(db.database).parent.glob("*-wal"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@on_sqlite
def test_a_full_disk_is_an_outage_also_where_the_last_row_is_fetched(database_url):
    store()
    update = Message.update(message="x" * 5000).returning(Message.message)
    with no_file_grows(), pytest.raises(sqlite3.OperationalError) as full:
        update.execute()
    assert isinstance(full.value, database.ERRORS)
    assert database.is_outage(full.value)
    assert Message.get().message == "Hello"


@on_sqlite
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("INSERT INTO do_not_call (number) VALUES ('+1')", "IntegrityError"),
    ],
)
def test_sqlites_own_errors_are_bugs_unless_they_mean_later(database_url, statement, words):
    with pytest.raises(database.ERRORS) as bug:
        db.connection().execute(statement).fetchall()
    assert not database.is_outage(bug.value)
    assert database.reason(bug.value) == words


def test_a_server_that_goes_while_a_session_is_set_up_is_an_outage_and_no_more(stoppable_postgres):
    proxy = Proxy(stoppable_postgres.folder / ".s.PGSQL.5432")
    database.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
    proxy.hang_up_at = b"set_config"
    for _ in range(pool.POOL["max_connections"] + 1):
        with pytest.raises(database.ERRORS) as lost, db.atomic():
            pass
        assert database.is_outage(lost.value)
    proxy.hang_up_at = None
    assert db.execute_sql("SELECT 1").fetchone() == (1,)
    database.disconnect()
    proxy.close()


@on_sqlite
def test_a_new_sqlite_is_private_whatever_the_umask(database_url, tmp_path):
    before = os.umask(0o022)
    try:
        database.connect(f"sqlite:///{tmp_path}/new.db")
        database.upgrade()
        key_named("app")
    finally:
        os.umask(before)
    created = [*tmp_path.glob("new.db*")]
    assert {path.name for path in created} == {"new.db", "new.db-wal", "new.db-shm"}
    assert {path.stat().st_mode & 0o777 for path in created} == {0o600}
