"""The calendars of countries: on which days of the week people work, and on which holidays not."""

from datetime import date
from functools import lru_cache

# CLDR's weekends, Monday being day 0; a test compares them with Babel's. Babel itself would keep
# the whole locale of each country that it is asked about: 95 MB for all of them.
_WEEKENDS = {
    **{c: {4, 5} for c in ("BH", "DZ", "EG", "IL", "IQ", "JO", "KW")},
    **{c: {4, 5} for c in ("LY", "OM", "QA", "SA", "SD", "SY", "YE")},
    "AF": {3, 4},
    "IN": {6},
    "IR": {4},
    "UG": {6},
}
_SATURDAY_AND_SUNDAY = {5, 6}


def is_workday(country: str, day: date) -> bool:
    """Say whether a day is in the working week of a country (ISO 3166, or "001" for none)."""
    return day.weekday() not in _WEEKENDS.get(country, _SATURDAY_AND_SUNDAY)


def is_holiday(country: str, day: date) -> bool:
    """Say whether a day is a public holiday in all of a country."""
    return day in _holidays(country, day.year)


def preload() -> None:
    """Load what knows holidays, before the web server forks."""
    is_holiday("US", date(2026, 1, 1))  # the package loads the most when it is first asked


@lru_cache(maxsize=1024)
def _holidays(country, year):
    """Return the national holidays of a year, in a set that threads can share."""
    import holidays  # 0.1 s and 18 MB, only where holidays are skipped

    try:
        return frozenset(holidays.country_holidays(country, years=year, expand=False))
    except NotImplementedError:  # of "001", AC and TA
        return frozenset()
