"""The clock: nothing else reads the time of day."""

from datetime import UTC, datetime, timedelta

SKEW = timedelta(seconds=5)
"""The most that machines' clocks may differ."""


def now() -> datetime:
    """Return now, in UTC, cut to the milliseconds that are stored and answered."""
    instant = datetime.now(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
