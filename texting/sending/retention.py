"""Retention: redact and purge messages by age, a little at a time.

KEEP_TEXTS and KEEP_MESSAGES say how long they are kept; for replies, the shorter of both counts.
One scheduler at a time does this.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, Self
from uuid import UUID

from peewee import SQL, Expression, IntegerField

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
    for change, lasts in ((PURGE, settings.keep_messages), (REDACT, settings.keep_texts)):
        if lasts:
            name = f"{change.past}_until"
            done[change.past], until[name] = by_age(change, getattr(row, name), now - lasts)
    next_at = now if +done or forgotten else Retention.next_at
    Retention.update(next_at=next_at, **until).execute()
    return +done


def _purge(which, ids):
    return Message.delete().where(which, Message.id.in_(ids)).execute()


def _redact(which, ids):
    redact = Message.update(REDACTED).where(which, Message.id.in_(ids)).returning(Message.id)
    with db.transaction():
        if redacted := [each.id for each in redact]:
            Attempt.forget(redacted, without_place)
    return len(redacted)


class Change(NamedTuple):
    """What becomes of messages that have ended."""

    past: str
    apply: Callable[[Expression, list[UUID]], int]
    action: Action  # in the audit, if a person asks for it
    is_left: Expression  # whether it has not been done


PURGE = Change("purged", _purge, Action.PURGED, SQL("true"))
REDACT = Change("redacted", _redact, Action.REDACTED, Message.message.is_null(False))


def by_age(change: Change, since: datetime | None, before: datetime) -> tuple[int, datetime]:
    """Change some messages that ended between two instants, the oldest first.

    Return how many, and the instant before which nothing is left to change: the next call begins
    there, or it would read everything redacted before. Skip a message that breaks this.
    """
    old = HAS_ENDED & change.is_left & (Message.finished_at < before)
    since = Message.finished_at >= since if since else SQL("true")
    found = []
    for status in FINISHED:  # one index lookup each
        some = Message.select(Message.finished_at, Message.id).where(Message.status == status, old)
        found.extend(some.where(since).order_by(Message.finished_at).limit(PAGE).tuples())
    oldest = sorted(found)[:PAGE]
    what = f"message {{}} is not {change.past}".format
    done = skip_broken(partial(change.apply, old), [id for _, id in oldest], log, what)
    return sum(done), oldest[-1][0] if len(oldest) == PAGE else before


def purge(before: datetime, now: datetime) -> int:
    """Delete some messages that were finished before an instant, by hand; return how many."""
    return _by_hand(PURGE, Message.finished_at < before, now, f"ended before {isoformat(before)}")


def redact(before: datetime, now: datetime) -> int:
    """Erase number and text of some messages finished before an instant; return how many."""
    return _by_hand(REDACT, Message.finished_at < before, now, f"ended before {isoformat(before)}")


def redact_number(number: str, now: datetime) -> int:
    """Erase a number and its texts in some finished messages; return how many."""
    return _by_hand(REDACT, Message.to == number, now, "to one number")


def _by_hand(change, which, now, details):
    which &= has_status(*FINISHED) & HAS_ENDED & change.is_left  # word for word as in the index
    with db.transaction():
        # Outside the change, or Postgres may select a batch for each row that it reads
        ids = [each.id for each in Message.select(Message.id).where(which).limit(PAGE)]
        done = change.apply(which, ids)
        if done:
            Audit.note(change.action, now, count=done, details=details)
    return done
