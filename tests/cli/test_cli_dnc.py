"""The Do Not Call list: adding, removing, checking, and importing whatever a file may hold."""

import json

import pytest

import cli.dnc
from access.do_not_call import DoNotCall, DoNotCallHistory
from carriers import OptOut
from database import clock
from databases import on_sqlite
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from sending import receipts

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
        return result.stdout.strip(), lines

    return run


def on_the_list():
    return {row.number for row in DoNotCall.select()}


def test_numbers_are_added_checked_and_removed(run, flask, at):
    at(TUESDAY_NOON)
    assert run("dnc", "add", NEW_YORK, LONDON, NEW_YORK) == "2 added, 0 listed before\n"
    assert run("dnc", "add", "+1 (212) 555-0123", PARIS) == "1 added, 1 listed before\n"
    assert on_the_list() == {NEW_YORK, LONDON, PARIS}
    checked = run("dnc", "check", "+1 212 555 0123").splitlines()
    assert checked == ["listed", "since 2026-03-03T17:00:00.000Z, by operator"]
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
        (NEW_YORK.encode(), "1 added, 0 listed before, 0 skipped"),
        (b"caf\xe9\n+12125550123,\xff\xfe\n", "1 added, 0 listed before, 0 skipped"),
        (b'"(212) 555-0123"\t"a,b"\n\'+12125550123\'', "1 added, 0 listed before, 1 skipped"),
        (b'"' + b"1" * 200_000 + b"\n+12125550123", "1 added, 0 listed before, 1 skipped"),
        (b"1" * 200_000 + b"\n+12125550123", "1 added, 0 listed before, 1 skipped"),
        (b'+12125550123,"a\nb"\n', "1 added, 0 listed before, 0 skipped"),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_odd_files_are_imported_too(body, summary, import_file):
    assert import_file(body)[0] == summary


@pytest.mark.parametrize("body", [b"phone number\n", b'[{"phone": "+12125550123"}]'])
def test_a_file_without_a_row_is_refused_in_one_line(refused, tmp_path, body):
    path = tmp_path / "numbers.csv"
    path.write_bytes(body)
    assert refused("dnc", "import", str(path)).startswith("Error: nothing was imported: th")


def test_a_binary_file_adds_nothing(import_file):
    body = bytes(range(256)) * 100
    assert import_file(body, status=1)[0].startswith("0 added, 0 listed before, ")


def test_a_file_that_is_mostly_skipped_fails_and_says_what_to_try(import_file):
    body = f"{LONDON}\n(212) 555-0123\n(310) 555-0123\n".encode()
    summary, lines = import_file(body, status=1)
    assert summary == "1 added, 0 listed before, 2 skipped"
    assert lines[-1].endswith(
        "most lines were skipped: try --region, which accepts national numbers"
    )
    assert import_file(body, "--region", "US")[0] == "2 added, 1 listed before, 0 skipped"
    assert import_file(body, "--region", "GB", status=1)[1][-1].endswith("is --region right?")


@pytest.mark.parametrize(
    "body",
    [
        "name,email,phone\nAnn,a@example.com,{0}\nBob,b@example.com,{1}\n",
        "{0}\n{1}\n",
        "Order number;Mobile\n2125550199;{0}\n12;{1}\n",
        '"Doe, Ann"\t"3 High Street; London"\t{0}\n"Roe, Bob"\t\t{1}\n',
        "id,mobile phone,land line\n1,{0},\n2,{1},+13105550199\n",
    ],
)
def test_the_column_of_the_numbers_is_found(import_file, body):
    assert import_file(body.format(NEW_YORK, LONDON).encode())[0].startswith("2 added")
    assert on_the_list() == {NEW_YORK, LONDON}


def test_a_column_of_national_numbers_is_found_by_its_name_and_read_with_a_region(import_file):
    body = b"order number,phone\n1,(212) 555-0123\n2,617-209-1009\n"
    _, lines = import_file(body, status=1)
    assert lines[0] == "line 2: is not a phone number"
    assert import_file(body, "--region", "US")[0] == "2 added, 0 listed before, 0 skipped"


TWO_NUMBERS = f"name,phone,mobile\nAnn,{NEW_YORK},{LONDON}\nBob,,{PARIS}\n"


def test_where_two_columns_may_be_meant_nothing_is_imported_until_one_is_chosen(
    flask, refused, tmp_path
):
    path = tmp_path / "numbers.csv"
    path.write_text(TWO_NUMBERS)
    line = refused("dnc", "import", str(path))
    assert line == (
        "Error: nothing was imported: several columns may hold the numbers: "
        "column 2 'phone', column 3 'mobile'; choose with --column"
    )
    assert "there is no column 'fax'" in refused("dnc", "import", str(path), "--column", "fax")
    assert on_the_list() == set()
    result = flask("dnc", "import", str(path), "--column", "Phone")
    assert result.stdout == "1 added, 0 listed before, 1 skipped\n"
    assert result.stderr.splitlines() == ["importing column 2 'phone'", "line 3: has no number"]
    assert flask("dnc", "import", str(path), "--column", "2", "--column", "mobile").stdout == (
        "2 added, 1 listed before, 0 skipped\n"
    )
    assert on_the_list() == {NEW_YORK, LONDON, PARIS}


def test_birth_dates_join_no_list(import_file):
    body = "Name;Geburtsdatum;Telefon\nAnna;03.04.1975;0151 23456789\n"
    assert import_file(body.encode(), "--region", "DE")[0] == "1 added, 0 listed before, 0 skipped"
    assert on_the_list() == {"+4915123456789"}


def test_what_a_spreadsheet_makes_of_numbers_is_read(import_file):
    body = b'6172091009.0\n2.125550123E+09\n="2125550124"\n12125550125\n'
    assert import_file(body, "--region", "US")[0] == "4 added, 0 listed before, 0 skipped"
    assert on_the_list() == {"+16172091009", NEW_YORK, "+12125550124", "+12125550125"}


def test_a_number_that_a_spreadsheet_has_rounded_is_skipped_with_the_reason(import_file):
    body = f"{NEW_YORK}\n6.17E+09\n".encode()
    assert import_file(body, "--region", "US") == (
        "1 added, 0 listed before, 1 skipped",
        ["line 2: was rounded by a spreadsheet"],
    )


def test_national_numbers_are_added_and_removed_with_a_region(run, refused):
    assert run("dnc", "add", "--region", "us", "(212) 555-0123") == "1 added, 0 listed before\n"
    assert on_the_list() == {NEW_YORK}
    assert run("dnc", "remove", "--region", "US", "212-555-0123") == "1 removed, 0 not listed\n"
    line = refused("dnc", "add", "2125550123", status=2)
    assert line.endswith("'2125550123': is not a phone number; --region accepts national numbers")


def test_the_list_shows_sources_and_instants_and_says_how_many_there_are(run):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    DoNotCall.add([LONDON], TUESDAY_NOON, "reply")
    _, new_york, london, total = run("dnc", "list").splitlines()
    assert new_york.split() == [NEW_YORK, "operator", "2026-03-03T17:00:00.000Z"]
    assert london.split() == [LONDON, "reply", "2026-03-03T17:00:00.000Z"]
    assert total == "2 of 2 numbers"
    assert run("dnc", "list", "--limit", "1").splitlines()[-1] == "1 of 2 numbers"


def test_what_is_exported_can_be_imported(run, import_file):
    numbers = [f"+1212555{n:04}" for n in range(100, 1150)]
    DoNotCall.add(numbers, TUESDAY_NOON, "operator")
    exported = run("dnc", "export")
    assert exported.splitlines()[:2] == [
        "number,source,since",
        f"{numbers[0]},operator,2026-03-03T17:00:00.000Z",
    ]
    DoNotCall.remove(numbers, TUESDAY_NOON, "operator")
    assert import_file(exported.encode())[0] == "1050 added, 0 listed before, 0 skipped"


def test_an_exported_file_is_private(run, tmp_path):
    path = tmp_path / "list.csv"
    run("dnc", "export", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    run("dnc", "export", str(path))
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.glob("-*")] == []


@on_sqlite
def test_an_export_that_fails_leaves_the_last_one(run, refused, tmp_path):
    path = tmp_path / "list.csv"
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run("dnc", "export", str(path))
    before = path.read_bytes()
    DoNotCall.drop_table()
    assert "do_not_call" in refused("dnc", "export", str(path), status=2)
    assert path.read_bytes() == before


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
    assert "XX is not a country code" in line
    assert on_the_list() == set()


def test_a_dash_imports_standard_input(run):
    assert run("dnc", "import", "-", input=f"{NEW_YORK}\n{LONDON}\n").startswith("2 added")
    assert on_the_list() == {NEW_YORK, LONDON}


def test_more_than_a_batch_is_imported_and_repeats_are_counted_once(import_file, monkeypatch):
    sizes, add = [], DoNotCall.add
    monkeypatch.setattr(cli.dnc, "BATCH", 10)
    monkeypatch.setattr(
        DoNotCall, "add", lambda new, *how: sizes.append(len(new)) or add(new, *how)
    )
    numbers = [f"+1212555{n:04}" for n in range(100, 135)]
    add(numbers[:3], clock.now(), "operator")
    body = "\n".join(numbers * 2).encode()
    assert import_file(body)[0] == "32 added, 3 listed before, 0 skipped"
    assert sizes == [10, 10, 10, 5]
    assert on_the_list() == set(numbers)


def test_the_history_tells_every_change_by_whomever(run, import_file, at):
    at(TUESDAY_NOON)
    assert run("dnc", "history", NEW_YORK) == "never listed\n"
    assert json.loads(run("dnc", "history", NEW_YORK, "--json")) == []
    reply = [OptOut(NEW_YORK, stop, "reply") for stop in (True, False)]
    changes = [
        (lambda: run("dnc", "add", NEW_YORK, LONDON), ("joined", "operator", "shell")),
        (lambda: run("dnc", "add", NEW_YORK), None),
        (lambda: run("dnc", "remove", NEW_YORK), ("left", "operator", "shell")),
        (lambda: run("dnc", "remove", NEW_YORK), None),
        (lambda: receipts.record_opt_out(reply[0], clock.now()), ("joined", "reply", None)),
        (lambda: receipts.record_opt_out(reply[0], clock.now()), None),
        (lambda: receipts.record_opt_out(reply[1], clock.now()), ("left", "reply", None)),
        (lambda: receipts.record_opt_out(reply[1], clock.now()), None),
        (lambda: receipts.record_opt_out(reply[0], clock.now()), ("joined", "reply", None)),
        (lambda: import_file(NEW_YORK.encode()), ("joined", "import", "shell")),
        (lambda: receipts.record_opt_out(reply[1], clock.now()), None),
        (
            lambda: DoNotCall.remove([NEW_YORK], clock.now(), "operator", "Olga"),
            ("left", "operator", "Olga"),
        ),
        (
            lambda: receipts.record_opt_out(OptOut(NEW_YORK, True, "carrier"), clock.now()),
            ("joined", "carrier", None),
        ),
    ]
    expected = []
    for hour, (change, told) in enumerate(changes):
        instant = TUESDAY_NOON.replace(hour=hour)
        at(instant)
        change()
        if told:
            words = dict(zip(("what", "why", "who"), told, strict=True))
            expected.append({"at": f"2026-03-03T{hour:02}:00:00.000Z"} | words)
    assert json.loads(run("dnc", "history", "+1 212 555 0123", "--json")) == expected
    _, first, *_, last = run("dnc", "history", NEW_YORK).splitlines()
    assert first.split() == ["2026-03-03T00:00:00.000Z", "joined", "operator", "shell"]
    assert last.split() == ["2026-03-03T12:00:00.000Z", "joined", "carrier", "-"]


@on_sqlite
def test_a_change_whose_history_cannot_be_written_is_none(run, refused):
    run("dnc", "add", LONDON)
    DoNotCallHistory.drop_table()
    assert "do_not_call_history" in refused("dnc", "add", NEW_YORK, status=2)
    assert "do_not_call_history" in refused("dnc", "remove", LONDON, status=2)
    assert on_the_list() == {LONDON}


def test_every_number_of_a_large_import_gets_its_row(import_file, run):
    numbers = [f"+1212555{n:04}" for n in range(100, 1100)]
    import_file("\n".join(numbers).encode())
    rows = DoNotCallHistory.select()
    assert sorted(row.number for row in rows) == numbers
    assert {(row.what, row.why, row.who) for row in rows} == {("joined", "import", "shell")}
