"""Whatever waits at the desk, a worker answers its other requests in between."""

import time

import pytest
from peewee import OperationalError

from databases import on_both
from desk_visitor import UNDONE, ask, ask_many, reply, signed_in
from own_threads import at_once
from samples import DAY, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, store_many
from texting.access.audit import Audit
from texting.database import db
from texting.desk import cards, messages
from texting.messages.model import Message, Status
from texting.reports import listings

pytestmark = on_both


@pytest.fixture
def in_pauses(monkeypatch):
    """Have something happen in each pause of a request: in a worker, whatever others ask for."""

    def happens(action):
        def sleep(seconds):
            monkeypatch.setattr(time, "sleep", real)
            assert db.is_closed(), "or the others might have no connection"
            try:
                at_once(action)
            finally:
                monkeypatch.setattr(time, "sleep", sleep)

        real = time.sleep
        monkeypatch.setattr(time, "sleep", sleep)

    return happens


@pytest.fixture
def small_batches(monkeypatch):
    """Have a dozen texts be many."""
    for module, name in (
        (listings, "AT_ONCE"),
        (listings, "PAGE"),
        (cards, "GROUPED_AT_ONCE"),
        (messages, "DECIDED_AT_ONCE"),
    ):
        monkeypatch.setattr(module, name, 5)


def letters(count, **columns):
    """Store so many texts of one card."""
    waits = {"manual_mode": True, "available_to_group": True, "status": Status.SCHEDULED}
    shop = {"key": key_named("shop", "front").id, "send_at": TUESDAY_NOON + DAY}
    store_many(count, message="Hi 5", **waits | shop | columns)


def waiting():
    return Message.select().where(~Message.approved, Message.finished_at.is_null())


@pytest.mark.parametrize("person", ["approver", "operator"])
def test_while_texts_are_read_and_grouped_others_are_answered(
    request, app, in_pauses, small_batches, person
):
    visitor, other = request.getfixturevalue(person), signed_in(app, "Bob", "front")
    letters(12)
    answered = []
    in_pauses(lambda: answered.append(other.open("/desk/replies").status_code))
    assert "12 similar texts" in visitor.read()
    batches = "read", "put in order", "grouped", "compared with the first"
    assert len(answered) >= 12 // 5 * len(batches)
    assert {*answered} == {200}


@pytest.mark.parametrize("person", ["approver", "operator"])
def test_no_statement_reads_more_than_a_batch_of_what_waits(
    request, monkeypatch, small_batches, person
):
    visitor, read = request.getfixturevalue(person), []
    letters(12)
    ask_many(7)
    real = listings.awaiting
    monkeypatch.setattr(listings, "awaiting", lambda *given: read.append(real(*given)) or read[-1])
    assert "12 similar texts" in visitor.read()
    assert max(map(len, read)) == 5
    assert sum(map(len, read)) == 19


@pytest.mark.parametrize("person", ["approver", "operator"])
def test_a_text_that_moves_while_the_page_is_read_is_there_once(
    request, in_pauses, small_batches, person
):
    visitor = request.getfixturevalue(person)
    letters(12)
    later = Message.update(send_at=TUESDAY_NOON + 2 * DAY)
    first = Message.select().order_by(Message.id).first()
    in_pauses(lambda: later.where(Message.id == first.id).execute())
    assert "12 similar texts" in visitor.read()


@pytest.mark.parametrize("person", ["approver", "operator"])
@pytest.mark.parametrize("words", ["Approve all 12", "Refuse all"])
def test_many_are_decided_in_batches_and_others_go_between_them(
    request, app, in_pauses, small_batches, person, words
):
    visitor, other = request.getfixturevalue(person), signed_in(app, "Bob", "front")
    letters(12)
    alone = ask("another")
    visitor.open()
    left, answered = [], []

    def look():
        left.append(waiting().count())
        answered.append(other.open("/desk/replies").status_code)

    in_pauses(look)
    visitor.press(words)
    assert sorted({*left}, reverse=True) == [13, 8, 3]
    assert {*answered} == {200}
    assert [each.id for each in waiting()] == [alone.id]
    past = "approved" if "Approve" in words else "refused"
    assert f"12 texts {past}:" in visitor.page.text
    visitor.press("Undo")
    assert f"{UNDONE[past]} of 12 texts undone" in visitor.page.text
    assert waiting().count() == 13


def test_what_is_decided_between_two_batches_is_decided_once_and_told(
    approver, in_pauses, small_batches
):
    letters(12)
    *_, last = Message.select().order_by(Message.send_at, Message.id)
    approver.open()
    in_pauses(lambda: decide_on(last).decide(False, "Bob", TUESDAY_NOON))
    approver.press("Approve all 12")
    assert "11 texts approved:" in approver.page.text
    assert again(last).cancelled_by == "Bob"
    assert Audit.select().where(Audit.message_id == last.id).count() == 1


def test_what_is_queued_while_a_card_is_looked_up_is_decided_once(
    operator, in_pauses, small_batches
):
    letters(12)
    operator.open()
    queue = Message.update(status=Status.QUEUED)
    in_pauses(lambda: queue.where(Message.status == Status.SCHEDULED).execute())
    operator.press("Refuse all")
    assert "12 texts refused:" in operator.page.text
    assert "no longer waited" not in operator.page.text
    assert not waiting().exists()


@pytest.mark.parametrize("words", ["Approve all 12", "Refuse all"])
def test_an_outage_between_two_batches_leaves_the_first_with_its_undo(
    approver, monkeypatch, small_batches, words
):
    letters(12)
    approver.open()
    real, batches = messages.Selection.decide, []

    def decide(self, *given, **more):
        batches.append(len(self.unchanged))
        if len(batches) == 3:
            raise OperationalError("the disk is full")
        return real(self, *given, **more)

    monkeypatch.setattr(messages.Selection, "decide", decide)
    approver.press(words, follow=False)
    assert approver.response.status_code == 503
    assert batches == [5, 5, 2]
    assert waiting().count() == 2
    past = "approved" if "Approve" in words else "refused"
    approver.open()
    assert f"10 texts {past}:" in approver.page.text
    approver.press("Undo")
    assert waiting().count() == 12


def test_of_a_long_approval_each_text_stays_for_the_minute(approver, at, in_pauses, small_batches):
    letters(60, send_at=TUESDAY_NOON)
    approver.open()
    in_pauses(lambda: at(TUESDAY_NOON + MINUTE / 2))
    approver.press("Approve all 60", follow=False)
    stay = TUESDAY_NOON + MINUTE / 2 + MINUTE
    assert {each.send_at for each in Message.select()} == {stay}
    approver.open()
    approver.press("Undo")
    assert waiting().count() == 60, "all were decided at one instant"


@pytest.mark.parametrize("person", ["approver", "operator"])
def test_while_the_replies_of_one_number_are_passed_over_others_are_answered(
    request, app, in_pauses, person
):
    visitor, other = request.getfixturevalue(person), signed_in(app, "Bob", "front")
    key, answered = key_named("shop", "front").id, []
    for n in range(60):
        reply(n, key=key, number=LONDON)
    reply(99, key=key, number=NEW_YORK, at=TUESDAY_NOON - DAY)
    in_pauses(lambda: answered.append(other.open("/desk/").status_code))
    text = visitor.read("/desk/replies")
    assert "+1 212-555-0123" in text, "behind them"
    assert {*answered} == {200}
