"""What carriers say of the texts that they took: their yes, and later what became of them.

A receipt and the yes that it belongs to may be recorded at the same moment, by two processes. Each
locks the carrier's reference until its transaction ends, so the second sees what the first did.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from uuid import UUID

from peewee import EXCLUDED, BooleanField

from carriers import OptOut, Receipt
from database import BATCH, CarrierTextField, InstantField, Table, db, json_values, on_postgres
from do_not_call import DoNotCall, LastReply
from models import TAKEN, Message, Status, has_status

log = logging.getLogger("receipts")

KEPT = timedelta(days=3)
"""How long a receipt waits for a yes that comes late; most are of others on the account."""

_MAY_BECOME = {  # delivered is the last word
    Status.DELIVERED: has_status(Status.SENT, Status.UNDELIVERED),
    Status.UNDELIVERED: has_status(Status.SENT),
}


class EarlyReceipt(Table):
    """A receipt for which no message is known: its yes is recorded later, or it is not ours."""

    reference = CarrierTextField(primary_key=True)
    delivered = BooleanField()
    reason = CarrierTextField(null=True)
    received_at = InstantField(index=True)


# The yes


def sent(references: dict[UUID, str | None], now: datetime) -> int:
    """Record the carrier's yes to messages, its references by their ids; return how many.

    It happened, whatever became of the claims meanwhile. One statement: with one a message, a
    scheduler sends 316 instead of 441 texts a second.
    """
    if not references:
        return 0
    said = {id.hex: Message.carrier_reference.db_value(each) for id, each in references.items()}
    if on_postgres():  # whose planner takes JSON for a hundred rows, and reads the whole table
        taken = "unnest(%s::uuid[], %s::text[]) AS taken(key, value)"
        values = [[*said], [*said.values()]]
    else:
        taken, values = "json_each(?) AS taken", [json.dumps(said)]
    sql = (
        "UPDATE message SET status = 'sent', claimed_by = NULL, claimed_at = NULL, "
        f"finished_at = {db.param}, attempts = attempts + 1, last_error = NULL, "
        f"last_error_at = NULL, carrier_reference = taken.value FROM {taken} "
        f"WHERE message.id = taken.key AND status NOT IN {tuple(map(str, TAKEN))}"
    )
    with db.atomic():
        named = {each for each in said.values() if each}
        _lock(named)
        recorded = Message.change(sql, (Message.finished_at.db_value(now), *values))
        _settle(named)
    return len(recorded)


def known(references: set[str]) -> set[str]:
    """Return those of a carrier's references that belong to messages already."""
    those = Message.carrier_reference.in_(references)
    found = Message.select(Message.carrier_reference).where(those) if references else ()
    return {message.carrier_reference for message in found}


def found(message_id: UUID, references: Collection[str], now: datetime) -> bool:
    """Record that a carrier, asked, has taken a text in doubt; say whether it has.

    Of its references for texts like this, the first that is no other message's names it.
    """
    with db.atomic():
        _lock(references)
        taken = known({*references})
        new = [reference for reference in references if reference not in taken]
        if new:
            sent({message_id: new[0]}, now)
        return bool(new)


# What comes later


def record(events: Collection[Receipt | OptOut], now: datetime, always_check_dnc: bool) -> None:
    """Record what a carrier says, and what recipients say by it."""
    record_receipts((event for event in events if isinstance(event, Receipt)), now)
    for event in events:
        if isinstance(event, OptOut):
            record_opt_out(event, now, always_check_dnc)


def record_opt_out(said: OptOut, now: datetime, always_check_dnc: bool = False) -> int:
    """Do as a recipient said: STOP lists the number, START takes it off where a reply put it.

    A number that may not be international counts only if there is a message to it. A reply that is
    older than the last one from this number changes nothing. A STOP blocks what waits for the
    number and looks at the list; return how many those are.
    """
    if not (said.certain or Message.is_recipient(said.number)):
        word = "STOP" if said.stop else "START"
        log.warning(
            "a %s is ignored: its number is not marked as international, and no message went to it",
            word,
        )
        return 0
    with db.atomic():
        if said.source == "reply" and not LastReply.note(said.number, said.at, now):
            return 0
        if not said.stop:
            DoNotCall.remove([said.number], now, "reply", said_at=said.at)
            return 0
        DoNotCall.add([said.number], now, said.source, said_at=said.at)
    return Message.block_number(said.number, now, always_check_dnc)


def record_receipts(receipts: Iterable[Receipt], now: datetime) -> int:
    """Record receipts, in whatever order they come and however often.

    `delivered` is the last word, and else the first. Return how many of the references belong to
    messages.
    """
    words = {}
    for reference, delivered, reason in receipts:
        reference = Message.carrier_reference.db_value(reference)
        if delivered or reference not in words:
            words[reference] = delivered, reason, now
    if not words:
        return 0
    with db.atomic():
        _lock(words)
        found = _apply(words)
        _keep({each: words[each] for each in sorted(words.keys() - found)})
    return len(found)


def forget(now: datetime) -> None:
    """Drop receipts that no message has claimed in time, in batches."""
    old = EarlyReceipt.received_at < now - KEPT
    batch = EarlyReceipt.select(EarlyReceipt.reference).where(old).limit(BATCH)
    drop = EarlyReceipt.delete().where(EarlyReceipt.reference.in_(batch))
    while drop.execute():
        pass


def _lock(references):
    """Lock these references until the present transaction ends.

    Sorted against deadlocks. SQLite's transactions are alone as they are.
    """
    if references and on_postgres():
        db.execute_sql(
            "SELECT pg_advisory_xact_lock(hashtextextended(value, 0)) "
            "FROM unnest(%s::text[]) AS value",
            (sorted(references),),
        )


def _settle(references):
    """Apply what came before these references were recorded."""
    early = EarlyReceipt.select().where(EarlyReceipt.reference.in_(references)).tuples()
    words = {reference: tuple(word) for reference, *word in early}
    if words:
        found = [*_apply(words)]
        EarlyReceipt.delete().where(EarlyReceipt.reference.in_(found)).execute()


def _apply(words):
    """Move the messages of these references as their receipts say; return those that exist."""
    latest, alike = _messages(words), defaultdict(list)
    for reference in latest:
        alike[words[reference]].append(reference)
    for (delivered, reason, at), references in alike.items():
        status = Status.DELIVERED if delivered else Status.UNDELIVERED
        same = Message.id.in_([latest[reference] for reference in references])
        same &= Message.carrier_reference.in_(references)  # or it was retried just now
        changes = {"status": status, "last_error": reason, "receipt_at": at}
        move = Message.update(changes).where(same, _MAY_BECOME[status])
        Message.change(*move.sql())
    return latest.keys()


def _messages(references):
    """Return the ids of messages by their references.

    Where a carrier has used a reference again, the latest is meant. One look into the index for
    each: IN makes a Postgres without statistics of the table read all of it.
    """
    found = db.execute_sql(
        "SELECT value, (SELECT id FROM message WHERE carrier_reference = value "
        f"ORDER BY finished_at DESC LIMIT 1) FROM {json_values()}({db.param})",
        (json.dumps([*references]),),
    )
    return {reference: Message.id.python_value(id) for reference, id in found if id}


def _keep(words):
    """Keep receipts for a yes that is yet to be recorded."""
    if not words:
        return
    rows = [(reference, *word) for reference, word in words.items()]
    row = EarlyReceipt
    news = ~row.delivered & EXCLUDED.delivered
    (
        row.insert_many(rows, [row.reference, row.delivered, row.reason, row.received_at])
        .on_conflict(
            conflict_target=[row.reference],
            preserve=[row.delivered, row.reason, row.received_at],
            where=news,
        )
        .execute()
    )
