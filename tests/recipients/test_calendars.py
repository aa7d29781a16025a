"""Working days of countries, by CLDR and the package holidays."""

import subprocess
import sys
from datetime import date, timedelta

import pytest
from babel import Locale, UnknownLocaleError

from numbering_plans import REGIONS
from texting.recipients import calendars

MONDAY = date(2026, 2, 2)
WEEK = [MONDAY + timedelta(days=n) for n in range(7)]


def test_the_weekend_of_every_country_is_that_of_cldr():
    for country in REGIONS:
        try:
            cldr = Locale.parse(f"und_{country}")
            weekend = {cldr.weekend_start, cldr.weekend_end}
        except UnknownLocaleError:
            weekend = {5, 6}  # the world's
        free = {day.weekday() for day in WEEK if not calendars.is_workday(country, day)}
        assert free == weekend, country


@pytest.mark.parametrize(
    ("country", "day", "expected"),
    [
        ("US", "2026-11-26", True),  # Thanksgiving
        ("US", "2026-07-03", True),  # Independence Day is a Saturday
        ("US", "2027-12-31", True),  # New Year's Day 2028 is a Saturday
        ("US", "2026-11-27", False),
        ("GB", "2026-12-28", True),
        ("GB", "2026-08-31", False),  # a holiday in parts of the country only
        ("DE", "2026-10-03", True),
        ("DE", "2026-11-01", False),  # in some of its states
        ("SE", "2026-02-08", False),  # a Sunday like others
        ("CN", "2026-02-17", True),
        ("XK", "2026-02-17", True),
        ("GG", "2026-05-09", True),
        ("AC", "2026-01-01", False),  # unknown to the package
        ("001", "2026-01-01", False),
        ("US", "9999-12-25", False),  # beyond all predictions
    ],
)
def test_holidays_are_those_of_the_whole_country(country, day, expected):
    assert calendars.is_holiday(country, date.fromisoformat(day)) is expected


def test_every_country_works_again_after_its_longest_holidays():
    for country in REGIONS:
        for weekday in range(7):
            days = [MONDAY + timedelta(days=weekday + 7 * n) for n in range(100)]
            holidays = [calendars.is_holiday(country, day) for day in days]
            assert not any(all(holidays[n : n + 4]) for n in range(97)), (country, weekday)


def test_the_package_of_holidays_is_loaded_only_when_needed():
    code = (
        "import datetime, sys; from texting.recipients import calendars; "
        "day = datetime.date(2026, 1, 1); "
        "calendars.is_workday('US', day); print('holidays' in sys.modules); "
        "calendars.is_holiday('US', day); print('holidays' in sys.modules, 'babel' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True", "False"]
