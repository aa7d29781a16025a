"""Where no thread can be started, texts keep their places and go later, once each."""

import threading

import pytest

from databases import on_both
from samples import HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import store, store_many
from texting.messages.attempts import Attempt
from texting.messages.model import Message
from texting.sending.carrier_state import CarrierState
from texting.sending.runtime import Runtime, Threads

pytestmark = on_both

NO_THREAD = RuntimeError("can't start new thread")


@pytest.fixture
def few_threads(monkeypatch, run_pass):
    """Let so many threads that talk to carriers be alive at once: `few_threads(2)`."""
    start, alive, most = threading.Thread.start, [], [10**6]

    def start_some(thread):
        if thread.name.startswith("Thread"):
            alive[:] = [each for each in alive if each.is_alive()]
            if len(alive) >= most[0]:
                raise NO_THREAD
            alive.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    run_pass.runtime = Runtime(submit=Threads().submit)  # none waits from another test

    def say(number):
        most[:] = [number]

    return say


def pause(**trouble):
    store_many(3)
    CarrierState.prepare("fake")
    CarrierState.begin_pause("fake", TUESDAY_NOON - HOUR, **trouble)


def in_doubt():
    store(in_doubt=1, in_doubt_since=TUESDAY_NOON - SECOND, attempts=1)


WAITING = {
    "texts": (lambda: store_many(20), 20, 20),
    "a text in doubt": (in_doubt, 1, 0),
    "a text after a pause": (pause, 3, 3),
    "whether it serves": (lambda: pause(trouble="no route", is_down=True), 3, 3),
}
"""What waits, how many texts are sent in the end, and how many of these given to the carrier."""


@pytest.mark.parametrize("what", WAITING)
def test_without_any_thread_all_wait_unharmed_and_go_in_the_next_pass(
    run_pass, askable, few_threads, caplog, what
):
    prepare, sent, given = WAITING[what]
    prepare()
    askable.taken, askable.check = [(NEW_YORK, "Hello")], lambda: None

    def stored():
        waiting = [
            each.__data__ | {"claim_number": 0} for each in Message.select().order_by(Message.id)
        ]
        tried = Attempt.select(Attempt.message, Attempt.claim_number, Attempt.result)
        return waiting, [*tried.tuples()]

    before = stored()
    few_threads(0)
    assert run_pass(TUESDAY_NOON, askable)["sent"] == 0
    assert stored() == before
    assert 1 <= caplog.text.count("can't start new thread") <= 8
    few_threads(20)
    assert run_pass(TUESDAY_NOON, askable)["sent"] == sent
    assert len(askable.texts) == len({*askable.texts}) == given


@pytest.mark.parametrize("most", [2, 5])
def test_with_few_threads_each_text_goes_once_in_the_same_pass(
    run_pass, carrier, few_threads, most
):
    store_many(30, TUESDAY_NOON)
    few_threads(most)
    assert +run_pass(TUESDAY_NOON) == {"sent": 30}
    assert len(carrier.texts) == len({*carrier.texts}) == 30
    assert Message.select().where(Message.attempts == 1).count() == 30
