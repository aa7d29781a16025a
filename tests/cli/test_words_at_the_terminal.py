"""Words of carriers, receivers and files reach the terminal with control characters escaped."""

import json
import logging
from datetime import timedelta

import pytest

import logs
from access.audit import Audit
from access.keys import ApiKey
from carriers import Carrier, CarrierError
from database import clock
from events.outbox import Event, EventAddress
from models import Status
from monitoring import checks
from samples import NEW_YORK
from stored_messages import held, key_named, store

WORDS = "no\x1b[2J\x07\x9b1m\r\nPROBLEM: none\x7f\u202e\u2028!"
ESCAPED = r"no\x1b[2J\x07\x9b1m\r\nPROBLEM: none\x7f\u202e\u2028!"


def harmless(output):
    """Say whether a terminal shows an output and does nothing else."""
    return all(line.isprintable() for line in output.split("\n"))


@pytest.fixture
def message(database_url):
    """A message of which the carrier says these words."""
    now = clock.now()
    return held(
        Status.FAILED, last_error=WORDS, last_error_at=now, finished_at=now, carrier_reference=WORDS
    )


def test_stats_shows_them_in_one_line(run, message):
    output = run("stats")
    assert ESCAPED in output
    assert harmless(output)
    assert "\nPROBLEM: none" not in output


def test_json_is_escaped_and_gives_them_back(run, message):
    for words in (("stats",), ("messages", "list"), ("messages", "show")):
        ending = str(message.id) if words[-1] == "show" else "--json"
        output = run(*words, ending)
        assert harmless(output)
        told = json.loads(output)
        if words != ("stats",):
            assert (told[0] if words[-1] == "list" else told)["last_error"] == WORDS
        else:
            assert told["commonest_error"]["error"] == WORDS


def test_a_table_keeps_its_columns(run, message):
    ApiKey.update(name=WORDS).execute()  # as a version before may have taken it
    output = run("messages", "list")
    assert harmless(output)
    header, row = output.splitlines()
    assert header.index("key") == row.index(ESCAPED)


@pytest.mark.parametrize("words", [("messages", "retry"), ("messages", "approve")])
def test_what_becomes_of_messages_is_harmless(flask, message, words):
    result = flask(*words, str(message.id))
    assert harmless(result.output)


def test_events_and_the_audit_are_harmless(run, database_url):
    key = key_named("app")
    EventAddress.set(key, "http://localhost/", clock.now())
    now = clock.now()
    store(key=key).cancel("shell", now)
    (event,) = Event.claim(key.id, 1, now, now + timedelta(hours=1), None)
    event.failed(WORDS, None, now)
    EventAddress.switch_off(key.id, WORDS, now)
    Audit.note("key created", now, key_name=WORDS, details=WORDS)
    for words in (("events", "list"), ("keys", "events", "app"), ("audit",)):
        output = run(*words)
        assert ESCAPED in output
        assert harmless(output)


class Rude(Carrier):
    """A carrier with words for the terminal."""

    name, warning = "rude", WORDS

    def __init__(self, answer):
        self.answer = answer

    def send(self, to, text, **_):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def check(self):
        if isinstance(self.answer, Exception):
            raise self.answer


@pytest.mark.parametrize("answer", [CarrierError(WORDS), WORDS])
@pytest.mark.parametrize("words", [(), ("--to", NEW_YORK)])
def test_carriers_check_shows_them_in_one_line(settings, monkeypatch, answer, words):
    from app import create_app

    app = create_app(settings._replace(carrier_url="simulator:"))
    monkeypatch.setattr(checks, "connected", lambda *_: [Rude(answer)])
    result = app.test_cli_runner().invoke(args=["carriers", "check", *words])
    assert harmless(result.output)
    assert ESCAPED in result.stderr
    lines = result.output.splitlines()
    assert len(lines) == 2
    is_told = isinstance(answer, Exception) or words
    assert (ESCAPED in lines[1]) == bool(is_told)


def test_a_file_to_import_is_harmless(flask, database_url, tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_bytes(f'phone\x1b[2J,"other\nPROBLEM"\n{NEW_YORK},1\nno\x1b[2J,2\n'.encode())
    for words in ((), ("--column", "other"), ("--column", "no\x1b[2J")):
        assert harmless(flask("dnc", "import", str(path), *words).output)


def test_an_argument_is_harmless_in_the_error(flask, database_url):
    for words in (
        ("dnc", "add", WORDS),
        ("keys", "limit", "app", WORDS),
        ("keys", WORDS),
        ("dnc", "import", WORDS),
    ):
        result = flask(*words)
        assert result.exit_code == 2
        assert harmless(result.output)


def test_a_line_of_the_log_stays_one_line_and_a_traceback_its_own():
    record = logging.LogRecord("sender", logging.ERROR, "", 1, "it says %s", (WORDS,), None)
    line = logs.formatter("TEXT").format(record)
    assert line.endswith(f"it says {ESCAPED}")
    assert line.isprintable()
    try:
        raise ValueError("of ours")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    assert "\nTraceback (most recent call last):\n" in logs.formatter("TEXT").format(record)


def test_nothing_is_printed_but_by_what_escapes():
    """Commands print by cli/base.py alone."""
    from running import ROOT

    for path in (ROOT / "cli").glob("*.py"):
        assert path.name == "base.py" or "click.echo" not in path.read_text(), path.name
