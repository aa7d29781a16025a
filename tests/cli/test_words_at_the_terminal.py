"""Words of carriers, receivers and files reach the terminal with control characters escaped."""

import json
import logging
from datetime import timedelta

import pytest

from running import ROOT
from samples import NEW_YORK
from stored_messages import decide_on, held, key_named, store
from texting import logs
from texting.access.audit import Audit
from texting.access.keys import ApiKey
from texting.carriers import Carrier, CarrierError
from texting.database import clock
from texting.events.outbox import Event, EventAddress
from texting.messages.model import Status
from texting.monitoring import checks

WORDS = "no\x1b[2J\x07\x9b1m\r\nPROBLEM: none\x7f\u202e\u2028!"
JSON = json.dumps(WORDS)
ESCAPED = r"no\x1b[2J\x07\x9b1m\r\nPROBLEM: none\x7f\u202e\u2028!"


def harmless(output):
    """Say whether a terminal shows an output and does nothing else."""
    return all(line.isprintable() for line in output.split("\n"))


@pytest.fixture
def message(database_url):
    """A message about which a carrier, a receiver and an operator have said these words."""
    key, now = key_named("app"), clock.now()
    EventAddress.set(key, "http://localhost/", now)
    decide_on(store(key=key)).cancel("shell", now)
    (event,) = Event.claim(key.id, 1, now, now + timedelta(hours=1), None)
    event.failed(WORDS, None, now)
    EventAddress.switch_off(key.id, WORDS, now)
    Audit.note("key created", now, key_name=WORDS, details=WORDS)
    ended = {"last_error_at": now, "finished_at": now}
    return held(Status.FAILED, last_error=WORDS, carrier_reference=WORDS, **ended)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        *((words, ESCAPED) for words in ("events list", "keys events app", "audit")),
        ("messages list", r"no\x1b[2J\x07\x9b1m PROBLEM: none"),
        *((words, JSON) for words in ("messages list --json", "messages show ID")),
        *((words, JSON) for words in ("events list --json", "audit --json")),
        *((words, "") for words in ("messages retry ID", "messages approve ID")),
    ],
)
def test_words_that_were_stored_are_shown_escaped(flask, message, words, shown):
    result = flask(*words.replace("ID", str(message.id)).split())
    assert harmless(result.output)
    assert shown in result.stdout


def test_a_table_keeps_its_columns(run, message):
    ApiKey.update(name=WORDS).execute()  # as a version before may have taken it
    header, *_, row = run("messages", "list").splitlines()
    assert header.index("key") == row.index(ESCAPED)


class Rude(Carrier):
    """A carrier with words for the terminal."""

    name, warning = "rude", WORDS

    def __init__(self, answer):
        self.answer = answer

    def send(self, *_, **__):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def check(self):
        self.send()


@pytest.mark.parametrize("answer", [CarrierError(WORDS), WORDS])
@pytest.mark.parametrize("words", [(), ("--to", NEW_YORK)])
def test_carriers_check_shows_them_in_one_line(flask_with, monkeypatch, answer, words):
    monkeypatch.setattr(checks, "connected", lambda *_: [Rude(answer)])
    result = flask_with(carrier_url="simulator:")("carriers", "check", *words)
    assert harmless(result.output)
    assert ESCAPED in result.stderr
    lines = result.output.splitlines()
    assert len(lines) == 2
    is_told = isinstance(answer, Exception) or words
    assert (ESCAPED in lines[1]) == bool(is_told)


def test_a_file_to_import_is_harmless(flask):
    file = f'phone\x1b[2J,"other\nPROBLEM"\n{NEW_YORK},1\nno\x1b[2J,2\n'
    assert harmless(flask("dnc", "import", "-", input=file).output)


@pytest.mark.parametrize("words", ["dnc add", "keys limit app", "keys", "dnc import", "usage"])
def test_an_argument_is_harmless_in_the_error(flask, words):
    result = flask(*words.split(), WORDS)
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
    """Commands print by cli/base.py alone; cli/__init__.py shows a help, which is ours."""
    for path in (ROOT / "texting/cli").glob("*.py"):
        assert path.name in ("base.py", "__init__.py") or "click.echo" not in path.read_text(), (
            path.name
        )
