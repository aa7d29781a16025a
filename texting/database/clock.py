"""The clock, and instants as they are read and written: nothing else reads the time of day."""

import re
from datetime import UTC, datetime, timedelta

SKEW = timedelta(seconds=5)
"""The most that machines' clocks may differ."""

WRONG = timedelta(minutes=2)
"""A clock that differs by more is wrong: a scheduler sends nothing by it."""


def now() -> datetime:
    """Return now, in UTC, cut to the milliseconds that are stored and answered."""
    instant = datetime.now(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def isoformat(instant: datetime) -> str:
    """Return an aware UTC datetime as text, like `2026-03-02T14:00:00.000Z`."""
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


# datetime.fromisoformat alone accepts a bare date and any separator, and reads a fraction of an
# hour or a minute as one of a second.
INSTANT = (
    "^[0-9-]+(W[0-9]{2}-?[0-9])?"
    "T[0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.,][0-9]+)?)?)?"
    "(Z|[+-][0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.][0-9]+)?)?)?)?$"
)


def read_instant(text: str) -> datetime:
    """Return the instant of an ISO 8601 date-time in UTC, which it is in by default.

    It is cut to milliseconds. Raise ValueError, with words for people, if the text is none.
    """
    try:
        if not re.fullmatch(INSTANT, text):
            raise ValueError
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be an ISO 8601 date and time, like 2026-03-02T14:00:00Z") from None
    try:
        instant = instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("must have a UTC instant in the years 1 to 9999") from None
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
