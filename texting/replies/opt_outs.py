"""What STOP and START do: numbers join the opt-outs or leave them."""

import logging
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from texting import recipients
from texting.access.do_not_call import LastReply, OptedOut
from texting.carriers import OptOut
from texting.database import PAST, CarrierTextField, InstantField, Table, db
from texting.messages import waiting
from texting.messages.early_receipts import RECEIPTS_KEPT
from texting.messages.model import Message
from texting.replies.model import put_on_list

log = logging.getLogger("replies")


class IgnoredOptOut(Table):
    """A STOP or START whose number was not understood, without the number."""

    at = InstantField(PAST, index=True)


class OptOutMessage(Table):
    """A message that said STOP or START: a captured callback must never count again."""

    id = CarrierTextField(primary_key=True)  # the carrier's id for it
    at = InstantField(PAST, index=True)

    @classmethod
    def note(cls, ids: Collection[str], now: datetime) -> bool:
        """Note a message by its ids; return False if any of them was noted before.

        On Postgres this waits for any other transaction that notes the same ids.
        """
        rows = [(id, now) for id in sorted(ids)]
        noted = cls.insert_many(rows, [cls.id, cls.at]).on_conflict_ignore().returning(cls.id)
        return not rows or len(list(noted.execute())) == len(rows)

    @classmethod
    def forget(cls, before: datetime) -> int:
        """Delete a batch of those that came before an instant; return how many.

        They are kept as long as replies are.
        """
        return cls.delete_some(cls.at < before)


class Effect(NamedTuple):
    """What a STOP or START changed."""

    has_joined: bool = False  # whether the number joined the Do Not Call list
    blocked: int = 0  # messages


def record_opt_out(said: OptOut, now: datetime, check_dnc: str) -> int:
    """Obey a recipient, as `obey` does; return how many messages a STOP blocked.

    A number that may not be international, or is invalid, counts only if we have a message to
    it.
    """
    number, problem = read_number(said.number, said.certain)
    if problem:
        ignore(said.stop, problem, now)
        return 0
    return obey(said._replace(number=number), now, check_dnc).blocked


def ignore(stop: bool, problem: str, now: datetime) -> None:
    """Count a STOP or START whose number is not reliable."""
    word = "STOP" if stop else "START"
    log.warning("a %s is ignored: its number %s, and no message went to it", word, problem)
    IgnoredOptOut.insert(at=now).execute()


def obey(said: OptOut, now: datetime, check_dnc: str) -> Effect:
    """Obey a recipient: STOP notes an opt-out, and START ends any.

    A word, even one that the carrier reports, changes nothing if it is a repeat, or older than the
    latest word about this number. A STOP blocks the waiting messages that heed the list.
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
    """Return the E.164 form of a carrier's number, and why it is not reliable, or None.

    A number that we have texted is reliable.
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


def forget_ignored(now: datetime) -> int:
    """Delete a batch of the opt-outs that were ignored long ago; return how many."""
    return IgnoredOptOut.delete_some(IgnoredOptOut.at < now - RECEIPTS_KEPT)
