"""Quiet hours of places as laws have them, and instants at which they hold."""

from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from texting.recipients import weeks

FRANCE = (
    "mon-thu 20:00-10:00, fri 20:00-19:59, sat 19:59-19:58, sun 19:58-10:00, holidays 00:00-24:00"
)
QUIET_PLACES = {
    place: weeks.quiet_hours(text)
    for place, text in {
        "US": "21:00-08:00",
        "US-TX": "sun-fri 21:00-09:00, sat 21:00-12:00",
        "US-KY": "sun-fri 21:00-08:00, sat 21:00-10:00",
        "CA-QC": "mon-thu 21:00-09:00, fri 21:00-10:00, sat-sun 18:00-10:00",
        "FR": FRANCE,
    }.items()
}


class Silence(NamedTuple):
    """An instant at which it is quiet, the first one after it, and what that is called."""

    to: str
    at: datetime
    end: datetime
    rule: str


def silence(zone, to, at, end, rule):
    instants = (datetime.fromisoformat(each).replace(tzinfo=ZoneInfo(zone)) for each in (at, end))
    return Silence(to, *(each.astimezone(UTC) for each in instants), rule)


SILENCES = {
    "Dallas": silence(
        "America/Chicago",
        *("+12142345678", "2026-03-08T11:59", "2026-03-08T12:00"),
        "quiet hours of Texas until 12:00 PM, Sunday, Mar 8",
    ),
    "945": silence(
        "America/Chicago",
        *("+19452345678", "2026-03-08T09:30", "2026-03-08T12:00"),
        "quiet hours of Texas until 12:00 PM, Sunday, Mar 8",
    ),
    "toll-free": silence(  # noon in Los Angeles is three in New York
        "America/New_York",
        *("+18002345678", "2026-03-08T14:59", "2026-03-08T15:00"),
        "quiet hours of Texas (the number can be in any state) until 3:00 PM, Sunday, Mar 8",
    ),
    "Montréal": silence(
        "America/Toronto",
        *("+15142345678", "2026-03-08T09:59", "2026-03-08T10:00"),
        "quiet hours of Quebec until 10:00 AM, Sunday, Mar 8",
    ),
    "Lyon on a holiday": silence(
        "Europe/Paris",
        *("+33478901234", "2026-07-14T12:00", "2026-07-15T10:00"),
        "quiet hours of France until 10:00 AM, Wednesday, Jul 15",
    ),
    "Lyon on a Sunday": silence(
        "Europe/Paris",
        *("+33478901234", "2026-07-12T12:00", "2026-07-13T10:00"),
        "quiet hours of France until 10:00 AM, Monday, Jul 13",
    ),
}
