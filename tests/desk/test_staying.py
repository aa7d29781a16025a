"""After a decision the page stays where it was: the result, the boxes, and what comes next."""

import itertools
import re
from datetime import timedelta

import pytest

from access.keys import Role
from database import MILLISECOND
from databases import on_sqlite
from desk import results
from desk_visitor import PAGES, Visitor, ask, ask_many, following, issue, next_page, rows
from models import Message, Status
from reports import Place
from samples import LONDON, TUESDAY_NOON
from sending import receipts
from stored_messages import HOUR, again, store

MINUTE = timedelta(minutes=1)
LISTS = ("/desk/", "/desk/messages", "/desk/messages?status=scheduled")


def ask_four():
    """Texts in the order of the first page, which is not that in which they were created."""
    return [
        ask(f"text {n}", status=Status.SCHEDULED, send_at=TUESDAY_NOON + n * HOUR)
        for n in (3, 1, 4, 2)
    ]


def ticked(visitor):
    return [
        value for form in visitor.page.forms for _, value, is_ticked in form["boxes"] if is_ticked
    ]


@pytest.mark.parametrize("page", LISTS)
@pytest.mark.parametrize("button", ["Approve", "Refuse"])
def test_the_result_stands_where_the_card_was(operator, page, button):
    asked = ask_four()
    operator.open(page)
    before = rows(operator)
    assert sorted(before) == ["text 1", "text 2", "text 3", "text 4"]
    decided = next(each for each in asked if each.message == before[1])
    operator.press(button, decided)
    words = f"1 text {button.lower().rstrip('e')}ed: +1 212-555-0123 Undo for 60 seconds"
    after = rows(operator)
    assert words in after[1]
    is_there = page != "/desk/" and (button == "Approve" or page == "/desk/messages")
    assert after[:1] + after[2:] == [each for each in before if is_there or each != before[1]]


@pytest.mark.parametrize("page", LISTS)
def test_it_stands_there_after_a_reload_and_back_too_for_a_minute(operator, at, page):
    ask_four()
    operator.open(page)
    operator.press("Refuse", again(Message.get(Message.message == "text 2")))
    shown = rows(operator)
    for seconds, left in ((0, "60 seconds"), (59, "1 second"), (59.5, None), (60, None)):
        at(TUESDAY_NOON + timedelta(seconds=seconds))
        operator.open(page)
        if left:
            assert rows(operator) == [each.replace("60 seconds", left) for each in shown]
            assert operator.page.buttons("Undo")
        else:
            assert "refused:" not in operator.page.text
            assert not operator.page.buttons("Undo")


def test_each_of_several_decisions_stands_at_its_place_and_is_undone_by_itself(approver):
    ask_four()
    first, third = (again(Message.get(Message.message == f"text {n}")) for n in (1, 3))
    approver.open()
    approver.press("Approve", third)
    approver.press("Refuse", first)
    there = rows(approver)
    assert ["refused" in there[0], "approved" in there[2]] == [True, True]
    assert [there[1], there[3]] == ["text 2", "text 4"]
    (form, undo), _ = approver.page.buttons("Undo")
    sent = [*form["inputs"], (undo["name"], undo["value"])]
    approver.post("/desk/", sent)
    assert (again(first).status, again(third).approved) == (Status.SCHEDULED, True)
    there = rows(approver)
    assert "1 text no longer refused: +1 212-555-0123" in there[0]
    assert "Undo" not in there[0]
    assert there[1:3] == ["text 1", "text 2"]
    assert "1 text approved" in there[3]
    assert following(approver) == str(first.id)


PAST = {"Approve": "approved", "Refuse": "refused", "Cancel": "cancelled"}
MOVES = (
    *("Approve Undo", "Refuse Undo", "Approve Cancel", "Approve Cancel Undo"),
    *("Approve Undo Refuse", "Refuse Undo Refuse Undo"),
)
"""Buttons of one text, one after the other."""


@on_sqlite
@pytest.mark.parametrize("buttons", MOVES)
@pytest.mark.parametrize("page", ["/desk/messages", "its own"])
@pytest.mark.parametrize("seconds", [0, 5])
def test_a_new_answer_stands_in_place_of_the_old_one(operator, at, buttons, page, seconds):
    """Only the latest result about a text is shown, in lists and on its own page."""
    others, text = ask_many(3), ask("text 9", send_at=TUESDAY_NOON + HOUR)
    operator.open("/desk/messages")
    operator.press("Refuse", others[1])
    own, past = f"/desk/messages/{text.id}", None
    for n, button in enumerate(buttons.split()):
        at(TUESDAY_NOON + n * timedelta(seconds=seconds))
        operator.open(own if page == "its own" else page)
        operator.press(button, text)
        past = PAST.get(button) or f"no longer {past}"
        operator.open("/desk/messages")
        told = re.findall(r"1 text ([a-z ]+ed):", operator.page.text)
        assert sorted(told) == sorted(["refused", past])
        operator.open(own)
        assert re.findall(r"1 text ([a-z ]+ed):", operator.page.text) == [past]


@on_sqlite
@pytest.mark.parametrize("first", ["done", "missed"])
def test_of_several_that_were_answered_anew_one_leaves_the_old_result(approver, first):
    """What was done, and what was not, with it."""
    asked = ask_many(3)
    approver.open()
    if first == "missed":
        asked[1].approve("Bob", TUESDAY_NOON)
    approver.press("Refuse selected", selected=asked)
    old = rows(approver)[0]
    assert old.startswith("3 texts refused" if first == "done" else "2 texts refused")
    assert ("1 text not changed" in old) is (first == "missed")
    approver.open(f"/desk/messages/{asked[1].id}")
    approver.post(f"/desk/messages/{asked[1].id}", [
        ("csrf_token", approver.token),
        ("undo-refuse" if first == "done" else "refuse", asked[1].id.hex),
    ])  # fmt: skip
    approver.open()
    old = next(row for row in rows(approver) if row.startswith("2 texts refused"))
    assert "not changed" not in old
    new = [row for row in rows(approver) if row.startswith("1 text")]
    assert len(new) == 1
    assert ("no longer refused" if first == "done" else "1 text not changed") in new[0]


def test_several_have_one_result_where_the_first_was(approver):
    ask_four()
    second, fourth = (again(Message.get(Message.message == f"text {n}")) for n in (2, 4))
    second.approve("Bob", TUESDAY_NOON)
    approver.open()
    approver.press("Refuse selected", selected=[second, fourth])
    there = rows(approver)
    assert [there[0], there[2]] == ["text 1", "text 3"]
    assert (
        "1 text refused: +1 212-555-0123 1 text not changed: +1 212-555-0123 was approved"
        in there[1]
    )
    assert len(approver.page.buttons("Undo")) == 1
    assert again(second).approved


def test_the_focus_goes_on_to_the_card_below_or_stays_with_the_result(approver):
    asked = sorted(ask_four(), key=lambda message: message.message)
    for decided, goes_to in ((1, 2), (0, 2), (3, None), (2, None)):
        approver.open()
        response = approver.press("Approve", asked[decided], follow=False)
        assert response.location.endswith("#next")
        approver.open()
        assert following(approver) == (str(asked[goes_to].id) if goes_to else "result")
    described = [a for _, a in approver.page.elements if a.get("aria-describedby") == "result"]
    assert described == []


def test_what_has_the_focus_says_what_was_done(approver):
    asked = sorted(ask_four(), key=lambda message: message.message)
    approver.open()
    approver.press("Approve", asked[0])
    (card,) = (a for _, a in approver.page.elements if a.get("id") == "next")
    assert (card["tabindex"], card["aria-describedby"]) == ("-1", "result")
    assert [a["role"] for _, a in approver.page.elements if a.get("id") == "result"] == ["status"]


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


def test_all_but_one_stay_ticked(approver):
    asked = ask_many(50)
    approver.open("/desk/?select=all")
    approver.press("Refuse", asked[7])
    assert ticked(approver) == [str(each.id) for each in asked if each != asked[7]]


@pytest.mark.parametrize("ids", [["x"], ["\0"], ["é" * 3000], ["a.b", "&after=1"], [""]])
def test_boxes_of_nothing_change_nothing(approver, ids):
    message = ask()
    approver.open()
    sent = [("csrf_token", approver.token), ("approve", str(message.id))]
    response = approver.post("/desk/", [*sent, *(("id", each) for each in ids)])
    assert response.status_code == 200
    assert again(message).approved
    assert ticked(approver) == []


def test_a_result_stands_on_its_own_page_alone(approver):
    asked = ask_many(120)
    approver.open()
    second = next_page(approver)
    approver.open(second)
    approver.press("Approve", asked[70])
    assert "1 text approved" in rows(approver)[20]
    assert following(approver) == str(asked[71].id)
    third = next_page(approver)
    for page, is_there in (("/desk/", False), (second, True), (third, False)):
        approver.open(page)
        assert ("1 text approved" in approver.page.text) is is_there
    approver.open(third)
    approver.press("Refuse", asked[119])
    assert "1 text refused" in rows(approver)[-1]
    assert following(approver) == "result"


def test_results_of_a_page_that_became_empty_are_shown(approver):
    asked = ask_many(51)
    approver.open()
    approver.open(next_page(approver))
    approver.press("Approve", asked[50])
    assert "1 text approved" in approver.page.text
    assert "No more texts are waiting" in approver.page.text
    approver.press("Undo")
    assert rows(approver)[1:] == ["text 50"]


@on_sqlite
def test_a_retry_is_told_where_the_message_was(operator):
    failed = [
        store(status=Status.FAILED, message=f"text {n}", finished_at=TUESDAY_NOON, to=LONDON)
        for n in range(3)
    ]
    for page in ("/desk/messages?status=failed", f"/desk/messages?like={failed[0].id}"):
        operator.open(page)
        before = [row for row in rows(operator) if row.startswith("text")]
        operator.press("Retry", failed[1])
        where = before.index(failed[1].message)
        assert "1 text retried: +44 20 8366 1177" in rows(operator)[where]
        Message.update(status=Status.FAILED, finished_at=TUESDAY_NOON).execute()


@on_sqlite
def test_undo_is_offered_only_as_long_as_it_can_be(approver):
    message = ask()
    approver.open()
    approver.press("Approve", message)
    receipts.sent({message.id: None}, TUESDAY_NOON)
    approver.open()
    assert "1 text approved: +1 212-555-0123" in approver.page.text
    assert not approver.page.buttons("Undo")
    Message.delete().execute()
    assert "approved" not in approver.open().text


@on_sqlite
def test_one_of_several_is_undone_on_its_own_page(approver):
    asked = ask_many(3)
    approver.open()
    approver.press("Refuse selected", selected=asked)
    approver.open(f"/desk/messages/{asked[1].id}")
    assert "1 text refused: +1 212-555-0123 Undo for 60 seconds" in approver.page.text
    approver.press("Undo")
    assert [again(each).status for each in asked].count(Status.CANCELLED) == 2
    approver.open()
    assert "2 texts refused" in approver.page.text


@on_sqlite
def test_below_a_prefix_the_page_stays_too(app):
    asked, visitor = ask_many(3), Visitor(app, "/stage")
    visitor.sign_in(issue("Ann", "front"))
    visitor.open()
    answer = visitor.press("Approve", asked[0], selected=[asked[2]], follow=False)
    assert answer.location == f"/stage/desk/?select={asked[2].id}#next"
    visitor.open(answer.location.removeprefix("/stage").partition("#")[0])
    assert following(visitor) == str(asked[1].id)
    assert ticked(visitor) == [str(asked[2].id)]


@on_sqlite
def test_another_person_in_the_same_browser_sees_no_results(approver):
    message = ask()
    approver.open()
    approver.press("Refuse", message)
    approver.press("Sign out")
    approver.sign_in(issue("Olga", role=Role.OPERATOR))
    assert "refused" not in approver.page.text.replace("refused the", "")


@pytest.mark.slow
@on_sqlite
def test_the_cookie_has_room_for_many_decisions(approver):
    asked = ask_many(120)
    for start in range(0, 100, 50):
        approver.open()
        approver.press("Refuse selected", selected=asked[start : start + 50])
    for each in asked[100:]:
        approver.press("Refuse", each)
        assert len(approver.client.get_cookie("desk", path="/desk/").value) < 3000
    assert approver.page.text.count("1 text refused") == 20
    assert "50 texts refused" in approver.page.text


def test_a_result_lasts_a_minute_to_the_second(app):
    made = results.Result("approve", TUESDAY_NOON, Place(TUESDAY_NOON, None), [], [], None)
    for after, left in (
        (0 * MINUTE, 60),
        (MILLISECOND, 59),
        (MINUTE - MILLISECOND, 0),
        (MINUTE, 0),
    ):
        made.now = TUESDAY_NOON + after
        assert made.left == left


def test_results_and_cards_are_in_order_in_every_mix(app):
    """Nothing is shown twice, nothing out of order, and nothing of other pages."""
    instants = [TUESDAY_NOON + n * MINUTE for n in range(4)]

    class Card:
        def __init__(self, place):
            self.place = place

    for decided in itertools.product([False, True], repeat=4):
        for after, is_last in itertools.product([None, 0, 1], [False, True]):
            places = [Place(at, n) for n, at in enumerate(instants)]
            cards = [Card(p) for p, is_gone in zip(places, decided, strict=True) if not is_gone]
            cards = [c for c in cards if after is None or c.place > places[after]]
            done = [
                results.Result("approve", at, p, [], [], at)
                for p, is_gone, at in zip(places, decided, instants, strict=True)
                if is_gone
            ]
            there, latest, _ = results.among(
                cards, done, tuple, after if after is None else places[after], is_last
            )
            order = [row.place for row in there]
            assert order == sorted(order)
            assert [row for row in there if isinstance(row, Card)] == cards
            if is_last:
                assert len(there) == len([p for p in places if after is None or p > places[after]])
            assert latest is max(
                (r for r in there if isinstance(r, results.Result)),
                key=lambda r: r.at,
                default=None,
            )


@on_sqlite
def test_no_name_stands_twice_on_a_page(operator):
    asked = ask_many(3)
    for each in asked:
        operator.open()
        operator.press("Approve", each)
        for page in (*PAGES, f"/desk/messages/{each.id}"):
            operator.open(page)
            named = [attrs["id"] for _, attrs in operator.page.elements if "id" in attrs]
            assert len(named) == len({*named}), page


@on_sqlite
def test_what_the_cookie_has_no_room_for_is_the_oldest(approver):
    asked = ask_many(90)
    for start, words in ((0, "Approve selected"), (30, "Refuse selected"), (60, "Refuse selected")):
        approver.open()
        approver.press(words, selected=asked[start : start + 30])
    approver.open()
    assert "30 texts approved" not in approver.page.text
    assert approver.page.text.count("30 texts refused") == 2
