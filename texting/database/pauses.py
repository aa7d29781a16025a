"""Pauses of long work, so that a web worker answers its other requests meanwhile."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from texting.database.connections import db

PAUSE = 0.001  # seconds; those who wait for SQLite's lock ask for it twice meanwhile


def with_pauses(items: Iterable[Any], every: int = 1) -> Iterator[Any]:
    """Yield items, with a pause between so many of them and the next; the work is in batches.

    In a pause, no connection is held: the pool has few.
    """
    for number, item in enumerate(items):
        if number and number % every == 0:
            pause()
        yield item


def pause() -> None:
    """Give this thread's connection back, and let other threads and writers go first."""
    db.close()
    time.sleep(PAUSE)
