"""flask hours: whose clock a text goes by, and when it may be sent."""

import json
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from answers import accepted, problems, refusal, sender
from app import create_app
from numbering_plans import REGIONS, numbers
from places import QUIET_PLACES, SILENCES
from samples import DAY, HOUR, LONDON, MILLISECOND, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import key_named
from texting import recipients
from texting.cli.hours import as_object
from texting.database import isoformat
from texting.recipients import quiet, weeks

PLACES = {"quiet_hours": (22 * 60, 6 * 60), "quiet_hours_file": QUIET_PLACES}
FIELDS = [
    *("number", "country", "state", "location", "zones", "local_time", "within_business_hours"),
    *("business_hours", "quiet", "quiet_hours", "quiet_hours_from"),
    *("place", "next_opening"),
]
TOLL_FREE, SYDNEY, YUKON = "+18002345678", "+61412345678", "+18672345678"
LYON, ALL_DAY = "+33478901234", "00:00-24:00"
DALLAS = SILENCES["Dallas"]


@pytest.fixture
def hours(flask_with):
    """Ask under settings with quiet hours of places; return the object that is printed."""

    def ask(*words, status=0, **changes):
        result = flask_with(**PLACES | changes)("hours", *words, "--json")
        assert result.exit_code == status, result.output
        found = json.loads(result.stdout)
        assert list(found) == FIELDS
        return found

    return ask


# The same as the API


OF_KEY = {"hours": "mon-fri 10:00-20:30", "quiet_hours": "20:00-10:15"}


def area_numbers():
    """A number of each state and province, by its code."""
    for area_code in range(200, 1000):
        for state in quiet.states_of(str(area_code)):
            for to in (f"+1{area_code}2345678", f"+1{area_code}5550123"):
                try:
                    yield state, recipients.find(to).e164
                    break
                except recipients.InvalidNumber:
                    continue


@cache
def everywhere():
    """A number of every country, of no country, and of each state and province."""
    known = [recipients.find(to) for to in numbers()]
    of_places = {each.country: each.e164 for each in known if not each.costly}
    of_places["001"] = "+80012345678"
    shared = {"EH", "MF"}  # libphonenumber gives their numbers to Morocco and Guadeloupe
    assert of_places.keys() == {*REGIONS, "001"} - shared
    of_states = dict(area_numbers())
    assert of_states.keys() == quiet.state_names().keys()
    return of_places | of_states


def instants(zone, hour):
    """Instants around an hour of the day, and around the next change of a clock."""
    moment = TUESDAY_NOON.astimezone(zone).replace(hour=hour).astimezone(TUESDAY_NOON.tzinfo)
    yield from (moment - MILLISECOND, moment)
    offset = TUESDAY_NOON.astimezone(zone).utcoffset()
    for n in range(365 * 24):
        at = TUESDAY_NOON + n * HOUR
        if at.astimezone(zone).utcoffset() != offset:
            quarters = (at - HOUR + n * 15 * MINUTE for n in range(1, 5))
            change = next(q for q in quarters if q.astimezone(zone).utcoffset() != offset)
            yield from (change - MILLISECOND, change, change + 6 * HOUR)
            break


@pytest.mark.slow
@pytest.mark.parametrize(("rules", "part"), [*(({}, part) for part in range(4)), (OF_KEY, 0)])
def test_it_says_of_every_place_what_a_create_answers(rules, part, settings, key, at):
    app = create_app(settings._replace(**PLACES))
    if rules:
        key_named("app").rule(rules, TUESDAY_NOON)
    ask, of_key = sender(app.test_client(), key), app.extensions["rules"].of(key_named("app").rules)
    for n, (place, to) in [*enumerate(everywhere().items())][part::4]:
        recipient = recipients.find(to)
        for now in instants(recipient.zone, (0, 9, 17)[n % 3]):  # midnight, opening, closing
            at(now)
            response = ask(to=to)
            told = as_object(recipient, of_key.hours(recipient), now)
            opening = told["next_opening"]
            if opening is None:
                refusal(response, 403)
                continue
            body = accepted(response)
            assert (place, now, body["recipient_country"]) == (place, now, told["country"])
            assert body["to_phone_normalized"] == told["number"]
            assert body["recipient_location"] == told["location"]
            assert body["recipient_local_time"] == told["local_time"]
            offsets = {zone_offset(zone, now) for zone in told["zones"]}
            assert body["recipient_timezone"] == f"GMT{zone_offset(told['zones'][0], now):+g}"
            answered = body["timezone_offset"]
            assert offsets <= {*(answered if isinstance(answered, list) else [answered])}
            assert body["within_business_hours"] == told["within_business_hours"]
            assert body["business_hours"] == told["business_hours"]
            assert body["scheduled_send_date"] == isoformat(opening), (place, now)
            assert body["can_send_now"] == (opening == now)
            at(now - DAY)
            response = ask(to=to, send_date=isoformat(now))
            assert (response.status_code == 400) == told["quiet"], (place, now)
            if told["quiet"]:
                (problem,) = problems(response)
                assert f", {told['quiet_hours']}: it is {told['local_time']} for " in problem


def zone_offset(name, at):
    offset = at.astimezone(ZoneInfo(name)).utcoffset() / HOUR
    return int(offset) if offset.is_integer() else offset


def test_what_is_asked_for_now_is_asked_at_this_time(hours, at):
    at(TUESDAY_NOON)
    found = hours(NEW_YORK)
    assert found == hours(NEW_YORK, "--at", isoformat(TUESDAY_NOON))
    assert found == {
        "number": NEW_YORK,
        "country": "US",
        "state": "US-NY",
        "location": "New York, United States",
        "zones": ["America/New_York"],
        "local_time": "12:00 PM, Tuesday, Mar 3",
        "within_business_hours": True,
        "business_hours": "9:00 AM - 5:00 PM local time",
        "quiet": False,
        "quiet_hours": "9:00 PM - 8:00 AM local time",
        "quiet_hours_from": "QUIET_HOURS_FILE US",
        "place": None,
        "next_opening": isoformat(TUESDAY_NOON),
    }


# Which rule, from where


HOLIDAYS = {
    "quiet_hours": None,
    "quiet_hours_file": {"FR": weeks.quiet_hours(f"holidays {ALL_DAY}")},
}
NO_QUIET = {"quiet_hours": None, "quiet_hours_file": {}}


@pytest.mark.parametrize(
    ("to", "changes", "window", "origin"),
    [
        (NEW_YORK, {}, "9:00 PM - 8:00 AM", "QUIET_HOURS_FILE US"),
        (DALLAS.to, {}, "9:00 PM - 9:00 AM", "QUIET_HOURS_FILE US-TX"),
        (LONDON, {}, "10:00 PM - 6:00 AM", "QUIET_HOURS"),
        (TOLL_FREE, {}, "9:00 PM - 9:00 AM", "QUIET_HOURS_FILE US-TX"),
        (LYON, HOLIDAYS, "12:00 AM - 12:00 AM", "QUIET_HOURS_FILE FR"),
        (NEW_YORK, HOLIDAYS, None, None),
        (LONDON, NO_QUIET, None, None),
        (LONDON, {"quiet_hours_file": {"GB": None}}, None, None),
    ],
)
@pytest.mark.parametrize("own", [None, "none", "18:00-07:00"])
def test_the_rule_that_holds_or_begins_next_is_named_with_its_origin(
    to, changes, window, origin, own, hours, at, key
):
    at(TUESDAY_NOON)
    key_named("app").rule({"quiet_hours": own}, TUESDAY_NOON)
    found = hours(to, "--key", "app", **changes)
    if own:
        window, origin = ("6:00 PM - 7:00 AM", "key") if own != "none" else (None, None)
    assert found["quiet_hours"] == (window and f"{window} local time")
    assert found["quiet_hours_from"] == origin


def test_at_night_it_is_the_rule_that_holds_then(hours):
    found = hours(DALLAS.to, "--at", isoformat(DALLAS.at))
    assert (found["quiet"], found["within_business_hours"]) == (True, False)
    assert found["quiet_hours"] == "9:00 PM - 12:00 PM local time"
    assert found["next_opening"] == isoformat(DALLAS.end)


@pytest.mark.parametrize(
    ("to", "state", "zones"),
    [
        (SYDNEY, None, ["Sydney", "Brisbane", "Perth", "Adelaide"]),
        (DALLAS.to, "US-TX", ["Chicago"]),
        (TOLL_FREE, None, ["New_York", "Chicago", "Los_Angeles", "Denver"]),
        (YUKON, None, ["Edmonton", "Rankin_Inlet"]),  # of three territories
        ("+79161234567", None, ["Moscow", "Yekaterinburg", "Samara", "Krasnoyarsk"]),
    ],
)
def test_the_zones_are_those_that_count_the_main_one_first(to, state, zones, hours):
    found = hours(to, "--at", "2026-01-06T12:00Z")
    assert found["state"] == state
    assert [zone.rpartition("/")[2] for zone in found["zones"]][: len(zones)] == zones


def test_a_key_without_a_rule_keeps_to_the_settings_and_a_revoked_one_to_its_own(hours, run, key):
    key_named("old").rule({"hours": "00:00-24:00", "quiet_hours": "none"}, TUESDAY_NOON)
    run("keys", "revoke", "old")
    night = ("--at", "2026-03-03T08:00")
    assert hours(NEW_YORK, "--key", "app", *night) == hours(NEW_YORK, *night)
    found = hours(NEW_YORK, "--key", "old", *night)
    assert found["business_hours"] == "12:00 AM - 12:00 AM local time"
    assert found["next_opening"] == "2026-03-03T08:00:00.000Z"


@pytest.mark.parametrize(
    "written",
    [
        *("2026-03-03T17:00:00Z", "2026-03-03T17:00", "2026-03-03T12:00-05:00"),
        *("2026-03-03T17:00:00.0009Z", "20260303T17Z", "2026-W10-2T17:00:00"),
    ],
)
def test_a_time_is_read_as_a_send_date(written, hours):
    found = hours(NEW_YORK, "--at", written)
    assert found["next_opening"] == isoformat(TUESDAY_NOON)


# For people


def test_what_people_read(flask_with, key):
    key_named("app").rule(
        {"hours": "mon-fri 10:00-16:00", "quiet_hours": "20:00-08:00"}, TUESDAY_NOON
    )

    def lines(*words):
        result = flask_with(**PLACES)("hours", *words)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout.splitlines()

    assert lines("(214) 234-5678", "--region", "US", "--at", isoformat(DALLAS.at)) == [
        "+1 214-234-5678: Dallas, United States (Texas)",
        "Clock: America/Chicago, where it is 11:59 AM, Sunday, Mar 8",
        "Business hours (BUSINESS_HOURS): 9:00 AM – 5:00 PM local time",
        "Quiet hours (QUIET_HOURS_FILE US-TX): 9:00 PM – noon local time; it is quiet now",
        "A text waits until 12:00 PM, Sunday, Mar 8 there (2026-03-08T17:00:00.000Z): quiet "
        "hours of Texas.",
    ]
    assert lines(SYDNEY, "--key", "app", "--at", "2026-03-08T05:00") == [
        "+61 412 345 678: Sydney, Australia",
        "Clock: Australia/Sydney, where it is 4:00 PM, Sunday, Mar 8",
        "The phone may also be in Australia/Brisbane, Australia/Perth, Australia/Adelaide; those "
        "clocks count too",
        "Business hours (the key's): 10:00 AM – 4:00 PM local time",
        "Quiet hours (the key's): 8:00 PM – 8:00 AM local time; next on Sunday, Mar 8",
        "A text waits until 1:00 PM, Monday, Mar 9 there (2026-03-09T02:00:00.000Z): outside "
        "business hours.",
    ]
    assert lines("+1 212 555 0123", "--at", "2026-03-03T17:00")[-1] == "A text can be sent now."
    key_named("app").rule({"hours": "00:00-24:00", "quiet_hours": "22:00-24:00"}, TUESDAY_NOON)
    found = lines(SYDNEY, "--key", "app", "--at", "2026-03-08T05:00")
    assert found[3] == "Business hours (the key's): all day"
    assert found[4].startswith("Quiet hours (the key's): 10:00 PM – midnight local time; next")


LOUISIANA = "+15042345678"
FREE_SUNDAYS = {  # its windows meet
    "quiet_hours": None,
    "quiet_hours_file": {
        "US-LA": weeks.quiet_hours(
            "mon-fri 20:00-08:00, sat 20:00-19:59, sun 19:59-08:00, holidays 00:00-24:00"
        )
    },
}
TO_MONDAY = "8:00 PM, Saturday - 8:00 AM, Monday"


@pytest.mark.parametrize(
    ("when", "window", "rule"),
    [
        ("2026-03-08T17:00Z", TO_MONDAY, "quiet hours of Louisiana"),  # Sunday noon
        ("2026-03-08T02:30Z", TO_MONDAY, "quiet hours of Louisiana"),  # Saturday at 20:30
        ("2026-03-09T03:00Z", TO_MONDAY, "outside business hours"),  # Sunday at 22:00
        ("2026-03-09T13:30Z", "8:00 PM - 8:00 AM", "outside business hours"),  # Monday at 8:30
        ("2026-03-07T23:30Z", TO_MONDAY, "quiet hours of Louisiana"),  # Saturday at 17:30
        ("2026-07-04T17:00Z", "8:00 PM, Thursday - 8:00 AM, Monday", "quiet hours of Louisiana"),
    ],
)
def test_the_rule_that_decided_is_named_and_windows_that_meet_are_one(
    when, window, rule, hours, flask_with
):
    found = hours(LOUISIANA, "--at", when, **FREE_SUNDAYS)
    assert found["quiet_hours"] == f"{window} local time"
    told = flask_with(**PLACES | FREE_SUNDAYS)("hours", LOUISIANA, "--at", when).stdout
    assert told.splitlines()[-1].endswith(f"): {rule}.")
    in_words = window.replace(" - ", " \N{EN DASH} ")
    assert f"): {in_words} local time; " in told


def test_where_it_is_always_quiet_the_window_of_the_day_is_named(hours):
    always = {"quiet_hours": (0, 1440), "quiet_hours_file": {}}
    found = hours(NEW_YORK, status=1, **always)
    assert found["quiet_hours"] == "12:00 AM - 12:00 AM local time"


@pytest.mark.parametrize("words", [(), ("--key", "app")])
def test_where_no_minute_is_open_the_status_is_1(words, flask_with, hours, key):
    changes = {"business_hours": (7 * 60, 9 * 60), "quiet_hours": (20 * 60, 10 * 60)}
    changes |= {"quiet_hours_file": {}}
    found = hours(NEW_YORK, *words, status=1, **changes)
    assert (found["within_business_hours"], found["next_opening"]) == (False, None)
    result = flask_with(**changes)("hours", NEW_YORK, *words)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "No text can ever be sent: hours and quiet hours leave no minute open."
    )


# What cannot be answered


DATE = "must be an ISO 8601 date and time, like 2026-03-02T14:00:00Z"


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (("+1212555",), 2, "Invalid value for 'NUMBER': '+1212555': is not a valid phone number"),
        (("+1212HELLO",), 2, "Invalid value for 'NUMBER': '+1212HELLO': has letters"),
        (
            ("2125550123",),
            2,
            "Invalid value for 'NUMBER': '2125550123': is not a phone number; put a plus sign "
            "before its country code, or --region accepts national numbers",
        ),
        ((NEW_YORK, "--key", "shop"), 1, "there is no key named 'shop'"),
        *(
            ((NEW_YORK, "--at", text), 2, f"Invalid value for '--at': {DATE}")
            for text in ("", "now", "2h", "2026-03-02", "2026-03-02 14:00", "2026-02-30T14:00")
        ),
        (
            (NEW_YORK, "--at", "9999-12-31T23:00-02:00"),
            2,
            "Invalid value for '--at': must have a UTC instant in the years 1 to 9999",
        ),
        *(
            (
                (NEW_YORK, "--at", text),
                1,
                "--at: must not be in the first or last days of the years 1 to 9999",
            )
            for text in ("9999-12-31T22:00", "0001-01-01T00:00")
        ),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_mistake_is_told_in_one_line(words, status, error, as_json, refused):
    line = refused("hours", *words, *(["--json"] if as_json else []), status=status)
    assert line == f"Error: {error}"


def test_it_needs_no_tables(settings, tmp_path):
    """So a stranger can ask before anything is set up."""
    app = create_app(settings._replace(database_url=f"sqlite:///{tmp_path}/none.db"))
    for words in ((NEW_YORK,), ("+1212555",)):
        result = app.test_cli_runner().invoke(args=["hours", *words])
        assert "database" not in result.output
        assert (result.exit_code == 0) == (words == (NEW_YORK,))
