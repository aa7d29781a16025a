"""Whoever refuses or cancels a text may say why: its sender is told, until that is undone."""

import json

import pytest

from databases import on_both
from samples import DAY, MINUTE, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, store
from texting.database import Refused
from texting.events.outbox import Event, EventAddress
from texting.messages.decisions import LONGEST_NOTE, read_note
from texting.messages.model import Status

pytestmark = on_both

WHY = "Say who you are: “Ann’s 🌷 shop”."
AWAITS = {"manual_mode": True, "approved": False}


@pytest.fixture
def reasons(database_url):
    """Return what the events say, in the order in which they were written."""
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/events", TUESDAY_NOON)

    def read():
        events = [json.loads(event.body)["data"] for event in Event.select().order_by(Event.id)]
        return [(each["status"], each["reason"]) for each in events]

    return read


def refuse(message, note=None):
    return decide_on(message).decide(False, "Ann", TUESDAY_NOON, note=note)


def cancel(message, note=None):
    return decide_on(message).cancel("Ann", TUESDAY_NOON, note)


@pytest.mark.parametrize("decide", [refuse, cancel])
def test_the_event_has_the_note_as_its_reason(reasons, decide):
    noted, plain = store(**AWAITS), store(**AWAITS, last_error="busy", last_error_at=TUESDAY_NOON)
    assert decide(noted, WHY)
    assert decide(plain)
    assert reasons() == [("cancelled", WHY), ("cancelled", None)]
    assert [again(each).note for each in (noted, plain)] == [WHY, None]


@pytest.mark.parametrize("decide", [refuse, cancel])
def test_the_note_is_gone_where_it_is_undone(reasons, decide):
    message = store(**AWAITS)
    decide(message, WHY)
    assert decide_on(message).undo_cancel("Ann", TUESDAY_NOON)
    assert again(message).note is None
    decide(message)
    assert reasons() == [("cancelled", WHY), ("cancelled", None)]


def test_a_text_that_is_withdrawn_in_doubt_keeps_the_note_until_it_ends(reasons, run_pass):
    message = store(in_doubt=1)
    assert cancel(message, WHY)
    assert again(message).is_withdrawn
    assert reasons() == []
    run_pass(TUESDAY_NOON + DAY)
    run_pass(TUESDAY_NOON + 9 * DAY)
    assert again(message).status == Status.CANCELLED
    assert reasons() == [("cancelled", WHY)]


def test_a_withdrawal_that_is_undone_has_no_note(reasons):
    message = store(in_doubt=1)
    cancel(message, WHY)
    assert decide_on(message).undo_cancel("Ann", TUESDAY_NOON + MINUTE / 2)
    assert again(message).note is None


def test_what_goes_again_has_no_note_of_before(reasons):
    """The carrier turned out to have what was withdrawn, and it did not arrive."""
    undelivered = {"status": Status.UNDELIVERED, "finished_at": TUESDAY_NOON}
    message = store(note=WHY, cancelled_by="Ann", **undelivered)
    assert decide_on(message).retry(TUESDAY_NOON, DAY)
    assert (again(message).note, again(message).cancelled_by) == (None, None)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (None, None),
        ("", None),
        (" \r\n\t", None),
        (" Too\r\nlate ", "Too late"),
        ("é" * LONGEST_NOTE, "é" * LONGEST_NOTE),
        (f" {'🌷' * LONGEST_NOTE}\n", "🌷" * LONGEST_NOTE),
    ],
)
def test_a_note_is_one_line(words, note):
    assert read_note(words) == note


def test_a_longer_note_is_refused():
    with pytest.raises(Refused) as refused:
        read_note("é" * (LONGEST_NOTE + 1))
    assert str(refused.value) == "a note has 500 characters at most: this one has 501"


def test_what_no_database_holds_is_replaced(reasons):
    message = store(**AWAITS)
    refuse(message, "a\0b\udc80")
    assert again(message).note == "a\ufffdb\ufffd"
    assert reasons() == [("cancelled", "a\ufffdb\ufffd")]
