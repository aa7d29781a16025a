"""The clock: nothing else reads the time of day."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

SKEW = timedelta(seconds=5)
"""The most that machines' clocks may differ."""


def now() -> datetime:
    """Return now, in UTC, cut to the milliseconds that are stored and answered."""
    instant = datetime.now(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def is_ahead(at: Any, now: datetime, longest: timedelta = timedelta(0)) -> Any:
    """Return whether an instant, or a column, is further ahead than the longest of its kind.

    Then it was noted by a clock that has been set back since, and counts as now.
    """
    return at > now + longest + SKEW


def is_within(at: Any, length: timedelta, now: datetime) -> Any:
    """Return whether an instant, or a column, is less than a length of time ago."""
    return (at > now - length) & (at <= now + SKEW)


class Steps:
    """Notice that the wall clock was set, or that the machine slept, by the monotonic clock."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]):
        self.now, self.monotonic = now, monotonic
        self.ahead = None  # wall clock minus monotonic clock, in seconds

    def noticed(self) -> bool:
        """Return whether the wall clock may have been set since the last call; True at first."""
        before, self.ahead = self.ahead, self.now().timestamp() - self.monotonic()
        return before is None or abs(self.ahead - before) > SKEW.total_seconds()
