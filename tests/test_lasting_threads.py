"""Threads that last: no error ends them in silence, and what they owe is done later."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from running import wait_until
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import decide_on, key_named, store
from texting.database import clock
from texting.events import delivery
from texting.events.delivery import Deliveries
from texting.events.outbox import Event, EventAddress
from texting.messages.inserts import Inserts
from texting.messages.model import Message, Status
from texting.monitoring import notices
from texting.monitoring.notices import Notices


class FewThreads(threading.Thread):
    """Threads of which the first ones cannot start, as where a machine has too many."""

    failures = 0

    def start(self):
        if FewThreads.failures:
            FewThreads.failures -= 1
            raise RuntimeError("can't start new thread")
        super().start()


def fail(times, action, monkeypatch, owner, name):
    """Let a function fail some times before it works."""
    left = iter(range(times))

    def broken(*arguments, **options):
        for _ in left:
            raise RuntimeError("can't start new thread")
        return action(*arguments, **options)

    monkeypatch.setattr(owner, name, broken)


# Deliveries of events


def end_a_message(**columns):
    message = store(clock.now(), status=Status.SCHEDULED, **columns)
    decide_on(message).cancel("shell", clock.now())


@pytest.mark.slow
def test_events_are_delivered_although_no_thread_could_be_started_for_a_while(
    app_key, delivering, receiver, caplog, monkeypatch
):
    monkeypatch.setattr(FewThreads, "failures", 2)
    monkeypatch.setattr(delivery.threading, "Thread", FewThreads)
    for _ in range(3):
        end_a_message()
    wait_until(lambda: len(receiver.events) == 3, 20)
    wait_until(lambda: Event.select().count() == 0, 20)
    assert caplog.text.count("unexpected RuntimeError") == 2
    assert sorted(receiver.ids) == sorted({*receiver.ids})


@pytest.mark.slow
def test_events_are_delivered_after_an_error_of_our_own(
    app_key, delivering, receiver, caplog, monkeypatch
):
    fail(2, delivering.exchange, monkeypatch, delivering, "exchange")
    end_a_message()
    wait_until(lambda: receiver.events, 20)
    assert caplog.text.count("unexpected RuntimeError") == 2


@pytest.mark.slow
def test_a_secret_that_cannot_be_read_holds_up_no_other_key(app_key, delivering, receiver):
    other = key_named("other")
    EventAddress.set(other, receiver.url + "&other", clock.now())
    EventAddress.update(secret="whsec_%%%").where(EventAddress.key == other).execute()
    for _ in range(8):
        end_a_message(key=other)
    end_a_message()
    wait_until(lambda: receiver.events, 20)
    wait_until(lambda: Event.select().where(Event.last_answer.is_null()).count() == 0, 20)
    assert Event.select(Event.last_answer).distinct().scalar().startswith("unexpected")


@pytest.mark.slow
def test_a_scheduler_ends_although_its_deliveries_fail_again_and_again(app_key, monkeypatch):
    monkeypatch.setattr(delivery, "TIMEOUT", 0)
    failing = Deliveries(300, Message.record_notified)
    fail(10**6, failing.exchange, monkeypatch, failing, "exchange")
    failing.start()
    failing.finish()
    assert not failing.thread.is_alive()


# Its health


def event(key, next_try_at, **columns):
    usual = {"webhook_id": "evt_1", "message_id": store().id, "at": TUESDAY_NOON, "body": "{}"}
    Message.delete().execute()
    return Event.create(key=key, next_try_at=next_try_at, **usual | columns)


def test_an_event_that_nobody_tries_for_two_minutes_is_a_problem(app_key, problems):
    event(app_key, TUESDAY_NOON)
    event(app_key, TUESDAY_NOON + MINUTE)
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    assert problems(TUESDAY_NOON + 2 * MINUTE + SECOND) == [
        "events have been due since 2026-03-03T17:00:00.000Z: no scheduler delivers them"
    ]
    Event.delete().execute()
    assert problems(TUESDAY_NOON + 3 * MINUTE) == []


def test_events_that_wait_for_others_to_their_address_are_no_problem_and_those_of_a_third_are(
    app_key, problems
):
    """One of them is claimed or waits for its next try: its receiver is slow, or is down."""
    event(app_key, TUESDAY_NOON - HOUR)
    event(app_key, TUESDAY_NOON + 5 * MINUTE, tries=1, last_answer="HTTP 500")
    assert problems(TUESDAY_NOON) == []
    other = key_named("other")
    EventAddress.set(other, "http://127.0.0.1:9/", TUESDAY_NOON)
    event(other, TUESDAY_NOON - 3 * MINUTE)
    (problem,) = problems(TUESDAY_NOON)
    assert problem.startswith("events have been due since 2026-03-03T16:57:00.000Z")


def test_what_is_tried_tomorrow_hides_nothing_that_is_due(app_key, problems):
    event(app_key, TUESDAY_NOON - HOUR)
    event(app_key, TUESDAY_NOON + 24 * HOUR, tries=9)
    assert len(problems(TUESDAY_NOON)) == 1


def test_events_that_were_given_up_or_are_not_due_are_no_problem(app_key, problems):
    event(app_key, None, given_up_at=TUESDAY_NOON - HOUR)
    event(app_key, TUESDAY_NOON + 2 * HOUR)
    assert problems(TUESDAY_NOON) == []
    event(app_key, TUESDAY_NOON - HOUR)
    EventAddress.update(off="by hand").execute()
    assert problems(TUESDAY_NOON) == []


# Notices


class Person:
    """An address of NOTIFY_URL that breaks at first."""

    number = 1

    def __init__(self, failures):
        self.failures, self.told = failures, []

    def send(self, notification):
        if self.failures:
            self.failures -= 1
            raise RuntimeError("can't start new thread")
        self.told.append(notification.text)
        return True


def news(settings, now, keep):
    """Find one and the same notification at each look."""
    keep(notices.Notification("Report", "news", "info", "news"))
    return iter(())


@pytest.fixture
def noticing(settings, monkeypatch):
    """Start the notices of a scheduler to a person: `noticing(Person(0))`."""
    monkeypatch.setattr(notices, "LOOK_EVERY", 0.02)
    started = []

    def start(person):
        monkeypatch.setattr(notices, "connect", lambda urls: [person])
        started.append(Notices(settings._replace(notify_url="json://nowhere")))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.finish(look=False)


def test_people_are_told_after_an_error_of_our_own(noticing, monkeypatch, caplog):
    fail(2, news, monkeypatch, notices, "pending")
    person = Person(0)
    noticing(person)
    wait_until(lambda: "news" in person.told, 20)
    assert caplog.text.count("no notices: unexpected RuntimeError") == 2


def test_an_address_that_breaks_is_told_the_next_notice(noticing, monkeypatch, caplog):
    monkeypatch.setattr(notices, "pending", news)
    person = Person(2)
    noticing(person)
    wait_until(lambda: person.told, 20)
    assert caplog.text.count("unexpected RuntimeError") == 2


# Inserts of new messages


@pytest.mark.parametrize("broken", ["too few outcomes", "the loop"])
def test_no_request_waits_for_ever_for_its_insert_and_the_next_ones_are_stored(
    database_url, broken, monkeypatch
):
    batches, go_on = [], threading.Event()

    def insert_all(rows):
        batches.append(rows)
        assert go_on.wait(10)
        if broken == "too few outcomes" and "odd" in rows:
            return rows[1:]
        return rows

    inserts = Inserts(insert_all)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(inserts.insert, "first")
        wait_until(lambda: batches)
        if broken == "the loop":
            fail(1, inserts._insert, monkeypatch, inserts, "_insert")
        others = [pool.submit(inserts.insert, row) for row in ("even", "odd", "even")]
        wait_until(lambda: inserts._rows.qsize() == 3)
        go_on.set()
        ended = [each.exception(20) or each.result() for each in (first, *others)]
        assert ended[0] == "first"
        kinds = {type(each) for each in ended[1:]}
        assert kinds == ({str, ValueError} if broken == "too few outcomes" else {RuntimeError})
        assert pool.submit(inserts.insert, "next").result(20) == "next"


def test_a_request_for_whose_insert_no_thread_could_be_started_fails_and_the_next_does_not(
    database_url, monkeypatch
):
    monkeypatch.setattr(FewThreads, "failures", 1)
    monkeypatch.setattr(threading, "Thread", FewThreads)
    inserts = Inserts(lambda rows: rows)
    with pytest.raises(RuntimeError):
        inserts.insert("first")
    assert inserts.insert("second") == "second"
