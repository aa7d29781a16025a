"""What a scheduler does where a carrier's answer is missing, it refuses the account, a message
cannot be judged, or is too old."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import recipients
import reports
from access.do_not_call import DoNotCall
from carriers import CarrierError, LateAnswer, OptOut, Receipt
from carriers.ways import Way
from fake_carrier import ACCOUNT, FOR_GOOD, FOR_NOW, DyingPool, FakeCarrier
from models import Message, Status
from running import wait_until
from samples import DAY, HOUR, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending import heartbeats, receipts
from sending.attempts import Attempt
from sending.carrier_state import CarrierState
from sending.runtime import Runtime
from stored_messages import again, held, statuses, store, store_many

CLOSING = TUESDAY_NOON + 5 * HOUR
OPENING = CLOSING + 16 * HOUR
IN_DOUBT = CarrierError("no answer", in_doubt=True)
MAY_HAVE = "the carrier may have taken it"


def later(run_pass, minutes, **changes):
    """Run a pass so many minutes later; what it did beside promoting."""
    counts = run_pass(TUESDAY_NOON + minutes * MINUTE, **changes)
    del counts["promoted"]
    return +counts


# In doubt


def test_what_stays_unanswered_twice_is_not_sent_a_third_time(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = IN_DOUBT
    assert later(run_pass, 0) == Counter({"retrying": 1})
    assert later(run_pass, 2) == Counter({"failed": 1})
    assert len(carrier.texts) == 2
    assert again(message).last_error == f"no answer; {MAY_HAVE}"
    assert not later(run_pass, 60)


def test_what_is_answered_the_second_time_is_sent(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = IN_DOUBT
    later(run_pass, 0)
    carrier.answers.clear()
    later(run_pass, 2)
    assert (again(message).status, again(message).in_doubt) == (Status.SENT, 1)
    assert again(message).attempts == 2


@pytest.mark.slow
def test_a_sender_that_stood_still_leaves_what_it_claimed_to_others(
    run_pass, carrier, settings, at, monkeypatch
):
    """As one that is stopped by SIGSTOP between its claim and the send."""
    monkeypatch.setattr(heartbeats, "FRESH", 0.5)
    message = store()
    at(TUESDAY_NOON)

    class StandingStill(ThreadPoolExecutor):
        def submit(self, *call):
            time.sleep(0.6)  # without a beat
            slow.stop.request()
            return super().submit(*call)

    runtime = Runtime(make_pool=StandingStill)
    slow = Scheduler(settings._replace(claim_timeout=1), carrier, runtime)
    slow.run_pass()
    assert carrier.texts == []
    assert (again(message).status, again(message).in_doubt) == (Status.QUEUED, 0)
    run_pass(TUESDAY_NOON)
    assert len(carrier.texts) == 1


def test_a_carrier_that_can_be_asked_is_asked_and_what_it_has_is_sent(run_pass, askable):
    message = store()
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello", IN_DOUBT)
    assert later(run_pass, 0, carrier=askable) == Counter({"retrying": 1})
    assert later(run_pass, 2, carrier=askable) == Counter({"sent": 1})
    assert len(askable.texts) == 1
    assert askable.asked == [(NEW_YORK, "Hello", TUESDAY_NOON)]
    assert (again(message).carrier_reference, again(message).attempts) == ("SM0", 1)


def test_what_a_carrier_that_is_asked_does_not_have_is_sent(run_pass, askable):
    message = store()
    askable.answers[NEW_YORK] = IN_DOUBT
    later(run_pass, 0, carrier=askable)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    assert later(run_pass, 2, carrier=askable) == Counter({"sent": 1})
    assert len(askable.texts) == 2
    assert len(askable.taken) == 1
    assert again(message).attempts == 2


def test_what_a_carrier_turns_out_not_to_have_waits_if_it_has_closed_meanwhile(
    run_pass, askable, at
):
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, attempts=1)
    askable.finding = lambda: at(CLOSING)
    assert run_pass(CLOSING - SECOND, carrier=askable)["rescheduled"] == 1
    assert askable.asked
    assert askable.texts == []
    assert again(message).send_at == OPENING
    askable.finding = lambda: at(OPENING)
    assert run_pass(OPENING, carrier=askable)["sent"] == 1


def test_what_a_carrier_turns_out_not_to_have_is_blocked_by_a_stop_meanwhile(run_pass, askable):
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, attempts=1, check_dnc=True)
    askable.finding = lambda: DoNotCall.add([NEW_YORK], TUESDAY_NOON, "STOP")
    assert later(run_pass, 0, carrier=askable) == Counter({"blocked": 1})
    assert askable.texts == []
    assert again(message).status == Status.BLOCKED


def test_a_carrier_that_can_be_asked_never_gets_two_copies(run_pass, askable):
    """However often its answers are lost."""
    message = store(max_retries=5)
    askable.answers[NEW_YORK] = IN_DOUBT  # it never takes it
    for minutes in range(4):
        later(run_pass, minutes * 30, carrier=askable, retry_delay=1)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello", IN_DOUBT)
    for minutes in range(4, 8):
        later(run_pass, minutes * 30, carrier=askable, retry_delay=1)
    assert len(askable.taken) == 1
    assert again(message).status == Status.SENT


def test_a_carrier_that_does_not_answer_when_asked_is_sent_nothing(run_pass, askable):
    message = store()
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello", IN_DOUBT)
    later(run_pass, 0, carrier=askable)
    askable.listing = FOR_NOW
    for minutes in (2, 10, 60, 240, 6000):  # also when it has expired
        later(run_pass, minutes, carrier=askable)
        assert (again(message).status, again(message).in_doubt) == (Status.QUEUED, 1)
    assert len(askable.texts) == 1
    askable.listing = None
    assert later(run_pass, 6100, carrier=askable) == Counter({"sent": 1})


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("keep_back", ["stop", "cancel", "expire"])
def test_what_the_carrier_took_is_sent_whatever_came_meanwhile_and_the_rest_is_kept_back(
    run_pass, askable, keep_back, taken
):
    message = store(check_dnc=True, first_send_at=TUESDAY_NOON)
    lost = (lambda: askable.take(NEW_YORK, "Hello", IN_DOUBT)) if taken else IN_DOUBT
    askable.answers[NEW_YORK] = lost
    later(run_pass, 0, carrier=askable)
    minutes, kept = 10, {"stop": Status.BLOCKED, "cancel": Status.CANCELLED}
    if keep_back == "stop":
        stop = OptOut(NEW_YORK, stop=True, source="reply")
        receipts.record_opt_out(stop, TUESDAY_NOON + MINUTE)
    elif keep_back == "cancel":
        assert again(message).cancel("shell", TUESDAY_NOON + MINUTE)
    else:
        minutes = 5 * 24 * 60
    assert again(message).status == Status.SCHEDULED, "the carrier is asked first"
    later(run_pass, minutes, carrier=askable)
    wanted = Status.SENT if taken else kept.get(keep_back, Status.EXPIRED)
    assert again(message).status == wanted
    assert len(askable.texts) == 1


@pytest.mark.parametrize(("keep_back"), ["stop", "cancel", "expire"])
def test_a_text_in_doubt_is_kept_back_at_a_carrier_that_cannot_be_asked(
    run_pass, carrier, keep_back
):
    message = store(check_dnc=True, first_send_at=TUESDAY_NOON)
    carrier.answers[NEW_YORK] = IN_DOUBT
    later(run_pass, 0)
    if keep_back == "stop":
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "reply")
    elif keep_back == "cancel":
        again(message).cancel("shell", TUESDAY_NOON + MINUTE)
    later(run_pass, 5 * 24 * 60 if keep_back == "expire" else 10)
    kept = {"stop": Status.BLOCKED, "cancel": Status.CANCELLED, "expire": Status.EXPIRED}
    assert again(message).status == kept[keep_back]
    assert len(carrier.texts) == 1


# An outage


DOWN = CarrierError("a gateway's page", silent=True)
UNREACHED = CarrierError("nobody listens", unreached=True)


@pytest.mark.slow
def test_from_the_fifth_silence_in_a_row_a_carrier_is_down_and_nobody_else_loses_a_retry(
    run_pass, carrier
):
    numbers = store_many(20)
    carrier.answers = dict.fromkeys(numbers, DOWN)
    for second in range(0, 2400, 120):
        run_pass(TUESDAY_NOON + second * SECOND, send_concurrency=1)
    tried = Message.select().where(Message.attempts > 0).count()
    assert tried == 5
    assert Message.select().where(Message.status == Status.FAILED).count() == 0
    assert CarrierState.get_by_id("fake").trouble == "a gateway's page"
    carrier.answers.clear()
    for minutes in (41, 42, 60, 90):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
    assert statuses() == {Status.SENT: 20}


def test_a_carrier_that_cannot_be_reached_is_down_at_once(run_pass, carrier):
    numbers = store_many(20)
    carrier.answers = dict.fromkeys(numbers, UNREACHED)
    run_pass(TUESDAY_NOON, send_concurrency=1)
    assert len(carrier.texts) == 1
    run_pass(TUESDAY_NOON + SECOND)
    assert len(carrier.texts) == 1
    carrier.answers.clear()
    run_pass(TUESDAY_NOON + 2 * MINUTE)
    assert statuses() == {Status.SENT: 20}


def test_one_bad_message_among_good_ones_is_no_outage(run_pass, carrier):
    bad = store(to=NEIGHBOUR)
    carrier.answers[NEIGHBOUR] = DOWN
    for minutes in (0, 2, 10, 60, 240):
        store()
        run_pass(TUESDAY_NOON + minutes * MINUTE)
        assert CarrierState.get_by_id("fake").trouble is None
    assert again(bad).status == Status.FAILED
    assert again(bad).attempts == 4


def test_a_first_text_whose_answer_tells_nothing_of_the_carrier_does_not_hold_up_the_others(
    run_pass, carrier
):
    numbers = store_many(3)
    carrier.answers = dict.fromkeys(numbers, CarrierError("slow", too_fast=True))
    run_pass(TUESDAY_NOON, send_concurrency=1)
    carrier.answers = dict.fromkeys(numbers, DOWN)
    run_pass(TUESDAY_NOON + 2 * SECOND, send_concurrency=1)
    carrier.answers.clear()
    run_pass(TUESDAY_NOON + 4 * SECOND)
    assert Message.select().where(Message.status == Status.SENT).count() >= 2


def test_after_an_outage_the_carrier_is_asked_first_whether_it_serves(run_pass, carrier):
    """Without a text, which could be left in doubt."""
    numbers, checks = store_many(3), []

    def check():
        checks.append(True)
        raise UNREACHED

    carrier.answers, carrier.check = dict.fromkeys(numbers, UNREACHED), check
    run_pass(TUESDAY_NOON, send_concurrency=1)
    run_pass(TUESDAY_NOON + MINUTE)
    assert (len(carrier.texts), len(checks)) == (1, 1)
    carrier.answers, carrier.check = {}, lambda: None
    run_pass(TUESDAY_NOON + 10 * MINUTE)
    assert statuses() == {Status.SENT: 3}


def test_two_equal_texts_in_doubt_are_not_taken_for_one(run_pass, askable):
    both = [store(), store()]
    answers = iter([IN_DOUBT, CarrierError("lost", in_doubt=True)])
    taken = iter([True, False])

    def lose():
        if next(taken):
            askable.taken.append((NEW_YORK, "Hello"))
        raise next(answers)

    askable.answers[NEW_YORK] = lose
    later(run_pass, 0, carrier=askable)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 2, carrier=askable)
    assert {again(message).carrier_reference for message in both} == {"SM0", "SM1"}
    assert len(askable.taken) == 2


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


def test_a_yes_that_comes_late_does_not_give_two_equal_texts_one_reference(run_pass, askable):
    """As from a sender that stood still with it, so that its message was taken over."""
    doubtful = held(Status.SENDING, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    fresh = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, take_overs=1)
    askable.taken.append((NEW_YORK, "Hello"))  # of the fresh one
    (copy,) = Attempt.unclear_at(Way("fake"), doubtful.id)
    assert receipts.found(copy, ["SM0"], TUESDAY_NOON)
    receipts.sent({fresh.id: "SM0"}, TUESDAY_NOON)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 0, carrier=askable)
    assert {again(each).status for each in (doubtful, fresh)} == {Status.SENT}
    assert {again(each).carrier_reference for each in (doubtful, fresh)} == {"SM0", "SM1"}
    assert len(askable.taken) == 2


def test_a_yes_that_comes_after_a_retry_does_not_undo_the_retry(run_pass, askable):
    """As from a sender that stood still with it until it was found, undelivered and retried."""
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    later(run_pass, 0, carrier=askable)
    receipts.record([Receipt("SM0", False)], TUESDAY_NOON, False)
    assert again(message).retry(TUESDAY_NOON, 3 * DAY)
    receipts.sent({message.id: "SM0"}, TUESDAY_NOON)
    assert again(message).status == Status.SCHEDULED
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 0, carrier=askable)
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "SM1")


def test_a_text_that_is_retried_is_not_taken_for_the_one_that_did_not_arrive(run_pass, askable):
    message = store(status=Status.UNDELIVERED, carrier_reference="SM0", finished_at=TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    assert message.retry(TUESDAY_NOON, 3 * DAY)
    askable.answers[NEW_YORK] = IN_DOUBT
    later(run_pass, 0, carrier=askable)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    assert later(run_pass, 2, carrier=askable) == Counter({"sent": 1})
    assert again(message).carrier_reference == "SM1"


def test_what_is_to_be_sent_after_asking_waits_where_the_scheduler_is_to_stop(
    settings, askable, at
):
    at(TUESDAY_NOON)
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON, attempts=1)
    stopped = Scheduler(settings, askable)
    askable.finding = stopped.stop.request
    stopped.run_pass()
    assert askable.asked
    assert askable.texts == []
    assert (again(message).status, again(message).in_doubt) == (Status.QUEUED, 0)


def test_what_a_dead_sender_held_is_in_doubt(run_pass, askable):
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR)
    askable.taken.append((NEW_YORK, "Hello"))
    assert later(run_pass, 0, carrier=askable) == Counter({"taken over": 1, "sent": 1})
    assert askable.texts == []
    assert askable.asked[0][2] == TUESDAY_NOON - HOUR
    assert again(message).carrier_reference == "SM0"


def test_what_two_dead_senders_held_is_not_sent_a_third_time(run_pass, carrier):
    message = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR, in_doubt=1)
    assert later(run_pass, 0) == Counter({"taken over": 1, "failed": 1})
    assert carrier.texts == []
    assert MAY_HAVE in again(message).last_error


def test_what_kills_every_scheduler_that_takes_it_is_given_up(run_pass, askable):
    message = store()
    living, run_pass.runtime = run_pass.runtime, Runtime(make_pool=DyingPool)
    for hours in range(3):
        with pytest.raises(SystemExit):
            later(run_pass, hours * 60, carrier=askable)
    store(to=NEIGHBOUR)
    run_pass.runtime = living
    moved = {"taken over": 1, "failed": 1, "sent": 1}
    assert later(run_pass, 180, carrier=askable) == Counter(moved)
    assert again(message).last_error.startswith("3 schedulers died with it")
    assert askable.numbers == [NEIGHBOUR]


# The account


def test_trouble_with_the_account_stops_sending_and_costs_no_retry(
    run_pass,
    carrier,
    caplog,
):
    for number in store_many(20):
        carrier.answers[number] = ACCOUNT
    later(run_pass, 0, send_concurrency=2)
    assert len(carrier.texts) <= 4
    assert statuses() == {Status.QUEUED: 20}
    assert {(m.attempts, m.last_error) for m in Message.select()} == {(0, None)}
    state = CarrierState.get_by_id("fake")
    assert (state.trouble, state.trouble_since) == ("the token is wrong", TUESDAY_NOON)
    assert caplog.text.count("the token is wrong") == 1


def test_it_is_tried_again_with_a_pause_that_grows_to_a_minute(run_pass, carrier):
    for number in store_many(5):
        carrier.answers[number] = ACCOUNT
    tried = []
    for second in (0, 4, 5, 14, 15, 34, 35, 74, 75, 134, 135, 194, 195):
        before = len(carrier.texts)
        run_pass(TUESDAY_NOON + second * SECOND)
        if len(carrier.texts) > before:
            tried.append(second)
    assert tried == [0, 5, 15, 35, 75, 135, 195], "and never a second too early"
    assert statuses() == {Status.QUEUED: 5}


def test_it_goes_on_by_itself_once_it_is_mended(run_pass, carrier, caplog):
    caplog.set_level("INFO")
    numbers = store_many(20)
    carrier.answers = dict.fromkeys(numbers, ACCOUNT)
    later(run_pass, 0)
    carrier.answers.clear()
    assert later(run_pass, 1) == Counter({"sent": 20})
    assert CarrierState.get_by_id("fake").trouble is None
    assert "takes texts again" in caplog.text


def test_one_message_that_the_account_refuses_holds_no_other_up(run_pass, carrier):
    store(send_at=TUESDAY_NOON - HOUR)
    carrier.answers[NEW_YORK] = ACCOUNT
    later(run_pass, 0)
    store(TUESDAY_NOON + SECOND, to=NEIGHBOUR, send_at=TUESDAY_NOON - HOUR)
    later(run_pass, 1, send_concurrency=1)
    assert NEIGHBOUR in carrier.numbers


# What cannot be judged


@pytest.mark.parametrize("error", [KeyError, ValueError, ZeroDivisionError])
def test_a_message_that_cannot_be_judged_is_set_aside_and_the_rest_go_on(
    run_pass,
    carrier,
    monkeypatch,
    caplog,
    error,
):
    numbers = store_many(6)
    find = recipients.find

    def fail_for_one(to):
        if to == numbers[2]:
            raise error(to)
        return find(to)

    monkeypatch.setattr(recipients, "find", fail_for_one)
    for minutes in (0, 2, 10, 60, 120):
        later(run_pass, minutes)
    assert sorted(carrier.numbers) == sorted({*numbers} - {numbers[2]})
    bad = Message.get(Message.to == numbers[2])
    assert (bad.status, bad.attempts) == (Status.FAILED, 4)
    assert bad.last_error == f"cannot be judged: {error.__name__}"
    assert numbers[2] not in caplog.text


# What is too old


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_an_old_text_expires_instead_of_being_sent(run_pass, carrier, status):
    message = store(status=status, first_send_at=TUESDAY_NOON - 3 * DAY)
    assert later(run_pass, 0) == Counter({"expired": 1})
    assert carrier.texts == []
    assert (again(message).status, again(message).finished_at) == (Status.EXPIRED, TUESDAY_NOON)


def test_it_is_counted_from_when_it_was_scheduled_first(run_pass, carrier):
    """Not from a retry, which moves the time of sending."""
    store(attempts=2, first_send_at=TUESDAY_NOON - 3 * DAY)
    assert +run_pass(TUESDAY_NOON) == Counter({"expired": 1})


def test_up_to_then_it_is_sent(run_pass, carrier):
    store(first_send_at=TUESDAY_NOON - 3 * DAY + SECOND)
    assert +run_pass(TUESDAY_NOON) == Counter({"sent": 1})


def test_what_waits_for_approval_expires_too(run_pass):
    old = TUESDAY_NOON - 3 * DAY - SECOND
    message = store(manual_mode=True, send_at=old, first_send_at=old)
    assert later(run_pass, 0) == Counter({"expired": 1})
    assert not message.approve("shell", TUESDAY_NOON)


def test_the_carrier_is_told_how_long_a_text_is_wanted(run_pass, carrier, monkeypatch):
    store(first_send_at=TUESDAY_NOON - HOUR)
    wanted = []
    monkeypatch.setattr(
        FakeCarrier, "send", lambda self, to, text, **how: wanted.append(how["valid_for"])
    )
    run_pass(TUESDAY_NOON)
    assert wanted == [71 * 3600]


def test_promotion_happens_in_batches(database_url, monkeypatch):
    """So that no writer waits for more than one of them."""
    monkeypatch.setattr("models.BATCH", 10)
    store_many(25, status=Status.SCHEDULED)
    old = store(status=Status.SCHEDULED, first_send_at=TUESDAY_NOON - 4 * DAY)
    moved = Message.promote(TUESDAY_NOON)
    assert moved == {Status.QUEUED: 25, Status.EXPIRED: 1}
    assert again(old).status == Status.EXPIRED


def test_expiry_happens_in_batches(database_url, monkeypatch):
    """Postgres counts 100,000 ends of one transaction in a minute, those of 20 batches in 7 s."""
    monkeypatch.setattr("models.BATCH", 10)
    old = TUESDAY_NOON - 4 * DAY
    store_many(25, send_at=old, first_send_at=old)
    store_many(5, first_send_at=TUESDAY_NOON)
    assert Message.expire(TUESDAY_NOON) == 25
    assert reports.by_status()[Status.EXPIRED] == 25


def test_a_refusal_after_the_claim_was_lost_is_not_reported(
    run_pass,
    carrier,
    caplog,
):
    message = store()

    def lose_claim():
        Message.update(claim_number=Message.claim_number + 1).execute()
        return FOR_GOOD

    carrier.answers[NEW_YORK] = lose_claim
    assert later(run_pass, 0)["failed"] == 0
    assert "failed" not in caplog.text
    assert again(message).status == Status.SENDING


# What a carrier says of a text after its answer was missing


def test_a_late_yes_is_recorded_and_the_text_goes_out_once(run_pass, carrier):
    message = store()
    carrier.answers[NEW_YORK] = IN_DOUBT
    run_pass(TUESDAY_NOON)
    assert again(message).in_doubt == 1
    late = [[LateAnswer(str(message.id), "SM1")]]
    carrier.received = lambda: late.pop() if late else []
    run_pass(TUESDAY_NOON + HOUR)
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "SM1")
    assert len(carrier.texts) == 1


@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_receipt_before_the_timeout_settles_the_doubt(run_pass, carrier, max_retries):
    message = store(max_retries=max_retries)

    def answer():
        receipts.record_receipts([Receipt("SM1", False, "off", NEW_YORK)], TUESDAY_NOON)
        return IN_DOUBT

    carrier.answers[NEW_YORK] = answer
    run_pass(TUESDAY_NOON)
    assert (again(message).status, again(message).last_error) == (Status.UNDELIVERED, "off")
    run_pass(TUESDAY_NOON + HOUR)
    assert len(carrier.texts) == 1


def test_a_receipt_settles_the_doubt_of_a_text_whose_sender_died(run_pass, carrier):
    message = held(Status.SENDING)
    receipts.record_receipts([Receipt("SM1", True, None, NEW_YORK)], TUESDAY_NOON)
    counts = run_pass(TUESDAY_NOON + HOUR)
    assert (counts["taken over"], counts["sent"]) == (1, 1)
    assert again(message).status == Status.DELIVERED
    assert not carrier.texts


def test_receipts_that_match_nothing_are_told_of_once_an_hour(run_pass, caplog):
    receipts.record_receipts([Receipt("SM1", True, None, NEW_YORK)], TUESDAY_NOON)
    told = "receipts of the last hour that match no message: 1"
    for minutes, times in ((4, 0), (6, 1), (7, 1), (59, 1), (67, 1)):
        run_pass(TUESDAY_NOON + minutes * MINUTE)
        assert caplog.text.count(told) == times
    receipts.record_receipts([Receipt("SM2", True, None)], TUESDAY_NOON + HOUR)
    run_pass(TUESDAY_NOON + 68 * MINUTE)
    assert caplog.text.count(told) == 2
    assert NEW_YORK[1:] not in caplog.text


def test_a_text_is_not_purged_while_the_copy_of_an_equal_one_is_in_doubt(database_url):
    """The carrier is asked about the equal one, and would name the copy of the purged one."""
    sent = store(status=Status.SENT, finished_at=TUESDAY_NOON, carrier_reference="SM0")
    doubtful = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert Message.purge(TUESDAY_NOON + 80 * HOUR, TUESDAY_NOON) == 0
    doubtful.to = "+12125559999"
    doubtful.save()
    assert Message.purge(TUESDAY_NOON + 80 * HOUR, TUESDAY_NOON) == 1
    assert not Message.select().where(Message.id == sent.id).exists()
