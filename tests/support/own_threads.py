"""Threads: several things at once, as by other processes, and a scheduler that is held up."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

from database import db, pool


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


def pool_after(action):
    """Return a kind of pool of a scheduler that does something before it calls each thread."""

    class Pool(ThreadPoolExecutor):
        def submit(self, *call):
            action()
            return super().submit(*call)

    return Pool
