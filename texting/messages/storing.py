"""Store new messages, unless a limit is reached or the recipient wants none.

Messages that arrive together share a transaction and a statement, and nothing else: each has its
own outcome, the same as if it had been stored alone.
"""

from collections import Counter
from collections.abc import Sequence

from texting.access import do_not_call
from texting.access.keys import ApiKey
from texting.access.limits import KeyUse, lock_numbers
from texting.access.texted_countries import KeyCountry
from texting.database import db
from texting.database.statements import array, statement
from texting.messages import admission
from texting.messages.admission import Decision, NewMessage, Request
from texting.messages.inserts import Inserts
from texting.messages.model import Message, accepted_to

UNLESS_TAKEN = (
    "ON CONFLICT (key_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"
    " RETURNING id"
)
"""Skip rows whose idempotency key is taken; return a row for each of the others."""

FIELDS = [
    Message._meta.fields[name]
    for name in (*NewMessage._fields, "first_send_at", "approved", "attempts")
]


def store(request: Request) -> None:
    """Keep a new message for good.

    Raise KeyRevoked or KeyPaused if its key has been stopped just now, AlreadyAnswered if its
    idempotency key is taken, OnDoNotCallList if its recipient wants no texts, LimitReached if its
    key or its recipient may have no more, TooManyParts if its key may never have so many, or the
    database's error.
    """
    outcome = queue.insert(request)
    if isinstance(outcome, Exception):
        raise outcome


def insert_all(requests: Sequence[Request]) -> list[Decision]:
    """Decide on messages in order, and insert those that may be stored; return the decisions.

    Start again if, meanwhile, another process stores one of their idempotency keys, or uses up the
    rest of a limit.
    """
    with db.atomic() as transaction:
        while True:
            known = _read(requests)
            decided = admission.decide(requests, known)
            accepted = [each for each in decided if isinstance(each, NewMessage)]
            if _insert(accepted) == len(accepted) and _count(known):
                KeyCountry.note({(m.key, m.country): m.created_at for m in accepted})
                return decided
            transaction.rollback()


def stored_before(key: int, idempotency_key: str, digest: str) -> Message | None:
    """Return the message that was created by this key's request with this idempotency key.

    `digest` is the idempotency key's, by which it is known once the message is redacted.
    """
    return _earlier({(key, idempotency_key, digest)}).get((key, idempotency_key))


# Reading and writing


def _read(requests):
    """Return the snapshot by which to decide on messages.

    Repeats are read last, so that an original that has just used up a limit is found.
    """
    messages = [request.message for request in requests]
    # Keys are held until the messages can be cancelled
    sql, values = statement("hold_keys", ids=array({message.key for message in messages}))
    keys = ApiKey.raw(sql, *values)
    known = admission.Known({k.id: k for k in keys}, {}, {}, {}, Counter(), Counter(), {}, {})
    known.accepted_at.update(_accepted_to(requests, known))
    known.listed.update(do_not_call.listed({message.to for message in messages}))
    for request in requests:
        key, second = request.message.key, request.message.second
        limits = known.key_limits(request)
        known.most.update({each.window_of(key, second): each.number for each in limits})
    known.used.update(KeyUse.of(known.most))
    names = {(*m.unique_key, m.idempotency_digest) for m in messages if m.unique_key}
    known.earlier.update(_earlier(names) if names else {})
    return known


def _accepted_to(requests, known):
    """Lock the limited numbers; return when messages to them were accepted."""
    limited = {each for request in requests if (each := known.recipient_limit(request))}
    lock_numbers({to for to, _, _ in limited})
    since = min(request.message.created_at for request in requests)
    accepted_at = {}
    for to, limit, own in limited:
        latest = accepted_to(to, since - limit.window, own).limit(limit.number)
        accepted_at[to, limit, own] = [message.created_at for message in latest]
    return accepted_at


def _earlier(names):
    """Return the messages stored before with these, by key and idempotency key."""
    rows = [dict(zip(("key", "name", "digest"), each, strict=True)) for each in names]
    sql, values = statement("stored_before", rows=array(rows))
    return {(each.key_id, each.idempotency_key): each for each in Message.raw(sql, *values)}


def _insert(messages):
    """Insert messages in one statement; return how many are stored.

    They go in the order of their idempotency keys: on Postgres, two batches that insert the same
    ones in different orders would deadlock.
    """
    if not messages:
        return 0
    whole = [message.row() for message in sorted(messages, key=lambda each: each.unique_key or ())]
    rows = [{f.column_name: f.db_value(row[f.name]) for f in FIELDS} for row in whole]
    return len(db.insert_rows("message", rows, UNLESS_TAKEN))


def _count(known):
    """Count what is accepted; return False if, meanwhile, others have used what it needs."""
    after = KeyUse.add(known.added, known.refused)
    return all(used <= known.most[each] for each, used in after.items())


queue = Inserts(insert_all)
