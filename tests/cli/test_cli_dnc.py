"""The Do Not Call list: adding, removing, checking, and importing whatever a file may hold."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from app import create_app
from databases import on_both, on_sqlite
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import key_named
from texting.access import do_not_call
from texting.access.audit import Audit
from texting.access.do_not_call import LISTS, DoNotCall, DoNotCallHistory, OptedOut
from texting.access.keys import ApiKey
from texting.access.rules import CHECKS
from texting.carriers import OptOut
from texting.cli import dnc
from texting.database import clock
from texting.replies import opt_outs

pytestmark = [on_both, pytest.mark.usefixtures("noon")]

PARIS = "+33142685300"


@pytest.fixture
def import_file(flask, tmp_path):
    """Import a file of these bytes; its standard output and the lines on standard error."""

    def run(body, *options, status=0):
        path = tmp_path / "numbers.csv"
        path.write_bytes(body)
        result = flask("dnc", "import", str(path), *options)
        assert result.exit_code == status, result.output
        progress, *lines = result.stderr.splitlines()
        assert progress.startswith("importing")
        summary, stops = result.stdout.splitlines()
        assert stops.endswith("gets no texts" if "--opted-out" in options else "that set check_dnc")
        return summary, lines

    return run


def on_the_list(which=DoNotCall):
    return {row.number for row in which.select()}


def test_a_listed_number_that_is_valid_no_more_is_checked_and_removed(session):
    OptedOut.add(["+22501234567"], TUESDAY_NOON, "reply")
    session("""
        $ flask dnc check +22501234567
        listed
        opt-out since 2026-03-03T17:00:00.000Z, by reply: gets no texts
        $ flask dnc remove "+225 01 23 45 67" --opted-out
        1 removed, 0 not listed
    """)
    assert [each.what for each in DoNotCallHistory.of("+22501234567")] == ["joined", "left"]


def test_numbers_are_added_checked_and_removed(session):
    session("""
        $ flask dnc add +12125550123 +442083661177 +12125550123
        2 added, 0 already listed
        a number that you listed gets no texts that set check_dnc
        $ flask dnc add "+1 (212) 555-0123" +33142685300
        1 added, 1 already listed
        a number that you listed gets no texts that set check_dnc
        $ flask dnc add --opted-out +12125550123
        1 added, 0 already listed
        a recipient who opted out gets no texts
        $ flask dnc list --limit 3
        number        kind     source    since
        +12125550123  opt-out  operator  2026-03-03T17:00:00.000Z
        +12125550123  entry    operator  2026-03-03T17:00:00.000Z
        +33142685300  entry    operator  2026-03-03T17:00:00.000Z
        3 of 4: 1 opt-out, 3 entries
        $ flask dnc check "+1 212 555 0123"
        listed
        opt-out since 2026-03-03T17:00:00.000Z, by operator: gets no texts
        entry since 2026-03-03T17:00:00.000Z, by operator: gets no texts that set check_dnc
        $ flask dnc remove --opted-out +12125550123 +13105550123
        1 removed, 1 not listed
        $ flask dnc check +12125550123
        not listed
        [1]
    """)
    assert on_the_list() == {LONDON, PARIS}


def test_only_a_deliberate_removal_ends_an_opt_out(session):
    """Without --opted-out it is left, whatever else is removed, and the command says so."""
    OptedOut.add([NEW_YORK, LONDON], TUESDAY_NOON, "reply")
    DoNotCall.add([NEW_YORK, PARIS], TUESDAY_NOON, "import")
    session(f"""
        $ flask dnc remove {NEW_YORK} {LONDON} {PARIS} +13105550123
        {NEW_YORK}: opted out on 2026-03-03, by reply; --opted-out ends that
        {LONDON}: opted out on 2026-03-03, by reply; --opted-out ends that
        2 removed, 1 not listed
        [1]
        $ flask dnc history {PARIS}
        at                        kind   what    why       who
        2026-03-03T17:00:00.000Z  entry  joined  import    -
        2026-03-03T17:00:00.000Z  entry  left    operator  shell
    """)
    assert (on_the_list(), on_the_list(OptedOut)) == (set(), {NEW_YORK, LONDON})
    session(f"""
        $ flask dnc remove {NEW_YORK} {LONDON} --opted-out
        2 removed, 0 not listed
        $ flask dnc history {LONDON}
        at                        kind     what    why       who
        2026-03-03T17:00:00.000Z  opt-out  joined  reply     -
        2026-03-03T17:00:00.000Z  opt-out  left    operator  shell
    """)
    assert on_the_list(OptedOut) == set()


@pytest.mark.parametrize("check_dnc", CHECKS)
@pytest.mark.parametrize("of_key", [None, *CHECKS])
def test_what_a_number_gets_no_more_is_said_by_the_setting(settings, check_dnc, of_key):
    """It is said that a key has another rule if that lets a text through, or stops more."""
    key = key_named("codes")
    ApiKey.update(check_dnc=of_key).where(ApiKey.id == key.id).execute()
    runner = create_app(settings._replace(check_dnc=check_dnc)).test_cli_runner()
    for option, stop_all in (["--opted-out"], ["opted-out", "always"]), ([], ["always"]):
        stops = f"gets no texts{'' if check_dnc in stop_all else ' that set check_dnc'}"
        if of_key and (of_key in stop_all) != (check_dnc in stop_all):
            stops += ", unless a key's own rule says otherwise"
        _, line = runner.invoke(args=["dnc", "add", *option, NEW_YORK]).stdout.splitlines()
        assert line.endswith(f" {stops}")
        check = runner.invoke(args=["dnc", "check", NEW_YORK])
        assert sum(each.endswith(f": {stops}") for each in check.stdout.splitlines()) >= 1


@pytest.mark.slow
def test_more_numbers_are_removed_than_a_statement_has_parameters(flask):
    numbers = [f"+1212{n}" for n in range(2_000_000, 2_065_600)]
    DoNotCall.add(numbers[:9], TUESDAY_NOON, "operator")
    result = flask("dnc", "remove", *numbers)
    assert result.output == "9 removed, 65591 not listed\n"


def test_national_numbers_are_read_with_a_region(session, refused):
    session("""
        $ flask dnc add --region us "(212) 555-0123"
        1 added, 0 already listed
        a number that you listed gets no texts that set check_dnc
        $ flask dnc check "(212) 555-0123" --region US
        listed
        entry since 2026-03-03T17:00:00.000Z, by operator: gets no texts that set check_dnc
        $ flask dnc history "(212) 555-0123" --region US
        at                        kind   what    why       who
        2026-03-03T17:00:00.000Z  entry  joined  operator  shell
        $ flask dnc remove --region US 212-555-0123
        1 removed, 0 not listed
    """)
    for command in ("add", "remove", "check", "history"):
        line = refused("dnc", command, "2125550123", status=2)
        assert line.endswith(
            "'2125550123': is not a phone number; put a plus sign before its country code, "
            "or --region accepts national numbers"
        )


def test_nothing_is_added_where_one_number_is_wrong(refused):
    assert "'123'" in refused("dnc", "add", NEW_YORK, "123", status=2)
    assert on_the_list() == set()


MESSY = [
    "phone,name",
    "",
    f"{NEW_YORK},Ann",
    f'"{LONDON}","Bob, Jr."',
    '"+33 1 42 68 53 00",Zoë',
    "   ",
    f"{NEW_YORK},again",
    "not a number,Eve",
    "+1212555,short",
    ",nobody",
    "  +13105550123  ",
    '"+13105550124',
    f"{PARIS};Léa",
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
def test_the_first_column_is_imported_and_what_is_skipped_is_told(encoding, line_end, import_file):
    """A line stands for itself: a stray quotation mark swallows no other."""
    body = line_end.join(MESSY).encode(encoding)
    summary, lines = import_file(body, status=1)
    assert summary == "5 added, 0 already listed, 5 skipped"
    assert lines == [
        "line 1: is not a phone number; taken for a heading",
        "line 8: is not a phone number",
        "line 9: is not a valid phone number",
        "line 10: is not a phone number",
        "line 13: is not a phone number",
    ]
    assert on_the_list() == {NEW_YORK, LONDON, PARIS, "+13105550123", "+13105550124"}
    assert import_file(body, status=1) == ("0 added, 5 already listed, 5 skipped", lines)


@pytest.mark.parametrize(
    ("body", "summary", "status"),
    [
        (b"", "0 added, 0 already listed, 0 skipped", 0),
        (b"\n\r\n \t\n", "0 added, 0 already listed, 0 skipped", 0),
        (b"phone\n", "0 added, 0 already listed, 1 skipped", 0),
        (b"phone\nphone\n", "0 added, 0 already listed, 2 skipped", 1),
        (NEW_YORK.encode(), "1 added, 0 already listed, 0 skipped", 0),
        (b"Ann,+12125550123\n", "0 added, 0 already listed, 1 skipped", 1),
        (b"+1212555012x\n+12125550123", "1 added, 0 already listed, 1 skipped", 1),
        (b"1" * 200_000 + b"\n+12125550123", "1 added, 0 already listed, 1 skipped", 1),
    ],
    ids=lambda value: ascii(str(value)[:20]),
)
def test_nothing_is_guessed_in_odd_files(body, summary, status, import_file):
    """Only a first line without a digit, a heading, may be skipped with status 0."""
    assert import_file(body, status=status)[0] == summary


def test_a_start_that_is_older_than_an_imported_opt_out_undoes_nothing(import_file):
    import_file(NEW_YORK.encode(), "--opted-out")
    for age, is_left in ((HOUR, True), (-HOUR / 60, False)):
        now = clock.now() + HOUR
        start = OptOut(NEW_YORK, False, "reply", at=clock.now() - age)
        opt_outs.record_opt_out(start, now, "asked")
        assert OptedOut.lists(NEW_YORK) == is_left


def test_national_numbers_are_imported_with_a_region(import_file):
    body = f"{LONDON}\n(212) 555-0123\n".encode()
    summary, lines = import_file(body, status=1)
    assert (summary, lines) == (
        "1 added, 0 already listed, 1 skipped",
        ["line 2: is not a phone number"],
    )
    assert import_file(body, "--region", "US")[0] == "1 added, 1 already listed, 0 skipped"
    assert on_the_list() == {LONDON, NEW_YORK}


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_of_a_file_that_is_not_utf_8_nothing_is_imported(encoding, refused, tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text(f"{NEW_YORK},Zoë\n", encoding)
    line = "Error: the file is not UTF-8, so nothing was imported"
    assert refused("dnc", "import", str(path)) == line
    assert on_the_list() == set()


@pytest.mark.parametrize("which", LISTS)
def test_what_is_exported_can_be_imported(run, import_file, which):
    numbers = [f"+1212555{n:04}" for n in range(100, 1150)]
    which.add(numbers, TUESDAY_NOON, "operator")
    LISTS[which is OptedOut].add([LONDON], TUESDAY_NOON, "operator")
    options = ["--opted-out"] if which is OptedOut else []
    exported = run("dnc", "export", *options)
    assert exported.splitlines()[:2] == [
        "number,source,since",
        f"{numbers[0]},operator,2026-03-03T17:00:00.000Z",
    ]
    do_not_call.remove(numbers, TUESDAY_NOON, "shell", opted_out=True)
    summary, lines = import_file(exported.encode(), *options)
    assert summary == "1050 added, 0 already listed, 1 skipped"
    assert lines == ["line 1: is not a phone number; taken for a heading"]
    assert on_the_list(which) == {*numbers}


@pytest.mark.parametrize("there", [None, "file", "link", "hard link", "dead link"])
def test_an_exported_file_is_new_and_its_owners_alone(run, tmp_path, there):
    path, other = tmp_path / "out" / "list.csv", tmp_path / "of-another"
    path.parent.mkdir()
    other.touch(0o666)
    other.chmod(0o666)
    match there:
        case "file":
            path.touch()
            path.chmod(0o666)
        case "link":
            path.symlink_to(other)
        case "hard link":
            path.hardlink_to(other)
        case "dead link":
            path.symlink_to(tmp_path / "nowhere")
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run("dnc", "export", str(path))
    assert NEW_YORK in path.read_text()
    assert path.lstat().st_mode == 0o100600
    assert (other.read_bytes(), other.stat().st_mode & 0o777) == (b"", 0o666)
    assert [*path.parent.iterdir()] == [path]
    assert not (tmp_path / "nowhere").exists()


def test_who_has_opened_the_file_before_reads_nothing_of_the_next_export(run, tmp_path):
    path = tmp_path / "list.csv"
    path.touch()
    with path.open() as opened:
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
        run("dnc", "export", str(path))
        assert opened.read() == ""


def test_an_export_to_what_is_no_file_is_refused(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/null", ".", "nowhere/list.csv"):
        refused("dnc", "export", path, status=2 if path == "." else 1)
    assert Path("pipe").is_fifo()
    assert [*Path().glob(".*")] == []
    assert not Audit.select().exists()


def test_an_export_into_the_current_folder_is_there(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # it may be another disk, or anybody's
    run("dnc", "export", "list.csv")
    assert Path("list.csv").read_text() == "number,source,since\n"


@on_sqlite
def test_an_export_that_fails_leaves_the_last_one(run, refused, tmp_path):
    path = tmp_path / "list.csv"
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run("dnc", "export", str(path))
    before = path.read_bytes()
    DoNotCall.drop_table()
    assert "do_not_call" in refused("dnc", "export", str(path), status=2)
    assert path.read_bytes() == before
    assert [*tmp_path.glob(".*")] == []


def test_a_dash_imports_standard_input(run):
    assert run("dnc", "import", "-", input=f"{NEW_YORK}\n{LONDON}\n").startswith("2 added")
    assert on_the_list() == {NEW_YORK, LONDON}


def test_more_than_a_batch_is_imported_and_repeats_are_counted_once(import_file, monkeypatch):
    monkeypatch.setattr(dnc, "BATCH", 10)
    numbers = [f"+1212555{n:04}" for n in range(100, 135)]
    DoNotCall.add(numbers[:3], clock.now(), "operator")
    body = "\n".join(numbers * 2).encode()
    assert import_file(body)[0] == "32 added, 3 already listed, 0 skipped"
    assert on_the_list() == set(numbers)
    rows = [row for row in DoNotCallHistory.select() if row.why == "import"]
    assert sorted(row.number for row in rows) == numbers[3:]
    assert {(row.what, row.who) for row in rows} == {("joined", "shell")}


def test_the_history_tells_every_change_by_whomever(session, run, import_file, at):
    def reply(stop, source="reply"):
        opt_outs.record_opt_out(OptOut(NEW_YORK, stop, source), clock.now(), "asked")

    changes = (
        lambda: run("dnc", "add", NEW_YORK, LONDON),
        lambda: run("dnc", "add", NEW_YORK),
        lambda: run("dnc", "remove", NEW_YORK),
        lambda: run("dnc", "remove", NEW_YORK),
        lambda: reply(True),
        lambda: reply(True),
        lambda: reply(False),
        lambda: reply(False),
        lambda: import_file(NEW_YORK.encode()),
        lambda: reply(False),
        lambda: reply(True, "carrier"),
        lambda: do_not_call.remove([NEW_YORK], clock.now(), "Olga", opted_out=True),
        lambda: run("dnc", "add", "--opted-out", NEW_YORK),
    )
    session(f"""
        $ flask dnc history {NEW_YORK}
        never listed
        $ flask dnc history {NEW_YORK} --json
        []
    """)
    for hour, change in enumerate(changes):
        at(TUESDAY_NOON.replace(hour=hour))
        change()
    session("""
        $ flask dnc history "+1 212 555 0123"
        at                        kind     what    why       who
        2026-03-03T00:00:00.000Z  entry    joined  operator  shell
        2026-03-03T02:00:00.000Z  entry    left    operator  shell
        2026-03-03T04:00:00.000Z  opt-out  joined  reply     -
        2026-03-03T06:00:00.000Z  opt-out  left    reply     -
        2026-03-03T08:00:00.000Z  entry    joined  import    shell
        2026-03-03T10:00:00.000Z  opt-out  joined  carrier   -
        2026-03-03T11:00:00.000Z  opt-out  left    operator  Olga
        2026-03-03T11:00:00.000Z  entry    left    operator  Olga
        2026-03-03T12:00:00.000Z  opt-out  joined  operator  shell
    """)
    last = {"at": "2026-03-03T12:00:00.000Z", "kind": "opt-out", "what": "joined"}
    last |= {"why": "operator", "who": "shell"}
    assert json.loads(run("dnc", "history", NEW_YORK, "--json"))[-1] == last


@on_sqlite
def test_a_change_whose_history_cannot_be_written_is_none(run, refused):
    run("dnc", "add", LONDON)
    DoNotCallHistory.drop_table()
    assert "do_not_call_history" in refused("dnc", "add", NEW_YORK, status=2)
    assert "do_not_call_history" in refused("dnc", "remove", LONDON, status=2)
    assert on_the_list() == {LONDON}
