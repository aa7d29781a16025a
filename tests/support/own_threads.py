"""Threads: several things at once, as by other processes, and a scheduler that is held up."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

from database import db, pool
from sending.runtime import THIS_MACHINE


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


def thread_after(action):
    """Return how a scheduler starts its threads that do something before."""

    def submit(*call):
        action()
        return THIS_MACHINE.submit(*call)

    return submit
