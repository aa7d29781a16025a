"""Whatever recipients write, no page of the desk is larger than a phone loads in a moment."""

import pytest

from carriers import Reply as Said
from carriers.ways import Way
from databases import on_sqlite
from desk_visitor import ask
from models import Status
from samples import MILLISECOND, MINUTE, NEW_YORK, TUESDAY_NOON
from sending import inbound
from sending.inbound import ReplyRules
from sending.replies import Reply
from stored_messages import held

MOST = 1_000_000  # bytes
RULES = ReplyRules(Way("twilio"), False, None, None)
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


def hear(text, times):
    for n in range(times):
        at = TUESDAY_NOON - MINUTE + n * MILLISECOND
        said = Said(NEW_YORK, text, at, message_ids=(f"twilio {n}",))
        inbound.record([said], TUESDAY_NOON, RULES)


@pytest.fixture
def answered():
    """A long text that was sent."""
    return held(Status.SENT, finished_at=TUESDAY_NOON - 2 * MINUTE, message=ODD["both"] * 32)


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("length", [7_000, 39_000])
@pytest.mark.parametrize("piece", ODD)
def test_the_page_of_replies_stays_small(operator, answered, piece, length):
    hear(ODD[piece] * (length // len(ODD[piece])), 50)
    assert len(operator.open("/desk/replies").data) < MOST
    assert operator.page.buttons("Mark as read")[49:]


@pytest.mark.slow
@on_sqlite
def test_the_page_of_a_text_stays_small_however_many_replies_it_has(operator, answered):
    hear("\u202ea" * 1_000, 60)
    assert len(operator.open(f"/desk/messages/{answered.id}").data) < MOST
    assert len(operator.page.buttons("Mark as read")) == 50
    first, *_, latest = Reply.select().order_by(Reply.at)
    html = operator.response.text
    assert str(latest.id) in html
    assert str(first.id) not in html
    assert "Earlier replies are on the page Replies" in operator.page.text


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("page", ["/desk/", "/desk/messages"])
@pytest.mark.parametrize("piece", ODD)
def test_pages_of_texts_stay_small(operator, page, piece):
    for _ in range(50):
        ask((ODD[piece] * 1600)[:1600])
    assert len(operator.open(page).data) < MOST


@on_sqlite
def test_fifty_replies_of_a_text_are_all_there_are_on_its_page(operator, answered):
    hear("Yes", 50)
    operator.open(f"/desk/messages/{answered.id}")
    assert len(operator.page.buttons("Mark as read")) == 50
    assert "Earlier replies" not in operator.page.text


@on_sqlite
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 1_000, "x" * 1_000),
        ("x" * 1_001, "x" * 1_000 + " and 1 more character"),
        ("x" * 39_000, "x" * 1_000 + " and 38,000 more characters"),
    ],
)
def test_a_reply_is_shown_up_to_its_thousandth_character(operator, answered, text, shown):
    hear(text, 1)
    for path in ("/desk/replies", f"/desk/messages/{answered.id}"):
        operator.open(path)
        assert f" {shown} " in operator.page.text


@on_sqlite
def test_characters_that_cannot_be_seen_are_named_up_to_twenty_in_a_text(operator, answered):
    hear("a\u202e" * 20, 1)
    html = operator.open("/desk/replies").text
    assert html.count(">U+202E<") == 20
    assert "that cannot be seen" not in html
    hear("a\u202e" * 20 + "z" + "\u200b" * 5 + "z" + "\u200b" * 35, 2)
    html = operator.open("/desk/replies").text
    assert html.count(">U+202E<") == 40
    assert html.count(">U+200B<") == 0
    assert not {*html} & {"\u202e", "\u200b"}
    assert "and 40 more that cannot be seen" in operator.page.text
