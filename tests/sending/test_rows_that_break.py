"""A row that breaks what a pass does with all that are due is set aside, and the others go on."""

import itertools
import json
import logging
import uuid

import pytest
from peewee import OperationalError

from broken_rows import BAD, TEXT, breaks, unreadable
from databases import on_both
from fake_carrier import FOR_NOW, FakeCarrier
from own_threads import IN_ORDER
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import SENDER, again, key_named, statuses, store, store_many
from texting.carriers import IncomingText, LateAnswer, Receipt
from texting.events.outbox import Event, EventAddress
from texting.messages import receipts
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import WAITING, Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply
from texting.sending import outcomes
from texting.sending.outcomes import Outcome

pytestmark = on_both


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


def assert_silent_about(bad, caplog):
    assert str(bad.id) in caplog.text
    assert BAD not in caplog.text
    assert TEXT not in caplog.text


def due(count=20, **columns):
    columns = {"status": Status.SCHEDULED, "send_at": TUESDAY_NOON - MINUTE} | columns
    return store_many(count, **columns), store(to=BAD, message=TEXT, **columns)


NEW = {True: "NEW.status <> OLD.status", False: "TRUE"}


@pytest.mark.parametrize("may_move", [True, False], ids=["may be moved on", "may not change"])
def test_a_text_that_breaks_promotion_is_set_aside_and_all_others_go(
    run_pass, carrier, broken, caplog, may_move
):
    numbers, bad = due()
    broken("message", bad, NEW[may_move])
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert sorted(carrier.numbers) == numbers
    assert again(bad).status == Status.SCHEDULED
    assert str(bad.id) in caplog.text
    assert BAD not in caplog.text
    assert TEXT not in caplog.text
    store_many(3, TUESDAY_NOON, status=Status.SCHEDULED)
    assert run_pass(TUESDAY_NOON + MINUTE)["sent"] == 3


def test_what_was_set_aside_is_left_alone_for_a_while_and_goes_once_it_is_mended(
    run_pass, carrier, database_url, caplog
):
    _, bad = due(5)
    mend = breaks("message", bad, NEW[True])
    run_pass(TUESDAY_NOON)
    caplog.clear()
    run_pass(TUESDAY_NOON + SECOND)
    assert errors(caplog) == [], "not at each pass"
    mend()
    run_pass(TUESDAY_NOON + 30 * MINUTE)
    assert statuses() == {Status.SENT: 6}


def test_what_a_person_puts_off_while_rows_are_done_one_by_one_waits(run_pass, monkeypatch):
    change, (_, put_off), calls = Message.change.__func__, due(3), itertools.count(1)

    def fail_twice(cls, update):
        if (call := next(calls)) > 2:
            return change(cls, update)
        if call == 2:
            Message.update(send_at=TUESDAY_NOON + HOUR).where(Message.id == put_off.id).execute()
        raise ValueError(BAD)

    monkeypatch.setattr(Message, "change", classmethod(fail_twice))
    assert run_pass(TUESDAY_NOON)["promoted"] == 3


def test_a_text_that_breaks_expiry_is_set_aside_too(run_pass, broken, caplog):
    old = TUESDAY_NOON - 80 * HOUR
    _, bad = due(10, status=Status.QUEUED, send_at=old, first_send_at=old)
    broken("message", bad, "NEW.status = 'expired'")
    assert run_pass(TUESDAY_NOON, carrier=None)["expired"] == 10
    assert again(bad).status == Status.QUEUED
    assert BAD not in caplog.text


def test_an_outage_sets_nothing_aside(settings, at, database_url, monkeypatch):
    """The pass fails, as always, and the next one does it all."""
    at(TUESDAY_NOON)
    due(5)
    scheduler = Scheduler(settings, FakeCarrier())

    def fail(cls, update):
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as away:
        away.setattr(Message, "change", classmethod(fail))
        with pytest.raises(OperationalError):
            scheduler.promote(TUESDAY_NOON)
    scheduler.promote(TUESDAY_NOON)
    assert scheduler.counts["promoted"] == 6


# Replies


def address(key):
    EventAddress.set(key, "https://systems.example.com/events", TUESDAY_NOON)


@pytest.fixture
def unfinished(database_url):
    """Replies to messages of a key that is told of them; of each, a part is missing."""
    address(key_named("app"))
    rules = ReplyRules("fake", "asked", None, None)

    def write(number):
        store(to=number, status=Status.SENT, finished_at=TUESDAY_NOON - HOUR, carrier="fake")
        said = IncomingText(number, TEXT, message_ids=(number,), part=("7", 2, 1))
        inbound.record([said], TUESDAY_NOON, rules)
        return Reply.get(Reply.number == number)

    return write


def test_a_reply_that_breaks_its_telling_stops_neither_passes_nor_others(
    run_pass, carrier, unfinished, monkeypatch, caplog
):
    bad, good = unfinished(BAD), unfinished(NEW_YORK)
    write_reply = Event.write_reply.__func__

    def fail(cls, key, message_id, data, now):
        if data["reply_id"] == str(bad.id):
            raise KeyError(BAD)
        write_reply(cls, key, message_id, data, now)

    monkeypatch.setattr(Event, "write_reply", classmethod(fail))
    waits = store(to="+12125550001")
    run_pass(TUESDAY_NOON + 6 * MINUTE, **ALWAYS_OPEN)
    assert again(waits).status == Status.SENT
    (event,) = Event.select().where(Event.reply_id.is_null(False))
    assert json.loads(event.body)["data"]["reply_id"] == str(good.id)
    shown = {each.id for each in Reply.shown(TUESDAY_NOON + 6 * MINUTE)}
    assert shown == {bad.id, good.id}
    assert_silent_about(bad, caplog)
    caplog.clear()
    run_pass(TUESDAY_NOON + 7 * MINUTE, **ALWAYS_OPEN)
    assert errors(caplog) == []


# Claims and judgements


def status_of(message):
    return Message.select(Message.status).where(Message.id == message.id).scalar()


def queued(count=20):
    return due(count, status=Status.QUEUED)


CLAIMED = "NEW.status = 'sending'"


@pytest.mark.parametrize("how", [unreadable, CLAIMED], ids=["unreadable", "may not be claimed"])
def test_a_text_that_breaks_its_claim_waits_and_all_others_go(
    run_pass, carrier, broken, caplog, how
):
    numbers, bad = queued()
    unreadable("message", bad) if how is unreadable else broken("message", bad, how)
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert sorted(carrier.numbers) == numbers
    assert status_of(bad) == Status.SCHEDULED
    assert_silent_about(bad, caplog)
    caplog.clear()
    store(to=NEW_YORK)
    assert run_pass(TUESDAY_NOON + SECOND)["sent"] == 1
    assert errors(caplog) == [], "not at each pass"


def test_a_text_that_may_not_even_wait_is_tried_once_a_second(
    settings, at, carrier, broken, caplog
):
    _, bad = queued(3)
    broken("message", bad, "TRUE")
    at(TUESDAY_NOON)
    scheduler = Scheduler(settings, carrier, IN_ORDER)
    scheduler.go_on_until(scheduler.clock.monotonic() + 1.5)
    assert len(carrier.texts) == 3
    tried = [each for each in errors(caplog) if each.startswith(f"message {bad.id} is set aside")]
    assert 1 <= len([each for each in tried if "stays due" not in each]) <= 4


def test_a_text_that_breaks_its_judgement_holds_up_no_neighbour(
    run_pass, carrier, monkeypatch, caplog
):
    """Not the rules themselves, but what is looked up for them."""
    _, bad = queued()
    look_again = receipts.look_again

    def fail(phone, now):
        if phone == BAD:
            raise KeyError(BAD)
        return look_again(phone, now)

    Message.update(in_doubt=1).execute()
    monkeypatch.setattr(receipts, "look_again", fail)
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert again(bad).status == Status.SCHEDULED
    assert not Attempt.select().where(Attempt.message == bad.id).exists()
    assert_silent_about(bad, caplog)


def test_an_outage_during_a_claim_sets_nothing_aside(settings, at, database_url, monkeypatch):
    at(TUESDAY_NOON)
    queued(5)
    scheduler = Scheduler(settings, FakeCarrier())

    def fail(cls, *_):
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as away:
        away.setattr(Attempt, "begin", classmethod(fail))
        with pytest.raises(OperationalError):
            scheduler.run_pass()
    assert statuses() == {Status.QUEUED: 6}
    assert scheduler.run_pass()["sent"] == 6


# Answers


def lasting(settings, carrier, at):
    """A scheduler that makes a pass whenever it is told to."""
    scheduler = Scheduler(settings, carrier, IN_ORDER)

    def run(instant=TUESDAY_NOON):
        at(instant)
        return scheduler.run_pass()

    run.scheduler = scheduler
    return run


def test_a_yes_that_breaks_its_record_is_in_doubt_and_its_neighbours_are_sent(
    run_pass, carrier, broken, caplog
):
    """This carrier cannot be asked: the text is never given again."""
    _, bad = queued()
    broken("message", bad, "NEW.status = 'sent'")
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert carrier.numbers.count(BAD) == 1
    ended = again(bad)
    assert (ended.status, ended.in_doubt) == (Status.FAILED, 1)
    assert ended.last_error.endswith("the carrier may have taken it")
    assert_silent_about(bad, caplog)
    run_pass(TUESDAY_NOON + HOUR)
    assert carrier.numbers.count(BAD) == 1


def test_of_a_carrier_that_can_be_asked_the_yes_is_recorded_once_that_is_mended(
    run_pass, askable, database_url
):
    _, bad = queued(3)
    askable.answer = None
    askable.answers[BAD] = lambda: askable.take(BAD, TEXT)
    mend = breaks("message", bad, "NEW.status = 'sent'")
    for minutes in (0, 10, 30):
        run_pass(TUESDAY_NOON + minutes * MINUTE, askable)
    assert again(bad).status in WAITING
    mend()
    for minutes in (60, 120):
        run_pass(TUESDAY_NOON + minutes * MINUTE, askable)
    assert again(bad).status == Status.SENT
    assert askable.numbers.count(BAD) == 1


def test_a_yes_of_which_nothing_can_be_recorded_stays_in_hand_and_is_not_given_again(
    settings, at, without_waiting, carrier, broken, caplog
):
    _, bad = queued(3)
    broken("message", bad, "OLD.status = 'sending'")
    run = lasting(settings, carrier, at)
    assert run()["sent"] == 3
    assert_silent_about(bad, caplog)
    caplog.clear()
    store(to=NEW_YORK)
    assert run()["sent"] == 1
    assert errors(caplog) == []
    assert carrier.numbers.count(BAD) == 1
    assert again(bad).status == Status.SENDING
    assert not run.scheduler.is_busy
    run.scheduler.close()
    assert Heartbeat.select().count() == 1, "another takes it over"


def test_a_no_that_breaks_its_record_is_in_doubt_and_stops_no_other(
    run_pass, carrier, broken, caplog
):
    _, bad = queued(5)
    carrier.answer = FOR_NOW
    broken("message", bad, f"NEW.last_error = '{FOR_NOW}'")
    assert run_pass(TUESDAY_NOON)["retrying"] == 5 + 1
    waits = again(bad)
    assert (waits.status, waits.in_doubt) == (Status.SCHEDULED, 1)
    assert waits.send_at > TUESDAY_NOON
    assert_silent_about(bad, caplog)


def test_what_keeps_a_text_from_its_carrier_may_break_and_it_waits(
    settings, at, without_waiting, carrier, broken, monkeypatch, caplog
):
    _, bad = queued(3)
    monkeypatch.setattr(outcomes, "judge_again", lambda *_: Outcome(Status.EXPIRED))
    broken("message", bad, "NEW.status = 'expired'")
    assert lasting(settings, carrier, at)()["expired"] == 3
    assert carrier.texts == []
    waits = again(bad)
    assert (waits.status, waits.send_at) == (Status.SCHEDULED, TUESDAY_NOON + 10 * MINUTE)
    assert Attempt.select().count() == 0, "nobody has it"
    assert_silent_about(bad, caplog)


def test_the_answer_to_a_question_that_breaks_its_record_stops_no_other_and_is_asked_again(
    run_pass, askable, broken, caplog
):
    lost = {"in_doubt": 1, "carrier": "fake", "status": Status.SCHEDULED}
    lost |= {"send_at": TUESDAY_NOON + HOUR, "in_doubt_since": TUESDAY_NOON - HOUR}
    bad, good = store(to=BAD, **lost), store(to=NEW_YORK, **lost)
    Attempt.update(ask_at=TUESDAY_NOON).execute()
    askable.taken = [(each.to, each.message) for each in (bad, good)]
    broken("message", bad, "NEW.status = 'sent'")
    assert run_pass(TUESDAY_NOON, askable)["sent"] == 1
    assert (again(bad).status, again(good).status) == (Status.SCHEDULED, Status.SENT)
    assert_silent_about(bad, caplog)
    asked = len(askable.asked)
    run_pass(TUESDAY_NOON + 9 * MINUTE, askable)
    assert len(askable.asked) == asked
    run_pass(TUESDAY_NOON + 10 * MINUTE, askable)
    assert len(askable.asked) == asked + 1


# What a carrier reports


class Telling(FakeCarrier):
    """A carrier that reports these over its session, and repeats what is not acknowledged."""

    def __init__(self, *events):
        super().__init__()
        self.batches = [[], [*events]]  # a call acknowledges the one before

    def received(self):
        self.batches[:1] = []
        return [*self.batches[0]] if self.batches else []


def delivered(reference, number=None):
    return Receipt(reference, True, number=number)


def taken(count=30):
    """Texts that the carrier has taken, the last of them one whose receipt breaks."""
    columns = {"status": Status.SENT, "finished_at": TUESDAY_NOON - HOUR, "carrier": "fake"}
    return [store(to=f"+1212555{n:04}", carrier_reference=f"R{n}", **columns) for n in range(count)]


def test_a_receipt_that_breaks_its_record_stops_none_of_those_behind_it(
    settings, at, without_waiting, broken, caplog
):
    messages = taken()
    broken("message", messages[7], "NEW.status = 'delivered'")
    telling = Telling(*(delivered(f"R{n}", m.to) for n, m in enumerate(messages)))
    run = lasting(settings, telling, at)
    for second in range(6):
        run(TUESDAY_NOON + second * SECOND)
    assert statuses() == {Status.DELIVERED: 29, Status.SENT: 1}
    assert again(messages[7]).status == Status.SENT
    assert telling.batches == [], "all is acknowledged"
    assert len(errors(caplog)) == 1
    assert "'R7'" in errors(caplog)[0]
    assert messages[7].to not in caplog.text


def test_a_late_answer_and_a_reply_that_break_their_record_stop_none_behind_them(
    settings, at, without_waiting, monkeypatch, caplog
):
    messages = taken(2)
    record_reply = inbound.record_reply

    def fail(said, *rest):
        if said.number == BAD:
            raise KeyError(BAD)
        record_reply(said, *rest)

    monkeypatch.setattr(inbound, "record_reply", fail)
    replies = (
        IncomingText(BAD, TEXT, message_ids=("x",)),
        IncomingText(messages[1].to, "yes", message_ids=("y",)),
    )
    telling = Telling(LateAnswer(BAD, None), delivered("R0"), *replies, delivered("R1"))
    run = lasting(settings, telling, at)
    for second in range(6):
        run(TUESDAY_NOON + second * SECOND)
    assert statuses() == {Status.DELIVERED: 2}
    assert [each.text for each in Reply.select()] == ["yes"]
    assert telling.batches == []
    assert len(errors(caplog)) == 2
    assert "'x'" in caplog.text
    assert TEXT not in caplog.text


def test_no_receipt_is_lost_by_an_outage(settings, at, database_url, monkeypatch):
    messages = taken(5)
    telling = Telling(*(delivered(f"R{n}") for n in range(5)))
    at(TUESDAY_NOON)
    scheduler, record = Scheduler(settings, telling), receipts.record_receipts

    def fail(*_):
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as away:
        away.setattr(receipts, "record_receipts", fail)
        for _ in range(2):
            with pytest.raises(OperationalError):
                scheduler.collect()
    assert record is receipts.record_receipts
    for _ in range(2):
        scheduler.collect()
    assert statuses() == {Status.DELIVERED: len(messages)}


# Take-overs


def dead_with(count, sender=SENDER):
    """What a scheduler had in hand that was last seen an hour ago, and one more that breaks."""
    columns = {"claimed_by": sender, "claimed_at": TUESDAY_NOON - HOUR, "carrier": "fake"}
    columns |= {"status": Status.SENDING}
    return [store(to=f"+1212555{n:04}", **columns) for n in range(count)], store(
        to=BAD, message=TEXT, **columns
    )


@pytest.mark.parametrize("how", [unreadable, "NEW.status = 'queued'"], ids=["unreadable", "fixed"])
def test_a_text_that_breaks_a_take_over_is_passed_over_and_all_others_are_taken(
    run_pass, broken, caplog, how
):
    _, bad = dead_with(10)
    unreadable("message", bad) if how is unreadable else broken("message", bad, how)
    assert run_pass(TUESDAY_NOON)["taken over"] == 10
    assert status_of(bad) == Status.SENDING
    assert not Heartbeat.beat(SENDER, TUESDAY_NOON), "it gives no more texts"
    assert Attempt.select().where(Attempt.result.is_null()).count() == 1
    assert_silent_about(bad, caplog)
    caplog.clear()
    assert run_pass(TUESDAY_NOON + MINUTE)["taken over"] == 0
    assert errors(caplog) == [], "not at each pass"


def test_one_of_whom_nothing_can_be_taken_over_stops_none_behind_it(run_pass, broken, caplog):
    dead_with(3)
    other = uuid.UUID(int=2)
    columns = {"claimed_by": other, "claimed_at": TUESDAY_NOON - HOUR, "status": Status.SENDING}
    store_many_of_other = [store(to=f"+1212556{n:04}", **columns) for n in range(3)]
    (first,) = Attempt.select().where(Attempt.sender == SENDER).limit(1)
    broken("attempt", first, "TRUE")
    assert sum(run_pass(TUESDAY_NOON + n * SECOND)["taken over"] for n in (0, 1)) == 3
    assert {again(each).status for each in store_many_of_other} == {Status.SENT}
    assert str(SENDER) in caplog.text
    assert Attempt.under_way(SENDER).count() == 4


# Retention


@pytest.mark.parametrize("keep", ["keep_messages", "keep_texts"])
def test_a_text_that_breaks_retention_is_kept_and_all_others_are_forgotten(
    run_pass, broken, caplog, keep
):
    old = {"status": Status.SENT, "finished_at": TUESDAY_NOON - 9 * DAY}
    bad = store(to=BAD, message=TEXT, **old)
    store_many(600, **old)
    broken("message", bad, "TRUE", "DELETE" if keep == "keep_messages" else "UPDATE")
    run_pass(TUESDAY_NOON, **{keep: 7 * DAY})
    assert [each.to for each in Message.select().where(Message.to.is_null(False))] == [BAD]
    assert_silent_about(bad, caplog)
    caplog.clear()
    run_pass(TUESDAY_NOON + 2 * MINUTE, **{keep: 7 * DAY})
    assert errors(caplog) == [], "not at each pass"


def test_a_reply_that_breaks_retention_is_kept_and_all_others_are_forgotten(
    run_pass, broken, caplog
):
    rules = ReplyRules("fake", "asked", None, None)
    for number in (BAD, NEW_YORK):
        store(to=number, status=Status.SENT, finished_at=TUESDAY_NOON - 9 * DAY, carrier="fake")
        inbound.record([IncomingText(number, TEXT)], TUESDAY_NOON - 9 * DAY, rules)
    bad = Reply.get(Reply.number == BAD)
    broken("reply", bad, "TRUE", "DELETE")
    run_pass(TUESDAY_NOON, keep_messages=7 * DAY)
    assert [each.number for each in Reply.select()] == [BAD]
    assert_silent_about(bad, caplog)


# Chores


def test_a_chore_that_breaks_stops_neither_texts_nor_other_chores(
    run_pass, carrier, monkeypatch, caplog
):
    def fail(now):
        raise KeyError(BAD)

    monkeypatch.setattr(receipts, "forget_unmatched", fail)
    due(3)
    assert run_pass(TUESDAY_NOON)["sent"] == 4
    assert errors(caplog) != []
    assert BAD not in caplog.text
