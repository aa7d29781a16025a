"""A pass that lasts: what dead senders held, what is due and testers do not wait for its end."""

import threading
import time
from contextlib import contextmanager

import pytest

import scheduler
from access.keys import ApiKey, Role
from carriers import CarrierError, Part, Reply
from carriers.ways import Way
from database import clock, db
from events.outbox import Event, EventAddress
from models import Message, Status
from monitoring.health import STALLED_AFTER
from running import wait_until
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, THIRD, TUESDAY_NOON
from scheduler import Scheduler
from sending import heartbeats, inbound
from sending.carrier_state import CarrierState
from sending.heartbeats import Heartbeat
from sending.inbound import ReplyRules
from stored_messages import SENDER, again, claim, held, key_named, store, store_many, take_over


@pytest.fixture
def impatient(settings, monkeypatch):
    """Settings by which a sender is dead after some seconds."""
    monkeypatch.setattr(heartbeats, "WATCHED", 2)
    monkeypatch.setattr(heartbeats, "BEAT_EVERY", 0.2)
    monkeypatch.setattr(scheduler, "TEND_EVERY", 0.5)
    return settings._replace(claim_timeout=1, **ALWAYS_OPEN)


def until(condition, seconds=20):
    """Answer yes once a condition is true; fail for now if that takes too long."""

    def answer():
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return CarrierError("out of patience")
            time.sleep(0.02)
        return None

    return answer


def has_ended(message, status):
    return again(message).status == status


# Of dead senders


@pytest.mark.slow
def test_what_a_dead_sender_held_is_sent_before_the_others_pass_ends(impatient, carrier):
    dead = held(Status.SENDING, to=NEIGHBOUR, claimed_at=clock.now())
    lasting = store(clock.now())
    carrier.answers[NEW_YORK] = until(lambda: has_ended(dead, Status.SENT))
    counts = Scheduler(impatient, carrier).run_pass()
    assert counts["taken over"] == 1
    assert counts["sent"] == 2
    assert again(dead).finished_at < again(lasting).finished_at


@pytest.mark.slow
def test_what_becomes_too_old_expires_before_a_pass_ends(impatient, carrier):
    ends_at = clock.now() + SECOND
    old = store(ends_at - HOUR, expires_at=ends_at, to=NEIGHBOUR, manual_mode=True, approved=False)
    store(clock.now())
    carrier.answers[NEW_YORK] = until(lambda: has_ended(old, Status.EXPIRED))
    counts = Scheduler(impatient, carrier).run_pass()
    assert (counts["expired"], counts["sent"]) == (1, 1)


def piece_of_a_reply():
    """A part of a reply whose other parts do not come; its key is to be told of it."""
    key = key_named("app")
    EventAddress.set(key, "http://127.0.0.1:9/", TUESDAY_NOON)
    held(Status.SENT, to=NEIGHBOUR, carrier="fake", finished_at=TUESDAY_NOON - SECOND)
    part = Reply(NEIGHBOUR, "I think", part=Part("1", 2, 1))
    inbound.record([part], TUESDAY_NOON, ReplyRules(Way("fake"), False, None, None))


def of_tester():
    ApiKey.issue("tester", None, TUESDAY_NOON, role=Role.TESTER)
    due = TUESDAY_NOON + SECOND
    return store(due, status=Status.SCHEDULED, to=THIRD, key=ApiKey.named("tester"))


LASTS_SIX_MINUTES = {
    "a part of a reply is told": (piece_of_a_reply, lambda _: Event.select().exists()),
    "a text of a tester is sent": (of_tester, lambda text: has_ended(text, Status.SENT)),
    "what is too old is forgotten": (
        lambda: held(Status.SENT, finished_at=TUESDAY_NOON + SECOND - DAY),
        lambda text: again(text).message is None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LASTS_SIX_MINUTES)
def test_in_a_pass_of_six_minutes(impatient, carrier, at, what):
    make, is_done = LASTS_SIX_MINUTES[what]
    at(TUESDAY_NOON)
    made = make()
    store(to=NEW_YORK)
    answer = until(lambda: is_done(made))
    carrier.answers[NEW_YORK] = lambda: [at(TUESDAY_NOON + 6 * MINUTE), answer()][1]
    lasting = Scheduler(impatient._replace(keep_texts=DAY, claim_timeout=4), carrier)
    assert lasting.run_pass()["sent"] >= 1
    assert carrier.numbers == [NEW_YORK], "it was not tried again"
    assert is_done(made)


@pytest.mark.slow
def test_a_living_senders_own_claims_are_not_taken_over_in_its_long_pass(impatient, carrier):
    message = store(clock.now())
    end = time.monotonic() + 4
    carrier.answers[NEW_YORK] = until(lambda: time.monotonic() > end)
    counts = Scheduler(impatient, carrier).run_pass()
    assert (counts["taken over"], again(message).in_doubt, counts["sent"]) == (0, 0, 1)


def test_after_an_outage_the_living_have_the_time_to_beat_before_they_are_taken_over(
    settings, carrier, at
):
    """The database was away for an hour in the middle of a pass."""
    at(TUESDAY_NOON)
    living = held(Status.SENDING, to=NEIGHBOUR, claimed_at=TUESDAY_NOON)
    one = Scheduler(settings, carrier)
    one.pulse.beat()
    at(TUESDAY_NOON + HOUR)
    assert one.take_over() == 0
    assert one.watches, "it may be dead"
    assert Heartbeat.beat(SENDER, TUESDAY_NOON + HOUR)
    assert one.take_over() == 0
    assert not one.watches
    assert has_ended(living, Status.SENDING)


def test_a_scheduler_that_is_told_to_stop_while_it_watches_takes_over_nothing(
    settings, carrier, at
):
    at(TUESDAY_NOON)
    living = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR)
    stopped = Scheduler(settings, carrier)
    threading.Timer(0.5, stopped.stop.request).start()
    assert stopped.run_pass()["taken over"] == 0
    assert stopped.stop.is_requested
    assert (again(living).status, again(living).claim_number) == (Status.SENDING, 1)


@pytest.mark.slow
def test_the_desk_sees_that_a_long_pass_lives(impatient, carrier):
    store(clock.now())
    began_at = clock.now()

    def is_noted():
        return CarrierState.get_by_id("fake").last_pass_at > began_at + SECOND

    carrier.answers[NEW_YORK] = until(is_noted)
    assert Scheduler(impatient, carrier).run_pass()["sent"] == 1
    assert 5 * SECOND < STALLED_AFTER / 10


def test_a_claim_is_put_back_by_its_number_though_the_same_sender_has_a_later_one(database_url):
    for number in (NEW_YORK, NEIGHBOUR):
        store(to=number)
    lost, kept = claim(2)
    take_over(TUESDAY_NOON + HOUR)
    (later,) = (each for each in claim(2) if each.id == kept.id)
    Message.put_back([lost, kept])
    assert again(lost).status == again(kept).status == Status.SENDING
    Message.put_back([lost, later])
    assert (again(lost).status, again(kept).status) == (Status.SENDING, Status.QUEUED)


# Testers


@contextmanager
def running(settings, carrier):
    """Have a scheduler make passes; stop it in the end, and whatever `go_on` holds up."""
    one = Scheduler(settings, carrier)
    one.go_on, one.lines = threading.Event(), []
    thread = threading.Thread(target=one.run, args=(0.1, one.lines.append))
    thread.start()
    try:
        yield one
    finally:
        one.go_on.set()
        one.stop.request()
        thread.join(30)
        db.close()
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_testers_backlog_holds_up_neither_passes_nor_senders(impatient, carrier, tester):
    with running(impatient, carrier) as one:
        simulator = one.senders[-1].carrier
        simulate = simulator.send
        simulator.send = lambda *a, **k: one.go_on.wait(60) and simulate(*a, **k)
        store_many(20, clock.now(), key=tester)
        wait_until(lambda: Message.select().where(Message.status == Status.SENDING).count() == 8)
        text = store(clock.now())
        wait_until(lambda: has_ended(text, Status.SENT), 10)
        due = store(clock.now() + SECOND, to=THIRD, status=Status.SCHEDULED)
        dead = held(Status.SENDING, to=NEIGHBOUR, claimed_at=clock.now())
        wait_until(lambda: has_ended(due, Status.SENT) and has_ended(dead, Status.SENT), 10)
        assert Message.select().where(Message.key == tester, Message.status == "sent").count() == 0
        one.go_on.set()
        wait_until(lambda: Message.select().where(Message.status == "sent").count() == 23)
        wait_until(lambda: sum(int(each.split(" sent")[0].split()[-1]) for each in one.lines) == 23)


@pytest.mark.slow
def test_a_carrier_that_hangs_when_it_is_asked_holds_up_no_tester(impatient, carrier, tester):
    CarrierState.prepare("fake")
    now = clock.now()
    CarrierState.begin_pause("fake", now - HOUR, now - HOUR, trouble="no route", is_down=True)
    asked = threading.Event()
    with running(impatient, carrier) as one:
        carrier.check = lambda: asked.set() or one.go_on.wait(60)
        store(clock.now())
        assert asked.wait(10)
        text = store(clock.now(), key=tester, to=NEIGHBOUR)
        due = store(clock.now() + SECOND, key=tester, to=THIRD, status=Status.SCHEDULED)
        wait_until(lambda: has_ended(text, Status.SENT) and has_ended(due, Status.SENT), 10)
        assert carrier.texts == []


def test_a_single_pass_ends_when_the_texts_of_testers_are_sent(impatient, carrier, tester):
    store_many(20, clock.now(), key=tester)
    lines = []
    assert Scheduler(impatient, carrier).run(None, lines.append) == 0
    assert "20 sent" in lines[0]
