"""Times of day as the reader's language has them: 7:00 PM or 19:00."""

import re
from datetime import datetime

from flask import request

import recipients
from recipients.hours import written

_TIME = re.compile(r"\b(\d\d?):(\d\d) ([AP])M\b")


def cycle() -> str:
    """Return the cycle of hours of the browser's first language, as scripts name it."""
    language = (request.accept_languages.best or "")[:20]
    return "h23" if recipients.counts_24_hours(language) else "h12"


def for_reader(words: str) -> str:
    """Return words with their times of day, such as 7:00 PM, as the reader has them."""

    def in_24(match):
        return f"{int(match[1]) % 12 + 12 * (match[3] == 'P'):02}:{match[2]}"

    return _TIME.sub(in_24, words) if cycle() == "h23" else words


def time_of_day(at: datetime) -> str:
    """Write the time of day of an instant in its own zone."""
    return for_reader(written(at).partition(",")[0])
