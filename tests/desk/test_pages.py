"""Around the pages: guards, static files, errors for people, and paging."""

import re

import pytest

import models
from app import create_app
from databases import on_sqlite
from desk_visitor import (
    PAGES,
    Visitor,
    ask,
    ask_many,
    copy_of,
    guarded,
    next_page,
    walk,
)
from models import Message, Status
from samples import TUESDAY_NOON
from stored_messages import HOUR, store

pytestmark = pytest.mark.options
SCRIPT = "/desk/static/desk.js"


def test_every_page_is_guarded_and_brings_nothing_of_others(operator, app):
    message = ask()
    paths = (*PAGES, f"/desk/messages/{message.id}", "/desk/nowhere", "/desk/messages?status=x")
    for visitor in (operator, Visitor(app)):
        for path in paths:
            response = visitor.open(path)
            assert guarded(response)
            assert not re.search(r"<script>|\son\w+=|style=|//", response.text)
            assert {a["src"] for tag, a in visitor.page.elements if tag == "script"} <= {SCRIPT}


def test_the_style_sheet_is_there_for_all(client):
    for name in ("desk.css", "desk.js", "icon.svg"):
        with client.get(f"/desk/static/{name}") as response:
            assert response.status_code == 200
            assert "Set-Cookie" not in response.headers
    assert client.get("/desk/static/../door.py").status_code == 404


@pytest.mark.parametrize("path", ["/desk/nowhere", "/desk/messages/x", "/desk/static/x"])
def test_what_is_not_there_is_a_page_for_people(operator, path):
    response = operator.open(path)
    assert (response.status_code, response.mimetype) == (404, "text/html")
    assert guarded(response)


def test_a_wrong_method_is_a_page_that_names_the_right_ones(client):
    response = client.delete("/desk/messages")
    assert (response.status_code, response.mimetype) == (405, "text/html")
    assert "POST" in response.headers["Allow"]


def test_beside_the_desk_errors_stay_json(client):
    for path in ("/nowhere", "/desks", "/v1/desk/"):
        assert client.get(path).json["statusCode"] == 404


@on_sqlite
def test_a_database_that_is_away_is_a_page_for_people(approver, desk_settings):
    away = create_app(desk_settings._replace(database_url="sqlite:////nowhere/messages.db"))
    response = copy_of(approver, away).open()
    assert (response.status_code, response.mimetype) == (503, "text/html")


def test_nothing_is_skipped_or_shown_twice_while_others_arrive(approver):
    ask_many(120)
    seen = []
    for number, page in enumerate(walk(approver, "/desk/")):
        seen += page
        ask(f"text {1000 + number}", send_at=TUESDAY_NOON - HOUR)
    assert seen == [f"text {number}" for number in range(120)]


def test_texts_of_one_instant_and_several_keys_are_paged_too(approver):
    for number in range(110):
        ask(f"text {number}", key=f"shop {number % 3}")
    seen = [text for page in walk(approver, "/desk/") for text in page]
    assert len(seen) == 110
    assert len({*seen}) == 110


def test_a_decision_leads_back_to_its_page(approver):
    asked = ask_many(60)
    approver.open()
    approver.open(next_page(approver))
    approver.press("Approve", asked[55])
    assert "text 54" in approver.page.text
    assert "text 55" not in approver.page.text


def store_thousand_like(message):
    """Store a thousand copies of a message."""
    row = Message.select().where(Message.id == message.id).dicts().get()
    rows = [row | {"id": models.new_id(TUESDAY_NOON)} for _ in range(1000)]
    for start in range(0, 1000, 25):
        Message.insert_many(rows[start : start + 25]).execute()


def test_more_than_a_thousand_are_not_counted(approver, operator):
    store_thousand_like(ask(send_at=TUESDAY_NOON + 2 * HOUR))
    ask(send_at=TUESDAY_NOON + HOUR, status=Status.SCHEDULED)
    for visitor in (approver, operator):
        visitor.open()
        assert "Waiting for approval 1,000+" in visitor.page.text


def test_more_than_a_thousand_of_an_hour_are_not_counted(operator):
    asked = ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    store_thousand_like(asked)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 2 * HOUR)
    operator.open()
    words = "1,001+ texts ( 1,000+ not approved). Busiest hour: 18:00 UTC, 1,000+ texts."
    assert f"Next 24 hours: {words}" in operator.page.text


def test_a_queued_text_goes_out_this_hour_once_it_is_approved(operator):
    asked = ask(status=Status.QUEUED, send_at=TUESDAY_NOON)
    operator.open()
    assert "Next 24 hours: 0 texts. Due once approved: 1 text." in operator.page.text
    operator.press("Approve", asked)
    assert "Next 24 hours: 1 text." in operator.page.text
    assert "Due once approved" not in operator.page.text
