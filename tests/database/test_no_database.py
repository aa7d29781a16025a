"""No command but `db upgrade` makes a database, and the error says who may not open one."""

import os
import pwd
from pathlib import Path

import pytest

from app import create_app
from texting import database
from texting.database import db, sqlite


@pytest.fixture
def missing(settings, tmp_path):
    """The file of a database that nobody has made, and an application that would use it."""
    file = tmp_path / "none.db"
    app = create_app(settings._replace(database_url=f"sqlite:///{file}"))
    yield file, app
    database.disconnect()


@pytest.mark.parametrize(
    "words",
    [
        *("keys list", "keys create app", "stats", "dnc check +12125550123", "messages list"),
        *("audit", "usage", "replies list", "events list", "backup copy.db"),
    ],
)
def test_no_command_makes_a_database(missing, words):
    file, app = missing
    result = app.test_cli_runner().invoke(args=words.split())
    told = f"there is no database at {file}; flask db upgrade makes it"
    assert result.exit_code == 2
    assert result.output == f"Error: the database failed: {told}\n"
    assert [*file.parent.glob("none.db*")] == []
    assert not Path("copy.db").exists()


def test_check_says_what_to_run_and_makes_none(missing):
    file, app = missing
    result = app.test_cli_runner().invoke(args=["check"])
    told = f"there is no database at {file}; flask db upgrade makes it"
    assert f"PROBLEM: database: cannot be reached: {told}\n" in result.output
    assert not file.exists()


def test_of_a_file_without_tables_no_copy_is_made(missing, tmp_path):
    file, app = missing
    file.touch()
    result = app.test_cli_runner().invoke(args=["backup", f"{tmp_path}/copy.db"])
    assert result.output == "Error: no file was written: no such table: message\n"
    assert result.exit_code == 1
    assert [*tmp_path.glob("*copy*"), *tmp_path.glob(".*")] == []


def test_a_request_makes_none_and_works_once_there_is_one(missing, caplog):
    file, app = missing
    client = app.test_client()
    assert client.get("/healthz").status_code == 503
    assert "there is no database at" in caplog.text
    assert not file.exists()
    assert app.test_cli_runner().invoke(args=["db", "upgrade"]).exit_code == 0
    assert client.get("/healthz").status_code == 200
    assert file.stat().st_mode & 0o777 == 0o600


def test_that_there_is_none_is_an_outage(missing):
    with pytest.raises(database.ERRORS) as none:
        db.execute_sql("SELECT 1")
    assert database.is_outage(none.value)


def test_a_database_that_is_removed_is_not_made_anew(database_url, client):
    assert client.get("/healthz").status_code == 200
    database.disconnect()
    Path(db.database).unlink()
    assert client.get("/healthz").status_code == 503
    assert not Path(db.database).exists()


def name_of(number):
    return pwd.getpwuid(number).pw_name


def test_the_error_names_who_may_not_open_it_and_who_owns_it(missing):
    file, app = missing
    file.mkdir()
    result = app.test_cli_runner().invoke(args=["keys", "list"])
    owner, folders = name_of(file.stat().st_uid), name_of(file.parent.stat().st_uid)
    assert result.output == (
        f"Error: the database failed: unable to open database file: {file}; this process runs as "
        f"{name_of(os.geteuid())}, {file} belongs to {owner}, {file.parent} belongs to {folders}\n"
    )


def test_a_user_without_a_name_is_named_by_number(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert sqlite.owners(tmp_path).startswith("this process runs as user 54321, ")


def test_a_database_that_cannot_be_made_gets_one_line(missing, settings):
    file, _ = missing
    app = create_app(settings._replace(database_url=f"sqlite:///{file}/none.db"))
    file.write_text("a file, and no folder")
    result = app.test_cli_runner().invoke(args=["db", "upgrade"])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {file}/none.db cannot be made: not a directory; ")
    assert f"this process runs as {name_of(os.geteuid())}, {file} belongs to " in result.output
