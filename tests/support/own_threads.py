"""Threads: several things at once, as by other processes, and a scheduler that is held up."""

from concurrent.futures import ThreadPoolExecutor

from database import db


def begin(pool, action, *arguments):
    """Have a thread do something over a connection of its own; return its future."""

    def act():
        try:
            return action(*arguments)
        finally:
            db.close()

    return pool.submit(act)


def at_once(*actions):
    """Do all of these at once; return their results."""
    db.close()
    with ThreadPoolExecutor(min(8, len(actions))) as pool:
        return [each.result() for each in [begin(pool, action) for action in actions]]


def pool_after(action):
    """Return a kind of pool of a scheduler that does something before it calls each thread."""

    class Pool(ThreadPoolExecutor):
        def submit(self, *call):
            action()
            return super().submit(*call)

    return Pool
