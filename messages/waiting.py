"""Messages that wait: when they are due they are queued, or blocked, or expire.

A call changes one batch, so that neither other writers nor texts to be sent wait long. A text in
doubt is left to the sender, which asks the carrier first.
"""

import logging
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import chain
from uuid import UUID

from peewee import SQL, Case, ModelSelect, ModelUpdate, Value

from access.do_not_call import DoNotCall, OptedOut
from access.keys import ApiKey, rules_of
from access.rules import LAST
from database import FEW, MILLISECOND, all_but_broken, is_outage, locked
from messages.model import IS_SENDABLE, IS_WAITING, WAITING, Message, Status, has_status

UNAPPROVED = "nobody approved it in time"

SET_ASIDE = timedelta(minutes=10)
"""How long a message is left alone that breaks what is done with all that are due."""

log = logging.getLogger("scheduler")


def is_any_due(at: datetime) -> bool:
    """Return whether a text may be sent now that was to be sent by then."""
    return Message.select().where(IS_SENDABLE, Message.send_at <= at).exists()


def promote(now: datetime, *, check_dnc: str = "asked") -> Counter:
    """Queue, expire or block some messages that are due; count them by their new status.

    `check_dnc` is for keys without a rule of their own.
    """
    due = has_status(Status.SCHEDULED) & (Message.send_at <= now)
    blocked = (Message.in_doubt == 0) & _is_kept_off(check_dnc)
    expired = (Message.in_doubt == 0) & (Message.expires_at <= now)
    became = Case(None, [(blocked, Status.BLOCKED), (expired, Status.EXPIRED)], Status.QUEUED)
    finished = Case(None, [(blocked | expired, Message.finished_at.db_value(now))], None)
    why = _why_expired(now, ~expired, blocked)
    move = Message.update(status=became, finished_at=finished, **why)
    due = Message.select(Message.id).where(due).order_by(Message.send_at)
    moved = _change_due(move, due, has_status(Status.SCHEDULED), now)
    return Counter(status for status, _ in moved)


def _why_expired(now, *unless):
    """Return the columns that say of messages that expire that nobody approved them.

    They stay as they are if a message is approved, or meets another of these conditions.
    """
    columns = (Message.last_error, UNAPPROVED), (Message.last_error_at, now)
    return {
        column.name: Case(
            None, [(each, column) for each in (Message.approved, *unless)], column.db_value(said)
        )
        for column, said in columns
    }


def _is_kept_off(setting):
    """Return the condition that the Do Not Call list keeps a message from its number.

    It keeps back none that answers a reply.
    """
    heeds_entries = Message.check_dnc | Message.key.in_(ApiKey.checking("always", setting))
    entered = DoNotCall.has(Message.to) & heeds_entries
    return Message.answers.is_null() & (entered | OptedOut.has(Message.to) & _heeds_stop(setting))


def _heeds_stop(setting):
    """Return the condition that a message is not sent to a number that has opted out."""
    return Message.check_dnc | Message.key.not_in(ApiKey.checking("asked", setting))


def renew_expiry(ids: Collection[UUID], setting: timedelta) -> None:
    """Decide anew when it is too late to send these messages, by the rules of their keys now.

    `setting` is for keys without one.
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
    """Expire some messages that wait though it is too late to send them; count them.

    `among` are the ids to choose from, if not all. Those that may be set aside wait for their time.
    """
    is_set_aside = (Message.send_at > now) & (Message.send_at <= now + SET_ASIDE)
    late = IS_WAITING & (Message.expires_at <= now) & (Message.in_doubt == 0) & ~is_set_aside
    if among is not None:
        late &= Message.id.in_([*among])
    why = _why_expired(now)
    give_up = Message.update(status=Status.EXPIRED, finished_at=now, **why)
    due = Message.select(Message.id).where(late)
    return len(_change_due(give_up, due, IS_WAITING, now))


def expire_in_doubt(
    lanes: Collection[str], reason: str, now: datetime, of_paused: bool = False
) -> int:
    """Give up some expired messages in doubt of which no sender will soon know more; count them.

    They become expired, or cancelled if somebody has cancelled them. With `of_paused`, only those
    of paused keys are given up.
    """
    if not lanes:
        return 0
    old = IS_SENDABLE & Message.lane.in_(lanes) & (Message.in_doubt > 0)
    old &= Message.expires_at <= now
    if of_paused:
        old &= Message.key.in_(ApiKey.paused())
    withdrawn = Message.cancelled_by.is_null(False), Status.CANCELLED
    status = Case(None, [withdrawn], Status.EXPIRED)
    ended = {"finished_at": now, "last_error": reason, "last_error_at": now}
    give_up, due = Message.update(status=status, **ended), Message.select(Message.id).where(old)
    return len(_change_due(give_up, due, old, now))


def block_number(number: str, now: datetime, check_dnc: str = "asked") -> int:
    """Block messages that wait for a number that has opted out; return how many."""
    waiting = (Message.to == number) & has_status(*WAITING) & (Message.in_doubt == 0)
    waiting &= _heeds_stop(check_dnc) & Message.answers.is_null()
    block = Message.update(status=Status.BLOCKED, finished_at=now).where(waiting)
    return len(Message.change(block))


def _change_due(update: ModelUpdate, due: ModelSelect, still: SQL, now: datetime) -> list:
    """Change a batch of messages that are due, and return what `Message.change` does.

    Other writers wait for nothing if nothing is due. `due` selects the ids; each is changed only if
    it is `still` so. Those that break this are set aside.
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
        these = locked(Message.id, Message.select(Message.id).where(Message.id.in_(ids)))
        return Message.change(update.where(these, still))

    def put_off(id):
        Message.update(send_at=now + SET_ASIDE).where(Message.id == id, still).execute()

    ids = [message.id for message in batch]
    return [*chain(*all_but_broken(change, ids, log, "message {} is set aside".format, put_off))]


def set_aside(id: UUID, now: datetime) -> None:
    """Have a message that breaks a claim wait before it is tried again."""
    later = Message.update(status=Status.SCHEDULED, send_at=now + SET_ASIDE)
    later.where(Message.id == id, has_status(Status.QUEUED, Status.SENDING)).execute()
