"""Idempotency-Key: a repeated request gets the first answer and creates no second message."""

import json

import pytest

from answers import PATH, accepted, problems, refusal
from databases import on_both
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from texting.access import do_not_call
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey
from texting.database import clock
from texting.messages.model import Message

pytestmark = on_both

BODY = '{"to": "+12125550123", "message": "Hello é", "check_dnc": true}'


@pytest.fixture
def once(post_bytes):
    """Send a body with an idempotency key."""
    return lambda body=BODY, name="order-1", **headers: post_bytes(
        body, **{"Idempotency-Key": name} | headers
    )


@pytest.mark.parametrize(
    "again",
    [
        BODY,
        ' {"check_dnc":true , "message":"Hello \\u00e9",\n"to":"+12125550123"}\r\n',
        '{"\\u0074o": "\\u002b12125550123", "message": "\\u0048ello é", "check_dnc": true}',
    ],
)
def test_the_same_request_gets_the_same_answer_to_the_byte(again, once, at):
    at(TUESDAY_NOON)
    first = once()
    accepted(first)
    at(TUESDAY_NOON + 9 * HOUR)  # at night a new message would be scheduled
    second = once(again)
    assert second.status_code == 201
    assert second.data == first.data
    assert second.headers["Content-Type"] == first.headers["Content-Type"]
    assert Message.select().count() == 1


@pytest.mark.parametrize(
    "other",
    [
        '{"to": "+12125550123", "message": "Hello"}',
        '{"to": "+12125550123", "message": "Hello e\\u0301", "check_dnc": true}',
        '{"to": "+12125550123", "message": "Hello é", "check_dnc": true, "manual_mode": false}',
        '{"to": "+12125550123", "message": "Hello é", "check_dnc": 1}',
        '{"to": "+12125550123"}',
        "[]",
    ],
)
def test_another_body_with_the_same_key_is_refused(other, once):
    first = once()
    assert problems(once(other)) == ["Idempotency-Key: was used before, with another request body"]
    assert once().data == first.data
    assert Message.select().count() == 1


def test_each_api_key_has_its_own_names(once):
    first = accepted(once())
    secret = ApiKey.issue("other", None, clock.now())
    second = accepted(once(**{"X-Api-Key": secret}))
    third = accepted(once('{"to": "+12125550123", "message": "!"}', "order-2"))
    assert len({body["message_id"] for body in (first, second, third)}) == 3


def test_names_are_case_sensitive_and_requests_without_one_never_repeat(once, post):
    ids = {accepted(response)["message_id"] for response in (once(), once(name="Order-1"))}
    ids |= {accepted(post())["message_id"] for _ in range(2)}
    assert len(ids) == Message.select().count() == 4
    assert Message.select().where(Message.response.is_null(False)).count() == 2


@pytest.mark.parametrize("name", ["!", "~" * 255, 'a,b;c="d"', "';--", "%00"])
def test_visible_ascii_is_a_name(name, once):
    first = once(name=name)
    accepted(first)
    assert once(name=name).data == first.data
    assert Message.select().count() == 1


@pytest.mark.parametrize("name", ["", " ", "a b", "é", "\x7f", "~" * 256, "a\t", "\xff"])
def test_any_other_name_is_refused(name, client, key):
    headers = {"HTTP_X_API_KEY": key, "HTTP_IDEMPOTENCY_KEY": name}
    response = client.post(PATH, json=json.loads(BODY), environ_overrides=headers)
    assert problems(response) == ["Idempotency-Key: must be 1 to 255 visible ASCII characters"]
    assert Message.select().count() == 0


def test_a_name_is_free_after_a_refusal(once):
    problems(once('{"to": 1}'))
    problems(once("{"))
    DoNotCall.add([NEW_YORK], clock.now(), "operator")
    refusal(once(), 403)
    do_not_call.remove([NEW_YORK], clock.now(), "shell", opted_out=True)
    accepted(once('{"to": "+442083661177", "message": "changed"}'))


def test_the_answer_is_repeated_after_its_time_has_come(once, at):
    at(TUESDAY_NOON)
    body = json.dumps({"to": LONDON, "message": "Hello", "send_date": "2026-03-03T18:00:00Z"})
    first = once(body)
    at(TUESDAY_NOON + HOUR)
    assert once(body).data == first.data
    problems(once(body, "order-2"))


def test_the_answer_is_repeated_even_if_the_message_has_changed(once, flask):
    first = once()
    DoNotCall.add([NEW_YORK], clock.now(), "operator")
    flask("messages", "cancel", first.json["message_id"])
    assert once().data == first.data
    refusal(once(name="order-2"), 403)


def test_a_redacted_message_is_not_made_again(once, flask, at):
    at(TUESDAY_NOON)
    flask("messages", "cancel", once().json["message_id"])
    at(TUESDAY_NOON + HOUR)
    assert flask("messages", "redact", "--older-than", "0").exit_code == 0
    assert problems(once()) == ["Idempotency-Key: was used before; the answer is no longer kept"]
    assert Message.select().count() == 1
