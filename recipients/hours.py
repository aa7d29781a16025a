"""Business hours: when texts may be sent, and the local time in zones.

Everything here is a pure function of a country, its zones (the main one first) and an instant, an
aware UTC `datetime`.
"""

from bisect import bisect
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from recipients import calendars

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HORIZON = 60  # days; holidays never fall on the same weekday more than three weeks in a row
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)


class Facts(NamedTuple):
    """The local time and offsets of a recipient at one instant."""

    timezone: str  # "GMT-8"
    local_time: str  # "2:05 PM, Tuesday, Nov 5"
    timezone_offset: int | float | list[int | float]  # hours; a list if several, ascending
    is_dst: bool
    within_business_hours: bool


class NeverOpens(Exception):
    """Business hours do not begin within HORIZON days; no setting and no country leads to this.

    It is an error because a caller might take None for "now".
    """


class BusinessHours(NamedTuple):
    """When messages may be sent: from `opens` until before `closes`, on `days`.

    Both are minutes after local midnight, 0 <= opens < closes <= 1440. Monday is day 0.
    """

    opens: int
    closes: int
    days: frozenset[int] | None  # None: the working week of the recipient's country
    skip_holidays: bool = False  # public holidays of the recipient's country

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(*settings.business_hours, settings.business_days, settings.skip_holidays)

    def __str__(self):
        return f"{_clock(self.opens)} - {_clock(self.closes)} local time"

    def hold_at(self, country: str, local: datetime) -> bool:
        """Return whether a local time in a country is within these hours."""
        day, minute = local.date(), local.hour * 60 + local.minute
        if self.days is None:
            workday = calendars.is_workday(country, day)
        else:
            workday = day.weekday() in self.days
        holiday = self.skip_holidays and calendars.is_holiday(country, day)
        return self.opens <= minute < self.closes and workday and not holiday

    def facts(self, country: str, zones: tuple[ZoneInfo, ...], now: datetime) -> Facts:
        """Return the local time and offsets in the zones of a country now."""
        return _facts(country, zones, _minute(now), self)

    def next_opening(self, country: str, zones: tuple[ZoneInfo, ...], now: datetime) -> datetime:
        """Return the first instant after now, in UTC, at which business hours begin in the zones.

        Raise NeverOpens if they do not begin within HORIZON days.
        """
        return _next_opening(country, zones, _minute(now), self)


def written(local: datetime) -> str:
    """Return a local time in English, whatever the locale of the process."""
    clock = _clock(local.hour * 60 + local.minute)
    return f"{clock}, {_WEEKDAYS[local.weekday()]}, {_MONTHS[local.month - 1]} {local.day}"


@lru_cache(maxsize=1024)
def _clocks(zones, day):
    """Return one zone for each distinct clock in the weeks from a day, the main one first."""
    midnight = datetime.combine(day, time(), UTC)
    instants = [midnight + days * _DAY for days in range(HORIZON + 3)]
    distinct = {}
    for zone in zones:
        distinct.setdefault(tuple(at.astimezone(zone).utcoffset() for at in instants), zone)
    return tuple(distinct.values())


@lru_cache(maxsize=1024)
def _facts(country, zones, minute, hours):
    """Return the facts of one minute; recipients in the same zones share them."""
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
    """Return the first instant after a whole minute at which business hours begin.

    They can begin only when they open in some zone or its clocks change, both on whole minutes.
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
    """Return whether it is business hours in every zone that counts at an instant."""
    return all(hours.hold_at(country, local) for local in _counting(zones, at, hours))


def _counting(zones, at, hours):
    """Yield the local times in the zones that count, the main zone's first.

    Another zone counts if it and all before it that count have offsets that differ by no more than
    half the length of the hours. At least half of the hours then stays in common.
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
    """Yield the instants within and around a period at which hours may begin in one zone."""
    first, last = since.astimezone(zone), until.astimezone(zone)
    opens = time(*divmod(hours.opens, 60), tzinfo=zone)
    for ordinal in range(first.toordinal(), last.toordinal() + 1):
        opening = datetime.combine(date.fromordinal(ordinal), opens)
        yield opening.astimezone(UTC)
        yield opening.replace(fold=1).astimezone(UTC)
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
