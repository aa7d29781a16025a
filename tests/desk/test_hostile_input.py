"""Hostile texts and names are shown as they are, long ones can be unfolded, no page grows large."""

import pytest

from desk_visitor import ask, reply
from samples import MILLISECOND, MINUTE, TUESDAY_NOON
from stored_messages import held
from texting.messages.model import Status
from texting.replies.model import Reply
from texting.sending.carrier_state import CarrierState

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
        assert "W" * 1500 in html


def test_hostile_names_and_errors_are_escaped(operator):
    bad = "<b>\u202e"
    message = ask(key=bad, group=bad, approved=True, status=Status.FAILED, last_error=bad)
    CarrierState.record_pass(TUESDAY_NOON, {"x": []})
    CarrierState.begin_pause("x", TUESDAY_NOON, TUESDAY_NOON, trouble=bad)
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        assert "<b>" not in operator.open(path).text


def test_a_text_in_a_list_can_be_unfolded_and_is_whole_on_its_own_page(operator):
    message = ask("\n".join(f"line {n}" for n in range(80)))
    ask(None)
    for page in ("/desk/", "/desk/messages"):
        operator.open(page)
        folded = [attrs["class"] for tag, attrs in operator.page.elements if tag == "details"]
        assert folded.count("text") == 1
        assert "line 79" in operator.page.text
        assert "The text was cleared." in operator.page.text
    operator.open(f"/desk/messages/{message.id}")
    assert "line 79" in operator.page.text
    assert not [tag for tag, _ in operator.page.elements if tag == "details"]


# Whatever recipients write, no page is larger than a phone loads in a moment

MOST = 1_000_000  # bytes
ODD = {
    "seen and not": "\u202ea",
    "not seen": "\u200b",
    "of long names": "a\U000e01ef",
    "escaped": "&",
    "both": "\U000e01ef" + "&" * 49,
    "quotes": '"',
    "emoji": "🛑",
    "blank lines": "\n",
}


@pytest.fixture
def answered(database_url):
    """A long text that was sent."""
    return held(Status.SENT, finished_at=TUESDAY_NOON - 2 * MINUTE, message=ODD["both"] * 32)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ODD)
def test_pages_of_texts_and_replies_stay_small(operator, answered, piece):
    for _ in range(50):
        ask((ODD[piece] * 1600)[:1600])
    text = ODD[piece] * (39_000 // len(ODD[piece]))
    for n in range(250):
        reply(n % 50, text=text, message_id=answered.id)
    for page in ("/desk/", "/desk/messages", "/desk/replies"):
        assert len(operator.open(page).data) < MOST
    assert len(operator.page.buttons("Mark as read")) == 50


@pytest.mark.parametrize("replies", [50, 60])
def test_the_page_of_a_text_stays_small_however_many_replies_it_has(operator, answered, replies):
    for n in range(replies):
        at = TUESDAY_NOON + n * MILLISECOND
        reply(0, at=at, text="\u202ea" * 1_000, message_id=answered.id)
    assert len(operator.open(f"/desk/messages/{answered.id}").data) < MOST
    assert len(operator.page.buttons("Mark as read")) == 1
    assert operator.response.text.count('class="text"') == 51
    first, *_, latest = Reply.select().order_by(Reply.at)
    assert latest.id.hex in operator.response.text
    assert (first.id.hex in operator.response.text) is (replies == 50)
    assert ("Earlier replies are on the page Replies" in operator.page.text) is (replies > 50)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 1_000, "x" * 1_000),
        ("x" * 1_001, "x" * 1_000 + " and 1 more character"),
        ("x" * 39_000, "x" * 1_000 + " and 38,000 more characters"),
    ],
)
def test_a_reply_is_shown_up_to_its_thousandth_character(operator, answered, text, shown):
    reply(0, text=text, message_id=answered.id)
    for path in ("/desk/replies", f"/desk/messages/{answered.id}"):
        assert f" {shown} " in operator.read(path)
