"""When a message is sent: at once, at the next opening, or at its send_date."""

from datetime import UTC, datetime, timedelta

import pytest

from answers import accepted, problems
from models import Message
from samples import SUNDAY_NIGHT, TUESDAY_NOON

MILLISECOND = timedelta(milliseconds=1)
OPENING = datetime(2026, 3, 3, 14, 0, tzinfo=UTC)  # 9 AM in New York, a Tuesday
CLOSING = datetime(2026, 3, 3, 22, 0, tzinfo=UTC)  # 5 PM there
FRIDAY_EVENING = datetime(2026, 3, 6, 23, 0, tzinfo=UTC)  # 6 PM there
BEFORE_SUMMER_TIME = datetime(2026, 3, 8, 4, 0, tzinfo=UTC)  # 11 PM, three hours before
BEFORE_WINTER_TIME = datetime(2026, 11, 1, 4, 0, tzinfo=UTC)  # midnight, two hours before
YEARS_END = datetime(
    2027, 1, 1, 4, 59, 59, 999_000, tzinfo=UTC
)  # midnight there, less a millisecond


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


def test_a_minute_to_midnight_is_still_this_year(post, at):
    at(YEARS_END)
    assert post().json["recipient_local_time"] == "11:59 PM, Thursday, Dec 31"
    at(YEARS_END + MILLISECOND)
    assert post().json["recipient_local_time"] == "12:00 AM, Friday, Jan 1"


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


@pytest.mark.parametrize(
    ("hours", "text", "now", "send_at"),
    [
        ((0, 1440), "12:00 AM - 12:00 AM local time", SUNDAY_NIGHT, None),
        ((30, 750), "12:30 AM - 12:30 PM local time", CLOSING, "2026-03-04T05:30:00.000Z"),
        ((720, 1439), "12:00 PM - 11:59 PM local time", OPENING, "2026-03-03T17:00:00.000Z"),
    ],
)
def test_business_hours_are_a_setting(hours, text, now, send_at, post_with, at):
    at(now)
    body = accepted(post_with(business_hours=hours))
    assert body["business_hours"] == text
    assert body["can_send_now"] is (send_at is None)
    assert send_at in (None, body["scheduled_send_date"])


def test_business_days_are_a_setting(post_with, at):
    at(FRIDAY_EVENING)
    week = post_with(business_days=frozenset(range(5))).json
    assert week["scheduled_send_date"] == "2026-03-09T13:00:00.000Z"
    at(TUESDAY_NOON)
    assert post_with(business_days=frozenset([1])).json["status"] == "queued"
    sunday = post_with(business_days=frozenset([6])).json
    assert sunday["within_business_hours"] is False
    assert sunday["scheduled_send_date"] == "2026-03-08T13:00:00.000Z"


def test_the_week_and_the_holidays_of_the_recipients_country_are_a_setting(post_with, at):
    at(datetime(2026, 11, 26, 17, 0, tzinfo=UTC))  # Thanksgiving, a Thursday, noon in New York
    assert accepted(post_with())["status"] == "queued"
    assert accepted(post_with(business_days=None))["status"] == "queued"
    body = accepted(post_with(business_days=None, skip_holidays=True))
    assert body["status"] == "scheduled"
    assert body["within_business_hours"] is body["can_send_now"] is False
    assert body["scheduled_send_date"] == "2026-11-27T14:00:00.000Z"
