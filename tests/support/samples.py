"""Numbers, instants, spans of time and business hours that many tests use."""

from datetime import UTC, datetime, timedelta

from texting.recipients.hours import BusinessHours

NEW_YORK = "+12125550123"
LONDON = "+442083661177"
NEIGHBOUR, THIRD = "+12125550188", "+12125550199"
VALID = {"to": NEW_YORK, "message": "Hello"}
ALL_OPTIONS = {  # settings without a default, with values that change no usual answer
    "QUIET_HOURS": "03:00-03:01",
    "SEND_RATE": "1000/s",
    "KEEP_TEXTS": "10y",
    "KEEP_MESSAGES": "10y",
    "ALLOWED_COUNTRIES": "US,CA,GB,AU,DE,FR",
    "KEY_LIMITS": "1000/s",
    "RECIPIENT_LIMIT": "1000/1min",
    "STOP_REPLY": "You get no more texts.",
    "HELP_REPLY": "Texts of a test.",
    "NOTIFY_URL": "json://localhost:1/",
    "CARRIER_URL": "console:",
    "PUBLIC_URL": "http://localhost",  # of Flask's test client
    "SECRET_KEY": "not so secret, but long enough for this",
    "METRICS_TOKEN": "a token of the tests",
}
ALWAYS_OPEN = {"business_hours": (0, 1440)}
TUESDAY_NOON = datetime(2026, 3, 3, 17, 0, tzinfo=UTC)  # noon in New York
SUNDAY_NIGHT = datetime(2026, 3, 2, 4, 30, tzinfo=UTC)  # 11:30 PM in New York
MILLISECOND = timedelta(milliseconds=1)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3_600, 86_400))
WEEK = frozenset(range(7))


def daily(opens, closes, days=WEEK, **others):
    """Business hours that are the same on all of these days; given in minutes."""
    windows = ((opens, closes) if day in days else None for day in range(7))
    return BusinessHours(tuple(windows), **others)
