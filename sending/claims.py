"""Claims: which sender holds which messages, so that no two send the same one."""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime

from peewee import Case, Value, ValuesList, fn

from database import db, locked
from database.clock import is_ahead
from models import IS_ANSWER, UNCLAIMED, Message, Status, has_status
from sending.attempts import Attempt

# As SQL, like `receipts.sent`: for peewee to write them takes half of a sender's time between sends

HAS_TEXT = """
    SELECT send_at FROM message
    WHERE key_id = api_key.id AND status IN ('queued') AND approved {and_more}
    ORDER BY send_at, id LIMIT 1
"""
"""Return nothing if a key has no message to be sent."""

OF_LANE = "lane = named.value AND key_id = {key} AND status IN ('queued') AND approved"
"""Say that a message of a key is to be sent, and in a lane."""

HAS_TEXT_IN_LANES = "SELECT 1 FROM {any_of_each_lane} LIMIT 1"
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
    message
    WHERE key_id = served.value AND status IN ('queued') AND approved {and_more}
    ORDER BY send_at, id LIMIT ? {lock}
"""
"""Find so many messages of a key, the longest due first."""

THE_FIRST_OF_LANE = """
    message {by_lane} WHERE {of_lane} ORDER BY send_at, id LIMIT ? {lock}
"""
"""Find so many messages of a key in a lane, the longest due first."""

THE_FIRST_IN_LANES = "{few_of_each_lane} ORDER BY send_at, id LIMIT ?"
"""Find so many messages of a key in these lanes, the longest due first."""

CLAIM = """
UPDATE message
SET status = 'sending', claimed_by = ?, claimed_at = ?, claim_number = claim_number + 1,
    claimed_for = ?
WHERE id {are_first}
RETURNING *
"""
"""Claim so many messages of each of these keys, its longest due first."""

READ = "SELECT * FROM message WHERE id {are_first}"
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
    lanes: list[str] | None,
    but_of: Collection[int] = (),
) -> list[Message]:
    """Take up to `limit` messages that answer replies, which may not wait for their key's turn.

    They are claimed for a `carrier`; with `lanes`, only those in one of these. `but_of` are keys
    that are left out.
    """
    those = IS_ANSWER if lanes is None else IS_ANSWER & Message.lane.in_(lanes)
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
        has_text, named = _has_text_in_lanes(), [db.array(lanes)]
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
    lock = db.row_lock("FOR UPDATE SKIP LOCKED")
    if lanes is None or lanes == WITHOUT_LANE:
        first, limits = THE_FIRST.format(and_more=lanes or "", lock=lock), (share,)
    else:
        first, limits = _first_in_lanes(lock), (db.array(lanes), share, share)
    few = _few_of_each(db.rows_of_array("served", "integer"), first)
    sql = statement.format(are_first=db.among(f"SELECT id FROM {few}")).replace("?", db.param)
    return Message.raw(sql, *parameters, db.array(keys), *limits)


# The SQL of lanes, which are the rows `named`, and of keys, the rows `served`: parameters both


def _has_text_in_lanes():
    named, of_lane = db.rows_of_array("named", "text"), OF_LANE.format(key="api_key.id")
    found = db.any_of_each(named, "message", of_lane, "message_lane", "send_at, id")
    return HAS_TEXT_IN_LANES.format(any_of_each_lane=found)


def _first_in_lanes(lock):
    named, of_lane = db.rows_of_array("named", "text"), OF_LANE.format(key="served.value")
    by_lane = db.by_index("message_lane")
    of_one = THE_FIRST_OF_LANE.format(by_lane=by_lane, of_lane=of_lane, lock=lock)
    return THE_FIRST_IN_LANES.format(few_of_each_lane=_few_of_each(named, of_one))


def _few_of_each(rows, first):
    """Return rows, each beside the `few` messages that are found first for it."""
    return db.few_of_each(rows, "message", "id, send_at", first)


def lanes() -> list[str | None]:
    """Return the lanes that messages to be sent are in, None where some are in none yet."""
    return [lane for (lane,) in db.execute_sql(LANES).fetchall()]


def lanes_of_answers() -> set[str]:
    """Return the lanes that texts to be sent are in which answer replies."""
    return {each.lane for each in Message.select(Message.lane).where(IS_ANSWER).distinct()}


def put_back(claimant: uuid.UUID, messages: Collection[Message]) -> int:
    """Give up the claims of messages that could not go yet; they keep their places.

    Claims that are another's by now stay, also if the same sender has claimed the message again.
    """
    if not messages:
        return 0
    pairs = [(Message.id.db_value(each.id), each.claim_number) for each in messages]
    claimed = ValuesList(pairs, alias="claimed")
    id, number = db.typed(claimed, "uuid", "integer")
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
    with db.atomic():
        lost = Message.update(changes).where(these, dead).returning(Message.id)
        ids = [each.id for each in lost.execute()]
        Attempt.lose(ids)
    return len(ids)


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
