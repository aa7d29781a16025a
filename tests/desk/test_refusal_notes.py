"""Whoever refuses or cancels may say why, in a field that is empty by default; it is shown."""

import json

import pytest

from databases import on_both
from desk_visitor import ask
from samples import TUESDAY_NOON
from stored_messages import again, key_named
from texting.events.outbox import Event, EventAddress
from texting.messages.model import Message, Status

WHY = "Say <who> you are: “Ann’s 🌷”"


def field_of(visitor, of):
    inputs = [each for form in visitor.page.forms for each in form["inputs"]]
    return dict(inputs)[f"note-{of}"]


def reasons():
    events = Event.select().order_by(Event.id)
    return [json.loads(event.body)["data"]["reason"] for event in events]


@on_both
@pytest.mark.parametrize("where", ["/desk/", "/desk/messages", "its own"])
def test_a_refusal_says_why_to_the_sender_and_on_the_pages(operator, where):
    EventAddress.set(key_named("shop", "front"), "http://x.test", TUESDAY_NOON)
    message, other = ask(), ask("another, which is like no other of these")
    page = f"/desk/messages/{message.id}" if where == "its own" else where
    operator.open(page)
    assert field_of(operator, message.id) == ""
    operator.press("Refuse", message, **{f"note-{message.id}": f"  {WHY}\r\n"})
    operator.press("Refuse", other, on="/desk/")
    assert [again(each).note for each in (message, other)] == [WHY, None]
    assert reasons() == [WHY, None]
    for path in ("/desk/messages", f"/desk/messages/{message.id}"):
        assert f"“{WHY}”" in operator.read(path)
    operator.press("Undo", message)
    assert again(message).note is None
    assert WHY not in operator.read(f"/desk/messages/{message.id}")


def test_a_note_is_of_the_card_whose_button_is_pressed(approver):
    one, other, third = ask("one"), ask("other"), ask("third")
    approver.open()
    notes = {f"note-{one.id}": "this", f"note-{other.id}": "that", "note-selected": "all"}
    approver.press("Refuse", other, **notes)
    assert again(other).note == "that"
    approver.press("Refuse selected", selected=[third], **notes)
    assert again(third).note == "all"
    approver.press("Approve", one, **notes)
    assert (again(one).approved, again(one).note) == (True, None)


def test_all_of_a_card_are_refused_for_one_reason(approver):
    asked = [ask(f"Hello {n}") for n in range(3)]
    approver.open()
    (name,) = (
        n for n, _ in approver.page.forms[1]["inputs"] if n in {f"note-{m.id}" for m in asked}
    )
    approver.press("Refuse all", **{name: WHY})
    assert {each.note for each in Message.select()} == {WHY}


def test_an_operator_says_why_a_text_is_cancelled(operator):
    message = ask(approved=True, status=Status.SCHEDULED)
    operator.open("/desk/messages")
    operator.press("Cancel", message, **{f"note-{message.id}": WHY})
    assert again(message).note == WHY


def test_a_note_has_500_characters_at_most(approver):
    message = ask()
    approver.open()
    note = f"note-{message.id}"
    assert approver.send("/desk/", refuse=message.id, **{note: "é" * 501}).status_code == 400
    assert "A note has 500 characters at most." in approver.page.text
    assert again(message).status == Status.QUEUED
    approver.open()
    approver.send("/desk/", refuse=message.id, **{note: "é" * 500})
    assert again(message).note == "é" * 500


@pytest.mark.parametrize("note", ["\0", "\ufffe", "a\0b", "\u202e"])
def test_no_note_is_an_error_of_ours(approver, note):
    message = ask()
    approver.open()
    approver.send("/desk/", refuse=message.id, **{f"note-{message.id}": note})
    assert again(message).status == Status.CANCELLED
