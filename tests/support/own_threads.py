"""Threads: several things at once, as by other processes, and a scheduler that is held up."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Thread
from unittest.mock import patch

from texting.database import db, pool
from texting.sending.runtime import THIS_MACHINE, Runtime


def begin(threads, action, *arguments):
    """Have a thread do something over a connection of its own; return its future."""

    def act():
        try:
            return action(*arguments)
        finally:
            db.close()

    return threads.submit(act)


def at_once(*actions):
    """Do all of these, as many at once as there are connections; return their results.

    However busy the machine is, none gives up: others take the lock, or a connection that more
    threads would wait for, again and again.
    """
    db.close()
    threads = ThreadPoolExecutor(pool.POOL["max_connections"])
    with threads, patch.object(pool, "PATIENCE", 600):
        return [each.result() for each in [begin(threads, action) for action in actions]]


def before_commit(first, second):
    """Do the first in a transaction, and begin the second before its end; return what this returns.

    The second is done too early, or waits for the end.
    """
    is_done, commit = Event(), Event()

    def hold():
        with db.atomic():
            first()
            is_done.set()
            commit.wait(60)

    db.close()
    with ThreadPoolExecutor() as threads:
        holding = begin(threads, hold)
        assert is_done.wait(60)
        following = begin(threads, second)
        wait([following], timeout=0.3)
        commit.set()
        holding.result()
        return following.result()


def in_new_thread(action, *arguments):
    """Call something in a thread that has begun when this returns, so texts go in their order."""
    future = Future()

    def call():
        try:
            end, result = future.set_result, action(*arguments)
        except BaseException as error:
            end, result = future.set_exception, error
        end(result)

    Thread(target=call, daemon=True).start()
    return future


IN_ORDER = Runtime(submit=in_new_thread)
"""What most tests run on: which of a carrier's lasting threads is the first is nobody's promise."""


def thread_after(action):
    """Return how a scheduler starts its threads that do something before."""

    def submit(*call):
        action()
        return THIS_MACHINE.submit(*call)

    return submit
