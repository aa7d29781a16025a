"""A key that changes between two requests of a process, or while a slow client sends a body."""

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from answers import sender
from databases import on_both
from samples import HOUR, MILLISECOND, NEW_YORK, SECOND, SUNDAY_NIGHT, TUESDAY_NOON
from texting.access.keys import ApiKey
from texting.messages.model import Message

pytestmark = on_both

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
    """Post a text, with an idempotency key or without, while its key or something else changes."""

    def send(idempotency_key=None, changes=None, meanwhile=None, **fields):
        change = meanwhile or (lambda: changes and ApiKey.update(changes).execute())
        body = SlowBody({"to": NEW_YORK, "message": "Hello"} | fields, change)
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        headers["Content-Length"] = str(len(body.getvalue()))
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return client.post("/v1/text-messages", input_stream=body, headers=headers)

    return send


ALL_DAY = {"status": "queued", "business_hours": "12:00 AM - 12:00 AM local time"}
AN_HOUR = {"status": "scheduled", "scheduled_send_date": "2026-03-02T15:00:00.000Z"}


@pytest.mark.parametrize(
    ("changes", "fields", "status", "answered"),
    [
        ({"hours": "mon-sun 00:00-24:00"}, {}, 201, ALL_DAY),
        ({"hours": "mon-sun 10:00-11:00"}, {}, 201, AN_HOUR),
        ({"quiet_hours": "21:00-08:00"}, {"send_date": NIGHT}, 400, {}),
        ({"check_dnc": "always"}, {}, 201, {"check_dnc": True}),
        ({"revoked_at": SUNDAY_NIGHT}, {}, 401, {}),
        ({"revoked_at": SUNDAY_NIGHT}, {"message": ""}, 401, {}),
        ({"revoked_at": SUNDAY_NIGHT}, {"send_date": "yesterday"}, 401, {}),
    ],
    ids=str,
)
def test_a_change_holds_for_the_request_whose_body_arrives_meanwhile(
    post_slowly, at, changes, fields, status, answered
):
    at(SUNDAY_NIGHT)
    response = post_slowly(changes=changes, **fields)
    assert response.status_code == status
    assert response.json | answered == response.json
    assert Message.select().count() == (status == 201)


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


def moved(at, instant):
    """A change of the clock, while a body arrives."""
    return lambda: at(instant)


@pytest.mark.parametrize("expires_at", ["expires_at", "old_expires_at"])
@pytest.mark.parametrize(("seconds", "status"), [(0, 201), (4.999, 201), (5, 401)])
def test_a_secret_that_expires_while_a_body_arrives_is_refused(
    key, post_slowly, at, expires_at, seconds, status
):
    at(TUESDAY_NOON)
    ApiKey.update({expires_at: TUESDAY_NOON + timedelta(seconds=5)}).execute()
    if expires_at == "old_expires_at":  # it was rotated
        ApiKey.update(old_digest=ApiKey.digest, digest="of another secret").execute()
    arrives = moved(at, TUESDAY_NOON + timedelta(seconds=seconds))
    assert post_slowly(meanwhile=arrives).status_code == status


@pytest.mark.parametrize(
    ("begins", "arrives", "status"),
    [
        ("16:59:59", "16:59:59.999", "queued"),
        ("16:59:59", "17:00:00", "scheduled"),
        ("08:59:59", "09:00:00", "queued"),
        ("08:59:58", "08:59:59.999", "scheduled"),
    ],
)
def test_business_hours_are_those_of_when_the_body_has_arrived(
    post_slowly, at, begins, arrives, status
):
    begins, arrives = (
        datetime.fromisoformat(f"2026-03-03T{each}-05:00").astimezone(UTC)
        for each in (begins, arrives)
    )
    at(begins)
    answer = post_slowly(meanwhile=moved(at, arrives)).json
    assert answer["status"] == status
    assert answer["can_send_now"] is (status == "queued")
    if status == "queued":
        assert datetime.fromisoformat(answer["scheduled_send_date"]) == arrives


@pytest.mark.parametrize(("seconds", "status"), [(9.999, 201), (10, 400), (11, 400)])
def test_a_send_date_that_passes_while_a_body_arrives_is_past(post_slowly, at, seconds, status):
    at(TUESDAY_NOON)
    send_date = (TUESDAY_NOON + timedelta(seconds=10)).isoformat()
    arrives = moved(at, TUESDAY_NOON + timedelta(seconds=seconds))
    assert post_slowly(meanwhile=arrives, send_date=send_date).status_code == status


def test_a_limit_counts_a_text_when_its_body_has_arrived(key, post_slowly, at):
    midnight = TUESDAY_NOON.replace(hour=0) + timedelta(days=1)
    ApiKey.update(limits="1/d", hours="mon-sun 00:00-24:00").execute()
    at(midnight - SECOND)
    assert post_slowly().status_code == 201
    assert post_slowly(meanwhile=moved(at, midnight - MILLISECOND)).status_code == 429
    assert post_slowly(meanwhile=moved(at, midnight)).status_code == 201
    assert post_slowly(meanwhile=moved(at, midnight + HOUR)).status_code == 429


# Within a second


@pytest.fixture
def second(monkeypatch):
    """Stop the clock that tells how long a key is remembered, at a second: `second(1)`."""

    def stop(second):
        monkeypatch.setattr("texting.access.keys.monotonic", lambda: 100.9 + second)

    stop(0)
    return stop


@pytest.fixture
def status_of(client, at):
    """Post a text with a secret; return the status of the answer."""
    at(TUESDAY_NOON)
    return lambda secret, **fields: sender(client, secret)(**fields).status_code


@pytest.mark.parametrize("fields", [{}, {"message": ""}], ids=["good", "wrong"])
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"revoked_at": TUESDAY_NOON}, 401),
        ({"expires_at": TUESDAY_NOON}, 401),
        ({"digest": "of another secret"}, 401),
        ({"role": "approver"}, 403),
        ({"role": "approver", "revoked_at": TUESDAY_NOON}, 401),
        ({"quiet_hours": "00:00-10:00"}, 400),
    ],
    ids=str,
)
def test_a_change_of_a_key_holds_a_second_later(key, status_of, second, change, status, fields):
    fields |= {"send_date": NIGHT}
    assert status_of(key, **fields) == (400 if "message" in fields else 201)
    ApiKey.update(change).execute()
    second(1)
    assert status_of(key, **fields) == status


@pytest.mark.parametrize(
    ("words", "status"),
    [(("revoke", "app", "--cancel"), 401), (("revoke", "app"), 401), (("pause", "app"), 403)],
)
def test_a_key_that_is_stopped_stores_nothing_more_within_its_second(
    key, run, status_of, second, words, status
):
    assert status_of(key) == 201
    run("keys", *words)
    assert status_of(key) == status
    assert Message.select().count() == 1


def test_a_limit_holds_for_the_next_text(key, run, status_of, second):
    assert status_of(key) == 201
    run("keys", "limit", "app", "1/d")
    assert [status_of(key) for _ in range(2)] == [201, 429]
    run("keys", "limit", "app", "2/d")
    assert [status_of(key) for _ in range(2)] == [201, 429]


@pytest.mark.parametrize("words", [("extend", "app", "--expires", "1h"), ("rotate", "app")])
def test_a_secret_ends_at_its_instant(key, run, status_of, second, at, words):
    run("keys", *words, *(["--overlap", "1h"] if "rotate" in words else []))
    at(TUESDAY_NOON + HOUR - MILLISECOND)
    assert status_of(key) == 201
    at(TUESDAY_NOON + HOUR)
    assert status_of(key) == 401


def test_a_new_secret_is_good_at_once_and_each_is_of_its_own_key(status_of, run, second):
    secrets = {name: run("keys", "create", name).strip() for name in ("one", "two", "three")}
    for name, secret in [*secrets.items()] * 2:
        assert status_of(secret, message=name) == 201
    assert status_of(run("keys", "rotate", "one").strip(), message="one") == 201
    assert all(text.message == text.key.name for text in Message.select())


def test_the_use_of_a_key_is_noted_in_each_hour(key, status_of, second, at):
    for minutes in (1, 30, 61, 200):
        at(TUESDAY_NOON + timedelta(minutes=minutes))
        status_of(key)
        noted = TUESDAY_NOON + timedelta(hours=minutes // 60)
        assert ApiKey.get().last_used_at == noted
