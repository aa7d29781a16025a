"""Who may come into the desk, and when a session ends."""

from datetime import timedelta
from uuid import UUID

import pytest

import database
from access.keys import ApiKey, Role
from access.sign_ins import SignIn
from app import create_app
from databases import on_sqlite
from desk_visitor import PAGES, Visitor, ask, copy_of, is_out, issue
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import DAY, again

pytestmark = pytest.mark.options


@on_sqlite
@pytest.mark.parametrize("path", ["/desk", "/desk/", "/desk/messages", "/desk/static/desk.css"])
def test_without_a_secret_key_there_is_no_desk(settings, path):
    response = create_app(settings._replace(secret_key=None)).test_client().get(path)
    assert response.status_code == 404
    assert response.json["statusCode"] == 404


@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR])
def test_an_approver_and_an_operator_sign_in(app, role):
    visitor = Visitor(app)
    assert visitor.sign_in(issue("Ann", "front", role)).status_code == 303
    assert "Waiting for approval" in visitor.page.text
    assert visitor.response.status_code == 200
    assert f"Signed in as Ann, {role}" in visitor.page.text


@pytest.mark.parametrize("role", [Role.SENDER, Role.TESTER])
def test_a_programs_key_is_told_what_it_is_but_a_wrong_one_is_not(app, role):
    secret, words = issue("shop", role=role), f"This is a {role}'s key: it can send texts"
    for tried, told in ((secret, True), (secret[:-1], False)):
        visitor = Visitor(app)
        assert visitor.sign_in(tried).status_code == 403
        assert (words in visitor.page.text) is told
    assert SignIn.select().count() == 0


def test_every_other_key_is_refused_in_the_same_words(app):
    revoked = issue("revoked")
    ApiKey.named("revoked").revoke(TUESDAY_NOON)
    expired = issue("expired", expires_at=TUESDAY_NOON)
    rotated = issue("rotated")
    ApiKey.named("rotated").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
    said = set()
    for secret in (revoked, expired, rotated, "", "tms_guess", "\0", "x" * 10_000):
        visitor = Visitor(app)
        assert visitor.sign_in(secret).status_code == 403
        assert visitor.page.buttons("Sign in")
        said.add(visitor.page.text)
    assert len(said) == 1
    assert SignIn.select().count() == 0


def test_the_key_is_never_shown_again(app):
    secret = issue("Ann")
    for tried in (secret, secret + "x"):
        visitor = Visitor(app)
        visitor.sign_in(tried)
        assert tried not in visitor.response.text


@on_sqlite
@pytest.mark.parametrize("public_url", [None, "http://x.test", "https://x.test/staging"])
def test_the_cookie_is_for_the_desk_alone(desk_settings, public_url):
    visitor = Visitor(create_app(desk_settings._replace(public_url=public_url)), "/staging")
    cookie = visitor.open().headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/staging/desk/" in cookie
    assert ("Secure" in cookie) is (public_url or "").startswith("https")
    visitor.sign_in(issue("Ann", "front"))
    assert "Waiting for approval" in visitor.page.text


def test_the_public_operation_sets_and_reads_no_cookie(post, client):
    client.set_cookie("desk", "forged", path="/")
    response = post()
    assert response.status_code == 201
    assert "Set-Cookie" not in response.headers
    assert "Vary" not in response.headers


@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR])
def test_a_key_of_people_sends_nothing(client, role):
    headers = {"X-Api-Key": issue("Ann", role=role)}
    body = {"to": NEW_YORK, "message": "Hello"}
    assert client.post("/v1/text-messages", json=body, headers=headers).status_code == 403


@pytest.mark.parametrize("path", [*PAGES, f"/desk/messages/{UUID(int=7)}"])
def test_without_a_session_every_page_leads_to_the_sign_in(app, path):
    visitor = Visitor(app)
    response = visitor.open(path)
    if path != "/desk/":
        assert response.status_code == 302
        assert response.location.startswith("/desk/?next=")
        visitor.open(response.location)
    assert [each["words"] for each in visitor.page.forms[0]["buttons"]] == ["Sign in"]


def test_the_desk_is_found_without_its_last_slash(client):
    response = client.get("/desk")
    assert (response.status_code, response.location) == (302, "/desk/")


def test_a_link_from_elsewhere_does_not_sign_anybody_out(app):
    client = app.test_client()
    client.set_cookie("other", "of another application", path="/")
    response = client.get("/desk/", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in response.text
    assert "Set-Cookie" not in response.headers


def test_signing_out_ends_every_copy_of_the_cookie(app, approver):
    thief = copy_of(approver, app)
    assert not is_out(thief)
    approver.press("Sign out")
    assert is_out(approver)
    assert is_out(copy_of(thief, app))


@pytest.mark.parametrize("end", ["revoke", "rotate", "twelve hours"])
def test_a_session_ends_with_its_key_and_after_twelve_hours(app, approver, at, end):
    message = ask()
    approver.open()
    if end == "revoke":
        ApiKey.named("Ann").revoke(TUESDAY_NOON)
    elif end == "rotate":
        ApiKey.named("Ann").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
    else:
        at(TUESDAY_NOON + timedelta(hours=12) - database.MILLISECOND)
        assert not is_out(approver)
        at(TUESDAY_NOON + timedelta(hours=12))
    response = approver.post("/desk/", [("approve", str(message.id))])
    assert response.status_code == 403
    assert "nothing was changed" in approver.page.text
    assert is_out(approver)
    assert not again(message).approved


def test_a_session_signed_by_another_secret_is_none(app, approver, desk_settings):
    other = create_app(desk_settings._replace(secret_key="x" * 32))
    assert is_out(copy_of(approver, other))


def test_ended_sessions_are_cleared_away(app, approver, at):
    at(TUESDAY_NOON + DAY)
    Visitor(app).sign_in(issue("Bob", "front"))
    assert SignIn.select().count() == 1
