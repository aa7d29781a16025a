"""Around the pages: guards, static files, errors for people, pages that follow, the way back."""

import re

import pytest

from app import create_app
from databases import on_both
from desk_visitor import PAGES, Visitor, ask, ask_many, copy_of, guarded, next_page, unlike, walk
from samples import HOUR, NEW_YORK, TUESDAY_NOON
from stored_messages import store
from texting.desk import cards
from texting.messages import model
from texting.messages.model import Message, Status

SCRIPT = "/desk/static/desk.js"


@pytest.mark.options
def test_every_page_is_guarded_and_has_the_name_of_the_service_and_a_way_back(operator, app):
    message = ask()
    paths = (*PAGES, f"/desk/messages/{message.id}", "/desk/nowhere", "/desk/messages?status=x")
    for visitor in (operator, Visitor(app)):
        for path in paths:
            response = visitor.open(path)
            assert guarded(response)
            assert not re.search(r"<script>|\son\w+=|style=|//", response.text)
            assert {a["src"] for tag, a in visitor.page.elements if tag == "script"} <= {SCRIPT}
            if response.status_code != 302:
                assert visitor.page.text.count("Text messages") >= 2, path
                assert "/desk/" in visitor.page.links


def test_the_style_sheet_is_there_for_all(client):
    for name in ("desk.css", "desk.js", "icon.svg"):
        with client.get(f"/desk/static/{name}") as response:
            assert response.status_code == 200
            assert "Set-Cookie" not in response.headers
    assert client.get("/desk/static/../auth.py").status_code == 404


# Errors


@pytest.mark.options
@pytest.mark.parametrize("path", ["/desk/nowhere", "/desk/messages/x", "/desk/static/x"])
def test_what_is_not_there_has_the_navigation_and_our_words(operator, path):
    response = operator.open(path)
    assert (response.status_code, response.mimetype) == (404, "text/html")
    assert guarded(response)
    assert "There is no such page at the desk." in operator.page.text
    assert operator.page.buttons("Sign out")
    assert {"/desk/", "/desk/messages", "/desk/do-not-call"} <= {*operator.page.links}


def test_a_wrong_method_is_a_page_that_names_the_right_ones(operator):
    response = operator.client.delete("/desk/messages")
    assert (response.status_code, response.mimetype) == (405, "text/html")
    assert "POST" in response.headers["Allow"]
    assert operator.open("/desk/search").status_code == 405
    assert "only accepts form submissions" in operator.page.text


def test_beside_the_desk_errors_stay_json(client):
    for path in ("/nowhere", "/desks", "/v1/desk/"):
        assert client.get(path).json["statusCode"] == 404


@pytest.mark.parametrize(("path", "status"), [("/desk/", 503), ("/desk/nowhere", 404)])
def test_a_database_that_is_away_is_a_page_for_people(approver, desk_settings, path, status):
    away = create_app(desk_settings._replace(database_url="sqlite:////nowhere/messages.db"))
    response = copy_of(approver, away).open(path)
    assert (response.status_code, response.mimetype) == (status, "text/html")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/desk/", 500, "Something went wrong on our side.\n"),
        ("/desk/nowhere", 404, "There is nothing at this address.\n"),
        ("/desk/search", 405, "This address does not take this method: see the Allow header.\n"),
    ],
)
def test_an_error_page_that_fails_is_answered_by_plain_words(
    app, operator, caplog, path, status, words
):
    """What every page calls fails, so the page of the error fails too."""
    app.jinja_env.globals["hour_cycle"] = lambda: 1 / 0
    response = operator.open(path)
    assert (response.status_code, response.mimetype) == (status, "text/plain")
    assert response.text == words
    assert ("POST" in response.headers.get("Allow", "")) is (status == 405)
    assert caplog.text.count("unexpected ZeroDivisionError") == (2 if status == 500 else 1)


@pytest.mark.parametrize(
    "language",
    [
        *(
            "shi-Tfng",
            " ",
            "\t",
            "*",
            "-",
            "_",
            ",",
            ";q=",
            "en;q=",
            "en;q=nan",
            "de;q=\xb2",
            "\xe9",
        ),
        *(
            ";;;",
            "en-" + "x" * 3_000,
            "a-" * 1_000,
            "-".join(["en"] * 500),
            "en\x1cde",
            "zh_Hant-HK",
        ),
    ],
)
def test_no_language_is_an_error_of_ours(app, caplog, language):
    response = app.test_client().get("/desk/", headers={"Accept-Language": language})
    assert response.status_code == 200
    assert not caplog.records


@pytest.mark.parametrize("page", ["/desk/", "/desk/messages", "/desk/replies"])
@pytest.mark.parametrize(
    "query",
    [
        *("after=x", "after=1-2", "after=0-1-zz", f"after=-1-{'0' * 32}", "status=sent&after=1"),
        *(f"after=-1-0-{'0' * 32}", f"after=0-{10**30}-{'f' * 32}", "after=%00"),
        *("status=x", "status=%F0%9F%92%A3", "find=%00", "select=%ff", "a=x&a=%ff"),
    ],
)
def test_no_query_is_an_error_of_ours(operator, page, query):
    response = operator.open(f"{page}?{query}")
    assert response.status_code in ((404,) if "after=" in query else (200, 400))
    assert response.mimetype == "text/html"


def test_numbers_and_texts_stay_out_of_the_log(operator, caplog):
    caplog.set_level("INFO")
    message = ask("a secret text")
    operator.press("Approve", message, on="/desk/")
    operator.press("Add", number=NEW_YORK, on="/desk/do-not-call")
    assert f"message {message.id} approved by Olga" in caplog.text
    assert "a number was added to the Do Not Call list by Olga" in caplog.text
    for hidden in ("a secret text", NEW_YORK[1:], "212-555"):
        assert hidden not in caplog.text


# One page after the other


@on_both
def test_nothing_is_skipped_or_shown_twice_while_others_arrive(approver):
    ask_many(120)
    seen = []
    for number, page in enumerate(walk(approver, "/desk/")):
        seen += page
        ask(unlike(1000 + number), send_at=TUESDAY_NOON - HOUR)
    assert seen == [f"text {number}" for number in range(120)]


@on_both
def test_texts_of_one_instant_and_several_keys_are_paged_too(approver):
    for number in range(110):
        ask(unlike(number), key=f"shop {number % 3}")
    seen = [text for page in walk(approver, "/desk/") for text in page]
    assert len(seen) == len({*seen}) == 110


def store_thousand_like(message):
    """Store a thousand copies of a message."""
    row = Message.select().where(Message.id == message.id).dicts().get()
    rows = [row | {"id": model.new_id(TUESDAY_NOON)} for _ in range(1000)]
    for start in range(0, 1000, 25):
        Message.insert_many(rows[start : start + 25]).execute()


@on_both
def test_what_is_looked_over_is_counted_and_of_an_hour_a_thousand(approver, operator, monkeypatch):
    store_thousand_like(ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR))
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 2 * HOUR)
    for most, count in ((1_001, "1,001+"), (1_002, "1,001"), (cards.LOOKED_OVER, "1,001")):
        monkeypatch.setattr(cards, "LOOKED_OVER", most)
        for visitor in (approver, operator):
            assert f"Waiting for approval {count} " in visitor.read()
    words = "1,001+ texts ( 1,000+ not approved ). Busiest hour: 6:00 PM UTC , 1,000+ texts."
    assert f"Next 24 hours: {words}" in operator.page.text


# The way back


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
