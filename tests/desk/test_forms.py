"""A form counts only with its session's token and from the desk's own pages."""

import pytest
from flask import request

from access.do_not_call import DoNotCall
from access.keys import Role
from access.sign_ins import SignIn
from app import create_app
from databases import on_sqlite
from desk import sessions
from desk_visitor import Visitor, ask, guarded, is_out, issue
from samples import NEW_YORK
from stored_messages import again

pytestmark = pytest.mark.options


@pytest.mark.parametrize("forged", ["", "forged", "of another session", "of before the sign-in"])
def test_a_form_without_its_sessions_token_changes_nothing(app, forged):
    message, secret = ask(), issue("Ann", "front")
    visitor, stranger = Visitor(app), Visitor(app)
    visitor.open()
    stranger.open()
    tokens = {"of another session": stranger.token, "of before the sign-in": visitor.token}
    visitor.sign_in(secret)
    sent = [("approve", str(message.id)), ("csrf_token", tokens.get(forged, forged))]
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        response = visitor.post(path, sent)
        assert (response.status_code, response.mimetype) == (400, "text/html")
    assert visitor.post("/desk/sign-out", sent).status_code == 400
    assert not is_out(visitor)
    assert not again(message).approved


def test_the_sign_in_carries_a_token_too(app):
    visitor = Visitor(app)
    visitor.open()
    response = visitor.post("/desk/sign-in", [("key", issue("Ann"))])
    assert (response.status_code, response.mimetype) == (400, "text/html")
    assert SignIn.select().count() == 0


def test_only_a_post_with_a_token_changes_the_list(operator):
    sent = {"number": NEW_YORK, "add": ""}
    for method in ("HEAD", "GET", "OPTIONS", "PUT", "POST"):
        operator.client.open("/desk/do-not-call", method=method, data=sent)
        assert not DoNotCall.lists(NEW_YORK)


ELSEWHERE = [
    {"Origin": "https://evil.test"},
    {"Origin": "http://localhost.evil.test"},
    {"Origin": "http://localhost:8001"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
]
FROM_HERE = [
    {"Origin": "http://localhost"},
    {"Origin": "https://localhost:443"},
    {"Origin": "https://x.test"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://of-a-proxy.test"},
]


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("headers", [*ELSEWHERE, *FROM_HERE], ids=str)
def test_a_form_of_another_site_is_refused_even_with_a_token(desk_settings, headers):
    app = create_app(desk_settings._replace(public_url="https://x.test/staging"))
    visitor, message = Visitor(app), ask()
    visitor.open()
    form = {"key": issue("Olga", role=Role.OPERATOR), "csrf_token": visitor.token}
    signed_in = visitor.client.post("/desk/sign-in", data=form, headers=headers)
    assert signed_in.status_code == (403 if headers in ELSEWHERE else 303)
    assert SignIn.select().exists() == (headers in FROM_HERE)
    if headers in ELSEWHERE:
        visitor.sign_in(form["key"])
    visitor.open()
    form = {"approve": str(message.id), "csrf_token": visitor.token}
    response = visitor.client.post("/desk/", data=form, headers=headers)
    assert response.status_code == (403 if headers in ELSEWHERE else 303)
    assert guarded(response) or response.status_code == 303
    assert again(message).approved == (headers in FROM_HERE)


@pytest.mark.parametrize("prefix", ["", "/staging"])
@pytest.mark.parametrize(
    "path", ["//desk/", "//desk", "///desk/messages", "//desk/static/desk.css"]
)
def test_two_slashes_lead_to_no_desk(client, prefix, path):
    response = client.get("/", environ_overrides={"PATH_INFO": path, "SCRIPT_NAME": prefix})
    assert (response.status_code, response.mimetype) == (404, "application/json")
    assert "Set-Cookie" not in response.headers


@on_sqlite
@pytest.mark.parametrize("form", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_very_many_fields_is_refused_before_it_is_parsed(operator, monkeypatch, form):
    parsed = []
    monkeypatch.setattr(sessions, "check_token", lambda: parsed.append(len(request.form)))
    body = "&".join(["a"] * 30_000)
    if form.startswith("multipart"):
        field = '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
        body, form = field * 1_000 + "--x--\r\n", f"{form}; boundary=x"
    response = operator.client.post("/desk/", data=body, content_type=form)
    assert response.status_code == 413
    assert parsed == []
