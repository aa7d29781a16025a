"""The Do Not Call page: numbers are checked, added and removed, with the result beside the form."""

import pytest

from databases import on_both
from samples import HOUR, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from texting.access.audit import Action, Audit
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
        ("Remove", {}, "wants no texts. End that? An operator noted it (Olga), at", True),
        ("Check", {}, f"since 2026-03-03, added by an operator, {OPT_OUT} Texts", True),
        ("Remove", {}, "wants no texts. End that?", True),
        ("End the opt-out", {}, "is no longer on the Do Not Call list.", None),
        ("Remove", {}, "was not on the Do Not Call list.", None),
    ):
        if not page.page.buttons(button):
            page.open(PAGE)
        number = {} if button.startswith("End") else {"number": "+1 (212) 555-0123"}
        page.press(button, **number, **given)
        text = page.page.text
        assert words in text
        if "End that?" in words:
            assert not page.page.buttons("Add")
        else:
            assert text.index("Remove") < text.index("+1 212-555-0123")
            (result,) = (attrs for _, attrs in page.page.elements if attrs.get("id") == "result")
            assert "autofocus" in result
        assert listed_among([NEW_YORK]).get(NEW_YORK) is listed


def test_a_listed_number_that_is_valid_no_more_is_checked_and_removed(page):
    OptedOut.add(["+22501234567"], TUESDAY_NOON, "reply")
    for button, words in (
        ("Check", "has been on the"),
        ("Remove", "wants no texts. End that? It is the recipient's own word, in a reply, at"),
        ("End the opt-out", "is no longer on the"),
    ):
        page.press(button, **({} if "End" in button else {"number": "+225 01 23 45 67"}))
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


WHOSE = {
    "reply": "It is the recipient's own word, in a reply",
    "carrier": "It is the recipient's own word, reported by the carrier",
    "import": "It came from an imported file",
    "operator": "An operator noted it (Bob)",
}


@pytest.mark.parametrize("source", WHOSE)
def test_an_opt_out_is_ended_only_after_a_question_that_says_whose_word_it_was(page, source):
    """Removing an entry of the same number does not end it."""
    who = "Bob" if source == "operator" else None
    OptedOut.add([NEW_YORK], TUESDAY_NOON, source, who)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator", "Bob")
    page.press("Remove", number=NEW_YORK)
    assert f"{WHOSE[source]}, at 5:00 PM, Tuesday, Mar 3 UTC" in page.page.text
    assert (OptedOut.lists(NEW_YORK), DoNotCall.lists(NEW_YORK)) == (True, False)
    page.press("End the opt-out")
    assert not OptedOut.lists(NEW_YORK)
    told = [(each.kind, each.what, each.who) for each in DoNotCallHistory.of(NEW_YORK)]
    assert told[2:] == [("entry", "left", "Olga"), ("opt-out", "left", "Olga")]
    noted = Audit.select().where(Audit.what == Action.REMOVED).order_by(Audit.id)
    assert [(each.who, each.details) for each in noted] == [("Olga", "entry"), ("Olga", "opt-out")]


def test_an_approver_ends_no_opt_out(page, approver):
    OptedOut.add([NEW_YORK], TUESDAY_NOON, "reply")
    approver.open()
    assert approver.send(PAGE, number=NEW_YORK, end="").status_code == 403
    assert OptedOut.lists(NEW_YORK)


def test_what_is_neither_choice_is_an_entry(page):
    page.send(PAGE, number=NEW_YORK, add="", opted_out="no")
    assert DoNotCall.lists(NEW_YORK)
    assert not OptedOut.lists(NEW_YORK)


@on_both
def test_the_newest_entries_are_shown_with_how_they_came_about(operator, at):
    numbers = [f"+1212555{n:04}" for n in range(100, 125)]
    for n, number in enumerate(numbers):
        DoNotCall.add([number], TUESDAY_NOON + n * MINUTE, "import")
    OptedOut.add([numbers[0]], TUESDAY_NOON + HOUR, "reply")
    DoNotCall.drop([numbers[24]], TUESDAY_NOON + HOUR, "operator", "Bob")
    DoNotCall.add([LONDON], TUESDAY_NOON + HOUR, "operator", "Bob")
    at(TUESDAY_NOON + 2 * HOUR)
    text = operator.read(PAGE).partition("Newest")[2]
    first = "+44 20 8366 1177 entry, added by an operator (Bob) · 1 hour ago"
    assert text.strip().startswith(f"{first} +1 212-555-0100 opt-out, because of a reply · 1 hour")
    assert text.count(" ago") == 20
    assert "+1 212-555-0124" not in text
    assert text.index("+1 212-555-0123") < text.index("+1 212-555-0122")


def test_an_empty_list_has_no_newest_entries(page):
    assert "Newest" not in page.page.text
