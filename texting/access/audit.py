"""The audit: who did what and when, to which message, key or number.

The code that makes a change adds its row in the same transaction. Rows are never changed, and hold
no secret and no text of a message.
"""

import os
import pwd
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple, Self
from uuid import UUID

from peewee import BigAutoField, Expression, Field, IntegerField, TextField, UUIDField, chunked

from texting.database import PAGE, InstantField, Table, in_pages

LONGEST_NAME = 100


class Actor(NamedTuple):
    """A person: signed in at the desk with a key, or a user of the shell."""

    name: str  # of the key or of the user
    key: int | None = None  # the key's id; None in the shell


signed_in = ContextVar("signed_in", default=None)
"""The Actor who is signed in, while the desk handles a request."""


def actor() -> Actor:
    """Return who acts: the person at the desk, otherwise the user who runs this process."""
    return signed_in.get() or Actor(shell_user())


def shell_user() -> str:
    """Return FLASK_ACTOR, USER or the system's name for the user."""
    name = os.environ.get("FLASK_ACTOR") or os.environ.get("USER") or _system_user()
    return "".join(each if each.isprintable() else "?" for each in name[:LONGEST_NAME])


def _system_user():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as anybody
        return f"uid {os.getuid()}"


class Action(StrEnum):
    SIGNED_IN = "signed in"
    SIGNED_OUT = "signed out"
    APPROVED = "message approved"
    REFUSED = "message refused"
    CANCELLED = "message cancelled"
    RETRIED = "message retried"
    UNDONE = "message undone"
    PURGED = "messages purged"
    REDACTED = "messages redacted"
    FORGOTTEN = "replies forgotten"
    CREATED_KEY = "key created"
    LIMITED_KEY = "key limited"
    RULED_KEY = "key rules set"
    ROTATED_KEY = "key rotated"
    EXTENDED_KEY = "key extended"
    LINKED_KEY = "sign-in link made"
    PAUSED_KEY = "key paused"
    RESUMED_KEY = "key resumed"
    REVOKED_KEY = "key revoked"
    SET_EVENTS = "events address set"
    ROTATED_EVENTS = "events secret rotated"
    SHOWN_EVENTS = "events secret shown"
    STOPPED_EVENTS = "events switched off"
    RETRIED_EVENTS = "events retried"
    ADDED = "number added"
    REMOVED = "number removed"
    IMPORTED = "numbers imported"
    EXPORTED = "numbers exported"
    CHANGED_SETTING = "setting changed"
    IMPORTED_PLACES = "places imported"
    REMOVED_PLACE = "place removed"


class Audit(Table):
    id = BigAutoField()
    at = InstantField(index=True)
    who = TextField()
    who_key = IntegerField(null=True)  # null in the shell
    what = TextField()  # an Action
    message_id = UUIDField(null=True)
    key = IntegerField(null=True)  # the id of the key that was changed
    key_name = TextField(null=True)
    number = TextField(null=True)  # of the Do Not Call list, or of a known place
    count = IntegerField(null=True)  # where many messages, numbers or events changed
    details = TextField(null=True)
    link_made_at = InstantField(null=True)  # of the link by which somebody signed in

    @classmethod
    def note(cls, what: Action, now: datetime, by: Actor | None = None, **about: Any) -> None:
        """Add a row, in the transaction of the action; without `by`, the actor did it."""
        who, who_key = by or actor()
        cls.insert(at=now, who=who, who_key=who_key, what=what, **about).execute()

    @classmethod
    def note_each(
        cls,
        what: Action,
        now: datetime,
        about: Field,
        values: Iterable[Any],
        details: str | None = None,
    ) -> None:
        """Add a row for each of several numbers or messages, `about` being their column."""
        who, who_key = actor()
        row = {"at": now, "who": who, "who_key": who_key, "what": what, "details": details}
        for some in chunked(values, PAGE):
            cls.insert_many([row | {about.name: value} for value in some]).execute()

    @classmethod
    def latest(
        cls, messages: Iterable[UUID], among: Iterable[Action], since: datetime
    ) -> dict[UUID, str]:
        """Return which of these actions on messages was the last since an instant, by their ids."""
        rows = cls.select(cls.message_id, cls.what).where(cls.at > since)
        rows = rows.where(cls.message_id.in_([*messages]), cls.what.in_([*among]))
        return dict(rows.order_by(cls.id).tuples())

    @classmethod
    def listing(
        cls,
        since: datetime | None,
        until: datetime | None,
        by: Actor | None,
        about: Expression | None = None,
    ) -> Iterator[Self]:
        """Read the rows from one instant to before another, the newest first, in pages.

        The batches of one action are one row. `by` without a key means anybody of that name;
        `about` is a condition.
        """
        rows = cls.select().order_by(cls.id.desc())
        if since:
            rows = rows.where(cls.at >= since)
        if until:
            rows = rows.where(cls.at < until)
        if by:
            rows = rows.where(cls.who == by.name)
            rows = rows.where(cls.who_key == by.key) if by.key else rows
        if about is not None:
            rows = rows.where(about)
        return cls._merged(in_pages(rows, None, lambda last: cls.id < last.id))

    @staticmethod
    def _merged(rows):
        """Yield rows; add up the counts of batches, which are alike in everything else."""

        def rest(row):
            return {k: v for k, v in row.__data__.items() if k not in ("id", "count")}

        for _, alike in groupby(rows, key=lambda row: (row.count is None and row.id, rest(row))):
            first, *others = alike
            if others:
                first.count += sum(row.count for row in others)
            yield first
