"""Equal texts of which a carrier may have copies, and messages that are too old or break rules."""

import threading
import time
from collections import Counter

import pytest

import recipients
from carriers import CarrierError, Receipt
from databases import on_both
from fake_carrier import FOR_GOOD
from models import Message, Status
from running import wait_until
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from sending import doubts, receipts, waiting
from stored_messages import FAKE, again, decide_on, held, store, store_many

pytestmark = on_both

IN_DOUBT = CarrierError("no answer", in_doubt=True)


def later(run_pass, minutes, **changes):
    """Run a pass so many minutes later; what it did beside promoting."""
    counts = run_pass(TUESDAY_NOON + minutes * MINUTE, **changes)
    del counts["promoted"]
    return +counts


def test_the_copy_of_an_equal_text_that_is_purged_is_not_that_of_one_that_failed(run_pass, askable):
    failed = held(Status.FAILED, in_doubt=1, carrier="fake", finished_at=TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    later(run_pass, 1, carrier=askable)
    assert again(failed).status == Status.FAILED


def test_a_carrier_is_asked_by_one_of_two_schedulers_that_see_the_same_doubt(database_url):
    message, answer_by = store(in_doubt=1, carrier="fake"), TUESDAY_NOON + 5 * MINUTE
    asks = [doubts.ask_again_at(message.id, FAKE, answer_by, TUESDAY_NOON) for _ in range(2)]
    assert asks == [True, False]


def test_without_a_delay_of_retries_a_question_is_not_put_again_at_once(run_pass, askable):
    """Or a single pass would not end before the carrier answers."""
    store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    askable.listing = CarrierError("out of order")

    def give_in():
        if len(askable.asked) > 2:
            askable.listing = None

    askable.finding = give_in
    later(run_pass, 0, carrier=askable, retry_delay=0)
    assert len(askable.asked) == 1
    later(run_pass, 1, carrier=askable, retry_delay=0)
    assert len(askable.asked) == 2


def test_a_text_in_doubt_does_not_take_the_reference_of_one_under_way(run_pass, askable):
    """An equal text, which the carrier has taken and not yet answered when it is asked."""
    doubtful = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, attempts=1)
    fresh, asked = store(), threading.Event()

    def answer_late():
        assert asked.wait(10)
        time.sleep(0.3)  # the list of then is recorded before this answer
        return "SM0"

    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello") and answer_late()
    askable.finding = lambda: wait_until(lambda: askable.taken) and asked.set()
    assert later(run_pass, 0, carrier=askable)["sent"] == 1
    assert again(doubtful).status == Status.QUEUED
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    assert later(run_pass, 1, carrier=askable) == Counter({"sent": 1})
    assert again(fresh).carrier_reference == "SM0"
    assert again(doubtful).carrier_reference == "SM1"


def test_a_yes_that_comes_after_a_retry_does_not_undo_the_retry(run_pass, askable):
    """As from a sender that stood still with it until it was found, undelivered and retried."""
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    later(run_pass, 0, carrier=askable)
    receipts.record([Receipt("SM0", False)], TUESDAY_NOON, False, FAKE)
    assert decide_on(again(message)).retry(TUESDAY_NOON, 3 * DAY)
    receipts.sent({message.id: "SM0"}, TUESDAY_NOON, FAKE)
    assert again(message).status == Status.SCHEDULED
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 0, carrier=askable)
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "SM1")


# What cannot be judged


def test_a_message_that_cannot_be_judged_is_set_aside_and_the_rest_go_on(
    run_pass, carrier, monkeypatch, caplog
):
    numbers = store_many(6)
    find = recipients.find

    def fail_for_one(to):
        if to == numbers[2]:
            raise KeyError(to)
        return find(to)

    monkeypatch.setattr(recipients, "find", fail_for_one)
    for minutes in (0, 2, 10, 60, 120):
        later(run_pass, minutes)
    assert sorted(carrier.numbers) == sorted({*numbers} - {numbers[2]})
    bad = Message.get(Message.to == numbers[2])
    assert (bad.status, bad.attempts) == (Status.FAILED, 4)
    assert bad.last_error == "cannot be judged: KeyError"
    assert numbers[2] not in caplog.text


# What is too old


@pytest.mark.parametrize(
    ("columns", "left", "becomes"),
    [
        ({}, 0 * SECOND, "expired"),
        ({"status": Status.SCHEDULED}, 0 * SECOND, "expired"),
        ({"attempts": 2}, 0 * SECOND, "expired"),  # counted from before its retries
        ({}, SECOND, "sent"),
    ],
)
def test_an_old_text_expires_instead_of_being_sent(run_pass, carrier, columns, left, becomes):
    message = store(first_send_at=TUESDAY_NOON - 3 * DAY + left, **columns)
    assert later(run_pass, 0) == Counter({becomes: 1})
    assert len(carrier.texts) == (becomes == "sent")
    ended = again(message)
    assert (ended.status, ended.finished_at, ended.last_error) == (becomes, TUESDAY_NOON, None)


def test_a_text_that_waits_beyond_its_time_expires_then_and_not_when_it_would_be_sent(
    run_pass, carrier
):
    """It was held up until business hours are over, or waits for a retry."""
    ends = TUESDAY_NOON + MINUTE
    held_up = {"status": Status.SCHEDULED, "expires_at": ends, "send_at": TUESDAY_NOON + 20 * HOUR}
    message = store(**held_up)
    later(run_pass, 0)
    assert again(message).status == Status.SCHEDULED
    assert later(run_pass, 1) == Counter({"expired": 1})
    assert again(message).finished_at == ends


def test_what_is_due_or_too_old_moves_in_batches(database_url, monkeypatch):
    """So that no writer waits for more than one of them."""
    monkeypatch.setattr("sending.waiting.BATCH", 10)
    old = TUESDAY_NOON - 4 * DAY
    store_many(25, status=Status.SCHEDULED)
    store_many(15, status=Status.SCHEDULED, first_send_at=old)
    store_many(25, send_at=old, first_send_at=old)
    moved = waiting.promote(TUESDAY_NOON)
    assert moved == {Status.QUEUED: 25, Status.EXPIRED: 15}
    assert waiting.expire(TUESDAY_NOON) == 25


def test_a_refusal_after_the_claim_was_lost_is_not_reported(run_pass, carrier, caplog):
    message = store()

    def lose_claim():
        Message.update(claim_number=Message.claim_number + 1).execute()
        return FOR_GOOD

    carrier.answers[NEW_YORK] = lose_claim
    assert later(run_pass, 0)["failed"] == 0
    assert "failed" not in caplog.text
    assert again(message).status == Status.SENDING


# What a carrier says of a text after its answer was missing


def test_a_receipt_before_the_timeout_settles_the_doubt(run_pass, carrier):
    message = store()

    def answer():
        receipts.record_receipts([Receipt("SM1", False, "off", NEW_YORK)], TUESDAY_NOON, FAKE)
        return IN_DOUBT

    carrier.answers[NEW_YORK] = answer
    run_pass(TUESDAY_NOON)
    assert (again(message).status, again(message).last_error) == (Status.UNDELIVERED, "off")
    run_pass(TUESDAY_NOON + HOUR)
    assert len(carrier.texts) == 1


def test_receipts_that_match_nothing_are_told_of_once_an_hour(run_pass, caplog):
    receipts.record_receipts([Receipt("SM1", True, None, NEW_YORK)], TUESDAY_NOON, FAKE)
    told = "receipts of the last hour that match no message: 1"
    for minutes, times in ((4, 0), (6, 1), (7, 1), (59, 1), (67, 1)):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
        assert caplog.text.count(told) == times
    receipts.record_receipts([Receipt("SM2", True, None)], TUESDAY_NOON + HOUR, FAKE)
    run_pass(TUESDAY_NOON + 68 * MINUTE)
    assert caplog.text.count(told) == 2
    assert NEW_YORK[1:] not in caplog.text
