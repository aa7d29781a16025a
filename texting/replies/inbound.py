"""Record what carriers report, and what recipients write.

A reply is recorded in one transaction with all that follows from it: the number on the Do Not Call
list, the event, the answer to it. Only then does the carrier get its acknowledgement.
"""

import json
import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from texting import carriers
from texting.access.do_not_call import OptedOut
from texting.access.keys import ApiKey
from texting.access.limits import SECOND, KeyUse, Limit, lock_numbers, needs
from texting.carriers import LateAnswer, OptOut, Receipt, Shown
from texting.carriers.alphabets import count_parts
from texting.carriers.lanes import TESTERS, of_answers
from texting.database import EPOCH, db, skip_broken
from texting.database.clock import SKEW
from texting.events.outbox import Event
from texting.messages import receipts
from texting.messages.admission import NewMessage
from texting.messages.attempts import Attempt
from texting.messages.model import ANSWER_WITHIN, TAKEN, Message, Status, has_status, new_id
from texting.replies import meaning, opt_outs
from texting.replies.meaning import Meaning
from texting.replies.model import PARTS_WITHIN, Reply
from texting.replies.opt_outs import OptOutMessage

BELONGS_WITHIN = timedelta(days=30)
"""How long after a message a reply still belongs to it."""

SLOW = timedelta(minutes=5)
"""By how much a phone's clock may be behind."""

SETTLED_AT_ONCE = 20  # replies, each in a transaction of its own

ANSWERED_FOR = timedelta(hours=24)
"""The time within which a number gets only one answer to a word."""

WORDS = {"STOP": Meaning.NO, "START": Meaning.START, "HELP": Meaning.HELP}

log = logging.getLogger("replies")


class ReplyRules(NamedTuple):
    """The carrier of some replies, and the settings that apply to them."""

    carrier: str
    check_dnc: str
    stop_reply: str | None
    help_reply: str | None
    key_limits: tuple[Limit, ...] = ()  # of keys without limits of their own
    others: frozenset[str] | None = None  # the names of other accounts; None if not known

    @classmethod
    def of(cls, settings: Any, carrier: str, account: Collection[str] = ()) -> Self:
        """Return the rules for replies through a carrier, and other names of its account."""
        answers, names = (settings.stop_reply, settings.help_reply), settings.carrier_configs
        others = {TESTERS, *(each.name for each in names)} - {carrier, *account}
        limits = settings.key_limits
        return cls(carrier, settings.check_dnc, *answers, limits, frozenset(others))


def record(
    events: Collection[carriers.Report],
    now: datetime,
    rules: ReplyRules,
) -> None:
    """Record what a carrier reports, then each reply in its own transaction."""
    replies = [event for event in events if isinstance(event, carriers.IncomingText)]
    others = [event for event in events if not isinstance(event, carriers.IncomingText)]
    record_reports(others, now, rules.check_dnc, rules.carrier)
    for said in replies:
        record_reply(said, now, rules)


def record_reports(
    events: Collection[carriers.Report], now: datetime, check_dnc: str, carrier: str
) -> None:
    """Record a carrier's late answers, reports on texts, and opt-outs."""
    late = [event for event in events if isinstance(event, LateAnswer)]
    references = {UUID(each.message_id): each.reference for each in late}
    if taken := receipts.record_accepted(references, now, carrier):
        log.info("messages sent by an answer that came late: %s", taken)
    shown = [event for event in events if isinstance(event, Shown)]
    if taken := receipts.shown(shown, now, carrier):
        log.info("messages sent, as a report of %s shows: %s", carrier, taken)
    told = (event for event in events if isinstance(event, Receipt))
    receipts.record_receipts(told, now, carrier)
    for event in events:
        if isinstance(event, OptOut):
            opt_outs.record_opt_out(event, now, check_dnc)


def record_reply(said: carriers.IncomingText, now: datetime, rules: ReplyRules) -> None:
    """Store a reply, or a part of one, only once, and obey a plain STOP or START."""
    number, problem = opt_outs.read_number(said.number, said.certain)
    if problem:
        means = Meaning.OTHER if said.part else _read(said.text, said.word)
        if means in (Meaning.NO, Meaning.START):
            opt_outs.ignore(means is Meaning.NO, problem, now)
        return
    said = said._replace(number=number)
    with db.atomic():
        lock_numbers([number])
        if not OptOutMessage.note(said.message_ids, now):
            return
        draft = _draft(said, now, rules)
        reply = _reply_of_part(draft, said, now, rules.carrier) if said.part else draft
        if reply is None:
            return
        means, answer = _meaning_of(reply, said), None
        if not reply.due_at:
            reply.opted_out = _obey(reply, means, said, now, rules)
            answer = _answer_to(reply, means, said, now, rules)
            if _is_settled(means, said, answer):
                reply.read_at = reply.read_at or now
        may_be_no = _may_be_no(reply, means)
        reply.may_be_no = may_be_no or (reply.may_be_no and reply.due_at is not None)
        reply.save(force_insert=reply is draft)
        if reply.due_at:
            return
        _tell(reply, now)
        if answer:
            _answer(reply, *answer, now, rules.key_limits)
    log.info("reply %s to message %s", reply.id, reply.message_id or "-")


def report_incomplete(now: datetime) -> int:
    """Report incomplete replies once their missing parts are overdue; return how many.

    A reply that breaks this is shown to people without an event.
    """

    def show(reply):
        Reply.update(due_at=None).where(Reply.id == reply.id).execute()

    def tell(replies):
        for each in replies:
            _settle(each.id, each.number, now)

    due = Reply.select(Reply.id, Reply.number).where(Reply.is_due(now)).limit(SETTLED_AT_ONCE)
    what = "reply {0.id} is not told of".format
    return sum(len(skip_broken(tell, [each], log, what, show)) for each in [*due])


def _settle(id, number, now):
    with db.atomic():
        lock_numbers([number])
        due = Reply.update(due_at=None).where(Reply.id == id, Reply.is_due(now))
        if due.execute():
            reply = Reply.get_by_id(id)
            if not reply.read_at and _may_be_no(reply, meaning.read_part(reply.text)):
                reply.may_be_no = True
                reply.save(only=[Reply.may_be_no])
            _tell(reply, now)


def _read(text, word):
    """Return what a text means, or what the carrier itself took it for."""
    return WORDS[word] if word else meaning.read(text)


def _meaning_of(reply, said):
    """Return what a reply means, or what its latest part does while others are missing."""
    return meaning.read_part(said.text) if reply.due_at else _read(reply.text, said.word)


def _draft(said, now, rules):
    """Return an unsaved reply, with the message that it belongs to."""
    is_told = said.at and said.at >= EPOCH and said.at <= now + SKEW
    at = said.at if is_told else now
    message, is_slow = message_of(said.number, at, now, rules)
    reply = Reply(id=new_id(now), carrier=rules.carrier, number=said.number, at=at)
    reply.received_at, reply.text = now, Reply.text.db_value(said.text)
    reply.has_slow_clock = is_slow
    if message:
        reply.message_id, reply.key = message.id, message.key_id
        reply.available_to_group = message.available_to_group
    return reply


def message_of(
    number: str, at: datetime, now: datetime, rules: ReplyRules
) -> tuple[Message | None, bool]:
    """Return the message that a reply belongs to, or None, and whether its clock is slow.

    It is the latest to this number that the carrier was given in the BELONGS_WITHIN before. If
    there is none, it is one that was given under another name of its account: a configured one, or
    one that is gone. A text that was given before the reply arrived may seem to be later than it.
    """
    names = [Attempt.carrier == rules.carrier]
    if rules.others is not None:
        names.append(Attempt.carrier.not_in(rules.others))
    for of_carrier in names:
        for is_slow, until in ((False, at), (True, min(at + SLOW, now))):
            if message := _latest_given(number, at, until, of_carrier):
                return message, is_slow
    return None, False


def _latest_given(number, at, until, of_carrier):
    given_at = Attempt.begun_at
    # Carriers report whole seconds
    in_time = (given_at >= at - BELONGS_WITHIN) & (given_at < until + SECOND)
    given = Attempt.given_to(number, of_carrier).where(in_time)
    given = given.select(Message.id, Message.key, Message.available_to_group).objects(Message)
    return given.order_by(given_at.desc(), Message.id.desc()).first()


# Parts


def _reply_of_part(draft, said, now, carrier):
    """Return the unsaved reply that a part belongs to; None if the part was known.

    A whole reply is no longer due.
    """
    reference, total, number = said.part
    reference, number = Reply.part_reference.db_value(reference), str(number)
    same = (Reply.number == draft.number) & (Reply.carrier == carrier)
    same &= (Reply.part_reference == reference) & (Reply.parts == total)
    recent = [*Reply.select().where(same, Reply.received_at > now - PARTS_WITHIN)]
    if any(each.by_number.get(number) == said.text for each in recent):
        return None
    for reply in recent:
        if reply.due_at and number not in reply.by_number:
            _join(reply, reply.by_number | {number: said.text})
            return reply
    draft.part_reference, draft.parts, draft.due_at = reference, total, now + PARTS_WITHIN
    _join(draft, {number: said.text})
    return draft


def _join(reply, pieces):
    """Set the text of a reply from the parts received so far."""
    whole = "".join(pieces[number] for number in sorted(pieces, key=int))
    # A part can end in the middle of a surrogate pair
    octets = whole.encode("utf-16-le", "surrogatepass")
    reply.text = Reply.text.db_value(octets.decode("utf-16-le", "replace"))
    reply.pieces = json.dumps(pieces)
    if len(pieces) == reply.parts:
        reply.due_at = None


# What follows from it


def _obey(reply, means, said, now, rules):
    """Obey a whole reply; return whether its number has joined the Do Not Call list."""
    if means not in (Meaning.NO, Meaning.START):
        return False
    stop = OptOut(reply.number, means is Meaning.NO, "reply", said.at and reply.at)
    return opt_outs.obey(stop, now, rules.check_dnc).has_joined


def _answer_to(reply, means, said, now, rules):
    """Return the keyword to answer, and the answer; None if no answer is due.

    The carrier may have answered, it may be too late, or the number got this answer recently.
    """
    if not reply.message_id or said.word or now - _said_at(reply, now) >= ANSWER_WITHIN:
        return None
    is_help = means is Meaning.HELP
    word = "STOP" if reply.opted_out else "HELP" if is_help else None
    text = rules.help_reply if is_help else rules.stop_reply
    return (word, text) if word and text and not _was_answered(reply.number, word, now) else None


def _is_settled(means, said, answer):
    """Return whether nobody has to read a reply, because it was obeyed or its HELP answered."""
    return means in (Meaning.NO, Meaning.START) or (means is Meaning.HELP and (said.word or answer))


def _may_be_no(reply, means):
    """Return whether people must decide if this is a no; not if the number has opted out."""
    return means is Meaning.MAYBE_NO and not OptedOut.lists(reply.number)


def _tell(reply, now):
    """Write the event about a reply, for the key of its message."""
    if reply.message_id:
        data = {"reply_id": str(reply.id), "text": reply.text}
        data |= {"opted_out": reply.opted_out, "may_be_no": reply.may_be_no}
        Event.write_reply(reply.key, reply.message_id, data, now)


def _answer(reply, word, text, now, key_limits):
    """Queue the automatic answer to a reply; it counts for its key's limits."""
    said_at = _said_at(reply, now)
    message = NewMessage(
        id=new_id(now),
        key=reply.key,
        to=reply.number,
        country=Message.select(Message.country).where(Message.id == reply.message_id).scalar(),
        message=text,
        parts=count_parts(text),
        send_date=None,
        send_at=now,
        expires_at=said_at + ANSWER_WITHIN,
        status=Status.QUEUED,
        manual_mode=False,
        available_to_group=reply.available_to_group,
        check_dnc=False,
        max_retries=0,
        created_at=now,
        lane=of_answers(reply.carrier),
    )
    more = {"first_send_at": said_at, "auto_reply_to": word}
    Message.insert(message.row() | more).execute()
    limits = ApiKey.get_by_id(message.key).limits_or(key_limits)
    KeyUse.add(needs(limits, message.key, message.second, message.parts))
    log.info("message %s answers reply %s", message.id, reply.id)


def _said_at(reply, now):
    """Return when a reply was written, as far as its clock can be believed."""
    return now if reply.has_slow_clock else min(reply.at, now)


def _was_answered(number, word, now):
    """Return whether a number recently got an answer to this keyword, or may yet get one."""
    answers = Message.select().where(Message.to == number, Message.auto_reply_to == word)
    tried = (Message.attempts > 0) | (Message.in_doubt > 0)
    tried |= has_status(Status.QUEUED, Status.SCHEDULED, Status.SENDING, *TAKEN)
    return answers.where(Message.created_at > now - ANSWERED_FOR, tried).exists()
