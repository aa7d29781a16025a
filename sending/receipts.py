"""What carriers say of the texts that they took: their yes, and later what became of them.

A receipt and the yes that it belongs to may be recorded at the same moment, by two processes. Each
locks the carrier's reference until its transaction ends, so the second sees what the first did.

References belong to a carrier: two may use the same. A `carrier` of None stands for any, as a
message of which none was noted may be any carrier's.
"""

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from typing import NamedTuple
from uuid import UUID

from peewee import (
    EXCLUDED,
    SQL,
    BooleanField,
    Case,
    Select,
    TextField,
    UUIDField,
    ValuesList,
    fn,
)

import recipients
from access.do_not_call import DoNotCall, LastReply
from carriers import LateAnswer, OptOut, Receipt
from carriers.lanes import FIRST
from carriers.money import Priced
from carriers.ways import Way, by_name
from database import AmountField, CarrierTextField, InstantField, Table, db, lock_texts
from models import TAKEN, Message, Status, has_status
from sending import replies, waiting
from sending.attempts import REFERENCE_FORM, Attempt, Result

log = logging.getLogger("receipts")

KEPT = timedelta(days=3)
"""How long a receipt waits for a yes that comes late; most are of others on the account.

A repeat does not make it wait longer.
"""

LATE = timedelta(minutes=5)
"""How long a receipt may wait for its yes until it counts as one that matches nothing."""

MOST_LATELY = 20
"""How many copies of texts to a number are looked at to tell whose a receipt can be."""

MOST_KEPT = 100
"""How many receipts that are kept for numbers are looked at when a text to these is recorded."""

_MAY_BECOME = {  # delivered is the last word
    Status.DELIVERED: has_status(Status.SENT, Status.UNDELIVERED),
    Status.UNDELIVERED: has_status(Status.SENT),
}


# As SQL: for peewee to write it takes a ninth of the time of a reply

NOTE = """\
INSERT INTO opt_out_message (id, at) VALUES {rows} ON CONFLICT DO NOTHING RETURNING id
"""
"""Note what identifies a message, unless that was noted before; return what was not."""


class EarlyReceipt(Table):
    """A receipt for which no message is known: its yes is recorded later, or it is not ours."""

    # As a version before migration 0029 stored it, or after the carrier's name and a space; where
    # it is `unmarked`, after these, its number and a space
    reference = CarrierTextField(primary_key=True)
    carrier = TextField(null=True)
    delivered = BooleanField()
    reason = CarrierTextField(null=True)
    received_at = InstantField(index=True)
    price = AmountField(null=True)
    currency = TextField(null=True)
    number = TextField(null=True, index=True)  # the recipient, if the carrier names it
    message_id = UUIDField(null=True, index=True)  # if the carrier repeats it
    # Anybody may have written it: it counts only for a message to its number
    unmarked = BooleanField(default=False, constraints=[SQL("DEFAULT false")])


class Word(NamedTuple):
    """What a receipt says, in the order of EarlyReceipt's columns."""

    delivered: bool
    reason: str | None
    at: datetime
    price: Decimal | None = None
    currency: str | None = None
    number: str | None = None
    message_id: UUID | None = None


class IgnoredOptOut(Table):
    """A STOP or START whose number was not understood, without the number."""

    at = InstantField(index=True)


class OptOutMessage(Table):
    """A message that said STOP or START: a captured callback must not count again, at any age."""

    id = CarrierTextField(primary_key=True)  # as the carrier identifies it
    at = InstantField()

    @classmethod
    def note(cls, ids: Collection[str], now: datetime) -> bool:
        """Note a message by what identifies it; return False if any of that was noted before.

        On Postgres this waits for another transaction that notes the same.
        """
        if not ids:
            return True
        rows = ", ".join([f"({db.param}, {db.param})"] * len(ids))
        at = cls.at.db_value(now)
        values = [value for id in sorted(ids) for value in (cls.id.db_value(id), at)]
        return len(db.execute_sql(NOTE.format(rows=rows), values).fetchall()) == len(ids)


# The yes


def sent(
    references: dict[UUID, str | None],
    now: datetime,
    late: bool = False,
    carrier: Way | None = None,
    numbers: Mapping[UUID, int] | None = None,
) -> int:
    """Record a carrier's yes to messages, its references by their ids; return how many.

    The yes counts even if the claim is lost. It changes nothing if its reference is known: from
    before a person retried the message, or as that of an equal text in doubt, of which the carrier
    took one copy. With `late`, a try that was counted when its answer was lost is not counted
    again. `numbers` are those of the claims, where they are known.
    """
    if not references:
        return 0
    said = {id: Message.carrier_reference.db_value(each or None) for id, each in references.items()}
    prices = {id: each.price for id, each in references.items() if isinstance(each, Priced)}
    named = {each for each in said.values() if each}
    with db.atomic():
        lock_texts(named | {*map(str, said)})
        recipients = _take(said, now, late, carrier, numbers or {}, prices)
        _settle(named, recipients, said, carrier)
    return len(recipients)


def _take(references, now, late, carrier, numbers, prices):
    """Record the carrier's yes to messages; return their numbers, None for a redacted one."""
    pairs = [(Message.id.db_value(id), reference) for id, reference in references.items()]
    taken = ValuesList(pairs, alias="taken")
    id, reference = db.typed(taken, "uuid", "text")
    repeat = Message.in_doubt.between(1, Message.attempts)
    counted = Case(None, [(repeat, 0)], 1) if late else 1
    yes = Message.update(
        **{"carrier": carrier.name} if carrier else {},
        status=Status.SENT,
        finished_at=now,
        last_error=None,
        last_error_at=None,
        attempts=Message.attempts + counted,
        carrier_reference=reference,
    )
    yes = yes.from_(taken).where(
        Message.id == id,
        Message.status.not_in(TAKEN),
        has_status(Status.SENDING) | ~Attempt.has_reference(reference, carrier),
        ~Attempt.is_of_twin(reference, carrier),
    )
    known = [each.id for each in _known(references, carrier)]
    changed = Message.change(yes)
    for id, reference in references.items():
        if id not in known:
            _take_copy(id, reference, numbers.get(id), carrier, now, prices.get(id))
    return [number for _, number in changed]


def _known(references, carrier):
    """Select the messages whose yes is known already, or is that of an equal text."""
    pairs = [(Message.id.db_value(id), each) for id, each in references.items() if each]
    named = ValuesList(pairs, alias="named")
    if not pairs:
        return ()
    id, reference = db.typed(named, "uuid", "text")
    known = Attempt.has_reference(reference, carrier) & ~has_status(Status.SENDING)
    known |= Attempt.is_of_twin(reference, carrier)
    return Message.select(Message.id).join(named, on=Message.id == id).where(known)


def _take_copy(id, reference, number, carrier, now, price):
    """Note with the copy of a message that the carrier took it; it is in doubt no more."""
    was_unclear = Attempt.take(id, reference, number, carrier, now, price)
    if was_unclear:
        message = Message.get_by_id(id)
        way = Way(was_unclear.carrier or FIRST)
        message.settle_doubts(way, int(was_unclear.number > message.tries_before), once=True)


def known(references: set[str], carrier: Way | None = None) -> set[str]:
    """Return the references of a carrier that belong to copies already."""
    if not references:
        return set()
    those = Attempt.reference.in_(references)
    found = Attempt.select(Attempt.reference).where(those, *Attempt.by(carrier))
    return {attempt.reference for attempt in found}


def found(
    attempt: Attempt, references: Collection[str], now: datetime, carrier: Way | None = None
) -> bool:
    """Record that a carrier, asked, has taken a copy in doubt; say whether it has.

    The carrier names all texts like this; the first that is no other copy's is this one.
    """
    id = attempt.message_id
    with db.atomic():
        lock_texts({*references, str(id)})
        taken = known({*references}, carrier)
        new = [reference for reference in references if reference not in taken]
        if new:
            numbers = {id: attempt.number}
            sent({id: new[0]}, now, late=True, carrier=carrier, numbers=numbers)
        return bool(new)


# What comes later


def record(
    events: Collection[Receipt | OptOut | LateAnswer],
    now: datetime,
    check_dnc: str,
    carrier: Way | None = None,
) -> None:
    """Record what a carrier says."""
    late = [event for event in events if isinstance(event, LateAnswer)]
    said = {UUID(event.message_id): event.reference for event in late}
    if taken := sent(said, now, late=True, carrier=carrier):
        log.info("messages sent by an answer that came late: %s", taken)
    record_receipts((event for event in events if isinstance(event, Receipt)), now, carrier)
    for event in events:
        if isinstance(event, OptOut):
            record_opt_out(event, now, check_dnc)


class Obeyed(NamedTuple):
    """What a STOP or START led to."""

    has_joined: bool  # the number, the Do Not Call list
    blocked: int  # messages


def record_opt_out(said: OptOut, now: datetime, check_dnc: str = "asked") -> int:
    """Do as a recipient said, as `obey` does; return how many messages a STOP blocks.

    A number that may not be international, or is not valid, counts only if there is a message to
    it.
    """
    number, problem = read_number(said.number, said.certain)
    said = said._replace(number=number)
    if problem:
        word = "STOP" if said.stop else "START"
        log.warning("a %s is ignored: its number %s, and no message went to it", word, problem)
        IgnoredOptOut.insert(at=now).execute()
        return 0
    return obey(said, now, check_dnc).blocked


def obey(said: OptOut, now: datetime, check_dnc: str) -> Obeyed:
    """Do as a recipient said: STOP lists the number, START takes it off if a reply put it there.

    A reply that is older than the last one from this number changes nothing, and neither does one
    that came before. A STOP blocks the messages that wait for the number and look at the list.
    """
    with db.atomic():
        if not OptOutMessage.note(said.message_ids, now):
            return Obeyed(False, 0)
        if said.source == "reply" and not LastReply.note(said.number, said.at, now):
            return Obeyed(False, 0)
        if not said.stop:
            DoNotCall.remove([said.number], now, "reply", said_at=said.at)
            return Obeyed(False, 0)
        new = replies.put_on_list([said.number], now, said.source, said_at=said.at)
    return Obeyed(new > 0, waiting.block_number(said.number, now, check_dnc))


def read_number(number: str, certain: bool) -> tuple[str, str | None]:
    """Return a number that a carrier names in its valid form, and why it cannot be relied on.

    A number that was texted can.
    """
    try:
        number = recipients.national(number, None)
        problem = None if certain else "is not marked as international"
    except recipients.InvalidNumber:
        problem = "is not valid"
    if problem and Message.select().where(Message.to == number).exists():
        problem = None
    return number, problem


def record_receipts(receipts: Iterable[Receipt], now: datetime, carrier: Way | None = None) -> int:
    """Record receipts, in any order and any number of times; return how many belong to messages.

    `delivered` is the last word; without it, the first word counts.
    """
    words = {}
    for receipt in receipts:
        reference, delivered, reason, number, message_id, price = Receipt(*receipt)
        reference = Message.carrier_reference.db_value(reference)
        if delivered or reference not in words:
            cost = price or (None, None)
            words[reference] = Word(delivered, reason, now, *cost, number, _id(message_id))
    if not words:
        return 0
    with db.atomic():
        named = {str(word.message_id) for word in words.values() if word.message_id}
        lock_texts(words.keys() | named)
        found = _match(words, carrier)
        _keep(_without(words, found), carrier)
    return len(found)


def record_unmarked(receipt: Receipt, now: datetime, carrier: Way) -> bool:
    """Record a receipt without its protocol's mark, if it is of a message to its number.

    Return False if it cannot be: then its number has written it. It is kept if the yes to such a
    message is yet to be recorded.
    """
    reference = Message.carrier_reference.db_value(receipt.reference)
    words = {reference: Word(receipt.delivered, receipt.reason, now, number=receipt.number)}
    with db.atomic():
        lock_texts({reference})
        if _apply_by_number(words, carrier):
            return True
        waits = _awaits_yes(receipt.number, now, carrier)
        if waits:
            _keep(words, carrier, unmarked=True)
        return waits


def _awaits_yes(number, now, carrier):
    """Say whether the yes of a carrier to a text to a number may yet be recorded."""
    return bool(_copies(carrier, number, now, Attempt.is_open()))


def _id(text):
    """Return the id of a message that a carrier repeats; None for what is no id."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def look_again(number: str, ways: Iterable[Way] = ()) -> set[UUID]:
    """Apply the receipts that were kept for a number, because a text to it is now in doubt.

    They may be of any carrier, of which `ways` have names before. Return the ids of the messages
    that they belong to.
    """
    with db.atomic():
        return _apply_kept(_kept_lately({number}), ways)


def unmatched(since: datetime, now: datetime) -> int:
    """Count the receipts since an instant that belong to no message.

    The latest do not count: the yes to their texts may still be recorded.
    """
    at = EarlyReceipt.received_at
    return EarlyReceipt.select().where(at >= since, at < now - LATE).count()


def ignored_opt_outs(since: datetime) -> int:
    """Count the STOPs and STARTs since an instant whose number was not understood."""
    return IgnoredOptOut.select().where(IgnoredOptOut.at >= since).count()


def forget_number(number: str) -> None:
    """Forget a number in the receipts that are kept for it, unless a message to it is left."""
    kept = EarlyReceipt.number == number
    kept &= ~fn.EXISTS(Message.select().where(Message.to == number))
    EarlyReceipt.delete().where(kept, EarlyReceipt.unmarked).execute()
    EarlyReceipt.update(number=None).where(kept).execute()


def correct(now: datetime) -> None:
    """Let receipts that came by a clock that has been set back since be of now."""
    EarlyReceipt.count_as_now(EarlyReceipt.received_at, now)
    IgnoredOptOut.count_as_now(IgnoredOptOut.at, now)


def forget(now: datetime) -> None:
    """Drop receipts that no message has claimed in time."""
    IgnoredOptOut.delete_where(IgnoredOptOut.at < now - KEPT)
    EarlyReceipt.delete_where(EarlyReceipt.received_at < now - KEPT)


def _settle(references, numbers, ids, carrier):
    """Apply a carrier's receipts that came before these references, or for numbers or messages."""
    ways = [carrier] if carrier else []
    names = {_name(called, each) for called in (None, *by_name(ways)) for each in references}
    meant = EarlyReceipt.reference.in_(names) | EarlyReceipt.message_id.in_([*ids])
    own = []
    if carrier:
        own = [EarlyReceipt.carrier.in_(carrier.names) | EarlyReceipt.carrier.is_null()]
    _apply_kept(EarlyReceipt.select().where(meant, *own), ways)
    if numbers := {*numbers} - {None}:
        _apply_kept(_kept_lately(numbers).where(*own), ways)


def _kept_lately(numbers):
    """Select the latest receipts that are kept for these numbers; one of ours is hardly older."""
    kept = EarlyReceipt.select().where(EarlyReceipt.number.in_(numbers))
    return kept.order_by(EarlyReceipt.received_at.desc()).limit(MOST_KEPT)


def _name(called, reference, number=None):
    """Return what an early receipt is found by, of a number's if it is unmarked.

    It is kept under the name that its carrier was called by.
    """
    return "".join(f"{each} " for each in (called, number) if each) + reference


def _apply_kept(early, ways):
    """Apply kept receipts as far as they belong to messages; return the ids of these."""
    words, ids, ways = defaultdict(dict), set(), by_name(ways)
    for name, called, *said, unmarked in early.tuples():
        word = Word(*said)
        number = word.number if unmarked else None
        reference = name.removeprefix(_name(called, "", number))
        words[called, number][reference] = word
    for (called, number), said in words.items():
        carrier = called and (ways.get(called) or Way(called))
        found = _apply_by_number(said, carrier) if number else _match(said, carrier)
        names = [_name(called, reference, number) for reference in found]
        EarlyReceipt.delete().where(EarlyReceipt.reference.in_(names)).execute()
        ids |= {*found.values()}
    return ids


def _match(words, carrier):
    """Apply receipts as far as they belong to messages; return the ids of these by reference."""
    found = {**_apply(words, carrier)}
    found |= _apply_by_number(_without(words, found), carrier)
    return found | _of_other_parts(_without(words, found), carrier)


def _of_other_parts(words, carrier):
    """Return the ids of the messages of which these receipts are about another part, or copy.

    The receipt of a copy is that of its reference, so these change nothing. Only once the carrier's
    yes is recorded is it known which reference that is.
    """
    named = {each: word.message_id for each, word in words.items() if word.message_id}
    copies = Attempt.select().where(Attempt.message.in_({*named.values()}), *Attempt.by(carrier))
    results = defaultdict(set)
    for copy in copies if named else ():
        results[copy.message_id].add(copy.result)
    open = {None, Result.UNCLEAR}
    taken = {id for id, each in results.items() if Result.TAKEN in each and not each & open}
    return {reference: id for reference, id in named.items() if id in taken}


def _without(words, found):
    return {reference: words[reference] for reference in sorted(words.keys() - found)}


def _apply(words, carrier):
    """Move the messages of these references as their receipts say; return the ids of those."""
    latest = _latest(words, carrier)
    _move(latest, words, carrier)
    return {reference: id for reference, (id, _) in latest.items()}


def _move(owners, words, carrier):
    """Move messages as receipts say; `owners` are their copies by the references of these.

    A copy of before a person retried the message says nothing of the present one, and an older copy
    that did not arrive nothing of a later one.
    """
    alike, name = defaultdict(list), carrier.name if carrier else "-"
    for reference, owner in owners.items():
        alike[words[reference]._replace(number=None, message_id=None)].append(owner)
    for word, copies in alike.items():
        status = Status.DELIVERED if word.delivered else Status.UNDELIVERED
        ids = [id for id, _ in copies]
        counts = Message.id.in_(ids) & Attempt.counts_now(copies, latest=not word.delivered)
        changes = {"status": status, "last_error": word.reason, "receipt_at": word.at}
        Message.change(Message.update(changes).where(counts, _MAY_BECOME[status]))
        Attempt.note_receipt(copies, status, word.at, word.price, word.currency)
        for id in ids:
            about = {"message_id": str(id)}
            log.info("message %s is %s by a receipt of %s", id, status, name, extra=about)


def _apply_by_number(words, carrier):
    """Apply receipts with unknown references whose numbers can mean one message only.

    Return the ids of the messages that they belong to, by these references.
    """
    found = {}
    doubt_of = cache(partial(_only_doubt, carrier))
    for reference in sorted(words, key=lambda each: not words[each].delivered):  # `delivered` first
        word = words[reference]
        same = _same_id(reference, word.number, carrier) if word.number else []
        id, copies = doubt_of(word.number, word.at) if word.number and not same else (None, 0)
        # If the carrier was given it twice, another word may be that of either copy
        if id and (word.delivered or copies == 1):
            _take({id: reference}, word.at, True, carrier, {}, {})  # the receipt is the yes as well
            doubt_of.cache_clear()
            same = [*_latest([reference], carrier).values()]
        if len(same) == 1:
            _move({reference: same[0]}, words, carrier)
            found[reference] = same[0][0]
    return found


def _same_id(reference, number, carrier):
    """Return two copies at most to a number, by message and number, if theirs is the same id.

    It may be in other digits. Of those with just this reference, the latest is meant.
    """
    forms = sorted(_forms(reference))
    is_same = REFERENCE_FORM.in_(forms) & Attempt.reference.is_null(False)
    same = Attempt.select(Attempt.message, Attempt.number, Attempt.reference).join(Message)
    same = same.where(is_same, Message.to == number, *Attempt.by(carrier))
    is_exact = Attempt.reference == reference
    same = [*same.order_by(is_exact.desc(), Attempt.ended_at.desc()).limit(2).tuples()]
    found = [(id, number) for id, number, _ in same]
    return found[:1] if same and same[0][2] == reference else found


def _only_doubt(carrier, number, at):
    """Return the message in doubt to a number, and how many open copies of it there are.

    Return None and 0 if the carrier can have a copy of another one of late.
    """
    copies = _copies(carrier, number, at)
    open = [copy for copy in copies if copy.result != Result.TAKEN]
    unclear = [each for each in open if each.result == Result.UNCLEAR and each.begun_at <= at]
    if len({copy.message_id for copy in copies}) != 1 or len(copies) == MOST_LATELY or not unclear:
        return None, 0
    return unclear[0].message_id, len(open)


def _copies(carrier, number, at, *conditions):
    """Return some copies of texts to a number that a carrier has of late, or may have."""
    taken_lately = (Attempt.result == Result.TAKEN) & (Attempt.ended_at > at - KEPT)
    given = Attempt.is_open() | taken_lately
    recent = Message.finished_at.is_null() | (Message.finished_at > at - KEPT)
    copies = Attempt.select().join(Message).where(Message.to == number, recent, given)
    return [*copies.where(*Attempt.by(carrier), *conditions).limit(MOST_LATELY)]


def _forms(reference):
    """Return the forms of the references that are one id, in hexadecimal or decimal digits."""
    form = reference.lower().lstrip("0")
    forms = {form}
    if re.fullmatch("[0-9a-f]{1,20}", form):
        forms.add(str(int(form, 16)))
    if re.fullmatch("[0-9]{1,20}", form):
        forms.add(format(int(form), "x"))
    return forms - {""}


def _latest(references, carrier):
    """Return the copies of these references, by message and number.

    If a carrier has used a reference again, the latest is meant. One index lookup per reference:
    IN makes a Postgres without statistics of the table read all of it.
    """
    named = ValuesList([(reference,) for reference in references], alias="named")
    reference = named.c.column1
    own = (Attempt.reference == reference, *Attempt.by(carrier))
    id, number = (
        Attempt.select(column).where(*own).order_by(Attempt.ended_at.desc()).limit(1)
        for column in (Attempt.message, Attempt.number)
    )
    found = Select([named], [reference, id, number]).tuples().execute(db)
    read = Message.id.python_value
    return {reference: (read(id), number) for reference, id, number in found if id}


def _keep(words, carrier, unmarked=False):
    """Keep receipts for a yes that is yet to be recorded."""
    if not words:
        return
    called = carrier.name if carrier else None
    rows = [
        (_name(called, reference, word.number if unmarked else None), called, *word, unmarked)
        for reference, word in words.items()
    ]
    row = EarlyReceipt
    news = ~row.delivered & EXCLUDED.delivered
    fields = row._meta.sorted_fields
    kept = row.insert_many(rows, fields)
    kept.on_conflict(conflict_target=fields[:1], preserve=fields[1:], where=news).execute()
