"""Copies of texts that a carrier may have, and when to ask it about them."""

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from peewee import Expression

from texting.carriers.lanes import Lane
from texting.database import FEW, db, lock_texts, locked
from texting.messages.attempts import DIED, IS_ASKED_ABOUT, IS_UNCLEAR, Attempt, Result
from texting.messages.model import WAITING, Message, Status, has_status


def to_ask(carrier: str, now: datetime, limit: int) -> list[Attempt]:
    """Return some attempts to ask a carrier about now, the longest due first.

    Their messages are waiting, and no scheduler is asking about them yet.
    """
    due = _is_unclear_at(carrier) & _is_to_ask(now)
    waiting = Attempt.select().join(Message).where(due, has_status(*WAITING))
    return [*waiting.order_by(Attempt.ask_at).limit(limit)]


def take(message_id: uuid.UUID, carrier: str, sender: uuid.UUID, now: datetime) -> bool:
    """Claim the question about a message; return False if another scheduler has claimed it."""
    own = _is_unclear_at(carrier) & _is_to_ask(now) & (Attempt.message == message_id)
    return Attempt.update(sender=sender).where(own).execute() > 0


def ask_again_at(message_id: uuid.UUID, carrier: str, at: datetime) -> None:
    """Set when a carrier is next asked about a message; any scheduler may ask."""
    own = _is_unclear_at(carrier) & IS_ASKED_ABOUT & (Attempt.message == message_id)
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
    found, is_theirs = set(), Attempt.carrier.in_([*carriers]) | Attempt.carrier.is_null()
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


def unclear_at(carrier: str, message_id: uuid.UUID) -> list[Attempt]:
    """Return the unclear attempts of a message about which this carrier is asked, oldest first."""
    own = _is_unclear_at(carrier) & IS_ASKED_ABOUT & (Attempt.message == message_id)
    return [*Attempt.select().where(own).order_by(Attempt.claim_number)]


def forget_ids(carrier: str, before: datetime) -> int:
    """Stop asking a carrier about texts first given to it before an instant; return the count.

    From then on they count like texts in doubt at a carrier that cannot be asked.
    """
    old = _is_unclear_at(carrier) & IS_ASKED_ABOUT & Attempt.sender.is_null()
    old &= Attempt.begun_at <= before
    ids = sorted({each.message_id for each in Attempt.select().where(old).limit(FEW)})
    for id in ids:
        with db.atomic():
            this = Message.select().where(Message.id == id)
            for message in db.lock_rows(this):
                lane = Lane.read(message.lane)
                forget = Attempt.update(ask_at=None).where(old, Attempt.message == id)
                for _ in range(forget.execute()):
                    lane = lane.forgotten(carrier)
                Message.update(lane=str(lane)).where(Message.id == id).execute()
    return len(ids)


def rule_out(
    message: Message,
    carrier: str,
    now: datetime,
    result: Result = Result.NOT_TAKEN,
    words: str | None = None,
) -> int:
    """Settle the unclear attempts of a message at a carrier that was asked, and has none of them.

    Return how many of them were made since a person retried the message. `words` are the carrier's,
    if it refused.
    """
    own = _is_unclear_at(carrier) & IS_ASKED_ABOUT & (Attempt.message == message.id)
    told = {"words": words} if words else {}
    ruled_out = Attempt.update(result=result, ended_at=now, ask_at=None, sender=None, **told)
    ruled_out = ruled_out.where(own)
    claims = [each.claim_number for each in ruled_out.returning(Attempt.claim_number).execute()]
    return sum(claim > message.claims_before_retry for claim in claims)


def deaths(message: Message) -> int:
    """Count the schedulers that died with a message since a person last retried it."""
    since = (Attempt.message == message.id) & (Attempt.claim_number > message.claims_before_retry)
    return Attempt.select().where(since, Attempt.words == DIED).count()


def _is_to_ask(now):
    return (Attempt.ask_at <= now) & Attempt.sender.is_null()


def _is_unclear_at(carrier):
    return Attempt.is_by(carrier) & IS_UNCLEAR
