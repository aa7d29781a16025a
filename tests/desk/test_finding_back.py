"""Where one wanted to go, where one is, and the way back."""

import re
from urllib.parse import quote

import pytest

from access.keys import Role
from app import create_app
from databases import on_sqlite
from desk_visitor import PAGES, Visitor, ask, ask_many, copy_of, guarded, issue, next_page
from models import Status
from samples import TUESDAY_NOON
from stored_messages import store

NAME = "Text messages"


def arrive(visitor, path, key):
    """Open a page as a stranger and sign in; return the address that this leads to."""
    answer = visitor.open(path)
    assert answer.status_code == 302
    visitor.open(answer.location.removeprefix(visitor.prefix))
    answer = visitor.press("Sign in", follow=False, key=key)
    assert answer.status_code == 303
    return answer.location


@on_sqlite
@pytest.mark.parametrize("prefix", ["", "/stage"])
@pytest.mark.parametrize(
    "path", ["messages", "messages?status=failed&day=2026-03-03", "do-not-call"]
)
def test_a_deep_link_survives_the_sign_in(app, prefix, path):
    visitor = Visitor(app, prefix)
    key = issue("Olga", role=Role.OPERATOR)
    assert arrive(visitor, f"/desk/{path}", key) == f"{prefix}/desk/{path}"
    message = ask()
    visitor = Visitor(app, prefix)
    path = f"/desk/messages/{message.id}"
    assert arrive(visitor, path, key) == f"{prefix}{path}"
    visitor.open(path)
    assert "This text waits for approval" in visitor.page.text


@on_sqlite
def test_it_survives_a_wrong_key_and_a_link_from_another_site_too(app):
    message, visitor = ask(), Visitor(app)
    path = f"/desk/messages/{message.id}"
    visitor.open(visitor.open(path).location)
    visitor.press("Sign in", key="tms_wrong")
    assert visitor.press("Sign in", follow=False, key=issue("Ann", "front")).location == path
    # SameSite=Strict: the browser brings no cookie, until a page of ours reloads
    stranger, wanted = Visitor(app), f"/desk/?next=messages/{message.id}"
    arrived = stranger.client.get(wanted, headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in arrived.text
    assert visitor.open(wanted).location == path


@on_sqlite
def test_what_an_ended_session_was_shown_is_shown_again(app, approver):
    message = ask()
    approver.open(f"/desk/messages/{message.id}")
    form = [("csrf_token", approver.token), ("approve", str(message.id))]
    thief = copy_of(approver, app)
    thief.open()
    thief.press("Sign out")
    assert approver.post(f"/desk/messages/{message.id}", form).status_code == 403
    answer = approver.press("Sign in", follow=False, key=issue("Bob", "front"))
    assert answer.location == f"/desk/messages/{message.id}"


ELSEWHERE = (
    *("//evil.test", "https://evil.test", "../../evil", "..", "messages/../../x", "\\\\evil.test"),
    *("sign-out", "sign-in", "search", "static/desk.js", "nowhere", "messages/x", "/", "\0"),
    *("messages\r\nSet-Cookie: a=b", "javascript:alert(1)", "é" * 1000, "a?b" * 3000),
)


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("next", ELSEWHERE)
def test_nothing_else_is_a_place_to_go_after_it(app, next):
    visitor = Visitor(app)
    visitor.open(f"/desk/?next={quote(next)}")
    key = issue("Olga", role=Role.OPERATOR)
    assert visitor.press("Sign in", follow=False, key=key).location == "/desk/"
    assert visitor.open(f"/desk/?next={quote(next)}").status_code == 200


@on_sqlite
@pytest.mark.parametrize("query", ["a=\r\nSet-Cookie: x=y", "status=%0d%0aX: y", "%ff=%fe", "a=é"])
def test_the_query_of_a_place_is_written_anew(app, query):
    visitor = Visitor(app)
    visitor.open(f"/desk/?next={quote(f'messages?{query}')}")
    answer = visitor.press("Sign in", follow=False, key=issue("Olga", role=Role.OPERATOR))
    assert re.fullmatch(r"/desk/messages\?[\x21-\x7e]+", answer.location)
    stranger = Visitor(app)
    raw = {"QUERY_STRING": "\xff=\xfe"}  # bytes, as WSGI has them
    assert stranger.client.get("/desk/messages", environ_overrides=raw).status_code == 302


@on_sqlite
def test_every_page_has_the_name_of_the_service_and_a_way_back(app, operator):
    message = ask()
    paths = (*PAGES, f"/desk/messages/{message.id}", "/desk/nowhere", "/desk/messages?status=x")
    for visitor in (operator, Visitor(app)):
        for path in paths:
            visitor.open(path)
            assert visitor.response.status_code == 302 or visitor.page.text.count(NAME) >= 2, path
            assert visitor.response.status_code == 302 or "/desk/" in visitor.page.links


@on_sqlite
def test_what_is_not_there_has_the_navigation_and_our_words(operator, desk_settings):
    for path in ("/desk/nowhere", "/desk/messages/x", "/desk/static/x"):
        operator.open(path)
        assert "There is no such page at the desk." in operator.page.text
        assert operator.page.buttons("Sign out")
        assert {"/desk/", "/desk/messages", "/desk/do-not-call"} <= {*operator.page.links}
        assert guarded(operator.response)
    operator.open("/desk/search")
    assert operator.response.status_code == 405
    assert "only accepts form submissions" in operator.page.text
    away = create_app(desk_settings._replace(database_url="sqlite:////nowhere/messages.db"))
    response = copy_of(operator, away).open("/desk/nowhere")
    assert (response.status_code, response.mimetype) == (404, "text/html")


@on_sqlite
def test_a_message_leads_back_to_the_place_that_led_to_it(operator):
    asked = ask_many(60)
    operator.open()
    operator.open(next_page(operator))
    there = operator.at
    (link,) = (each for each in operator.page.links if str(asked[55].id) in each)
    operator.open(link)
    assert f"{there}#to-{asked[55].id}" in operator.page.links
    operator.press("Approve")
    assert f"{there}#to-{asked[55].id}" in operator.page.links
    sent = store(status=Status.SENT, finished_at=TUESDAY_NOON)
    operator.open("/desk/messages?status=sent&key=app")
    operator.open(next(each for each in operator.page.links if str(sent.id) in each))
    assert f"/desk/messages?status=sent&key=app#to-{sent.id}" in operator.page.links
    operator.open(f"/desk/messages/{sent.id}?back=//evil.test&message_id=x&_external=1&_anchor=x")
    assert f"/desk/#to-{sent.id}" in operator.page.links


@on_sqlite
def test_an_approver_is_led_back_to_what_waits(approver):
    message = ask()
    approver.open()
    approver.open(next(each for each in approver.page.links if str(message.id) in each))
    assert f"/desk/#to-{message.id}" in approver.page.links
