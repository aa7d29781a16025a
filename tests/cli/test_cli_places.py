"""Where people live: importing it from whatever a file holds, checking, removing, forgetting."""

import json
import time

import pytest

from answers import accepted
from databases import on_both
from places import SILENCES
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import store
from texting.access.audit import Audit
from texting.access.places import KnownPlace
from texting.database import BATCH
from texting.messages.model import Status

pytestmark = [on_both, pytest.mark.usefixtures("noon")]

DALLAS = SILENCES["Dallas"].to
PLACE = (
    "the place must be a country (DE), a state or province of the United States or Canada (US-TX), "
    "or a zone of a country (America/Chicago)"
)
DAY = "the last day must be like 2026-12-31"


@pytest.fixture
def import_file(flask, tmp_path):
    """Import a file of these bytes; its standard output and the lines on standard error."""

    def run(body, *options, status=0):
        path = tmp_path / "places.csv"
        path.write_bytes(body)
        result = flask("places", "import", str(path), *options)
        assert result.exit_code == status, result.output
        progress, *lines = result.stderr.splitlines()
        assert progress.startswith("importing")
        return result.stdout.strip(), lines

    return run


def known():
    return {row.number: (row.place, row.until and str(row.until)) for row in KnownPlace.select()}


def test_a_place_is_a_country_a_state_or_a_zone(import_file):
    body = f"number,place,until\r\n{NEW_YORK},US-TX,2026-12-31\r\n\r\n{LONDON}, DE\r\n"
    body += f'"{DALLAS}","America/Phoenix",""\r\n'
    told = import_file(body.encode("utf-8-sig"))
    assert told == ("3 imported, 1 skipped", ["line 1: is not a phone number; taken for a heading"])
    assert known() == {
        NEW_YORK: ("US-TX", "2026-12-31"),
        LONDON: ("DE", None),
        DALLAS: ("America/Phoenix", None),
    }


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("us-tx", "US-TX"),
        ("de", "DE"),
        ("america/new_york", "America/New_York"),
        ("US/Central", "America/Chicago"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Europe/Kiev", "Europe/Kyiv"),
        ("XK", "XK"),
        ("PR", "PR"),
        ("CA-NU", "CA-NU"),
    ],
)
def test_case_and_old_names_of_zones_are_understood(written, place, import_file):
    import_file(f"{NEW_YORK},{written}\n".encode())
    assert known() == {NEW_YORK: (place, None)}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (NEW_YORK, PLACE),
        (f"{NEW_YORK},", PLACE),
        (f"{NEW_YORK},Texas", PLACE),
        (f"{NEW_YORK},US-PR", PLACE),
        (f"{NEW_YORK},UK", f"{PLACE} (did you mean GB?)"),
        *((f"{NEW_YORK},{zone}", PLACE) for zone in ("UTC", "Etc/GMT+5", "Mars/Base")),
        (f"{NEW_YORK},001", PLACE),
        (f"{NEW_YORK},../../etc/passwd", PLACE),
        *(
            (f"{NEW_YORK},US-TX,{day}", DAY)
            for day in ("20261231", "2026-02-30", "31.12.2026", "soon", "0000-01-01")
        ),
        (f"{NEW_YORK},US-TX,2026-12-31,7", "has more than a number, a place and a day"),
        ("+1212555,US-TX", "is not a valid phone number"),
        ("2125550123,US-TX", "is not a phone number"),
        ("\0,US-TX", "is not a phone number"),
        (f"{NEW_YORK},US\0", PLACE),
        ("x" * 200_000, "is too long"),
    ],
)
def test_a_line_that_is_not_read_is_told_after_the_others_with_status_1(line, problem, import_file):
    body = f"{LONDON},GB\n{line}\n{DALLAS},US-OK\n".encode()
    told = import_file(body, status=1)
    assert told == ("2 imported, 1 skipped", [f"line 2: {problem}"])
    assert known() == {LONDON: ("GB", None), DALLAS: ("US-OK", None)}


def test_a_file_that_is_no_utf_8_changes_nothing(flask, tmp_path):
    path = tmp_path / "places.csv"
    path.write_bytes(f"{NEW_YORK},US-TX\n".encode() + b"\xff\xfe")
    result = flask("places", "import", str(path))
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: the file is not UTF-8, so nothing was imported\n",
    )
    assert known() == {}


def test_the_last_line_for_a_number_counts(import_file):
    import_file(f"{NEW_YORK},US-TX,2026-12-31\n{LONDON},DE\n{NEW_YORK},US-CA\n".encode())
    assert known() == {NEW_YORK: ("US-CA", None), LONDON: ("DE", None)}
    import_file(b"(212) 555-0123,CA-QC,2027-01-01\n", "--region", "US")
    assert known() == {NEW_YORK: ("CA-QC", "2027-01-01"), LONDON: ("DE", None)}


def test_a_session(session, import_file):
    import_file(f"{NEW_YORK},us-tx,2026-12-31\n{LONDON},America/Chicago\n".encode())
    session(f"""
        $ flask places check {NEW_YORK}
        US-TX (Texas) until 2026-12-31, imported 2026-03-03T17:00:00.000Z
        $ flask places check --region US "(212) 555-0123"
        US-TX (Texas) until 2026-12-31, imported 2026-03-03T17:00:00.000Z
        $ flask places check {LONDON}
        America/Chicago, imported 2026-03-03T17:00:00.000Z
        $ flask places check {DALLAS}
        not known
        [1]
        $ flask places remove {NEW_YORK} {DALLAS}
        1 removed, 1 not known
        $ flask places check {NEW_YORK}
        not known
        [1]
    """)


def test_imports_and_removals_are_audited(import_file, run):
    import_file(f"{NEW_YORK},US-TX\n{LONDON},DE\n".encode())
    run("places", "remove", NEW_YORK, DALLAS)
    rows = Audit.select().order_by(Audit.id)
    assert [(row.what, row.count, row.number) for row in rows] == [
        ("places imported", 2, None),
        ("place removed", None, NEW_YORK),
    ]


@pytest.mark.slow
def test_many_lines_are_imported_in_batches(import_file):
    numbers = [f"+1212{2_000_000 + n}" for n in range(2 * BATCH + 1)]
    body = "".join(f"{number},US-TX\n" for number in [*numbers, numbers[0]])
    assert import_file(body.encode()) == (f"{len(numbers)} imported, 0 skipped", [])
    assert KnownPlace.select().count() == len(numbers)
    (row,) = Audit.listing(None, None, None)  # the batches of one import are one row
    assert row.count == len(numbers)


@pytest.mark.parametrize("has_messages", [True, False])
def test_redaction_of_a_number_forgets_where_its_owner_lives(has_messages, import_file, run):
    import_file(f"{NEW_YORK},US-TX\n{LONDON},DE\n".encode())
    if has_messages:
        store(status=Status.SENT, finished_at=TUESDAY_NOON)
    run("messages", "redact", "--to", NEW_YORK)
    assert known() == {LONDON: ("DE", None)}
    run("messages", "redact", "--older-than", "0")
    assert known() == {LONDON: ("DE", None)}


def test_a_change_holds_a_second_later_in_every_process(import_file, run, post, at):
    at(TUESDAY_NOON - 3 * HOUR)  # 9 AM in New York, 8 AM in Texas
    for _ in range(2):
        assert accepted(post())["can_send_now"]
        KnownPlace.insert(
            number=NEW_YORK, place="US-TX", imported_at=TUESDAY_NOON
        ).execute()  # as another process does
        time.sleep(1.1)
        assert not accepted(post())["can_send_now"]
        run("places", "remove", NEW_YORK)
        assert accepted(post())["can_send_now"]


# What the commands say


def test_hours_name_the_place_for_as_long_as_it_counts(flask_with, import_file):
    import_file(f"{NEW_YORK},US-AZ,2026-03-03\n{LONDON},Europe/Berlin\n".encode())
    flask = flask_with(business_hours=(540, 1020))

    def lines(number, when):
        return flask("hours", number, "--at", when).stdout.splitlines()[:3]

    assert lines(NEW_YORK, "2026-03-04T06:59Z") == [
        "+1 212-555-0123: New York, United States (New York)",
        "Place: US-AZ (Arizona), imported, until 2026-03-03",
        "Clock: America/Phoenix, where it is 11:59 PM, Tuesday, Mar 3",
    ]
    assert lines(NEW_YORK, "2026-03-04T07:00Z")[1] == (
        "Clock: America/New_York, where it is 2:00 AM, Wednesday, Mar 4"
    )
    assert lines(LONDON, "2026-03-04T07:00Z")[1:] == [
        "Place: Europe/Berlin, imported",
        "Clock: Europe/Berlin, where it is 8:00 AM, Wednesday, Mar 4",
    ]
    found = json.loads(flask("hours", LONDON, "--json").stdout)
    assert (found["country"], found["location"]) == ("GB", "London, United Kingdom")
    assert (found["place"], found["zones"]) == ("Europe/Berlin", ["Europe/Berlin"])
    at_night = ("hours", NEW_YORK, "--json", "--at", "2026-03-04T07:00Z")
    assert json.loads(flask(*at_night).stdout)["place"] is None


def test_show_and_list_go_by_the_place(import_file, run, at):
    import_file(f"{NEW_YORK},US-AZ\n".encode())
    opening = TUESDAY_NOON - HOUR  # 9 AM in Arizona
    store(status=Status.SCHEDULED, send_at=opening)
    at(opening - 2 * HOUR)
    (shown,) = json.loads(run("messages", "list", "--json"))
    assert shown["waits_for"] == "business hours from 9:00 AM, Tuesday, Mar 3"
    assert "9:00 AM, Tuesday, Mar 3" in run("messages", "list")
