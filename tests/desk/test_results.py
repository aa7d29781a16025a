"""After a button: what it did stands on top of the list for a minute, and the boxes stay ticked."""

import random
import re
import uuid
from datetime import timedelta

import pytest

from desk_visitor import UNDONE, ask, ask_many, copy_of, issue, next_page, rows, signed_in, unlike
from samples import DAY, HOUR, MINUTE, TUESDAY_NOON
from stored_messages import again, decide_on
from texting.access.keys import Role
from texting.messages.model import Message, Status

LISTS = (
    *("/desk/", "/desk/messages", "/desk/messages?status=scheduled"),
    "/desk/messages?status=scheduled&like={0.id}",
)


def ask_four():
    """Texts in the order of the first page, which is not that in which they were created."""
    asked = {
        n: ask(unlike(n), status=Status.SCHEDULED, send_at=TUESDAY_NOON + n * HOUR)
        for n in (3, 1, 4, 2)
    }
    return [asked[n] for n in sorted(asked)]


def ticked(visitor):
    boxes = [box for form in visitor.page.forms for box in form["boxes"]]
    return [value for _, value, is_ticked in boxes if is_ticked]


@pytest.mark.parametrize("page", LISTS)
@pytest.mark.parametrize(("button", "past"), [("Approve", "approved"), ("Refuse", "refused")])
def test_the_result_stands_on_top_for_a_minute(operator, at, page, button, past):
    page = page.format(*ask_four())
    operator.open(page)
    before = rows(operator)
    assert sorted(before) == ["text 1", "text 2", "text 3", "text 4"]
    operator.press(button, Message.get(Message.message.startswith(before[1])))
    stays = page == "/desk/messages" or (page != "/desk/" and button == "Approve")
    after = [row for row in before if stays or row != before[1]]
    for seconds, left in ((0, "60 seconds"), (0.001, "59 seconds"), (59, "1 second")):
        at(TUESDAY_NOON + timedelta(seconds=seconds))
        operator.open(page)
        assert rows(operator) == [f"1 text {past}: +1 212-555-0123 Undo for {left}", *after]
    for seconds in (59.001, 60):
        at(TUESDAY_NOON + timedelta(seconds=seconds))
        operator.open(page)
        assert rows(operator) == after


@pytest.mark.parametrize("prefix", ["", "/stage"])
def test_a_button_leads_back_to_its_page(app, prefix):
    asked, visitor = ask_many(60), signed_in(app, "Ann", "front", prefix=prefix)
    visitor.open()
    page = next_page(visitor).removeprefix(prefix)
    answer = visitor.press("Refuse", asked[55], follow=False, on=page)
    assert answer.location == f"{prefix}{page}#list"


def test_it_has_all_results_of_the_minute_each_with_its_undo(approver):
    asked = ask_four()
    approver.press("Approve", asked[2], on="/desk/")
    approver.press("Refuse", asked[0])
    told, *below = rows(approver)
    assert told.index("1 text refused") < told.index("1 text approved")
    assert below == ["text 2", "text 4"]
    (form, refused), (_, approved) = approver.page.buttons("Undo")
    assert (refused["name"], approved["name"]) == ("undo-refuse", "undo-approve")
    approver.post("/desk/", [*form["inputs"], ("undo-refuse", refused["value"])])
    assert (again(asked[0]).status, again(asked[2]).approved) == (Status.SCHEDULED, True)
    told, *below = rows(approver)
    assert told.startswith("Refusal of 1 text undone: +1 212-555-0123 1 text approved")
    assert below == ["text 1", "text 2", "text 4"]
    assert len(approver.page.buttons("Undo")) == 1


def test_several_have_one_result(approver):
    _, second, _, fourth = ask_four()
    decide_on(second).approve("Bob", TUESDAY_NOON)
    approver.press("Refuse selected", selected=[second, fourth], on="/desk/")
    words, *below = rows(approver)
    assert below == ["text 1", "text 3"]
    told = "1 text refused: +1 212-555-0123 1 text not changed: +1 212-555-0123 was approved by Bob"
    assert words.startswith(told)
    assert len(approver.page.buttons("Undo")) == 1
    assert again(second).approved


DECIDED = r"(?:1 text [a-z]+|[A-Z][a-z]+ of 1 text undone):"
PAST = {"Approve": "approved", "Refuse": "refused", "Cancel": "cancelled"}


@pytest.mark.parametrize(
    "buttons",
    [
        *("Approve Undo", "Refuse Undo", "Approve Cancel", "Approve Cancel Undo"),
        *("Approve Undo Refuse", "Refuse Undo Refuse Undo"),
    ],
)
@pytest.mark.parametrize("page", ["/desk/messages", "its own"])
def test_a_new_answer_stands_in_place_of_the_old_one(operator, buttons, page):
    """Only the latest result about a text is shown, in lists and on its own page."""
    others, text = ask_many(3), ask("text 9", send_at=TUESDAY_NOON + HOUR)
    own, last = f"/desk/messages/{text.id}", None
    operator.press("Refuse", others[1], on="/desk/messages")
    for button in buttons.split():
        operator.press(button, text, on=own if page == "its own" else page)
        past = PAST.get(button)
        new = f"1 text {past}:" if past else f"{UNDONE[last]} of 1 text undone:"
        last = past
        operator.open("/desk/messages")
        told = re.findall(DECIDED, operator.page.text)
        assert sorted(told) == sorted(["1 text refused:", new])
        operator.open(own)
        assert re.findall(DECIDED, operator.page.text) == [new]


@pytest.mark.parametrize("first", ["done", "missed"])
def test_of_several_that_were_answered_anew_one_leaves_the_old_result(approver, first):
    """What was done, and what was not, with it."""
    asked = ask_many(3)
    own = f"/desk/messages/{asked[1].id}"
    approver.open()
    if first == "missed":
        decide_on(asked[1]).approve("Bob", TUESDAY_NOON)
    approver.press("Refuse selected", selected=asked)
    approver.open(own)
    anew = "undo-refuse" if first == "done" else "refuse"
    approver.send(own, **{anew: asked[1].id.hex})
    approver.open()
    new = "Refusal of 1 text undone: +1 212-555-0123"
    if first == "missed":
        new = "1 text not changed: +1 212-555-0123 was approved by Bob and waits for the carrier."
    old = "2 texts refused: +1 212-555-0123 , +1 212-555-0123 Undo for 60 seconds"
    assert f"{new} {old}" in [rows(approver)[0], rows(approver)[-1]]


def test_of_many_one_is_undone_on_its_own_page_and_the_others_together(approver):
    asked = ask_many(13)
    approver.press("Refuse selected", selected=asked, on="/desk/")
    approver.open(f"/desk/messages/{asked[1].id}")
    assert "1 text refused: +1 212-555-0123 Undo for 60 seconds" in approver.page.text
    approver.press("Undo")
    assert [again(each).status for each in asked].count(Status.CANCELLED) == 12
    named = " , ".join(["+1 212-555-0123"] * 3)
    assert f"12 texts refused: {named} and 9 more Undo for 60 seconds" in approver.read()
    approver.press("Undo")
    assert "Refusal of 12 texts undone" in approver.page.text
    assert "Waiting for approval 13" in approver.page.text


def test_it_is_of_this_person_and_what_is_still_there(operator):
    first, _ = ask_many(2)
    operator.press("Refuse", first, on="/desk/")
    for page in ("/desk/", "/desk/messages"):
        assert "1 text refused" in operator.read(page)
    first.delete_instance()
    assert "1 text refused" not in operator.read()
    operator.press("Refuse")
    assert "1 text refused" in operator.page.text
    operator.press("Sign out")
    operator.sign_in(issue("Otto", role=Role.OPERATOR))
    assert "1 text refused" not in operator.read()


@pytest.mark.parametrize("other", ["person", "tab"])
def test_of_three_buttons_in_one_millisecond_each_has_its_own_texts(app, approver, other):
    asked = ask_many(3)
    approver.open()
    second = signed_in(app, "Bob", "front") if other == "person" else copy_of(approver, app)
    visitors = (approver, second, copy_of(approver, app))
    for visitor, text in zip(visitors, asked, strict=True):
        visitor.press("Refuse", text, on="/desk/")
    for visitor, text in zip(visitors, asked, strict=True):
        told, *_ = rows(visitor)
        assert told == "1 text refused: +1 212-555-0123 Undo for 60 seconds"
        visitor.press("Undo")
        assert not again(text).finished_at


ROOM = 3_200  # characters


def test_what_there_is_no_room_for_is_the_oldest(approver):
    asked = ask_many(150)
    for start in range(0, 150, 50):
        approver.open()
        approver.press("Refuse selected" if start else "Approve selected", selected=asked[:50])
        del asked[:50]
    assert "50 texts approved" not in approver.read()
    assert approver.page.text.count("50 texts refused") == 2


@pytest.mark.parametrize("decided_by", ["Olga", "Bob"])
def test_the_cookie_has_room_for_any_search_beside_texts_decided_one_by_one(
    operator, at, decided_by
):
    """And for other cookies: the web answers 431 where all of a host's are more than 4 KB."""
    chance, asked = random.Random(1), []
    for _ in range(75):
        send_at = TUESDAY_NOON + timedelta(milliseconds=chance.randrange(10**10))
        asked.append(ask(id=uuid.UUID(int=chance.getrandbits(128)), send_at=send_at))
        if decided_by == "Bob":
            decide_on(asked[-1]).decide(False, "Bob", TUESDAY_NOON)
    operator.open("/desk/messages")
    operator.press("Show", find="".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(60)))
    operator.open()
    for n, each in enumerate(asked):
        at(TUESDAY_NOON + timedelta(milliseconds=n * 700 + chance.randrange(700)))
        operator.send("/desk/", refuse=str(each.id))
        assert len(operator.client.get_cookie("desk", path="/desk/").value) < ROOM
    told = "1 text refused" if decided_by == "Olga" else "Bob has already refused this text."
    assert operator.page.text.count(told) == 51


def test_the_cookie_of_an_older_version_is_understood_and_leaves_room(operator, at):
    """It had the ids of what was changed, too."""
    with operator.client.session_transaction("/desk/") as session:
        ids = [uuid.UUID(int=n) for n in range(50)]
        session["results"] = [[1772557200000, "refuse", ids[:3], ids[:3], 60, 9], [1, "x", ids, []]]
    before = len(operator.client.get_cookie("desk", path="/desk/").value)
    operator.press("Refuse", ask(), on="/desk/")
    assert rows(operator) == ["1 text refused: +1 212-555-0123 Undo for 60 seconds"]
    assert len(operator.client.get_cookie("desk", path="/desk/").value) < before


@pytest.mark.parametrize("count", [5, 60])
def test_it_names_those_that_were_to_be_sent_first(approver, count):
    for n in range(count):
        later = TUESDAY_NOON + DAY - n * MINUTE
        ask("Hi", to=f"+1212555{n + 100:04}", status=Status.SCHEDULED, send_at=later)
    approver.press("Refuse all", on="/desk/")
    named = " , ".join(f"+1 212-555-{n + 99:04}" for n in (count, count - 1, count - 2))
    assert f"{count} texts refused: {named} and {count - 3} more" in approver.page.text


# The boxes


@pytest.mark.parametrize("button", ["Approve", "Undo"])
def test_the_boxes_stay_ticked(approver, button):
    asked = ask_many(4)
    approver.open()
    if button == "Undo":
        approver.press("Refuse", asked[0])
    message = None if button == "Undo" else asked[0]
    approver.press(button, message, selected=[*asked[1:3], asked[0]])
    left = asked[1:3]
    assert ticked(approver) == [str(each.id) for each in left]
    approver.open(approver.at)
    assert len(ticked(approver)) == len(left)
    approver.press("Refuse selected")
    assert ticked(approver) == []
    assert not approver.at.endswith("select=")
    assert [again(each).status for each in left] == [Status.CANCELLED] * len(left)
    asked = ask_many(50, first=10)
    approver.press("Refuse", asked[7], on="/desk/?select=all")
    assert len(ticked(approver)) == 49
    assert str(asked[7].id) not in ticked(approver)


@pytest.mark.parametrize("ids", [["x"], ["\0"], ["é" * 3000], ["a.b", "&after=1"], [""]])
def test_boxes_of_nothing_change_nothing(approver, ids):
    message = ask()
    approver.open()
    sent = [("csrf_token", approver.token), ("approve", str(message.id))]
    response = approver.post("/desk/", [*sent, *(("id", each) for each in ids)])
    assert response.status_code == 200
    assert again(message).approved
    assert ticked(approver) == []
