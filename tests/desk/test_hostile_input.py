"""Hostile texts, names, queries and forms are shown as they are, or refused."""

from datetime import UTC, datetime

import pytest

from desk import entries
from desk_visitor import ask
from models import Status
from samples import TUESDAY_NOON
from sending.carrier_state import CarrierState
from stored_messages import again

HOSTILE = (
    "<script>alert(1)</script>\n\"'&amp; {{ 7 * 7 }} \u202etxt.exe\u200b\x07 👩\u200d🚀 "
    + "W" * 1500
)


def test_a_hostile_text_is_shown_as_it_is(approver, operator):
    message = ask(HOSTILE)
    for visitor, path in (
        (approver, "/desk/"),
        (approver, f"/desk/messages/{message.id}"),
        (operator, "/desk/messages"),
    ):
        html = visitor.open(path).text
        assert html.count("<script") == html.count('<script src="/desk/static/desk.js"') == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\n&#34;&#39;&amp;amp; {{ 7 * 7 }}" in html
        for character in "\u202e\u200b\x07":
            assert character not in html
            assert f">U+{ord(character):04X}<" in html
        assert "RIGHT-TO-LEFT OVERRIDE" in html
        assert "👩\u200d🚀" in html
        assert "W" * 1500 in html


def test_a_text_of_what_nobody_sees_does_not_fill_the_page(operator):
    """Fifty of them would be more than a slow reader is sent."""
    message = ask("\u202e\u200b" * 800)
    html = operator.open(f"/desk/messages/{message.id}").text
    # Ten in the text, and one among the characters that make more parts
    assert html.count("U+202E") == html.count("U+200B") == 11
    assert "and 1,580 more that cannot be seen" in html


@pytest.mark.parametrize(
    "text",
    [
        *("a\u3164b", "\u115fa", "\u1160", "\uffa0", "a\u2800b", "e\u034f", "a\ufe0fb", "a\ufe00"),
        *("\u180b", "\u180f", "\u17b4", "\u17b5", "a\U000e0101", "\u00ad", "\u2065", "\ufff0"),
        *("\u2060", "\U000e0001", "\U0001d173", "\U0001bca0"),
        *("pay\u200dpal", "pay\u200cpal", "\u200d", "1\u200d2", "👩\u200da", "a\u200d🚀"),
    ],
    ids=ascii,
)
def test_what_nobody_sees_is_named(text):
    (hidden,) = (each for each in text if not each.isprintable() or entries.visible(each) != each)
    assert hidden not in entries.visible(text)
    assert f">U+{ord(hidden):04X}<" in entries.visible(text)


@pytest.mark.parametrize(
    "text",
    [
        *("👩\u200d🚀", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "👨\u200d⚕\ufe0f"),
        *("🙂\u200d↔\ufe0f", "1\ufe0f\u20e3", "☎\ufe0e", "©\ufe0f", "⛓\ufe0f\u200d💥"),
        *(
            "می\u200cخواهم",
            "क्\u200dष",
            "ශ්\u200dරී",
            "ക്\u200c",
            "Zoë",
            "e\u0301",
            "한국어",
            "日本\u3000",
        ),
    ],
    ids=ascii,
)
def test_what_a_script_or_an_emoji_needs_stays(text):
    assert entries.visible(text) == text


def test_the_last_hour_of_the_calendar_is_an_hour_like_any_other(operator):
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    message = ask(send_date=end, send_at=end, status=Status.SCHEDULED)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        assert operator.open(path).status_code == 200


def test_hostile_names_and_errors_are_escaped(operator):
    bad = "<b>\u202e"
    message = ask(key=bad, group=bad, approved=True, status=Status.FAILED, last_error=bad)
    CarrierState.passed(TUESDAY_NOON, {"x": []})
    CarrierState.begin_pause("x", TUESDAY_NOON, TUESDAY_NOON, trouble=bad)
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        assert "<b>" not in operator.open(path).text


@pytest.mark.parametrize("page", ["/desk/", "/desk/messages"])
def test_no_query_is_an_error_of_ours(operator, page):
    for query in (
        *("after=x", "after=1-2", "after=-1-" + "0" * 32, "after=999999999999999-" + "f" * 32),
        *("after=%00", "status=x", "number=x", "number=%00", "status=sent&after=1", "select=%ff"),
        *("number=%2B1%20212%20555%200123&status=failed", "status=%F0%9F%92%A3", "like=%00"),
        *("like=", "like=x", f"like={'0' * 32}", "like=%F0%9F%92%A3", "like=1&like=2"),
    ):
        response = operator.open(f"{page}?{query}")
        assert response.status_code in (200, 400, 404), query
        assert response.mimetype == "text/html"


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
