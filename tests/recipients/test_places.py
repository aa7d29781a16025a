"""Quiet hours of places: countries, states and provinces; the most specific line counts, alone."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from running import ROOT
from texting import recipients
from texting.recipients import weeks
from texting.recipients.hours import BusinessHours
from texting.recipients.numbering import make_states
from texting.recipients.quiet import QuietHours, QuietPlaces

NUMBERING = ROOT / "texting/recipients/numbering"
ALWAYS = BusinessHours(((0, 1440),) * 7)
DALLAS, DALLAS_945 = "+12142345678", "+19452345678"
TOLL_FREE, MONTREAL, LYON = "+18002345678", "+15142345678", "+33478901234"
TEXAS = "sun-fri 21:00-09:00, sat 21:00-12:00"
FRANCE = "mon-fri 20:00-08:00, sat-sun 00:00-24:00, holidays 00:00-24:00"


def places(default=None, **lines):
    """Quiet hours as texts: `places("21:00-08:00", US_TX="none")`."""
    read = {
        place.replace("_", "-"): None if text == "none" else weeks.quiet_hours(text)
        for place, text in lines.items()
    }
    default = default and weeks.quiet_hours(default)
    settings = SimpleNamespace(quiet_hours=default, quiet_hours_file=read)
    return QuietPlaces.from_settings(settings)


def whose(number, quiet):
    """The places whose quiet hours hold for a number; "" is QUIET_HOURS."""
    recipient = recipients.find(number)
    return [hours.whose for hours in quiet.of(recipient.country, recipient.states)]


def is_quiet(number, quiet, local):
    """Say whether it is quiet for a number at a local time of its main zone."""
    recipient = recipients.find(number)
    hours = ALWAYS._replace(quiet=quiet.of(recipient.country, recipient.states))
    at = datetime.fromisoformat(local).replace(tzinfo=recipient.zone).astimezone(UTC)
    return hours.quiet_time(recipient.clocks, at) is not None


# The states of numbers


def test_the_table_is_that_of_the_numbering_authority():
    assert (NUMBERING / "states.txt").read_text() == make_states.make()


@pytest.mark.parametrize(
    ("number", "states"),
    [
        (DALLAS, ("US-TX",)),
        (DALLAS_945, ("US-TX",)),
        (MONTREAL, ("CA-QC",)),
        ("+18675551234", ("CA-NT", "CA-NU", "CA-YT")),
        ("+19025551234", ("CA-NS", "CA-PE")),
        ("+12025551234", ("US-DC",)),
        (TOLL_FREE, ()),
        ("+15002345678", ()),  # personal numbers
        ("+17872345678", ()),  # PR
        ("+12423595678", ()),  # BS
        (LYON, ()),
        ("+442083661177", ()),
    ],
)
def test_a_number_is_in_the_states_of_its_area_code(number, states):
    assert recipients.find(number).states == states


# Which lines hold


@pytest.mark.parametrize(
    ("number", "lines", "expected"),
    [
        (DALLAS, {"US_TX": TEXAS, "US": FRANCE}, ["US-TX"]),
        (DALLAS, {"US_KY": TEXAS, "US": FRANCE}, ["US"]),
        (DALLAS, {"US_KY": TEXAS}, [""]),
        (DALLAS, {"US_TX": "none", "US": FRANCE}, []),
        (DALLAS, {"US": "none"}, []),
        (DALLAS, {"CA": FRANCE}, [""]),
        (TOLL_FREE, {"US_TX": TEXAS, "US_KY": TEXAS, "US": FRANCE}, ["US-TX", "US-KY", "US"]),
        (TOLL_FREE, {"US_TX": TEXAS, "US_KY": "none"}, ["US-TX", ""]),
        (TOLL_FREE, {"US_TX": "none", "US": "none"}, []),
        (TOLL_FREE, {"US": FRANCE, "CA_QC": TEXAS}, ["US"]),
        (MONTREAL, {"CA_QC": TEXAS, "CA": FRANCE}, ["CA-QC"]),
        (MONTREAL, {"CA_ON": TEXAS, "CA": FRANCE}, ["CA"]),
        ("+18675551234", {"CA_YT": TEXAS, "CA": FRANCE}, ["CA", "CA-YT"]),
        ("+18675551234", {"CA_YT": TEXAS}, ["", "CA-YT"]),
        ("+18675551234", {"CA_YT": "none", "CA_NT": TEXAS, "CA_NU": TEXAS}, ["CA-NT", "CA-NU"]),
        ("+18675551234", {"CA_ON": TEXAS, "CA": FRANCE}, ["CA"]),
        ("+19025551234", {"CA_NS": "none", "CA_PE": "none"}, []),
        (LYON, {"FR": FRANCE}, ["FR"]),
        (LYON, {"FR": "none"}, []),
        ("+17872345678", {"US": FRANCE, "PR": TEXAS}, ["PR"]),
        ("+17872345678", {"US": FRANCE}, [""]),
        ("+80012345678", {"001": TEXAS}, ["001"]),
    ],
)
def test_the_most_specific_line_holds(number, lines, expected):
    quiet = places("22:00-06:00", **lines)
    assert sorted(whose(number, quiet)) == sorted(expected)


@pytest.mark.parametrize("number", [DALLAS, DALLAS_945])
def test_on_a_sunday_in_texas_it_is_quiet_until_noon(number):
    quiet = places(US_TX=TEXAS, US_KY="sun-fri 21:00-08:00, sat 21:00-10:00")
    assert is_quiet(number, quiet, "2026-03-07T21:00")
    assert is_quiet(number, quiet, "2026-03-08T11:59")
    assert not is_quiet(number, quiet, "2026-03-08T12:00")
    assert not is_quiet(number, quiet, "2026-03-09T09:00")
    assert is_quiet(number, quiet, "2026-03-09T08:59")


def test_in_lyon_it_is_quiet_on_sundays_and_on_the_14th_of_july():
    quiet = places(FR=FRANCE)
    assert is_quiet(LYON, quiet, "2026-07-12T12:00")  # a Sunday
    assert is_quiet(LYON, quiet, "2026-07-14T12:00")  # a Tuesday
    assert not is_quiet(LYON, quiet, "2026-07-15T12:00")
    assert not is_quiet("+32470123456", quiet, "2026-07-14T12:00")


def test_a_toll_free_number_is_quiet_where_any_line_says_so_on_any_clock_that_counts():
    quiet = places(US_TX="sun 00:00-12:00", US_KY="mon 00:00-10:00")
    # Noon in New York is nine in Los Angeles, and both clocks count
    assert is_quiet(TOLL_FREE, quiet, "2026-03-15T14:59")
    assert not is_quiet(TOLL_FREE, quiet, "2026-03-15T15:00")
    assert is_quiet(TOLL_FREE, quiet, "2026-03-16T12:59")
    assert not is_quiet(TOLL_FREE, quiet, "2026-03-16T13:00")


def test_a_place_is_called_by_its_english_name():
    texan, toll_free = recipients.find("+12145550123"), recipients.find("+18005550199")
    for place, name in {"": "", "key": " of the key", "US-TX": " of Texas"}.items():
        hours = QuietHours.of((0, 1), place)
        assert recipients.quiet_name(hours, texan) == f"quiet hours{name}"
        more = " (the number can be in any state)" if place == "US-TX" else ""
        assert recipients.quiet_name(hours, toll_free) == f"quiet hours{name}{more}"
    names = {"US-TX": "Texas", "CA-QC": "Quebec", "FR": "France", "001": "World"}
    assert {place: recipients.place_name(place) for place in names} == names
