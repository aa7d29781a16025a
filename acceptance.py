"""New messages: their way into the table, as far as the limits of keys and recipients let them.

Nobody else stores a message of a key with limits while its row of KeyUse is locked.
"""

import json
import uuid
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from database import EPOCH, ERRORS, MILLISECOND, db, is_outage, on_postgres
from inserts import Inserts
from limits import (
    NO_LIMIT,
    SECOND,
    UNITS,
    KeyUse,
    Limit,
    LimitReached,
    Tally,
    count_if_room,
    lock_numbers,
)
from models import Message, first_id


class AlreadyAnswered(Exception):
    """Another request with the same idempotency key was stored first."""


class Order(NamedTuple):
    """A message to be stored, by column, and the limits that may refuse it."""

    row: dict[str, Any]
    limits: tuple[Limit, ...] = ()  # of its key
    recipient_limit: Limit | None = None

    @property
    def key(self) -> int:
        return self.row["key_id"]

    @property
    def second(self) -> int:
        return self.row["created_at"] // 1000

    @property
    def created_at(self) -> datetime:
        return Message.created_at.python_value(self.row["created_at"])

    @property
    def name(self) -> tuple[int, str]:
        """Return what no two messages share: the key and idempotency key, or the id."""
        return self.key, self.row["idempotency_key"] or self.row["id"]


Outcome = bool | Exception
"""Whether a message is stored, or why not; False if its idempotency key is taken."""


def store(
    *,
    send_at: datetime,
    manual_mode: bool,
    limits: tuple[Limit, ...] = (),
    recipient_limit: Limit | None = None,
    **fields: Any,
) -> None:
    """Keep a new message for good.

    Raise AlreadyAnswered if its idempotency key is taken, or else LimitReached if one of its
    key's `limits` or its recipient's allows no more. `fields` has a value for every other field
    of a new message. Messages that are stored at the same time share a statement.
    """
    fields |= {"send_at": send_at, "first_send_at": send_at}
    fields |= {"manual_mode": manual_mode, "approved": not manual_mode, "attempts": 0}
    columns = Message._meta.fields
    row = {columns[n].column_name: columns[n].db_value(value) for n, value in fields.items()}
    outcome = _inserts.insert(Order(row, limits, recipient_limit))
    if isinstance(outcome, Exception):
        raise outcome
    if not outcome:
        raise AlreadyAnswered


def insert_all(orders: list[Order]) -> list[Outcome]:
    """Insert messages in one statement, unless a limit is near; return their outcomes."""
    if not any(order.limits or order.recipient_limit for order in orders):
        return _insert(orders)
    if not on_postgres():
        return _insert_in_turn(orders)
    outcomes = {}
    if not any(order.recipient_limit for order in orders):
        outcomes = _insert_if_room(orders)
    if left := [order for order in orders if order.row["id"] not in outcomes]:
        ids = [order.row["id"] for order in left]
        outcomes |= zip(ids, _insert_left(left), strict=True)
    return [outcomes[order.row["id"]] for order in orders]


def _insert(orders):
    """Insert messages in one statement; return of each whether it is stored."""
    rows = [order.row for order in orders]
    if db.in_transaction() and not on_postgres():
        # SQLite would copy all pages first, to undo the statement alone: sqlite.org/tempfiles.html
        sql, _ = _insertion(rows[:1])
        values = [[row[name] for name in rows[0]] for row in rows]
        done = db.cursor().executemany(f"{sql} ON CONFLICT DO NOTHING", values)
    else:
        sql, values = _insertion(rows)
        done = db.execute_sql(f"{sql} ON CONFLICT DO NOTHING", values)
    if done.rowcount == len(orders):
        return [True] * len(orders)
    return _stored(orders)  # some idempotency key is taken


def _insertion(rows):
    """Return the INSERT of rows, and its values.

    In the order of their idempotency keys: two batches that lock the same ones in another
    order would be a deadlock on Postgres.
    """
    names = [*rows[0]]
    ordered = sorted(rows, key=lambda row: (row["key_id"], row["idempotency_key"] or ""))
    listed = ", ".join(f'"{name}"' for name in names)
    if on_postgres():  # to psycopg, each row of values costs more than all of this
        values = [json.dumps(ordered, ensure_ascii=False)]
        source = f"SELECT {listed} FROM json_populate_recordset(NULL::message, %s)"
    else:
        values = [row[name] for row in ordered for name in names]
        marks = f"({', '.join('?' * len(names))})"
        source = "VALUES " + ", ".join([marks] * len(rows))
    return f"INSERT INTO message ({listed}) {source}", values


def _stored(orders):
    """Return of each message whether it is stored."""
    ids = [uuid.UUID(order.row["id"]) for order in orders]
    stored = {message.id for message in Message.select(Message.id).where(Message.id.in_(ids))}
    return [id in stored for id in ids]


# Limits


def _insert_if_room(orders):
    """Insert in one statement what has no limit or fits; return these outcomes by id.

    It leaves out keys of which not all messages fit, or whose use must be counted anew. A key
    of which nothing was stored is left out too: its messages are refused, or all repeats.
    """
    of_key = {}
    for order in sorted(orders, key=lambda order: order.key):
        if order.limits:
            of_key.setdefault(order.key, []).append(order)
    quick = {
        key: few
        for key, few in of_key.items()
        if _counting(few[0]) in _counted
        and len({(order.second, order.limits) for order in few}) == 1
        and len({order.name for order in few}) == len(few)
    }
    if not quick:
        free = [order for order in orders if not order.limits]
        stored = _insert(free) if free else []
        return {o.row["id"]: is_there for o, is_there in zip(free, stored, strict=True)}
    rows = [order.row for order in orders if not order.limits or order.key in quick]
    sql, (values,) = _insertion(rows)
    parameters = {"rows": values, "limited": [*of_key]}
    for at, (key, few) in enumerate(quick.items()):
        wanted = {"id": key, "second": few[0].second, "n": len(few)}
        wanted |= dict.fromkeys(UNITS, NO_LIMIT)
        wanted |= {limit.unit: limit.number for limit in few[0].limits}
        parameters |= {f"{name}{at}": value for name, value in wanted.items()}
    found = db.execute_sql(
        f"WITH {count_if_room(len(quick))} {sql.replace('%s', '%(rows)s')} "
        "WHERE key_id IN (SELECT key_id FROM counted) OR key_id <> ALL(%(limited)s) "
        "ON CONFLICT DO NOTHING RETURNING key_id",
        parameters,
    )
    stored = Counter(key for (key,) in found.fetchall())
    if stored.total() == len(rows):
        return {row["id"]: True for row in rows}
    for key, few in quick.items():
        if 0 < stored[key] < len(few):
            KeyUse.forget(key)  # a repeat was counted
    done = [order for order in orders if not order.limits or stored[order.key]]
    return {o.row["id"]: is_there for o, is_there in zip(done, _stored(done), strict=True)}


def _insert_left(orders):
    """Insert messages in turn; an error is an outcome, because their neighbours are stored."""
    try:
        return _insert_in_turn(orders)
    except ERRORS as error:
        if len(orders) == 1 or is_outage(error):
            return [error] * len(orders)
        return [_insert_left([order])[0] for order in orders]


def _insert_in_turn(orders):
    """Decide on one message after another in a transaction; insert what limits allow.

    A repeat is none of their business: it gets its first answer.
    """
    with db.atomic():
        lock_numbers({order.row["to"] for order in orders if order.recipient_limit})
        firsts = {order.key: order for order in orders if order.limits}
        tallies = {key: _tally(firsts[key]) for key in sorted(firsts)}
        names = _taken([order.name for order in orders if order.row["idempotency_key"]])
        for key in {key for key, _ in names} & tallies.keys():
            tallies[key] = _recount(key)  # `_insert_if_room` may have counted a repeat
        outcomes, accepted = {}, []
        for order in orders:
            if order.name in names:
                outcomes[order.row["id"]] = False
                continue
            refusals = []
            if order.limits:
                refusals += tallies[order.key].refusals(order.limits, order.second)
            if order.recipient_limit:
                refusals += _refusals_to(order, accepted)
            if refusals:
                outcomes[order.row["id"]] = max(refusals, key=lambda each: each.free_at)
                continue
            names.add(order.name)
            accepted.append(order)
            if order.limits:
                tallies[order.key].add(order.second)
        stored = _insert(accepted) if accepted else []
        for order, is_stored in zip(accepted, stored, strict=True):
            outcomes[order.row["id"]] = is_stored
            if order.limits and not is_stored:
                tallies[order.key].add(order.second, -1)
        for key, tally in tallies.items():
            if (row := tally.row()) != tally.read:
                KeyUse.put(key, row)
    _counted.update(map(_counting, firsts.values()))
    return [outcomes[order.row["id"]] for order in orders]


def _tally(order):
    """Lock and return what the key of a message has used up."""
    row = KeyUse.lock(order.key)
    if row is None or _counting(order) not in _counted:
        return _recount(order.key)
    return Tally(row, partial(Message.accepted, order.key))


def _recount(key):
    """Return what a key, whose row is locked, has used up according to its messages."""
    of_key = Message.select(Message.created_at).where(Message.key == key)
    latest = of_key.order_by(Message.id.desc()).first()
    second = (latest.created_at - EPOCH) // SECOND if latest else 0
    return Tally((second,), partial(Message.accepted, key))


def _taken(names):
    """Return those of these pairs of key and idempotency key that a message has."""
    if not names:
        return set()
    these = " OR ".join([f"key_id = {db.param} AND idempotency_key = {db.param}"] * len(names))
    found = db.execute_sql(
        "SELECT key_id, idempotency_key FROM message "
        f"WHERE idempotency_key IS NOT NULL AND ({these})",
        [part for name in names for part in name],
    )
    return {tuple(name) for name in found.fetchall()}


def _refusals_to(order, accepted):
    """Return a refusal if a number has as many messages in the window as its limit allows.

    One that was kept back counts no more. `accepted` messages are not stored yet.
    """
    limit, to, at = order.recipient_limit, order.row["to"], order.created_at
    new = sorted(each.created_at for each in accepted if each.row["to"] == to)
    if len(new) >= limit.number:
        oldest = new[-limit.number]
    else:
        found = db.execute_sql(
            f'SELECT created_at FROM message WHERE "to" = {db.param} AND id >= {db.param} '
            f"AND status <> 'cancelled' ORDER BY id DESC LIMIT 1 OFFSET {db.param}",
            (to, first_id(at - limit.window + MILLISECOND).hex, limit.number - 1 - len(new)),
        ).fetchone()
        if not found:
            return []
        oldest = Message.created_at.python_value(found[0])
    return [LimitReached("recipient", limit, oldest + limit.window)]


_inserts = Inserts(insert_all)

_counted = set()  # keys, by database and limits, whose use this process has counted from messages


def _counting(order):
    """Return the entry of a message's key in `_counted`.

    Other limits are a new entry: while a key had none, nobody counted.
    """
    return db.obj, order.key, order.limits
