"""Texts that carriers have accepted, their receipts, and opt-outs.

A receipt and the acceptance of its text may be recorded at the same moment, by two processes. Each
locks the carrier's reference until its transaction ends, so the second sees what the first did.

References belong to a carrier: two may use the same.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from peewee import fn

from texting.carriers import Receipt, Shown
from texting.database import db, lock_texts
from texting.database.statements import array, run
from texting.messages import receipts_by_number as by_number
from texting.messages.attempts import DIED, Attempt, Result, copies_of
from texting.messages.doubts import recount
from texting.messages.early_receipts import RECEIPTS_KEPT, EarlyReceipt
from texting.messages.model import Message, Status, has_status

log = logging.getLogger("receipts")

LATE = timedelta(minutes=5)
"""How long a receipt may wait for the acceptance of its text before it counts as unmatched."""

_MAY_BECOME = {  # nothing overrides delivered
    Status.DELIVERED: has_status(Status.SENT, Status.UNDELIVERED),
    Status.UNDELIVERED: has_status(Status.SENT),
}


# Accepted texts


def record_accepted(
    references: Mapping[UUID, str | None],
    now: datetime,
    carrier: str,
    claims: Mapping[UUID, int] | None = None,
    *,
    only_open: bool = False,
) -> int:
    """Record that a carrier accepted messages; return how many that changed.

    `references` has the carrier's references by message id, and `claims` the claim numbers of the
    copies; without one it is a message's first open copy. An acceptance counts even if the claim is
    lost. A reference that is already known, from before a person's retry, changes no message. With
    `only_open`, count it only for an open copy, and only if no other copy has the reference.
    """
    if not references:
        return 0
    said = {id: Attempt.reference.db_value(each or None) for id, each in references.items()}
    with db.atomic():
        lock_texts({each for each in said.values() if each} | {*map(str, said)})
        _lock(said)
        copies = copies_of(said)
        known = {
            copy.message_id
            for copy in copies
            if copy.reference and copy.reference == said[copy.message_id]
            if copy.carrier == carrier and copy.status != Status.SENDING
        }
        if only_open:
            known |= _of_others(said, carrier)
        new = {id: each for id, each in said.items() if id not in known}
        open = _open_copies(copies, carrier, claims or {})
        recipients = _take(new, open, now, carrier, only_open)
        # A receipt that names only the number may have given it to an older copy
        _end({id: open[id] for id in known & open.keys() if id in (claims or {})}, said, now)
        _apply_early(said, {*recipients} - {None}, carrier, now)
    return len(recipients)


def _open_copies(copies, carrier, claims):
    """Return, by message id, those of these copies to which an acceptance may refer.

    `claims` has their claim numbers; without one it is a message's first open copy.
    """
    found = {}
    for copy in copies:
        claim = claims.get(copy.message_id)
        is_meant = copy.carrier == carrier if claim is None else copy.claim_number == claim
        if copy.is_open and is_meant:
            found.setdefault(copy.message_id, copy)
    return found


def _of_others(references, carrier):
    """Return the messages whose references already belong to some copy."""
    said = {each for each in references.values() if each}
    known = Attempt.select(Attempt.reference).where(Attempt.reference.in_([*said]))
    known = {each.reference for each in known.where(Attempt.carrier == carrier)}
    return {id for id, reference in references.items() if reference in known}


def _lock(ids):
    """Lock messages, so that their copies do not change."""
    run("lock_messages", ids=array(ids))


def _take(references, open, now, carrier, only_open=False):
    """Record that it accepted locked messages; return their phone numbers, None if redacted.

    `open` has their open copies. An attempt that was counted when its answer was lost does not
    count again.
    """
    if only_open:
        references = {id: each for id, each in references.items() if id in open}
    if not references:
        return []
    copies = {id: open[id] for id in references if id in open}
    in_doubt = (id for id, each in copies.items() if each.result == Result.UNCLEAR)
    counted = {id for id in in_doubt if copies[id].words != DIED}
    rows = [
        {"id": id, "reference": each, "tries": int(id not in counted)}
        for id, each in references.items()
    ]
    recipients = Message.accept(rows, carrier, now)
    _end(copies, references, now)
    return recipients


def _end(copies, references, now):
    """Record that their carrier accepted these copies of locked messages, and settle doubts."""
    Attempt.record_accepted(copies, references, now)
    if doubtful := [id for id, copy in copies.items() if copy.result == Result.UNCLEAR]:
        recount(doubtful)


def shown(said: Iterable[Shown], now: datetime, carrier: str) -> int:
    """Record reports that are not final; return how many texts they show to be accepted.

    Those are texts without a recorded answer: in doubt, or under way.
    """
    if not (said := [*said]):
        return 0
    named = {UUID(each.message_id): each for each in said if each.message_id}
    accepted = _accept_named(named, now, carrier) if named else 0
    others = [_readable(each) for each in said if not each.message_id]
    _hear({*named} | _messages_of(others, now, carrier), carrier)
    return accepted


def _accept_named(said, now, carrier):
    copies = Attempt.select(Message.id, Message.parts).join(Message)
    copies = copies.where(Message.id.in_([*said]), Attempt.is_open()).objects(Message)
    # Look without a lock first: by then the answers to most texts are recorded
    references = {
        each.id: said[each.id].reference for each in copies if _counts(said[each.id], each)
    }
    return record_accepted(references, now, carrier, only_open=True)


def _messages_of(said, now, carrier):
    """Return the ids of the messages with these references; keep the reports on unknown ones."""
    if not said:
        return set()
    references = {each.reference for each in said}
    with db.atomic():
        lock_texts(references)
        copies = Attempt.select().where(
            Attempt.reference.in_(references), Attempt.carrier == carrier
        )
        known = {copy.reference: copy.message_id for copy in copies}
        for each in said:
            if each.reference not in known:
                EarlyReceipt.keep(each, now, carrier)
    return {*known.values()}


def _hear(ids, carrier):
    """Note that a carrier has reported on messages that it has, or may have."""
    given = Attempt.select().where(Attempt.message == Message.id)
    given = given.where(Attempt.carrier == carrier, Attempt.is_open())
    of_carrier = (Message.carrier == carrier) | fn.EXISTS(given)
    is_news = ~Message.heard_of & Message.receipt_at.is_null() & of_carrier
    # Look without a lock first: most reports on a text are not the first one
    news = [each.id for each in Message.select(Message.id).where(Message.id.in_([*ids]), is_news)]
    if news:
        with db.atomic():
            _lock(news)
            Message.update(heard_of=True).where(Message.id.in_(news), is_news).execute()


def _counts(said, message):
    """Return whether a carrier's report is about the whole text."""
    return message.parts == 1 or not said.of_part


def found(attempt: Attempt, references: Collection[str], now: datetime, carrier: str) -> bool:
    """Record the answer to a question about a copy in doubt; return whether the carrier has it.

    `references` are those of all equal texts since then. The first one that belongs to no other
    copy, under any carrier's name, is this copy's: several names may stand for one account.
    """
    id = attempt.message_id
    with db.atomic():
        lock_texts({*references, str(id)})
        others = Attempt.select(Attempt.reference).where(Attempt.reference.in_([*references]))
        known = {each.reference for each in others}
        new = [reference for reference in references if reference not in known]
        if new:
            record_accepted({id: new[0]}, now, carrier, {id: attempt.claim_number})
        return bool(new)


# What carriers report later


def record_receipts(receipts: Iterable[Receipt], now: datetime, carrier: str) -> None:
    """Record receipts, in any order and any number of times.

    `delivered` is final; otherwise the first receipt counts.
    """
    said = [_readable(each) for each in _delivered_first(receipts)]
    if not said:
        return
    with db.atomic():
        ids = {str(each.message_id) for each in said if each.message_id}
        lock_texts({each.reference for each in said} | ids)
        for each in said:
            if not _apply(each, now, carrier, now):
                EarlyReceipt.keep(each, now, carrier)


def _delivered_first(receipts):
    return sorted(receipts, key=lambda receipt: not receipt.delivered)


def _readable(said):
    """Return a receipt that can be stored; drop a message id that is no UUID."""
    try:
        id = UUID(said.message_id) if said.message_id else None
    except ValueError:
        id = None
    return said._replace(reference=Attempt.reference.db_value(said.reference), message_id=id)


def look_again(phone: str, now: datetime) -> set[UUID]:
    """Apply the kept receipts for a phone number once a text to it is in doubt.

    They may come from any carrier. Return the ids of the messages that they belong to.
    """
    with db.atomic():
        return _apply_kept(by_number.kept_lately({phone}), now)


def unmatched(since: datetime, now: datetime) -> int:
    """Count the receipts since an instant that match no message.

    The latest do not count: the acceptance of their texts may yet be recorded.
    """
    at = EarlyReceipt.received_at
    unmatched = EarlyReceipt.select().where(at >= since, at < now - LATE)
    return unmatched.where(EarlyReceipt.is_final).count()


def forget_unmatched(now: datetime) -> int:
    """Delete a batch of receipts that matched no message in time; return how many."""
    return EarlyReceipt.delete_some(EarlyReceipt.received_at < now - RECEIPTS_KEPT)


def _apply_early(references, phones, carrier, now):
    """Apply a carrier's receipts that came before these acceptances, or name these phones."""
    names = [f"{carrier} {each}" for each in references.values() if each]
    about = {"references": names, "ids": references, "phones": phones}
    about = {name: array(values) for name, values in about.items()}
    if not run("has_early_receipts", carrier=carrier, **about).fetchone():
        return
    meant = EarlyReceipt.reference.in_(names) | EarlyReceipt.message_id.in_([*references])
    own = EarlyReceipt.carrier == carrier
    _apply_kept(EarlyReceipt.select().where(meant, own), now)
    if phones:
        _apply_kept(by_number.kept_lately(phones).where(own), now)


def _apply_kept(kept, now):
    """Apply the kept receipts that belong to messages; return the ids of those messages."""
    ids = set()
    for early in _delivered_first(kept):
        if id := _apply(early.receipt, early.received_at, early.carrier, now):
            early.delete_instance()
            ids.add(id)
    return ids


def _apply(said, at, carrier, now):
    """Apply a receipt to its message; return the message's id, or None if it is unknown.

    `at` is when the receipt came. A message that it ends is finished now, for retention.
    """
    if isinstance(said, Shown):
        copy = _latest_copy(said, carrier)
        id = copy and copy.message_id
    elif copy := copy_of(said, at, carrier):
        return _apply_to(copy, said, at, carrier, now)
    else:
        id = said.message_id if _is_of_other_part(said, carrier) else None
    if id:
        _hear([id], carrier)
    return id


def _apply_to(copy, said, at, carrier, now):
    """Apply a receipt to the message of a copy; return the message's id."""
    id = copy.message_id
    if copy.result in (None, Result.UNCLEAR):  # the receipt also shows that it was accepted
        _lock([id])
        open = _open_copies(copies_of([id]), carrier, {id: copy.claim_number})
        _take({id: said.reference}, open, now, carrier, only_open=True)
        copy.reference = said.reference
    status = Status.DELIVERED if said.delivered else Status.UNDELIVERED
    counts = copy.is_current() if said.delivered else copy.is_latest_taken()
    changes = {"status": status, "last_error": said.reason, "receipt_at": at}
    if not Message.change(Message.update(changes).where(counts, _MAY_BECOME[status])):
        _hear([id], carrier)
    copy.record_receipt(status, at)
    about = {"message_id": str(id)}
    log.info("message %s is %s by a receipt of %s", id, status, carrier, extra=about)
    return id


def copy_of(said: Receipt, at: datetime, carrier: str) -> Attempt | None:
    """Return the copy that a receipt is about, or None if that is not known.

    It is the latest copy with this reference, or else the first open copy of the message that the
    receipt names. If it names no message, its phone number may tell.
    """
    if latest := _latest_copy(said, carrier):
        return latest
    if said.message_id:
        return _open_copy(said, carrier)
    return by_number.only_doubt(said, at, carrier) if said.number else None


def _latest_copy(said, carrier):
    """Return the latest copy with the reference of a report."""
    has_it = (Attempt.reference == said.reference) & (Attempt.carrier == carrier)
    return Attempt.select().where(has_it).order_by(Attempt.ended_at.desc()).first()


def _open_copy(said, carrier):
    """Return the first open copy of the message that a receipt names."""
    copies = Attempt.select(Attempt, Message.id, Message.parts).join(Message)
    copies = copies.where(
        Message.id == said.message_id, Attempt.carrier == carrier, Attempt.is_open()
    )
    copy = copies.order_by(Attempt.claim_number).first()
    return copy if copy and _counts(said, copy.message) else None


def _is_of_other_part(said, carrier):
    """Return whether a receipt is about another part, or copy, of an accepted message.

    A copy's own receipt has its reference, so this one changes nothing. But that reference is known
    only once the acceptance is recorded.
    """
    if not said.message_id:
        return False
    own = Attempt.select().where(Attempt.message == said.message_id, (Attempt.carrier == carrier))
    results = {copy.result for copy in own}
    return Result.TAKEN in results and not results & {None, Result.UNCLEAR}
