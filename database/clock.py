"""The clock: nothing else reads the time of day."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

SKEW = timedelta(seconds=5)
"""The most that machines' clocks may differ: what was noted later than that was noted before the
clock was set back."""


def now() -> datetime:
    """Return now, in UTC, cut to the milliseconds that are stored and answered."""
    instant = datetime.now(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


class Steps:
    """Notice that the wall clock was set, or that the machine slept, by the monotonic clock."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]):
        self.now, self.monotonic = now, monotonic
        self.ahead = None  # the wall clock, of the monotonic one

    def noticed(self) -> bool:
        """Return whether the wall clock may have been set since the last call; True at first."""
        before, self.ahead = self.ahead, self.now().timestamp() - self.monotonic()
        return before is None or abs(self.ahead - before) > SKEW.total_seconds()
