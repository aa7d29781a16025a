"""Databases: a test runs on SQLite; those marked `on_both` also on a real PostgreSQL."""

import contextlib
import os
import re
import shutil
import uuid

import psycopg
import pytest

import models
import scheduler  # noqa: F401
from postgres_server import PostgresServer
from texting import (
    database,
    desk,  # noqa: F401  these two define every table
)

SQLITE, POSTGRES = "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)
on_both = pytest.mark.both
on_sqlite = pytest.mark.parametrize("kind", [SQLITE])
on_postgres = pytest.mark.parametrize("kind", [POSTGRES])


def pytest_generate_tests(metafunc):
    """Run a test marked `on_both` on each kind of database."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    is_given = any("kind" in (re.findall(r"\w+", n) if isinstance(n, str) else n) for n in given)
    is_asked = "kind" in metafunc.fixturenames and not is_given
    if is_asked and metafunc.definition.get_closest_marker("both"):
        metafunc.parametrize("kind", [SQLITE, POSTGRES])


@pytest.fixture
def kind():
    """The kind of database."""
    return SQLITE


@pytest.fixture(scope="session")
def postgres():
    """The URL of a real PostgreSQL server: TEST_DATABASE_URL, or one started for the tests."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield url
        return
    server = PostgresServer()
    yield server.url
    server.close()


@pytest.fixture
def stoppable_postgres():
    """A PostgreSQL for one test, which may stop, start and kill it."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def empty_database_url(kind, request, tmp_path):
    """A database with no tables."""
    if kind == "sqlite":
        (tmp_path / "messages.db").touch(0o600)
        yield f"sqlite:///{tmp_path}/messages.db"
    else:
        with _database(request.getfixturevalue("postgres")) as url:
            yield url


@contextlib.contextmanager
def _database(server):
    """Create a database on a server; drop it at the end."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield renamed(server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def renamed(url, name):
    """Return the URL of another database on the same server."""
    before, mark, query = url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}{mark}{query}"


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory):
    """The file of a database with all tables, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres):
    """The URL of a database with all tables, to be emptied."""
    with _database(postgres) as url:
        _migrate(url)
        yield url
        database.disconnect()


def deletions():
    """The statements that empty all tables."""
    tables = reversed(models.TABLES)
    return [f"DELETE FROM {table._meta.table_name}" for table in tables]


# It waits until they are gone
END_OTHER_CONNECTIONS = (
    "SELECT pg_terminate_backend(pid, 60_000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def _empty():
    """Empty the database over a connection of the pool: a new one takes 10 ms a test."""
    # Killed processes and threads left some behind; TRUNCATE takes far longer
    statements = [END_OTHER_CONNECTIONS, *deletions()]
    database.db.connection().execute("; ".join(statements), prepare=False)
    database.db.close()


def _migrate(url):
    database.connect(url)
    database.upgrade()
    for deletion in deletions():
        database.db.execute_sql(deletion)
    # However long the tests take, no scheduler is missed yet
    database.db.execute_sql("UPDATE schema_migration SET applied = '2100-01-01 00:00:00'")
    database.disconnect()


@pytest.fixture
def database_url(kind, request, tmp_path):
    """A database with all tables, empty, connected for this test."""
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "messages.db")
        url = f"sqlite:///{tmp_path}/messages.db"
    else:
        url = request.getfixturevalue("migrated_postgres")
    database.connect(url)
    if kind != "sqlite":
        _empty()
    yield url
    database.db.close()
    database.db.close_stale(0)  # the connections of a test's own threads
    if kind == "sqlite":
        database.db.close_idle()  # the file of another test may get the same name
