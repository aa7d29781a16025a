"""Texts that wait are shown with what a decision needs; each decision is kept or reported."""

import json

import pytest
from babel import Locale
from babel.localedata import locale_identifiers

from databases import on_both
from desk_visitor import Page, ask, ask_many, signed_in
from faulty_database import FaultyDatabase
from own_threads import at_once
from samples import DAY, HOUR, LONDON, TUESDAY_NOON
from stored_messages import FAKE, again, decide_on, key_named, statuses, store, store_many
from texting.access.audit import Audit
from texting.access.keys import ApiKey, Role
from texting.desk.words import OTHERWISE, hour_cycle
from texting.messages import receipts, waiting
from texting.messages.model import Message, Status
from texting.recipients.quiet import QuietHours, QuietPlaces
from texting.sending.carrier_state import CarrierState

AT_TEN = TUESDAY_NOON + 5 * HOUR
LAST_HOUR = TUESDAY_NOON.replace(year=9999, month=12, day=31, hour=23)


# What is shown


@pytest.mark.parametrize(
    ("columns", "hour", "words"),
    [
        (
            {"to": LONDON, "send_date": AT_TEN, "send_at": AT_TEN, "created_at": TUESDAY_NOON},
            18,
            [
                *("Waiting for approval 1", "+44 20 8366 1177", "London, United Kingdom", "Hello"),
                *("10:00 PM, Tuesday, Mar 3 there", "in 4 hours", "10:00 PM, Tuesday, Mar 3 UTC"),
                *("it is 6:00 PM there now", "Requested by shop, 1 hour ago"),
            ],
        ),
        ({}, 17, ["Sends at once · 12:00 PM in New York"]),
        (
            {},
            23,
            [
                "9:00 AM there , in 15 hours",
                "Waits until 9:00 AM in New York: outside business hours · 2:00 PM, Wednesday, "
                "Mar 4 UTC · it is 6:00 PM there now",
            ],
        ),
        ({"send_at": TUESDAY_NOON.replace(year=2031)}, 17, ["Monday, Mar 3, 2031 there"]),
        ({"send_date": LAST_HOUR, "send_at": LAST_HOUR}, 17, ["in 7,973 years"]),
        ({"send_at": LAST_HOUR, "to": "+61255501234"}, 17, ["in 7,973 years"]),
    ],
)
def test_a_text_is_shown_with_where_and_when_it_goes(approver, at, columns, hour, words):
    message = ask(**columns)
    at(TUESDAY_NOON.replace(hour=hour))
    CarrierState.record_pass(TUESDAY_NOON.replace(hour=hour), {"twilio": []})
    approver.open()
    for each in words:
        assert each in approver.page.text
    assert approver.open(f"/desk/messages/{message.id}").status_code == 200


@pytest.mark.parametrize(
    ("language", "there", "busiest"),
    [
        *((each, "9:00 AM", "2:00 PM") for each in (None, "  ", "en-US,de", "es-US", "zh-Hant-TW")),
        *((each, "09:00", "14:00") for each in ("de", "en-gb,en-US;q=0.9", "fr;q=0.8", "zh-CN")),
        *((each, "09:00", "14:00") for each in ("shi-Tfng", "*", "x" * 5_000, "..", "de_DE_\xe9")),
    ],
)
def test_hours_are_as_the_readers_language_has_them(operator, at, language, there, busiest):
    at(TUESDAY_NOON.replace(hour=23))
    ask(), store(status=Status.SCHEDULED, send_at=TUESDAY_NOON.replace(day=4, hour=14))
    headers = {"Accept-Language": language} if language else {}
    page = Page(operator.client.get("/desk/", headers=headers).text)
    words = f"Waits until {there} in New York: outside business hours · {busiest}, Wednesday, Mar 4"
    assert words in page.text
    assert f"Busiest hour: {busiest} UTC , 1 text." in page.text
    other = "14:00" if busiest == "2:00 PM" else "PM"
    assert other not in page.text


def test_the_languages_with_twelve_hours_are_those_of_cldr(app):
    """Each by itself, and where three that are spoken in many countries are written."""
    found = [Locale.parse(name) for name in locale_identifiers()]
    tags = {each.language for each in found}
    for each in found:
        if each.language in OTHERWISE and each.territory:
            tags.add(f"{each.language}-{each.territory}")
    for tag in sorted(tags):
        pattern = Locale.parse(tag, sep="-").time_formats["short"].pattern
        with app.test_request_context(headers={"Accept-Language": tag}):
            assert hour_cycle() == ("h23" if "H" in pattern else "h12"), tag


def test_quiet_hours_are_waited_for_to_their_end(app, approver, at):
    at(TUESDAY_NOON.replace(hour=23))
    app.extensions["rules"] = app.extensions["rules"]._replace(
        quiet=QuietPlaces(QuietHours.of((18 * 60, 9 * 60)))
    )
    for text, send_date in (("Hello", None), ("Bye", TUESDAY_NOON.replace(hour=23))):
        ask(text, send_date=send_date)
    words = "Waits until 9:00 AM in New York: quiet hours · 2:00 PM, Wednesday, Mar 4 UTC"
    assert approver.read().count(words) == 2


@pytest.mark.parametrize(
    ("hours", "until"),
    [("wed 11:59-17:00", "11:59 AM"), ("wed 12:00-17:00", "12:00 PM, Wednesday, Mar 4")],
)
def test_a_time_a_day_ahead_has_its_date(operator, at, hours, until):
    at(TUESDAY_NOON)
    key_named("slow").rule({"hours": hours}, TUESDAY_NOON)
    message = store(key=key_named("slow"))
    text = operator.read(f"/desk/messages/{message.id}")
    assert f"Waits until {until} in New York: outside business hours · " in text


@pytest.mark.parametrize(
    ("by", "approved", "words"),
    [
        ("Bob", False, "was refused by Bob."),
        ("Bob", True, "was cancelled by Bob."),
        (None, False, "was cancelled."),
    ],
)
def test_a_text_was_refused_only_where_somebody_refused_it(operator, by, approved, words):
    message = ask(
        status=Status.CANCELLED, approved=approved, cancelled_by=by, finished_at=TUESDAY_NOON
    )
    assert f"This text {words}" in operator.read(f"/desk/messages/{message.id}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello", "1 part"),
        ("x" * 161, "2 parts"),
        ("x" * 70 + "’", "’ makes this 2 parts instead of 1"),
        ("“" + "x" * 70 + "”", "“ and ” make this 2 parts instead of 1"),
        ("x" * 70 + "\u200b", "zero width space makes this 2 parts instead of 1"),
        ("x" * 70 + "\xa0", "no-break space makes this 2 parts instead of 1"),
        ("бвгдежз" * 11, "б, в, г, д, е and 2 more make this 2 parts instead of 1"),
        ("’", "1 part"),
        ("x" * 70 + "🍝", "🍝 makes this 2 parts instead of 1"),
        (
            "x" * 70 + "❤️👩‍🚀",
            "❤, variation selector-16, 👩, zero width joiner and 🚀 make this 2 parts instead of 1",
        ),
        ("x" * 70 + "©™", "© and ™ make this 2 parts instead of 1"),
        ("\t" + "x" * 70, "control character makes this 2 parts instead of 1"),
    ],
)
def test_the_parts_of_a_text_are_shown_with_what_makes_them_more(approver, text, words):
    message = ask(text)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        assert f"{words} · no text to this number" in approver.read(path)


def test_how_often_a_number_was_texted_in_the_last_day_is_shown(approver):
    message = ask()
    approver.open()
    assert "no text to this number in the last day" in approver.page.text
    for status in (Status.SENT, Status.DELIVERED, Status.UNDELIVERED):
        store(status=status, finished_at=TUESDAY_NOON - 23 * HOUR, key=key_named("other"))
    store(status=Status.SENT, finished_at=TUESDAY_NOON - 25 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    store(status=Status.SENT, finished_at=TUESDAY_NOON, to=LONDON)
    tester = ApiKey.create(name="test", digest="t", role=Role.TESTER, created_at=TUESDAY_NOON)
    store(status=Status.SENT, finished_at=TUESDAY_NOON, key=tester)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        approver.open(path)
        assert "3 texts to this number in the last day" in approver.page.text


# What is decided


@on_both
@pytest.mark.parametrize("person", ["approver", "operator"])
@pytest.mark.parametrize("button", ["Approve", "Refuse"])
def test_a_decision_is_kept_with_who_made_it_and_when(request, run, person, button):
    visitor, name = request.getfixturevalue(person), {"approver": "Ann", "operator": "Olga"}[person]
    message = ask() if person == "approver" else ask(group=None, available_to_group=False)
    visitor.press(button, message, on="/desk/")
    assert "Nothing is waiting for approval" in visitor.page.text
    kept = json.loads(run("messages", "show", str(message.id)))
    if button == "Approve":
        assert "1 text approved" in visitor.page.text
        assert (kept["approved_by"], kept["approved_at"]) == (name, "2026-03-03T17:00:00.000Z")
        assert again(message).status == Status.SCHEDULED
    else:
        assert "1 text refused" in visitor.page.text
        assert (kept["cancelled_by"], kept["status"]) == (name, Status.CANCELLED)
        assert not again(message).approved


def test_a_text_in_doubt_is_cancelled_unless_the_carrier_has_it(operator):
    doubtful = ask(approved=True, in_doubt=1, in_doubt_since=TUESDAY_NOON, send_date=None)
    operator.press("Cancel", doubtful, on="/desk/messages")
    words = "1 text cancelled, unless the carrier has it already: +1 212-555-0123 Undo"
    assert words in operator.page.text
    assert not operator.page.buttons("Cancel")
    operator.open(f"/desk/messages/{doubtful.id}")
    words = "This text was cancelled by Olga, unless the carrier has it already."
    assert words in operator.page.text
    assert again(doubtful).status == Status.QUEUED


@pytest.mark.parametrize("missed", [1, 50])
@pytest.mark.parametrize("words", ["Approve selected", "Refuse selected"])
def test_many_are_decided_in_one_request_and_those_that_changed_are_all_named(
    approver, words, missed
):
    asked = ask_many(50)
    approver.open()
    for each in asked[:missed]:
        decide_on(each).approve("Bob", TUESDAY_NOON)
    approver.press(words, selected=[*asked, asked[-1]])
    told = f"49 texts {words.split()[0].lower().rstrip('e')}ed"
    assert (told in approver.page.text) is (missed == 1)
    assert f"{missed} text{'s' * (missed > 1)} not changed: +1" in approver.page.text
    assert approver.page.text.count("was approved by Bob") == missed
    waiting = [each for each in Message.select() if not each.approved and not each.finished_at]
    assert waiting == []
    assert Message.select().where(Message.approved_by == "Bob").count() == missed


@on_both
@pytest.mark.parametrize("others", ["Approve selected", "Refuse selected"])
def test_two_who_decide_the_same_texts_at_once_decide_each_once(app, others):
    """They select them in opposite orders; each is told of what the other has decided."""
    asked = ask_many(50)
    ann, bob = signed_in(app, "Ann", "front"), signed_in(app, "Bob", "front")
    for visitor in (ann, bob):
        visitor.open()
    at_once(
        lambda: ann.press("Approve selected", selected=asked[:35]),
        lambda: bob.press(others, selected=asked[:14:-1]),
    )
    decided = Audit.select().where(Audit.message_id.is_null(False))
    by = {row.message_id: row.who for row in decided}
    assert {*by} == {message.id for message in asked}
    assert len(decided) == 50
    for kept in Message.select():
        assert by[kept.id] == (kept.approved_by or kept.cancelled_by)
    for visitor, other, selected in ((ann, "Bob", asked[:35]), (bob, "Ann", asked[15:])):
        told = visitor.page.text.count(f"by {other}")
        assert told == sum(by[message.id] == other for message in selected)


@on_both
def test_a_selection_is_decided_as_a_whole_or_not_at_all(approver, monkeypatch):
    """Whatever statement fails."""
    asked, faulty, counts = ask_many(3), FaultyDatabase(monkeypatch), []
    approver.open()
    while 3 not in counts:
        faulty.fail_at(len(counts) + 1)
        approver.press("Approve selected", selected=asked, follow=False)
        approver.open()
        faulty.fail_at(0)
        counts.append(Message.select().where(Message.approved).count())
    assert {*counts} == {0, 3}
    assert len(counts) > 3


def test_all_of_a_page_can_be_selected_without_a_script(approver):
    ask_many(3)
    assert "Select all 3 on this page" in approver.read()
    approver.open("/desk/?select=all")
    assert [checked for *_, checked in approver.page.forms[1]["boxes"]] == [True] * 3
    approver.press("Approve selected")
    assert "3 texts approved" in approver.page.text
    assert "Select" not in approver.page.text
    assert not approver.page.buttons("Approve selected")
    assert approver.page.buttons("Undo")
    ask_many(2)
    approver.open(approver.at)
    assert not any(checked for *_, checked in approver.page.forms[1]["boxes"])


MEANWHILE = {
    "was approved by Bob": lambda m: decide_on(m).approve("Bob", TUESDAY_NOON),
    "Bob has already refused this text. +1 212-555-0123": lambda m: decide_on(m).decide(
        False, "Bob", TUESDAY_NOON
    ),
    "was approved by Bob and was sent": lambda m: (
        decide_on(m).approve("Bob", TUESDAY_NOON)
        and receipts.record_accepted({m.id: None}, TUESDAY_NOON, FAKE)
    ),
    "is being sent right now": lambda m: Message.update(
        approved=True, status=Status.SENDING
    ).execute(),
    "expired": lambda m: waiting.expire(TUESDAY_NOON + 100 * DAY),
}


@on_both
@pytest.mark.parametrize("words", MEANWHILE)
@pytest.mark.parametrize("button", ["Approve", "Refuse"])
def test_what_changed_meanwhile_is_reported_and_stays(approver, words, button):
    message = ask(first_send_at=TUESDAY_NOON)
    approver.open()
    MEANWHILE[words](message)
    before = vars(again(message))["__data__"]
    approver.press(button, message)
    assert ("1 text not changed" in approver.page.text) is not words.startswith("Bob has")
    assert words.removeprefix("was approved by Bob and ") in approver.page.text
    assert vars(again(message))["__data__"] == before


# What is too late


@pytest.fixture
def late(app, at):
    """Ann, and two texts of hers: one has expired, like a hundred others, before any pass."""
    old, young = ask(first_send_at=TUESDAY_NOON), ask("Bye", send_at=TUESDAY_NOON + 72 * HOUR)
    store_many(100, status=Status.QUEUED, first_send_at=TUESDAY_NOON)
    at(TUESDAY_NOON + 73 * HOUR)
    return signed_in(app, "Ann", "front"), old, young


def test_a_late_approval_says_that_the_text_expired_and_expires_no_other(late):
    visitor, old, young = late
    assert "Too late" in visitor.page.text
    visitor.press("Approve selected")
    assert "No text was selected" in visitor.page.text
    assert statuses() == {Status.QUEUED: 102}
    visitor.press("Approve selected", selected=[old, young])
    assert "expired" in visitor.page.text
    assert statuses() == {Status.QUEUED: 100, Status.SCHEDULED: 1, Status.EXPIRED: 1}
    assert waiting.expire(TUESDAY_NOON + 73 * HOUR) == 100  # as a pass does
    assert (again(old).status, again(old).approved) == (Status.EXPIRED, False)
    assert again(young).approved_by == "Ann"


# Whose texts


@pytest.mark.parametrize(
    "hidden",
    [
        {"key": "other", "group": "back"},
        {"key": "alone", "group": None},
        {"available_to_group": False},
    ],
)
def test_an_approver_sees_and_changes_nothing_of_others(approver, hidden):
    message = ask("theirs", **hidden)
    ask("ours")
    ApiKey.named("shop").revoke(TUESDAY_NOON)  # its texts still wait
    assert "ours" in approver.read()
    assert "theirs" not in approver.page.text
    assert approver.open(f"/desk/messages/{message.id}").status_code == 404
    approver.open()
    approver.send("/desk/", approve=message.id)
    assert "no such message here" in approver.page.text
    approver.send("/desk/", refuse="selected", id=message.id)
    approver.open()
    approver.send(f"/desk/messages/{message.id}", approve=message.id)
    kept = again(message)
    assert (kept.status, kept.approved, kept.approved_by) == (Status.QUEUED, False, None)


@pytest.mark.parametrize("path", ["/desk/messages", "/desk/do-not-call", "/desk/keys"])
def test_operators_pages_are_closed_to_approvers(approver, path):
    assert approver.open(path).status_code == 403
    assert approver.response.mimetype == "text/html"
    assert not any(path in link for link in approver.page.links)


@pytest.mark.parametrize(
    ("button", "status"), [("cancel", Status.SCHEDULED), ("retry", Status.FAILED)]
)
def test_operators_buttons_are_closed_to_approvers(approver, button, status):
    message = ask(approved=True, status=status)
    assert approver.send("/desk/", **{button: message.id}).status_code == 403
    assert again(message).status == status


@pytest.mark.parametrize("page", ["/desk/", "/desk/replies"])
def test_an_approver_without_a_group_reads_why_nothing_is_shown(app, page):
    ask(key="alone", group=None)
    assert "This key belongs to no group" in signed_in(app, "Ann").read(page)
