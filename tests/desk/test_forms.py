"""A form counts only with its session's token, from the desk's own pages, once it has arrived."""

import io
from datetime import timedelta
from functools import partial
from urllib.parse import urlencode

import pytest
from flask import request
from werkzeug.test import encode_multipart

from app import create_app
from desk_visitor import Visitor, ask, guarded, is_out, issue
from samples import DAY, HOUR, NEW_YORK, TUESDAY_NOON
from stored_messages import again
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn
from texting.desk import sessions
from texting.messages.model import Status

# From here


@pytest.mark.options
@pytest.mark.parametrize("forged", ["", "forged", "of another session", "of before the sign-in"])
def test_a_form_without_its_sessions_token_changes_nothing(app, forged):
    message, secret = ask(), issue("Ann", "front")
    visitor, stranger = Visitor(app), Visitor(app)
    visitor.open()
    stranger.open()
    tokens = {"of another session": stranger.token, "of before the sign-in": visitor.token}
    visitor.sign_in(secret)
    sent = [("approve", str(message.id)), ("key", secret)]
    sent.append(("csrf_token", tokens.get(forged, forged)))
    own = f"/desk/messages/{message.id}"
    for path in ("/desk/", "/desk/messages", own, "/desk/sign-out", "/desk/sign-in"):
        response = visitor.post(path, sent)
        assert (response.status_code, response.mimetype) == (400, "text/html")
    assert SignIn.select().count() == 1
    assert not is_out(visitor)
    assert not again(message).approved


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


@pytest.mark.parametrize("headers", [*ELSEWHERE, *FROM_HERE], ids=str)
def test_a_form_of_another_site_is_refused_even_with_a_token(desk_settings, headers):
    app = create_app(desk_settings._replace(public_url="https://x.test/staging"))
    visitor, message = Visitor(app), ask()
    status = 403 if headers in ELSEWHERE else 303
    visitor.open()
    form = {"key": issue("Olga", role=Role.OPERATOR), "csrf_token": visitor.token}
    signed_in = visitor.client.post("/desk/sign-in", data=form, headers=headers)
    assert signed_in.status_code == status
    assert SignIn.select().exists() == (headers in FROM_HERE)
    if headers in ELSEWHERE:
        visitor.sign_in(form["key"])
    visitor.open()
    form = {"approve": str(message.id), "csrf_token": visitor.token}
    response = visitor.client.post("/desk/", data=form, headers=headers)
    assert response.status_code == status
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


# Of any content


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [("approve", "")],
        [("approve", "x")],
        [("approve", "selected"), ("id", "\0")],
        [("approve", "selected"), *(("id", f"{n:032x}") for n in range(51))],
        [("delete", "selected")],
        [("approve", "x" * 100_000)],
    ],
)
def test_no_form_is_an_error_of_ours(operator, sent):
    message = ask()
    response = operator.post("/desk/", [("csrf_token", operator.token), *sent])
    assert response.status_code in (400, 413)
    assert response.mimetype == "text/html"
    assert not again(message).approved


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


# What changes while it arrives holds for it


class SlowForm:
    """A form that arrives when something has happened."""

    def __init__(self, body, meanwhile):
        self.body, self.meanwhile = io.BytesIO(body), meanwhile

    def read(self, *size):
        self.meanwhile()
        return self.body.read(*size)


def post_slowly(visitor, path, meanwhile, as_multipart=False, **fields):
    """Post a form of a page; something happens before it has arrived."""
    fields = {"csrf_token": visitor.token} | fields
    body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    if as_multipart:
        boundary, body = encode_multipart(fields)
        kind = f"multipart/form-data; boundary={boundary}"
    environ = {"wsgi.input": SlowForm(body, meanwhile), "CONTENT_LENGTH": str(len(body))}
    return visitor.client.post(path, content_type=kind, environ_overrides=environ)


ENDS = {
    "revoke": lambda at: ApiKey.named("Ann").revoke(TUESDAY_NOON),
    "rotate": lambda at: ApiKey.named("Ann").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON),
    "sign-out elsewhere": lambda at: SignIn.delete().execute(),
    "twelve hours": lambda at: at(TUESDAY_NOON + 12 * HOUR),
}


@pytest.mark.parametrize("as_multipart", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_session_that_ends_while_a_form_arrives_changes_nothing(approver, at, end, as_multipart):
    message = ask()
    approver.open()
    ended = partial(ENDS[end], at)
    response = post_slowly(approver, "/desk/", ended, as_multipart, approve=str(message.id))
    assert response.status_code == 403
    assert "nothing was changed" in response.text
    assert is_out(approver)
    assert not again(message).approved


@pytest.mark.parametrize("end", ENDS)
def test_a_session_that_ends_while_a_sign_out_arrives_is_signed_out(approver, at, end):
    approver.open()
    assert post_slowly(approver, "/desk/sign-out", partial(ENDS[end], at)).status_code == 303
    assert is_out(approver)


def test_an_undo_is_too_late_if_its_form_arrives_too_late(approver, at):
    message = ask()
    approver.press("Refuse", message, on="/desk/")
    for seconds, undone in ((60, False), (59, True)):
        late = TUESDAY_NOON + timedelta(seconds=seconds)
        post_slowly(approver, "/desk/", partial(at, late), **{"undo-refuse": message.id.hex})
        assert (again(message).status != Status.CANCELLED) is undone
