"""Copies of texts that a carrier may have, and when it is asked about them."""

import uuid
from datetime import datetime

from carriers.ways import Way
from models import WAITING, Message, has_status
from sending.attempts import DIED, IS_UNCLEAR, Attempt, Result


def to_ask(carrier: Way, now: datetime, limit: int) -> list[Attempt]:
    """Return some attempts about which a carrier is to be asked now, the longest due first.

    Their messages wait. Asking about others might find the copy of an equal text that is purged.
    """
    due = _is_unclear_at(carrier) & _is_to_ask(now)
    waiting = Attempt.select().join(Message).where(due, has_status(*WAITING))
    return [*waiting.order_by(Attempt.ask_at).limit(limit)]


def ask_again_at(
    message_id: uuid.UUID, carrier: Way, at: datetime, now: datetime | None = None
) -> bool:
    """Decide when a carrier is asked about a message.

    With `now`, only if it is due: False if another scheduler has done so.
    """
    own = _is_unclear_at(carrier) & (Attempt.message == message_id)
    if now:
        own &= _is_to_ask(now)
    return Attempt.update(ask_at=at).where(own).execute() > 0


def unclear_at(carrier: Way, message_id: uuid.UUID) -> list[Attempt]:
    """Return the copies of a message that a carrier may have, the first of them first."""
    own = _is_unclear_at(carrier) & (Attempt.message == message_id)
    return [*Attempt.select().where(own).order_by(Attempt.number)]


def rule_out(message: Message, carrier: Way, now: datetime) -> int:
    """Note that a carrier, asked, has none of the copies of a message that were unclear.

    Return how many of them were given to it since a person retried the message.
    """
    own = _is_unclear_at(carrier) & (Attempt.message == message.id)
    ruled_out = Attempt.update(result=Result.NOT_TAKEN, ended_at=now, ask_at=None).where(own)
    numbers = [each.number for each in ruled_out.returning(Attempt.number).execute()]
    return sum(number > message.tries_before for number in numbers)


def deaths(message: Message) -> int:
    """Count the schedulers that died with a message since a person retried it."""
    since = (Attempt.message == message.id) & (Attempt.number > message.tries_before)
    return Attempt.select().where(since, Attempt.words == DIED).count()


def _is_to_ask(now):
    return Attempt.ask_at <= now


def _is_unclear_at(carrier):
    return Attempt.is_by(carrier) & IS_UNCLEAR
