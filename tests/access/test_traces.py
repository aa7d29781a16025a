"""What is tried at the door of the desk, and what is read out of the service, leaves a trace."""

import logging

import pytest

from app import create_app
from databases import on_both, on_sqlite
from desk_visitor import Visitor, ask, copy_of, is_out
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from texting.access.audit import Audit
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn

pytestmark = on_both

SECRET = "a secret of tests, of 32 characters"


@pytest.fixture
def app(settings):
    return create_app(settings._replace(secret_key=SECRET))


@pytest.fixture
def olga(app):
    """The secret of an operator's key."""
    return ApiKey.issue("Olga", None, TUESDAY_NOON, role=Role.OPERATOR)


def audited():
    return [(row.who, row.what) for row in Audit.select().order_by(Audit.id)]


@pytest.mark.parametrize("wrong", ["", "tms_wrong", "of a sender"])
@on_sqlite
def test_a_wrong_key_is_a_line_of_the_log_at_the_desk_as_at_the_api(app, key, caplog, wrong):
    caplog.set_level(logging.INFO, "web")
    secret = key if wrong == "of a sender" else wrong
    visitor = Visitor(app)
    assert visitor.sign_in(secret).status_code == 403
    (line,) = caplog.messages
    assert line == "answered 403 to key - at the sign-in of the desk"
    assert not (secret and secret in caplog.text)
    caplog.clear()
    app.test_client().post("/v1/text-messages", json={}, headers={"X-Api-Key": "tms_wrong"})
    assert caplog.messages == ["answered 401 to key -"]


@on_sqlite
def test_a_form_without_a_session_is_such_a_line(app, olga, caplog):
    caplog.set_level(logging.INFO, "web")
    visitor = Visitor(app)
    visitor.post("/desk/", [("approve", str(ask().id))])
    assert caplog.messages == ["answered 403 to key - at the sign-in of the desk"]


def test_signing_out_is_audited_once(app, olga):
    visitor = Visitor(app)
    visitor.sign_in(olga)
    visitor.open()
    thief = copy_of(visitor, app)
    thief.open()
    visitor.press("Sign out")
    thief.press("Sign out")
    assert audited()[1:] == [("Olga", "signed in"), ("Olga", "signed out")]


def test_a_second_sign_in_of_a_browser_ends_the_first(app, olga):
    ann = ApiKey.issue("Ann", "front", TUESDAY_NOON, role=Role.APPROVER)
    visitor, elsewhere = Visitor(app), Visitor(app)
    elsewhere.sign_in(olga)
    visitor.sign_in(olga)
    thief = copy_of(visitor, app)
    sign_in_page = {"key": ann, "csrf_token": visitor.token}
    assert visitor.post("/desk/sign-in", [*sign_in_page.items()], follow=False).status_code == 303
    assert is_out(thief)
    assert not is_out(visitor)
    assert not is_out(elsewhere), "another browser stays"
    assert SignIn.select().count() == 2
    assert audited()[-2:] == [("Olga", "signed out"), ("Ann", "signed in")]


def test_a_second_sign_in_that_fails_leaves_the_first(app, olga):
    visitor = Visitor(app)
    visitor.sign_in(olga)
    visitor.post("/desk/sign-in", [("key", "wrong"), ("csrf_token", visitor.token)])
    assert not is_out(visitor)


@on_sqlite
def test_a_session_that_ended_by_itself_did_not_sign_out(app, olga, at):
    ann = ApiKey.issue("Ann", "front", TUESDAY_NOON, role=Role.APPROVER)
    visitor = Visitor(app)
    visitor.sign_in(ann)
    visitor.open()
    ApiKey.named("Ann").revoke(TUESDAY_NOON + HOUR)
    at(TUESDAY_NOON + HOUR)
    visitor.post("/desk/sign-in", [("key", olga), ("csrf_token", visitor.token)])
    assert "signed out" not in [what for _, what in audited()]
    assert audited()[-1] == ("Olga", "signed in")


@on_sqlite
def test_a_shown_signing_secret_is_audited(run, key, monkeypatch):
    monkeypatch.setenv("FLASK_ACTOR", "anna")
    run("keys", "events", "app", "http://127.0.0.1:9/")
    run("keys", "events", "app")
    assert audited()[-1][1] == "events address set"
    secret = run("keys", "events", "app", "--secret").strip()
    (row,) = Audit.select().where(Audit.what == "events secret shown")
    assert (row.who, row.key_name) == ("anna", "app")
    assert secret not in run("audit")


@on_sqlite
def test_an_export_of_numbers_is_audited_with_their_count(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FLASK_ACTOR", "anna")
    run("dnc", "add", NEW_YORK, LONDON)
    run("dnc", "export")
    run("dnc", "export", str(tmp_path / "numbers.csv"))
    found = Audit.select().where(Audit.what == "numbers exported")
    assert [(row.who, row.count, row.number) for row in found] == [("anna", 2, None)] * 2
