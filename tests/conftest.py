"""Fixtures for all tests: settings, applications, clients, commands, keys, clocks."""

import json
import os
import signal
from itertools import count

import hypothesis
import pytest

from app import create_app
from samples import ALL_OPTIONS, NEW_YORK, TUESDAY_NOON
from texting.access import keys
from texting.database import clock
from texting.database.dialects import PostgresDialect, SqliteDialect
from texting.monitoring import health
from texting.settings import EPHEMERAL_HOSTS, Settings
from texting.settings import load as load_settings

pytest_plugins = [
    "broken_rows",
    "browser",
    "carrier_servers",
    "databases",
    "fake_carrier",
    "foreign_peers",
    "kits",
    "several_carriers",
    "npm",
    "people",
    "receivers",
    "running",
    "smpp_peer",
]
# No test is about its own speed, and its fixtures last for all examples
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("patient")
READ_CLOCK = PostgresDialect.read_clock
STARTED = {"start", "lasting_web", "postgres", "stoppable_postgres", "foreign_peer", "npm_package"}
"""Fixtures that start processes."""


def pytest_configure():
    """Have Ctrl-C work in a background shell too: it has its processes ignore the signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark the tests that start processes."""
    for item in items:
        if "processes" in item.path.parts or STARTED & {*item.fixturenames}:
            item.add_marker("process")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable():
    """Replace lone surrogates: xdist cannot send them, so one failure would end the whole run."""
    return _encodable((yield))


def _encodable(value):
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {name: _encodable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_encodable, value))
    return value


def pytest_generate_tests(metafunc):
    """Run a test marked `options` with all optional settings on, as well as off."""
    name = "optional_settings"
    if metafunc.definition.get_closest_marker("options") and name in metafunc.fixturenames:
        metafunc.parametrize(name, [{}, ALL_OPTIONS], ids=["options off", "options on"])


@pytest.fixture
def optional_settings():
    """The settings without a default that are set, as the environment has them."""
    return {}


@pytest.fixture(autouse=True)
def keys_read_anew(monkeypatch):
    """Have a second pass before each request, and while its body arrives: keys are read anew."""
    monkeypatch.setattr(keys, "monotonic", count().__next__)


@pytest.fixture(autouse=True)
def one_clock(monkeypatch):
    """Have Postgres' clock be ours, which tests stop."""
    monkeypatch.setattr(PostgresDialect, "read_clock", SqliteDialect.read_clock)


@pytest.fixture
def clock_of_postgres(monkeypatch, one_clock):
    """Give Postgres its own clock back."""
    monkeypatch.setattr(PostgresDialect, "read_clock", READ_CLOCK)


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """Load the settings from these variables alone, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    ours = [*map(str.upper, Settings._fields), "SCRIPT_NAME"]

    def read(**variables):
        for name in (*ours, *EPHEMERAL_HOSTS):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return load_settings()

    yield read
    for name in ours:
        os.environ.pop(name, None)  # set by a .env


@pytest.fixture
def settings(database_url, optional_settings, loaded):
    """The default settings, whatever this machine's environment sets."""
    return loaded(**optional_settings)._replace(database_url=database_url)


@pytest.fixture
def app(settings):
    return create_app(settings)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def flask(app):
    """Run a `flask` command, `flask("keys", "list")`; return click's result.

    At a terminal so wide that nothing is folded.
    """
    runner = app.test_cli_runner(env={"COLUMNS": "10000"})
    return lambda *words, **options: runner.invoke(args=[*words], **options)


@pytest.fixture
def run(flask):
    """Run a command that must succeed; return its standard output."""

    def succeed(*words, **options):
        result = flask(*words, **options)
        assert result.exit_code == 0, result.output
        return result.stdout

    return succeed


@pytest.fixture
def refused(flask):
    """Run a command that must fail with a clear line; return that line."""

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
    return keys.ApiKey.issue("app", None, clock.now())


@pytest.fixture
def tester(database_url):
    """A key whose texts go to the simulator."""
    keys.ApiKey.issue("tester", None, TUESDAY_NOON, role=keys.Role.TESTER)
    return keys.ApiKey.named("tester")


@pytest.fixture
def post(client, key):
    """Send a request, valid but for these fields: `post(to=LONDON)`; `...` leaves one out."""

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
    """Stop the service's clock at an instant."""

    def stop(instant):
        monkeypatch.setattr(clock, "now", lambda: instant)

    return stop


@pytest.fixture
def problems(settings):
    """What is wrong at an instant, in sentences."""

    def read(now, settings=settings):
        return [problem.sentence for problem in health.read(now, settings).problems()]

    return read


@pytest.fixture
def known_problems(flask, at):
    """What is wrong at an instant, as `flask stats` tells operators."""

    def ask(now):
        at(now)
        return json.loads(flask("stats", "--json").stdout)["problems"]

    return ask
