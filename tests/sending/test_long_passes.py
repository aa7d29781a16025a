"""A pass that lasts: what dead senders held, what is due and testers do not wait for its end."""

import re
import threading
from contextlib import contextmanager

import pytest

import scheduler
from databases import on_both
from running import wait_until
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, THIRD, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import SENDER, again, held, key_named, store, store_many
from texting.access.do_not_call import OptedOut
from texting.access.keys import ApiKey, Role
from texting.carriers import IncomingText, OptOut, Part
from texting.database import clock, db
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.sending import heartbeats
from texting.sending.carrier_state import CarrierState

pytestmark = on_both


@pytest.fixture
def impatient(settings, monkeypatch):
    """Settings by which a sender is dead after some seconds."""
    monkeypatch.setattr(heartbeats, "WATCHED", 2)
    monkeypatch.setattr(heartbeats, "BEAT_EVERY", 0.2)
    monkeypatch.setattr(scheduler, "TEND_EVERY", 0.5)
    return settings._replace(claim_timeout=1, **ALWAYS_OPEN)


def has_ended(message, status):
    return again(message).status == status


# Meanwhile


def piece_of_a_reply():
    """A part of a reply whose other parts do not come; its key is to be told of it."""
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/", TUESDAY_NOON)
    held(Status.SENT, to=NEIGHBOUR, carrier="fake", finished_at=TUESDAY_NOON - SECOND)
    part = IncomingText(NEIGHBOUR, "I think", part=Part("1", 2, 1))
    inbound.record([part], TUESDAY_NOON, ReplyRules("fake", "asked", None, None))


def of_tester():
    ApiKey.issue("tester", None, TUESDAY_NOON, role=Role.TESTER)
    return due(key=ApiKey.named("tester"))


def due(**columns):
    return store(TUESDAY_NOON + SECOND, status=Status.SCHEDULED, to=THIRD, **columns)


def waits_for_approval():
    last = TUESDAY_NOON + SECOND
    return store(expires_at=last, to=NEIGHBOUR, manual_mode=True, approved=False)


MEANWHILE = {
    "what is due is queued": (due, lambda text: again(text).status != Status.SCHEDULED),
    "what a dead sender held is taken over": (
        lambda: held(Status.SENDING, to=NEIGHBOUR, claimed_at=TUESDAY_NOON),
        lambda text: again(text).status != Status.SENDING,
    ),
    "what is too old expires": (
        waits_for_approval,
        lambda text: again(text).status == Status.EXPIRED,
    ),
    "what is too old is forgotten": (
        lambda: held(Status.SENT, to=THIRD, finished_at=TUESDAY_NOON + SECOND - DAY),
        lambda text: again(text).message is None,
    ),
    "a part of a reply is told": (piece_of_a_reply, lambda _: Event.select().exists()),
    "a STOP is recorded": (lambda: None, lambda _: OptedOut.lists(NEIGHBOUR)),
    "a text of a tester is sent": (of_tester, lambda text: again(text).status == Status.SENT),
    "the desk sees that it lives": (
        lambda: CarrierState.prepare("fake"),
        lambda _: CarrierState.get_by_id("fake").last_pass_at > TUESDAY_NOON,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("lasts", ["a text", "a question whether it serves"])
def test_while_something_takes_six_minutes_the_rest_goes_on(
    impatient, carrier, at, lasts, what, monkeypatch
):
    make, is_done = MEANWHILE[what]
    at(TUESDAY_NOON)
    made, done = make(), []
    store(to=NEW_YORK)

    def take_six_minutes():
        at(TUESDAY_NOON + 6 * MINUTE)
        stops = [OptOut(NEIGHBOUR, True, "reply", certain=True)] if "STOP" in what else []
        carrier.received = lambda: [stops.pop()] if stops else []
        wait_until(lambda: is_done(made))
        db.close()  # of this thread
        done.append(what)

    if lasts == "a text":
        carrier.answers[NEW_YORK] = take_six_minutes
    else:
        monkeypatch.setattr(type(carrier), "check", lambda _: take_six_minutes())
        CarrierState.prepare("fake")
        CarrierState.begin_pause("fake", TUESDAY_NOON - HOUR, trouble="no route", is_down=True)
    lasting = Scheduler(impatient._replace(keep_texts=DAY, claim_timeout=4), carrier)
    assert lasting.run_pass(lasting.clock.monotonic() + 60)["sent"] >= 1
    assert done == [what]
    assert carrier.numbers.count(NEW_YORK) == 1, "it was not taken over"


# Of dead senders


def test_after_an_outage_the_living_have_the_time_to_beat_before_they_are_taken_over(
    settings, carrier, at
):
    """The database was away for an hour in the middle of a pass."""
    at(TUESDAY_NOON)
    living = held(Status.SENDING, to=NEIGHBOUR, claimed_at=TUESDAY_NOON)
    one = Scheduler(settings, carrier)
    one.pulse.beat()
    at(TUESDAY_NOON + HOUR)
    one.take_over(TUESDAY_NOON + HOUR)
    assert one.suspects_death, "it may be dead"
    assert Heartbeat.beat(SENDER, TUESDAY_NOON + HOUR)
    one.take_over(TUESDAY_NOON + HOUR)
    assert not one.suspects_death
    assert one.counts["taken over"] == 0
    assert has_ended(living, Status.SENDING)


def test_who_beats_just_before_it_is_declared_dead_keeps_its_texts(
    settings, carrier, at, without_waiting
):
    later = TUESDAY_NOON + HOUR
    living = held(Status.SENDING, to=NEIGHBOUR, claimed_at=TUESDAY_NOON)
    at(later)
    one = Scheduler(settings, carrier)
    one.pulse.beat()
    watch = one.pulse.watch

    def beat_after(timeout):
        found = watch(timeout)
        assert Heartbeat.beat(SENDER, later)
        return found

    one.pulse.watch = beat_after
    one.take_over(later)
    assert one.counts["taken over"] == 0
    assert has_ended(living, Status.SENDING)


def test_a_scheduler_that_was_taken_for_dead_gives_no_text_as_who_it_was(settings, carrier, at):
    """Nobody would take that over."""
    at(TUESDAY_NOON)
    one = Scheduler(settings, carrier)
    one.pulse.beat()
    dead = one.pulse.sender
    assert Heartbeat.end(dead)
    text = store()
    assert sum(one.run_pass()["sent"] for _ in range(2)) == 1
    assert [each.sender == dead for each in Attempt.of_messages([text.id])[text.id]] == [False]


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


def test_a_scheduler_that_is_told_to_stop_before_its_first_pass_begins_nothing(
    settings, carrier, at
):
    at(TUESDAY_NOON)
    message, stopped = store(), Scheduler(settings, carrier)
    stopped.stop.request()
    assert +stopped.run_pass() == {"waiting for a carrier": 1}
    assert (again(message).status, carrier.texts) == (Status.QUEUED, [])


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
        wait_until(lambda: has_ended(text, Status.SENT))
        due = store(clock.now() + SECOND, to=THIRD, status=Status.SCHEDULED)
        dead = held(Status.SENDING, to=NEIGHBOUR, claimed_at=clock.now())
        wait_until(lambda: has_ended(due, Status.SENT) and has_ended(dead, Status.SENT))
        assert Message.select().where(Message.key == tester, Message.status == "sent").count() == 0
        one.go_on.set()
        wait_until(lambda: Message.select().where(Message.status == "sent").count() == 23)
        wait_until(lambda: sum(map(int, re.findall(r"(\d+) sent", str(one.lines)))) == 23)
