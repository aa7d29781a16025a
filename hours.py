"""Business hours: when texts may go, and what the clocks of zones say.

Everything here is a function of a country, its zones (the main one first) and an instant, an aware
UTC `datetime`.
"""

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HORIZON = 15  # days in which hours that can overlap do so, whatever the clocks do meanwhile
_DAY = timedelta(days=1)


class Facts(NamedTuple):
    """What the clocks of a recipient say at one instant."""

    timezone: str  # "GMT-8"
    local_time: str  # "2:05 PM, Tuesday, Nov 5"
    timezone_offset: int | float | list[int | float]  # hours; ascending where there are several
    is_dst: bool
    within_business_hours: bool


class BusinessHours(NamedTuple):
    """When messages may be sent: from `opens` up to, not including, `closes` on `days`.

    Minutes after local midnight, 0 <= opens < closes <= 1440; Monday is day 0.
    """

    opens: int
    closes: int
    days: frozenset[int] | None  # None: the working week of the recipient's country
    skip_holidays: bool = False

    @classmethod
    def from_settings(cls, settings) -> Self:
        """Return the hours that the environment asks for."""
        return cls(*settings.business_hours, settings.business_days, settings.skip_holidays)

    def __str__(self):
        return f"{_clock(self.opens)} - {_clock(self.closes)} local time"

    def hold_at(self, local: datetime) -> bool:
        """Say whether a local time is within these hours."""
        minute = local.hour * 60 + local.minute
        return self.opens <= minute < self.closes and local.weekday() in self.days

    def facts(self, zones: tuple[ZoneInfo, ...], now: datetime) -> Facts:
        """Tell what the clocks of zones say now."""
        return _facts(zones, _minute(now), self)

    def next_opening(self, zones: tuple[ZoneInfo, ...], now: datetime) -> datetime:
        """Return the first instant after now, UTC, at which business hours begin in zones."""
        zones, minute = _clocks(zones, now.date()), _minute(now)
        return _common_opening(zones, minute, self) or _common_opening(zones[:1], minute, self)


def written(local: datetime) -> str:
    """Write a local time in English, whatever the locale of the process."""
    clock = _clock(local.hour * 60 + local.minute)
    return f"{clock}, {_WEEKDAYS[local.weekday()]}, {_MONTHS[local.month - 1]} {local.day}"


@lru_cache(maxsize=1024)
def _clocks(zones, day):
    """Return one zone for each way in which clocks run in the weeks from a day, main one first."""
    midnight = datetime.combine(day, time(), UTC)
    instants = [midnight + days * _DAY for days in range(_HORIZON + 3)]
    distinct = {}
    for zone in zones:
        distinct.setdefault(tuple(at.astimezone(zone).utcoffset() for at in instants), zone)
    return tuple(distinct.values())


@lru_cache(maxsize=1024)
def _facts(zones, minute, hours):
    """Tell what clocks say in one minute: most recipients of a minute share theirs with others."""
    zones = _clocks(zones, minute.date())
    main, *others = (minute.astimezone(zone) for zone in zones)
    offsets = sorted({_hours(main), *map(_hours, others)})
    return Facts(
        timezone=f"GMT{_hours(main):+g}",
        local_time=written(main),
        timezone_offset=offsets if len(offsets) > 1 else offsets[0],
        is_dst=_is_dst(main),
        within_business_hours=_within(zones, minute, hours),
    )


def _within(zones, minute, hours):
    """Say the same of zones whose clocks differ."""
    if not _hold(zones[:1], minute, hours):
        return False
    return _hold(zones, minute, hours) or _common_opening(zones, minute, hours) is None


@lru_cache(maxsize=1024)
def _common_opening(zones, after, hours):
    """Return the first instant after a whole minute at which hours begin to hold in all zones.

    None where they do not within the horizon. Hours can only begin where, in some zone, they open
    or the clocks change; both happen on whole minutes.
    """
    for _ in range(_HORIZON):
        until = after + _DAY
        begins = sorted({at for zone in zones for at in _beginnings(zone, after, until, hours)})
        for at in begins:
            if after < at <= until and _hold(zones, at, hours):
                return at
        after = until
    return None


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


def _hold(zones, at, hours):
    return all(hours.hold_at(at.astimezone(zone)) for zone in zones)


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
