"""Claims: which sender holds which messages, so that no two send the same one."""

import json
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

from peewee import Case, Value, ValuesList, fn

from database import db, locked, on_postgres
from database.clock import is_ahead
from models import IS_ANSWER, UNCLAIMED, Message, Status, has_status

# As SQL, like `receipts.sent`: for peewee to write them takes half of a sender's time between sends

HAS_TEXT = """
    SELECT send_at FROM message
    WHERE key_id = api_key.id AND status IN ('queued') AND approved {and_more}
    ORDER BY send_at, id LIMIT 1
"""
"""Return nothing if a key has no message to be sent."""

HAS_TEXT_IN_LANES_ON_POSTGRES = """
    SELECT 1 FROM unnest(CAST(? AS text[])) AS lane(name) CROSS JOIN LATERAL (
        SELECT 1 FROM message
        WHERE lane = lane.name AND key_id = api_key.id AND status IN ('queued') AND approved
        ORDER BY send_at, id LIMIT 1
    ) AS any_of_it LIMIT 1
"""
"""Return nothing if a key has no message to be sent in these lanes."""

HAS_TEXT_IN_LANES_ON_SQLITE = """
    SELECT 1 FROM json_each(?) AS named CROSS JOIN message INDEXED BY message_lane
    WHERE lane = named.value AND key_id = api_key.id AND status IN ('queued') AND approved
    LIMIT 1
"""
"""Return nothing if a key has no message to be sent in these lanes."""

KEYS_IN_TURN = """
WITH ready AS NOT MATERIALIZED (
    SELECT id, urgent FROM api_key
    WHERE (role = 'tester') = ? AND ({has_text}) IS NOT NULL
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

THE_FIRST = """
        SELECT id FROM message
        WHERE key_id = served.{key} AND status IN ('queued') AND approved {and_more}
        ORDER BY send_at, id LIMIT ?
"""
"""Find so many messages of a key, the longest due first."""

THE_FIRST_IN_LANES_ON_POSTGRES = """
        SELECT few_in_each.id FROM unnest(CAST(? AS text[])) AS lane(name) CROSS JOIN LATERAL (
            SELECT id, send_at FROM message
            WHERE lane = lane.name AND key_id = served.key AND status IN ('queued') AND approved
            ORDER BY send_at, id LIMIT ?
            FOR UPDATE SKIP LOCKED
        ) AS few_in_each
        ORDER BY send_at, id LIMIT ?
"""
"""Find so many messages of a key in these lanes, the longest due first."""

THE_FIRST_IN_LANES_ON_SQLITE = """
        SELECT each_of_it.id FROM json_each(?) AS named CROSS JOIN message AS each_of_it
        WHERE each_of_it.id IN (
            SELECT id FROM message INDEXED BY message_lane
            WHERE lane = named.value AND key_id = served.value
                AND status IN ('queued') AND approved
            ORDER BY send_at, id LIMIT ?
        )
        ORDER BY each_of_it.send_at, each_of_it.id LIMIT ?
"""
"""Find so many messages of a key in these lanes, the longest due first."""

OF_KEYS_ON_POSTGRES = """
id = ANY(ARRAY(
    SELECT few.id FROM unnest(CAST(? AS integer[])) AS served(key) CROSS JOIN LATERAL ({few}) AS few
))
"""
"""Say whether a message is among the first of one of these keys; locked ones are passed over."""

OF_KEYS_ON_SQLITE = """
id IN (
    SELECT few.id FROM json_each(?) AS served CROSS JOIN message AS few ON few.id IN ({few})
)
"""
"""Say whether a message is among the first of one of these keys."""

CLAIM = """
UPDATE message
SET status = 'sending', claimed_by = ?, claimed_at = ?, claim_number = claim_number + 1,
    claimed_for = ?
WHERE {of_keys}
RETURNING *
"""
"""Claim so many messages of each of these keys, its longest due first."""

READ = "SELECT * FROM message WHERE {of_keys}"
"""Read so many messages of each of these keys, its longest due first."""

WITHOUT_LANE = "AND lane IS NULL"
"""Say that a message has no lane yet."""

LANES = """
WITH RECURSIVE lanes(lane) AS (
    SELECT * FROM (
        SELECT lane FROM message WHERE status IN ('queued') AND approved AND lane IS NOT NULL
        ORDER BY lane LIMIT 1
    ) AS lowest
    UNION ALL
    SELECT (
        SELECT lane FROM message
        WHERE status IN ('queued') AND approved AND lane > lanes.lane
        ORDER BY lane LIMIT 1
    ) FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL
UNION ALL
SELECT * FROM (
    SELECT lane FROM message WHERE status IN ('queued') AND approved AND lane IS NULL LIMIT 1
) AS without_one
"""
"""Find the lanes that messages to be sent are in: an index lookup for each."""


def claim_answers(
    claimant: uuid.UUID,
    limit: int,
    now: datetime,
    carrier: str,
    lane: str | None,
    but_of: Collection[int] = (),
) -> list[Message]:
    """Take up to `limit` messages that answer replies, which may not wait for their key's turn.

    They are claimed for a `carrier`; with a `lane`, only those in it. `but_of` are keys that are
    left out.
    """
    those = IS_ANSWER if lane is None else IS_ANSWER & (Message.lane == lane)
    if but_of:
        those &= Message.key.not_in([*but_of])
    first = Message.select(Message.id).where(those).order_by(Message.send_at, Message.id)
    claim = {"claimed_by": claimant, "claimed_at": now, "claimed_for": carrier}
    claim |= {"claim_number": Message.claim_number + 1}
    taken = Message.update(status=Status.SENDING, **claim)
    return list(taken.where(locked(Message.id, first.limit(limit))).returning(Message).execute())


def claim(
    claimant: uuid.UUID,
    limit: int,
    now: datetime,
    first_key: int = 0,
    testers: bool = False,
    first_urgent: int = 0,
    carrier: str | None = None,
    lanes: list[str] | None = None,
    but_of: Collection[int] = (),
    others_first: bool = False,
) -> list[Message]:
    """Take up to `limit` messages that may be sent, an equal share of each key.

    Urgent keys are served before all others, from `first_urgent` on. Keys are served in the order
    of their ids, from `first_key` on and then from the lowest. Each has its own longest due first;
    a share that it cannot use goes to the others. `testers` serves only testers' keys; without it,
    they are left out. Nobody else gets the messages until they are finished, put back or taken
    over. They are claimed for a `carrier`; with `lanes`, only those in one of these. `but_of` are
    keys that are left out; with `others_first`, urgent keys are served after all others.
    """
    claim = Message.claimed_by.db_value(claimant), Message.claimed_at.db_value(now), carrier
    claimed, passed_over, first = [], {*but_of}, {True: first_urgent, False: first_key}
    while room := limit - len(claimed):
        is_urgent, keys = _keys_in_turn(room, first, testers, passed_over, lanes, others_first)
        if not keys:
            break
        more = list(_of_keys(CLAIM, keys, room // len(keys), claim, lanes))
        if not more:  # others are claiming theirs just now
            passed_over.update(keys)
        claimed += sorted(more, key=lambda m: (keys.index(m.key_id), m.send_at, m.id))
        first[is_urgent] = keys[-1] + 1
    return claimed


def without_route(
    limit: int, first: dict[bool, int], testers: bool, lane: str | None = None
) -> list[Message]:
    """Return up to `limit` messages to be sent that are in no lane, or in an old one.

    Keys have shares as in `claim`, from the `first` ones on, by whether they are urgent. On
    Postgres the messages are locked, and those that are being changed are left out.
    """
    lanes = WITHOUT_LANE if lane is None else [lane]
    _, keys = _keys_in_turn(limit, first, testers, (), lanes)
    return list(_of_keys(READ, keys, limit // len(keys), (), lanes)) if keys else []


def _keys_in_turn(limit, first, testers, passed_over, lanes=None, others_first=False):
    """Return up to `limit` keys that have messages to be sent, in the order of their service.

    They are urgent ones, as long as there are some, or others; say which. With `others_first` it is
    the other way round.
    """
    has_text, named = HAS_TEXT.format(and_more=lanes if lanes == WITHOUT_LANE else ""), []
    if lanes is not None and lanes != WITHOUT_LANE:
        has_text = HAS_TEXT_IN_LANES_ON_POSTGRES if on_postgres() else HAS_TEXT_IN_LANES_ON_SQLITE
        named = [_array(lanes)]
    statement = KEYS_IN_TURN.format(has_text=has_text).replace("?", db.param)
    few = limit + len(passed_over)
    bounds = [(first[is_urgent], few) * 2 for is_urgent in (True, False)]
    found = db.execute_sql(statement, (testers, *named, *bounds[0], *bounds[1])).fetchall()
    ready = [(key, bool(urgent)) for key, urgent in found if key not in passed_over]
    is_urgent = (all if others_first else any)(urgent for _, urgent in ready)
    keys, begin = [key for key, urgent in ready if urgent == is_urgent], first[is_urgent]
    return is_urgent, sorted(keys, key=lambda key: (key < begin, key))[:limit]


def _of_keys(statement, keys, share, parameters, lanes):
    """Return up to `share` messages of each of these keys, the longest due first."""
    if lanes is None or lanes == WITHOUT_LANE:
        few = THE_FIRST.format(key="key" if on_postgres() else "value", and_more=lanes or "")
        few += "FOR UPDATE SKIP LOCKED" if on_postgres() else ""
        limits = (share,)
    else:
        few = THE_FIRST_IN_LANES_ON_POSTGRES if on_postgres() else THE_FIRST_IN_LANES_ON_SQLITE
        limits = (_array(lanes), share, share)
    of_keys = OF_KEYS_ON_POSTGRES if on_postgres() else OF_KEYS_ON_SQLITE
    sql = statement.format(of_keys=of_keys.format(few=few)).replace("?", db.param)
    return Message.raw(sql, *parameters, _array(keys), *limits)


def _array(values):
    """Return a parameter that is several values."""
    return [*values] if on_postgres() else json.dumps([*values])


def lanes() -> list[str | None]:
    """Return the lanes that messages to be sent are in, None where some are in none yet."""
    return [lane for (lane,) in db.execute_sql(LANES).fetchall()]


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
    back = Message.update(status=Status.QUEUED, **UNCLAIMED)
    return back.from_(claimed).where(mine).execute()


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
    ahead = has_status(Status.SENDING) & is_ahead(Message.claimed_at, now)
    move = Message.update(claimed_at=now, in_doubt_since=since)
    move.where(locked(Message.id, Message.select(Message.id).where(ahead)), ahead).execute()


def take_over(before: datetime) -> int:
    """Queue messages that a sender claimed before an instant and never finished; count them.

    They are in doubt: the sender may have died after the carrier's yes. One that is being changed
    right now is left out: its sender lives.
    """
    dead = has_status(Status.SENDING) & (Message.claimed_at < before)
    changes = {
        **UNCLAIMED,
        Message.status: Status.QUEUED,
        Message.carrier: fn.COALESCE(Message.claimed_for, Message.carrier),
        Message.lane: Case(None, [(Message.answers.is_null(), None)], Message.lane),
        Message.take_overs: Message.take_overs + 1,
        Message.in_doubt: Message.in_doubt + 1,
        Message.in_doubt_with: _doubts_with(Message.claimed_for),
        Message.in_doubt_since: fn.COALESCE(Message.in_doubt_since, Message.claimed_at),
    }
    these = locked(Message.id, Message.select(Message.id).where(dead))
    return Message.update(changes).where(these, dead).execute()


def _doubts_with(carrier):
    """Return the carriers that may have taken a message, and this one, as SQL."""
    before = fn.COALESCE(Message.in_doubt_with, "")
    return fn.TRIM(before.concat(" ").concat(fn.COALESCE(carrier, "")))


def has_twin(message: Message, others: Collection[Message]) -> bool:
    """Say whether an equal text is being sent for another message; `others` are not being sent."""
    alike = (Message.to == message.to) & (Message.message == message.message)
    not_these = [message.id, *(other.id for other in others)]
    being_sent = alike & (Message.status == Status.SENDING) & Message.id.not_in(not_these)
    return Message.select().where(being_sent).exists()
