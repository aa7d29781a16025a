"""A search for a number leaves the number in no address, which proxies and browsers keep."""

from urllib.parse import parse_qs, urlsplit

import pytest

from databases import on_sqlite
from desk_visitor import Visitor, ask, issue, next_page
from models import Message, Status
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import HOUR, store

DIGITS = "8366"


@pytest.fixture
def sent(app):
    """Every address that the desk was asked for, with the query."""
    asked, serve = [], app.wsgi_app

    def keep(environ, start_response):
        asked.append(f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}")
        return serve(environ, start_response)

    app.wsgi_app = keep
    return asked


def search(visitor, **fields):
    visitor.open("/desk/messages")
    return visitor.press("Show", **fields)


@on_sqlite
def test_no_address_of_a_search_has_the_number(sent, operator):
    for number in range(120):
        store(message=f"text {number}", to=LONDON)
    store(message="another")
    search(operator, number="+44 20 8366 1177")
    seen = 0
    while True:
        assert DIGITS not in "".join(operator.page.links)
        assert DIGITS not in operator.response.headers.get("Location", "")
        assert "another" not in operator.page.text
        seen += operator.response.text.count('<li class="card')
        if not next_page(operator):
            break
        operator.open(next_page(operator))
    assert seen == 120
    assert len(sent) > 4
    assert DIGITS not in "".join(sent)


@on_sqlite
def test_a_button_leads_back_to_the_search(sent, operator):
    first, _ = ask("this one", to=LONDON), ask("that one", to=LONDON)
    ask("another")
    search(operator, number=LONDON)
    operator.press("Approve", first)
    assert "that one" in operator.page.text
    assert "another" not in operator.page.text
    fields = [each for form in operator.page.forms for each in form["inputs"]]
    assert ("number", LONDON) in fields
    assert DIGITS not in "".join(sent)


@on_sqlite
def test_status_and_number_are_both_asked_for(operator):
    store(message="went", to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON - HOUR)
    store(message="waits", to=LONDON)
    search(operator, number=LONDON, status="sent")
    assert "went" in operator.page.text
    assert "waits" not in operator.page.text
    assert parse_qs(urlsplit(operator.at).query)["status"] == ["sent"]
    search(operator, number=LONDON, status="failed")
    assert "No messages" in operator.page.text
    search(operator, number="", status="sent")
    assert operator.at == "/desk/messages?status=sent"


@on_sqlite
def test_a_number_of_no_message_finds_none(sent, operator):
    store(message="another")
    assert search(operator, number=LONDON).status_code == 200
    assert "No messages" in operator.page.text
    assert "another" not in operator.page.text
    assert DIGITS not in "".join(sent)


@on_sqlite
def test_an_old_address_with_a_number_shows_not_everything(operator):
    store(message="another")
    response = operator.open("/desk/messages?number=%2B442083661177")
    assert response.status_code == 400
    assert "use the form" in operator.page.text
    assert "another" not in operator.page.text


@on_sqlite
def test_a_search_whose_number_was_cleared_is_gone(operator):
    store(message="this one", to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON)
    store(message="another", to=NEW_YORK)
    search(operator, number=LONDON)
    found = operator.at
    Message.redact_number(LONDON, TUESDAY_NOON)
    assert operator.open(found).status_code == 404
    assert "another" not in operator.page.text


@on_sqlite
def test_only_an_operator_searches_and_only_by_a_form_of_the_desk(app, operator, approver):
    message = ask(to=LONDON)
    approver.open()
    sent = [("number", LONDON), ("csrf_token", approver.token)]
    assert approver.post("/desk/search", sent).status_code == 403
    assert approver.open(f"/desk/messages?like={message.id}").status_code == 403
    operator.open()
    assert operator.post("/desk/search", [("number", LONDON)]).status_code == 400
    stranger = Visitor(app)
    assert stranger.post("/desk/search", sent).status_code == 403
    sent = [("number", LONDON), ("status", "x"), ("csrf_token", operator.token)]
    assert operator.post("/desk/search", sent).status_code == 400


@on_sqlite
def test_below_a_prefix_the_search_stays_there(app):
    store(message="this one", to=LONDON)
    visitor = Visitor(app, "/stage")
    visitor.sign_in(issue("Olga", role="operator"))
    search(visitor, number=LONDON)
    assert "this one" in visitor.page.text
