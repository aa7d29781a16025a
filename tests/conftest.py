"""Nouns: databases, applications, clients, keys, clocks."""

import contextlib
import os
import shutil
import uuid

import psycopg
import pytest

import models
import settings as environment
from app import create_app
from running import PYTHON, ROOT, TOOLS, Process, answers, free_port, wait_until  # noqa: F401
from samples import LONDON, NEW_YORK, SUNDAY_NIGHT, TUESDAY_NOON  # noqa: F401

pytest_plugins = ["running", "postgres_server"]


def pytest_xdist_auto_num_workers():
    """With `-n auto` run a process more than there are cores: many tests wait."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request):
    """Which database: each in turn."""
    return request.param


@pytest.fixture
def empty_database_url(kind, request, tmp_path):
    """A database with no tables."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/messages.db"
    else:
        with _database(request.getfixturevalue("postgres")) as url:
            yield url


@contextlib.contextmanager
def _database(server):
    """A database of a server's, for as long as it is needed."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield _renamed(server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _renamed(url, name):
    """The same URL for another database of the server."""
    before, mark, query = url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}{mark}{query}"


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory):
    """The file of a database with its tables, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "migrated.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres):
    """A database with its tables, to be emptied."""
    with _database(postgres) as url:
        _migrate(url)
        yield url


def _migrate(url):
    models.connect(url)
    models.upgrade()
    models.disconnect()


@pytest.fixture
def database_url(kind, request, tmp_path):
    """A database with its tables, all empty, connected for this test."""
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "messages.db")
        url = f"sqlite:///{tmp_path}/messages.db"
    else:
        url = request.getfixturevalue("migrated_postgres")
        with psycopg.connect(url) as connection:
            connection.execute(  # what processes that were killed have left behind
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            for table in ("message", "do_not_call", "api_key"):  # TRUNCATE takes far longer
                connection.execute(f"DELETE FROM {table}")
    models.connect(url)
    yield url
    models.disconnect()


@pytest.fixture
def settings(database_url, monkeypatch, tmp_path):
    """The default settings, whatever the machine's environment says."""
    for name in (*environment.Settings._fields, "port", "web_concurrency", "script_name"):
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    return environment.load()._replace(database_url=database_url)


@pytest.fixture
def app(settings):
    return create_app(settings)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def flask(app):
    """Run a `flask` command: `flask("keys", "list")`; gives click's result."""
    runner = app.test_cli_runner()
    return lambda *words, **options: runner.invoke(args=[*words], **options)


@pytest.fixture
def run(flask):
    """Run a command that must succeed; what it prints on standard output."""

    def succeed(*words, **options):
        result = flask(*words, **options)
        assert result.exit_code == 0, result.output
        return result.stdout

    return succeed


@pytest.fixture
def refused(flask):
    """Run a command that must fail with a clear line; that line."""

    def fail(*words, status=1, **options):
        result = flask(*words, **options)
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code == status
        assert result.stdout == ""
        *usage, line = result.stderr.splitlines()
        assert usage == [] or usage[0].startswith("Usage: app ")  # click's own errors show it
        assert usage == [] or status == 2
        return line

    return fail


@pytest.fixture
def key(database_url):
    """The secret of a key without a group."""
    return models.ApiKey.issue("app", None, models.clock())


@pytest.fixture
def post(client, key):
    """Send a request to the operation, valid unless said otherwise: `post(to=LONDON)`."""

    def send(headers=None, **fields):
        body = {"to": NEW_YORK, "message": "Hello"} | fields
        body = {name: value for name, value in body.items() if value is not ...}
        return client.post(
            "/v1/text-messages", json=body, headers={"X-Api-Key": key} | (headers or {})
        )

    return send


@pytest.fixture
def post_with(settings, key):
    """Send a valid request under other settings: `post_with("Hi", max_retries=0)`."""

    def send(message="Hello", **changes):
        client = create_app(settings._replace(**changes)).test_client()
        body = {"to": NEW_YORK, "message": message}
        return client.post("/v1/text-messages", json=body, headers={"X-Api-Key": key})

    return send


@pytest.fixture
def post_bytes(client, key):
    """Send bytes as a JSON body: `post_bytes(b"{}", **{"Idempotency-Key": "1"})`."""
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    return lambda body, **others: client.post(
        "/v1/text-messages", data=body, headers=headers | others
    )


@pytest.fixture
def at(monkeypatch):
    """Stop every clock of ours at an instant."""

    def stop(instant):
        for module in ("app", "cli", "scheduler"):
            monkeypatch.setattr(f"{module}.clock", lambda: instant)

    return stop
