"""Where no thread can be started, texts keep their places and go later, once each."""

import threading
import time

import pytest

from database import clock
from fake_carrier import FakeCarrier
from models import Message, Status
from running import wait_until
from samples import HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from sending import runtime
from sending.attempts import Attempt
from sending.carrier_state import CarrierState
from stored_messages import again, store, store_many

NO_THREAD = RuntimeError("can't start new thread")
ONE_OF_THREE = [True, False, False] * 100


@pytest.fixture
def may_start(monkeypatch):
    """Say which of the next threads of pools may start: `may_start([False, True])`, later all."""
    start, allowed = threading.Thread.start, []

    def start_some(thread):
        if thread.name.startswith("Thread") and allowed and not allowed.pop(0):
            raise NO_THREAD
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)

    def say(which):
        allowed[:] = which

    return say


def untouched():
    """How many messages wait as if nothing had happened to them."""
    waits = (Message.status == Status.QUEUED) & Message.id.not_in(Attempt.select(Attempt.message))
    never = (Message.attempts == 0) & (Message.in_doubt == 0)
    return Message.select().where(waits, never, Message.send_at == TUESDAY_NOON).count()


@pytest.fixture
def slow():
    """A carrier that takes a moment for each text."""
    carrier = FakeCarrier()
    send = carrier.send

    def send_slowly(*arguments, **named):
        time.sleep(0.05)
        return send(*arguments, **named)

    carrier.send = send_slowly
    return carrier


def test_without_any_thread_texts_wait_unharmed_and_go_in_the_next_pass(
    run_pass, carrier, may_start, caplog
):
    store_many(20, TUESDAY_NOON)
    may_start([False] * 20)
    assert +run_pass(TUESDAY_NOON) == {"waiting for a carrier": 20}
    assert untouched() == 20
    assert carrier.texts == []
    assert 1 <= caplog.text.count("can't start new thread") <= 8
    may_start([])
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert len(carrier.texts) == len({*carrier.texts}) == 20


@pytest.mark.slow
@pytest.mark.parametrize("which", [[True], [True, True, False, True, False], ONE_OF_THREE])
def test_with_few_threads_each_text_goes_once_in_the_same_pass(
    run_pass, slow, may_start, caplog, which
):
    store_many(30, TUESDAY_NOON)
    may_start([*which, *[False] * 100])
    assert +run_pass(TUESDAY_NOON, carrier=slow) == {"sent": 30}
    assert len(slow.texts) == len({*slow.texts}) == 30
    assert 1 <= caplog.text.count("can't start new thread") <= 8
    assert Message.select().where(Message.attempts == 1).count() == 30


def test_what_could_not_be_submitted_is_not_called_by_another_thread(may_start):
    go_on, called = threading.Event(), []
    pool = runtime.Threads(2)
    may_start([True, False])
    first = pool.submit(go_on.wait, 10)
    with pytest.raises(runtime.NoThread):
        pool.submit(called.append, "refused")
    may_start([])
    later = pool.submit(called.append, "accepted")
    go_on.set()
    assert first.result(10)
    later.result(10)
    pool.shutdown()
    assert called == ["accepted"]


def test_a_text_that_was_to_go_first_after_a_pause_lets_the_next_one_go_first(
    run_pass, carrier, may_start
):
    store_many(3, TUESDAY_NOON)
    CarrierState.prepare("fake")
    CarrierState.begin_pause("fake", TUESDAY_NOON - HOUR, asked_for=5)
    may_start([False])
    assert run_pass(TUESDAY_NOON)["sent"] == 0
    assert CarrierState.get_by_id("fake").tried_at is None
    assert untouched() == 3
    assert run_pass(TUESDAY_NOON)["sent"] == 3


def test_what_is_in_doubt_stays_so_and_is_asked_about_in_the_next_pass(
    run_pass, carrier, may_start
):
    carrier.can_be_asked, asked = True, []
    carrier.find = lambda *arguments: asked.append(arguments) or ["SM0"]
    message = store(TUESDAY_NOON, in_doubt=1, in_doubt_since=TUESDAY_NOON - SECOND, attempts=1)
    may_start([False])
    assert run_pass(TUESDAY_NOON)["sent"] == 0
    doubtful = again(message)
    assert (doubtful.status, doubtful.in_doubt, doubtful.attempts) == (Status.QUEUED, 1, 1)
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert len(asked) == 1
    assert carrier.texts == []


def test_a_carrier_that_could_not_be_asked_whether_it_serves_is_asked_in_the_next_pass(
    run_pass, carrier, may_start, caplog
):
    asked, carrier.check = [], lambda: asked.append(True)
    store(TUESDAY_NOON)
    CarrierState.prepare("fake")
    CarrierState.begin_pause("fake", TUESDAY_NOON - HOUR, trouble="no route", is_down=True)
    may_start([False])
    assert run_pass(TUESDAY_NOON)["sent"] == 0
    assert (asked, untouched()) == ([], 1)
    assert "carrier fake cannot be asked: can't start new thread" in caplog.text
    assert run_pass(TUESDAY_NOON)["sent"] == 1
    assert asked == [True]


def test_a_scheduler_goes_on_while_no_thread_can_be_started(settings, carrier, may_start):
    one, lines = Scheduler(settings._replace(business_hours=(0, 1440)), carrier), []
    text = store(clock.now())
    may_start([False] * 5)
    thread = threading.Thread(target=lambda: one.run(0.05, lines.append), name="a scheduler")
    thread.start()
    wait_until(lambda: again(text).status == Status.SENT)
    one.stop.request()
    thread.join(30)
    assert again(text).attempts == 1
    assert carrier.texts == [(NEW_YORK, "Hello")]
