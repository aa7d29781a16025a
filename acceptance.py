"""Store new messages, unless a limit is reached.

Messages that arrive together share a transaction and a statement, and nothing else: each has its
own outcome, the same as if it had been stored alone.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from database import EPOCH, db
from inserts import Inserts
from keys import ApiKey, Role
from limits import (
    SECOND,
    KeyTally,
    KeyUse,
    Limit,
    NumberTally,
    lock_numbers,
    parse,
)
from models import Message, Status


class AlreadyAnswered(Exception):
    """Another request with the same idempotency key was stored first."""


class KeyRevoked(Exception):
    """The key was revoked while its request was under way."""


class NewMessage(NamedTuple):
    """All that is decided of a message before it is stored."""

    id: UUID
    key: int
    to: str  # E.164
    country: str
    message: str
    parts: int
    send_date: datetime | None
    send_at: datetime
    status: Status
    manual_mode: bool
    available_to_group: bool
    check_dnc: bool
    max_retries: int
    created_at: datetime
    idempotency_key: str | None
    request_digest: str | None
    answer: str | None

    @property
    def second(self) -> int:
        """The second since 1970 in which it was accepted."""
        return (self.created_at - EPOCH) // SECOND

    @property
    def name(self) -> tuple[int, str] | None:
        """What no two messages share: the key and idempotency key, if there is one."""
        return (self.key, self.idempotency_key) if self.idempotency_key else None

    def row(self) -> dict[str, Any]:
        """Return a value for every column of the table."""
        decided = self._asdict() | {"first_send_at": self.send_at, "approved": not self.manual_mode}
        return {field.name: field.default for field in FIELDS} | decided


class Request(NamedTuple):
    """A message to be stored, and the limits that the settings set for it."""

    message: NewMessage
    default_limits: tuple[Limit, ...] = ()  # for a key that has none of its own
    recipient_limit: Limit | None = None


Outcome = Exception | None
"""Why a message is not stored; None if it is."""

FIELDS = Message._meta.sorted_fields

TAKEN = (
    "SELECT key_id, idempotency_key FROM message WHERE idempotency_key IS NOT NULL AND ({pairs})"
)
"""Return those of some pairs of key and idempotency key that a message has."""

INSERT = (
    "INSERT INTO message ({columns}) VALUES {rows} ON CONFLICT (key_id, idempotency_key) "
    "WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING id"
)
"""Insert whole rows, but for those whose idempotency key is taken; return the ids of the rest."""


def store(
    message: NewMessage,
    default_limits: tuple[Limit, ...] = (),
    recipient_limit: Limit | None = None,
) -> None:
    """Keep a new message for good.

    Raise AlreadyAnswered if its idempotency key is taken, KeyRevoked if its key is revoked by now,
    LimitReached if its key or its recipient may have no more, or the database's error.
    """
    outcome = _inserts.insert(Request(message, default_limits, recipient_limit))
    if outcome:
        raise outcome


def insert_all(requests: Sequence[Request]) -> list[Outcome]:
    """Decide on messages in their order, and insert what may be stored; return their outcomes."""
    with db.atomic():
        known, uses = _read(requests)
        outcomes = decide(requests, known)
        accepted = [r for r, outcome in zip(requests, outcomes, strict=True) if outcome is None]
        stored = _insert([request.message for request in accepted])
        for at, request in enumerate(requests):
            if outcomes[at] is None and request.message.id not in stored:
                outcomes[at] = AlreadyAnswered()
                known.count(request, -1)
        for use in uses:
            use.put(known.of_keys[use.key_id])
    return outcomes


# Deciding


class Known(NamedTuple):
    """What decides on messages; true as long as the transaction that has read it lasts."""

    keys: dict[int, ApiKey]
    taken: set[tuple[int, str]]  # names of messages
    of_keys: dict[int, KeyTally]
    of_numbers: dict[tuple[str, Limit], NumberTally]

    def key_limits(self, request: Request) -> tuple[Limit, ...]:
        """Return the limits that hold for the key of a message."""
        key = self.keys.get(request.message.key)
        return parse(key.limits or "") if key and key.limits else request.default_limits

    def refusal(self, request: Request) -> Outcome:
        """Return why a message may not be stored; of several limits, the longest wait."""
        message, reached = request.message, []
        key = self.keys.get(message.key)
        if key and key.revoked_at:
            return KeyRevoked()
        if message.name in self.taken:  # limits do not apply to repeats
            return AlreadyAnswered()
        if limits := self.key_limits(request):
            reached += self.of_keys[message.key].reached(limits, message.second)
        if limit := request.recipient_limit:
            reached += self.of_numbers[message.to, limit].reached(limit, message.created_at)
        return max(reached, key=lambda each: each.free_at, default=None)

    def count(self, request: Request, number: int = 1) -> None:
        """Count a message that is accepted, or take that back with -1."""
        message = request.message
        if message.name:
            self.taken.add(message.name)
        if self.key_limits(request):
            self.of_keys[message.key].add(message.second, message.id, number)
        key = self.keys.get(message.key)
        if not (key and key.role == Role.TESTER):
            for (to, _), tally in self.of_numbers.items():
                if to == message.to:
                    tally.add(message.created_at)


def decide(requests: Iterable[Request], known: Known) -> list[Outcome]:
    """Return why each message may not be stored, after those before it; None where it may."""
    outcomes = []
    for request in requests:
        outcomes.append(known.refusal(request))
        if outcomes[-1] is None:
            known.count(request)
    return outcomes


# Reading and writing


def _read(requests):
    """Lock what decides on messages, always in the same order; return it, and the rows of KeyUse.

    Other orders could be a deadlock.
    """
    messages = [request.message for request in requests]
    known = Known(ApiKey.hold({message.key for message in messages}), set(), {}, {})
    known.of_numbers.update(_number_tallies(requests))
    limited = {request.message.key for request in requests if known.key_limits(request)}
    uses = [KeyUse.lock(key) for key in sorted(limited)]
    for use in uses:
        seconds = {message.second for message in messages if message.key == use.key_id}
        known.of_keys[use.key_id] = Message.tally_of(use.key_id, use, seconds)
    known.taken.update(_taken({message.name for message in messages if message.name}))
    return known, uses


def _number_tallies(requests):
    """Lock the numbers that have a limit; return when messages to them were accepted."""
    limited = [request for request in requests if request.recipient_limit]
    lock_numbers({request.message.to for request in limited})
    since = min((request.message.created_at for request in limited), default=None)
    pairs = {(request.message.to, request.recipient_limit) for request in limited}
    return {
        (to, limit): _number_tally(to, limit, since, len(requests)) for to, limit in sorted(pairs)
    }


def _number_tally(to, limit, since, count):
    """Read the messages to a number that decide whether it may have up to `count` more."""
    skipped = max(0, limit.number - count)
    latest = Message.accepted_to(to, since - limit.window).limit(count).offset(skipped)
    return NumberTally([message.created_at for message in latest], skipped)


def _taken(names):
    """Return those of these names that a message has."""
    if not names:
        return set()
    pairs = " OR ".join([f"key_id = {db.param} AND idempotency_key = {db.param}"] * len(names))
    values = [part for name in names for part in name]
    found = db.execute_sql(TAKEN.format(pairs=pairs), values).fetchall()
    return {tuple(name) for name in found}


def _insert(messages):
    """Insert messages in one statement; return the ids of those that are stored.

    In the order of their idempotency keys: two batches that insert the same ones in another order
    would be a deadlock on Postgres.
    """
    if not messages:
        return set()
    rows = [message.row() for message in sorted(messages, key=lambda each: each.name or ())]
    columns = ", ".join(f'"{field.column_name}"' for field in FIELDS)
    marks = f"({', '.join([db.param] * len(FIELDS))})"
    sql = INSERT.format(columns=columns, rows=", ".join([marks] * len(rows)))
    values = [field.db_value(row[field.name]) for row in rows for field in FIELDS]
    found = db.execute_sql(sql, values).fetchall()
    return {Message.id.python_value(id) for (id,) in found}


_inserts = Inserts(insert_all)
