"""Hostile texts and names are shown as they are; long ones are folded, and no page grows large."""

import pytest

from desk import words
from desk_visitor import ask, reply
from models import Status
from samples import MILLISECOND, MINUTE, TUESDAY_NOON
from sending.carrier_state import CarrierState
from sending.replies import Reply
from stored_messages import held

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
    (hidden,) = (each for each in text if not each.isprintable() or words.visible(each) != each)
    assert hidden not in words.visible(text)
    assert f">U+{ord(hidden):04X}<" in words.visible(text)


@pytest.mark.parametrize(
    "text",
    [
        *("👩\u200d🚀", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "👨\u200d⚕\ufe0f"),
        *("🙂\u200d↔\ufe0f", "1\ufe0f\u20e3", "☎\ufe0e", "©\ufe0f", "⛓\ufe0f\u200d💥"),
        *("می\u200cخواهم", "क्\u200dष", "ශ්\u200dරී", "ക്\u200c"),
        *("Zoë", "e\u0301", "한국어", "日本\u3000"),
    ],
    ids=ascii,
)
def test_what_a_script_or_an_emoji_needs_stays(text):
    assert words.visible(text) == text


def test_hostile_names_and_errors_are_escaped(operator):
    bad = "<b>\u202e"
    message = ask(key=bad, group=bad, approved=True, status=Status.FAILED, last_error=bad)
    CarrierState.record_pass(TUESDAY_NOON, {"x": []})
    CarrierState.begin_pause("x", TUESDAY_NOON, TUESDAY_NOON, trouble=bad)
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        assert "<b>" not in operator.open(path).text


# Long texts


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("", ""),
        ("Hello", ""),
        ("\n".join("123456"), ""),
        ("\n".join("1234567"), "long"),
        ("\n" * 6, "long"),
        ("x" * 6 * words.NARROW, ""),
        ("x" * (6 * words.NARROW + 1), "long on-phones"),
        ("x" * 6 * words.WIDE, "long on-phones"),
        ("x" * (6 * words.WIDE + 1), "long"),
        ("\r\n".join(["x" * (words.NARROW - 1)] * 6), ""),
    ],
)
def test_a_text_is_folded_after_six_lines(text, folded):
    assert words.fold(text) == folded


@pytest.mark.parametrize("page", ["/desk/", "/desk/messages"])
def test_a_long_text_says_its_parts_and_is_whole_on_its_own_page(operator, page):
    text = "\n".join(f"line {n}" for n in range(20))
    long, _ = ask(text * 4), ask("short")
    ask(text, parts=None)
    ask(None)
    operator.open(page)
    assert operator.page.text.count("show all") == 2
    assert "line 19 4 parts · show all show less" in operator.page.text
    assert "line 19 show all" in operator.page.text
    assert "show all" not in operator.open(f"/desk/messages/{long.id}").text


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
    assert operator.response.text.count('class="text ') == 51
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


@pytest.mark.parametrize(
    ("text", "named", "more"),
    [
        ("a\u202e" * 20, 20, ""),
        ("a\u202e" * 20 + "z" + "\u200b" * 40, 20, "and 40 more that cannot be seen"),
        ("\u202e" * 1600, 20, "and 1,580 more that cannot be seen"),
    ],
)
def test_characters_that_cannot_be_seen_are_named_up_to_twenty_in_a_text(text, named, more):
    html = words.visible(text)
    assert html.count(">U+202E<") == named
    assert html.count(">U+200B<") == 0
    assert not {*html} & {"\u202e", "\u200b"}
    assert ("that cannot be seen" in html) is bool(more)
    assert more in html
