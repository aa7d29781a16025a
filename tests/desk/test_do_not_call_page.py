"""The Do Not Call page: results beside the form, and a change is undone for a minute."""

from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall, DoNotCallHistory, LastReply
from access.keys import Role
from database import MILLISECOND, Refused
from databases import on_sqlite
from desk_visitor import Visitor, issue
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import DAY

MINUTE = timedelta(minutes=1)


def entry():
    """Why and since when the number is listed; None if it is not."""
    listed = DoNotCall.entry(NEW_YORK)
    return listed and (listed.source, listed.added_at)


def history():
    return [(each.what, each.why, each.who) for each in DoNotCallHistory.of(NEW_YORK)]


@pytest.mark.parametrize("source", [None, "reply", "import", "carrier", "operator"])
def test_a_change_is_undone_to_what_was_before(operator, at, source):
    if source:
        DoNotCall.add(
            [NEW_YORK], TUESDAY_NOON - DAY, source, "Bob" if source == "operator" else None
        )
    before, button = entry(), "Remove" if source else "Add"
    told = "is no longer on the list" if source else "is on the list now"
    operator.open("/desk/do-not-call")
    operator.press(button, number=NEW_YORK)
    at(TUESDAY_NOON + MINUTE - timedelta(seconds=1))
    for _ in range(2):  # after a reload too
        operator.open("/desk/do-not-call")
        assert f"+1 212-555-0123 {told}. Undo for 1 second" in operator.page.text
    operator.press("Undo")
    assert entry() == before
    undone = "is on the list now" if source else "is no longer on the list"
    assert f"+1 212-555-0123 {undone}." in operator.page.text
    assert not operator.page.buttons("Undo")
    assert [who for _, _, who in history()[-2:]] == ["Olga", "Olga"]


@on_sqlite
def test_after_a_minute_it_is_not_undone(operator, at):
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    form, undo = operator.page.buttons("Undo")[0]
    at(TUESDAY_NOON + MINUTE)
    operator.open("/desk/do-not-call")
    assert "is on the list now" not in operator.page.text
    operator.post("/desk/do-not-call", [*form["inputs"], ("undo", undo["value"])])
    assert "Undo works for one minute" in operator.page.text
    assert DoNotCall.lists(NEW_YORK)


@pytest.mark.parametrize("stop_at", [-30, 30])
def test_a_stop_meanwhile_stays(operator, at, stop_at):
    """A number that is listed keeps no second reason; its last reply tells."""
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    said_at = TUESDAY_NOON + timedelta(seconds=stop_at)  # by a carrier's clock
    assert LastReply.note(NEW_YORK, said_at, said_at)
    DoNotCall.add([NEW_YORK], said_at, "reply")
    before = history()
    operator.press("Undo")
    assert "The recipient has replied meanwhile" in operator.page.text
    assert DoNotCall.lists(NEW_YORK)
    assert history() == before


@on_sqlite
def test_only_the_last_change_of_the_same_person_is_undone(app, operator):
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
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


@pytest.mark.parametrize("change", ["", "x", "-1", "9" * 30, "9" * 5000, "\0", "1.5", "٣"])
def test_a_change_that_there_is_none_of_is_no_error_of_ours(operator, change):
    operator.open("/desk/do-not-call")
    response = operator.post(
        "/desk/do-not-call", [("csrf_token", operator.token), ("undo", change)]
    )
    assert response.status_code in (200, 400)


@on_sqlite
def test_an_approver_undoes_nothing_of_it(app, operator, approver):
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    (change,) = DoNotCallHistory.of(NEW_YORK)
    approver.open()
    sent = [("csrf_token", approver.token), ("undo", str(change.id))]
    assert approver.post("/desk/do-not-call", sent).status_code == 403
    assert DoNotCall.lists(NEW_YORK)


@on_sqlite
def test_what_was_done_stands_below_the_form_and_has_the_focus(operator):
    operator.open("/desk/do-not-call")
    for button, number in (("Check", NEW_YORK), ("Add", NEW_YORK)):
        operator.press(button, number=number)
        text = operator.page.text
        assert text.index("Country of a national number") < text.index("+1 212-555-0123 is")
        (result,) = (a for _, a in operator.page.elements if a.get("id") == "next")
        assert "autofocus" in result


@on_sqlite
def test_another_operators_change_is_not_shown(app, operator):
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    other = Visitor(app)
    other.sign_in(issue("Otto", role=Role.OPERATOR))
    other.open("/desk/do-not-call")
    assert "555" not in other.page.text.replace("+1 212 555 0123", "")


def test_an_instant_before_the_minute_is_over_counts(database_url):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator", "Olga")
    change, now = DoNotCallHistory.latest(NEW_YORK).id, TUESDAY_NOON + MINUTE
    with pytest.raises(Refused):
        DoNotCall.undo(change, "Olga", now - MINUTE, now)
    now -= MILLISECOND
    assert DoNotCall.undo(change, "Olga", now - MINUTE, now) == NEW_YORK
    assert history() == [("joined", "operator", "Olga"), ("left", "operator", "Olga")]
