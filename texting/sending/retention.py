"""Retention: redact and purge messages by age, a little at a time.

KEEP_TEXTS and KEEP_MESSAGES say how long they are kept; for replies, the shorter of both counts.
One scheduler at a time does this.
"""

import logging
from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from peewee import SQL, IntegerField

from texting.access.audit import Action, Audit
from texting.database import PAGE, PAST, InstantField, Table, db, isoformat, skip_broken
from texting.messages.attempts import Attempt
from texting.messages.model import FINISHED, HAS_ENDED, Message, has_status
from texting.replies.model import Reply
from texting.replies.opt_outs import OptOutMessage
from texting.sending.allowed import without_place
from texting.settings import Settings

EVERY = timedelta(minutes=1)  # between looks once everything old is gone

log = logging.getLogger("scheduler")

HAS_TEXT = HAS_ENDED & Message.message.is_null(False)

REDACTED = dict.fromkeys(("to", "message", "note", "response", "request_digest", "idempotency_key"))
"""What redaction empties. Even a digest could be reversed by trying all numbers.

But for `idempotency_digest`: nobody can make it who has not the key's secret.
"""


class Retention(Table):
    """When to look again, and how far messages are redacted and purged: a table of one row."""

    id = IntegerField(primary_key=True)
    next_at = InstantField(EVERY, null=True)
    # No message that ended before these is left, or has a text, except those that broke this
    purged_until = InstantField(PAST, null=True)
    redacted_until = InstantField(PAST, null=True)

    @classmethod
    def claim(cls, now: datetime) -> Self | None:
        """Return the row if it is time to look and nobody else is looking."""
        cls.insert(id=1).on_conflict_ignore().execute()
        due = cls.next_at.is_null() | (cls.next_at <= now)
        return cls.get() if cls.update(next_at=now + EVERY).where(due).execute() else None


def redact_and_purge(settings: Settings, now: datetime) -> Counter:
    """Redact and purge a batch of what is too old; return the counts of what was done.

    Once nothing is left, return no counts, and nobody looks again for a while.
    """
    kept = [*filter(None, (settings.keep_texts, settings.keep_messages))]
    if not kept or not (row := Retention.claim(now)):
        return Counter()
    done, until = Counter({"replies purged": Reply.purge_old(now - min(kept))}), {}
    forgotten = OptOutMessage.forget(now - min(kept))
    if settings.keep_messages:
        before = now - settings.keep_messages
        done["purged"], until["purged_until"] = purge_some(row.purged_until, before)
    if settings.keep_texts:
        before = now - settings.keep_texts
        done["redacted"], until["redacted_until"] = redact_oldest(row.redacted_until, before)
    next_at = now if +done or forgotten else Retention.next_at
    Retention.update(next_at=next_at, **until).execute()
    return +done


def purge_some(since: datetime | None, before: datetime) -> tuple[int, datetime | None]:
    """Delete some messages that ended between two instants.

    Return how many, and the instant before which nothing is left except what broke this.
    """
    old = Message.finished_at < before
    if since:
        old &= Message.finished_at >= since
    ids, delete = _some(old, has_status(*FINISHED)), partial(_delete, old)
    purged = sum(skip_broken(delete, ids, log, "message {} is not purged".format))
    return purged, before if len(ids) < PAGE else since


def redact_oldest(since: datetime | None, before: datetime) -> tuple[int, datetime]:
    """Redact some messages that ended between two instants, the oldest first.

    Return how many, and the instant before which nothing is left to redact: the next call begins
    there, or it would read everything redacted before. Skip a message that breaks this.
    """
    old = HAS_TEXT & (Message.finished_at < before)
    since = Message.finished_at >= since if since else SQL("true")
    found = []
    for status in FINISHED:  # one index lookup each
        some = Message.select(Message.finished_at, Message.id).where(Message.status == status, old)
        found.extend(some.where(since).order_by(Message.finished_at).limit(PAGE).tuples())
    oldest = sorted(found)[:PAGE]
    ids, erase = [id for _, id in oldest], partial(_erase, old)
    redacted = sum(skip_broken(erase, ids, log, "message {} is not redacted".format))
    return redacted, oldest[-1][0] if len(oldest) == PAGE else before


# By hand: some messages at a time


def purge(before: datetime, now: datetime) -> int:
    """Delete some messages that were finished before an instant; return how many."""
    old = Message.finished_at < before
    with db.transaction():
        # Outside the DELETE, or Postgres may select a batch for each row that it reads
        if gone := _delete(old, _some(old, has_status(*FINISHED))):
            Audit.note(Action.PURGED, now, count=gone, details=f"ended before {isoformat(before)}")
    return gone


def redact(before: datetime, now: datetime) -> int:
    """Erase number and text of some messages finished before an instant; return how many."""
    old = has_status(*FINISHED) & (Message.finished_at < before)  # word for word as in the index
    return _redact(old, now, f"ended before {isoformat(before)}")


def redact_number(number: str, now: datetime) -> int:
    """Erase a number and its texts in some finished messages; return how many."""
    return _redact(Message.to == number, now, "to one number")


def _redact(which, now, details):
    which &= HAS_TEXT
    ids = _some(which)
    with db.transaction():
        if redacted := _erase(which, ids):
            Audit.note(Action.REDACTED, now, count=redacted, details=details)
    return redacted


def _some(*which):
    return [message.id for message in Message.select(Message.id).where(*which).limit(PAGE)]


def _delete(which, ids):
    return Message.delete().where(which, Message.id.in_(ids)).execute()


def _erase(which, ids):
    """Redact those of these messages that meet a condition; return how many."""
    redact = Message.update(REDACTED).where(which, Message.id.in_(ids)).returning(Message.id)
    with db.atomic():
        if redacted := [each.id for each in redact]:
            Attempt.forget(redacted, without_place)
    return len(redacted)
