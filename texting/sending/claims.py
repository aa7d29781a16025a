"""Claim the texts that a carrier is given next, so that no two senders send the same one.

Each step of a claim is an index lookup for a key in a lane, so keys without texts, and texts of
carriers in trouble, are never read.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache
from itertools import product
from random import sample
from typing import NamedTuple
from uuid import UUID

from texting.access.keys import ApiKey, ids_of
from texting.carriers.lanes import Lane, Routes, is_of_answers
from texting.database import db
from texting.messages.model import IS_SENDABLE, Message, Status

SENDABLE = "status IN ('queued') AND approved"
"""The condition that a message may be sent, word for word as in its index."""

AT_ONCE = 100
"""How many pairs of lane and key one statement looks up, or more if more are claimed."""

NEXT = f"""
SELECT (SELECT lane FROM message WHERE lane > value AND {SENDABLE} ORDER BY lane LIMIT 1)
FROM {{before}}
"""
"""For each of some lanes, find the next one in the alphabet with messages to be sent."""

KEYS = f"""
SELECT id, urgent FROM api_key WHERE paused_at IS NULL AND (
    SELECT 1 FROM message {{by_key}} WHERE key_id = api_key.id AND {SENDABLE}
    ORDER BY key_id, send_at, id LIMIT 1
) IS NOT NULL
"""
"""Find the keys that have messages to be sent, in any lane."""

IS_OF_PAIR = """(lane, key_id) >= (pair.lane, pair.key_id)
    AND (lane, key_id) <= (pair.lane, pair.key_id)"""
"""The condition that a message is of a key in a lane.

With plain equations, Postgres may use another index, and read all that the key has elsewhere.
"""

WITH_TEXTS = f"""
SELECT lane, key_id FROM {{pairs}} WHERE (
    SELECT 1 FROM message {{by_lane}}
    WHERE {IS_OF_PAIR} AND {SENDABLE} ORDER BY lane, key_id, send_at, id LIMIT 1
) IS NOT NULL
"""
"""Find which of these pairs of lane and key have messages to be sent."""

THE_FIRST = f"""
    message {{by_lane}} WHERE {IS_OF_PAIR} AND {SENDABLE}
    ORDER BY lane, key_id, send_at, id LIMIT ? {{lock}}
"""
"""Find some messages of a key in a lane, longest due first."""

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
"""Find some messages of each key over all its lanes, longest due first."""


READY = """
SELECT CASE WHEN few.approved_at > few.send_at THEN few.approved_at ELSE few.send_at END,
    pair.lane, pair.key_id
FROM {few}
"""
"""Find since when the first messages of keys in lanes could have been sent."""


class Found(NamedTuple):
    """A text that could be claimed, with few columns: reading the others may be what breaks."""

    id: UUID
    key_id: int
    send_at: int


def lanes(known: Collection[str] = ()) -> list[str]:
    """Return the lanes of messages to be sent; the more of them are known, the faster."""
    found, begin = set(), {"", *known}
    with db.reading():
        db.avoid_sorts()
        while begin:
            sql = NEXT.format(before=db.rows_of_array("before", "text"))
            after = {lane for (lane,) in _sql(sql, db.array(begin)).fetchall()}
            begin = after - found - begin - {None}
            found |= after - {None}
    return sorted(found)


def ready() -> list[tuple[datetime, str, int]]:
    """Return since when the first message of each key in each lane could have been sent.

    Those of paused keys are left out.
    """
    first = THE_FIRST.format(by_lane=db.by_index("message_lane"), lock="")
    columns = "id, lane, key_id, send_at, approved_at"
    few = db.few_of_each(db.rows_of_pairs("pair"), "message", columns, first)
    pairs = json.dumps([*product(lanes(), _keys_with_texts())])
    with db.reading():
        db.avoid_sorts()
        found = _sql(READY.format(few=few), pairs, 1).fetchall()
    return [(Message.send_at.python_value(at), *way) for at, *way in found]


class Turns:
    """The keys that have texts to be sent, in the order of their turns at a carrier.

    Their lanes are those found by the last `look`: a key that had no texts is not asked again
    before the next one.
    """

    def __init__(self, routes: Routes):
        self.routes, self.names, self.urgent = routes, {}, frozenset()
        self.known, self.lanes = [], []  # all lanes with texts, and those open to us
        self.keys = OrderedDict()  # next in turn first: each key's lanes, None until asked

    def look(self, may_take: Callable[[Lane, str], bool]) -> None:
        """Find the keys and lanes of the texts for which `may_take(lane, key name)` is true.

        New keys come last, in random order, or schedulers that make single passes would all begin
        with the same one.
        """
        self.names = ids_of(self.routes.keys) if self.routes.keys else {}
        names = {"", *self.names.values()}
        self.known = lanes(self.known)
        read = [(text, Lane.read(text)) for text in self.known]
        self.lanes = [text for text, lane in read if any(may_take(lane, name) for name in names)]
        keys = _keys_with_texts() if self.lanes else {}
        new = sample(others := [*keys.keys() - self.keys.keys()], len(others))
        kept = [key for key in self.keys if key in keys]
        self.keys = OrderedDict.fromkeys([*kept, *new])
        self.urgent = {key for key, urgent in keys.items() if urgent}

    def claim(
        self,
        limit: int,
        may_take: Callable[[Lane, str], bool],
        is_probe: bool = False,
        take: Callable | None = None,
    ) -> list[Message]:
        """Take up to `limit` messages that may be sent, in equal shares of the keys.

        Call this in a transaction. Automatic replies come first, then urgent keys, then the others,
        but a probe is simply the next in turn. Each key's longest due comes first; what a key
        cannot use goes to the others. A key that had its turn goes to the end. Nobody else gets the
        messages until they are finished, taken back or taken over.
        """
        if not self.lanes:
            return []
        db.avoid_sorts()
        paused = {key.id for key in ApiKey.paused()}
        answers = [lane for lane in self.lanes if is_of_answers(Lane.read(lane))]
        kinds = [(self.keys.keys() - paused, self.lanes)]
        if not is_probe:
            kinds[:0] = (kinds[0][0], answers), (self.urgent - paused, self.lanes)
        claimed, may_take = [], cache(may_take)
        for keys, lanes in kinds:
            while room := limit - len(claimed):
                pairs = self._next(keys, lanes, room, may_take)
                if not pairs:
                    break
                asked = {key: place for place, (_, key) in enumerate(pairs)}
                share = room // len(asked)
                more = (take or _claim)(pairs, share)
                claimed += sorted(more, key=lambda m: (asked[m.key_id], m.send_at, m.id))
                self._note(pairs, Counter(message.key_id for message in more), share)
        return claimed

    def find(self, limit: int, may_take: Callable[[Lane, str], bool], is_probe: bool) -> list[UUID]:
        """Return the ids of messages that `claim` would take, or most of them."""
        found = self.claim(limit, may_take, is_probe, _find)
        return [*dict.fromkeys(each.id for each in found)]

    def put_back(self, messages: Collection[Message]) -> None:
        """Give the next turns to the keys of claimed messages that could not go yet."""
        for message in reversed(messages):
            self.keys[message.key_id].add(message.lane)
            self.keys.move_to_end(message.key_id, last=False)

    def _next(self, keys, lanes, count, may_take):
        """Return the pairs of lane and key for the next few of these keys."""
        pairs, keys = [], [key for key in self.keys if key in keys and lanes]
        for key in keys:
            if self.keys[key] is None:
                self._ask([each for each in keys if self.keys[each] is None], count)
            name = self.names.get(key, "")
            own = self.keys[key].intersection(lanes)
            own = [(lane, key) for lane in own if may_take(Lane.read(lane), name)]
            pairs, count = pairs + own, count - bool(own)
            if not count:
                break
        return pairs

    def _ask(self, keys, count):
        """Find the lanes in which these keys have texts, for `count` keys or AT_ONCE pairs."""
        few = keys[: max(count, AT_ONCE // len(self.lanes))]
        self.keys.update((key, set()) for key in few)
        sql = WITH_TEXTS.format(pairs=db.rows_of_pairs("pair"), by_lane=db.by_index("message_lane"))
        for lane, key in _sql(sql, json.dumps([*product(self.lanes, few)])).fetchall():
            self.keys[key].add(lane)

    def _note(self, pairs, taken, share):
        """Move the keys that had their turn to the end, without the lanes that are now empty."""
        for lane, key in pairs:
            self.keys.move_to_end(key)
            if taken[key] < share:  # or others are claiming its texts right now
                self.keys[key].discard(lane)


def _keys_with_texts():
    """Return the keys that have texts to be sent, and whether they are urgent."""
    with db.reading():
        db.avoid_sorts()
        return dict(_sql(KEYS.format(by_key=db.by_index("message_sendable_key"))).fetchall())


def _claim(pairs, share):
    sql = CLAIM.format(are_first=db.among(_of_each_key("id"))).replace("?", db.param)
    return [*Message.raw(sql, json.dumps(pairs), share, share)]


def claim_these(ids: Collection[UUID]) -> list[Message]:
    """Take those of these messages that may still be sent, as `claim` does."""
    claim = Message.update(status=Status.SENDING, claim_number=Message.claim_number + 1)
    claim = claim.where(Message.id.in_([*ids]), IS_SENDABLE).returning(Message)
    return [*claim.execute()]


def _find(pairs, share):
    found = _sql(_of_each_key("id, key_id, send_at"), json.dumps(pairs), share, share).fetchall()
    return [Found(Message.id.python_value(id), *more) for id, *more in found]


def _of_each_key(columns):
    """Return the SQL of these columns of OF_EACH_KEY."""
    first = THE_FIRST.format(by_lane=db.by_index("message_lane"), lock=db.lock_unlocked)
    few = db.few_of_each(db.rows_of_pairs("pair"), "message", "id, key_id, send_at", first)
    return OF_EACH_KEY.format(few=few, columns=columns)


def _sql(sql, *parameters):
    return db.execute_sql(sql.replace("?", db.param), parameters)
