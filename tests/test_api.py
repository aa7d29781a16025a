"""POST /v1/text-messages: its answers, and the messages it stores."""

import gzip
import json
import re
import uuid
from datetime import UTC, datetime

import pytest

from answers import PATH, accepted, problems, refusal, sender
from app import create_app
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from texting.access.do_not_call import DoNotCall
from texting.database import clock, isoformat
from texting.messages.model import Message

JULY_EVENING = datetime(2026, 7, 15, 17, 0, tzinfo=UTC)  # 6 PM in London
JANUARY_NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
TUESDAY_8PM = datetime(2026, 3, 3, 20, 0, tzinfo=UTC)  # business hours from Honolulu to New York

QUEUED = {
    "status": "queued",
    "within_business_hours": True,
    "can_send_now": True,
    "manual_mode": False,
    "available_to_group": False,
    "check_dnc": False,
    "business_hours": "9:00 AM - 5:00 PM local time",
    "message_length": 5,
    "max_retries": 3,
    "message": "Text message queued for immediate sending.",
}
SCHEDULED = QUEUED | {"status": "scheduled", "within_business_hours": False, "can_send_now": False}


RECIPIENT = (
    *("to_phone_normalized", "to_phone_number", "recipient_country", "recipient_location"),
    *("recipient_timezone", "recipient_local_time", "timezone_offset", "is_dst"),
)


def answer(now, *recipient, until=None, is_dst=False):
    """Return when a request comes, and its whole answer; `until` is when business hours begin."""
    body = QUEUED | {"scheduled_send_date": isoformat(now)}
    if until:
        text = f"Text message scheduled for {until}, when business hours begin."
        body = SCHEDULED | {"scheduled_send_date": until, "message": text}
    return now, body | dict(zip(RECIPIENT, (*recipient, is_dst), strict=True))


WHOLE_ANSWERS = {
    "New York at noon": answer(
        *(TUESDAY_NOON, NEW_YORK, "+1 212-555-0123", "US", "New York, United States"),
        *("GMT-5", "12:00 PM, Tuesday, Mar 3", -5),
    ),
    "London on a summer evening": answer(
        *(JULY_EVENING, LONDON, "+44 20 8366 1177", "GB", "London, United Kingdom"),
        *("GMT+1", "6:00 PM, Wednesday, Jul 15", 1),
        until="2026-07-16T08:00:00.000Z",
        is_dst=True,
    ),
    "an Indian mobile in the evening": answer(
        *(JANUARY_NOON, "+919876543210", "+91 98765 43210", "IN", "Kolkata, India"),
        *("GMT+5.5", "5:30 PM, Thursday, Jan 15", 5.5),
        until="2026-01-16T03:30:00.000Z",
    ),
    "a toll-free number of the United States": answer(
        *(TUESDAY_8PM, "+18005550199", "+1 800-555-0199", "US", "New York, United States"),
        *("GMT-5", "3:00 PM, Tuesday, Mar 3", [-8, -7, -6, -5]),
    ),
    "a number of no country": answer(
        *(JANUARY_NOON, "+80012345678", "+800 1234 5678", "001", "UTC, World"),
        *("GMT+0", "12:00 PM, Thursday, Jan 15", 0),
    ),
}


@pytest.mark.parametrize(("now", "whole"), WHOLE_ANSWERS.values(), ids=WHOLE_ANSWERS)
def test_the_answer_has_exactly_these_values_and_types(now, whole, post, at):
    at(now)
    response = post(to=whole["to_phone_normalized"])
    body = accepted(response)
    assert str(uuid.UUID(body["message_id"])) == body.pop("message_id")
    assert body == whole
    assert json.dumps(whole["timezone_offset"], separators=(",", ":")) == re.search(
        r'"timezone_offset":(\[.*?\]|[^,]+)', response.text
    ).group(1)  # == does not tell 5 from 5.0, nor True from 1
    assert {name: type(value) for name, value in body.items()} == {
        name: type(value) for name, value in whole.items()
    }


@pytest.mark.parametrize(
    ("send_date", "words"),
    [
        (..., "queued for immediate sending"),
        ("2026-03-05T03:00:00Z", "scheduled for 2026-03-05T03:00:00.000Z"),
    ],
)
def test_manual_mode_changes_nothing_but_the_text_and_the_approval(send_date, words, post, at):
    at(TUESDAY_NOON)
    free = accepted(post(send_date=send_date))
    held = accepted(post(send_date=send_date, manual_mode=True))
    assert free.pop("message") == f"Text message {words}."
    assert held.pop("message") == f"Text message {words} once it is approved."
    differences = {name for name in free if free[name] != held[name]}
    assert differences == {"message_id", "manual_mode"}
    approved = {str(row.id): row.approved for row in Message.select()}
    assert approved == {free["message_id"]: True, held["message_id"]: False}


@pytest.mark.parametrize("option", ["manual_mode", "available_to_group", "check_dnc"])
@pytest.mark.parametrize("value", [True, False])
def test_options_are_echoed_and_kept(option, value, post):
    body = accepted(post(**{option: value}))
    options = {name: body[name] for name in ("manual_mode", "available_to_group", "check_dnc")}
    assert options == dict.fromkeys(options, False) | {option: value}
    row = Message.get()
    assert {name: getattr(row, name) for name in options} == options


@pytest.mark.parametrize(
    ("to", "changes", "words"),
    [
        (LONDON, {"allowed_countries": frozenset({"US", "CA"})}, ": United Kingdom."),
        ("+80012345678", {"allowed_countries": frozenset({"US", "CA"})}, ": World."),
        ("+905012345678", {"allowed_countries": frozenset({"US", "CA"})}, ": Türkiye."),
        (NEW_YORK, {"allowed_countries": frozenset({"GB", "US", "001"})}, None),
        ("+80012345678", {"allowed_countries": frozenset({"GB", "US", "001"})}, None),
        (LONDON, {"allowed_countries": None}, None),
        ("+19002345678", {}, "Premium-rate"),
        ("+449098790123", {}, "Premium-rate"),
        ("+979123456789", {}, "Premium-rate"),
        ("+447012345678", {}, "Personal"),
        ("+870773123456", {}, "Satellite"),
        ("+878101234567890", {}, "Satellite"),
        ("+881612345678", {}, "Satellite"),
        ("+8823451234567", {}, "Satellite"),
        ("+883510012345678", {}, "Satellite"),
        ("+88812345678901", {}, "Satellite"),
        ("+19002345678", {"allow_premium_rate": True}, None),
        ("+979123456789", {"allow_premium_rate": True}, None),
        ("+881612345678", {"allow_premium_rate": True}, None),
    ],
)
def test_who_may_be_texted_is_a_setting(settings, key, to, changes, words):
    response = sender(create_app(settings._replace(**changes)).test_client(), key)(to=to)
    if words:
        refusal(response, 403)
        assert words in response.json["message"]
    else:
        accepted(response)
    assert Message.select().count() == (0 if words else 1)


@pytest.mark.parametrize(
    "text",
    [
        "  two spaces\t\n ",
        "\r\n.",
        "👩‍👩‍👧 ❤️ 𝄞",
        "e\u0301 is not \u00e9",
        "\ufeffmark, \u2028, \u202eright to left\u202c, \x01, \x7f",
        "'; DROP TABLE message; -- % %s {to} \\ \"",
        "\uffff\U0010ffff",
    ],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_stored_message_matches_the_request_and_the_answer(text, ascii_only, post_bytes, key):
    fields = {"to": LONDON, "message": text, "send_date": "2126-03-04T03:00:00.5+01:00"}
    before = clock.now()
    body = accepted(post_bytes(json.dumps(fields, ensure_ascii=ascii_only)))
    assert body["message_length"] == len(text)
    row = Message.get()
    assert (row.message, row.to, row.key.name) == (text, LONDON, "app")
    assert str(row.id) == body["message_id"]
    assert row.status == body["status"]
    assert row.send_at == row.send_date == datetime(2126, 3, 4, 2, 0, 0, 500_000, tzinfo=UTC)
    assert before <= row.created_at <= clock.now()
    assert (row.attempts, row.max_retries) == (0, body["max_retries"])
    assert row.last_error is row.finished_at is row.response is None


def test_the_length_is_counted_in_code_points(post):
    assert accepted(post(message="😀" * 1600))["message_length"] == 1600
    assert accepted(post(message="e\u0301" * 800))["message_length"] == 1600
    assert problems(post(message="😀" * 1601)) == [
        "message: must have at most 1600 characters, has 1601"
    ]


def test_ids_are_different_and_sort_by_time(post):
    ids = [post().json["message_id"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert [uuid.UUID(message_id).version for message_id in ids] == [7, 7, 7]
    assert ids[0][:13] <= ids[1][:13] <= ids[2][:13]


def test_max_message_length_and_max_retries_are_settings(post_with):
    assert accepted(post_with("12345", max_message_length=5))["message_length"] == 5
    assert problems(post_with("123456", max_message_length=5))
    assert accepted(post_with(max_retries=0))["max_retries"] == 0


def test_a_body_has_at_most_64_kib(post_bytes):
    body = json.dumps({"to": NEW_YORK, "message": "Hello"})
    accepted(post_bytes(body.ljust(65_536)))
    refusal(post_bytes(body.ljust(65_537)), 413)
    assert Message.select().count() == 1


def test_checks_come_in_the_documented_order(client, key):
    DoNotCall.add([NEW_YORK], clock.now(), "operator")
    wrong = {"path": PATH + "s", "method": "PUT", "data": b"{" * 65_537, "headers": {}}
    answers = []
    for mended in (
        {},
        {"path": PATH},
        {"method": "POST"},
        {"headers": {"X-Api-Key": key}},
        {"data": b"{"},
        {"headers": {"X-Api-Key": key, "Content-Type": "application/json"}},
        {"data": json.dumps({"to": NEW_YORK, "message": "", "check_dnc": True})},
        {"data": json.dumps({"to": NEW_YORK, "message": "Hello", "check_dnc": True})},
        {"data": json.dumps({"to": NEW_YORK, "message": "Hello"})},
    ):
        wrong |= mended
        response = client.open(**wrong)
        listed = response.json.get("details", {}).get("validationErrors", [""])
        answers.append((response.status_code, listed[0].partition(":")[0]))
    assert answers == [
        *((404, ""), (405, ""), (401, ""), (413, "")),
        *((400, "Content-Type"), (400, "body"), (400, "message"), (403, ""), (201, "")),
    ]


def test_a_compressed_body_is_refused_by_its_encoding(post_bytes):
    body = gzip.compress(json.dumps({"to": NEW_YORK, "message": "Hello"}).encode())
    answer = post_bytes(body, **{"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert answer.json["details"]["validationErrors"] == [
        "Content-Encoding: must be absent, because compressed bodies are not read"
    ]
    plain = json.dumps({"to": NEW_YORK, "message": "Hello"})
    accepted(post_bytes(plain, **{"Content-Encoding": "Identity"}))


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "APPLICATION/JSON", 'application/json;x="y;z"'],
)
def test_a_content_type_may_have_parameters(content_type, post_bytes):
    body = json.dumps({"to": NEW_YORK, "message": "Hello"})
    accepted(post_bytes(body, **{"Content-Type": content_type}))
