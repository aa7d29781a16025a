"""Claim the texts that a carrier is given next, so that no two senders send the same one.

Each step of a claim is an index lookup for a key in a lane, so keys without texts, and texts of
carriers in trouble, are never read.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache
from itertools import product
from random import sample
from uuid import UUID

from texting.access.keys import ApiKey, ids_of
from texting.carriers.lanes import Lane, Routes, is_of_answers
from texting.database import db
from texting.database.statements import array, run, statement
from texting.messages.model import IS_SENDABLE, Message, Status

AT_ONCE = 100
"""How many pairs of lane and key one statement looks up, or more if more are claimed."""


def lanes(known: Collection[str] = ()) -> list[str]:
    """Return the lanes of messages to be sent; the more of them are known, the faster."""
    found, begin = set(), {"", *known}
    with db.reading():
        db.avoid_sorts()
        while begin:
            after = {lane for (lane,) in run("lanes_after", lanes=array(begin)).fetchall()}
            begin = after - found - begin - {None}
            found |= after - {None}
    return sorted(found)


def ready() -> list[tuple[datetime, str, int]]:
    """Return since when the first message of each key in each lane could have been sent.

    Those of paused keys are left out.
    """
    pairs = array(product(lanes(), _keys_with_texts()))
    with db.reading():
        db.avoid_sorts()
        found = run("ready_since", pairs=pairs).fetchall()
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

    def refresh(self, may_take: Callable[[Lane, str], bool]) -> None:
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
        by: str = "claim",
    ) -> list[Message]:
        """Take up to `limit` messages that may be sent, in equal shares of the keys.

        `by` is the statement; "claimable" only finds most of them, some twice.

        Call this in a transaction. Automatic replies come first, then urgent keys, then the others,
        but a probe is simply the next in turn. Each key's longest due comes first; what a key
        cannot use goes to the others. A key that had its turn goes to the end. Nobody else gets the
        messages until they are finished, taken back or taken over.
        """
        if not self.lanes:
            return []
        db.avoid_sorts()
        answers = [lane for lane in self.lanes if is_of_answers(Lane.read(lane))]
        kinds = [(self.keys.keys(), self.lanes)]
        if not is_probe:
            kinds[:0] = (kinds[0][0], answers), (self.urgent, self.lanes)
        claimed, may_take = [], cache(may_take)
        for keys, lanes in kinds:
            while room := limit - len(claimed):
                pairs = self._next(keys, lanes, room, may_take)
                if not pairs:
                    break
                asked = {key: place for place, (_, key) in enumerate(pairs)}
                share = room // len(asked)
                sql, values = statement(by, pairs=array(pairs), share=share)
                more = [*Message.raw(sql, *values)]
                claimed += sorted(more, key=lambda m: (asked[m.key_id], m.send_at, m.id))
                self._note(pairs, Counter(message.key_id for message in more), share)
        return claimed

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
        pairs = array(product(self.lanes, few))
        for lane, key in run("pairs_with_texts", pairs=pairs).fetchall():
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
        return dict(run("keys_with_texts").fetchall())


def claim_these(ids: Collection[UUID]) -> list[Message]:
    """Take those of these messages that may still be sent, as `claim` does."""
    claim = Message.update(status=Status.SENDING, claim_number=Message.claim_number + 1)
    may_go = IS_SENDABLE & Message.key.not_in(ApiKey.paused())
    return [*claim.where(Message.id.in_([*ids]), may_go).returning(Message).execute()]
