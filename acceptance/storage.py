"""Store new messages, unless a limit is reached or the recipient wants none.

Messages that arrive together share a transaction and a statement, and nothing else: each has its
own outcome, the same as if it had been stored alone.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial, reduce
from operator import or_

from peewee import Case, fn

from acceptance import decisions
from acceptance.decisions import Decision, NewMessage, Request
from acceptance.inserts import Inserts
from access import do_not_call
from access.keys import ApiKey
from access.limits import DAY, KeyUse, lock_numbers
from access.usual import KeyDay
from database import EPOCH, db
from models import IS_USUAL, Message, accepted_to, first_id, tally_of

UNLESS_TAKEN = (
    "ON CONFLICT (key_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
    " RETURNING id"
)
"""Leave out the rows whose idempotency key is taken; return a row for each of the others."""

FIELDS = [
    Message._meta.fields[name]
    for name in (*NewMessage._fields, "first_send_at", "approved", "attempts")
]


def store(request: Request) -> NewMessage:
    """Keep a new message for good, and return it as it is stored.

    Raise AlreadyAnswered if its idempotency key is taken, OnDoNotCallList if its recipient wants no
    texts, LimitReached if its key or its recipient may have no more, TooManyParts if its key may
    never have so many, or the database's error.
    """
    outcome = queue.insert(request)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def insert_all(requests: Sequence[Request]) -> list[Decision]:
    """Decide on messages in their order, insert those that may be stored; return the decisions.

    Start again if another process stores one of their idempotency keys meanwhile.
    """
    for key, country, day in sorted({request.usual_key for request in requests} - {None}):
        KeyDay.begin(key, country, day, partial(_usual_parts, key))
    with db.atomic() as transaction:
        while True:
            known, uses = _read(requests)
            decided = decisions.decide(requests, known)
            accepted = [each for each in decided if isinstance(each, NewMessage)]
            if _insert(accepted) == len(accepted):
                break
            transaction.rollback()
        for use in uses:
            use.put(known.tallies[use.key_id])
        for usual in filter(None, known.usual.values()):  # none of a key that is being revoked
            usual.put()
    return decided


def stored_before(key: int, idempotency_key: str) -> Message | None:
    """Return the message that this key's request with this idempotency key created."""
    return Message.get_or_none(Message.key == key, Message.idempotency_key == idempotency_key)


# Reading and writing


def _read(requests):
    """Return the snapshot that decides on messages, and the rows of KeyUse.

    Lock numbers, then the days of keys, then keys, each in order, to avoid deadlocks.
    """
    messages = [request.message for request in requests]
    columns = (ApiKey.id, ApiKey.role, ApiKey.limits)
    keys = ApiKey.select(*columns).where(ApiKey.id.in_({message.key for message in messages}))
    accepted_at, usual = _accepted_to(requests), _usual(requests)
    listed = do_not_call.listed({message.to for message in messages})
    known = decisions.Known({k.id: k for k in keys}, {}, listed, {}, accepted_at, usual)
    limited = {request.message.key for request in requests if known.key_limits(request)}
    uses = [KeyUse.lock(key) for key in sorted(limited)]
    for use in uses:
        seconds = {message.second for message in messages if message.key == use.key_id}
        known.tallies[use.key_id] = tally_of(use.key_id, use, seconds)
    known.earlier.update(_earlier({message.unique_key for message in messages} - {None}))
    return known, uses


def _accepted_to(requests):
    """Lock the numbers that have a limit; return when messages to them were accepted."""
    limited = [request for request in requests if request.recipient_limit]
    lock_numbers({request.message.to for request in limited})
    since = min((request.message.created_at for request in limited), default=None)
    accepted_at = {}
    for to, limit in {(request.message.to, request.recipient_limit) for request in limited}:
        latest = accepted_to(to, since - limit.window).limit(limit.number)
        accepted_at[to, limit] = [message.created_at for message in latest]
    return accepted_at


def _usual(requests):
    """Lock the days of keys whose odd texts are held; return them with what is usual.

    Forget the days of the other keys, whose messages are not counted. While a change of the rule
    takes effect, a key is one of both: go through the keys in order, against deadlocks.
    """
    parts, others, usual = Counter(), set(), {}
    for request in requests:
        if request.hold_odd:
            parts[request.usual_key] += request.message.parts
        else:
            others.add(request.key_and_day)
    for key in sorted({request.message.key for request in requests}):
        KeyDay.forget(each for each in others if each[0] == key)
        usual |= {each: _usual_of(*each, parts[each]) for each in sorted(parts) if each[0] == key}
    return usual


def _usual_of(key, country, day, asked):
    """Lock a day and return it; read what is usual if this many more parts could be odd.

    What people have approved on this day is as usual as what was sent on another.
    """
    usual = KeyDay.lock(key, country, day)
    if usual and usual.is_odd(asked):
        on_day = Message.approved_at.between(*_instants(day)) & (Message.country == country)
        approved = Message.select(fn.SUM(Message.parts)).where(Message.key == key, on_day, IS_USUAL)
        usual.most = max(usual.most_before(), approved.scalar() or 0)
    return usual


def _usual_parts(key, day):
    """Count the parts of a key's messages of a day that are usual, by country.

    A country has none if all to it still wait for people, who may yet have them count.
    """
    since, until = map(first_id, _instants(day))
    that_day = (Message.key == key) & (Message.id >= since) & (Message.id < until)
    kept = fn.SUM(Case(None, [(IS_USUAL, Message.parts)], 0))
    return Message.select(Message.country, kept).where(that_day).group_by(Message.country).tuples()


def _instants(day):
    """Return the first instant of a day of UTC, and of the next."""
    return EPOCH + day * DAY, EPOCH + (day + 1) * DAY


def _earlier(unique_keys):
    """Return the messages that have these pairs of key and idempotency key, by the pairs."""
    if not unique_keys:
        return {}
    pairs = ((Message.key == key) & (Message.idempotency_key == name) for key, name in unique_keys)
    columns = Message.key, Message.idempotency_key, Message.answer, Message.request_digest
    found = Message.select(*columns).where(reduce(or_, pairs))
    return {(message.key_id, message.idempotency_key): message for message in found}


def _insert(messages):
    """Insert messages in one statement; return how many are stored.

    In the order of their idempotency keys: two batches that insert the same ones in another order
    would be a deadlock on Postgres.
    """
    if not messages:
        return 0
    whole = [message.row() for message in sorted(messages, key=lambda each: each.unique_key or ())]
    rows = [{f.column_name: f.db_value(row[f.name]) for f in FIELDS} for row in whole]
    return len(db.insert_rows("message", rows, UNLESS_TAKEN))


queue = Inserts(insert_all)
