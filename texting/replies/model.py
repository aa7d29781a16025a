"""Replies of recipients: stored, listed, read and deleted.

`inbound.py` records them.
"""

import json
import logging
import re
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from peewee import (
    SQL,
    BooleanField,
    Expression,
    IntegerField,
    ModelSelect,
    TextField,
    UUIDField,
    chunked,
)

from texting import recipients
from texting.access.audit import Action, Audit
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, LastReply, OptedOut
from texting.database import (
    PAGE,
    PAST,
    CarrierTextField,
    InstantField,
    Table,
    db,
    isoformat,
    skip_broken,
)
from texting.events.outbox import Event
from texting.messages.model import Message
from texting.replies import meaning
from texting.replies.meaning import Meaning
from texting.reports.listings import Cursor

log = logging.getLogger("replies")

WAITS = SQL("read_at IS NULL AND NOT opted_out")
"""A person has to read it. Replies that need nobody are marked as read on arrival."""

MAY_BE_NO = SQL("may_be_no")

IS_DONE = SQL("(read_at IS NOT NULL OR opted_out)")

OF_GROUP = SQL("available_to_group")

READ = 2
"""The rank of replies that nobody has to read."""

URGENCY = "(CASE WHEN read_at IS NOT NULL OR opted_out THEN 0 WHEN may_be_no THEN 2 ELSE 1 END)"
"""The rank in SQL: the larger, the sooner somebody has to read the reply. It is indexed."""

PARTS_WITHIN = timedelta(minutes=5)
"""How long to wait for the other parts of a text after the first one."""


class Reply(Table):
    """What a recipient wrote. A long reply grows part by part, and is shown once it is whole."""

    id = UUIDField(primary_key=True)
    carrier = TextField()  # through which it came
    number = TextField()  # of the sender, in E.164
    text = CarrierTextField()
    at = InstantField(PAST)  # by the carrier's clock if it gave the time, otherwise the arrival
    received_at = InstantField(PAST)
    # The message that it belongs to, if any, and who may see that
    message_id = UUIDField(null=True)
    key = IntegerField(null=True)
    available_to_group = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    opted_out = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    may_be_no = BooleanField(default=False, constraints=[SQL("DEFAULT false")])  # until it is read
    read_at = InstantField(null=True)
    read_by = TextField(null=True)
    part_reference = CarrierTextField(null=True)  # the carrier's, the same for all parts of a text
    parts = IntegerField(null=True)
    pieces = TextField(null=True)  # a JSON object: the parts' texts by their numbers
    # When it is shown even if parts are missing
    due_at = InstantField(PARTS_WITHIN, null=True)

    has_slow_clock = False  # whether its message was given after `at`, and before its arrival
    others = 0  # how many more replies its number sent, if a query counted them

    @classmethod
    def shown(cls, now: datetime) -> ModelSelect:
        """Select the replies that are whole, or have waited long enough for the rest."""
        return cls.select().where(cls.due_at.is_null() | cls.is_due(now))

    @classmethod
    def is_due(cls, now: datetime) -> Expression:
        """Match incomplete replies that have waited long enough."""
        return cls.due_at <= now

    # What people do

    @classmethod
    def mark_read(cls, ids: Collection[uuid.UUID], by: str, now: datetime) -> set[uuid.UUID]:
        """Mark unread replies as read by a person; return the ids of those that changed."""
        unread = cls.read_at.is_null() & cls.id.in_([*ids])
        return cls._note_read(unread, by, now) if ids else set()

    @classmethod
    def mark_unread(cls, ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
        """Mark replies that somebody read as unread; return the ids of those that changed."""
        was_read = cls.id.in_([*ids]) & cls.read_by.is_null(False)
        found = cls.select(cls.id, cls.text).where(was_read)
        read = {each.id: meaning.read_part(each.text) for each in found}
        maybe = [id for id, means in read.items() if means is Meaning.MAYBE_NO]
        undecided = cls.id.in_(maybe) & cls.number.not_in(OptedOut.select(OptedOut.number))
        changes = {"read_at": None, "read_by": None, "may_be_no": undecided}
        done = cls.update(changes).where(was_read, cls.id.in_([*read]))
        return {each.id for each in done.returning(cls.id).execute()}

    @classmethod
    def _note_read(cls, which, by, now):
        read = cls.update(read_at=now, read_by=by, may_be_no=False).where(which)
        return {each.id for each in read.returning(cls.id).execute()}

    @classmethod
    def record_listed(cls, numbers: Iterable[str], by: str, now: datetime) -> None:
        """Mark the possible opt-outs of listed numbers as read, because they are decided."""
        for some in chunked(numbers, PAGE):
            cls._note_read(MAY_BE_NO & cls.number.in_(some), by, now)

    # Retention

    @classmethod
    def purge(cls, before: datetime, now: datetime) -> int:
        """Delete a batch of replies older than an instant, and audit it; return the count."""
        return cls._forget(cls.at < before, now, f"replies before {isoformat(before)}")

    @classmethod
    def purge_old(cls, before: datetime) -> int:
        """Delete a batch as `purge` does, but without the audit, because no person asked for it.

        Skip a reply that breaks this.
        """
        what = "reply {0.id} is not purged".format
        return sum(skip_broken(cls._delete, cls._some(cls.at < before), log, what))

    @classmethod
    def forget_number(cls, number: str, now: datetime) -> int:
        """Delete a batch of the replies of a number, and audit it; return the count."""
        return cls._forget(cls.number == number, now, "replies of one number")

    @classmethod
    def _forget(cls, which, now, details):
        """Delete a batch of replies and their traces elsewhere, and audit it."""
        with db.transaction():
            some = cls._some(which)
            if some:
                cls._delete(some)
                Audit.note(Action.FORGOTTEN, now, count=len(some), details=details)
        return len(some)

    @classmethod
    def _some(cls, which):
        return list(cls.select(cls.id, cls.number, cls.at).where(which).limit(PAGE))

    @classmethod
    def _delete(cls, some):
        ids = [each.id for each in some]
        with db.transaction():
            # Locked first, as recording a reply does: another order could deadlock
            LastReply.forget({each.number for each in some}, max(each.at for each in some))
            Event.forget_texts(ids)
            cls.delete().where(cls.id.in_(ids)).execute()
        return len(ids)

    @property
    def rank(self) -> int:
        """Its index in RANKS."""
        return READ if self.read_at or self.opted_out else int(not self.may_be_no)

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.rank, self.at, self.id)

    @property
    def by_number(self) -> dict[str, str]:
        """The texts of the parts received so far, by their numbers."""
        return json.loads(self.pieces or "{}")


def put_on_list(
    which: type[OptedOut] | type[DoNotCall],
    numbers: Collection[str],
    now: datetime,
    source: str,
    who: str | None = None,
    said_at: datetime | None = None,
) -> int:
    """Put numbers on one of the two lists, as its `add` does; return how many are new.

    That decides their possible opt-outs.
    """
    with db.atomic():
        new = which.add(numbers, now, source, who, said_at)
        Reply.record_listed(numbers, who or source, now)
    return new


def read_number(text: str, region: str | None) -> str:
    """Return the E.164 form of a number as a person writes it, as `recipients.national` does.

    A stored number is accepted even if libphonenumber now rejects it.
    """
    try:
        return recipients.national(text, region)
    except recipients.InvalidNumber:
        number = "+" + re.sub(r"[^0-9]", "", text)
        columns = (Message.to, Reply.number, DoNotCallHistory.number)
        stored = (each.model.select().where(each == number).exists() for each in columns)
        if text.strip().startswith("+") and any(stored):
            return number
        raise


_OF_PAGES = [Reply.at, Reply.id, Reply.number, Reply.due_at]

for _name, _columns, _where in (
    ("reply_waiting", [Reply.may_be_no, *_OF_PAGES], WAITS),
    ("reply_done", _OF_PAGES, IS_DONE),
    ("reply_group_waiting", [Reply.key, Reply.may_be_no, *_OF_PAGES], OF_GROUP & WAITS),
    ("reply_group_done", [Reply.key, *_OF_PAGES], OF_GROUP & IS_DONE),
    ("reply_maybe", [Reply.number], MAY_BE_NO),
    ("reply_key", [Reply.key, Reply.at, Reply.id], OF_GROUP),
    ("reply_unread", [Reply.at, Reply.id], SQL("read_at IS NULL")),
    ("reply_at", [Reply.at, Reply.id], None),
    ("reply_number", [Reply.number, Reply.at, Reply.id], None),
    ("reply_number_first", [Reply.number, SQL(URGENCY), Reply.at, Reply.id], None),
    ("reply_message", [Reply.message_id], None),
    ("reply_due", [Reply.due_at], SQL("due_at IS NOT NULL")),
):
    Reply.add_index(Reply.index(*_columns, where=_where, name=_name))
