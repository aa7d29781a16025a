"""SEND_RATE: which texts may go now, and when the next ones may; pure."""

import math
from datetime import datetime, timedelta
from typing import NamedTuple

MICROSECONDS = 1_000_000
"""Microseconds in a second; `used_until` counts them since 1970."""


class Share(NamedTuple):
    """The first of some texts, which the rate allows."""

    texts: int  # how many may go
    used_until: int | None  # the time taken, including these texts
    delay: float  # seconds until the first one may go


class Rate(NamedTuple):
    """SEND_RATE: the parts of texts that all schedulers together may give to the carrier.

    A part takes the time in which the rate allows one more. The carrier's row has the instant up to
    which time is taken. Texts go together once BURST seconds are free, and free time beyond KEPT
    seconds is lost. So any second sees at most KEPT + 1 seconds' worth, not quite twice the rate,
    since some texts take longer on their way to the carrier.

    A text of more parts than that waits longer, and the others wait longer after it. It takes its
    time in advance, so that no other overtakes it. If it paid only afterwards, as in the generic
    cell rate algorithm, a text of two seconds' worth could follow a full second, and three times
    the rate would go within one.
    """

    per_second: float
    longest_text: int = 255  # in parts

    BURST, KEPT = 0.4, 0.7  # seconds

    @property
    def longest(self) -> timedelta:
        """Return the longest time that one text can take in advance."""
        return timedelta(seconds=self.longest_text / self.per_second + 2)

    def wait(self, used_until: int | None, now: datetime) -> float:
        """Return the seconds until a text may go."""
        if used_until is None:
            return 0
        return max(0, used_until / MICROSECONDS - now.timestamp() + self.BURST)

    def most(self) -> int:
        """Return how many parts may go at once."""
        return max(1, int(self.per_second * self.KEPT))

    def claim(self, used_until: int | None, parts: list[int], now: datetime) -> Share:
        """Return how many of some texts, given by their numbers of parts, may go, and when."""
        if self.wait(used_until, now):
            return Share(0, used_until, 0)
        at = now.timestamp()
        unused = math.inf if used_until is None else at - used_until / MICROSECONDS
        free = min(unused, self.KEPT)
        texts, used = 0, 0.0
        for needed in (number / self.per_second for number in parts):
            if texts and used + needed > free:
                break
            texts, used = texts + 1, used + needed
        delay = max(0, min(used, 2) - 1 + self.KEPT - unused)
        rest = min(used - self.KEPT, max(self.KEPT, used - 2 + self.KEPT))
        until = max(at - free + used, at + delay + rest)
        return Share(texts, round(until * MICROSECONDS), delay)
