"""`flask backup`: a copy of SQLite while the service runs, and for Postgres the line to run."""

import contextlib
import os
import shlex
import sqlite3
from pathlib import Path

import pytest

from databases import on_postgres
from samples import HOUR, TUESDAY_NOON
from stored_messages import again, connection_of, key_named, store, store_many
from texting.database import db, disconnect
from texting.messages.model import Status


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copies" / "copy.db"


@pytest.fixture(autouse=True)
def folder(copy):
    copy.parent.mkdir()
    return copy.parent


def texts_in(file):
    with contextlib.closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return sorted(text for (text,) in connection.execute("SELECT message FROM message"))


def test_the_copy_has_everything_and_one_line_says_so(flask, database_url, copy):
    for text in ("one", "two"):
        store(message=text)
    result = flask("backup", str(copy))
    size = copy.stat().st_size / 1e6
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"wrote {copy}: {size:.1f} MB, 2 messages\n"
    assert texts_in(copy) == ["one", "two"]
    assert [*copy.parent.iterdir()] == [copy], "no log, and no part of it"


def test_nobody_else_may_ever_read_the_copy(run, database_url, copy, monkeypatch):
    seen = []

    def look(*_):
        seen.extend(path.stat().st_mode & 0o777 for path in copy.parent.iterdir())

    monkeypatch.setattr("texting.database.sqlite.COPIED", 20)
    original = type(db.obj).copy
    monkeypatch.setattr(
        type(db.obj),
        "copy",
        lambda self, path, progress: look() or original(self, path, lambda *told: look()),
    )
    before = os.umask(0o000)
    try:
        run("backup", str(copy))
    finally:
        os.umask(before)
    look()
    assert len(seen) > 5
    assert {*seen} == {0o600}


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_there_is_not_overwritten(refused, database_url, copy, is_link):
    if is_link:
        copy.symlink_to("nowhere")
    else:
        copy.write_text("mine")
    line = f"Error: {copy} exists already; name a new file, or replace it with --force"
    assert refused("backup", str(copy)) == line
    assert [*copy.parent.iterdir()] == [copy]
    assert is_link or copy.read_text() == "mine"


@pytest.mark.parametrize("there", [None, "file", "link", "another's"])
def test_a_nightly_job_replaces_the_copy_of_the_night_before(run, database_url, copy, there):
    """By a new file, which nobody else may read, nor anybody who has opened the old one."""
    other = copy.parent.parent / "other"
    other.write_text("mine")
    match there:
        case "file":
            copy.write_text("yesterday's")
            copy.chmod(0o644)
        case "link":
            copy.symlink_to(other)
        case "another's":
            copy.hardlink_to(other)
    store(message="today's")
    assert run("backup", "--force", str(copy)).startswith(f"wrote {copy}: ")
    assert texts_in(copy) == ["today's"]
    assert copy.lstat().st_mode == 0o100600
    assert other.read_text() == "mine"
    assert [*copy.parent.iterdir()] == [copy]


@pytest.mark.parametrize("command", ["backup --force", "dnc export"])
@pytest.mark.parametrize("is_link", [False, True])
def test_the_database_itself_is_never_replaced(
    refused, database_url, tmp_path, copy, command, is_link
):
    """A running service would write what it accepts to a file that nobody finds again."""
    file = tmp_path / "messages.db"
    if is_link:
        copy.symlink_to(file)
    path, before = copy if is_link else file, file.stat().st_ino
    line = f"Error: {path} is the database itself; name another file"
    assert refused(*command.split(), str(path)) == line
    assert file.stat().st_ino == before
    assert path.is_symlink() == is_link


def test_a_copy_that_fails_leaves_that_of_the_night_before(
    refused, database_url, copy, monkeypatch
):
    copy.write_text("yesterday's")

    def fail(self, path, progress):
        Path(path).write_text("half")
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(type(db.obj), "copy", fail)
    line = "Error: no file was written: disk full"
    assert refused("backup", "--force", str(copy)) == line
    assert copy.read_text() == "yesterday's"
    assert [*copy.parent.iterdir()] == [copy]


def test_after_a_restore_nobody_gets_a_text_twice(run, run_pass, carrier, database_url, copy):
    """By the steps of the page: pause all, look at what is due, cancel what went, resume."""
    went = [store(message="due"), store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)]
    awaits = store(manual_mode=True)
    later = store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 3 * HOUR)
    run("backup", str(copy))
    assert run_pass(TUESDAY_NOON + HOUR)["sent"] == 2
    disconnect()
    for each in copy.parent.parent.glob("messages.db*"):
        each.unlink()
    copy.rename(copy.parent.parent / "messages.db")
    run("keys", "pause", "--all")
    assert run_pass(TUESDAY_NOON + 2 * HOUR)["sent"] == 0
    due = run("messages", "list", "--status", "queued", "--ids").split()
    assert {*due} == {str(each.id) for each in (*went, awaits)}
    run("messages", "cancel", "--status", "queued", "--yes")
    run("keys", "resume", "--all")
    assert run_pass(TUESDAY_NOON + 2 * HOUR)["sent"] == 0
    assert len(carrier.texts) == 2
    assert run_pass(TUESDAY_NOON + 3 * HOUR)["sent"] == 1
    assert again(later).status == Status.SENT


@pytest.mark.parametrize("path", [".", "/dev/null"])
def test_what_is_no_file_is_not_replaced(refused, database_url, path):
    line = f"Error: Could not open file '{path}': not a file"
    assert refused("backup", "--force", path) == line


def test_what_comes_while_it_is_copied_waits_for_nothing_and_is_not_in_it(
    database_url, copy, monkeypatch
):
    """A copy that began anew with each write would never end."""
    monkeypatch.setattr("texting.database.sqlite.COPIED", 10)
    store_many(50, key=key_named("app"))
    left = []
    with contextlib.closing(connection_of(database_url)) as another:

        def write(pages_left, pages):
            left.append(pages_left)
            another.execute("PRAGMA busy_timeout = 0")
            another.execute("UPDATE message SET message = 'later'")

        copy.touch()
        assert db.copy(str(copy), write) == 50
    assert left == sorted({*left}, reverse=True)
    assert len(left) > 5
    assert "later" not in texts_in(copy)
    db.close()


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk full"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_copy_that_failed(flask, database_url, copy, monkeypatch, error):
    def fail(self, path, progress):
        Path(path).write_text("half")
        raise error

    monkeypatch.setattr(type(db.obj), "copy", fail)
    result = flask("backup", str(copy))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert [*copy.parent.iterdir()] == []
    if isinstance(error, sqlite3.Error):
        assert result.stderr == "Error: no file was written: disk full\n"


def test_a_folder_that_is_not_there_gets_one_line(refused, database_url, copy):
    path = copy.parent / "no" / "copy.db"
    line = f"Error: Could not open file '{path}': No such file or directory"
    assert refused("backup", str(path)) == line


@on_postgres
@pytest.mark.parametrize(
    "url",
    [
        "postgres://ann:s3cret@db.example.com:5432/texts?sslmode=require",
        "postgresql://ann:s3cret@db.example.com:5432/texts?password=s3cret&sslmode=require",
    ],
)
def test_for_postgres_the_line_to_run_is_printed_without_the_password(
    flask, database_url, copy, url, monkeypatch
):
    monkeypatch.setattr(db.obj, "url", url)
    result = flask("backup", str(copy))
    address = f"{url.partition(':')[0]}://ann@db.example.com:5432/texts?sslmode=require"
    assert shlex.split(result.stdout) == [
        *("umask", "077;", "pg_dump", "--format=custom", f"--file={copy}", address)
    ]
    assert "s3cret" not in result.output
    assert result.exit_code == 1, "nothing was written"
    assert result.stderr.count("\n") == 1
    assert not copy.exists()
