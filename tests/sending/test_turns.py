"""Who goes first: keys take turns, SEND_RATE holds texts back, testers have their own carrier."""

import signal
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest

import reports
import scheduler
import stored_messages
from access.keys import ApiKey, Role
from carriers import CarrierError
from carriers.lanes import TESTERS
from database import clock
from events.delivery import Deliveries
from fake_carrier import TOO_FAST
from models import Message, Status
from monitoring import health
from samples import ALWAYS_OPEN, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending.attempts import Attempt
from sending.carrier_state import CarrierState
from sending.heartbeats import Heartbeat
from stored_messages import SENDER, again, key_named, statuses, store, store_many

PERMANENT, TEMPORARY, TOO_BUSY = "+12125550101", "+12125550102", "+12125550103"


def claim(limit, first_key=0):
    """Claim messages; return the names of their keys."""
    claimed = stored_messages.claim(limit, first_key)
    return [ApiKey.get_by_id(message.key_id).name for message in claimed]


# Turns


def test_keys_take_turns_however_much_one_has_queued(database_url):
    for name, count in (("a", 100), ("b", 2), ("c", 1)):
        store_many(count, key=key_named(name))
    assert Counter(claim(6)) == {"a": 3, "b": 2, "c": 1}
    assert claim(6) == ["a"] * 6, "the others have nothing more"


def test_what_a_key_cannot_use_goes_to_the_others(database_url):
    for name, count in (("a", 1), ("b", 50), ("c", 50)):
        store_many(count, key=key_named(name))
    assert Counter(claim(9)) == {"a": 1, "b": 4, "c": 4}


def test_a_claim_begins_with_a_key_and_goes_on_behind_it(database_url):
    keys = [key_named(name) for name in "abcd"]
    for key in keys:
        store_many(10, key=key)
    assert claim(1, keys[1].id) == ["b"]
    assert claim(3, keys[2].id) == ["c", "d", "a"]
    assert claim(2, keys[3].id + 1) == ["a", "b"]


def test_each_key_has_its_own_longest_due_first_and_equal_instants_by_id(database_url):
    for name in "ab":
        for seconds in (1, 3, 2):
            store(key=key_named(name), send_at=TUESDAY_NOON - seconds * SECOND)
        store(key=key_named(name), send_at=TUESDAY_NOON - 3 * SECOND)
    claimed = stored_messages.claim(8)
    for key in map(key_named, "ab"):
        own = [(message.send_at, message.id) for message in claimed if message.key_id == key.id]
        assert own == sorted(own)
        assert len(own) == 4


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_hundred_of_one_key_do_not_hold_up_the_one_of_another(run_pass, carrier, concurrency):
    numbers, sent_before = store_many(100, key=key_named("loop")), []

    def one_of_another():
        store(to="+12125559999", key=key_named("b"), send_at=TUESDAY_NOON + SECOND)
        sent_before.append(len(carrier.texts))

    carrier.answers[numbers[20]] = one_of_another
    run_pass(TUESDAY_NOON, send_concurrency=concurrency)
    place = carrier.numbers.index("+12125559999")
    assert place - sent_before[0] <= 2 * concurrency


def test_the_next_pass_goes_on_with_the_keys_that_had_no_turn(settings, carrier, at):
    at(TUESDAY_NOON)
    first, *others = [key_named(name) for name in "abc"]
    for key in (first, *others):
        store_many(2, key=key)
    for passes in range(1, 4):  # each by a process of its own, which stops after one text
        one = Scheduler(settings._replace(send_concurrency=1), carrier)
        carrier.answers = dict.fromkeys((f"+1212555{n:04}" for n in range(2)), one.stop.request)
        one.run_pass()
        assert len(carrier.texts) == passes
    sent = Message.select().where(Message.status == Status.SENT)
    assert sorted(message.key_id for message in sent) == [first.id, *(k.id for k in others)]


def test_what_others_are_claiming_just_now_is_passed_over(database_url, kind):
    if kind == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    store(key=key_named("a"))
    store(key=key_named("b"))
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    locked, done = threading.Event(), threading.Event()

    def hold():
        with Message._meta.database.atomic():
            stored_messages.claim(1)
            locked.set()
            done.wait(30)
        Message._meta.database.close()

    other = threading.Thread(target=hold)
    other.start()
    locked.wait(30)
    assert claim(1) == ["b"]
    assert claim(1) == []
    done.set()
    other.join()


def test_what_becomes_due_during_a_long_pass_is_sent_in_it(settings, carrier, at, monkeypatch):
    monkeypatch.setattr(scheduler, "TEND_EVERY", 0)
    at(TUESDAY_NOON)
    due = store(to="+12125559999", status=Status.SCHEDULED, send_at=TUESDAY_NOON + SECOND)
    numbers = store_many(10)
    carrier.answers[numbers[3]] = lambda: at(TUESDAY_NOON + SECOND)
    counts = Scheduler(settings._replace(send_concurrency=1), carrier).run_pass()
    assert +counts == Counter({"promoted": 1, "sent": 11})
    assert again(due).status == Status.SENT


# The rate

TWO_PARTS = "x" * 200


def test_what_does_not_fit_into_the_rate_keeps_its_place_unchanged(run_pass, carrier):
    numbers = store_many(30, message=TWO_PARTS)
    before = {m.id: m.__data__ | {"claim_number": 0} for m in Message.select()}
    counts = run_pass(TUESDAY_NOON, send_rate=10.0)
    assert +counts == Counter({"sent": 3, "waiting for a carrier": 27})
    assert sorted(carrier.numbers) == numbers[:3]
    waiting = Message.select().where(Message.status == Status.QUEUED)
    assert all(m.__data__ | {"claim_number": 0} == before[m.id] for m in waiting)
    assert run_pass(TUESDAY_NOON + SECOND, send_rate=10.0)["sent"] == 3
    assert sorted(carrier.numbers) == numbers[:6]


@pytest.mark.timed
def test_a_pass_waits_for_the_rate(settings, carrier):
    store_many(30)
    began = time.monotonic()
    counts = Scheduler(settings._replace(send_rate=20.0, **ALWAYS_OPEN), carrier).run_pass()
    assert +counts == Counter({"sent": 30})
    assert 0.7 <= time.monotonic() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize("used_for", [20, -0.4])
def test_a_signal_ends_the_wait_and_nothing_stays_claimed(settings, carrier, used_for):
    """The rate is used up for some seconds, or a long text has its place and may not go yet."""
    store_many(3, message=TWO_PARTS)
    used_until = round((clock.now().timestamp() + used_for) * 1_000_000)
    CarrierState.create(name="fake", rate_used_until=used_until)
    waiting = Scheduler(settings._replace(send_rate=0.6, **ALWAYS_OPEN), carrier)
    threading.Timer(0.5, waiting.stop.request).start()
    began = time.monotonic()
    waiting.run_pass()
    assert time.monotonic() - began < 10
    assert statuses() == {Status.QUEUED: 3}
    assert not Attempt.select().exists(), "none is in its hands"
    assert {(m.attempts, m.due_since) for m in Message.select()} == {(0, None)}


def test_a_question_to_the_carrier_uses_nothing_of_the_rate(run_pass, carrier):
    carrier.can_be_asked = True
    carrier.find = lambda to, *_: [to]
    store_many(20, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert run_pass(TUESDAY_NOON, send_rate=1.0)["sent"] == 20
    assert carrier.texts == []
    assert CarrierState.get_by_id("fake").rate_used_until is None


def test_what_the_carrier_does_not_have_goes_within_the_rate(run_pass, carrier):
    carrier.can_be_asked = True
    carrier.find = lambda *_: []
    store_many(20, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    sent = run_pass(TUESDAY_NOON, send_rate=10.0)["sent"]
    assert 0 < sent <= 7
    assert statuses() == {Status.SENT: sent, Status.QUEUED: 20 - sent}


def test_a_text_that_waits_for_the_rate_goes_before_others_of_later_keys(run_pass, carrier):
    """Otherwise texts of many parts would be overtaken for ever."""
    store_many(2, key=key_named("a"))
    store(to="+12125559999", key=key_named("b"), message="x" * 900)  # six parts
    store_many(9, key=key_named("c"))
    for seconds in range(3):
        run_pass(TUESDAY_NOON + seconds * SECOND, send_rate=10.0)
    assert carrier.numbers.index("+12125559999") < 10


def test_the_rate_goes_by_the_parts_that_were_stored_with_the_message(run_pass, carrier):
    for _ in range(4):
        store(parts=5)
    run_pass(TUESDAY_NOON, send_rate=5.0)
    assert len(carrier.texts) == 1


def test_after_too_fast_the_first_text_keeps_to_the_rate_too(run_pass, carrier):
    numbers = store_many(10)
    carrier.answers = dict.fromkeys(numbers, TOO_FAST)
    run_pass(TUESDAY_NOON, send_rate=1.0)
    assert len(carrier.texts) == 1
    carrier.answers = {}
    run_pass(TUESDAY_NOON + SECOND, send_rate=1.0)
    assert len(carrier.texts) == 2


# Testers


@pytest.mark.parametrize("with_carrier", [True, False])
def test_a_testers_texts_go_to_the_simulator_and_to_no_carrier(
    run_pass, carrier, tester, with_carrier
):
    taken, refused, retried = (
        store(key=tester, to=number) for number in (NEW_YORK, PERMANENT, TEMPORARY)
    )
    sent = store(to="+12125550188")
    counts = run_pass(TUESDAY_NOON, carrier if with_carrier else None)
    assert again(taken).status == Status.SENT
    assert (again(refused).status, again(retried).status) == (Status.FAILED, Status.SCHEDULED)
    assert carrier.numbers == ([sent.to] if with_carrier else [])
    expected = Counter({"sent": 1, "failed": 1, "retrying": 1})
    expected["sent" if with_carrier else "waiting for a carrier"] += 1
    assert +counts == expected


def test_a_tester_whose_key_is_issued_in_the_middle_of_a_pass_reaches_nobody(run_pass, carrier):
    numbers = store_many(5)

    def begin_to_test():
        ApiKey.issue("tester", None, TUESDAY_NOON, role=Role.TESTER)
        store(key=ApiKey.named("tester"), to="+12125559999")

    carrier.answers[numbers[1]] = begin_to_test
    passes = [run_pass(TUESDAY_NOON, send_concurrency=1)["sent"] for _ in range(2)]
    assert sum(passes) == 6
    assert carrier.numbers == numbers


def test_testers_use_nothing_of_the_rate(run_pass, carrier, tester):
    store_many(30, key=tester)
    assert run_pass(TUESDAY_NOON, send_rate=1.0)["sent"] == 30
    store()
    assert run_pass(TUESDAY_NOON, send_rate=1.0)["sent"] == 1


def test_the_simulators_pause_is_its_own_and_so_is_the_carriers(run_pass, carrier, tester):
    store(key=tester, to=TOO_BUSY)
    store()
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert CarrierState.get_by_id("fake").retry_at is None
    assert CarrierState.get_by_id(TESTERS).retry_at == TUESDAY_NOON + SECOND
    Message.delete().execute()
    carrier.answers[NEW_YORK] = CarrierError("no credit", account=True)
    refused, taken = store(), store(key=tester)
    run_pass(TUESDAY_NOON + 2 * SECOND)
    assert (again(refused).status, again(taken).status) == (Status.QUEUED, Status.SENT)


def test_a_carrier_that_is_slow_does_not_hold_up_testers(settings, carrier, tester, monkeypatch):
    monkeypatch.setattr(scheduler, "TEND_EVERY", 0)
    text = store(clock.now(), to="+12125559999", key=tester, status=Status.SCHEDULED)

    def wait():
        end = time.monotonic() + 30
        while again(text).status != Status.SENT and time.monotonic() < end:
            time.sleep(0.02)

    store_many(2, clock.now())
    carrier.answers["+12125550000"] = wait
    counts = Scheduler(settings._replace(send_concurrency=1, **ALWAYS_OPEN), carrier).run_pass()
    assert counts["sent"] == 3
    assert again(text).finished_at < Message.get(Message.to == "+12125550000").finished_at


def test_what_testers_send_is_no_problem_of_the_service(run_pass, carrier, tester):
    for _ in range(10):
        store(key=tester, to=PERMANENT)
    store(key=tester, to=TOO_BUSY)
    store(key=tester, to=TEMPORARY)
    run_pass(TUESDAY_NOON)
    state = health.read(TUESDAY_NOON + timedelta(hours=2))
    assert (state.oldest_due, state.bad_end, state.last_sent_at) == (None, None, None)
    assert reports.bad_end(TUESDAY_NOON) is None
    assert state.commonest_error is None


def test_the_state_of_the_testers_simulator_is_not_the_services(run_pass, carrier, tester):
    store(key=tester)
    run_pass(TUESDAY_NOON)
    assert CarrierState.latest().name == "fake"
    run_pass(TUESDAY_NOON + SECOND, carrier=None)
    assert CarrierState.latest().name == ""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sends", "events"])
def test_a_wait_that_a_signal_makes_longer_ends(what, settings, carrier):
    """Python 3.11 has its SimpleQueue wait for ever; so do a small timeout and a busy core."""
    every, deliveries = Scheduler(settings, carrier), Deliveries(60, Message.note_notified)
    waiting = every if what == "sends" else deliveries
    handlings = []

    def handle(*_):
        handlings.append(time.monotonic())
        if len(handlings) == 1:
            time.sleep(0.2)
        else:  # too late: let the test fail instead of hang
            waiting.ended.put(None)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 5)
    try:
        assert not (every.ended.gather(0.1) if what == "sends" else deliveries.wait(0.1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(handlings) == 1
