"""The calendars of countries: working weeks and public holidays."""

from datetime import date
from functools import lru_cache

# CLDR's weekends; Monday is day 0. A test compares them with Babel, which would keep the locale of
# each country in memory: 95 MB for all.
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
    """Return whether a day is in the working week of a country (ISO 3166, or "001" for none)."""
    return day.weekday() not in weekend(country)


def weekend(country: str) -> set[int]:
    """Return the days of the week that are no workdays in a country; Monday is 0."""
    return _WEEKENDS.get(country, _SATURDAY_AND_SUNDAY)


def is_holiday(country: str, day: date) -> bool:
    """Return whether a day is a public holiday in the whole of a country."""
    return day in _holidays(country, day.year)


def preload() -> None:
    """Load the package of holidays, before the web server forks."""
    is_holiday("US", date(2026, 1, 1))  # most of it is loaded at the first question


@lru_cache(maxsize=1024)
def _holidays(country, year):
    """Return the national holidays of a year, in a set that threads can share."""
    import holidays  # 0.1 s and 18 MB, needed only with SKIP_HOLIDAYS

    try:
        return frozenset(holidays.country_holidays(country, years=year, expand=False))
    except NotImplementedError:  # "001", AC and TA
        return frozenset()
