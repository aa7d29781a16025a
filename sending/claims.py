"""Claim the texts that a carrier is given next, so that no two senders send the same one.

A claim finds keys by walking an index: each step is one lookup, so keys without texts, and the
texts of carriers in trouble, are never looked at.
"""

import json
from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache
from itertools import product
from typing import NamedTuple
from uuid import UUID

from peewee import SQL

from access.keys import ApiKey, ids_of
from carriers.lanes import Lane, Routes, is_of_answers
from database import db
from messages.model import IS_SENDABLE, Message, Status
from sending.carrier_state import known_to_others

SENDABLE = "status IN ('queued') AND approved"
"""The condition that a message may be sent, spelt as in the index that serves it."""

AT_ONCE = 500
"""Pairs of lanes and keys that are looked up in one statement."""

LANES = f"""
WITH RECURSIVE lanes(lane) AS (
    SELECT * FROM (
        SELECT lane FROM message WHERE {SENDABLE} ORDER BY lane LIMIT 1
    ) AS lowest
    UNION ALL
    SELECT (
        SELECT lane FROM message WHERE {SENDABLE} AND lane > lanes.lane ORDER BY lane LIMIT 1
    ) FROM lanes WHERE lanes.lane IS NOT NULL
)
SELECT lane FROM lanes WHERE lane IS NOT NULL
"""
"""Find the lanes that messages to be sent are in: an index lookup for each."""

WALK = f"""
WITH RECURSIVE walk(lane, key_id, steps) AS (
    SELECT named.value, (
        SELECT key_id FROM message {{by_lane}}
        WHERE (lane, key_id) >= (named.value, CAST(? AS integer) + 0) AND lane <= named.value
            AND {SENDABLE} ORDER BY lane, key_id LIMIT 1
    ), 1 FROM {{named}}
    UNION ALL
    SELECT lane, (
        SELECT key_id FROM message {{by_lane}}
        WHERE (lane, key_id) >= (walk.lane || '', walk.key_id + 1) AND lane <= walk.lane
            AND {SENDABLE} ORDER BY lane, key_id LIMIT 1
    ), steps + 1 FROM walk WHERE key_id IS NOT NULL AND steps < ?
)
SELECT lane, key_id FROM walk WHERE key_id IS NOT NULL
"""
"""Find some keys that have messages to be sent in these lanes, from one on: a lookup for each.

With plain equations, Postgres may look by another index, as in IS_OF_PAIR. SQLite looks by a pair
only if its values are no columns, and have no type of their own, hence `|| ''` and `+ 0`; and with
`>` it would step through all texts of the pair before.
"""

IS_OF_PAIR = """(lane, key_id) >= (pair.lane, pair.key_id)
    AND (lane, key_id) <= (pair.lane, pair.key_id)"""
"""The condition that a message is of a key in a lane.

With plain equations, Postgres may look by another index through all that the key has elsewhere.
"""

WITH_TEXTS = f"""
SELECT lane, key_id FROM {{pairs}} WHERE (
    SELECT 1 FROM message {{by_lane}}
    WHERE {IS_OF_PAIR} AND {SENDABLE} ORDER BY lane, key_id, send_at, id LIMIT 1
) IS NOT NULL
"""
"""Find those of these lanes and keys that have messages to be sent."""

THE_FIRST = f"""
    message {{by_lane}} WHERE {IS_OF_PAIR} AND {SENDABLE}
    ORDER BY lane, key_id, send_at, id LIMIT ? {{lock}}
"""
"""Find some messages of a key in a lane, the longest due first."""

CLAIM = """
UPDATE message SET status = 'sending', claim_number = claim_number + 1
WHERE id {are_first} RETURNING *
"""
"""Claim messages."""

OF_EACH_KEY = """
SELECT {columns} FROM (
    SELECT few.id, few.key_id, few.send_at,
        ROW_NUMBER() OVER (PARTITION BY few.key_id ORDER BY few.send_at, few.id) AS place
    FROM {few}
) AS placed WHERE place <= ?
"""
"""Find some messages of each key over all of its lanes, its longest due first."""


class Found(NamedTuple):
    """A text that could be claimed, as it is stored: to read more of it may be what breaks."""

    id: UUID
    key_id: int
    send_at: int


def lanes() -> list[str]:
    """Return the lanes that messages to be sent are in."""
    with db.atomic():
        db.avoid_sorts()
        return [lane for (lane,) in db.execute_sql(LANES).fetchall()]


def own_lanes(routes: Routes, now: datetime) -> list[str]:
    """Return the lanes that messages to be sent are in, except those that are left to others.

    Texts that may be with a carrier that only other schedulers know are theirs to ask about.
    """
    found = {each: routes.strangers(Lane.read(each)) for each in lanes()}
    others = known_to_others(set().union(*found.values()), now)
    return [each for each, strangers in found.items() if not strangers & others]


class Claims:
    """Claim texts for a carrier, of those lanes and keys that it may be used for.

    `may_take(lane, key name)` says so.
    """

    def __init__(
        self, lanes: Collection[str], routes: Routes, may_take: Callable[[Lane, str], bool]
    ):
        self.named = ids_of(routes.keys) if routes.keys else {}
        self.may_take = cache(may_take)
        self.lanes = [lane for lane in lanes if self._is_any_mine(lane)]

    def claim(self, limit: int, turns: dict[bool, int]) -> list[Message]:
        """Take up to `limit` messages that may be sent, in a transaction, each key's share equal.

        Texts that answer replies come first, then urgent keys, then the others: from the key whose
        turn it is on, among urgent ones (True) and others, each key's longest due first; what a key
        cannot use goes to the others.
        Nobody else gets the messages until they are finished, taken back or taken over.
        """
        kinds = (self._of_answers, 0), (self._urgent, turns[True]), (self._others, turns[False])
        return self._claim(kinds, limit)

    def claim_next(self, turns: dict[bool, int]) -> list[Message]:
        """Take one message, of the next key whose turn it is, urgent or not."""
        return self._claim([(self._others, turns[False])], 1)

    def find(self, limit: int, turns: dict[bool, int]) -> list[UUID]:
        """Return the ids of messages that `claim` would take, or most of them."""
        kinds = (self._of_answers, 0), (self._urgent, turns[True]), (self._others, turns[False])
        return [*dict.fromkeys(each.id for each in self._claim(kinds, limit, _find))]

    def _claim(self, kinds, limit, take=None):
        """Claim messages of each kind: how to find keys that have some, and which is the first."""
        if not self.lanes:
            return []
        db.avoid_sorts()
        paused, claimed = {key.id for key in ApiKey.paused()}, []
        for find, begin in kinds:
            passed_over = {*paused}
            while room := limit - len(claimed):
                pairs = [each for each in find(begin, room, passed_over) if self._is_mine(*each)]
                keys = {key for _, key in pairs} - passed_over
                keys = sorted(keys, key=lambda key: (key < begin, key))[:room]
                if not keys:
                    break
                share = room // len(keys)
                more = (take or _claim)([pair for pair in pairs if pair[1] in keys], share)
                claimed += sorted(more, key=lambda m: (keys.index(m.key_id), m.send_at, m.id))
                # The rest is empty, or others are claiming theirs just now
                passed_over |= {key for key in keys if _count(more, key) < share}
                begin = keys[-1] + 1
        return claimed

    def _is_mine(self, lane, key):
        return self.may_take(Lane.read(lane), self.named.get(key, ""))

    def _is_any_mine(self, lane):
        return any(self.may_take(Lane.read(lane), key) for key in ("", *self.named.values()))

    def _of_answers(self, begin, limit, passed_over):
        own = [lane for lane in self.lanes if is_of_answers(Lane.read(lane))]
        return _walk_around(own, begin, limit + len(passed_over))

    def _urgent(self, begin, limit, passed_over):
        """Look through the urgent keys, a few at a time, in the order of their turns."""
        urgent = sorted(_urgent(), key=lambda key: (key < begin, key))
        pairs, few = [], max(1, AT_ONCE // len(self.lanes))
        while urgent and len({key for _, key in pairs} - passed_over) < limit:
            pairs += _with_texts(product(self.lanes, urgent[:few]))
            del urgent[:few]
        return pairs

    def _others(self, begin, limit, passed_over):
        """Walk the lanes that any key may use; look up the others for the keys of CARRIER_URL."""
        of_all = {lane for lane in self.lanes if self.may_take(Lane.read(lane), "")}
        pairs = _walk_around([*of_all], begin, limit + len(passed_over) + len(self.named))
        return pairs + _with_texts(product({*self.lanes} - of_all, self.named))


def _urgent():
    return {id for (id,) in ApiKey.select(ApiKey.id).where(SQL("urgent")).tuples()}


def _count(messages, key):
    return sum(message.key_id == key for message in messages)


def _walk_around(lanes, begin, limit):
    """Return pairs of lanes and keys from one key on, and then from the lowest."""
    pairs = _walk(lanes, begin, limit)
    if begin and len({key for _, key in pairs}) < limit:
        pairs += [(lane, key) for lane, key in _walk(lanes, 0, limit) if key < begin]
    return pairs


def _walk(lanes, begin, limit):
    named, by_lane = db.rows_of_array("named", "text"), db.by_index("message_lane")
    sql = WALK.format(named=named, by_lane=by_lane).replace("?", db.param)
    parameters = begin, db.array(lanes), limit
    return db.execute_sql(sql, parameters).fetchall() if lanes else []


def _with_texts(pairs):
    if not (pairs := [*pairs]):
        return []
    sql = WITH_TEXTS.format(pairs=db.rows_of_pairs("pair"), by_lane=db.by_index("message_lane"))
    return db.execute_sql(sql.replace("?", db.param), (json.dumps(pairs),)).fetchall()


def _claim(pairs, share):
    sql = CLAIM.format(are_first=db.among(_of_each_key("id"))).replace("?", db.param)
    return [*Message.raw(sql, json.dumps(pairs), share, share)]


def claim_these(ids: Collection[UUID]) -> list[Message]:
    """Take those of these messages that may still be sent, as `claim` does."""
    claim = Message.update(status=Status.SENDING, claim_number=Message.claim_number + 1)
    claim = claim.where(Message.id.in_([*ids]), IS_SENDABLE).returning(Message)
    return [*claim.execute()]


def _find(pairs, share):
    sql = _of_each_key("id, key_id, send_at").replace("?", db.param)
    found = db.execute_sql(sql, (json.dumps(pairs), share, share)).fetchall()
    return [Found(Message.id.python_value(id), *more) for id, *more in found]


def _of_each_key(columns):
    """Return the SQL of these columns of OF_EACH_KEY."""
    by_lane, lock = db.by_index("message_lane"), db.lock_unlocked
    first = THE_FIRST.format(by_lane=by_lane, lock=lock)
    few = db.few_of_each(db.rows_of_pairs("pair"), "message", "id, key_id, send_at", first)
    return OF_EACH_KEY.format(few=few, columns=columns)
