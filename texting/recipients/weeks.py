"""Hours by the day as operators write them, like `mon-fri 09:00-17:00, sat 10:00-14:00`.

A function that reads a text raises ValueError with words that can follow a setting's name.
"""

import re
from collections.abc import Iterable, Mapping

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOLIDAYS = 7
"""The number of public holidays, as if they were a day of the week; Monday is 0."""

Window = tuple[int, int]
"""A beginning and an end, in minutes after local midnight."""

Week = tuple[Window | None, ...]
"""The windows of Monday to Sunday; None: none on this day."""


def week(hours: Window | Mapping[int, Window], days: Iterable[int] = range(7)) -> Week:
    """Return the windows of a week: those of a dict by day, or the same on these days."""
    hours = hours if isinstance(hours, Mapping) else dict.fromkeys(days, hours)
    return tuple(map(hours.get, range(7)))


def business_hours(text: str) -> Window | dict[int, Window]:
    """Return the hours of every day, or a dict of them if the text names days."""
    named = f"one day or range of {', '.join(DAYS)}"
    examples = "mon-fri 09:00-17:00", "sat 10:00-14:00"
    return _read(text, _opening, "one opening and one closing time", days, named, examples)


def quiet_hours(text: str) -> Window | dict[int, Window]:
    """Return the quiet hours of every day, or a dict of them if the text names days or holidays.

    A window whose end is not after its beginning ends on the next day.
    """
    named = f"one day or range of {', '.join(DAYS)}, or holidays"
    examples = "sun-fri 21:00-09:00", "sat 21:00-12:00"
    return _read(text, _quiet, "one start and one end", quiet_days, named, examples)


def days(text: str) -> list[int]:
    """Return a day or a range of days, which can pass Sunday; [] if the text is neither."""
    first, dash, last = (day.strip() for day in text.lower().partition("-"))
    if first not in DAYS or (dash and last not in DAYS):
        return []
    start, end = DAYS.index(first), DAYS.index(last if dash else first)
    return [(start + n) % 7 for n in range((end - start) % 7 + 1)]


def quiet_days(text: str) -> list[int]:
    """Return a day or a range of days, or holidays; [] if the text is none of these."""
    return [HOLIDAYS] if text.strip().lower() == "holidays" else days(text)


def _read(text, window, words, days, named, examples):
    """Return the hours of every day, or of those that each entry names."""
    if not re.search("[a-z]", text, re.IGNORECASE):
        if "," in text:
            raise ValueError(f"must be {words}, or name the days")
        return window(text.strip(), "")
    windows = {}
    for number, entry in enumerate(text.split(","), 1):
        names, hours = re.fullmatch(r"(\D*)(.*)", entry.strip(), re.DOTALL).groups()
        begin = f"entry {number} must begin with"
        if not names:
            raise ValueError(f"{begin} days, like {examples[0]}")
        if not (numbers := days(names)):
            raise ValueError(f"{begin} {named}")
        if not hours or names == names.rstrip():
            raise ValueError(
                f"entry {number} must have a space and hours after the days, like {examples[1]}"
            )
        of_entry = dict.fromkeys(numbers, window(hours, f"the hours of entry {number} "))
        if again := windows.keys() & of_entry:
            raise ValueError(f"entry {number} must not repeat {(*DAYS, 'holidays')[min(again)]}")
        windows |= of_entry
    return windows


def _opening(text, whose):
    """Return an opening and a later closing on the same day."""
    opens, closes = _window(text, "must be an opening and a closing time, like 09:00-17:00", whose)
    if opens >= closes:
        raise ValueError(f"{whose}must be an opening and a later closing time of the same day")
    return opens, closes


def _quiet(text, whose):
    begins, ends = _window(text, "must be a start and an end, like 21:00-08:00", whose)
    if begins == ends:
        raise ValueError(f"{whose}must start and end at different times")
    return begins, ends


def _window(text, form, whose):
    """Return the minutes after midnight of two times, like 09:00-17:00."""
    match = re.fullmatch(r"(\d\d):([0-5]\d) ?- ?(\d\d):([0-5]\d)", text, re.ASCII)
    if not match:
        raise ValueError(f"{whose}{form}")
    hour, minute, last_hour, last_minute = map(int, match.groups())
    begins, ends = 60 * hour + minute, 60 * last_hour + last_minute
    if begins >= 24 * 60 or ends > 24 * 60:
        raise ValueError(f"{whose}must be times from 00:00 to 24:00, the first before 24:00")
    return begins, ends
