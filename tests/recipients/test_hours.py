"""Local time, business hours and their next opening."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import holidays
import pytest
from babel import Locale
from hypothesis import given, settings
from hypothesis import strategies as st

from numbering_plans import iana
from samples import DAY, HOUR, MINUTE, daily
from texting.recipients.hours import BusinessHours, Clocks, NeverOpens
from texting.recipients.quiet import QuietHours

OFFICE = daily(9 * 60, 17 * 60, range(5))
DAILY = daily(9 * 60, 17 * 60)
LOCAL = daily(9 * 60, 17 * 60, local_week=True, skip_holidays=True)


def clocks(country, *names, people=None):
    return Clocks(country, tuple(map(ZoneInfo, names)), people)


def facts(zone, at):
    return OFFICE.facts(clocks("US", zone), at)


def within(hours, country, names, at):
    return hours.facts(clocks(country, *names), at).within_business_hours


def offset_at(name, at):
    return at.astimezone(ZoneInfo(name)).utcoffset()


# Daylight saving time


@pytest.mark.parametrize(
    ("zone", "instant", "expected"),
    [
        ("Europe/Dublin", "2026-03-29T00:59:59Z", False),
        ("Europe/Dublin", "2026-03-29T01:00:00Z", True),
        ("Europe/Dublin", "2026-10-25T00:59:59Z", True),
        ("Europe/Dublin", "2026-10-25T01:00:00Z", False),
        ("Africa/Casablanca", "2026-03-01T12:00:00Z", False),  # +00, in Ramadan
        ("Africa/Casablanca", "2026-07-15T12:00:00Z", False),
        ("Australia/Lord_Howe", "2026-01-15T12:00:00Z", True),  # half an hour
        ("Australia/Lord_Howe", "2026-07-15T12:00:00Z", False),
        ("America/New_York", "2026-03-08T06:59:59Z", False),
        ("America/New_York", "2026-03-08T07:00:00Z", True),
        ("America/Vancouver", "2026-01-15T12:00:00Z", False),
        ("America/Vancouver", "2027-07-15T12:00:00Z", False),
        ("Europe/Istanbul", "2026-07-15T12:00:00Z", False),  # permanent
    ],
)
def test_daylight_saving_time_is_what_people_there_call_it(zone, instant, expected):
    at = datetime.fromisoformat(instant)
    assert facts(zone, at).is_dst is expected


def test_a_time_that_never_ends_is_not_daylight_saving_time():
    later = [datetime(2027, 1, 1, tzinfo=UTC) + n * DAY for n in range(0, 365, 30)]
    for name in sorted(set().union(*iana().values())):
        claims = {at: facts(name, at).is_dst for at in later}
        offsets = {offset_at(name, at) for at in later}
        assert not any(claims.values()) or len(offsets) > 1, name
        assert all(offset_at(name, at) == max(offsets) for at in later if claims[at]), name


# Local time


@pytest.mark.parametrize(
    ("zone", "instant", "label", "local_time"),
    [
        ("America/New_York", "2026-03-08T06:59:59Z", "GMT-5", "1:59 AM, Sunday, Mar 8"),
        ("America/New_York", "2026-03-08T07:00:00Z", "GMT-4", "3:00 AM, Sunday, Mar 8"),
        ("Asia/Kathmandu", "2026-01-15T06:15:00Z", "GMT+5.75", "12:00 PM, Thursday, Jan 15"),
        ("Pacific/Chatham", "2025-12-31T12:00:00Z", "GMT+13.75", "1:45 AM, Thursday, Jan 1"),
        ("Pacific/Kiritimati", "2026-02-28T10:00:00Z", "GMT+14", "12:00 AM, Sunday, Mar 1"),
        ("Europe/London", "2026-10-25T00:59:00Z", "GMT+1", "1:59 AM, Sunday, Oct 25"),
        ("Europe/London", "2026-10-25T01:00:00Z", "GMT+0", "1:00 AM, Sunday, Oct 25"),
    ],
)
def test_local_time_is_written_as_people_read_it(zone, instant, label, local_time):
    told = facts(zone, datetime.fromisoformat(instant))
    assert (told.timezone, told.local_time) == (label, local_time)


# Business hours


AUSTRALIA = ["Australia/Sydney", "Australia/Brisbane", "Australia/Perth", "Australia/Adelaide"]
RUSSIA = [
    *("Europe/Moscow", "Asia/Yekaterinburg", "Europe/Samara", "Asia/Vladivostok"),
    *("Asia/Krasnoyarsk", "Asia/Irkutsk", "Asia/Novosibirsk", "Asia/Omsk", "Asia/Kamchatka"),
]


@pytest.mark.parametrize(
    ("country", "names", "day", "hours", "opens", "closes"),
    [
        # from 9:00 in Perth (+8) to 17:00 in Sydney (+11)
        ("AU", AUSTRALIA, "2026-01-14", DAILY, 1, 6),
        # from 9:00 in Moscow to 17:00 in Novosibirsk; Irkutsk, an hour further, does not count
        ("RU", RUSSIA, "2026-01-14", DAILY, 6, 10),
        # with hours of twelve, up to Irkutsk, and with seven not as far as Novosibirsk
        ("RU", RUSSIA, "2026-01-14", daily(540, 1260), 6, 13),
        ("RU", RUSSIA, "2026-01-14", daily(540, 960), 6, 10),
    ],
)
def test_zones_count_while_half_of_the_hours_is_in_common(
    country, names, day, hours, opens, closes
):
    midnight = datetime.fromisoformat(f"{day}T00:00:00Z")
    open_at = [within(hours, country, names, midnight + n * HOUR) for n in range(24)]
    assert open_at == [opens <= n < closes for n in range(24)]


def test_zones_join_in_order_and_a_distant_one_does_not_exclude_later_ones():
    at = datetime(2026, 1, 14, 6, tzinfo=UTC)  # 9:00 in Moscow
    six, twelve = "Asia/Omsk", "Asia/Kamchatka"
    assert within(DAILY, "RU", ["Europe/Moscow", twelve], at)
    assert within(DAILY, "RU", ["Europe/Moscow", twelve, six], at + 4 * HOUR)
    assert not within(DAILY, "RU", ["Europe/Moscow", twelve, six], at + 5 * HOUR)  # 17:00 in Omsk


def test_a_zone_joins_only_if_it_is_near_enough_to_all_that_have_joined():
    """St John's is 1.5 hours from Toronto, and 4.5 from Vancouver, which joined before it."""
    canada = ["America/Toronto", "America/Vancouver", "America/St_Johns"]
    at = datetime(2026, 1, 14, 21, tzinfo=UTC)  # 16:00 in Toronto, 17:30 in St John's
    assert within(DAILY, "CA", canada, at)
    assert not within(DAILY, "CA", canada[::2], at)


@pytest.mark.parametrize(
    ("zone", "hours", "now", "opening"),
    [
        # Friday evening waits for Monday
        ("America/New_York", OFFICE, "2026-02-27T23:00:00Z", "2026-03-02T14:00:00Z"),
        # the night in which clocks go forward, and back
        ("America/New_York", DAILY, "2026-03-08T05:00:00Z", "2026-03-08T13:00:00Z"),
        ("America/New_York", DAILY, "2026-11-01T04:00:00Z", "2026-11-01T14:00:00Z"),
        # 2:30 does not exist: open at 3:00
        ("America/New_York", daily(150, 1020), "2026-03-08T05:00:00Z", "2026-03-08T07:00:00Z"),
        # closed at 1:30, and 1:00 comes again
        ("America/New_York", daily(0, 90), "2026-11-01T05:45:00Z", "2026-11-01T06:00:00Z"),
        # open at 1:30, closed again when 1:00 comes again, and open at the second 1:30
        ("America/New_York", daily(90, 1020), "2026-11-01T06:10:00Z", "2026-11-01T06:30:00Z"),
        # Friday begins at 1:00 in Cairo
        ("Africa/Cairo", daily(0, 1440, {4}), "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"),
        # an opening a microsecond away, and one that is now
        ("Europe/London", DAILY, "2026-01-15T08:59:59.999999Z", "2026-01-15T09:00:00Z"),
        ("Europe/London", DAILY, "2026-01-15T09:00:00Z", "2026-01-16T09:00:00Z"),
    ],
)
def test_the_next_opening_is_the_first_instant_within_hours(zone, hours, now, opening):
    found = hours.next_opening(clocks("US", zone), datetime.fromisoformat(now))
    assert found == datetime.fromisoformat(opening)
    assert found.tzinfo is UTC


# The working week and holidays


@pytest.mark.parametrize(
    ("country", "zone", "now", "opening"),
    [
        # Friday and Saturday are the weekend in Egypt, Sunday alone in India
        ("EG", "Africa/Cairo", "2026-02-05T20:00+02:00", "2026-02-08T09:00+02:00"),
        ("IN", "Asia/Kolkata", "2026-02-06T20:00+05:30", "2026-02-07T09:00+05:30"),
        ("IR", "Asia/Tehran", "2026-01-22T20:00+03:30", "2026-01-24T09:00+03:30"),
        ("US", "America/New_York", "2026-02-06T20:00-05:00", "2026-02-09T09:00-05:00"),
        # Thanksgiving, with a Friday between it and the weekend
        ("US", "America/New_York", "2026-11-25T20:00-05:00", "2026-11-27T09:00-05:00"),
        # Christmas falls on a Friday, and Boxing Day is made up for on Monday
        ("GB", "Europe/London", "2026-12-24T20:00+00:00", "2026-12-29T09:00+00:00"),
        # Golden Week, Chinese New Year, the Russian New Year
        ("JP", "Asia/Tokyo", "2026-05-01T20:00+09:00", "2026-05-07T09:00+09:00"),
        ("CN", "Asia/Shanghai", "2026-02-14T20:00+08:00", "2026-02-24T09:00+08:00"),
        ("RU", "Europe/Moscow", "2025-12-30T20:00+03:00", "2026-01-12T09:00+03:00"),
        # a number of no country has no holidays
        ("001", "UTC", "2025-12-31T20:00+00:00", "2026-01-01T09:00+00:00"),
    ],
)
def test_hours_follow_the_week_and_the_holidays_of_the_country(country, zone, now, opening):
    now, opening = map(datetime.fromisoformat, (now, opening))
    found = LOCAL.next_opening(clocks(country, zone), now.astimezone(UTC))
    assert found == opening
    assert within(LOCAL, country, [zone], found)
    assert not within(LOCAL, country, [zone], found - MINUTE)


def test_two_countries_with_one_zone_have_each_their_own_days():
    sunday = datetime(2026, 2, 8, 12, tzinfo=UTC)
    week = daily(0, 1440, local_week=True)
    assert within(week, "EG", ["Etc/UTC"], sunday)
    assert not within(week, "GB", ["Etc/UTC"], sunday)


def test_hours_that_never_begin_are_an_error(monkeypatch):
    monkeypatch.setattr("texting.recipients.calendars.is_holiday", lambda country, day: True)
    with pytest.raises(NeverOpens):
        LOCAL.next_opening(clocks("US", "America/New_York"), datetime(2031, 1, 1, tzinfo=UTC))


# The rule, checked minute by minute

GROUPS = [
    ("AU", ("Australia/Sydney", "Australia/Lord_Howe", "Australia/Perth", "Australia/Eucla")),
    ("AU", ("Australia/Lord_Howe",)),
    ("CL", ("America/Santiago", "America/Punta_Arenas", "Pacific/Easter")),
    ("CN", ("Asia/Shanghai", "Asia/Urumqi")),
    ("CU", ("America/Havana",)),
    ("EG", ("Africa/Cairo",)),
    ("ES", ("Europe/Madrid", "Atlantic/Canary")),
    ("GL", ("America/Nuuk", "America/Scoresbysund", "America/Thule")),
    ("IE", ("Europe/Dublin",)),
    ("JP", ("Asia/Tokyo",)),
    ("KI", ("Pacific/Tarawa", "Pacific/Kanton", "Pacific/Kiritimati")),
    ("LB", ("Asia/Beirut",)),
    ("MA", ("Africa/Casablanca",)),
    ("NP", ("Asia/Kathmandu",)),
    ("NZ", ("Pacific/Auckland", "Pacific/Chatham")),
    ("RU", ("Europe/Moscow", "Asia/Yekaterinburg", "Asia/Kamchatka", "Asia/Novosibirsk")),
    ("US", ("America/New_York", "America/Phoenix", "Pacific/Honolulu", "America/Los_Angeles")),
]


@cache
def changes(names):
    """Return the days in 2026 and 2027 when clocks change in any of these zones, and New Year."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + n * DAY for n in range(730)]
    return [
        before
        for before, after in pairwise(days)
        if any(offset_at(name, before) != offset_at(name, after) for name in names)
    ] + [days[0]]


def windows(draw, longest, overnight):
    """Draw the windows of Monday to Sunday, with round beginnings and ends among them."""
    begins = draw(st.sampled_from([0, 30, 60, 120, 150, 540]) | st.integers(0, 1439))
    last = begins + longest if overnight else 1440
    ends = draw(st.integers(begins + 1, last) | st.just(1440 if begins + longest >= 1440 else last))
    other = draw(st.none() | st.just((600, 840)))
    days = draw(st.frozensets(st.integers(0, 6), min_size=3))
    window = (begins, ends - 1440 if ends > 1440 else ends)
    return tuple(window if day in days else other for day in range(7))


@st.composite
def situations(draw):
    """Draw zones, an instant (often near a change of clocks or New Year) and business hours."""
    country, names = draw(st.sampled_from(GROUPS))
    now = (
        draw(st.sampled_from(changes(names)))
        + draw(st.integers(-3 * 1440, 1440)) * MINUTE
        + timedelta(seconds=draw(st.integers(0, 59)))
    )
    quiet = []
    for _ in range(draw(st.integers(0, 2))):
        week = windows(draw, longest=720, overnight=True)
        quiet.append(QuietHours(week, draw(st.none() | st.just((0, 1440)) | st.just((1200, 90)))))
    hours = BusinessHours(
        windows(draw, longest=1440, overnight=False), draw(st.booleans()), draw(st.booleans())
    )
    return country, names, now, hours._replace(quiet=tuple(quiet))


@cache
def is_festive(country, day):
    return day in holidays.country_holidays(country, years=day.year)


@cache
def window_on(country, day, hours):
    weekend = Locale.parse(f"und_{country}")
    if hours.local_week and day.weekday() in (weekend.weekend_start, weekend.weekend_end):
        return None
    if hours.skip_holidays and is_festive(country, day):
        return None
    return hours.windows[day.weekday()]


def silent_minutes(country, day, hours):
    """Return the minutes after a day's midnight at which quiet hours that begin on it hold."""
    for quiet in hours.quiet:
        for window in (quiet.windows[day.weekday()], is_festive(country, day) and quiet.holidays):
            if window:
                begins, ends = window
                yield range(begins, ends if ends > begins else ends + 1440)


def is_silent(country, local, hours):
    minute = local.hour * 60 + local.minute
    today, yesterday = local.date(), local.date() - DAY
    return any(minute in each for each in silent_minutes(country, today, hours)) or any(
        minute + 1440 in each for each in silent_minutes(country, yesterday, hours)
    )


def rule(country, names, at, hours):
    """Return whether it is business hours, and whether it is quiet, by the documentation."""
    day = at.astimezone(ZoneInfo(names[0])).date()
    while not window_on(country, day, hours):
        day += DAY
    opens, closes = window_on(country, day, hours)
    joined = []
    for name in names:
        offsets = [offset_at(other, at) for other in (*joined, name)]
        if 2 * (max(offsets) - min(offsets)) <= (closes - opens) * MINUTE:
            joined.append(name)
    local_times = [at.astimezone(ZoneInfo(name)) for name in joined]
    is_quiet = any(is_silent(country, local, hours) for local in local_times)
    open_at = []
    for local in local_times:
        opens, closes = window_on(country, local.date(), hours) or (0, 0)
        open_at.append(opens <= local.hour * 60 + local.minute < closes)
    return all(open_at) and not is_quiet, is_quiet


def first_minute(after, condition):
    """Return the first minute after an instant with a condition; None if none is in ten days."""
    minutes = (after.replace(second=0) + n * MINUTE for n in range(1, 14_400))
    return next(filter(condition, minutes), None)


@pytest.mark.slow
@given(situations())
@settings(max_examples=100)
def test_hours_are_those_of_the_rule_at_each_minute(situation):
    country, names, now, hours = situation
    asked = clocks(country, *names)
    is_open, is_quiet = rule(country, names, now, hours)
    assert hours.is_open(asked, now) is is_open
    assert (hours.quiet_time(asked, now) is not None) is is_quiet
    ends = is_quiet and first_minute(now, lambda at: not rule(country, names, at, hours)[1])
    if ends:  # within the days that are looked at
        assert hours.quiet_until(asked, now) == ends
    opening = first_minute(now, lambda at: rule(country, names, at, hours)[0])
    if opening and not is_open:
        assert hours.next_opening(asked, now) == opening
