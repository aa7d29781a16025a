"""Quiet hours: windows of the days on which they begin, everywhere or by place."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from texting.recipients import calendars
from texting.recipients.weeks import HOLIDAYS, Week, Window, week

MINUTES_OF_DAY = 1440
STATES = Path(__file__).parent / "numbering" / "states.txt"
KEY = "key"
"""The owner of quiet hours that are a key's own; see QuietHours.whose."""
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)


class QuietHours(NamedTuple):
    """Windows in which no text leaves, each by the day on which it begins.

    One whose end is not after its beginning ends on the next day.
    """

    windows: Week
    holidays: Window | None = None  # of public holidays, beside the day's own
    whose: str = ""  # a place, or KEY; by default, everybody's

    @classmethod
    def of(cls, hours: Window | Mapping[int, Window], whose: str = "") -> Self:
        """Return the quiet hours of every day, or those of a dict by day and HOLIDAYS."""
        holidays = hours.get(HOLIDAYS) if isinstance(hours, Mapping) else None
        return cls(week(hours), holidays, whose)

    def window(self, country: str, local: datetime) -> Window | None:
        """Return the window that holds at a local time in a country, or None."""
        minute, day = local.hour * 60 + local.minute, local.date()
        for each in self.beginning_on(country, day):
            if each[0] <= minute and (minute < each[1] or each[1] <= each[0]):
                return each
        for each in self.beginning_on(country, day - _DAY):
            if minute < each[1] <= each[0]:
                return each
        return None

    @property
    def origin(self) -> str:
        """Where an operator has written them, like "QUIET_HOURS_FILE US-TX"."""
        if self.whose == KEY:
            return KEY
        return f"QUIET_HOURS_FILE {self.whose}" if self.whose else "QUIET_HOURS"

    def span(self, country: str, local: datetime) -> tuple[datetime, datetime]:
        """Return the wall clock's times between which it is quiet around a local time.

        Windows that meet or overlap are one. If it is quiet for more than a week, it is only the
        window of this time.
        """
        minute = local.replace(tzinfo=None, second=0, microsecond=0)
        days = [local.date() + n * _DAY for n in range(-8, 9)]
        spans = sorted(self._spans(country, days))
        begins, ends = spans[0]
        for first, last in spans:
            if minute < first > ends:
                break
            begins = first if first > ends else begins
            ends = max(ends, last)
        if ends - begins > timedelta(days=7):
            begins, ends = next(each for each in spans if each[0] <= minute < each[1])
        return begins, ends

    def _spans(self, country, days):
        """Yield the beginning and the end of each window of these days."""
        for day in days:
            midnight = datetime.combine(day, time())
            for begins, ends in self.beginning_on(country, day):
                ends += MINUTES_OF_DAY if ends <= begins else 0
                yield midnight + begins * _MINUTE, midnight + ends * _MINUTE

    def beginning_on(self, country: str, day: date) -> Iterator[Window]:
        """Yield the windows that begin on a day in a country."""
        if window := self.windows[day.weekday()]:
            yield window
        if self.holidays and calendars.is_holiday(country, day):
            yield self.holidays

    def edges(self) -> set[int]:
        """Return the minutes of a day at which a window can begin or end."""
        windows = filter(None, (*self.windows, self.holidays))
        return {minute % MINUTES_OF_DAY for window in windows for minute in window}


class QuietPlaces(NamedTuple):
    """Quiet hours by place: a country, or a state of one (ISO 3166-2). The most specific count."""

    elsewhere: QuietHours | None = None
    lines: Mapping[str, QuietHours | None] = {}  # None: no quiet hours there

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        own, lines = settings.quiet_hours, settings.quiet_hours_file.items()
        read = {place: hours and QuietHours.of(hours, place) for place, hours in lines}
        return cls(own and QuietHours.of(own), read)

    def of(self, country: str, states: tuple[str, ...] = ()) -> tuple[QuietHours, ...]:
        """Return the quiet hours of a country's numbers; it is quiet when any of them say so.

        `states` are those in which a number can be; without any it can be in each of the country.
        """
        own = self.lines.get(country, self.elsewhere)
        if states:
            hours = [self.lines.get(state, own) for state in states]
        else:
            hours = [self.lines[state] for state in self.states(country)] + [own]
        return tuple(dict.fromkeys(filter(None, hours)))

    def there(self, place: str, country: str) -> tuple[QuietHours, ...]:
        """Return the quiet hours where somebody lives: in a country, a state of one, or a zone."""
        if place == country:
            return self.of(country)
        if place.startswith(f"{country}-"):
            return self.of(country, (place,))
        return tuple(filter(None, [self.lines.get(country, self.elsewhere)]))

    @property
    def are_none(self) -> bool:
        """Whether it is quiet nowhere."""
        return self.elsewhere is None and not any(self.lines.values())

    def states(self, country: str) -> list[str]:
        """Return the states of a country that have a line."""
        return [place for place in self.lines if place.startswith(f"{country}-")]


def states_of(area_code: str) -> tuple[str, ...]:
    """Return the states of a North American area code; () if the authority gives it none."""
    return _states()[0].get(area_code, ())


def state_names() -> dict[str, str]:
    """Return the English names of the states, by their ISO 3166-2 codes."""
    return _states()[1]


@cache
def _states():
    """Return numbering/states.txt: the states of each area code, and their names."""
    codes, names = {}, {}
    for line in STATES.read_text("ascii").splitlines()[1:]:
        state, area_codes, names[state] = line.split(" ", 2)
        for code in area_codes.split(","):
            codes[code] = (*codes.get(code, ()), state)
    return codes, names
