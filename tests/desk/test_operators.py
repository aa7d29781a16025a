"""What operators do: find, cancel and retry messages, keep the Do Not Call list."""

import re
from datetime import timedelta

import pytest

import models
from access.do_not_call import DoNotCall
from databases import on_sqlite
from desk_visitor import ask, walk
from models import Status
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from sending.attempts import Attempt
from stored_messages import HOUR, again, held, store


def test_an_operator_approves_for_every_group(operator):
    message = ask(key="alone", group=None, available_to_group=False)
    operator.open()
    operator.press("Approve", message)
    assert again(message).approved_by == "Olga"


@pytest.mark.slow
@pytest.mark.parametrize("status", [*Status])
def test_an_operator_finds_messages_by_status(operator, status):
    ended = TUESDAY_NOON if status in models.FINISHED else None
    held(status, message="this one", finished_at=ended)
    other = Status.SENT if status != Status.SENT else Status.FAILED
    held(other, message="another", finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages?status={status}")
    assert "this one" in operator.page.text
    assert "another" not in operator.page.text
    operator.open("/desk/messages")
    assert "this one" in operator.page.text
    assert "another" in operator.page.text


@on_sqlite
@pytest.mark.parametrize("status", Status)
def test_the_page_of_a_message_says_how_it_stands(operator, status):
    ended = TUESDAY_NOON if status in models.FINISHED else None
    message = held(status, finished_at=ended)
    assert operator.open(f"/desk/messages/{message.id}").status_code == 200
    assert re.search(r"\bThis text (is|was|waits|expired|could)\b.*\.", operator.page.text)


def test_queued_messages_are_found_approved_or_not(operator):
    ask("not yet")
    store(message="already")
    operator.open("/desk/messages?status=queued")
    assert "not yet" in operator.page.text
    assert "already" in operator.page.text


@pytest.mark.parametrize("written", ["+442083661177", "+44 (0)20 8366-1177", "+44.20.8366.1177"])
def test_an_operator_finds_messages_by_number(operator, written):
    store(message="this one", to=LONDON)
    store(message="another")
    operator.open("/desk/messages")
    operator.press("Show", number=written)
    assert "this one" in operator.page.text
    assert "another" not in operator.page.text


@on_sqlite
def test_a_national_number_needs_its_country(operator):
    store(message="this one", to=LONDON)
    for region in ("gb", "GB"):
        operator.open("/desk/messages")
        operator.press("Show", number="020 8366-1177", region=region)
        assert "this one" in operator.page.text
    for region, words in (
        ("", "and its country"),
        ("XX", "two letters"),
        ("US", "and its country"),
    ):
        operator.open("/desk/messages")
        response = operator.press("Show", number="020 8366-1177", region=region)
        assert response.status_code == 400
        assert words in operator.page.text
    operator.open("/desk/do-not-call")
    operator.press("Add", number="020 8366 1177", region="gb")
    assert "+44 20 8366 1177 is on the list now" in operator.page.text
    assert ("region", "GB") in operator.page.forms[1]["inputs"]
    assert DoNotCall.lists(LONDON)


@on_sqlite
def test_every_button_is_named_with_its_number_and_trouble_is_an_alert(operator):
    ask()
    store(status=Status.SCHEDULED, to=LONDON)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    operator.open("/desk/")
    roles = [attrs.get("role") for tag, attrs in operator.page.elements if tag == "p"]
    assert roles.count("alert") == 1  # no scheduler runs
    operator.open("/desk/messages")
    named = {
        "Refuse": "Refuse the text to +1 212-555-0123",
        "Approve": "Approve the text to +1 212-555-0123",
        "Cancel": "Cancel the text to +44 20 8366 1177",
        "Retry": "Retry the text to +1 212-555-0123",
    }
    for words, name in named.items():
        assert [button["aria-label"] for _, button in operator.page.buttons(words)] == [name]


def test_what_is_no_number_is_reported(operator):
    operator.open("/desk/messages")
    response = operator.press("Show", number="12")
    assert response.status_code == 400
    assert "country code" in operator.page.text


@pytest.mark.slow
@pytest.mark.parametrize("status", [None, Status.SCHEDULED, Status.SENT, Status.SENDING])
def test_an_operators_pages_skip_nothing(operator, status):
    ended = TUESDAY_NOON if status == Status.SENT else None
    for number in range(110):
        held(status or Status.QUEUED, message=f"text {number}", finished_at=ended)
    query = f"?status={status}" if status else ""
    seen = [text for page in walk(operator, f"/desk/messages{query}") for text in page]
    assert (len(seen), len({*seen})) == (110, 110)


def test_an_operator_cancels(operator):
    message = store(status=Status.SCHEDULED)
    for path in ("/desk/messages?status=scheduled", f"/desk/messages/{message.id}"):
        operator.open(path)
        assert operator.page.buttons("Cancel")
    operator.press("Cancel", message)
    assert "1 text cancelled" in operator.page.text
    assert (again(message).status, again(message).cancelled_by) == (Status.CANCELLED, "Olga")


@pytest.mark.parametrize("status", [Status.FAILED, Status.BLOCKED, Status.EXPIRED])
def test_an_operator_tries_again(operator, status):
    message = store(status=status, finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages?status={status}")
    operator.press("Retry", message)
    assert "1 text retried" in operator.page.text
    assert again(message).status == Status.SCHEDULED


def test_what_is_redacted_cannot_be_tried_again(operator):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON, to=None, message=None)
    operator.open(f"/desk/messages/{message.id}")
    assert "cleared" in operator.page.text
    assert not operator.page.buttons("Retry")
    operator.post("/desk/messages", [("csrf_token", operator.token), ("retry", str(message.id))])
    assert again(message).status == Status.FAILED


def test_a_message_is_shown_with_its_attempts_in_the_carriers_words(operator):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    Attempt.create(
        message=message, number=1, carrier="us", begun_at=TUESDAY_NOON - HOUR,
        ended_at=TUESDAY_NOON - HOUR, result="refused", words="<busy>",
    )  # fmt: skip
    Attempt.create(message=message, number=2, carrier="eu", begun_at=TUESDAY_NOON, result=None)
    operator.open(f"/desk/messages/{message.id}")
    attempts = operator.page.text.partition("Attempts")[2].partition("Details")[0]
    assert attempts.index("us refused it: <busy>") < attempts.index("eu has not answered yet")


def test_a_message_is_shown_with_its_history(operator):
    message = store(
        status=Status.DELIVERED,
        created_at=TUESDAY_NOON - 3 * HOUR,
        manual_mode=True,
        approved=True,
        approved_by="Ann",
        approved_at=TUESDAY_NOON - 2 * HOUR,
        finished_at=TUESDAY_NOON - HOUR,
        receipt_at=TUESDAY_NOON - HOUR / 2,
        attempts=2,
        carrier_reference="SM1",
    )
    operator.open(f"/desk/messages/{message.id}")
    told = ("Requested by app", "Approved by Ann", "Was sent", "Reached the phone")
    history = operator.page.text.partition("History")[2].lower()
    places = [history.index(words.lower()) for words in told]
    assert places == sorted(places)
    for words in ("SM1", "2 of at most 4", str(message.id), NEW_YORK):
        assert words in operator.page.text


def test_an_operator_keeps_the_do_not_call_list(operator):
    operator.open("/desk/do-not-call")
    for button, words, listed in (
        ("Check", "is not on the list", False),
        ("Add", "is on the list now", True),
        ("Add", "was on the list before", True),
        ("Check", "has been on the list since 2026-03-03, added by an operator", True),
        ("Remove", "is no longer on the list", False),
        ("Remove", "was not on the list", False),
    ):
        operator.press(button, number="+1 (212) 555-0123")
        assert f"+1 212-555-0123 {words}" in operator.page.text
        assert DoNotCall.lists(NEW_YORK) is listed


@pytest.mark.parametrize("button", ["Check", "Add", "Remove"])
def test_what_is_no_number_joins_no_list(operator, button):
    operator.open("/desk/do-not-call")
    for number in ("", "0", "+", "+1", "112", "\0", "<b>", "+1" * 5000):
        assert operator.press(button, number=number).status_code == 400, number
        assert "country code" in operator.page.text
        assert "<b>" not in operator.response.text
        assert DoNotCall.select().count() == 0


def test_numbers_and_texts_stay_out_of_the_log(operator, caplog):
    caplog.set_level("INFO")
    message = ask("a secret text")
    operator.open()
    operator.press("Approve", message)
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    assert f"message {message.id} approved by Olga" in caplog.text
    for hidden in ("a secret text", NEW_YORK[1:], "212-555"):
        assert hidden not in caplog.text


def test_the_history_says_when_the_key_was_told(operator):
    told_at = TUESDAY_NOON + timedelta(minutes=1)
    message = store(status=Status.SENT, finished_at=TUESDAY_NOON, told_at=told_at)
    operator.open(f"/desk/messages/{message.id}")
    assert "webhook delivered to app" in operator.page.text
    untold = store(status=Status.SENT, finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages/{untold.id}")
    assert "webhook delivered" not in operator.page.text
