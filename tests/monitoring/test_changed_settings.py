"""Changes of the settings by which texts are allowed are in the audit, whoever starts first."""

import time

import pytest

from databases import on_both
from own_threads import at_once
from running import wait_until
from samples import TUESDAY_NOON
from scheduler import Scheduler
from texting.access.audit import Audit
from texting.monitoring import changed_settings

CHANGES = {
    "BUSINESS_HOURS": ("09:00-17:00", "10:00-18:00", ["mon-sun 09:00-17:00", " 09:00 - 17:00 "]),
    "BUSINESS_DAYS": ("mon-fri", "mon-sat", ["fri,thu,mon-wed", "MON-FRI"]),
    "SKIP_HOLIDAYS": ("false", "true", ["FALSE"]),
    "QUIET_HOURS": (
        *("21:00-08:00", "22:00-08:00"),
        ["mon-sun 21:00-08:00", "sun-sat 21:00-08:00, holidays 21:00-08:00"],
    ),
    "CHECK_DNC": ("opted-out", "always", ["Opted-Out"]),
    "ALLOWED_COUNTRIES": ("CA,US", "CA,MX,US", ["us, ca", "US,CA,US"]),
    "EXPIRE_AFTER": ("72h", "24h", ["3d", "4320m"]),
    "RECIPIENT_LIMIT": ("3/24h", "3/48h", ["3/1d", "3/1440min"]),
}


@pytest.fixture
def begin(database_url, loaded):
    """Start a service with these variables, as far as the audit hears of it."""

    def note(**variables):
        changed_settings.note(loaded(**variables), TUESDAY_NOON)

    return note


def noted():
    """Return the changes in the audit, the oldest first."""
    rows = Audit.select().order_by(Audit.id)
    assert {row.what for row in rows} <= {"setting changed"}
    return [row.details for row in rows]


@on_both
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noted_once_with_what_it_was_and_what_it_is(begin, name):
    before, after, _ = CHANGES[name]
    begin(**{name: before})
    assert noted() == [], "the very first"
    for _ in range(2):
        begin(**{name: after})
    assert noted() == [f"{name} was {before}, is {after}"]
    begin(**{name: before})
    assert noted()[1:] == [f"{name} was {after}, is {before}"]


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, each) for name, (_, _, all) in CHANGES.items() for each in all]
)
def test_another_spelling_is_no_change(begin, name, spelling):
    begin(**{name: CHANGES[name][0]})
    begin(**{name: spelling})
    assert noted() == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_default_that_is_written_out_is_no_change(begin, name):
    written = {"BUSINESS_DAYS": "mon-sun", "QUIET_HOURS": " ", "ALLOWED_COUNTRIES": ""}
    written |= {"RECIPIENT_LIMIT": " "}
    begin()
    begin(**{name: written.get(name, CHANGES[name][0])})
    assert noted() == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"BUSINESS_HOURS": "09:00-17:00", "BUSINESS_DAYS": "mon-fri"},
            {"BUSINESS_HOURS": "mon-fri 09:00-17:00"},
        ),
        (
            {"BUSINESS_HOURS": "mon-tue 09:00-17:00, wed-fri 10:00-17:00"},
            {"BUSINESS_HOURS": "wed-fri 10:00-17:00, mon 09:00-17:00, tue 09:00-17:00"},
        ),
        ({"QUIET_HOURS": "21:00-24:00"}, {"QUIET_HOURS": "21:00-00:00"}),
        (
            {"QUIET_HOURS": "sat-sun 00:00-24:00, holidays 00:00-24:00"},
            {"QUIET_HOURS": "holidays 00:00-24:00, sun 00:00-24:00, sat 00:00-24:00"},
        ),
    ],
)
def test_the_same_hours_said_otherwise_are_no_change(begin, one, other):
    for variables in (one, other, one):
        begin(**variables)
    assert noted() == []


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("BUSINESS_DAYS", "mon-fri", "local"),
        ("BUSINESS_DAYS", "mon-sun", "local"),
        ("BUSINESS_HOURS", "mon-fri 09:00-17:00, sat 10:00-14:00", "mon-sat 09:00-17:00"),
        ("QUIET_HOURS", "21:00-08:00", "21:00-08:00, holidays 00:00-24:00"),
        ("QUIET_HOURS", "mon-sun 21:00-08:00, holidays 00:00-24:00", "mon-sun 21:00-08:00"),
        ("QUIET_HOURS", "holidays 00:00-24:00", " "),
        ("ALLOWED_COUNTRIES", "US", " "),
        ("EXPIRE_AFTER", "72h", "4321m"),
        ("RECIPIENT_LIMIT", "3/24h", "4/24h"),
        ("RECIPIENT_LIMIT", "3/24h", " "),
    ],
)
def test_small_changes_are_changes(begin, name, one, other):
    if "holidays" in other and "mon" not in other:
        other = f"mon-sun {other}"
    for value in (one, other, one):
        begin(**{name: value})
    lines = [line for line in noted() if line.startswith(name)]
    assert len(lines) == 2
    _, was, now = lines[0].replace(" was ", "\n").replace(", is ", "\n").splitlines()
    assert lines[1] == f"{name} was {now}, is {was}"


def test_of_a_file_the_lines_that_differ_are_noted(begin, tmp_path):
    path = tmp_path / "hours.toml"
    rules = {"US-TX": "21:00-09:00", "US-FL": "20:00-08:00", "DE": "none"}

    def restart(**changes):
        lines = (rules | changes).items()
        path.write_text("".join(f'{place} = "{hours}"\n' for place, hours in lines if hours))
        begin(QUIET_HOURS_FILE=str(path))

    restart()
    restart(**{"US-TX": "mon-sun 21:00-09:00"})
    assert noted() == [], "another spelling"
    restart(**{"US-TX": "21:00-08:00", "US-FL": None, "FR": "21:30-08:00"})
    assert noted() == [
        "QUIET_HOURS_FILE: FR was not there, is 21:30-08:00; "
        "US-FL was 20:00-08:00, is not there; US-TX was 21:00-09:00, is 21:00-08:00"
    ]
    begin()
    assert noted()[-1].startswith("QUIET_HOURS_FILE: DE was none, is not there; FR was ")


@on_both
def test_of_many_that_start_at_once_one_notes_the_change(begin, settings, monkeypatch):
    begin()
    note = Audit.note

    def note_slowly(*arguments, **columns):
        time.sleep(0.2)  # in which others would read what was before
        note(*arguments, **columns)

    monkeypatch.setattr(Audit, "note", note_slowly)
    changed = settings._replace(check_dnc="always", max_retries=0)
    at_once(*[lambda: changed_settings.note(changed, TUESDAY_NOON)] * 8)
    assert noted() == ["CHECK_DNC was opted-out, is always"]


@on_both
def test_schedulers_and_web_processes_note_changes_and_commands_do_not(
    schedule, serve, run, database_url
):
    def once(**variables):
        assert schedule(**{"CARRIER_URL": "simulator:"} | variables).wait() == 0

    once(EXPIRE_AFTER="72h")
    once(EXPIRE_AFTER="24h")
    assert noted() == ["EXPIRE_AFTER was 72h, is 24h"]
    run("stats")
    web = {"BUSINESS_HOURS": "00:00-24:00", "EXPIRE_AFTER": "48h"}
    serve(database_url, workers=3, **web).terminate()
    wait_until(lambda: len(noted()) == 2)
    once(EXPIRE_AFTER="2d")
    assert noted()[1:] == ["EXPIRE_AFTER was 24h, is 48h"]
    assert "setting changed" in run("audit")


def test_a_scheduler_notes_before_it_promotes(settings, carrier, at):
    at(TUESDAY_NOON)
    for each in (settings, settings._replace(check_dnc="always")):
        Scheduler(each, carrier).run_pass()
    (row,) = Audit.select()
    assert (row.at, row.details) == (TUESDAY_NOON, "CHECK_DNC was opted-out, is always")
