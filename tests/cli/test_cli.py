"""The operator's commands: what they do, print and return as exit status."""

import json
import re
import shlex
from datetime import timedelta
from pathlib import Path

import click
import pytest

from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import FAKE, store, store_history
from texting import database
from texting.access.do_not_call import OptedOut
from texting.carriers import OptOut, Receipt
from texting.cli import base
from texting.messages import receipts
from texting.messages.model import FINISHED, Status
from texting.replies import opt_outs
from texting.sending.carrier_state import CarrierState
from texting.settings import VERSION

UNKNOWN = "019cb4b5-0000-7000-8000-000000000000"


def named(group, before=""):
    """The words of each command of a group, and of the groups in it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from named(command, f"{before}{name} ")


def test_every_command_says_what_it_is_for(app, run):
    for words in named(app.cli):
        usage, _, purpose, *_ = run(*words.split(), "--help").splitlines()
        assert usage.startswith(f"Usage: app {words}")
        assert purpose.strip()[0].isupper()


def test_an_empty_list_says_so(session):
    session("""
        $ flask keys list
        No keys
        $ flask events list
        No events
        $ flask replies list
        No replies
        $ flask audit
        Nothing
        $ flask dnc list
        number  kind  source  since
        0 of 0: 0 opt-outs, 0 entries
        $ flask events list --json
        []
        $ flask messages list
        No messages
        $ flask messages list --status failed
        No messages
        $ flask messages list --json
        []
    """)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        *(
            (f"keys {name} nobody", "no key named 'nobody'")
            for name in ("revoke", "rotate", "rules")
        ),
        ("messages list --visible-to nobody", "no key named 'nobody'"),
        *((f"{name} --key nobody", "no such key") for name in ("messages list", "usage")),
        ("messages list --group nobody", "no such key"),
        (f"messages show {UNKNOWN}", "no such message"),
    ],
)
def test_what_does_not_exist_is_reported_in_one_line(words, problem, refused):
    assert refused(*words.split()) == f"Error: there is {problem}"


@pytest.mark.parametrize(
    "words",
    [
        *("keys create", "keys create a b", "keys revoke", "keys create a --group ''"),
        *("keys create a --expires 1", "keys create a --expires 1y", "keys create a --expires ٣d"),
        *("dnc add", "dnc remove", "dnc check", "dnc check +12125550123 +12125550124"),
        *("dnc add 123", "dnc add +1", "dnc check hello", "dnc import", "dnc import /nowhere"),
        *("dnc import /tmp", "messages show", "messages purge", "messages purge --older-than -1"),
        *("dnc add --region XX +12125550123", "dnc import --region XX -"),
        *("keys --unknown", "unknown", "keys unknown", "db upgrade now"),
        *("messages redact", "messages redact --to +12125550123 --older-than 1"),
        *(f"messages list --count {other}" for other in ("--json", "--limit 3", "--limit 0")),
        *("messages list --ids --json", "messages list --ids --count"),
        *(f"messages list --since {since}" for since in ("yesterday", "1", "2026-13-01", "-1d")),
        *(f"messages list --since {since}" for since in ("٣d", "9" * 30 + "d", "''")),
        *(f"usage --month {month}" for month in ("2026-13", "2026-1", "2026", "2026-03-01")),
        *(f"usage --month {month}" for month in ("0000-01", "9999-12", "٢٠٢٦-٠٣")),
        *("usage --json --csv", "keys events app --off --rotate", "keys extend app"),
        *("keys events app https://shop.example.com --off", "keys extend app --expires soon"),
        *("keys extend app --expires 0m", "keys create app --expires 0d"),
    ],
)
def test_a_command_that_is_used_wrongly_ends_with_status_2(words, refused):
    refused(*shlex.split(words), status=2)


@pytest.mark.parametrize(
    "words", ["db upgrade", "keys list", f"dnc check {NEW_YORK}", "stats", "messages list"]
)
def test_a_damaged_database_is_reported_in_one_line(words, database_url, refused):
    database.disconnect()
    path = database_url.removeprefix("sqlite:///")
    for file in Path(path).parent.glob("messages.db*"):
        file.write_bytes(b"this is no database" * 100)
    said = f"Error: the database failed: file is not a database: {path}"
    assert refused(*words.split(), status=2) == said


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "I/O error")])
def test_a_file_that_fails_is_reported_in_one_line(error, refused, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(base, "table", fail)
    assert refused("keys", "list") == f"Error: {error.strerror}"


HISTORY = """
    $ flask stats
    status       messages                        last hour  last day
    scheduled    2         ████████████████████
    queued       2         ████████████████████
    sending      0
    sent         -                               1          2
    delivered    -                               0          0
    undelivered  -                               0          0
    failed       -                               6          7
    blocked      -                               0          0
    cancelled    -                               0          0
    expired      -                               0          0

    awaiting approval: 1
    retrying: 0
    last text sent: 2026-03-03T16:30:00.000Z (30 minutes ago)
    last scheduler run: 2026-03-03T16:59:26.137Z (33 seconds ago)
    unmatched receipts in the last day: 3
    ignored STOP and START replies in the last day: 5
    oldest due message: waiting since 2026-03-03T15:00:00.000Z (2 hours)
    PROBLEM: No text has gone for 2 minutes, although some have been due since \
2026-03-03T15:00:00.000Z: CARRIER_URL is not set
    [1]
"""


@pytest.fixture
def history(database_url, at):
    """Messages in many states, a pass, and words that were not understood."""
    at(TUESDAY_NOON)
    store_history()
    CarrierState.record_pass(TUESDAY_NOON - timedelta(seconds=33, milliseconds=863), {"": []})
    for hours in (*[0] * 6, 2):
        store(status=Status.FAILED, finished_at=TUESDAY_NOON - hours * HOUR)
    for n, minutes in enumerate((0, 4, 6, 60, 1_439, 1_441)):
        then = TUESDAY_NOON - timedelta(minutes=minutes)
        receipts.record_receipts([Receipt(f"SM{n}", True)], then, FAKE)
        opt_outs.record_opt_out(OptOut(LONDON, True, "reply", certain=False), then, "asked")


def test_stats_are_drawn_for_people(history, session):
    session(HISTORY)


def test_stats_are_an_object_for_programs(history, run):
    """The exit status is 0 whatever is wrong: a program reads the problems."""
    numbers = json.loads(run("stats", "--json"))
    assert len(numbers["problems"]) == 1
    waiting = {"scheduled": 2, "queued": 2, "sending": 0}
    assert numbers["messages"] == waiting
    assert "counted_in_seconds" not in numbers
    assert numbers["last_hour"] == dict.fromkeys(FINISHED, 0) | {"sent": 1, "failed": 6}
    assert numbers["last_day"] == dict.fromkeys(FINISHED, 0) | {"sent": 2, "failed": 7}
    assert numbers["awaiting_approval"] == 1
    assert numbers["oldest_due"] == "2026-03-03T15:00:00.000Z"  # what awaits approval is not due
    assert (numbers["receipts_unmatched"], numbers["opt_outs_ignored"]) == (3, 5)
    more = json.loads(run("stats", "--json", "--all"))
    assert more["messages"] == dict.fromkeys(Status, 0) | waiting | {"sent": 2, "failed": 8}
    assert more["counted_in_seconds"] >= 0
    assert {name: more[name] for name in numbers} == numbers | {"messages": more["messages"]}


def test_all_stats_count_what_ever_ended_and_say_how_long_that_took(history, flask):
    lines = flask("stats", "--all").stdout.splitlines()
    assert lines[1].split() == ["scheduled", "2", "█" * 5]
    assert lines[7].split() == ["failed", "8", "█" * 20, "6", "7"]
    assert re.fullmatch(r"counted in \d+\.\d s", lines[11])


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ({"seconds": 61}, "1 minute"),
        ({"hours": 47}, "1 day"),
        ({"milliseconds": -5}, "0 seconds"),
    ],
)
def test_stats_say_how_long_ago_in_words(flask, at, length, words):
    at(TUESDAY_NOON)
    CarrierState.record_pass(TUESDAY_NOON - timedelta(**length), {"": []})
    lines = flask("stats").stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("last scheduler run"))
    assert line.endswith(f"Z ({words} ago)")


# carriers check

CANNOT = "cannot be asked without sending a text; --to sends one"
REFUSES = "the simulator refuses this number for good"
NO_CARRIER = "CARRIER_URL has no carrier of this name"
NOWHERE = "webhook+http://127.0.0.1:9/"
REFUSED = "twilio://AC1:t@+15005550006?base_url=http://127.0.0.1:9"
UNREACHED = "Twilio cannot be reached: nobody listens there (connection refused)"
ACCEPTED = "simulator accepted the text"
ONE_CARRIER = "--to sends a text through one carrier: name it with --carrier"


@pytest.fixture
def check(flask_with):
    """Run `flask carriers check` with a CARRIER_URL."""
    return lambda url, *words: flask_with(carrier_url=url)("carriers", "check", *words)


@pytest.mark.parametrize(
    ("url", "begins"), [("TWILIO", "twilio: "), ("mailto://{to}", "CARRIER_URL: mailto:// ")]
)
def test_a_carrier_that_cannot_be_used_is_one_line_without_its_token(check, twilio, url, begins):
    twilio.login = (twilio.sid, "another token")
    result = check(url.replace("TWILIO", twilio.url))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {begins}")
    assert result.stderr.count("\n") == 1
    assert twilio.token not in result.stderr


@pytest.mark.parametrize(
    ("url", "words", "status", "printed"),
    [
        ("simulator:", "", 2, f"simulator {CANNOT}"),
        ("simulator:", f"--to {NEW_YORK}", 0, ACCEPTED),
        ("simulator:", "--to 2125550123 --region us", 0, ACCEPTED),
        ("simulator:", "--to +12125550101", 1, f"Error: simulator: {REFUSES}"),
        ("simulator:", f"--to {LONDON}", 1, "Error: this number is on the Do Not Call list"),
        ("simulator:#name=a simulator:#name=b", "--carrier b", 2, f"b {CANNOT}"),
        ("simulator:#name=a simulator:#name=b", "--carrier c", 1, f"Error: {NO_CARRIER}"),
        ("simulator:#name=a simulator:#name=b", f"--to {NEW_YORK}", 1, f"Error: {ONE_CARRIER}"),
        (None, "", 1, "Error: CARRIER_URL is not set, so texts wait"),
        ("TWILIO", "", 0, "twilio accepts texts"),
        ("TWILIO", f"--to {NEW_YORK}", 0, f"twilio accepted the text: SM{1:032x}"),
        ("TWILIO VONAGE", "", 0, "twilio accepts texts\nvonage accepts texts, balance 10.28 EUR"),
        ("TWILIO#name=a TWILIO#name=b", "--carrier b", 0, "b accepts texts"),
        (f"TWILIO {NOWHERE}", "", 0, f"twilio accepts texts\nwebhook {CANNOT}"),
        (f"{NOWHERE} TWILIO", "--carrier webhook", 2, f"webhook {CANNOT}"),
        (f"{NOWHERE}#name=a {NOWHERE}#name=b", "", 2, f"a {CANNOT}\nb {CANNOT}"),
        (f"TWILIO {REFUSED}#name=eu", "", 1, f"twilio accepts texts\nError: eu: {UNREACHED}"),
        ("TWILIO simulator:", "--carrier other", 1, f"Error: {NO_CARRIER}"),
        ("TWILIO simulator:", f"--to {NEW_YORK}", 1, f"Error: {ONE_CARRIER}"),
        ("TWILIO simulator:", f"--to {NEW_YORK} --carrier simulator", 0, ACCEPTED),
    ],
)
def test_a_carrier_is_asked_or_sent_a_text(
    check, twilio, vonage_server, url, words, status, printed
):
    OptedOut.add([LONDON], TUESDAY_NOON, "reply")
    url = url and url.replace("TWILIO", twilio.url).replace("VONAGE", vonage_server.url)
    result = check(url, *words.split())
    assert (result.exit_code, result.output) == (status, f"{printed}\n")
    assert len(twilio.texts) == ("twilio accepted" in printed)


def test_the_version_is_printed_alone(run):
    assert run("version") == f"{VERSION}\n"
