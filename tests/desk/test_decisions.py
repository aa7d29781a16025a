"""Texts that wait are shown with what a decision needs; each decision is kept or reported."""

import pytest

from access.keys import ApiKey, Role
from access.rules import Rules
from desk import entries
from desk_visitor import Visitor, ask, ask_many, issue
from models import Message, Status
from recipients.quiet import QuietHours, QuietPlaces
from samples import LONDON, TUESDAY_NOON, daily
from sending import receipts
from stored_messages import DAY, HOUR, again, key_named, store


def test_an_approver_sees_what_goes_where_and_when(approver, at):
    at_ten = TUESDAY_NOON + 5 * HOUR
    ask("See you at 3", to=LONDON, send_date=at_ten, send_at=at_ten, created_at=TUESDAY_NOON - HOUR)
    approver.open()
    for words in (
        *("Waiting for approval 1", "+44 20 8366 1177", "London, United Kingdom", "See you at 3"),
        *("10:00 PM, Tuesday, Mar 3 there", "in 5 hours", "10:00 PM, Tuesday, Mar 3 UTC"),
        "Requested by shop, 1 hour ago",
    ):
        assert words in approver.page.text


@pytest.mark.parametrize(
    ("hour", "words"),
    [
        (17, "Sends at once · 12:00 PM in New York"),
        (23, "9:00 AM, Wednesday, Mar 4 there in 15 hours"),
    ],
)
def test_what_is_due_goes_at_once_or_at_the_next_opening(approver, at, hour, words):
    ask()
    at(TUESDAY_NOON.replace(hour=hour))
    approver.open()
    assert words in approver.page.text


def test_what_is_due_in_quiet_hours_goes_after_them(database_url):
    night, eight = TUESDAY_NOON + 10 * HOUR, TUESDAY_NOON + 20 * HOUR
    quiet = QuietPlaces(QuietHours.of((21 * 60, 8 * 60)))
    rules = Rules(daily(0, 1440), quiet, False, DAY)
    for send_date in (None, night):
        message = ask(send_at=night, send_date=send_date)
        assert entries.Entry(message, night, rules).forecast[0] == eight


def test_the_year_is_shown_where_it_is_another(approver):
    ask(send_at=TUESDAY_NOON.replace(year=2031))
    ask(send_at=TUESDAY_NOON.replace(year=9999, month=12, day=31, hour=23), to="+61255501234")
    approver.open()
    assert "Monday, Mar 3, 2031 there" in approver.page.text
    assert "in 7,973 years" in approver.page.text


def test_what_is_to_be_sent_first_stands_first(approver):
    late, soon = ask("late", send_at=TUESDAY_NOON + DAY), ask("soon")
    approver.open()
    assert approver.page.text.index("soon") < approver.page.text.index("late")
    assert late.id != soon.id


def test_approving_records_the_approver_and_the_instant(approver, run):
    message = ask()
    approver.open()
    approver.press("Approve", message)
    assert "1 text approved" in approver.page.text
    assert "Nothing is waiting for approval" in approver.page.text
    kept = again(message)
    assert (kept.approved, kept.approved_by, kept.approved_at) == (True, "Ann", TUESDAY_NOON)
    assert kept.status == Status.QUEUED
    shown = run("messages", "show", str(message.id))
    assert '"approved_by": "Ann"' in shown
    assert '"approved_at": "2026-03-03T17:00:00.000Z"' in shown


def test_a_text_in_doubt_is_cancelled_unless_the_carrier_has_it(operator):
    doubtful = ask(approved=True, in_doubt=1, in_doubt_since=TUESDAY_NOON, send_date=None)
    operator.open("/desk/messages")
    operator.press("Cancel", doubtful)
    words = "1 text cancelled, unless the carrier has it already: +1 212-555-0123 Undo"
    assert words in operator.page.text
    assert not operator.page.buttons("Cancel")
    operator.open(f"/desk/messages/{doubtful.id}")
    words = "This text was cancelled by Olga, unless the carrier has it already."
    assert words in operator.page.text
    assert again(doubtful).status == Status.QUEUED


def test_refusing_cancels_for_good(approver):
    message = ask()
    approver.open()
    approver.press("Refuse", message)
    assert "1 text refused" in approver.page.text
    kept = again(message)
    assert (kept.status, kept.cancelled_by, kept.approved) == (Status.CANCELLED, "Ann", False)


@pytest.mark.parametrize("words", ["Approve selected", "Refuse selected"])
def test_thirty_are_decided_in_one_request(approver, words):
    asked = ask_many(35)
    approver.open()
    approver.press(words, selected=asked[:30])
    assert f"30 texts {words.split()[0].lower().rstrip('e')}ed" in approver.page.text
    waiting = {each.id for each in Message.select() if not each.approved and not each.finished_at}
    assert waiting == {each.id for each in asked[30:]}


def test_nothing_selected_changes_nothing_and_says_so(approver):
    message = ask()
    approver.open()
    approver.press("Approve selected")
    assert "No text was selected" in approver.page.text
    assert not again(message).approved


def test_all_of_a_page_can_be_selected_without_a_script(approver):
    ask_many(3)
    approver.open("/desk/?select=all")
    assert [checked for *_, checked in approver.page.forms[1]["boxes"]] == [True] * 3
    approver.press("Approve selected")
    assert "3 texts approved" in approver.page.text
    ask_many(2)
    approver.open(approver.at)
    assert not any(checked for *_, checked in approver.page.forms[1]["boxes"])


MEANWHILE = {
    "was approved by Bob": lambda m: m.approve("Bob", TUESDAY_NOON),
    "was refused by Bob": lambda m: m.decide(False, "Bob", TUESDAY_NOON),
    "was approved by Bob and was sent": lambda m: (
        m.approve("Bob", TUESDAY_NOON) and receipts.sent({m.id: None}, TUESDAY_NOON)
    ),
    "is being sent right now": lambda m: Message.update(
        approved=True, status=Status.SENDING
    ).execute(),
    "expired": lambda m: Message.expire(TUESDAY_NOON + 100 * DAY),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", MEANWHILE)
@pytest.mark.parametrize("button", ["Approve", "Refuse", "Approve selected"])
def test_what_changed_meanwhile_is_reported_and_stays(approver, words, button):
    message = ask()
    Message.update(first_send_at=TUESDAY_NOON).execute()
    approver.open()
    MEANWHILE[words](message)
    before = vars(again(message))["__data__"]
    if button == "Approve selected":
        approver.press(button, selected=[message])
    else:
        approver.press(button, message)
    assert "1 text not changed" in approver.page.text
    assert words.removeprefix("was approved by Bob and ") in approver.page.text
    assert vars(again(message))["__data__"] == before


def test_what_an_older_version_stored_is_shown(operator):
    message = ask(status=Status.SENT, parts=None, country=None, finished_at=TUESDAY_NOON)
    for page in ("messages", f"messages/{message.id}"):
        assert operator.open(f"/desk/{page}").status_code == 200


def test_a_late_approval_says_that_the_text_expired(app, at):
    message = ask(first_send_at=TUESDAY_NOON)
    at(TUESDAY_NOON + 73 * HOUR)
    approver = Visitor(app)
    approver.sign_in(issue("Ann", "front"))
    assert "Too late" in approver.page.text
    approver.press("Approve", message)
    assert "expired" in approver.page.text
    assert again(message).status == Status.EXPIRED
    assert not again(message).approved


def test_one_of_thirty_that_changed_is_reported_by_itself(approver):
    asked = ask_many(30)
    approver.open()
    asked[7].approve("Bob", TUESDAY_NOON)
    approver.press("Approve selected", selected=asked)
    assert "29 texts approved" in approver.page.text
    assert "1 text not changed" in approver.page.text
    assert "was approved by Bob" in approver.page.text
    assert again(asked[7]).approved_by == "Bob"


def test_fifty_that_all_changed_are_all_named(approver):
    asked = ask_many(50)
    approver.open()
    for each in asked:
        each.approve("Bob", TUESDAY_NOON)
    approver.press("Approve selected", selected=asked)
    assert approver.page.text.count("was approved by Bob") == 50


def test_of_two_decisions_at_once_the_first_is_kept(approver):
    message = ask()
    first, second = again(message), again(message)
    assert first.decide(True, "Ann", TUESDAY_NOON)
    assert not second.decide(False, "Bob", TUESDAY_NOON)
    assert not second.decide(True, "Bob", TUESDAY_NOON)
    assert (again(message).status, again(message).approved_by) == (Status.QUEUED, "Ann")


def test_the_same_id_twice_counts_once(approver):
    message = ask()
    approver.open()
    approver.press("Approve selected", selected=[message, message])
    assert "1 text approved" in approver.page.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello", "1 part"),
        ("x" * 161, "2 parts"),
        ("x" * 70 + "’", "’ makes this 2 parts instead of 1"),
        ("“" + "x" * 70 + "”", "“ and ” make this 2 parts instead of 1"),
        ("x" * 159 + "€", "€ makes this 2 parts instead of 1"),
        ("x" * 159 + "€" + "’", "’ makes this 3 parts instead of 2"),
        ("x" * 70 + "\u200b", "U+200B makes this 2 parts instead of 1"),
        ("x" * 70 + "\xa0", "a no-break space makes this 2 parts instead of 1"),
        ("бвгдежз" * 11, "б, в, г, д, е and 2 more make this 2 parts instead of 1"),
        ("’", "1 part"),
        ("x" * 70 + "🍝", "emoji make this 2 parts instead of 1"),
        ("x" * 60 + "👩🏽‍🚀🇩🇪❤️1️⃣", "emoji make this 2 parts instead of 1"),
        ("x" * 70 + "’🍝☎", "’ and emoji make this 2 parts instead of 1"),
        ("x" * 70 + "©™", "© and ™ make this 2 parts instead of 1"),
        ("x" * 70 + "\u200d", "U+200D makes this 2 parts instead of 1"),
    ],
)
def test_the_parts_of_a_text_are_shown_with_what_makes_them_more(approver, text, words):
    message = ask(text)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        approver.open(path)
        assert f"{words} ·" in approver.page.text


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


def test_the_hour_at_the_recipients_is_shown_for_what_goes_later(approver):
    ask(send_at=TUESDAY_NOON + 21 * HOUR, status=Status.SCHEDULED)
    approver.open()
    assert "9:00 AM, Wednesday, Mar 4 there" in approver.page.text
    assert "it is 12:00 PM there now" in approver.page.text
