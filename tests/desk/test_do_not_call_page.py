"""The Do Not Call page: results beside the form, and a change is undone for a minute."""

from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall, DoNotCallHistory, LastReply
from access.keys import Role
from database import Refused
from databases import on_both
from desk_visitor import reply, signed_in
from samples import DAY, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from sending.replies import Reply

PAGE = "/desk/do-not-call"


@pytest.fixture
def page(operator):
    """The page before an operator."""
    operator.open(PAGE)
    return operator


def entry():
    """Why and since when the number is listed; None if it is not."""
    listed = DoNotCall.entry(NEW_YORK)
    return listed and (listed.source, listed.added_at)


def history():
    return [(each.what, each.why, each.who) for each in DoNotCallHistory.of(NEW_YORK)]


def test_an_operator_keeps_the_list(page):
    for button, words, listed in (
        ("Check", "is not on the list", False),
        ("Add", "is on the list now", True),
        ("Add", "was already on the list", True),
        ("Check", "has been on the list since 2026-03-03, added by an operator", True),
        ("Remove", "is no longer on the list", False),
        ("Remove", "was not on the list", False),
    ):
        page.press(button, number="+1 (212) 555-0123")
        text = page.page.text
        assert text.index("Remove") < text.index(f"+1 212-555-0123 {words}")
        (result,) = (attrs for _, attrs in page.page.elements if attrs.get("id") == "next")
        assert "autofocus" in result
        assert DoNotCall.lists(NEW_YORK) is listed


def test_a_listed_number_that_is_valid_no_more_is_checked_and_removed(page):
    DoNotCall.add(["+22501234567"], TUESDAY_NOON, "reply")
    for button, words in (("Check", "has been on the list"), ("Remove", "is no longer on the")):
        page.press(button, number="+225 01 23 45 67")
        assert f"+22501234567 {words}" in page.page.text
    assert not DoNotCall.lists("+22501234567")


def test_the_country_of_national_numbers_is_asked_for_once(page):
    assert "Country" not in page.page.text
    for region, words in ((None, "and its country"), ("xx", "two letters"), ("US", "its country")):
        given = {"region": region} if region else {}
        assert page.press("Add", number="020 8366 1177", **given).status_code == 400
        assert words in page.page.text
        assert "Country of numbers without +" in page.page.text
    page.press("Add", number="020 8366 1177", region="gb")
    assert "+44 20 8366 1177 is on the list now" in page.page.text
    assert DoNotCall.lists(LONDON)
    assert "Number without + of GB" in page.page.text
    assert "Country" not in page.page.text
    page.press("Remove", number="020 8366 1177")
    assert not DoNotCall.lists(LONDON)
    page.press("Add", number="+1")
    assert "Country of" not in page.page.text


@pytest.mark.parametrize("button", ["Check", "Add", "Remove"])
def test_what_is_no_number_joins_no_list(page, button):
    for number in ("", "0", "+", "+1", "112", "\0", "<b>", "+1" * 5000):
        assert page.press(button, number=number).status_code == 400, number
        assert "country code" in page.page.text
        assert "<b>" not in page.response.text
        assert DoNotCall.select().count() == 0


@on_both
@pytest.mark.parametrize("source", [None, "reply", "import", "carrier", "operator"])
def test_a_change_is_undone_to_what_was_before(page, at, source):
    if source:
        who = "Bob" if source == "operator" else None
        DoNotCall.add([NEW_YORK], TUESDAY_NOON - DAY, source, who)
    before, button = entry(), "Remove" if source else "Add"
    listed, gone = "is on the list now", "is no longer on the list"
    page.press(button, number=NEW_YORK)
    at(TUESDAY_NOON + MINUTE - timedelta(seconds=1))
    for _ in range(2):  # after a reload too
        page.open(PAGE)
        told = gone if source else listed
        assert f"+1 212-555-0123 {told}. Undo for 1 second" in page.page.text
    page.press("Undo")
    assert entry() == before
    assert f"+1 212-555-0123 {listed if source else gone}." in page.page.text
    assert not page.page.buttons("Undo")
    assert [who for _, _, who in history()[-2:]] == ["Olga", "Olga"]


def test_a_check_takes_no_undo_away(page):
    page.press("Add", number=NEW_YORK)
    page.press("Check", number=LONDON)
    told = "+44 20 8366 1177 is not on the list. +1 212-555-0123 is on the list now. Undo"
    assert told in page.page.text
    page.press("Undo")
    assert not DoNotCall.lists(NEW_YORK)


def test_after_a_minute_it_is_not_undone_and_never_by_others(app, page, approver, at):
    page.press("Add", number=NEW_YORK)
    form, undo = page.page.buttons("Undo")[0]
    assert approver.send(PAGE, undo=undo["value"]).status_code == 403
    assert approver.send(PAGE, number=NEW_YORK, remove="").status_code == 403
    text = signed_in(app, "Otto", role=Role.OPERATOR).read(PAGE)
    assert "555" not in text.replace("+1 212 555 0123", "")
    at(TUESDAY_NOON + MINUTE)
    assert "is on the list now" not in page.read(PAGE)
    page.post(PAGE, [*form["inputs"], ("undo", undo["value"])])
    assert "Undo works for one minute" in page.page.text
    assert DoNotCall.lists(NEW_YORK)


@pytest.mark.parametrize("stop_at", [-30, 30])
def test_a_stop_meanwhile_stays(page, stop_at):
    """A number that is listed keeps no second reason; its last reply tells."""
    page.press("Add", number=NEW_YORK)
    said_at = TUESDAY_NOON + timedelta(seconds=stop_at)  # by a carrier's clock
    assert LastReply.note(NEW_YORK, said_at, said_at)
    DoNotCall.add([NEW_YORK], said_at, "reply")
    before = history()
    page.press("Undo")
    assert "The recipient has replied meanwhile" in page.page.text
    assert DoNotCall.lists(NEW_YORK)
    assert history() == before


def test_only_the_last_change_of_the_same_person_is_undone(page):
    page.press("Add", number=NEW_YORK)
    (mine,) = DoNotCallHistory.of(NEW_YORK)
    since = TUESDAY_NOON - MINUTE
    for change, who in ((mine.id, "Bob"), (mine.id + 1, "Olga"), (10**30, "Olga"), (-1, "Olga")):
        with pytest.raises((Refused, OverflowError)):
            DoNotCall.undo(change, who, since, TUESDAY_NOON)
    DoNotCall.remove([NEW_YORK], TUESDAY_NOON, "operator", "Olga")
    with pytest.raises(Refused):
        DoNotCall.undo(mine.id, "Olga", since, TUESDAY_NOON)
    assert len(history()) == 2
    DoNotCall.add([LONDON], TUESDAY_NOON, "import", "Olga")
    with pytest.raises(Refused):
        DoNotCall.undo(DoNotCallHistory.latest(LONDON).id, "Olga", since, TUESDAY_NOON)


def test_a_change_is_not_shown_any_more_once_something_else_has_happened_to_the_number(page):
    page.press("Add", number=NEW_YORK)
    DoNotCall.remove([NEW_YORK], TUESDAY_NOON, "operator", "shell")
    assert "is on the list now" not in page.read(PAGE)
    assert not page.page.buttons("Undo")


def test_a_number_without_a_button_changes_nothing(page):
    page.press("Add", number=NEW_YORK)
    assert page.send(PAGE, number=NEW_YORK).status_code == 400
    assert DoNotCall.lists(NEW_YORK)


@on_both
@pytest.mark.parametrize("change", ["", "x", "-1", "9" * 30, "9" * 5000, "\0", "1.5", "٣"])
def test_a_change_that_there_is_none_of_is_no_error_of_ours(page, change):
    assert page.send(PAGE, undo=change).status_code in (200, 400)


def test_a_reply_that_came_before_a_removal_was_undone_is_decided(page):
    """It came while the number was off the list, so it may be a no; now that is nobody's task."""
    page.press("Add", number=NEW_YORK)
    page.press("Remove", number=NEW_YORK)
    came = reply(0, number=NEW_YORK, text="stpo", may_be_no=True)
    page.press("Undo")
    assert DoNotCall.lists(NEW_YORK)
    came = Reply.get_by_id(came.id)
    assert (came.may_be_no, came.read_by) == (False, "Olga")
