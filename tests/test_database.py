"""The database: connections, errors, and inserts in batches."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import database
from database import Busy, InsertBatcher
from running import wait_until


class Work:
    """Doubles numbers, one batch a permit; remembers what it was given together."""

    def __init__(self):
        self.batches, self.permits, self.running = [], threading.Semaphore(0), 0

    def permit(self, count=10_000):
        self.permits.release(count)

    def __call__(self, numbers):
        self.running += 1
        assert self.running == 1, "two threads work at once"
        self.batches.append(numbers)
        try:
            assert self.permits.acquire(timeout=10)
            if "bad" in numbers:
                raise ValueError("bad")
            return [number * 2 for number in numbers]
        finally:
            self.running -= 1


@pytest.fixture
def work():
    return Work()


@pytest.fixture
def batcher(work):
    return InsertBatcher(work)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(100) as pool:
        yield pool


@pytest.fixture
def ask_during_work(work, batcher, threads):
    """Ask for things while the first of them is worked at; the futures of all."""

    def ask(first, *others):
        futures = [threads.submit(batcher.insert, first)]
        wait_until(lambda: work.batches)
        for count, other in enumerate(others, 1):
            futures.append(threads.submit(batcher.insert, other))
            wait_until(lambda count=count: len(batcher._waiting) == count)
        return futures

    return ask


def test_each_of_many_threads_gets_what_it_asked_for(work, batcher, threads):
    work.permit()
    assert list(threads.map(batcher.insert, range(5000))) == list(range(0, 10_000, 2))


def test_what_comes_during_an_insert_is_inserted_together(work, ask_during_work):
    futures = ask_during_work(1, 2, 3, 4)
    work.permit()
    assert [future.result(5) for future in futures] == [2, 4, 6, 8]
    assert work.batches == [[1], [2, 3, 4]]


def test_no_more_are_served_together_than_one_statement_takes(work, ask_during_work):
    futures = ask_during_work(0, *range(1, 81))
    work.permit()
    assert [future.result(5) for future in futures] == list(range(0, 162, 2))
    assert [len(batch) for batch in work.batches] == [1, 32, 32, 16]


def test_an_error_reaches_all_it_concerns_and_nobody_else(work, batcher, ask_during_work):
    futures = ask_during_work(1, "bad", 2)
    work.permit()
    assert futures[0].result(5) == 2
    for future in futures[1:]:
        with pytest.raises(ValueError, match="bad"):
            future.result(5)
    assert batcher.insert(5) == 10


def test_who_waits_too_long_is_refused_and_not_served_later(
    work, batcher, ask_during_work, monkeypatch
):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    first, second = ask_during_work(1, 2)
    with pytest.raises(Busy):
        second.result(5)
    assert not first.done()  # who is worked at waits for the outcome, whatever it is
    work.permit()
    assert first.result(5) == 2
    assert batcher.insert(3) == 6
    assert work.batches == [[1], [3]]


def test_who_is_worked_at_is_told_the_outcome_however_late(work, ask_during_work, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.5)
    futures = ask_during_work(1, 2, 3)
    work.permit(1)
    wait_until(lambda: len(work.batches) == 2)
    time.sleep(1)
    assert not futures[2].done()
    work.permit(1)
    assert [future.result(5) for future in futures] == [2, 4, 6]
