"""The operator's commands: what they do, print and return as exit status."""

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

import cli.base
import database
from access.do_not_call import DoNotCall
from app import create_app
from carriers import OptOut, Receipt
from databases import on_sqlite
from models import FINISHED, Status
from samples import NEW_YORK, TUESDAY_NOON
from sending import receipts
from sending.carrier_state import CarrierState
from settings import VERSION
from stored_messages import store_history

COMMANDS = [
    *("db", "keys", "dnc", "messages", "carriers", "stats", "db upgrade", "carriers check"),
    *("keys create", "keys list", "keys revoke", "keys rotate", "keys extend", "keys events"),
    "keys rules",
    "keys limit",
    *("events", "events list", "events retry"),
    *("dnc add", "dnc remove", "dnc check", "dnc import", "dnc list", "dnc export"),
    "dnc history",
    *("messages list", "messages show", "messages approve", "messages cancel", "messages retry"),
    *("messages purge", "messages redact", "usage", "audit", "version"),
]


@on_sqlite
@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_says_what_it_is_for(words, run):
    helped = run(*words.split(), "--help")
    usage, _, purpose, *_ = helped.splitlines()
    assert usage.startswith(f"Usage: app {words}")
    assert purpose.strip().endswith(".") or purpose.strip()[0].isupper()


@on_sqlite
def test_help_lists_every_command(run):
    listed = {
        f"{group} {line.split()[0]}"
        for group in ("db", "keys", "dnc", "messages", "events", "carriers")
        for line in run(group, "--help").partition("Commands:\n")[2].splitlines()
    }
    assert listed == {words for words in COMMANDS if " " in words}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("keys revoke nobody", "Error: there is no key named 'nobody'"),
        ("keys rotate nobody", "Error: there is no key named 'nobody'"),
        ("messages list --visible-to nobody", "Error: there is no key named 'nobody'"),
    ],
)
def test_what_is_not_there_is_reported_in_one_line(words, line, refused):
    assert refused(*words.split()) == line


@on_sqlite
@pytest.mark.parametrize(
    "words",
    [
        *("keys create", "keys create a b", "keys revoke", "keys create a --group ''"),
        *("keys create a --expires 1", "keys create a --expires 1y", "keys create a --expires ٣d"),
        *("dnc add", "dnc remove", "dnc check", "dnc check +12125550123 +12125550124"),
        *("dnc add 123", "dnc add +1", "dnc check hello", "dnc import", "dnc import /nowhere"),
        *("dnc import /tmp", "messages show", "messages purge", "messages purge --older-than -1"),
        *("keys", "unknown", "keys unknown", "db upgrade now"),
    ],
)
def test_a_command_that_is_used_wrongly_ends_with_status_2(words, refused):
    words = [word.strip("'") for word in words.split()]
    if words == ["keys"]:
        words.append("--unknown")
    refused(*words, status=2)


@on_sqlite
@pytest.mark.parametrize(
    "words", ["db upgrade", "keys list", f"dnc check {NEW_YORK}", "stats", "messages list"]
)
def test_a_damaged_database_is_reported_in_one_line(words, database_url, refused):
    database.disconnect()
    for file in Path(database_url.removeprefix("sqlite:///")).parent.glob("messages.db*"):
        file.write_bytes(b"this is no database" * 100)
    assert refused(*words.split(), status=2) == "Error: the database failed: file is not a database"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "I/O error")])
def test_a_file_that_fails_is_reported_in_one_line(error, refused, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(cli.base, "table", fail)
    assert refused("keys", "list") == f"Error: {error.strerror}"


def test_stats_count_messages_by_state_and_what_ended_lately(flask, at):
    at(TUESDAY_NOON)
    store_history()
    numbers = json.loads(flask("stats", "--json").stdout)
    waiting = {"scheduled": 2, "queued": 2, "sending": 0}
    assert numbers["messages"] == waiting
    assert "counted_in_seconds" not in numbers
    assert numbers["last_hour"] == dict.fromkeys(FINISHED, 0) | {"sent": 1}
    assert numbers["last_day"] == dict.fromkeys(FINISHED, 0) | {"sent": 2}
    assert numbers["awaiting_approval"] == 1
    assert numbers["oldest_due"] == "2026-03-03T15:00:00.000Z"  # what awaits approval is not due
    more = json.loads(flask("stats", "--json", "--all").stdout)
    assert more["messages"] == waiting | dict.fromkeys(FINISHED, 0) | {"sent": 2, "failed": 1}
    assert more["counted_in_seconds"] >= 0
    assert {name: more[name] for name in numbers} == numbers | {"messages": more["messages"]}


def test_stats_are_drawn_as_a_table_with_bars(flask, at):
    at(TUESDAY_NOON)
    store_history()
    lines = flask("stats").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:11]] == [*Status]
    assert lines[1].split() == ["scheduled", "2", "█" * 20]
    assert lines[3].split() == ["sending", "0"]
    assert lines[4].split() == ["sent", "-", "1", "2"]
    assert lines[7].split() == ["failed", "-", "0", "0"]
    assert lines[-2] == "oldest due message: waiting since 2026-03-03T15:00:00.000Z (2 hours)"


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ({"seconds": 33, "milliseconds": 863}, "33 seconds"),
        ({"seconds": 61}, "1 minute"),
        ({"hours": 47}, "1 day"),
        ({"milliseconds": -5}, "0 seconds"),
    ],
)
def test_stats_say_how_long_ago_in_words(flask, at, length, words):
    at(TUESDAY_NOON)
    CarrierState.passed(TUESDAY_NOON - timedelta(**length), {"": []})
    lines = flask("stats").stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("last scheduler pass"))
    assert line.endswith(f"Z ({words} ago)")


def test_stats_count_what_carriers_said_that_was_not_understood(flask, at):
    at(TUESDAY_NOON)
    minutes = [timedelta(minutes=n) for n in (0, 4, 6, 60, 1_439, 1_441)]
    for n, age in enumerate(minutes):
        receipts.record_receipts([Receipt(f"SM{n}", True)], TUESDAY_NOON - age)
        unknown = OptOut("+442083661177", True, "reply", certain=False)
        receipts.record_opt_out(unknown, TUESDAY_NOON - age)
    told = json.loads(flask("stats", "--json").stdout)
    assert (told["receipts_unmatched"], told["opt_outs_ignored"]) == (3, 5)
    lines = flask("stats").stdout.splitlines()
    assert "unmatched receipts in the last day: 3" in lines
    assert "ignored STOP and START replies in the last day: 5" in lines


def test_all_stats_count_what_ever_ended_and_say_how_long_that_took(flask, at):
    at(TUESDAY_NOON)
    store_history()
    lines = flask("stats", "--all").stdout.splitlines()
    assert lines[1].split() == ["scheduled", "2", "█" * 20]
    assert lines[4].split() == ["sent", "2", "█" * 20, "1", "2"]
    assert lines[7].split() == ["failed", "1", "█" * 10, "0", "0"]
    assert re.fullmatch(r"counted in \d+\.\d s", lines[11])


@pytest.mark.parametrize(("words", "counted"), [((), 3), (("--all",), len(Status))])
def test_stats_of_an_empty_table_are_all_zero(flask, words, counted):
    told = json.loads(flask("stats", "--json", *words).stdout)
    assert [*told["messages"].values()] == [0] * counted
    assert flask("stats", *words).exit_code == 0


# carriers check


@pytest.fixture
def check(settings):
    """Run `flask carriers check` with a CARRIER_URL."""

    def run(url, *words):
        app = create_app(settings._replace(carrier_url=url))
        return app.test_cli_runner().invoke(args=["carriers", "check", *words])

    return run


@on_sqlite
def test_a_carrier_that_takes_texts_is_reported_without_sending(check, twilio):
    result = check(twilio.url)
    assert (result.exit_code, result.stdout) == (0, "twilio accepts texts\n")
    assert twilio.texts == []


@on_sqlite
def test_a_carrier_that_takes_no_texts_is_reported_in_its_words(check, twilio):
    twilio.login = (twilio.sid, "another token")
    result = check(twilio.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: twilio: ")
    assert result.stderr.count("\n") == 1
    assert twilio.token not in result.stderr


@on_sqlite
def test_a_test_text_is_sent_and_its_answer_is_reported(check, twilio):
    result = check(twilio.url, "--to", NEW_YORK)
    assert (result.exit_code, result.stdout) == (0, f"twilio took the text: SM{1:032x}\n")
    assert [number for number, _ in twilio.texts] == [NEW_YORK]


@on_sqlite
def test_a_carrier_that_cannot_be_asked_is_asked_by_a_text(check):
    result = check("simulator:")
    assert result.exit_code == 2
    assert result.stderr == "simulator cannot be asked without sending a text; --to sends one\n"
    assert check("simulator:", "--to", NEW_YORK).stdout == "simulator took the text\n"
    refused = check("simulator:", "--to", "+12125550101")
    assert refused.exit_code == 1
    assert refused.stderr == "Error: simulator: the simulator refuses this number for good\n"


@on_sqlite
def test_the_version_is_printed_alone(run):
    assert run("version") == f"{VERSION}\n"


@on_sqlite
def test_no_test_text_goes_to_a_number_that_wants_none(check):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "reply")
    result = check("simulator:", "--to", NEW_YORK)
    assert result.exit_code == 1
    assert "Do Not Call" in result.stderr


@on_sqlite
def test_without_a_carrier_there_is_nothing_to_check(check):
    assert check(None).stderr == "Error: CARRIER_URL is not set, so texts wait\n"


@on_sqlite
def test_a_url_that_apprise_alone_finds_wrong_is_refused_in_one_line(check):
    result = check("mailto://{to}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: CARRIER_URL: mailto:// ")
    assert result.stderr.count("\n") == 1
