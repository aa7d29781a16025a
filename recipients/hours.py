"""Business hours: when texts may go, and what the clocks of zones say.

Everything here is a function of a country, its zones (the main one first) and an instant, an aware
UTC `datetime`.
"""

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from recipients import calendars

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HORIZON = 60  # days; a country's holidays leave out a day of the week three times at most
_DAY = timedelta(days=1)


class Facts(NamedTuple):
    """What the clocks of a recipient say at one instant."""

    timezone: str  # "GMT-8"
    local_time: str  # "2:05 PM, Tuesday, Nov 5"
    timezone_offset: int | float | list[int | float]  # hours; ascending where there are several
    is_dst: bool
    within_business_hours: bool


class NeverOpens(Exception):
    """Business hours do not begin within the horizon; no settings and no country lead to this.

    It is an error rather than None so that nobody sends at once instead.
    """


class BusinessHours(NamedTuple):
    """When messages may be sent: from `opens` up to, not including, `closes` on `days`.

    Minutes after local midnight, 0 <= opens < closes <= 1440; Monday is day 0.
    """

    opens: int
    closes: int
    days: frozenset[int] | None  # None: the working week of the recipient's country
    skip_holidays: bool = False  # those of the recipient's country

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Return the hours that the environment asks for."""
        return cls(*settings.business_hours, settings.business_days, settings.skip_holidays)

    def __str__(self):
        return f"{_clock(self.opens)} - {_clock(self.closes)} local time"

    def hold_at(self, country: str, local: datetime) -> bool:
        """Say whether a local time in a country is within these hours."""
        minute = local.hour * 60 + local.minute
        return self.opens <= minute < self.closes and self.hold_on(country, local.date())

    def hold_on(self, country: str, day: date) -> bool:
        """Say whether a day in a country has business hours."""
        if self.days is None:
            workday = calendars.is_workday(country, day)
        else:
            workday = day.weekday() in self.days
        return workday and not (self.skip_holidays and calendars.is_holiday(country, day))

    def facts(self, country: str, zones: tuple[ZoneInfo, ...], now: datetime) -> Facts:
        """Return what the clocks of a country's zones show now."""
        return _facts(country, zones, _minute(now), self)

    def next_opening(self, country: str, zones: tuple[ZoneInfo, ...], now: datetime) -> datetime:
        """Return the first instant after now, UTC, at which business hours begin in zones.

        Raise NeverOpens where they do not within HORIZON days.
        """
        return _next_opening(country, zones, _minute(now), self)


def written(local: datetime) -> str:
    """Write a local time in English, whatever the locale of the process."""
    clock = _clock(local.hour * 60 + local.minute)
    return f"{clock}, {_WEEKDAYS[local.weekday()]}, {_MONTHS[local.month - 1]} {local.day}"


@lru_cache(maxsize=1024)
def _clocks(zones, day):
    """Return one zone for each way in which clocks run in the weeks from a day, main one first."""
    midnight = datetime.combine(day, time(), UTC)
    instants = [midnight + days * _DAY for days in range(HORIZON + 3)]
    distinct = {}
    for zone in zones:
        distinct.setdefault(tuple(at.astimezone(zone).utcoffset() for at in instants), zone)
    return tuple(distinct.values())


@lru_cache(maxsize=1024)
def _facts(country, zones, minute, hours):
    """Return what clocks show in one minute, cached: recipients of the same minute share it."""
    zones = _clocks(zones, minute.date())
    main, *others = (minute.astimezone(zone) for zone in zones)
    offsets = sorted({_hours(main), *map(_hours, others)})
    return Facts(
        timezone=f"GMT{_hours(main):+g}",
        local_time=written(main),
        timezone_offset=offsets if len(offsets) > 1 else offsets[0],
        is_dst=_is_dst(main),
        within_business_hours=_hold(country, zones, minute, hours),
    )


@lru_cache(maxsize=1024)
def _next_opening(country, zones, after, hours):
    """Return the first instant after a whole minute at which hours begin to hold.

    They can only begin where, in some zone, they open or the clocks change; both happen on whole
    minutes.
    """
    zones = _clocks(zones, after.date())
    for _ in range(HORIZON):
        until = after + _DAY
        begins = sorted({at for zone in zones for at in _beginnings(zone, after, until, hours)})
        for at in begins:
            if after < at <= until and _hold(country, zones, at, hours):
                return at
        after = until
    raise NeverOpens(f"no business hours in {country} within {HORIZON} days")


def _hold(country, zones, at, hours):
    """Say whether hours hold in all zones that count at an instant."""
    return all(hours.hold_at(country, local) for local in _counting(zones, at, hours))


def _counting(zones, at, hours):
    """Yield the local times that count: the main zone's, and those of the others as they join.

    A zone joins while the offsets of all that have joined differ by no more than half the length of
    the hours, so that at least half of them stay in common.
    """
    half = timedelta(minutes=(hours.closes - hours.opens) / 2)
    least = most = at.astimezone(zones[0]).utcoffset()
    for zone in zones:
        local = at.astimezone(zone)
        offset = local.utcoffset()
        if max(most, offset) - min(least, offset) <= half:
            least, most = min(least, offset), max(most, offset)
            yield local


def _beginnings(zone, since, until, hours):
    """Yield the instants about a day at which hours may begin in one zone."""
    first, last = since.astimezone(zone), until.astimezone(zone)
    opens = time(*divmod(hours.opens, 60), tzinfo=zone)
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        opening = datetime.combine(date.fromordinal(ordinal), opens)
        yield opening.astimezone(UTC)
        yield opening.replace(fold=1).astimezone(UTC)
    if first.utcoffset() != last.utcoffset():
        yield _change(zone, since, until)


def _change(zone, before, after):
    """Return the instant between two whole minutes at which the clocks of a zone change."""
    offset = before.astimezone(zone).utcoffset()
    while (minutes := (after - before) // timedelta(minutes=1)) > 1:
        middle = before + timedelta(minutes=minutes // 2)
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after


def _is_dst(local):
    """Say whether people would call a local time daylight saving time.

    Irish law calls winter time the exception and summer time standard, and IANA follows it; the
    Irish do not. Morocco's negative saving in Ramadan is not daylight saving time either.
    """
    if local.tzinfo.key == "Europe/Dublin":
        return not local.dst()
    return local.dst() > timedelta(0)


def _hours(local):
    """Return the UTC offset of a local time in hours, an int where it is whole."""
    hours = local.utcoffset() / timedelta(hours=1)
    return int(hours) if hours.is_integer() else hours


def _clock(minute):
    """Write a minute of the day on a twelve-hour clock."""
    hour, minute = divmod(minute % 1440, 60)
    return f"{hour % 12 or 12}:{minute:02} {'PM' if hour >= 12 else 'AM'}"


def _minute(at):
    return at.replace(second=0, microsecond=0)
