"""After a button the page "Replies" stays where it was: the result, and the reply that is next."""

import uuid
from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall, LastReply
from access.keys import ApiKey, Role
from carriers import Reply as Said
from carriers.ways import Way
from databases import on_sqlite
from desk import lists
from desk_visitor import PAGES, Visitor, ask, following, issue, next_page, rows
from models import Status
from samples import LONDON, TUESDAY_NOON
from sending import inbound
from sending.inbound import ReplyRules
from sending.replies import Reply, order
from stored_messages import HOUR, held, key_named

MINUTE = timedelta(minutes=1)
PAGE = "/desk/replies"
RULES = ReplyRules(Way("twilio"), False, None, None)
ORDER = ["reply a", "reply b", "reply c", "reply d", "reply e", "reply f"]
"""Two that may be a no, two that wait, and two that were read."""


def number(n):
    return f"+1212555{n:04}"


def written(n):
    return f"+1 212-555-{n:04}"


@pytest.fixture
def heard(database_url):
    """Replies of six people to texts of the group, in the order of the page."""
    for n, words in enumerate(("f", "e", "d", "c", "b: stpo", "a: stpo")):
        to, at = number(n), TUESDAY_NOON - HOUR + n * MINUTE
        held(
            Status.SENT, to=to, key=key_named("shop", "front"), message="Hello", finished_at=at,
            available_to_group=True, created_at=TUESDAY_NOON - 2 * HOUR,
        )  # fmt: skip
        inbound.record([Said(to, f"reply {words}", at)], TUESDAY_NOON, RULES)
    told = {each.text[:7]: each for each in Reply.select()}
    Reply.mark_read([told["reply e"].id, told["reply f"].id], "Bob", TUESDAY_NOON)
    return [told[words] for words in ORDER]


def store_many(count):
    """Unread replies in the order of the page, to no text."""
    return [
        Reply.create(
            id=uuid.uuid4(), carrier="x", number=number(n), text=f"reply {n}",
            at=TUESDAY_NOON - n * MINUTE, received_at=TUESDAY_NOON,
        )
        for n in range(count)
    ]  # fmt: skip


def test_places_are_in_the_order_of_the_page(heard):
    """Also those of one instant."""
    Reply.update(at=TUESDAY_NOON).where(Reply.number != number(0)).execute()
    store_many(5)
    Reply.update(at=TUESDAY_NOON - MINUTE).where(Reply.at < TUESDAY_NOON - MINUTE).execute()
    person = ApiKey(id=1, name="Olga", role=Role.OPERATOR)
    places = [each.place for each in Reply.page(person, None, 50, TUESDAY_NOON)]
    assert len({place.at for place in places}) < len(places) == 11
    assert places == sorted(places, key=order)


def results(visitor):
    return [row for row in rows(visitor) if row not in ORDER]


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("button", "words"),
    [
        ("Mark as read", "The reply of {} was marked as read."),
        ("Add to Do Not Call", "{} is on the Do Not Call list now. Undo for 60 seconds"),
    ],
)
def test_the_result_stands_where_the_reply_was(operator, heard, button, words, n):
    operator.open(PAGE)
    assert rows(operator) == ORDER
    operator.press(button, heard[n])
    there = rows(operator)
    assert there[n] == words.format(written(5 - n))
    left = [each for each in ORDER if each != ORDER[n]]
    left.insert([*left, "reply e"].index("reply e"), ORDER[n])  # on top of those that were read
    assert there[:n] + there[n + 1 :] == left
    assert following(operator) == str(heard[n + 1 if n < 3 else n].id)


def test_each_of_several_results_stands_at_its_place(approver, heard):
    approver.open(PAGE)
    for n in (2, 0, 3):
        approver.press("Mark as read", heard[n])
    there = rows(approver)
    told = [f"The reply of {written(5 - n)} was marked as read." for n in (0, 2, 3)]
    assert there == [
        told[0], "reply b", told[1], told[2], "reply a", "reply c", "reply d", "reply e", "reply f",
    ]  # fmt: skip
    assert following(approver) == str(heard[0].id)


def test_it_stands_there_after_a_reload_and_back_too_for_a_minute(operator, heard, at):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[2])
    shown = rows(operator)
    for seconds, left in ((0, "60 seconds"), (30, "30 seconds"), (59, "1 second"), (60, None)):
        at(TUESDAY_NOON + timedelta(seconds=seconds))
        for path in (PAGE, operator.at):
            operator.open(path)
            if left:
                assert rows(operator) == [each.replace("60 seconds", left) for each in shown]
            else:
                assert results(operator) == []
                assert not operator.page.buttons("Undo")


@on_sqlite
def test_what_was_done_stands_beside_the_focus_in_words(approver, heard):
    approver.open(PAGE)
    response = approver.press("Mark as read", heard[1], follow=False)
    assert response.location == f"{PAGE}#next"
    approver.open(PAGE)
    (card,) = (a for _, a in approver.page.elements if a.get("id") == "next")
    assert (card["tabindex"], card["aria-describedby"]) == ("-1", "result")
    assert [a["role"] for _, a in approver.page.elements if a.get("id") == "result"] == ["status"]
    named = [attrs["id"] for _, attrs in approver.page.elements if "id" in attrs]
    assert len(named) == len({*named})


def test_a_page_further_on_keeps_its_place(operator):
    stored = store_many(120)
    operator.open(PAGE)
    second = next_page(operator)
    operator.open(second)
    response = operator.press("Mark as read", stored[70], follow=False)
    assert response.location == f"{second}#next"
    operator.open(second)
    there = rows(operator)
    assert there[20] == f"The reply of {written(70)} was marked as read."
    assert there[:20] + there[21:] == [f"reply {n}" for n in range(50, 101) if n != 70]
    assert following(operator) == str(stored[71].id)
    third = next_page(operator)
    for page, is_there in ((PAGE, False), (second, True), (third, False)):
        operator.open(page)
        assert ("was marked as read" in operator.page.text) is is_there
    operator.press("Mark as read", stored[119])
    told = f"The reply of {written(119)} was marked as read."
    assert rows(operator)[-3:] == [told, "reply 70", "reply 119"]


@on_sqlite
def test_who_was_not_the_first_is_told_so_where_the_reply_was(approver, heard):
    approver.open(PAGE)
    (form, button), *_ = approver.page.buttons("Mark as read")
    Reply.mark_read([heard[0].id], "Bob", TUESDAY_NOON)
    approver.post(PAGE, [*form["inputs"], (button["name"], button["value"])])
    assert rows(approver)[0] == f"The reply of {written(5)} was read before."
    assert following(approver) == str(heard[1].id)


def test_a_number_is_taken_off_the_list_again(operator, heard):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    operator.press("Undo")
    assert not DoNotCall.lists(number(4))
    words = f"{written(4)} is no longer on the Do Not Call list. The reply stays read."
    assert rows(operator)[1] == words
    assert not operator.page.buttons("Undo")
    assert Reply.get_by_id(heard[1].id).read_by == "Olga"
    assert following(operator) == str(heard[2].id)
    operator.press("Add to Do Not Call", heard[1])
    assert DoNotCall.lists(number(4))
    assert results(operator) == [
        f"{written(4)} is on the Do Not Call list now. Undo for 60 seconds"
    ]


def stop(reply):
    LastReply.note(reply.number, TUESDAY_NOON, TUESDAY_NOON)


def remove(reply):
    DoNotCall.remove([reply.number], TUESDAY_NOON, "operator", "Olga")


@on_sqlite
@pytest.mark.parametrize("meanwhile", [stop, remove, None])
def test_what_happened_meanwhile_is_not_undone(operator, heard, at, meanwhile):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    (form, undo), *_ = operator.page.buttons("Undo")
    meanwhile(heard[1]) if meanwhile else at(TUESDAY_NOON + MINUTE)
    operator.post(PAGE, [*form["inputs"], (undo["name"], undo["value"])])
    assert DoNotCall.lists(number(4)) is (meanwhile is not remove)
    assert rows(operator)[1].startswith(f"{written(4)} was not changed. Undo works for one minute")


@on_sqlite
def test_an_approver_takes_no_number_off_the_list(operator, approver, heard):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    approver.open(PAGE)
    sent = [("csrf_token", approver.token), ("undo-list", lists.write(heard[1].place))]
    assert approver.post(PAGE, sent).status_code == 403
    assert DoNotCall.lists(number(4))


@on_sqlite
def test_others_and_other_pages_show_no_result(operator, app, heard):
    operator.open(PAGE)
    operator.press("Mark as read", heard[0])
    for page in PAGES:
        operator.open(page)
        assert ("was marked as read" in operator.page.text) is (page == PAGE)
    operator.press("Sign out")
    operator.sign_in(issue("Otto", role=Role.OPERATOR))
    operator.open(PAGE)
    assert results(operator) == []


@on_sqlite
def test_a_reply_that_is_gone_has_no_result(operator, heard):
    operator.open(PAGE)
    operator.press("Mark as read", heard[0])
    Reply.delete().where(Reply.id == heard[0].id).execute()
    operator.open(PAGE)
    assert rows(operator) == ORDER[1:]


@on_sqlite
def test_below_a_prefix_the_page_stays_too(app, heard):
    visitor = Visitor(app, "/stage")
    visitor.sign_in(issue("Ann", "front"))
    visitor.open(PAGE)
    answer = visitor.press("Mark as read", heard[0], follow=False)
    assert answer.location == f"/stage{PAGE}#next"


@on_sqlite
def test_a_texts_own_page_leads_back_after_a_button(approver, heard):
    path = f"/desk/messages/{heard[0].message_id}?back=replies"
    approver.open(path)
    approver.press("Mark as read", heard[0])
    assert approver.at == path
    assert f"{PAGE}#to-{heard[0].message_id}" in approver.page.links
    assert f"The reply of {written(5)} was marked as read." in approver.page.text


@pytest.mark.slow
@on_sqlite
def test_the_cookie_has_room_for_the_results_of_both_lists(operator):
    stored = store_many(50)
    asked = [ask(to=LONDON, send_at=TUESDAY_NOON + n * MINUTE) for n in range(50)]
    operator.open()
    operator.press("Refuse selected", selected=asked)
    for each in stored:
        operator.open(PAGE)
        operator.press("Add to Do Not Call", each)
        assert len(operator.client.get_cookie("desk", path="/desk/").value) < 3900
    assert operator.page.text.count("is on the Do Not Call list now") == 50
    operator.open()
    assert "50 texts refused" not in operator.page.text
