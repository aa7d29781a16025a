"""Claims: which sender holds which messages, so that no two send the same one."""

import json
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

from peewee import Value, ValuesList, fn

from database import db, locked, on_postgres
from database.clock import SKEW
from models import IS_ANSWER, Message, Status, has_status

# As SQL, like `receipts.sent`: for peewee to write them takes half of a sender's time between sends

KEYS_IN_TURN = """
WITH ready AS NOT MATERIALIZED (
    SELECT id, urgent FROM api_key
    WHERE (role = 'tester') = ? AND (
        SELECT send_at FROM message
        WHERE key_id = api_key.id AND status IN ('queued') AND approved
        ORDER BY send_at, id LIMIT 1
    ) IS NOT NULL
)
SELECT * FROM (SELECT * FROM ready WHERE urgent AND id >= ? ORDER BY id LIMIT ?) AS few_urgent_on
UNION ALL
SELECT * FROM (SELECT * FROM ready WHERE urgent AND id < ? ORDER BY id LIMIT ?) AS few_urgent_before
UNION ALL
SELECT * FROM (SELECT * FROM ready WHERE NOT urgent AND id >= ? ORDER BY id LIMIT ?) AS few_on
UNION ALL
SELECT * FROM (SELECT * FROM ready WHERE NOT urgent AND id < ? ORDER BY id LIMIT ?) AS few_before
"""
"""Find keys of testers, or of others, that have messages to be sent, from one on and before it.

Urgent keys and the others are found apart.
"""

CLAIM_ON_POSTGRES = """
UPDATE message
SET status = 'sending', claimed_by = ?, claimed_at = ?, claim_number = claim_number + 1
WHERE id = ANY(ARRAY(
    SELECT few.id FROM unnest(CAST(? AS integer[])) AS served(key) CROSS JOIN LATERAL (
        SELECT id FROM message
        WHERE key_id = served.key AND status IN ('queued') AND approved
        ORDER BY send_at, id LIMIT ?
        FOR UPDATE SKIP LOCKED
    ) AS few
))
RETURNING *
"""
"""Claim so many messages of each of these keys, its longest due first; pass over locked ones."""

CLAIM_ON_SQLITE = """
UPDATE message
SET status = 'sending', claimed_by = ?, claimed_at = ?, claim_number = claim_number + 1
WHERE id IN (
    SELECT few.id FROM json_each(?) AS served CROSS JOIN message AS few ON few.id IN (
        SELECT id FROM message
        WHERE key_id = served.value AND status IN ('queued') AND approved
        ORDER BY send_at, id LIMIT ?
    )
)
RETURNING *
"""
"""Claim so many messages of each of these keys, its longest due first."""


def claim_answers(claimant: uuid.UUID, limit: int, now: datetime) -> list[Message]:
    """Take up to `limit` messages that answer replies, which may not wait for their key's turn."""
    first = Message.select(Message.id).where(IS_ANSWER).order_by(Message.send_at, Message.id)
    number = Message.claim_number + 1
    taken = Message.update(
        status=Status.SENDING, claimed_by=claimant, claimed_at=now, claim_number=number
    )
    return list(taken.where(locked(Message.id, first.limit(limit))).returning(Message).execute())


def claim(
    claimant: uuid.UUID,
    limit: int,
    now: datetime,
    first_key: int = 0,
    testers: bool = False,
    first_urgent: int = 0,
) -> list[Message]:
    """Take up to `limit` messages that may be sent, an equal share of each key.

    Urgent keys are served before all others, from `first_urgent` on. Keys are served in the order
    of their ids, from `first_key` on and then from the lowest. Each has its own longest due first;
    a share that it cannot use goes to the others. `testers` serves only testers' keys; without it,
    they are left out. Nobody else gets the messages until they are finished, put back or taken
    over.
    """
    claimed, passed_over, first = [], set(), {True: first_urgent, False: first_key}
    while room := limit - len(claimed):
        is_urgent, keys = _keys_in_turn(room, first, testers, passed_over)
        if not keys:
            break
        more = list(_claim_of(keys, room // len(keys), claimant, now))
        if not more:  # others are claiming theirs just now
            passed_over.update(keys)
        claimed += sorted(more, key=lambda m: (keys.index(m.key_id), m.send_at, m.id))
        first[is_urgent] = keys[-1] + 1
    return claimed


def _keys_in_turn(limit, first, testers, passed_over):
    """Return up to `limit` keys that have messages to be sent, in the order of their service.

    They are urgent ones, as long as there are some, or others; say which.
    """
    statement, few = KEYS_IN_TURN.replace("?", db.param), limit + len(passed_over)
    bounds = [(first[is_urgent], few) * 2 for is_urgent in (True, False)]
    found = db.execute_sql(statement, (testers, *bounds[0], *bounds[1])).fetchall()
    ready = [(key, bool(urgent)) for key, urgent in found if key not in passed_over]
    is_urgent = any(urgent for _, urgent in ready)
    keys, begin = [key for key, urgent in ready if urgent == is_urgent], first[is_urgent]
    return is_urgent, sorted(keys, key=lambda key: (key < begin, key))[:limit]


def _claim_of(keys, share, claimant, now):
    """Take up to `share` messages of each of these keys, the longest due first."""
    statement = CLAIM_ON_POSTGRES if on_postgres() else CLAIM_ON_SQLITE
    return Message.raw(
        statement.replace("?", db.param),
        Message.claimed_by.db_value(claimant),
        Message.claimed_at.db_value(now),
        keys if on_postgres() else json.dumps(keys),
        share,
    )


def put_back(claimant: uuid.UUID, messages: Collection[Message]) -> int:
    """Give up the claims of messages that could not go yet; they keep their places.

    Claims that are another's by now stay, also if the same sender has claimed the message again.
    """
    if not messages:
        return 0
    pairs = [(Message.id.db_value(each.id), each.claim_number) for each in messages]
    claimed = ValuesList(pairs, alias="claimed")
    id, number = claimed.c.column1, claimed.c.column2  # as both databases name them
    if on_postgres():  # which would guess their types
        id, number = id.cast("uuid"), number.cast("integer")
    mine = has_status(Status.SENDING) & (Message.claimed_by == claimant)
    mine &= (Message.id == id) & (Message.claim_number == number)
    unclaimed = {"status": Status.QUEUED, "claimed_by": None, "claimed_at": None}
    return Message.update(unclaimed).from_(claimed).where(mine).execute()


def renew(claimant: uuid.UUID, messages: Iterable[Message], now: datetime) -> set[uuid.UUID]:
    """Renew the claims of a living sender; return the ids of the messages that it still holds.

    If it dies later, they are in doubt since it claimed them first.
    """
    numbers = {message.id: message.claim_number for message in messages}
    if not numbers:
        return set()
    these = (Message.claimed_by == claimant) & Message.id.in_([*numbers])
    since = fn.COALESCE(Message.in_doubt_since, Message.claimed_at)
    renewed = Message.update(claimed_at=now, in_doubt_since=since)
    renewed = renewed.where(has_status(Status.SENDING) & these)
    found = renewed.returning(Message.id, Message.claim_number).execute()
    return {each.id for each in found if each.claim_number == numbers[each.id]}


def correct(now: datetime) -> None:
    """Let claims that were noted by a clock that has been set back since begin now.

    How far that clock was ahead is not known. Texts are looked for at the carrier since an instant
    that is as long ago as their claim is in the future.
    """
    this = Value(Message.claimed_at.db_value(now), converter=False)
    since = fn.COALESCE(Message.in_doubt_since, this + this - Message.claimed_at)
    ahead = has_status(Status.SENDING) & (Message.claimed_at > now + SKEW)
    move = Message.update(claimed_at=now, in_doubt_since=since)
    move.where(locked(Message.id, Message.select(Message.id).where(ahead)), ahead).execute()


def take_over(before: datetime) -> int:
    """Queue messages that a sender claimed before an instant and never finished; count them.

    They are in doubt: the sender may have died after the carrier's yes. One that is being changed
    right now is left out: its sender lives.
    """
    dead = has_status(Status.SENDING) & (Message.claimed_at < before)
    changes = {
        Message.status: Status.QUEUED,
        Message.claimed_by: None,
        Message.claimed_at: None,
        Message.take_overs: Message.take_overs + 1,
        Message.in_doubt: Message.in_doubt + 1,
        Message.in_doubt_since: fn.COALESCE(Message.in_doubt_since, Message.claimed_at),
    }
    these = locked(Message.id, Message.select(Message.id).where(dead))
    return Message.update(changes).where(these, dead).execute()


def has_twin(message: Message, others: Collection[Message]) -> bool:
    """Say whether an equal text is being sent for another message; `others` are not being sent."""
    alike = (Message.to == message.to) & (Message.message == message.message)
    not_these = [message.id, *(other.id for other in others)]
    being_sent = alike & (Message.status == Status.SENDING) & Message.id.not_in(not_these)
    return Message.select().where(being_sent).exists()
