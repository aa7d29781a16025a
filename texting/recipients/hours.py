"""Business hours and quiet hours: when texts may be sent, and the local time in zones.

Everything here is a pure function of a recipient's clocks and an instant, an aware UTC `datetime`.
"""

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from texting.recipients import calendars
from texting.recipients.quiet import QuietHours
from texting.recipients.weeks import Week, Window, week

HORIZON = 60  # days; holidays never fall on the same weekday more than three weeks in a row
YEAR = 366  # days
EVERYBODY, LIKELY = 100_000, 1_000  # shares of a country's people: all, and one in a hundred
_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)


class NeverOpens(Exception):
    """Business hours do not begin within HORIZON days; no setting and no country leads to this.

    It is an error because a caller might take None for "now".
    """


class Clocks(NamedTuple):
    """The clocks that a recipient may live by: zones of one country, the main one first.

    `people` tells how many in 100,000 of the country's people live in each zone. Zones that show
    the same time are one clock, and clocks of too few people are left out. Without `people`, all
    clocks are likely.

    If they are those of the place where the recipient lives, `of_number` are those that the number
    tells: its own quiet hours hold on them, too, and from `until` on they are the only ones.
    """

    country: str
    zones: tuple[ZoneInfo, ...]
    people: tuple[int, ...] | None = None
    of_number: Self | None = None
    until: datetime | None = None

    def at(self, instant: datetime) -> Self:
        """Return the clocks by which the recipient lives at an instant."""
        return self.of_number if self.until and instant >= self.until else self

    def local_times(self, at: datetime) -> list[datetime]:
        """Return the time on each likely clock at an instant, the main zone's first."""
        minute = at.replace(second=0, microsecond=0)
        return [at.astimezone(offset) for offset in _likely_offsets(self, minute)]


class Facts(NamedTuple):
    """The local time, the offsets and the business hours of a recipient at one instant."""

    timezone: str  # "GMT-8"
    local_time: str  # "2:05 PM, Tuesday, Nov 5"
    timezone_offset: int | float | list[int | float]  # hours; a list if several, ascending
    is_dst: bool
    within_business_hours: bool
    business_hours: str  # "9:00 AM - 5:00 PM local time", of this day or the next open one


class QuietTime(NamedTuple):
    """Why no text may leave at an instant: quiet hours, where they hold, and the local time."""

    hours: QuietHours
    country: str
    local: datetime

    @property
    def window(self) -> str:
        """From when until when it is quiet, like "9:00 PM - 8:00 AM local time".

        Windows that meet are one. The days are named if it is longer than a day.
        """
        begins, ends = self.hours.span(self.country, self.local)
        form = "%-I:%M %p" if ends - begins <= _DAY else "%-I:%M %p, %A"
        return f"{begins:{form}} - {ends:{form}} local time"


class BusinessHours(NamedTuple):
    """When messages may be sent: each day from its opening until before its closing.

    Nothing is sent in quiet hours: if there are several, in any of them. Monday is day 0. `quiet`
    are those of the number, `quiet_there` those of the place where its owner lives, if it is known.
    """

    windows: Week  # None: closed
    local_week: bool = False  # only in the working week of the recipient's country
    skip_holidays: bool = False  # public holidays of the recipient's country
    quiet: tuple[QuietHours, ...] = ()
    quiet_there: tuple[QuietHours, ...] = ()

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        days = settings.business_days
        windows = week(settings.business_hours, range(7) if days is None else days)
        quiet = (QuietHours.of(settings.quiet_hours),) if settings.quiet_hours else ()
        return cls(windows, days is None, settings.skip_holidays, quiet)

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

    def is_open(self, clocks: Clocks, at: datetime) -> bool:
        """Return whether it is business hours on every clock that counts at an instant.

        The main zone's clock counts. The others follow in their order: each counts if it leaves at
        least half of the main zone's hours in common with all that count before it.
        """
        here = clocks.at(at)
        quiet = self.quiet_there if here.of_number else self.quiet
        local_times = self._counting(here, at)
        if not all(self._hold_at(here.country, local, quiet) for local in local_times):
            return False
        return not (here.of_number and self._quiet_on(here.of_number, self.quiet, at))

    def quiet_time(self, clocks: Clocks, at: datetime) -> QuietTime | None:
        """Return which quiet hours hold on any clock that counts at an instant, or None."""
        here = clocks.at(at)
        if not here.of_number:
            return self._quiet_on(here, self.quiet, at)
        there = self._quiet_on(here, self.quiet_there, at)
        return there or self._quiet_on(here.of_number, self.quiet, at)

    def next_quiet_time(self, clocks: Clocks, at: datetime) -> QuietTime | None:
        """Return which quiet hours hold at an instant, or begin next; None if none ever do."""
        if quiet_time := self.quiet_time(clocks, at):
            return quiet_time
        try:  # a holiday may be the only one
            begins = self._first(
                clocks, at, lambda later: self.quiet_time(clocks, later), within=YEAR
            )
        except (NeverOpens, OverflowError):
            return None
        return self.quiet_time(clocks, begins)

    def zones(self, clocks: Clocks, at: datetime) -> list[ZoneInfo]:
        """Return the first zone of each clock that counts at an instant, the main one first."""
        here, of_clocks = clocks.at(at), {}
        for zone in here.zones:
            of_clocks.setdefault(at.astimezone(zone).utcoffset(), zone)
        return [of_clocks[local.utcoffset()] for local in self._counting(here, at)]

    def opens_at(self, clocks: Clocks, now: datetime) -> datetime:
        """Return the first instant from now on at which it is business hours, in UTC.

        Raise NeverOpens if they do not begin within HORIZON days.
        """
        return now if self.is_open(clocks, now) else self.next_opening(clocks, now)

    @property
    def are_ever_quiet(self) -> bool:
        """Whether there are any quiet hours."""
        return bool(self.quiet or self.quiet_there)

    def without_quiet(self) -> Self:
        """Return the business hours alone."""
        return self._replace(quiet=(), quiet_there=())

    def only_quiet(self, clocks: Clocks, at: datetime) -> bool:
        """Return whether quiet hours alone keep it from being business hours at an instant."""
        return self.without_quiet().is_open(clocks, at) and not self.is_open(clocks, at)

    def next_opening(self, clocks: Clocks, now: datetime) -> datetime:
        """Return the first instant after now, in UTC, at which business hours begin.

        Raise NeverOpens if they do not begin within HORIZON days.
        """
        return self._first(clocks, now, lambda at: self.is_open(clocks, at))

    def quiet_until(self, clocks: Clocks, at: datetime) -> datetime | None:
        """Return the first instant after the quiet hours at an instant; None if it is not quiet.

        They hold where they hold on any clock that counts. Raise NeverOpens if they do not end
        within HORIZON days, OverflowError if they end in the year 10000.
        """
        if not self.quiet_time(clocks, at):
            return None
        return self._first(clocks, at, lambda later: not self.quiet_time(clocks, later))

    def quiet_from(self, clocks: Clocks, at: datetime) -> datetime | None:
        """Return when the next quiet hours after an instant begin; None if none do within a week.

        It may be some seconds too early, since it is looked for by the minute.
        """
        minute = at.replace(second=0, microsecond=0)
        return _quiet_from(self, clocks, minute) if self.are_ever_quiet else None

    def facts(self, clocks: Clocks, now: datetime) -> Facts:
        """Return the local time, the offsets and the business hours of a recipient now."""
        here = clocks.at(now)
        main = now.astimezone(here.zones[0])
        offsets = [_hours(local) for local in here.local_times(now)]
        return Facts(
            timezone=f"GMT{offsets[0]:+g}",
            local_time=written(main),
            timezone_offset=sorted(offsets) if len(offsets) > 1 else offsets[0],
            is_dst=_is_dst(main),
            within_business_hours=self.is_open(clocks, now),
            business_hours=written_window(self.next_window(here.country, main.date())),
        )

    def _hold_at(self, country, local, quiet):
        """Return whether a local time in a country is within these hours and not quiet."""
        window = self.window(country, local.date())
        if not window or not window[0] <= local.hour * 60 + local.minute < window[1]:
            return False
        return not _quiet_time_at(quiet, country, local)

    def _quiet_on(self, clocks, quiet, at):
        """Return which of these quiet hours hold on any clock that counts, or None."""
        local_times = self._counting(clocks, at) if quiet else ()
        found = (_quiet_time_at(quiet, clocks.country, local) for local in local_times)
        return next(filter(None, found), None)

    def _counting(self, clocks, at):
        """Yield the local times on the clocks that count."""
        main, *others = clocks.local_times(at)
        yield main
        if not others:
            return
        opens, closes = self.next_window(clocks.country, main.date())
        half, least = (closes - opens) * _MINUTE / 2, main.utcoffset()
        most = least
        for local in others:
            offset = local.utcoffset()
            if max(most, offset) - min(least, offset) <= half:
                least, most = min(least, offset), max(most, offset)
                yield local

    def _first(self, clocks, after, is_true, within=HORIZON):
        """Return the first instant after another at which something about hours becomes true.

        That is only when a window opens, quiet hours begin or end, a day begins on some clock, or a
        clock changes: all on whole minutes.
        """
        minutes = {0, *(window[0] for window in self.windows if window)}
        minutes.update(*(hours.edges() for hours in (*self.quiet, *self.quiet_there)))
        zones = clocks.zones + (clocks.of_number.zones if clocks.of_number else ())
        for days in range(within + 1):
            for at in _instants(zones, after.date() + days * _DAY, minutes):
                if at > after and is_true(at) and not is_true(at - _MINUTE):
                    return at
        raise NeverOpens(f"no business hours in {clocks.country} within {within} days")


def written(local: datetime) -> str:
    """Return a local time in English: no code changes the locale in which Python starts."""
    return f"{local:%-I:%M %p, %A, %b %-d}"


def written_window(window: Window) -> str:
    """Return a window in English, like "9:00 AM - 5:00 PM local time"."""
    begins, ends = window
    return f"{_clock(begins)} - {_clock(ends)} local time"


@lru_cache(maxsize=2048)  # all texts of one minute to a place share it
def _quiet_from(hours, clocks, minute):
    try:
        return hours._first(clocks, minute, lambda later: hours.quiet_time(clocks, later), within=7)
    except (NeverOpens, OverflowError):
        return None


@lru_cache(maxsize=2048)  # 0.1 ms for the United States' 29 zones
def _likely_offsets(clocks, minute):
    """Return the distinct offsets of those zones in which enough people live, in their order."""
    people = Counter()
    each = clocks.people or [EVERYBODY] * len(clocks.zones)
    for zone, count in zip(clocks.zones, each, strict=True):
        people[minute.astimezone(zone).utcoffset()] += count
    return tuple(timezone(offset) for offset, count in people.items() if count >= LIKELY)


def _quiet_time_at(quiet, country, local):
    """Return which of these quiet hours hold at a local time in a country, or None."""
    for hours in quiet:
        if hours.window(country, local):
            return QuietTime(hours, country, local)
    return None


def _instants(zones, day, minutes):
    """Return the instants of a day of UTC that can be these minutes of a day on some clock.

    Where a clock changes on that day, which is on a quarter of an hour, each quarter is among them.
    They are in order.
    """
    midnight = datetime.combine(day, time(), UTC)
    found, offsets = {midnight}, set()
    for zone in zones:
        of_zone = {at.astimezone(zone).utcoffset() for at in (midnight, midnight + _DAY)}
        if len(of_zone) > 1:
            found |= {midnight + quarter * 15 * _MINUTE for quarter in range(96)}
        offsets |= of_zone
    for offset in offsets:
        found |= {midnight + (minute * _MINUTE - offset) % _DAY for minute in minutes}
    return sorted(found)


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
    hours = local.utcoffset().total_seconds() / 3600
    return int(hours) if hours.is_integer() else hours


def _clock(minute):
    """Return a minute of the day on a twelve-hour clock."""
    return f"{time(minute // 60 % 24, minute % 60):%-I:%M %p}"
