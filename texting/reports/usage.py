"""What keys have used: texts and parts by the month, and their limits."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from peewee import SQL, fn

from texting.access.keys import MAY_SEND, ApiKey
from texting.access.limits import SECOND, UNITS, KeyUse, Limit
from texting.database import EPOCH, db
from texting.messages.model import Message, Status, first_id, has_status
from texting.reports.listings import chosen_keys

USED = (Status.SENT, Status.DELIVERED, Status.UNDELIVERED, Status.FAILED)
"""The statuses that count as use."""


class Usage(NamedTuple):
    """What the keys of one name have sent to one country in a month."""

    key: str
    country: str
    texts: int
    parts: int
    sent: int
    delivered: int
    undelivered: int
    failed: int


def count_usage(since: datetime, until: datetime, key: str | None = None) -> list[Usage]:
    """Return what was accepted from one instant to another, by key and country.

    Raise Refused if no key has this name.
    """
    accepted = (Message.id >= first_id(since)) & (Message.id < first_id(until))
    accepted &= Message.key.not_in(ApiKey.testers())
    if key:
        accepted &= Message.key.in_(chosen_keys(key, None))
    columns = Message.key, Message.country, Message.status
    sums = Message.select(*columns, fn.COUNT(SQL("*")), fn.SUM(Message.parts)).group_by(*columns)
    names = dict(ApiKey.select(ApiKey.id, ApiKey.name).tuples())
    of_status, of_parts = defaultdict(Counter), Counter()
    for key_id, country, status, texts, parts in sums.where(accepted, has_status(*USED)).tuples():
        used = names[key_id], country
        of_status[used][status] += texts
        of_parts[used] += parts
    usages = []
    for used in sorted(of_parts):
        counts = [of_status[used][status] for status in USED]
        usages.append(Usage(*used, sum(counts), of_parts[used], *counts))
    return usages


class LimitUse(NamedTuple):
    """A limit of a key, and how much of it is used up."""

    limit: Limit
    used: int
    is_default: bool  # one of KEY_LIMITS
    refused_parts: int | None = None  # the fewest of a text for which the rest was too small

    @property
    def is_up(self) -> bool:
        return self.used + (self.refused_parts or 1) > self.limit.number


def use_of_limits(
    keys: Collection[ApiKey], now: datetime, defaults: tuple[Limit, ...]
) -> dict[int, list[LimitUse]]:
    """Return the limits of keys, by key id; a key that is revoked or does not send has none."""
    windows, second = {}, (now - EPOCH) // SECOND
    for key in keys:
        may_send = not key.revoked_at and key.role in MAY_SEND
        limits = key.limits_or(defaults) if may_send else ()
        windows[key] = {each: each.window_of(key.id, second) for each in limits}
    all_windows = {each for of_key in windows.values() for each in of_key.values()}
    used, refused = KeyUse.of(all_windows), KeyUse.refused_in(all_windows)
    return {
        key.id: [
            LimitUse(limit, used[each], not key.limits, refused.get(each))
            for limit, each in of_key.items()
        ]
        for key, of_key in windows.items()
    }


def limits_used_up(now: datetime, defaults: tuple[Limit, ...]) -> list[tuple[ApiKey, Limit]]:
    """Return each limit that is used up, with its key: by name, a key's longest limit last."""
    since = (now - EPOCH) // SECOND - UNITS["mo"]
    limited = KeyUse.select(KeyUse.key_id).where(KeyUse.begins > since)
    used_lately = list(ApiKey.live(now).where(ApiKey.id.in_(limited)).order_by(ApiKey.name))
    uses = use_of_limits(used_lately, now, defaults)
    return [(key, use.limit) for key in used_lately for use in uses[key.id] if use.is_up]


def accepted_between(
    keys: Collection[ApiKey], since: datetime, until: datetime, most: int
) -> dict[int, tuple[int, int]]:
    """Count the messages of keys, and their parts, accepted from one instant to before another.

    Of each key, only the first `most` are counted; a key without any is left out.
    """
    theirs = "message WHERE key_id = given.value AND id >= ? AND id < ? ORDER BY id LIMIT ?"
    given = db.rows_of_array("given", "integer")
    few = db.few_of_each(given, "message", "id, parts", theirs)
    sql = f"SELECT given.value, COUNT(*), SUM(few.parts) FROM {few} GROUP BY given.value"
    bounds = (Message.id.db_value(first_id(at)) for at in (since, until))
    values = db.array([key.id for key in keys]), *bounds, most
    found = db.execute_sql(sql.replace("?", db.param), values)
    return {key: (texts, parts) for key, texts, parts in found.fetchall()}
