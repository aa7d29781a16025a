"""The operator's commands: what they do, what they print, and with which status they end."""

import json
import subprocess
from pathlib import Path

import pytest

import cli
import models
from conftest import LONDON, NEW_YORK, ROOT, SUNDAY_NIGHT, TOOLS, TUESDAY_NOON
from models import ApiKey, DoNotCall

PARIS = "+33142685300"
COMMANDS = [
    *("db", "keys", "dnc", "messages", "stats", "db upgrade"),
    *("keys create", "keys list", "keys revoke", "keys rotate"),
    *("dnc add", "dnc remove", "dnc check", "dnc import"),
    *("messages list", "messages show", "messages approve", "messages cancel", "messages retry"),
    *("messages purge", "messages redact"),
]


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
def import_file(flask, tmp_path):
    """Import a file of these bytes; its standard output and the lines on standard error."""

    def run(body, *options):
        path = tmp_path / "numbers.csv"
        path.write_bytes(body)
        result = flask("dnc", "import", str(path), *options)
        assert result.exit_code == 0, result.output
        progress, *lines = result.stderr.splitlines()
        assert progress.startswith("importing")
        return result.stdout.strip(), lines

    return run


def on_the_list():
    return {row.number for row in DoNotCall.select()}


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


def test_numbers_are_added_checked_and_removed(run, flask):
    assert run("dnc", "add", NEW_YORK, LONDON, NEW_YORK) == "2 added, 0 listed before\n"
    assert run("dnc", "add", "+1 (212) 555-0123", PARIS) == "1 added, 1 listed before\n"
    assert on_the_list() == {NEW_YORK, LONDON, PARIS}
    assert run("dnc", "check", "+1 212 555 0123") == "listed\n"
    assert run("dnc", "remove", NEW_YORK, "+13105550123") == "1 removed, 1 not listed\n"
    result = flask("dnc", "check", NEW_YORK)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "not listed\n", "")
    assert on_the_list() == {LONDON, PARIS}


def test_nothing_is_added_where_one_number_is_wrong(refused):
    assert "'123'" in refused("dnc", "add", NEW_YORK, "123", status=2)
    assert on_the_list() == set()


MESSY = f"""\ufeffphone;name\r
\r
{NEW_YORK};Ann\r
"{LONDON}";"Bob; Jr."\r
"+33 1 42 68 53 00",Zoë\r
   \r
{NEW_YORK}\tagain\r
not a number;Eve\r
+1212555;short\r
  +13105550123  \r
"+13105550124\r
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
def test_a_messy_file_is_imported_and_can_be_imported_again(encoding, line_end, import_file):
    body = MESSY.replace("\r\n", line_end).encode(encoding)
    summary, lines = import_file(body)
    assert summary == "5 added, 0 listed before, 2 skipped"
    assert [line.partition(":")[0] for line in lines] == ["line 8", "line 9"]
    assert on_the_list() == {NEW_YORK, LONDON, PARIS, "+13105550123", "+13105550124"}
    assert import_file(body) == ("0 added, 5 listed before, 2 skipped", lines)


@pytest.mark.parametrize(
    ("body", "summary"),
    [
        (b"", "0 added, 0 listed before, 0 skipped"),
        (b"\n\r\n \t\n", "0 added, 0 listed before, 0 skipped"),
        (b"phone number\n", "0 added, 0 listed before, 0 skipped"),
        (b"2125550123\n", "0 added, 0 listed before, 1 skipped"),
        (NEW_YORK.encode(), "1 added, 0 listed before, 0 skipped"),
        (b"caf\xe9\n+12125550123,\xff\xfe\n", "1 added, 0 listed before, 0 skipped"),
        (b'"' + b"1" * 200_000 + b"\n+12125550123", "1 added, 0 listed before, 1 skipped"),
        (b"1" * 200_000 + b"\n+12125550123", "1 added, 0 listed before, 1 skipped"),
        (b'+12125550123,"a\nb"\n', "1 added, 0 listed before, 1 skipped"),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_odd_files_are_imported_too(body, summary, import_file):
    assert import_file(body)[0] == summary


def test_a_binary_file_adds_nothing(import_file):
    body = (ROOT / ".git" / "index").read_bytes() if (ROOT / ".git").exists() else bytes(range(256))
    assert import_file(body)[0].startswith("0 added, 0 listed before, ")


def test_national_numbers_need_a_region(import_file):
    body = b"(212) 555-0123\n020 8366 1177\n+33 1 42 68 53 00\n"
    summary, lines = import_file(body, "--region", "us")
    assert summary == "2 added, 0 listed before, 1 skipped"
    assert lines == ["line 2: is not a valid phone number"]
    assert import_file(body, "--region", "GB")[0] == "1 added, 1 listed before, 1 skipped"
    assert on_the_list() == {NEW_YORK, LONDON, PARIS}


def test_a_region_that_is_none_is_refused(refused, tmp_path):
    (tmp_path / "numbers").write_text(NEW_YORK)
    line = refused("dnc", "import", str(tmp_path / "numbers"), "--region", "XX", status=2)
    assert "XX is no country's code" in line
    assert on_the_list() == set()


def test_a_dash_imports_standard_input(run):
    assert run("dnc", "import", "-", input=f"{NEW_YORK}\n{LONDON}\n").startswith("2 added")
    assert on_the_list() == {NEW_YORK, LONDON}


def test_more_than_a_batch_is_imported_and_repeats_are_counted_once(import_file, monkeypatch):
    monkeypatch.setattr(cli, "BATCH", 10)
    numbers = [f"+1212555{n:04}" for n in range(100, 135)]
    DoNotCall.add(numbers[:3], cli.clock())
    body = "\n".join(numbers * 2).encode()
    assert import_file(body)[0] == "32 added, 3 listed before, 0 skipped"
    assert on_the_list() == set(numbers)


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
