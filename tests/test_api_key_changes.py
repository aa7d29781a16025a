"""A key that changes while a slow client still sends the body of its request."""

import io
import json

import pytest

from access.keys import ApiKey
from models import Message
from samples import NEW_YORK, SUNDAY_NIGHT, TUESDAY_NOON

NIGHT = "2026-03-04T08:00:00.000Z"  # three in the morning in New York


class SlowBody(io.BytesIO):
    """A body that is read when something has happened."""

    def __init__(self, body, meanwhile):
        super().__init__(json.dumps(body).encode())
        self.meanwhile = meanwhile

    def read(self, *size):
        self.meanwhile()
        return super().read(*size)


@pytest.fixture
def post_slowly(client, key):
    """Post a text, with an idempotency key or without, while the row of its key is changed."""

    def send(idempotency_key=None, changes=None, **fields):
        body = SlowBody(
            {"to": NEW_YORK, "message": "Hello"} | fields,
            lambda: changes and ApiKey.update(changes).execute(),
        )
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        headers["Content-Length"] = str(len(body.getvalue()))
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return client.post("/v1/text-messages", input_stream=body, headers=headers)

    return send


def test_hours_that_change_meanwhile_hold_for_the_answer(post_slowly, at):
    at(SUNDAY_NIGHT)
    answer = post_slowly(changes={"hours": "mon-sun 00:00-24:00"}).json
    assert answer["status"] == "queued"
    assert answer["business_hours"] == "12:00 AM - 12:00 AM local time"
    answer = post_slowly(changes={"hours": "mon-sun 10:00-11:00"}).json
    assert answer["scheduled_send_date"] == "2026-03-02T15:00:00.000Z"
    assert Message.select().count() == 2


def test_quiet_hours_that_change_meanwhile_hold_for_the_validation(post_slowly, at):
    at(TUESDAY_NOON)
    refused = post_slowly(changes={"quiet_hours": "21:00-08:00"}, send_date=NIGHT)
    assert refused.status_code == 400
    assert "send_date" in refused.json["details"]["validationErrors"][0]
    taken = post_slowly(changes={"quiet_hours": "none"}, send_date=NIGHT)
    assert taken.json["scheduled_send_date"] == NIGHT


def test_a_list_that_is_always_checked_from_now_on_is_said_to_be(post_slowly, at):
    at(TUESDAY_NOON)
    assert post_slowly(changes={"check_dnc": "always"}).json["check_dnc"] is True


@pytest.mark.parametrize("fields", [{}, {"message": ""}, {"send_date": "yesterday"}])
def test_a_key_that_is_revoked_meanwhile_is_refused_whatever_the_body_says(post_slowly, at, fields):
    at(TUESDAY_NOON)
    assert post_slowly(changes={"revoked_at": TUESDAY_NOON}, **fields).status_code == 401
    assert Message.select().count() == 0


def test_a_revoked_key_gets_no_earlier_answer(post_slowly, at):
    at(TUESDAY_NOON)
    assert post_slowly("once").status_code == 201
    assert post_slowly("once").status_code == 201
    assert post_slowly("once", {"revoked_at": TUESDAY_NOON}).status_code == 401


def test_a_repeat_gets_its_answer_whatever_rules_hold_by_now(post_slowly, at):
    at(SUNDAY_NIGHT)
    first = post_slowly("once").json
    assert first["status"] == "scheduled"
    assert post_slowly("once", {"hours": "mon-sun 00:00-24:00"}).json == first
    assert Message.select().count() == 1
