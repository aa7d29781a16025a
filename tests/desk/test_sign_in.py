"""Who may come into the desk, by which cookie, where to, and when a session ends."""

import re
from urllib.parse import quote
from uuid import UUID

import pytest

from answers import refusal, sender
from app import create_app
from databases import on_both
from desk_visitor import PAGES, Visitor, ask, copy_of, is_out, issue
from samples import DAY, HOUR, MILLISECOND, TUESDAY_NOON
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn

# Who


@pytest.mark.options
@pytest.mark.parametrize("path", ["/desk", "/desk/", "/desk/messages", "/desk/static/desk.css"])
def test_without_a_secret_key_there_is_no_desk(settings, path):
    response = create_app(settings._replace(secret_key=None)).test_client().get(path)
    assert response.status_code == 404
    assert response.json["statusCode"] == 404


@on_both
@pytest.mark.options
@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR])
def test_an_approver_and_an_operator_sign_in_and_send_nothing(app, role):
    visitor, secret = Visitor(app), issue("Ann", "front", role)
    assert visitor.sign_in(secret).status_code == 303
    assert "Waiting for approval" in visitor.page.text
    assert f"Signed in as Ann, {role}" in visitor.page.text
    refusal(sender(app.test_client(), secret)(), 403)


@pytest.mark.parametrize("role", [Role.SENDER, Role.TESTER])
def test_a_programs_key_is_told_what_it_is_but_a_wrong_one_is_not(app, role):
    secret, words = issue("shop", role=role), f"This is a {role}'s key: it"
    for tried, told in ((secret, True), (secret[:-1], False)):
        visitor = Visitor(app)
        assert visitor.sign_in(tried).status_code == 403
        assert (words in visitor.page.text) is told
    assert SignIn.select().count() == 0


@on_both
def test_every_other_key_is_refused_in_the_same_words(app):
    revoked = issue("revoked")
    ApiKey.named("revoked").revoke(TUESDAY_NOON)
    expired = issue("expired", expires_at=TUESDAY_NOON)
    rotated, paused = issue("rotated"), issue("paused")
    ApiKey.named("rotated").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
    ApiKey.named("paused").pause(TUESDAY_NOON)
    said = set()
    for secret in (revoked, expired, rotated, paused, "", "tms_guess", "\0", "x" * 10_000):
        visitor = Visitor(app)
        assert visitor.sign_in(secret).status_code == 403
        assert visitor.page.buttons("Sign in")
        assert not secret or secret == "\0" or secret not in visitor.response.text
        said.add(visitor.page.text)
    assert len(said) == 1
    assert SignIn.select().count() == 0


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


# The cookie is for https and this host, unless the desk is known to be without https

PUBLIC = "https://texts.example.com"
ELSEWHERE = "http://texts.example.com"


def cookie_of(settings, public_url, host, prefix=""):
    """The name of the cookie, its path, and whether it is for https only."""
    client = create_app(settings._replace(public_url=public_url)).test_client()
    cookie = client.get("/desk/", base_url=host + prefix).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Domain" not in cookie
    name, path = re.match(r"([^=]+)=.*Path=([^;]+)", cookie).groups()
    return name, path, "; Secure" in cookie


@pytest.mark.parametrize("host", [ELSEWHERE, "http://localhost", "http://10.0.0.7:8000"])
@pytest.mark.parametrize(
    ("public_url", "prefix", "cookie"),
    [
        (PUBLIC, "", ("__Host-desk", "/", True)),
        (PUBLIC + "/stage", "/stage", ("__Secure-desk", "/stage/desk/", True)),
        (ELSEWHERE, "", ("desk", "/desk/", False)),
        (ELSEWHERE + "/stage", "/stage", ("desk", "/stage/desk/", False)),
    ],
)
def test_public_url_decides_wherever_it_is_set(desk_settings, host, public_url, prefix, cookie):
    assert cookie_of(desk_settings, public_url, host, prefix) == cookie


LOCAL = (
    *("localhost", "LOCALHOST:8000", "shop.localhost", "127.0.0.1:8000", "[::1]:8000"),
    *("192.168.1.7:8000", "10.1.2.3", "mac.local:8000"),
)
PUBLIC_HOSTS = (
    *("texts.example.com", "texts.example.com:8000", "8.8.8.8", "[2001:4860:4860::8888]:8000"),
    *("localhost.example.com", "mylocalhost", "notlocal", "10.example.com"),
)


@pytest.mark.parametrize("host", [*LOCAL, *PUBLIC_HOSTS])
def test_without_it_https_is_left_out_for_local_addresses_alone(desk_settings, host):
    expected = ("desk", "/desk/", False) if host in LOCAL else ("__Host-desk", "/", True)
    assert cookie_of(desk_settings, None, f"http://{host}") == expected


@pytest.mark.parametrize(
    ("public_url", "prefix"), [(PUBLIC, ""), (PUBLIC + "/stage", "/stage"), (ELSEWHERE, "")]
)
def test_people_sign_in_and_out_with_it(desk_settings, public_url, prefix):
    visitor = Visitor(create_app(desk_settings._replace(public_url=public_url)), prefix)
    assert visitor.sign_in(issue("Ann", "front")).status_code == 303
    assert "Waiting for approval" in visitor.page.text
    visitor.press("Sign out")
    assert is_out(visitor)


@pytest.mark.parametrize("public_url", [PUBLIC, ELSEWHERE])
def test_a_link_from_elsewhere_is_opened_once_more_only_without_the_cookie(
    desk_settings, public_url
):
    """And signs nobody out: the browser brings no cookie, and keeps the one that it has."""
    client = create_app(desk_settings._replace(public_url=public_url)).test_client()
    client.set_cookie("other", "of another application", path="/")
    linked = {"Sec-Fetch-Site": "cross-site"}
    response = client.get("/desk/", headers=linked)
    assert 'http-equiv="refresh"' in response.text
    assert "Set-Cookie" not in response.headers
    client.get("/desk/")  # brings the cookie
    assert 'http-equiv="refresh"' not in client.get("/desk/", headers=linked).text


@pytest.mark.parametrize("host", ["[", "[x", "[::1", "a:b", ":", "", "]"])
def test_a_host_that_is_none_is_no_error_of_ours(desk_settings, host):
    response = create_app(desk_settings).test_client().get("/desk/", headers={"Host": host})
    assert response.status_code < 500


def test_the_cookie_is_set_and_read_by_the_desk_alone(desk_settings, post):
    client = create_app(desk_settings._replace(public_url=PUBLIC)).test_client()
    client.get("/desk/")
    responses = [client.get(path) for path in ("/", "/healthz", "/docs")]
    for response in (*responses, post()):
        assert response.status_code in (200, 201)
        assert "Set-Cookie" not in response.headers
        assert "Cookie" not in response.headers.get("Vary", "")


# Where to


def arrive(visitor, path, key):
    """Open a page as a stranger and sign in; return the address that this leads to."""
    answer = visitor.open(path)
    assert answer.status_code == 302
    visitor.open(answer.location.removeprefix(visitor.prefix))
    answer = visitor.press("Sign in", follow=False, key=key)
    assert answer.status_code == 303
    return answer.location


@pytest.mark.parametrize("prefix", ["", "/stage"])
@pytest.mark.parametrize(
    "path", ["messages", "messages?status=failed&day=2026-03-03", "do-not-call", "messages/{id}"]
)
def test_a_deep_link_survives_the_sign_in(app, prefix, path):
    visitor, path = Visitor(app, prefix), f"/desk/{path.format(id=ask().id)}"
    assert arrive(visitor, path, issue("Olga", role=Role.OPERATOR)) == f"{prefix}{path}"
    assert visitor.open(path).status_code == 200


def test_it_survives_a_wrong_key_and_a_link_from_another_site_too(app):
    visitor, path = Visitor(app), f"/desk/messages/{ask().id}"
    visitor.press("Sign in", key="tms_wrong", on=visitor.open(path).location)
    assert visitor.press("Sign in", follow=False, key=issue("Ann", "front")).location == path
    stranger, wanted = Visitor(app), path.replace("/desk/", "/desk/?next=")
    arrived = stranger.client.get(wanted, headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in arrived.text
    assert visitor.open(wanted).location == path


def test_what_an_ended_session_was_shown_is_shown_again(app, approver):
    message = ask()
    approver.open(f"/desk/messages/{message.id}")
    SignIn.delete().execute()
    response = approver.send(f"/desk/messages/{message.id}", approve=message.id)
    assert response.status_code == 403
    answer = approver.press("Sign in", follow=False, key=issue("Bob", "front"))
    assert answer.location == f"/desk/messages/{message.id}"


NO_PAGES = (
    *("//evil.test", "https://evil.test", "../../evil", "..", "messages/../../x", "\\\\evil.test"),
    *("sign-out", "sign-in", "search", "static/desk.js", "nowhere", "messages/x", "/", "\0"),
    *("messages\r\nSet-Cookie: a=b", "javascript:alert(1)", "é" * 1000, "a?b" * 3000),
)


@pytest.mark.parametrize("next", NO_PAGES)
def test_nothing_else_is_a_place_to_go_after_it(app, next):
    visitor = Visitor(app)
    visitor.open(f"/desk/?next={quote(next)}")
    key = issue("Olga", role=Role.OPERATOR)
    assert visitor.press("Sign in", follow=False, key=key).location == "/desk/"
    assert visitor.open(f"/desk/?next={quote(next)}").status_code == 200


@pytest.mark.parametrize("query", ["a=\r\nSet-Cookie: x=y", "status=%0d%0aX: y", "%ff=%fe", "a=é"])
def test_the_query_of_a_place_is_written_anew(app, query):
    visitor = Visitor(app)
    visitor.open(f"/desk/?next={quote(f'messages?{query}')}")
    answer = visitor.press("Sign in", follow=False, key=issue("Olga", role=Role.OPERATOR))
    assert re.fullmatch(r"/desk/messages\?[\x21-\x7e]+", answer.location)
    raw = {"QUERY_STRING": "\xff=\xfe"}  # bytes, as WSGI has them
    assert Visitor(app).client.get("/desk/messages", environ_overrides=raw).status_code == 302


# Until when


def test_signing_out_ends_every_copy_of_the_cookie(app, approver):
    thief = copy_of(approver, app)
    assert not is_out(thief)
    approver.press("Sign out")
    assert is_out(approver)
    assert is_out(copy_of(thief, app))


def test_a_session_is_closed_while_its_key_is_paused(app, approver):
    key = SignIn.get().key
    key.pause(TUESDAY_NOON)
    assert is_out(approver)
    key.resume(TUESDAY_NOON)
    assert not is_out(approver)


def test_signing_out_while_the_key_is_paused_ends_the_session_too(app, approver):
    key = SignIn.get().key
    thief, other_tab = copy_of(approver, app), [("csrf_token", approver.token)]
    key.pause(TUESDAY_NOON)
    assert approver.press("Sign out", follow=False).status_code == 303
    assert approver.post("/desk/sign-out", other_tab).status_code == 403
    key.resume(TUESDAY_NOON)
    assert is_out(approver)
    assert is_out(thief)


def test_a_session_lasts_twelve_hours_to_the_millisecond_and_is_cleared_away(app, approver, at):
    at(TUESDAY_NOON + 12 * HOUR - MILLISECOND)
    assert not is_out(approver)
    at(TUESDAY_NOON + 12 * HOUR)
    assert is_out(approver)
    at(TUESDAY_NOON + DAY)
    Visitor(app).sign_in(issue("Bob", "front"))
    assert SignIn.select().count() == 1


def test_a_session_signed_by_another_secret_is_none(app, approver, desk_settings):
    other = create_app(desk_settings._replace(secret_key="x" * 32))
    assert is_out(copy_of(approver, other))
