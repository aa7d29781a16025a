"""What STOP and START do: numbers join the opt-outs, and leave them."""

import logging
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

import recipients
from access.do_not_call import LastReply, OptedOut
from carriers import OptOut
from database import PAST, CarrierTextField, InstantField, Table, db
from messages import waiting
from messages.early_receipts import KEPT
from messages.model import Message
from replies.model import put_on_list

log = logging.getLogger("replies")


class IgnoredOptOut(Table):
    """A STOP or START whose number was not understood, without the number."""

    at = InstantField(PAST, index=True)


class OptOutMessage(Table):
    """A message that said STOP or START: a captured callback must not count again, at any age."""

    id = CarrierTextField(primary_key=True)  # as the carrier identifies it
    at = InstantField(PAST)

    @classmethod
    def note(cls, ids: Collection[str], now: datetime) -> bool:
        """Note a message by its ids; return False if any of them was noted before.

        On Postgres this waits for another transaction that notes the same.
        """
        rows = [(id, now) for id in sorted(ids)]
        noted = cls.insert_many(rows, [cls.id, cls.at]).on_conflict_ignore().returning(cls.id)
        return not rows or len(list(noted.execute())) == len(rows)


class Effect(NamedTuple):
    """What a STOP or START changed."""

    has_joined: bool = False  # the number, the Do Not Call list
    blocked: int = 0  # messages


def record_opt_out(said: OptOut, now: datetime, check_dnc: str) -> int:
    """Do as a recipient said, as `obey` does; return how many messages a STOP blocks.

    A number that may not be international, or is not valid, counts only if there is a message to
    it.
    """
    number, problem = read_number(said.number, said.certain)
    if problem:
        ignore(said.stop, problem, now)
        return 0
    return obey(said._replace(number=number), now, check_dnc).blocked


def ignore(stop: bool, problem: str, now: datetime) -> None:
    """Count a STOP or START whose number cannot be relied on."""
    word = "STOP" if stop else "START"
    log.warning("a %s is ignored: its number %s, and no message went to it", word, problem)
    IgnoredOptOut.insert(at=now).execute()


def obey(said: OptOut, now: datetime, check_dnc: str) -> Effect:
    """Do as a recipient said: STOP notes an opt-out, and START ends any.

    A word, also one from the carrier, changes nothing if it is older than the last one about this
    number, or a repeat. A STOP blocks the messages that wait for the number and look at the list.
    """
    with db.atomic():
        if not OptOutMessage.note(said.message_ids, now):
            return Effect()
        if not LastReply.note(said.number, said.at, now):
            return Effect()
        if not said.stop:
            OptedOut.end(said.number, now, said.at)
            return Effect()
        new = put_on_list(OptedOut, [said.number], now, said.source, said_at=said.at)
    return Effect(new > 0, waiting.block_number(said.number, now, check_dnc))


def read_number(number: str, certain: bool) -> tuple[str, str | None]:
    """Return the E.164 form of a number from a carrier, and why it cannot be relied on, or None.

    A number that was texted can be relied on.
    """
    try:
        number = recipients.national(number, None)
        problem = None if certain else "is not marked as international"
    except recipients.InvalidNumber:
        problem = "is not valid"
    if problem and Message.select().where(Message.to == number).exists():
        problem = None
    return number, problem


def ignored_opt_outs(since: datetime) -> int:
    """Count the STOPs and STARTs since an instant whose number was not understood."""
    return IgnoredOptOut.select().where(IgnoredOptOut.at >= since).count()


def forget(now: datetime) -> int:
    """Forget a batch of the opt-outs that were ignored long ago; return how many."""
    return IgnoredOptOut.delete_some(IgnoredOptOut.at < now - KEPT)
