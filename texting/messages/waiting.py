"""Waiting messages: once due, they are queued or blocked, or they expire.

A call changes one batch, so that neither other writers nor sending waits long. Texts in doubt are
left to the sender, which asks the carrier first.
"""

import logging
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import chain
from uuid import UUID

from peewee import SQL, Case, ModelSelect, ModelUpdate, Value

from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey, rules_of
from texting.database import FEW, LAST, MILLISECOND, is_outage, locked, skip_broken
from texting.database.statements import run
from texting.messages.attempts import Attempt
from texting.messages.model import (
    IS_SENDABLE,
    IS_WAITING,
    SET_ASIDE,
    WAITING,
    Message,
    Status,
    has_status,
)

UNAPPROVED = "nobody approved it in time"

log = logging.getLogger("scheduler")


def is_any_due(at: datetime) -> bool:
    """Return whether a text that was due by then may be sent now."""
    return run("is_any_due", at=Message.send_at.db_value(at)).fetchone() is not None


def promote(now: datetime, *, check_dnc: str = "asked") -> Counter:
    """Queue, expire or block some messages that are due; count them by their new status.

    `check_dnc` is for keys without a rule of their own.
    """
    due = has_status(Status.SCHEDULED) & (Message.send_at <= now)
    blocked = _is_kept_off(check_dnc) & ~Attempt.in_doubt()
    expired = (Message.expires_at <= now) & ~Attempt.in_doubt()
    became = Case(None, [(blocked, Status.BLOCKED), (expired, Status.EXPIRED)], Status.QUEUED)
    finished = Case(None, [(blocked | expired, Message.finished_at.db_value(now))], None)
    why = _why_expired(now, ~expired, blocked)
    move = Message.update(status=became, finished_at=finished, **why)
    due = Message.select(Message.id).where(due).order_by(Message.send_at)
    moved = _change_due(move, due, has_status(Status.SCHEDULED), now)
    return Counter(status for status, _ in moved)


def _why_expired(now, *unless):
    """Return the columns that say that a message expired because nobody approved it.

    They keep their values if a message is approved, or meets one of the other conditions.
    """
    columns = (Message.last_error, UNAPPROVED), (Message.last_error_at, now)
    return {
        column.name: Case(
            None, [(each, column) for each in (Message.approved, *unless)], column.db_value(said)
        )
        for column, said in columns
    }


def _is_kept_off(setting):
    """Match messages that the Do Not Call list blocks.

    It never blocks an automatic reply.
    """
    heeds_entries = Message.check_dnc | Message.key.in_(ApiKey.checking("always", setting))
    entered = DoNotCall.has(Message.to) & heeds_entries
    return Message.auto_reply_to.is_null() & (
        entered | OptedOut.has(Message.to) & _heeds_stop(setting)
    )


def _heeds_stop(setting):
    """Match messages that must not go to a number that has opted out."""
    return Message.check_dnc | Message.key.not_in(ApiKey.checking("asked", setting))


def renew_expiry(ids: Collection[UUID], setting: timedelta) -> None:
    """Decide again when these messages expire, by the present rules of their keys.

    `setting` is for keys without a rule of their own.
    """
    these = Message.id.in_([*ids])
    kinds = list(Message.select(Message.key).where(these).distinct())
    own = rules_of({each.key_id for each in kinds})
    for each in kinds:
        lifetime = own[each.key_id].lifetime(setting)
        never = Message.first_send_at > LAST - lifetime
        ends = Message.first_send_at + Value(lifetime // MILLISECOND, converter=False)
        ends = Case(None, [(never, Message.expires_at.db_value(LAST))], ends)
        Message.update(expires_at=ends).where(these, Message.key == each.key_id).execute()


def expire(now: datetime, among: Collection[UUID] | None = None) -> int:
    """Expire some waiting messages that are too late to send; return the count.

    `among` limits this to some ids. Messages that may be set aside wait until they are due again.
    """
    is_set_aside = (Message.send_at > now) & (Message.send_at <= now + SET_ASIDE)
    late = IS_WAITING & (Message.expires_at <= now) & ~is_set_aside & ~Attempt.in_doubt()
    if among is not None:
        late &= Message.id.in_([*among])
    why = _why_expired(now)
    give_up = Message.update(status=Status.EXPIRED, finished_at=now, **why)
    due = Message.select(Message.id).where(late)
    return len(_change_due(give_up, due, IS_WAITING, now))


def cancel_unresumable(now: datetime) -> int:
    """Cancel some messages whose key was revoked while it was paused; return the count.

    They were being sent then, or a person has let them wait again since.
    """
    stopped = ApiKey.paused().where(SQL("revoked_at IS NOT NULL"))
    stuck = IS_SENDABLE & ~Attempt.in_doubt() & Message.key.in_(stopped)
    cancel = Message.update(status=Status.CANCELLED, cancelled_by="shell", finished_at=now)
    return len(_change_due(cancel, Message.select(Message.id).where(stuck), IS_SENDABLE, now))


def expire_in_doubt(
    lanes: Collection[str], reason: str, now: datetime, of_paused: bool = False
) -> int:
    """Expire messages in doubt whose carrier cannot be asked soon; return the count.

    Those that somebody has cancelled become cancelled instead. With `of_paused`, only messages of
    paused keys are given up.
    """
    if not lanes:
        return 0
    old = IS_SENDABLE & Message.lane.in_(lanes) & (Message.expires_at <= now) & Attempt.in_doubt()
    if of_paused:
        old &= Message.key.in_(ApiKey.paused())
    withdrawn = Message.cancelled_by.is_null(False), Status.CANCELLED
    status = Case(None, [withdrawn], Status.EXPIRED)
    ended = {"finished_at": now, "last_error": reason, "last_error_at": now}
    give_up, due = Message.update(status=status, **ended), Message.select(Message.id).where(old)
    return len(_change_due(give_up, due, old, now))


def block_number(number: str, now: datetime, check_dnc: str = "asked") -> int:
    """Block the waiting messages to a number that has opted out; return how many."""
    waiting = (Message.to == number) & has_status(*WAITING) & ~Attempt.in_doubt()
    waiting &= _heeds_stop(check_dnc) & Message.auto_reply_to.is_null()
    block = Message.update(status=Status.BLOCKED, finished_at=now).where(waiting)
    return len(Message.change(block))


def _change_due(update: ModelUpdate, due: ModelSelect, still: SQL, now: datetime) -> list:
    """Change a batch of due messages, and return what `Message.change` does.

    `due` selects the ids, and each message is changed only if `still` holds. If none is due, no
    writer has to wait. Messages that break the change are set aside.
    """
    batch = due.limit(FEW)
    if not batch.exists():
        return []
    try:
        return Message.change(update.where(locked(Message.id, batch), still))
    except Exception as error:
        if is_outage(error):
            raise

    def change(ids):
        these = locked(Message.id, due.where(Message.id.in_(ids)))
        return Message.change(update.where(these, still))

    def put_off(id):
        Message.update(send_at=now + SET_ASIDE).where(Message.id == id, still).execute()

    ids = [message.id for message in batch]
    return [*chain(*skip_broken(change, ids, log, "message {} is set aside".format, put_off))]


def set_aside(id: UUID, now: datetime) -> None:
    """Let a message that breaks a claim wait before it is claimed again."""
    later = Message.update(status=Status.SCHEDULED, send_at=now + SET_ASIDE)
    later.where(Message.id == id, has_status(Status.QUEUED, Status.SENDING)).execute()
