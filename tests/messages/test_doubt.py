"""Equal texts of which a carrier may have copies, and messages that are too old or break rules."""

from collections import Counter
from email.utils import format_datetime
from uuid import uuid4

import pytest

from carrier_servers import Answer
from databases import on_both
from fake_carrier import FOR_GOOD
from own_threads import before_commit
from samples import ALWAYS_OPEN, DAY, HOUR, LONDON, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import FAKE, SENDER, again, decide_on, held, store, store_many, take_over
from texting import recipients
from texting.access.do_not_call import DoNotCall
from texting.carriers import CarrierError, Receipt, configs
from texting.database import db
from texting.messages import doubts, receipts, waiting
from texting.messages.attempts import IS_UNDER_WAY, Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.messages.waiting import UNAPPROVED
from texting.replies import inbound

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
    message = store(in_doubt=1, carrier="fake")
    senders = [Heartbeat.create(sender=uuid4(), beat_at=TUESDAY_NOON) for _ in range(2)]
    asks = [doubts.claim(message.id, FAKE, each.sender, TUESDAY_NOON) for each in senders]
    assert asks == [True, False]


def test_the_longest_due_is_asked_about_first(database_url):
    seconds = (2, 0, 1)
    texts = [store(in_doubt=1, carrier="fake", send_at=TUESDAY_NOON + n * SECOND) for n in seconds]
    asked = [each.message_id for each in doubts.to_ask(FAKE, TUESDAY_NOON + MINUTE, 2)]
    assert asked == [texts[1].id, texts[2].id]


def test_what_another_has_just_asked_about_is_not_asked_about_at_once_again(database_url):
    message = store(in_doubt=1, carrier="fake")
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    (due,) = doubts.to_ask(FAKE, TUESDAY_NOON, 1)
    doubts.ask_again_at(message.id, FAKE, TUESDAY_NOON + MINUTE)  # another has got no answer
    asks = [
        doubts.claim(due.message_id, FAKE, SENDER, TUESDAY_NOON + each) for each in (SECOND, MINUTE)
    ]
    assert asks == [False, True]


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


# The carrier's list


@pytest.fixture
def lose(run_pass, twilio_server):
    """Make passes with Twilio, whose answer to the first text is lost."""
    (carrier,) = configs.connect_all(configs.parse(twilio_server.url), 4, 5)
    twilio_server.answers[NEW_YORK] = Answer(504)

    def make(seconds, **changes):
        url = {"carrier_url": twilio_server.url}
        counts = run_pass(TUESDAY_NOON + seconds * SECOND, carrier=carrier, **url, **changes)
        twilio_server.answers.clear()
        return counts

    return make


def taken(created):
    """A text to New York as Twilio lists it."""
    message = {"sid": "SM7", "to": NEW_YORK, "from": "+15005550006", "body": "Hello"}
    return message | {"status": "sent", "date_created": format_datetime(created)}


@pytest.mark.parametrize("fast", [2 * MINUTE, 23 * HOUR, -23 * HOUR])
def test_a_copy_is_found_though_clocks_differ(lose, twilio_server, fast):
    message = store()
    lose(0)
    twilio_server.messages = [taken(TUESDAY_NOON - fast)]
    lose(120)
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "SM7")
    assert len(twilio_server.texts) == 1


def test_an_equal_text_of_the_day_before_is_another(lose, twilio_server):
    message = store()
    lose(0)
    twilio_server.messages = [taken(TUESDAY_NOON - 25 * HOUR)]
    lose(120)
    assert (again(message).status, len(twilio_server.texts)) == (Status.SENT, 2)


def test_a_carrier_is_asked_half_a_minute_after_a_doubt_at_the_earliest(lose, twilio_server):
    """Twilio's list may not show the text before."""
    message = store()
    lose(0, retry_delay=0)
    for seconds in (1, 15, 29):
        lose(seconds, retry_delay=0)
    assert (again(message).in_doubt, twilio_server.asked) == (1, [])
    twilio_server.messages = [taken(TUESDAY_NOON)]
    lose(30, retry_delay=0)
    assert again(message).carrier_reference == "SM7"
    assert len(twilio_server.texts) == 1


@pytest.mark.parametrize(("died", "asked"), [(0, 30), (29, 30), (31, 31), (300, 300)])
def test_so_it_is_asked_after_the_death_of_a_scheduler(database_url, died, asked):
    held(Status.SENDING, carrier="fake")
    take_over(TUESDAY_NOON + died * SECOND)
    assert Attempt.get().ask_at == TUESDAY_NOON + asked * SECOND


def test_a_carrier_that_cannot_be_asked_is_given_the_text_again_as_soon_as_is_set(
    run_pass, carrier
):
    carrier.answer = IN_DOUBT
    message = store()
    run_pass(TUESDAY_NOON, retry_delay=0)
    assert again(message).send_at == TUESDAY_NOON


@pytest.mark.parametrize("is_listed", [True, False])
def test_an_equal_text_is_put_off_by_a_minute_while_the_first_is_in_hand(
    run_pass, askable, is_listed
):
    """It is being sent, and then in doubt until the carrier answers."""
    first, second = store(), store(send_at=TUESDAY_NOON + SECOND / 2)
    is_taken = (lambda: askable.take(NEW_YORK, "Hello", IN_DOUBT)) if is_listed else IN_DOUBT
    askable.answers[NEW_YORK] = is_taken
    askable.listing = CarrierError("out of order")
    assert later(run_pass, 1 / 60, carrier=askable) == Counter({"retrying": 1, "rescheduled": 1})
    assert again(second).send_at == TUESDAY_NOON + SECOND + MINUTE
    assert later(run_pass, 2, carrier=askable)["rescheduled"] == 1
    askable.listing = None
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 20, carrier=askable)
    later(run_pass, 40, carrier=askable)
    assert len(askable.texts) == (2 if is_listed else 3)
    references = [again(each).carrier_reference for each in (first, second)]
    assert references == ["SM0", "SM1"]


def test_an_equal_text_waits_until_the_first_is_answered_and_no_longer(run_pass, askable):
    texts = store(), store(send_at=TUESDAY_NOON + SECOND / 2)
    own_time = TUESDAY_NOON + MINUTE / 2
    others = [  # that wait for their first time, for a retry, and for a send_date
        store(send_at=own_time, first_send_at=own_time, status=Status.SCHEDULED, **columns)
        for columns in (
            {},
            {"claim_number": 1, "due_since": TUESDAY_NOON},
            {"claim_number": 1, "send_date": own_time},
        )
    ]
    askable.answer = lambda: askable.take(NEW_YORK, "Hello")
    assert later(run_pass, 1 / 60, carrier=askable) == Counter({"sent": 1, "rescheduled": 1})
    later(run_pass, 2 / 60, carrier=askable)
    assert [again(each).status for each in texts] == [Status.SENT] * 2
    for each in map(again, others):
        assert (each.send_at, each.status) == (own_time, Status.SCHEDULED)


def test_an_equal_text_waits_until_a_question_is_answered_and_no_longer(run_pass, askable):
    askable.answer = IN_DOUBT
    first = store(max_retries=0)
    later(run_pass, 0, carrier=askable, retry_delay=1)
    second = store(send_at=TUESDAY_NOON + 25 * SECOND)
    later(run_pass, 25 / 60, carrier=askable)
    askable.answer = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 40 / 60, carrier=askable)
    later(run_pass, 41 / 60, carrier=askable)
    assert (again(first).status, again(second).status) == (Status.FAILED, Status.SENT)


def test_no_other_text_is_put_off(run_pass, carrier, askable):
    held(Status.SENDING, carrier="fake")
    held(Status.FAILED, message="Failed", in_doubt=1, carrier="fake", finished_at=TUESDAY_NOON)
    held(Status.SENDING, message="Bye", carrier="other")
    for to, text in ((LONDON, "Hello"), (NEW_YORK, "Failed"), (NEW_YORK, "Bye")):
        store(to=to, message=text)
    assert later(run_pass, 0, carrier=askable, **ALWAYS_OPEN) == Counter({"sent": 3})
    store_many(3)
    Message.update(to=NEW_YORK).where(Message.status == Status.QUEUED).execute()
    assert later(run_pass, 0, carrier=carrier) == Counter({"sent": 3}), "it cannot be asked"


def test_of_two_schedulers_at_once_one_gives_the_carrier_an_equal_text(database_url):
    first, second = store(), store()
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)

    def texts_in_hand(message):
        return doubts.texts_at({FAKE}, [message], IS_UNDER_WAY)

    def give():
        assert texts_in_hand(first) == set()
        Message.update(status=Status.SENDING).where(Message.id == first.id).execute()
        Attempt.begin([first], "fake", SENDER, TUESDAY_NOON)

    def follow():
        with db.atomic():
            return texts_in_hand(second)

    assert before_commit(give, follow) == {(NEW_YORK, "Hello")}


def test_about_a_text_that_a_person_retried_the_carrier_is_not_asked_while_an_equal_one_is_sent(
    run_pass, askable
):
    expired = held(Status.EXPIRED, in_doubt=1, carrier="fake", finished_at=TUESDAY_NOON)
    assert decide_on(expired).retry(TUESDAY_NOON, 3 * DAY)
    other = held(Status.SENDING, carrier="fake")
    later(run_pass, 1, carrier=askable)
    assert askable.asked == []
    receipts.record_accepted({other.id: "SM0"}, TUESDAY_NOON, FAKE)
    askable.taken.append((NEW_YORK, "Hello"))
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello")
    later(run_pass, 10, carrier=askable)
    assert again(expired).carrier_reference == "SM1", "it was sent again"


def test_a_late_yes_without_a_reference_is_news(database_url):
    message = store(in_doubt=1, in_doubt_with="fake")
    assert receipts.record_accepted({message.id: None}, TUESDAY_NOON, FAKE) == 1
    assert again(message).status == Status.SENT


def test_a_yes_that_comes_after_a_retry_does_not_undo_the_retry(run_pass, askable):
    """As from a sender that stood still with it until it was found, undelivered and retried."""
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    askable.taken.append((NEW_YORK, "Hello"))
    later(run_pass, 0, carrier=askable)
    inbound.record_reports([Receipt("SM0", False)], TUESDAY_NOON, False, FAKE)
    assert decide_on(again(message)).retry(TUESDAY_NOON, 3 * DAY)
    receipts.record_accepted({message.id: "SM0"}, TUESDAY_NOON, FAKE)
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

    def fail_for_one(to, *home):
        if to == numbers[2]:
            raise KeyError(to)
        return find(to, *home)

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


@on_both
@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.QUEUED])
def test_what_nobody_approves_says_so_once_it_expires(run_pass, status):
    old = {"first_send_at": TUESDAY_NOON - 3 * DAY, "status": status}
    unapproved = store(manual_mode=True, last_error="no answer", **old)
    approved = store(manual_mode=True, approved=True, last_error="no answer", **old)
    listed = store(manual_mode=True, check_dnc=True, to=LONDON, **old)
    young = store(manual_mode=True, first_send_at=TUESDAY_NOON - DAY, status=status)
    DoNotCall.add([LONDON], TUESDAY_NOON - DAY, "operator")
    later(run_pass, 0)
    ended = again(unapproved)
    assert (ended.status, ended.last_error) == (Status.EXPIRED, "nobody approved it in time")
    assert ended.last_error_at == TUESDAY_NOON
    assert (again(approved).status, again(approved).last_error) == (Status.EXPIRED, "no answer")
    kept = (Status.BLOCKED, None) if status == Status.SCHEDULED else (Status.EXPIRED, UNAPPROVED)
    assert (again(listed).status, again(listed).last_error) == kept
    assert (again(young).status, again(young).last_error) == (Status.QUEUED, None)


def test_what_is_due_or_too_old_moves_in_batches(database_url, monkeypatch):
    """So that no writer waits for more than one of them."""
    monkeypatch.setattr("texting.messages.waiting.FEW", 10)
    old = TUESDAY_NOON - 4 * DAY
    store_many(25, status=Status.SCHEDULED)
    store_many(15, status=Status.SCHEDULED, first_send_at=old)
    store_many(25, send_at=old, first_send_at=old)
    moved = [waiting.promote(TUESDAY_NOON) for _ in range(5)]
    assert [each.total() for each in moved] == [10, 10, 10, 10, 0]
    assert sum(moved, Counter()) == {Status.QUEUED: 25, Status.EXPIRED: 15}
    assert [waiting.expire(TUESDAY_NOON) for _ in range(4)] == [10, 10, 5, 0]


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
