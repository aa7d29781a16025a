"""Retention: messages are redacted and purged by their age, a little in each pass.

KEEP_TEXTS and KEEP_MESSAGES say how long they are kept; replies as long as the shorter of both. One
scheduler at a time does it.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

from peewee import IntegerField

from database import InstantField, Table
from database.clock import is_ahead
from models import Message
from sending.replies import Reply
from settings import Settings

EVERY = timedelta(minutes=1)  # between looks, once all that is old is gone
TURN = 1  # seconds of a pass, in which texts wait; each batch takes some hundredths


class Retention(Table):
    """When somebody looks again, and how far texts were redacted: a table of one row."""

    id = IntegerField(primary_key=True)
    next_at = InstantField(null=True)
    redacted_until = InstantField(null=True)  # of what ended before, nothing has a text

    @classmethod
    def claim(cls, now: datetime) -> Self | None:
        """Return the row if it is time to look, and nobody else does."""
        cls.insert(id=1).on_conflict_ignore().execute()
        due = cls.next_at.is_null() | (cls.next_at <= now) | is_ahead(cls.next_at, now, EVERY)
        return cls.get() if cls.update(next_at=now + EVERY).where(due).execute() else None


def forget(settings: Settings, now: datetime, is_over: Callable[[], bool]) -> tuple[int, int]:
    """Redact and purge what is too old, in batches, for TURN seconds or until it is over.

    Return how many messages were redacted, and how many purged.
    """
    kept = [*filter(None, (settings.keep_texts, settings.keep_messages))]
    if not kept or not (row := Retention.claim(now)):
        return 0, 0
    redacted, purged, end = 0, 0, time.monotonic() + TURN
    until = row.redacted_until
    while not is_over():
        replies, gone, forgotten = Reply.purge_old(now - min(kept)), 0, 0
        if settings.keep_messages:
            gone = Message.purge_old(now - settings.keep_messages)
        if settings.keep_texts:
            forgotten, until = Message.redact_oldest(until, now - settings.keep_texts)
        redacted, purged = redacted + forgotten, purged + gone
        if not (replies or gone or forgotten):
            break
        if time.monotonic() >= end:  # the next pass goes on
            Retention.update(next_at=now).execute()
            break
    Retention.update(redacted_until=until).execute()
    return redacted, purged
