"""The shape of answers: the fields of a 201, and the one body of every error."""

import json
import re

from samples import VALID

PATH = "/v1/text-messages"

FIELDS = [
    "message_id",
    "status",
    "to_phone_number",
    "to_phone_normalized",
    "recipient_country",
    "recipient_timezone",
    "recipient_location",
    "recipient_local_time",
    "timezone_offset",
    "is_dst",
    "scheduled_send_date",
    "within_business_hours",
    "can_send_now",
    "manual_mode",
    "available_to_group",
    "check_dnc",
    "business_hours",
    "message_length",
    "max_retries",
    "message",
]

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def sender(client, secret):
    """Return how a key posts texts: `send(to=LONDON)`, and `send("order-1")` to repeat one."""

    def send(repeat=None, **fields):
        headers = {"X-Api-Key": secret} | ({"Idempotency-Key": repeat} if repeat else {})
        return client.post(PATH, json=VALID | fields, headers=headers)

    return send


def error_in(status, content_type, text):
    """Return the `details` of an error; check its status and that it has exactly its fields."""
    assert content_type == "application/json", text
    body = json.loads(text)
    assert list(body) == ["error", "message", "statusCode", "details", "timestamp"]
    assert body["error"] is True
    assert body["statusCode"] == status, text
    assert type(body["statusCode"]) is int
    assert isinstance(body["message"], str)
    assert body["message"]
    assert INSTANT.fullmatch(body["timestamp"])
    if status == 400:
        assert list(body["details"]) == ["validationErrors"]
        assert body["details"]["validationErrors"]
        assert all(isinstance(problem, str) for problem in body["details"]["validationErrors"])
    else:
        assert body["details"] == {}
    return body["details"]


def refusal(response, status):
    """Return the `details` of a test client's response, which must be an error of this status."""
    assert response.status_code == status, response.text
    return error_in(status, response.headers["Content-Type"], response.text)


def problems(response):
    """Return the problems that a 400 lists."""
    return refusal(response, 400)["validationErrors"]


def accepted(response):
    """Return the body of a 201; check that it has exactly the interface's fields, in order."""
    assert response.status_code == 201, response.text
    assert response.headers["Content-Type"] == "application/json"
    assert list(response.json) == FIELDS
    return response.json
