"""When a message is sent: at once, at the next opening, or at its send_date."""

from datetime import UTC, datetime

import pytest

from answers import accepted, problems, sender
from app import create_app
from places import QUIET_PLACES, SILENCES
from samples import HOUR, MILLISECOND, NEW_YORK, SUNDAY_NIGHT, TUESDAY_NOON
from stored_messages import key_named
from texting.messages.model import Message
from texting.recipients import weeks

OPENING = datetime(2026, 3, 3, 14, 0, tzinfo=UTC)  # 9 AM in New York, a Tuesday
CLOSING = datetime(2026, 3, 3, 22, 0, tzinfo=UTC)  # 5 PM there
FRIDAY_EVENING = datetime(2026, 3, 6, 23, 0, tzinfo=UTC)  # 6 PM there
BEFORE_SUMMER_TIME = datetime(2026, 3, 8, 4, 0, tzinfo=UTC)  # 11 PM, three hours before
BEFORE_WINTER_TIME = datetime(2026, 11, 1, 4, 0, tzinfo=UTC)  # midnight, two hours before
YEARS_END = datetime(2027, 1, 1, 5, 0, tzinfo=UTC) - MILLISECOND  # before midnight there


@pytest.mark.parametrize(
    ("now", "send_at"),
    [
        (OPENING - MILLISECOND, "2026-03-03T14:00:00.000Z"),
        (OPENING, None),
        (CLOSING - MILLISECOND, None),
        (CLOSING, "2026-03-04T14:00:00.000Z"),
        (SUNDAY_NIGHT, "2026-03-02T14:00:00.000Z"),
        (FRIDAY_EVENING, "2026-03-07T14:00:00.000Z"),
        (BEFORE_SUMMER_TIME, "2026-03-08T13:00:00.000Z"),
        (BEFORE_WINTER_TIME, "2026-11-01T14:00:00.000Z"),
        (YEARS_END, "2027-01-01T14:00:00.000Z"),
    ],
)
def test_outside_business_hours_a_message_waits_for_the_next_opening(now, send_at, post, at):
    at(now)
    body = accepted(post())
    assert body["status"] == ("scheduled" if send_at else "queued")
    assert body["can_send_now"] is body["within_business_hours"] is (send_at is None)
    assert body["scheduled_send_date"] == (send_at or f"{now:%FT%T}.{now.microsecond // 1000:03}Z")
    assert Message.get().send_at == datetime.fromisoformat(body["scheduled_send_date"])


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2026-03-04T03:00:00Z", "2026-03-04T03:00:00.000Z"),  # 10 PM in New York
        ("2026-03-04T03:00:00", "2026-03-04T03:00:00.000Z"),
        ("2026-03-04T03:00", "2026-03-04T03:00:00.000Z"),
        ("20260304T030000Z", "2026-03-04T03:00:00.000Z"),
        ("2026-W10-3T03:00Z", "2026-03-04T03:00:00.000Z"),
        ("2026-03-04T03:00:00+05:30", "2026-03-03T21:30:00.000Z"),
        ("2026-03-04T03:00:00+0530", "2026-03-03T21:30:00.000Z"),
        ("2026-03-04T16:59:00+23:59", "2026-03-03T17:00:00.000Z"),
        ("2026-03-03T12:00:00.001-05:00", "2026-03-03T17:00:00.001Z"),
        ("2026-03-03T17:00:00.0019999Z", "2026-03-03T17:00:00.001Z"),
        ("2026-03-03T17:00:00,9999999Z", "2026-03-03T17:00:00.999Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_send_date_is_obeyed_to_the_millisecond(written, instant, post, at):
    at(TUESDAY_NOON - MILLISECOND)
    body = accepted(post(send_date=written))
    assert body["status"] == "scheduled"
    assert body["scheduled_send_date"] == instant
    assert body["within_business_hours"] is True
    assert body["can_send_now"] is False
    assert body["message"] == f"Text message scheduled for {instant}."
    row = Message.get()
    assert row.send_date == row.send_at == datetime.fromisoformat(instant)


@pytest.mark.parametrize("written", ["17:00:00Z", "17:00:00.000999Z", "16:59:59.999Z"])
def test_a_send_date_must_be_later_than_now(written, post, at):
    at(TUESDAY_NOON)
    assert problems(post(send_date=f"2026-03-03T{written}")) == ["send_date: must be in the future"]


def test_a_past_send_date_without_an_offset_is_refused_naming_utc(post, at):
    at(TUESDAY_NOON)
    assert problems(post(send_date="2026-03-03T17:00")) == [
        "send_date: must be in the future; without an offset it was read as UTC"
    ]


BY_DAY = dict.fromkeys(range(5), (540, 1020)) | {5: (600, 840)}  # on Saturday ten to two
OBSERVED = datetime(2026, 7, 3, 16, 0, tzinfo=UTC)  # of July 4, on the Friday before
THANKSGIVING = datetime(2026, 11, 26, 17, 0, tzinfo=UTC)  # noon of a Thursday in New York
NINE_TO_FIVE, ALL_DAY = "9:00 AM - 5:00 PM", "12:00 AM - 12:00 AM"
NIGHT = (21 * 60, 8 * 60)
BUT_AT_NIGHT = {"business_hours": (0, 1440), "quiet_hours": NIGHT}
LOCAL = {"business_days": None, "skip_holidays": True}


@pytest.mark.parametrize(
    ("changes", "now", "text", "send_at"),
    [
        ({"business_hours": (0, 1440)}, SUNDAY_NIGHT, ALL_DAY, None),
        ({"business_hours": (30, 750)}, CLOSING, "12:30 AM - 12:30 PM", "2026-03-04T05:30"),
        ({"business_hours": (720, 1439)}, OPENING, "12:00 PM - 11:59 PM", "2026-03-03T17:00"),
        ({"business_hours": BY_DAY}, FRIDAY_EVENING, NINE_TO_FIVE, "2026-03-07T15:00"),
        ({"business_hours": BY_DAY}, FRIDAY_EVENING + 16 * HOUR, "10:00 AM - 2:00 PM", None),
        ({"business_hours": BY_DAY}, FRIDAY_EVENING + 40 * HOUR, NINE_TO_FIVE, "2026-03-09T13:00"),
        ({"skip_holidays": True}, OBSERVED, NINE_TO_FIVE, "2026-07-05T13:00"),
        ({"business_days": frozenset(range(5))}, FRIDAY_EVENING, NINE_TO_FIVE, "2026-03-09T13:00"),
        ({"business_days": frozenset([6])}, TUESDAY_NOON, NINE_TO_FIVE, "2026-03-08T13:00"),
        ({"business_days": None}, THANKSGIVING, NINE_TO_FIVE, None),
        (LOCAL, THANKSGIVING, NINE_TO_FIVE, "2026-11-27T14:00"),
        (BUT_AT_NIGHT, CLOSING + 4 * HOUR - MILLISECOND, ALL_DAY, None),
        (BUT_AT_NIGHT, CLOSING + 4 * HOUR, ALL_DAY, "2026-03-04T13:00"),
    ],
)
def test_when_a_message_may_go_is_a_setting(changes, now, text, send_at, post_with, at):
    at(now)
    body = accepted(post_with(**changes))
    assert body["business_hours"] == f"{text} local time"
    assert body["within_business_hours"] is body["can_send_now"] is (send_at is None)
    assert send_at is None or body["scheduled_send_date"] == f"{send_at}:00.000Z"


SUNDAYS = weeks.quiet_hours("mon-sat 20:00-08:00, sun 00:00-24:00")
OF_TEXAS = {"quiet_hours_file": QUIET_PLACES}
DALLAS, LYON = SILENCES["Dallas"], SILENCES["Lyon on a holiday"].to
SUNDAY, TOLL_FREE = datetime(2026, 3, 8, 15, 30, tzinfo=UTC), "+18002345678"  # 10:30 in Dallas


@pytest.mark.parametrize(
    ("changes", "to", "now", "what"),
    [
        ({}, NEW_YORK, CLOSING, "business hours begin"),
        ({"quiet_hours": NIGHT}, NEW_YORK, CLOSING, "business hours begin"),
        (BUT_AT_NIGHT, NEW_YORK, CLOSING + 4 * HOUR, "the quiet hours end"),
        ({"quiet_hours": (1260, 540)}, NEW_YORK, CLOSING, "business hours begin"),  # both at nine
        ({"quiet_hours": (1260, 541)}, NEW_YORK, CLOSING, "the quiet hours end"),
        (
            {"quiet_hours": SUNDAYS},
            NEW_YORK,
            SUNDAY,
            "business hours begin",
        ),  # they end at midnight
        (OF_TEXAS, DALLAS.to, SUNDAY, "the quiet hours of Texas end"),
        (OF_TEXAS, DALLAS.to, CLOSING + HOUR, "business hours begin"),
        (OF_TEXAS, LYON, datetime(2026, 7, 14, 10, tzinfo=UTC), "the quiet hours of France end"),
        (
            OF_TEXAS,
            TOLL_FREE,
            SUNDAY,
            "the quiet hours of Texas (the number can be in any state) end",
        ),
    ],
)
@pytest.mark.parametrize("manual_mode", [False, True])
def test_the_status_in_words_says_what_a_text_waits_for(
    changes, to, now, what, manual_mode, settings, key, at
):
    at(now)
    ask = sender(create_app(settings._replace(**changes)).test_client(), key)
    body = accepted(ask(to=to, manual_mode=manual_mode))
    until, approved = body["scheduled_send_date"], ", once it is approved" if manual_mode else ""
    assert body["message"] == f"Text message scheduled for {until}, when {what}{approved}."


def test_it_names_the_quiet_hours_of_the_key(post, key, at):
    key_named("app").rule({"hours": "00:00-24:00", "quiet_hours": "11:00-13:00"}, TUESDAY_NOON)
    at(TUESDAY_NOON)
    assert accepted(post())["message"] == (
        "Text message scheduled for 2026-03-03T18:00:00.000Z, when the quiet hours of the key end."
    )


# Quiet hours


@pytest.fixture
def ask(settings, key, at):
    """Send a request while nights are quiet: `ask(send_date="2026-03-04T02:00Z")`."""
    at(TUESDAY_NOON)
    return sender(create_app(settings._replace(quiet_hours=NIGHT)).test_client(), key)


def quiet(local_time, end, elsewhere=""):
    return (
        "send_date: must not be in quiet hours, 9:00 PM - 8:00 AM local time: "
        f"it is {local_time} for the recipient then{elsewhere}; the first instant after them "
        f"is {end}"
    )


@pytest.mark.parametrize(
    ("send_date", "local_time", "end"),
    [
        ("2026-03-04T02:00Z", "9:00 PM, Tuesday, Mar 3", "2026-03-04T13:00:00.000Z"),
        ("2026-03-04T12:59:59.999Z", "7:59 AM, Wednesday, Mar 4", "2026-03-04T13:00:00.000Z"),
        ("2026-03-08T03:00Z", "10:00 PM, Saturday, Mar 7", "2026-03-08T12:00:00.000Z"),
        ("2026-07-16T02:30Z", "10:30 PM, Wednesday, Jul 15", "2026-07-16T12:00:00.000Z"),
    ],
)
def test_a_send_date_in_quiet_hours_is_refused_with_the_first_instant_after(
    send_date, local_time, end, ask
):
    assert problems(ask(send_date=send_date)) == [quiet(local_time, end)]
    assert accepted(ask(send_date=end))["scheduled_send_date"] == end


def test_a_send_date_in_the_quiet_hours_of_another_zone_that_counts_is_refused(ask):
    end = "2026-07-16T00:00:00.000Z"  # 8:00 in Perth, 10:00 in Sydney
    elsewhere = " (quiet hours hold in another of its zones)"
    assert problems(ask(to="+61412345678", send_date="2026-07-15T23:00Z")) == [
        quiet("9:00 AM, Thursday, Jul 16", end, elsewhere)
    ]
    assert accepted(ask(to="+61412345678", send_date=end))["scheduled_send_date"] == end


def test_windows_of_quiet_hours_that_meet_are_one(settings, key, at):
    at(TUESDAY_NOON)
    ask = sender(create_app(settings._replace(quiet_hours=SUNDAYS)).test_client(), key)
    (problem,) = problems(ask(send_date="2026-03-08T16:00Z"))
    window = "8:00 PM, Saturday - 12:00 AM, Monday local time"
    assert f"must not be in quiet hours, {window}: it is 12:00 PM, Sunday" in problem


def test_a_send_date_a_millisecond_before_quiet_hours_is_obeyed(ask):
    before = "2026-03-04T01:59:59.999Z"
    assert accepted(ask(send_date=before))["scheduled_send_date"] == before


def test_quiet_hours_are_a_problem_among_others(ask):
    night = quiet("9:00 PM, Tuesday, Mar 3", "2026-03-04T13:00:00.000Z")
    assert problems(ask(message="", send_date="2026-03-04T02:00Z")) == [
        "message: must not be empty or only white space",
        night,
    ]
    assert len(problems(ask(to="1", send_date="2026-03-04T02:00Z"))) == 1
    assert problems(ask(send_date="2026-03-02T02:00Z")) == ["send_date: must be in the future"]


@pytest.mark.parametrize("to", ["+6492345678", "+61412345678"])
def test_quiet_hours_in_the_last_days_of_the_year_9999_are_a_problem(to, ask):
    assert problems(ask(to=to, send_date="9999-12-31T23:59:59.999Z")) == [
        "send_date: must be before the last days of the year 9999"
    ]
    assert ask(to=to, send_date="9998-12-31T23:59:59.999Z").status_code in (201, 400)


def test_the_last_instant_is_accepted_where_it_is_not_quiet(ask):
    assert ask(send_date="9999-12-31T23:59:59.999Z").status_code == 201
