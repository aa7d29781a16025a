"""What became of the texts of each carrier lately: whether they were taken, and arrived."""

from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from peewee import SQL, fn

from texting.messages.model import TAKEN, Message, Status, has_status

HOUR = timedelta(hours=1)
HEARD_WITHIN = timedelta(minutes=10)
"""How long a receipt may take before nothing counts as heard of its text."""

FEWEST_TAKEN, FEWEST_ENDED = 10, 20
"""Texts from which it can be told that receipts do not come, and that most texts end badly."""

SAMPLE = 1_000
"""Texts that are looked at for the commonest reason."""

DELAY = SQL("CASE WHEN status = 'delivered' THEN (receipt_at - finished_at) / 1000 END")
"""The seconds from the carrier's yes to its receipt."""


class Arrivals(NamedTuple):
    """What became of the texts of a carrier that reports whether they arrived."""

    carrier: str
    # Of the texts that it took within the last hour, and at least HEARD_WITHIN ago
    delivered: int
    undelivered: int
    unheard: int
    median_seconds: int | None  # until they were delivered
    # Of all its texts of the last hour
    ended: int  # failed, delivered or undelivered
    failed: int
    not_arrived: int
    awaited: int  # taken within HEARD_WITHIN, and without a final receipt yet
    reason: str | None = None  # the commonest for which they failed or did not arrive
    pending: int = 0  # taken like the first ones, and reported on, but not finally

    @property
    def taken(self) -> int:
        return self.delivered + self.undelivered + self.pending + self.unheard

    @property
    def lacks_receipts(self) -> bool:
        """Whether nothing was heard of any of enough texts."""
        return self.taken >= FEWEST_TAKEN and self.unheard == self.taken

    @property
    def mostly_bad(self) -> bool:
        """Whether most of enough texts failed or did not arrive, even if all awaited ones do."""
        bad = self.failed + self.not_arrived
        return self.ended >= FEWEST_ENDED and 2 * bad > self.ended + self.awaited

    @property
    def of_taken(self) -> str:
        """What was heard of the texts that it took, in words."""
        median = "" if self.median_seconds is None else f" (median {self.median_seconds} s)"
        became = {
            f"delivered{median}": self.delivered,
            "not delivered": self.undelivered,
            "pending": self.pending,
            "without a receipt": self.unheard,
        }
        return f"10 to 60 minutes ago: {_in_words(self.taken, 'accepted', became)}"

    @property
    def of_ended(self) -> str:
        """What became of the texts that ended, in words."""
        delivered = self.ended - self.failed - self.not_arrived
        became = {
            "delivered": delivered,
            "failed": self.failed,
            "not delivered": self.not_arrived,
        }
        why = f" (most often: {self.reason})" if self.reason else ""
        return f"in the last hour: {_in_words(self.ended, 'ended', became)}{why}"


def _in_words(total, what, became):
    """Return a total and what became of it: 18 accepted, all delivered."""
    told = [f"{'all' if n == total else n} {name}" for name, n in became.items() if n]
    return ", ".join([f"{total} {what}", *told])


def arrivals(now: datetime, carriers: Collection[str]) -> list[Arrivals]:
    """Return what became of the latest texts of these carriers, which report that, by name.

    One query groups them by whole seconds until delivery, so the median needs no other.
    """
    since = now - HOUR
    columns = Message.carrier, Message.status, Message.heard_of
    is_young = (Message.finished_at > now - HEARD_WITHIN).alias("is_young")
    groups = Message.select(*columns, is_young, DELAY.alias("delay"), fn.COUNT(SQL("*")))
    groups = groups.where(
        has_status(*TAKEN, Status.FAILED),
        Message.finished_at >= since,
        Message.carrier.in_([*carriers]),
    )
    of_carrier = {name: (Counter(), Counter(), Counter()) for name in sorted(carriers)}
    pending = Counter()
    found = groups.group_by(*columns, SQL("is_young"), SQL("delay")).tuples() if carriers else ()
    for name, status, heard_of, young, delay, texts in found:
        old, recent, delays = of_carrier[name]
        if heard_of and status == Status.SENT and not young:
            pending[name] += texts
        (recent if young else old)[status] += texts
        if delay is not None and not young:
            delays[max(0, delay)] += texts
    return [_arrivals(name, *counts, pending[name], since) for name, counts in of_carrier.items()]


def _arrivals(carrier, old, recent, delays, pending, since):
    both = old + recent
    failed, not_arrived = both[Status.FAILED], both[Status.UNDELIVERED]
    ended = failed + not_arrived + both[Status.DELIVERED]
    reason = _commonest_reason(carrier, since) if failed or not_arrived else None
    unheard = old[Status.SENT] - pending
    settled = old[Status.DELIVERED], old[Status.UNDELIVERED], unheard, _median(delays)
    awaited = recent[Status.SENT]
    return Arrivals(carrier, *settled, ended, failed, not_arrived, awaited, reason, pending)


def _median(delays):
    """Return the median of numbers that are counted; None if there are none."""
    left = delays.total() / 2
    for delay in sorted(delays):
        left -= delays[delay]
        if left <= 0:
            return delay
    return None


def _commonest_reason(carrier, since):
    reasons = Counter()
    for status in (Status.FAILED, Status.UNDELIVERED):
        ended = (Message.carrier == carrier) & (Message.status == status)
        ended &= (Message.finished_at >= since) & Message.last_error.is_null(False)
        latest = Message.select(Message.last_error).where(ended)
        reasons.update(latest.order_by(Message.finished_at.desc()).limit(SAMPLE).tuples())
    return next((reason for (reason,), _ in reasons.most_common(1)), None)
