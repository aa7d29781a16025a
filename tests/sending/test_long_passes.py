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
from sending import claims, inbound
from sending.carrier_state import CarrierState
from sending.inbound import ReplyRules
from sending.runtime import Clock, Runtime
from stored_messages import SENDER, again, held, key_named, store, store_many


@pytest.fixture
def impatient(settings):
    """Settings by which a sender is dead after a second."""
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
    assert (counts["taken over"], again(message).take_overs, counts["sent"]) == (0, 0, 1)


def test_after_an_outage_the_living_have_the_time_to_renew_before_they_are_taken_over(
    settings, carrier, at
):
    """The database was away for an hour in the middle of a pass."""
    at(TUESDAY_NOON)
    living = held(Status.SENDING, to=NEIGHBOUR, claimed_at=TUESDAY_NOON)
    one = Scheduler(settings, carrier)
    one.take_over()
    at(TUESDAY_NOON + HOUR)
    assert one.take_over() == 0
    at(TUESDAY_NOON + HOUR + 9 * SECOND)
    assert one.take_over() == 0
    Message.update(claimed_at=TUESDAY_NOON + HOUR).where(Message.id == living.id).execute()
    at(TUESDAY_NOON + HOUR + 11 * SECOND)
    assert one.take_over() == 0
    assert has_ended(living, Status.SENDING)


def test_a_scheduler_that_is_told_to_stop_while_it_settles_takes_over_nothing(
    settings, carrier, at
):
    at(TUESDAY_NOON)
    living = held(Status.SENDING, claimed_at=TUESDAY_NOON - HOUR)

    class Signalled(Clock):
        """A clock on which the request to stop comes in the first nap."""

        def sleep(self, seconds):
            stopped.stop.request()

    stopped = Scheduler(settings, carrier, Runtime(Signalled()))
    assert stopped.run_pass()["taken over"] == 0
    assert stopped.stop.is_requested
    assert (again(living).status, again(living).claim_number) == (Status.SENDING, 0)


@pytest.mark.slow
def test_the_desk_sees_that_a_long_pass_lives(impatient, carrier):
    store(clock.now())
    began_at = clock.now()

    def is_noted():
        return CarrierState.get_by_id("fake").last_pass_at > began_at + SECOND

    carrier.answers[NEW_YORK] = until(is_noted)
    assert Scheduler(impatient, carrier).run_pass()["sent"] == 1
    assert scheduler.PROMOTE_EVERY * SECOND < STALLED_AFTER / 10


def test_a_claim_is_put_back_by_its_number_though_the_same_sender_has_a_later_one(database_url):
    for number in (NEW_YORK, NEIGHBOUR):
        store(to=number)
    lost, kept = claims.claim(SENDER, 2, TUESDAY_NOON)
    claims.take_over(TUESDAY_NOON + HOUR)
    taken_again = claims.claim(SENDER, 2, TUESDAY_NOON + HOUR)
    (later,) = (each for each in taken_again if each.id == kept.id)
    assert claims.put_back(SENDER, [lost, kept]) == 0
    assert again(lost).status == again(kept).status == Status.SENDING
    assert claims.put_back(SENDER, [lost, later]) == 1
    assert (again(lost).status, again(kept).status) == (Status.SENDING, Status.QUEUED)
    assert again(kept).claimed_at is None
    assert claims.put_back(SENDER, []) == 0


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
        simulate = one.testers.sends.carrier.send
        one.testers.sends.carrier.send = lambda *a, **k: one.go_on.wait(60) and simulate(*a, **k)
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


def test_what_testers_texts_break_is_logged_and_the_next_ones_go(
    impatient, carrier, tester, caplog, monkeypatch
):
    with running(impatient, carrier) as one:
        send = one.testers.send_queued
        broken = iter([RuntimeError("can't start new thread"), RuntimeError("again")])

        def fail_twice():
            for error in broken:
                raise error
            return send()

        monkeypatch.setattr(one.testers, "send_queued", fail_twice)
        text = store(clock.now(), key=tester)
        wait_until(lambda: has_ended(text, Status.SENT), 10)
    assert caplog.text.count("testers: unexpected RuntimeError") == 2


def test_a_single_pass_ends_when_the_texts_of_testers_are_sent(impatient, carrier, tester):
    store_many(20, clock.now(), key=tester)
    lines = []
    assert Scheduler(impatient, carrier).run(None, lines.append) == 0
    assert "20 sent" in lines[0]


@pytest.fixture
def simulated(monkeypatch):
    """Have each text of a tester take until `simulated(one, wait)` returns from `wait()`."""
    monkeypatch.setattr(scheduler, "TESTERS_PATIENCE", 0.5)

    def begin(one, wait):
        simulator = one.testers.sends.carrier
        send = simulator.send
        monkeypatch.setattr(simulator, "send", lambda *a, **k: [send(*a, **k), wait()][0])

    return begin


@pytest.mark.slow
def test_a_single_pass_leaves_a_backlog_of_testers_to_the_next(
    impatient, carrier, tester, simulated
):
    one, lines = Scheduler(impatient, carrier), []
    simulated(one, lambda: time.sleep(0.1))
    store_many(400, clock.now(), key=tester)
    text = store(clock.now())
    dead = held(Status.SENDING, to=NEIGHBOUR, claimed_at=clock.now() - HOUR)
    due = store(clock.now(), to=THIRD, status=Status.SCHEDULED)
    assert one.run(None, lines.append) == 0
    assert all(has_ended(each, Status.SENT) for each in (text, dead, due))
    of_testers = Message.select().where(Message.key == tester)
    gone, left = (of_testers.where(Message.status == which) for which in ("sent", "queued"))
    assert 8 <= gone.count() <= 200
    assert gone.count() + left.count() == 400
    assert f"{gone.count() + 3} sent" in lines[0]
    assert not left.where((Message.attempts > 0) | (Message.in_doubt > 0)).exists()
    before = gone.count()
    assert Scheduler(impatient, carrier).run(None, lines.append) == 0
    assert gone.count() > before


@pytest.mark.slow
def test_a_simulator_that_hangs_holds_up_no_single_pass(impatient, carrier, tester, simulated):
    one, go_on, lines = Scheduler(impatient._replace(shutdown_timeout=1), carrier), [], []
    end = time.monotonic() + 30
    simulated(one, lambda: until(lambda: go_on or time.monotonic() > end, 60)())
    store_many(20, clock.now(), key=tester)
    text = store(clock.now())
    assert one.run(None, lines.append) == 0
    go_on.append(True)
    assert time.monotonic() < end
    assert has_ended(text, Status.SENT)
    of_testers = Message.select().where(Message.key == tester)
    assert of_testers.where(Message.status == Status.QUEUED, Message.in_doubt == 0).count() == 12
    assert of_testers.where(Message.status == Status.SCHEDULED, Message.in_doubt > 0).count() == 8


def test_a_stop_ends_a_single_pass_that_waits_for_testers(impatient, carrier, tester, simulated):
    one, lines = Scheduler(impatient, carrier), []
    simulated(one, one.stop.request)
    store_many(20, clock.now(), key=tester)
    assert one.run(None, lines.append) == 0
    of_testers = Message.select().where(Message.key == tester)
    assert 1 <= of_testers.where(Message.status == Status.SENT).count() <= 8
    assert of_testers.where(Message.status == Status.QUEUED).count() >= 12
