"""What changes while a slow client sends a body holds for it, with a real gunicorn."""

import json
import socket
import time
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from access.do_not_call import DoNotCall
from access.keys import ApiKey
from answers import PATH
from database import clock
from models import Message
from running import ask, post, read_all
from samples import LONDON, NEW_YORK, SECOND, VALID


def post_slowly(web, secret, body, meanwhile):
    """Post half a body, then the rest when something has happened; return status and body."""
    body = json.dumps(body).encode()
    lines = [
        f"POST {PATH} HTTP/1.1",
        *("Host: x", "Connection: close", "Content-Type: application/json"),
        *(f"X-Api-Key: {secret}", f"Content-Length: {len(body)}"),
    ]
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as client:
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body[:10])
        assert ask(web, "GET", "/").status == 200  # the head was read before
        meanwhile()
        for byte in body[10:15]:
            client.sendall(bytes([byte]))
            time.sleep(0.25)  # together longer than a key is remembered
        client.sendall(body[15:])
        head, _, answer = read_all(client).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(answer)


def local(hours):
    """Return the hour of New York's clock so many hours from now, as rules of a key have it."""
    at = clock.now().astimezone(ZoneInfo("America/New_York")) + timedelta(hours=hours)
    return f"{at:%H}:00"


def change_key(**columns):
    return lambda: ApiKey.update(columns).execute()


def in_quiet_hours():
    return (clock.now() + timedelta(hours=6)).isoformat()


CHANGES = {
    "the key is revoked": (lambda: ApiKey.get().revoke(clock.now()), {}, 401),
    "the key expires": (
        lambda: time.sleep(2.5),
        lambda: change_key(expires_at=clock.now() + 2 * SECOND)() and {},
        401,
    ),
    "the key is another's": (lambda: ApiKey.get().rotate(clock.now(), clock.now()), {}, 401),
    "the key becomes a person's": (change_key(role="approver"), {}, 403),
    "the limit is used up": (change_key(limits="1/d"), {}, 429),
    "the number joins the list": (
        lambda: DoNotCall.add([LONDON], clock.now(), "cli"),
        {"to": LONDON, "check_dnc": True},
        403,
    ),
    "the key checks the list": (
        lambda: DoNotCall.add([LONDON], clock.now(), "cli") and change_key(check_dnc="always")(),
        {"to": LONDON},
        403,
    ),
    "quiet hours begin": (
        lambda: change_key(quiet_hours=f"{local(4)}-{local(8)}")(),
        lambda: {"send_date": in_quiet_hours()},
        400,
    ),
    "its time passes": (
        lambda: time.sleep(2.5),
        lambda: {"send_date": (clock.now() + 2 * SECOND).isoformat()},
        400,
    ),
}


@pytest.mark.parametrize(("meanwhile", "fields", "status"), CHANGES.values(), ids=CHANGES)
def test_what_changes_while_a_body_arrives_holds_for_it(shared_web, meanwhile, fields, status):
    web, key = shared_web
    assert post(web, key, VALID).status == 201
    stored = Message.select().count()
    fields = fields() if callable(fields) else fields
    answered, body = post_slowly(web, key, VALID | fields, meanwhile)
    assert answered == body["statusCode"] == status, body
    assert Message.select().count() == stored


def test_hours_that_change_while_a_body_arrives_decide_when_it_goes(shared_web):
    web, key = shared_web
    assert post(web, key, VALID).status == 201
    closed = f"mon-sun {local(4)}-{local(5)}"
    if closed.endswith("-00:00"):
        closed = closed.replace("-00:00", "-24:00")
    status, answer = post_slowly(web, key, VALID, change_key(hours=closed))
    assert (status, answer["status"]) == (201, "scheduled")
    assert not answer["within_business_hours"]
    status, answer = post_slowly(web, key, VALID, change_key(hours="mon-sun 00:00-24:00"))
    assert (status, answer["status"]) == (201, "queued")


def test_a_text_is_accepted_when_its_body_has_arrived(shared_web):
    web, key = shared_web
    before = []

    def meanwhile():
        time.sleep(1.5)
        before.append(clock.now())

    status, answer = post_slowly(web, key, VALID | {"to": NEW_YORK}, meanwhile)
    assert status == 201
    assert Message.get_by_id(answer["message_id"]).created_at >= before[0]
    assert answer["scheduled_send_date"] >= f"{before[0]:%Y-%m-%dT%H:%M:%S}"
