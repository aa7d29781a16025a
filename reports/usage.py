"""What keys have used: texts and parts by the month, and their limits."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from peewee import SQL, fn

from access.keys import MAY_SEND, ApiKey
from access.limits import SECOND, KeyUse, Limit, parse, window
from database import EPOCH
from models import Message, Status, first_id, has_status, tally_of
from reports.listings import chosen_keys

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

    @property
    def is_up(self) -> bool:
        return self.used >= self.limit.number


def use_of_limits(
    keys: Collection[ApiKey], now: datetime, defaults: tuple[Limit, ...]
) -> dict[int, list[LimitUse]]:
    """Return the limits of keys, by key id; a key that is revoked or does not send has none."""
    rows, second, found = {row.key_id: row for row in KeyUse}, (now - EPOCH) // SECOND, {}
    for key in keys:
        own = parse(key.limits or "")
        limits = () if key.revoked_at or key.role not in MAY_SEND else own or defaults
        tally = tally_of(key.id, rows.get(key.id), [second]) if limits else None
        found[key.id] = [LimitUse(each, tally.used(each, second), not own) for each in limits]
    return found


def limits_used_up(now: datetime, defaults: tuple[Limit, ...]) -> list[tuple[ApiKey, Limit]]:
    """Return each limit that is used up, with its key: by name, a key's longest limit last."""
    begins, _ = window("mo", (now - EPOCH) // SECOND)  # the longest
    keys = ApiKey.live(now).join(KeyUse, on=(KeyUse.key_id == ApiKey.id))
    used_lately = list(keys.where(KeyUse.second >= begins).order_by(ApiKey.name))
    uses = use_of_limits(used_lately, now, defaults)
    return [(key, use.limit) for key in used_lately for use in uses[key.id] if use.is_up]
