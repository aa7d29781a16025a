"""Copies of texts that a carrier may have, and when to ask it about them.

Attempts alone say which texts are in doubt. What their messages repeat of that, for the index of
claims and for people, is written by `recount`, in the transaction that changes an attempt.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from peewee import Expression, fn

from texting.carriers.lanes import Lane
from texting.database import FEW, db, lock_texts, locked, skip_broken
from texting.messages.attempts import (
    DIED,
    IS_ASKED_ABOUT,
    IS_ORPHANED,
    IS_UNCLEAR,
    Attempt,
    Result,
)
from texting.messages.model import SET_ASIDE, WAITING, Message, Status, has_status

log = logging.getLogger("scheduler")


def recount(ids: Collection[uuid.UUID]) -> None:
    """Set what these locked messages repeat of their attempts: `in_doubt`, and doubts in `lane`.

    `in_doubt` counts the unclear attempts since a person last retried the message.
    """
    unclear = defaultdict(list)
    of_these = Attempt.message.in_([*ids]) & IS_UNCLEAR
    for each in Attempt.select().where(of_these).order_by(Attempt.claim_number):
        unclear[each.message_id].append(each)
    columns = Message.id, Message.lane, Message.in_doubt, Message.claims_before_retry
    for message in Message.select(*columns).where(Message.id.in_([*ids])):
        copies, before = unclear[message.id], (message.lane, message.in_doubt)
        asked = [each.carrier if each.ask_at else None for each in copies]
        message.lane = str(Lane.read(message.lane).with_doubts(asked))
        since_retry = (each.claim_number > message.claims_before_retry for each in copies)
        message.in_doubt = sum(since_retry)
        if (message.lane, message.in_doubt) != before:
            message.save(only=[Message.lane, Message.in_doubt])


def take_over(now: datetime, unable: Collection[str]) -> int:
    """Queue some messages whose scheduler died while it gave them to a carrier; return how many.

    They are in doubt: the carrier may have accepted them. `unable` are carriers that cannot be
    asked.
    """
    left = IS_ORPHANED & (Attempt.ask_at.is_null() | (Attempt.ask_at <= now))
    ids = [each.message_id for each in Attempt.select(Attempt.message).where(left).limit(FEW)]

    def lose(ids):
        return _lose(ids, now, unable)

    def put_off(id):
        of_it = (Attempt.message == id) & IS_ORPHANED
        Attempt.update(ask_at=now + SET_ASIDE).where(of_it).execute()

    what = "message {} is not taken over".format
    return sum(skip_broken(lose, sorted({*ids}), log, what, put_off))


def _lose(ids, now, unable):
    with db.atomic():
        messages = Message.locked(ids)
        lost = Attempt.mark_unclear(messages, now, unable)
        recount(messages)
        return sum(messages[each.message_id].queue_again(each) for each in lost)


def to_ask(carrier: str, now: datetime, limit: int) -> list[Attempt]:
    """Return some attempts to ask a carrier about now, the longest due first.

    Their messages are waiting, and no scheduler is asking about them yet.
    """
    due = _is_to_ask(carrier, now)
    waiting = Attempt.select().join(Message).where(due, has_status(*WAITING))
    return [*waiting.order_by(Attempt.ask_at).limit(limit)]


def claim(message_id: uuid.UUID, carrier: str, sender: uuid.UUID, now: datetime) -> bool:
    """Claim the question about a message; return False if another scheduler has claimed it."""
    own = _is_to_ask(carrier, now) & (Attempt.message == message_id)
    return Attempt.update(sender=sender).where(own).execute() > 0


def ask_again_at(message_id: uuid.UUID, carrier: str, at: datetime) -> None:
    """Set when a carrier is next asked about a message; any scheduler may ask."""
    own = _is_asked(carrier) & (Attempt.message == message_id)
    Attempt.update(ask_at=at, sender=None).where(own).execute()


def texts_at(
    carriers: Collection[str], messages: Collection[Message], *which: Expression
) -> set[tuple[str, str]]:
    """Return number and text of the copies at these carriers that go to the same numbers as these.

    `which` are conditions for copies; only those of unfinished messages count. No other transaction
    looks at the same texts before this one ends.
    """
    if not messages:
        return set()
    found, is_theirs = set(), Attempt.carrier.in_([*carriers])
    # Concatenated, so that no plan goes through all messages to a number
    these = Message.to.concat("").in_({each.to for each in messages})
    these &= has_status(Status.SENDING, *WAITING)
    lock_texts({f"{each.to} {each.message}" for each in messages})
    for is_such in which:  # each has an index
        copies = Attempt.select(Message.to, Message.message).join(Message)
        copies = copies.where(is_such, is_theirs, these)
        found |= {*copies.tuples()}
    return found


def release_equal(texts: Collection[tuple[str, str]], now: datetime, waited: timedelta) -> None:
    """Let the texts go that were put off because an equal one was in the carrier's hands.

    `texts` have number and text of those that it has answered; `waited` is for how long others were
    put off. What waits for its first time, or for a retry, goes on waiting.
    """
    is_put_off = (Message.send_at > now) & (Message.send_at <= now + waited)
    is_put_off &= (Message.claim_number > Message.claims_before_retry) & Message.due_since.is_null()
    is_put_off &= Message.send_date.is_null() | (Message.send_date <= now)
    is_put_off &= has_status(Status.SCHEDULED)
    for to, text in texts:
        these = Message.select(Message.id).where(Message.to == to, Message.message == text)
        if (these := these.where(is_put_off)).exists():
            Message.update(send_at=now).where(locked(Message.id, these), is_put_off).execute()


def carriers_asked() -> Iterator[str]:
    """Yield the carriers that are asked about any text."""
    last, name = fn.MIN(Attempt.carrier), ""
    while name is not None:
        name = Attempt.select(last).where(IS_ASKED_ABOUT, Attempt.carrier > name).scalar()
        if name:
            yield name


def unclear_at(carrier: str, message_id: uuid.UUID) -> list[Attempt]:
    """Return the unclear attempts of a message about which this carrier is asked, oldest first."""
    own = _is_asked(carrier) & (Attempt.message == message_id)
    return [*Attempt.select().where(own).order_by(Attempt.claim_number)]


def forget(carrier: str, before: datetime | None = None) -> int:
    """Stop asking a carrier about some texts; return how many.

    From now on they count like texts in doubt at a carrier that cannot be asked. With `before`,
    leave out those first given to it after that instant.
    """
    old = _is_asked(carrier) & Attempt.sender.is_null()
    if before:
        old &= Attempt.begun_at <= before
    ids = {each.message_id for each in Attempt.select(Attempt.message).where(old).limit(FEW)}
    if ids:
        with db.atomic():
            ids = [*Message.locked(ids)]
            Attempt.update(ask_at=None).where(old, Attempt.message.in_(ids)).execute()
            recount(ids)
    return len(ids)


def rule_out(
    message: Message,
    carrier: str,
    now: datetime,
    result: Result = Result.NOT_TAKEN,
    words: str | None = None,
) -> Message | None:
    """Settle the unclear attempts of a locked message at a carrier that has none of them.

    Return the message as it is now, None if it is gone. `words` are the carrier's, if it refused.
    """
    own = _is_asked(carrier) & (Attempt.message == message.id)
    told = {"words": words} if words else {}
    ruled_out = Attempt.update(result=result, ended_at=now, ask_at=None, sender=None, **told)
    ruled_out.where(own).execute()
    recount([message.id])
    return Message.get_or_none(Message.id == message.id)


def deaths(message: Message) -> int:
    """Count the schedulers that died with a message since a person last retried it."""
    since = (Attempt.message == message.id) & (Attempt.claim_number > message.claims_before_retry)
    return Attempt.select().where(since, Attempt.words == DIED).count()


def _is_asked(carrier):
    return (Attempt.carrier == carrier) & IS_ASKED_ABOUT


def _is_to_ask(carrier, now):
    return _is_asked(carrier) & (Attempt.ask_at <= now) & Attempt.sender.is_null()
