"""The Do Not Call page: numbers are checked, added and removed, with the result beside the form."""

import pytest

from samples import LONDON, NEW_YORK, TUESDAY_NOON
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, OptedOut
from texting.access.do_not_call import listed as listed_among

PAGE = "/desk/do-not-call"


@pytest.fixture
def page(operator):
    """The page before an operator."""
    operator.open(PAGE)
    return operator


ENTRY = "as an entry, and gets no texts that set check_dnc."
OPT_OUT = "as an opt-out, and gets no texts."


def test_an_operator_keeps_the_list(page):
    wants_none = {"opted_out": "yes"}
    for button, given, words, listed in (
        ("Check", {}, "is not on the Do Not Call list.", None),
        ("Add", {}, f"is on the Do Not Call list now, {ENTRY}", False),
        ("Add", {}, f"was already on the Do Not Call list, {ENTRY}", False),
        ("Check", {}, f"since 2026-03-03, added by an operator, {ENTRY}", False),
        ("Add", wants_none, f"is on the Do Not Call list now, {OPT_OUT}", True),
        ("Check", {}, f"since 2026-03-03, added by an operator, {OPT_OUT} +1 212", True),
        ("Remove", {}, "is no longer on the Do Not Call list.", None),
        ("Remove", {}, "was not on the Do Not Call list.", None),
    ):
        page.press(button, number="+1 (212) 555-0123", **given)
        text = page.page.text
        assert text.index("Remove") < text.index("+1 212-555-0123")
        assert words in text
        (result,) = (attrs for _, attrs in page.page.elements if attrs.get("id") == "result")
        assert "autofocus" in result
        assert listed_among([NEW_YORK]).get(NEW_YORK) is listed


def test_a_listed_number_that_is_valid_no_more_is_checked_and_removed(page):
    OptedOut.add(["+22501234567"], TUESDAY_NOON, "reply")
    for button, words in (("Check", "has been on the"), ("Remove", "is no longer on the")):
        page.press(button, number="+225 01 23 45 67")
        assert f"+22501234567 {words}" in page.page.text
    assert not OptedOut.lists("+22501234567")


def test_the_country_of_national_numbers_is_asked_for_once(page):
    assert "Country" not in page.page.text
    for region, words in ((None, "and its country"), ("xx", "two letters"), ("US", "its country")):
        given = {"region": region} if region else {}
        assert page.press("Add", number="020 8366 1177", **given).status_code == 400
        assert words in page.page.text
        assert "Country of numbers without +" in page.page.text
    page.press("Add", number="020 8366 1177", region="gb")
    assert "+44 20 8366 1177 is on the Do Not Call list now" in page.page.text
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


def test_only_an_operator_changes_the_list(page, approver):
    page.press("Add", number=NEW_YORK)
    approver.open()
    assert approver.send(PAGE, number=NEW_YORK, remove="").status_code == 403
    assert DoNotCall.lists(NEW_YORK)
    assert [each.who for each in DoNotCallHistory.of(NEW_YORK)] == ["Olga"]


def test_a_number_without_a_button_changes_nothing(page):
    page.press("Add", number=NEW_YORK)
    assert page.send(PAGE, number=NEW_YORK).status_code == 400
    assert DoNotCall.lists(NEW_YORK)
