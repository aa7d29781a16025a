"""Words of carriers, receivers and files reach the terminal with control characters escaped."""

import json
import logging
from datetime import timedelta

import pytest

import logs
from access import limits
from access.audit import Audit
from access.keys import ApiKey
from carriers import Carrier, CarrierError
from database import clock, isoformat
from events.outbox import Event, EventAddress
from models import Status
from monitoring import checks
from running import ROOT
from samples import NEW_YORK
from sending.carrier_state import CarrierState
from stored_messages import decide_on, held, key_named, store

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


@pytest.mark.parametrize("words", [(), ("--column", "other"), ("--column", "no\x1b[2J")])
def test_a_file_to_import_is_harmless(flask, words):
    file = f'phone\x1b[2J,"other\nPROBLEM"\n{NEW_YORK},1\nno\x1b[2J,2\n'
    assert harmless(flask("dnc", "import", "-", *words, input=file).output)


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
    """Commands print by cli/base.py alone."""
    for path in (ROOT / "cli").glob("*.py"):
        assert path.name == "base.py" or "click.echo" not in path.read_text(), path.name


# Lines that are longer than the terminal is wide

LONG = "the carrier says that it cannot take this text because of " + "a reason; " * 12


def words_of(text):
    return sorted(text.split())


@pytest.fixture
def printed_at(flask):
    """What a command prints at a terminal of a width; None: in a pipe, of which nobody knows it."""

    def run(width, *words):
        return flask(*words, env={"COLUMNS": width and str(width)}).stdout

    return run


@pytest.mark.parametrize("width", [None, 60, 80, 120])
def test_stats_and_keys_fold_what_is_too_long_and_lose_nothing(printed_at, flask, width):
    now = clock.now()
    CarrierState.record_pass(now, {"fake": []})
    CarrierState.begin_pause("fake", now, trouble=LONG)
    ApiKey.issue("bank", "treasury and payments", now, limits=limits.parse("5/s,1000/d,20000/mo"))
    flask("keys", "rules", "bank", "--hours", "mon-fri 09:00-17:00, sat 10:00-14:00")
    for words in (["stats"], ["keys", "list"]):
        folded, wide = printed_at(width, *words), printed_at(10_000, *words)
        assert max(map(len, wide.splitlines())) > 120
        assert max(map(len, folded.splitlines())) <= (width or 80)
        assert words_of(folded) == words_of(wide)


def test_a_column_that_continues_below_stands_below_its_heading(printed_at, database_url):
    now = clock.now()
    ApiKey.issue("a key with a name of some length", "and its group", now)
    lines = printed_at(60, "keys", "list").splitlines()
    headings, row = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert headings[0].split() == ["name", "group", "role"]
    assert headings[0].index("role") == row[0].index("sender")
    created = isoformat(now)
    below = next(line for line in row if created in line)
    assert headings[row.index(below)].index("created") == below.index(created)
