"""The operator's commands: what they do, what they print, and with which status they end."""

import json
import subprocess
from pathlib import Path

import pytest

import cli
import models
from models import ApiKey
from running import ROOT, TOOLS
from samples import NEW_YORK, SUNDAY_NIGHT, TUESDAY_NOON

COMMANDS = [
    *("db", "keys", "dnc", "messages", "stats", "db upgrade"),
    *("keys create", "keys list", "keys revoke", "keys rotate"),
    *("dnc add", "dnc remove", "dnc check", "dnc import"),
    *("messages list", "messages show", "messages approve", "messages cancel", "messages retry"),
    *("messages purge", "messages redact"),
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_says_what_it_is_for(words, run):
    helped = run(*words.split(), "--help")
    usage, _, purpose, *_ = helped.splitlines()
    assert usage.startswith(f"Usage: app {words}")
    assert purpose.strip().endswith(".") or purpose.strip()[0].isupper()


def test_help_lists_every_command(run):
    listed = {
        f"{group} {line.split()[0]}"
        for group in ("db", "keys", "dnc", "messages")
        for line in run(group, "--help").partition("Commands:\n")[2].splitlines()
    }
    assert listed == {words for words in COMMANDS if " " in words}


def test_tables_are_made_once(empty_database_url, start):
    outputs = []
    for _ in range(2):
        upgrade = start("flask", "db", "upgrade", DATABASE_URL=empty_database_url)
        assert upgrade.wait() == 0
        outputs.append(upgrade.output.splitlines())
    assert [line.split()[0] for line in outputs[0]] == ["applied"] * len(outputs[0])
    assert outputs[1] == ["the tables are up to date"]


def test_a_command_without_tables_says_so_in_one_line(empty_database_url, start):
    keys = start("flask", "keys", "list", DATABASE_URL=empty_database_url)
    assert keys.wait() == 2
    assert len(keys.output.splitlines()) == 1
    assert "the database failed" in keys.output


@pytest.mark.parametrize(
    "name",
    ["app", "Björk & Söhne", "名前", "-", "a b", "x" * 100, "'; DROP TABLE api_key; --", "%s"],
)
def test_a_key_is_created_listed_and_revoked(name, run):
    secret = run("keys", "create", "--group", name, "--", name)
    assert secret == secret.strip() + "\n"
    assert len(secret.split()) == 1
    listed = run("keys", "list").splitlines()[1]
    assert listed.split("  ")[0] == name
    assert listed.endswith("  -")
    assert run("keys", "revoke", "--", name) == f"{name}: revoked\n"
    assert run("keys", "revoke", "--", name) == f"{name}: was revoked before\n"
    assert not run("keys", "list").splitlines()[1].endswith("  -")


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\tb", "\x1b[31m", "x" * 101, "a\udcff", "\u202e"]
)
@pytest.mark.parametrize("command", ["create", "revoke", "rotate"])
def test_a_name_that_cannot_be_shown_is_refused(command, name, refused):
    assert "printable" in refused("keys", command, name, status=2)
    assert ApiKey.select().count() == 0


def test_a_name_is_taken_even_when_its_key_is_revoked(run, refused):
    run("keys", "create", "app")
    assert refused("keys", "create", "app") == "Error: a key named 'app' exists already"
    run("keys", "revoke", "app")
    assert refused("keys", "create", "app") == "Error: a key named 'app' exists already"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("keys revoke nobody", "Error: there is no key named 'nobody'"),
        ("keys rotate nobody", "Error: there is no key named 'nobody'"),
        ("messages list --visible-to nobody", "Error: there is no key named 'nobody'"),
        (f"messages show {'0' * 32}", "Error: there is no such message"),
    ],
)
def test_what_is_not_there_is_said(words, line, refused):
    assert refused(*words.split()) == line


@pytest.mark.parametrize(
    "words",
    [
        *("keys create", "keys create a b", "keys revoke", "keys create a --group ''"),
        *("keys create a --expires 1", "keys create a --expires 1y", "keys create a --expires ٣d"),
        *("dnc add", "dnc remove", "dnc check", "dnc check +12125550123 +12125550124"),
        *("dnc add 123", "dnc add +1", "dnc check hello", "dnc import", "dnc import /nowhere"),
        *("dnc import /tmp", "messages show", "messages show 1", "messages cancel x"),
        *("messages list --status unknown", "messages purge", "messages purge --older-than -1"),
        *("keys", "unknown", "keys unknown", "db upgrade now"),
    ],
)
def test_a_command_that_is_used_wrongly_ends_with_status_2(words, refused):
    words = [word.strip("'") for word in words.split()]
    if words == ["keys"]:
        words.append("--unknown")
    refused(*words, status=2)


def test_numbers_are_masked_in_a_list_and_whole_in_json(post, run, at):
    at(SUNDAY_NIGHT)
    post(message="Hello\x1b[31m", manual_mode=True)
    at(TUESDAY_NOON)
    post(to="+819012345678", send_date="9999-12-31T23:59:59.999Z")  # there, the year 10000
    table = run("messages", "list")
    assert NEW_YORK not in table
    assert "Hello" not in table
    _, held, far = table.splitlines()
    assert "scheduled (awaiting approval)" in held
    assert "9:00 AM, Monday, Mar 2" in held
    assert "9999-12-31T23:59:59.999Z" in far
    first, _ = json.loads(run("messages", "list", "--json"))
    assert (first["to"], first["message"]) == (NEW_YORK, "Hello\x1b[31m")
    assert json.loads(run("messages", "show", first["message_id"])) == first
    assert json.loads(run("messages", "list", "--awaiting-approval", "--json")) == [first]
    assert json.loads(run("messages", "list", "--status", "sent", "--json")) == []


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    "words", ["db upgrade", "keys list", f"dnc check {NEW_YORK}", "stats", "messages list"]
)
def test_a_damaged_database_is_said_in_one_line(words, database_url, refused):
    models.disconnect()
    for file in Path(database_url.removeprefix("sqlite:///")).parent.glob("messages.db*"):
        file.write_bytes(b"this is no database" * 100)
    assert refused(*words.split(), status=2) == "Error: the database failed: file is not a database"


def test_standard_output_has_the_key_alone(database_url):
    command = [TOOLS / "flask", "--app", ROOT / "app.py", "keys", "create", "shell"]
    environ = {"DATABASE_URL": database_url, "LOG_LEVEL": "DEBUG"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert ApiKey.authenticate(done.stdout.removesuffix("\n"), cli.clock())
    assert done.stdout.removesuffix("\n") not in done.stderr


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "I/O error")])
def test_a_file_that_fails_is_said_in_one_line(error, refused, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(cli, "table", fail)
    assert refused("keys", "list") == f"Error: {error.strerror}"
