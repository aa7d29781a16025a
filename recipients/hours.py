"""Business hours and quiet hours: when texts may be sent, and the local time in zones.

Everything here is a pure function of a recipient's clocks and an instant, an aware UTC `datetime`.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from recipients import calendars

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HORIZON = 60  # days; holidays never fall on the same weekday more than three weeks in a row
EVERYBODY, LIKELY = 100_000, 1_000  # people: all of a country, and one in a hundred
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)

Window = tuple[int, int]
"""A beginning and an end, in minutes after local midnight."""


class NeverOpens(Exception):
    """Business hours do not begin within HORIZON days; no setting and no country leads to this.

    It is an error because a caller might take None for "now".
    """


@dataclass(frozen=True, eq=False)  # compared by identity, which makes the caches quick
class Clocks:
    """The clocks that a recipient may live by: zones of one country, the main one first.

    `people` tells how many in 100,000 of the country's people live in each zone. Zones that show
    the same time are one clock, and clocks of too few people are left out. Without `people`, all
    clocks are likely.
    """

    country: str
    zones: tuple[ZoneInfo, ...]
    people: tuple[int, ...] | None = None

    def local_times(self, at: datetime) -> list[datetime]:
        """Return the time on each likely clock at an instant, the main zone's first."""
        people, local_times = Counter(), {}
        for zone, count in _distinct(self, at.date()):
            local = at.astimezone(zone)
            people[local.utcoffset()] += count
            local_times.setdefault(local.utcoffset(), local)
        return [local for offset, local in local_times.items() if people[offset] >= LIKELY]


class Facts(NamedTuple):
    """The local time, the offsets and the business hours of a recipient at one instant."""

    timezone: str  # "GMT-8"
    local_time: str  # "2:05 PM, Tuesday, Nov 5"
    timezone_offset: int | float | list[int | float]  # hours; a list if several, ascending
    is_dst: bool
    within_business_hours: bool
    business_hours: str  # "9:00 AM - 5:00 PM local time", of this day or the next open one


class BusinessHours(NamedTuple):
    """When messages may be sent: each day from its opening until before its closing.

    Nothing is sent in quiet hours, which can pass midnight. Monday is day 0.
    """

    windows: tuple[Window | None, ...]  # of Monday to Sunday; None: closed
    local_week: bool = False  # only in the working week of the recipient's country
    skip_holidays: bool = False  # public holidays of the recipient's country
    quiet: Window | None = None

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        hours, days = settings.business_hours, settings.business_days
        if not isinstance(hours, dict):
            hours = dict.fromkeys(range(7) if days is None else days, hours)
        windows = tuple(hours.get(day) for day in range(7))
        return cls(windows, days is None, settings.skip_holidays, settings.quiet_hours)

    def window(self, country: str, day: date) -> Window | None:
        """Return the opening and closing on a day in a country, or None if it is closed."""
        if self.local_week and not calendars.is_workday(country, day):
            return None
        if self.skip_holidays and calendars.is_holiday(country, day):
            return None
        return self.windows[day.weekday()]

    def next_window(self, country: str, day: date) -> Window:
        """Return the window of a day; on a closed day, that of the next open one."""
        if len(windows := {*self.windows} - {None}) == 1:
            return windows.pop()
        for days in range(HORIZON):
            if window := self.window(country, day + days * _DAY):
                return window
        raise NeverOpens(f"no business hours in {country} within {HORIZON} days")

    def hold_at(self, country: str, local: datetime) -> bool:
        """Return whether a local time in a country is within these hours and not quiet."""
        window = self.window(country, local.date())
        return bool(window) and _within(window, local) and not self.are_quiet_at(local)

    def are_quiet_at(self, local: datetime) -> bool:
        """Return whether a local time is within the quiet hours."""
        return self.quiet is not None and _within(self.quiet, local)

    def facts(self, clocks: Clocks, now: datetime) -> Facts:
        """Return the local time and offsets of a recipient now."""
        return _facts(clocks, _minute(now), self)

    def next_opening(self, clocks: Clocks, now: datetime) -> datetime:
        """Return the first instant after now, in UTC, at which business hours begin.

        Raise NeverOpens if they do not begin within HORIZON days.
        """
        return _next_opening(clocks, _minute(now), self)

    def quiet_until(self, clocks: Clocks, at: datetime) -> datetime | None:
        """Return the first instant after the quiet hours at an instant; None if it is not quiet.

        They hold where they hold on any clock that counts. Raise NeverOpens if they do not end
        within HORIZON days, OverflowError if they end in the year 10000.
        """
        return _quiet_until(clocks, _minute(at), self) if self.quiet else None


def written(local: datetime) -> str:
    """Return a local time in English, whatever the locale of the process."""
    clock = _clock(local.hour * 60 + local.minute)
    return f"{clock}, {_WEEKDAYS[local.weekday()]}, {_MONTHS[local.month - 1]} {local.day}"


def written_window(window: Window) -> str:
    """Return a window in English, like "9:00 AM - 5:00 PM local time"."""
    begins, ends = window
    return f"{_clock(begins)} - {_clock(ends)} local time"


@lru_cache(maxsize=1024)
def _distinct(clocks, day):
    """Return a zone for each distinct clock in the weeks from a day, and its people."""
    midnight = datetime.combine(day, time(), UTC)
    instants = [midnight + days * _DAY for days in range(HORIZON + 3)]
    first, people = {}, Counter()
    each = clocks.people or [EVERYBODY] * len(clocks.zones)
    for zone, count in zip(clocks.zones, each, strict=True):
        shown = tuple(at.astimezone(zone).utcoffset() for at in instants)
        first.setdefault(shown, zone)
        people[shown] += count
    return tuple((zone, people[shown]) for shown, zone in first.items())


@lru_cache(maxsize=1024)
def _facts(clocks, minute, hours):
    """Return the facts of one minute; recipients with the same clocks share them."""
    main, *others = clocks.local_times(minute)
    offsets = sorted({_hours(main), *map(_hours, others)})
    return Facts(
        timezone=f"GMT{_hours(main):+g}",
        local_time=written(main),
        timezone_offset=offsets if len(offsets) > 1 else offsets[0],
        is_dst=_is_dst(main),
        within_business_hours=_hold(clocks, minute, hours),
        business_hours=written_window(hours.next_window(clocks.country, main.date())),
    )


@lru_cache(maxsize=1024)
def _next_opening(clocks, after, hours):
    """Return the first instant after a whole minute at which business hours begin."""
    return _first(clocks, after, hours, lambda at: _hold(clocks, at, hours))


@lru_cache(maxsize=1024)
def _quiet_until(clocks, minute, hours):
    """Return the first instant after the quiet hours at a whole minute, or None."""
    if not _is_quiet(clocks, minute, hours):
        return None
    return _first(clocks, minute, hours, lambda at: not _is_quiet(clocks, at, hours))


def _first(clocks: Clocks, after: datetime, hours: BusinessHours, is_true: Callable) -> datetime:
    """Return the first instant after a whole minute at which something begins to be true."""
    for days in range(HORIZON + 1):
        for at in _turns(clocks, after.date() + days * _DAY, hours):
            if at > after and is_true(at):
                return at
    raise NeverOpens(f"no business hours in {clocks.country} within {HORIZON} days")


@lru_cache(maxsize=1024)
def _turns(clocks, day, hours):
    """Return the instants at which hours may begin, from one midnight of UTC until the next.

    They can begin only when a window opens, quiet hours end or a day begins in some zone, or its
    clocks change: all on whole minutes.
    """
    minutes = {0, *(window[0] for window in hours.windows if window)}
    if hours.quiet:
        minutes.add(hours.quiet[1] % 1440)
    midnight = datetime.combine(day, time(), UTC)
    until = midnight + _DAY
    zones = [zone for zone, _ in _distinct(clocks, day)]
    found = {at for zone in zones for at in _beginnings(zone, midnight, until, minutes)}
    return sorted(at for at in found if midnight < at <= until)


@lru_cache(maxsize=4096)  # one minute after another asks of the same openings
def _hold(clocks, at, hours):
    """Return whether it is business hours on every clock that counts at an instant."""
    return all(hours.hold_at(clocks.country, local) for local in _counting(clocks, at, hours))


@lru_cache(maxsize=4096)
def _is_quiet(clocks, at, hours):
    """Return whether it is quiet hours on any clock that counts at an instant."""
    return any(map(hours.are_quiet_at, _counting(clocks, at, hours)))


def _counting(clocks, at, hours):
    """Yield the local times on the clocks that count, the main zone's first.

    Another clock counts if it and all before it that count have offsets that differ by no more
    than half the length of the main zone's window. At least half of it then stays in common.
    """
    local_times = clocks.local_times(at)
    opens, closes = hours.next_window(clocks.country, local_times[0].date())
    half = timedelta(minutes=(closes - opens) / 2)
    least = most = local_times[0].utcoffset()
    for local in local_times:
        offset = local.utcoffset()
        if max(most, offset) - min(least, offset) <= half:
            least, most = min(least, offset), max(most, offset)
            yield local


def _within(window, local):
    """Return whether a local time is within a window, which can pass midnight."""
    begins, ends = window
    minute = local.hour * 60 + local.minute
    if begins < ends:
        return begins <= minute < ends
    return minute >= begins or minute < ends


def _beginnings(zone, since, until, minutes):
    """Yield the instants within and around a period that are these minutes of a day in one zone."""
    first, last = since.astimezone(zone), until.astimezone(zone)
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        for minute in minutes:
            local = datetime.combine(
                date.fromordinal(ordinal), time(*divmod(minute, 60), tzinfo=zone)
            )
            yield local.astimezone(UTC)
            yield local.replace(fold=1).astimezone(UTC)
    if first.utcoffset() != last.utcoffset():
        yield _change(zone, since, until)


def _change(zone, before, after):
    """Return the instant between two whole minutes at which a zone changes its offset."""
    offset = before.astimezone(zone).utcoffset()

    def changed(minutes):
        return (before + minutes * _MINUTE).astimezone(zone).utcoffset() != offset

    return before + bisect(range((after - before) // _MINUTE), False, key=changed) * _MINUTE


def _is_dst(local):
    """Return whether people would call a local time daylight saving time.

    IANA follows Irish law, which calls summer time standard and winter time the exception. The
    Irish do not. Morocco's negative saving in Ramadan is not daylight saving time either.
    """
    if local.tzinfo.key == "Europe/Dublin":
        return not local.dst()
    return local.dst() > timedelta(0)


def _hours(local):
    """Return the UTC offset of a local time in hours, an int if it is whole."""
    hours = local.utcoffset() / timedelta(hours=1)
    return int(hours) if hours.is_integer() else hours


def _clock(minute):
    """Return a minute of the day on a twelve-hour clock."""
    hour, minute = divmod(minute % 1440, 60)
    return f"{hour % 12 or 12}:{minute:02} {'PM' if hour >= 12 else 'AM'}"


def _minute(at):
    return at.replace(second=0, microsecond=0)
