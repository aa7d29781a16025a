"""What waits is in the order of the times that are shown: when each text goes once approved."""

import pytest

from databases import on_both
from desk_visitor import ask, next_page, rows, unlike, walk
from samples import DAY, HOUR, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import key_named
from texting.desk import cards
from texting.messages.model import Message, Status

NIGHT = TUESDAY_NOON.replace(hour=23)  # when it is 6 PM in New York
KNOWN = {"status": Status.SCHEDULED}


@on_both
@pytest.mark.parametrize("person", ["approver", "operator"])
def test_a_text_that_waits_for_hours_is_where_its_time_is(request, at, person):
    visitor = request.getfixturevalue(person)
    at(NIGHT)
    ask(unlike(4), to=NEW_YORK, send_at=NIGHT - 2 * HOUR)  # 9 AM there is 2 PM in London
    ask(unlike(3), to=LONDON, send_at=NIGHT - HOUR)
    ask(unlike(1), to=NEW_YORK, send_date=NIGHT, send_at=NIGHT)
    ask(unlike(2), to=LONDON, send_date=NIGHT + HOUR, send_at=NIGHT + HOUR, **KNOWN)
    ask(unlike(5), to=LONDON, send_at=NIGHT + 16 * HOUR, **KNOWN)
    visitor.open("/desk/")
    assert rows(visitor) == [f"text {n}" for n in (1, 2, 3, 4, 5)]
    assert "10 hours" in visitor.page.text


def test_the_hours_of_a_key_count(operator, at):
    at(NIGHT)
    key_named("late", "front").rule({"hours": "mon-sun 20:00-21:00"}, TUESDAY_NOON)
    ask(unlike(2), to=LONDON, key="late", send_at=NIGHT - HOUR)
    ask(unlike(1), to=LONDON, send_at=NIGHT)
    operator.open("/desk/")
    assert rows(operator) == ["text 1", "text 2"]


def test_a_card_has_the_time_of_its_first_text_to_go(approver, at):
    at(NIGHT)
    ask("Come at 5", to=NEW_YORK, send_at=NIGHT - 2 * HOUR)
    ask("Come at 6", to=LONDON, send_at=NIGHT - HOUR)
    first = ask(unlike(1), to=LONDON, send_at=NIGHT + 12 * HOUR, **KNOWN)
    approver.open("/desk/")
    text = approver.page.text
    assert text.index("2 similar texts") < text.index("text 1")
    assert "The first: 9:00 AM there , in 10 hours" in text
    (opens,) = (link for link in approver.page.links if "alike=" in link and "select" not in link)
    text = approver.read(opens)
    assert text.rindex("Come at 6") < text.rindex("Come at 5")
    assert first.message not in text


@on_both
@pytest.mark.parametrize("looked_over", [200, 60])
def test_each_is_on_one_page_in_the_order_of_all(approver, at, monkeypatch, looked_over):
    """As many as are looked over are in order; what follows is there, too."""
    monkeypatch.setattr(cards, "LOOKED_OVER", looked_over)
    at(NIGHT)
    for n in range(140):
        ask(unlike(n), to=(LONDON, NEW_YORK)[n % 2], send_at=NIGHT - (150 - n) * MINUTE)
    seen = [text for page in walk(approver, "/desk/") for text in page]
    assert sorted(seen) == sorted(f"text {n}" for n in range(140))
    if looked_over > 140:
        assert {*seen[:70]} == {f"text {n}" for n in range(0, 140, 2)}, "9 AM in London"


def test_a_number_that_was_cleared_or_is_valid_no_more_is_no_error(approver):
    ask(unlike(1), to="+22501234567", send_at=TUESDAY_NOON - DAY)
    Message.update(to=None).where(Message.id == ask(unlike(2)).id).execute()
    approver.open("/desk/")
    assert rows(approver) == ["text 1", "text 2"]
    assert next_page(approver) is None


def test_the_end_of_time_is_no_error(approver):
    last = TUESDAY_NOON.replace(year=9999, month=12, day=31, hour=23)
    ask(unlike(2), send_date=last, send_at=last, **KNOWN)
    ask(unlike(1), send_at=TUESDAY_NOON + DAY, **KNOWN)
    approver.open("/desk/")
    assert rows(approver) == ["text 1", "text 2"]
