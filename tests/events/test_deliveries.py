"""Deliveries: signed, tried again in time, and one address holds up no other."""

import logging
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from standardwebhooks import Webhook

from carrier_servers import DRIP, HANG, HANG_UP, Answer
from databases import on_both
from query_plans import plans
from receivers import cancelled, many
from running import free_port, wait_until
from samples import HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, store
from texting.database import clock
from texting.events import delivery
from texting.events.outbox import Event, EventAddress

pytestmark = pytest.mark.usefixtures("database_url")


@pytest.fixture
def quickly(monkeypatch):
    """Wait for an answer no longer than a second."""
    monkeypatch.setattr(delivery, "TIMEOUT", 1)


# What the receiver gets


@on_both
def test_an_event_is_delivered_signed_and_forgotten(app_key, receiver, deliver):
    message = cancelled()
    deliver()
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/events?of=app")
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["webhook-id"].startswith("evt_")
    assert receiver.events[0]["data"]["message_id"] == str(message.id)
    assert receiver.forged == []
    assert Event.select().count() == 0
    assert again(message).event_delivered_at is not None


def test_after_a_second_rotation_the_first_secret_signs_no_more(
    app_key, receiver, run, deliver, at
):
    at(TUESDAY_NOON)
    first = receiver.secret
    run("keys", "events", "app", "--rotate")
    second = run("keys", "events", "app", "--secret").strip()
    at(TUESDAY_NOON + HOUR)
    run("keys", "events", "app", "--rotate")
    third = run("keys", "events", "app", "--secret").strip()
    receiver.secret = None
    for hours, good in ((0, {second, third}), (23, {second, third}), (24, {third})):
        at(TUESDAY_NOON + HOUR + hours * HOUR)
        cancelled()
        deliver()
        request = receiver.requests[-1]
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert verified(request.body, headers, (first, second, third)) == good


def verified(body, headers, secrets):
    """The secrets of which one signature is."""
    wanted = headers["webhook-signature"].split(" ")
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    return {
        secret
        for secret in secrets
        if Webhook(secret).sign(headers["webhook-id"], at, body.decode()) in wanted
    }


def test_credentials_in_the_address_are_sent_and_never_logged(receiver, deliver, caplog):
    EventAddress.set(key_named("app"), receiver.url.replace("://", "://me:s3cret%40@"), clock.now())
    receiver.answer = Answer(500, b"top s3cret")
    message = cancelled()
    deliver()
    (request,) = receiver.requests
    assert request.headers["Authorization"] == "Basic bWU6czNjcmV0QA=="
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    line = record.getMessage()
    assert "HTTP 500" in line
    assert "of key app" in line
    assert (record.message_id, record.key) == (str(message.id), "app")
    secrets = ("s3cret", "127.0.0.1", EventAddress.get().secret, NEW_YORK, "text_message")
    assert [each for each in secrets if each in caplog.text] == []


def test_proxies_of_the_environment_are_not_used(app_key, receiver, deliver, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "")
    cancelled()
    deliver()
    assert receiver.types == ["cancelled"]


def test_connections_are_kept(app_key, receiver, deliver):
    many(50)
    deliver()
    assert len(receiver.events) == 50
    assert receiver.connections <= delivery.AT_ONCE


# What is no yes


@pytest.mark.parametrize(
    "answer",
    [
        *map(Answer, (200, 201, 204, 299)),
        pytest.param(Answer(200, b"x" * 100, pause=0.1), id="its body comes slowly"),
        pytest.param(Answer(200, b"x" * 5_000_000), id="no more than 64 KiB of it are read"),
    ],
)
def test_any_2xx_is_understood(app_key, receiver, deliver, quickly, answer):
    receiver.answer = answer
    cancelled()
    deliver()
    assert Event.select().count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(302, headers={"Location": "/elsewhere"}), "HTTP 302"),
        (Answer(400), "HTTP 400"),
        (Answer(500), "HTTP 500"),
        (HANG_UP, "the receiver gave no answer"),
        (HANG, "the receiver gave no answer"),
        (DRIP, "the receiver gave no answer"),
    ],
)
def test_anything_else_is_tried_again_in_five_seconds(
    app_key, receiver, deliver, quickly, answer, words
):
    receiver.answer = answer
    cancelled()
    began = clock.now()
    deliver()
    event = Event.get()
    assert (event.tries, event.last_answer) == (1, words)
    waits = event.next_try_at - clock.now()
    assert timedelta(seconds=5) <= event.next_try_at - began
    assert waits <= timedelta(seconds=6)
    assert len(receiver.requests) == 1


def test_nobody_listening_is_tried_again(deliver):
    EventAddress.set(key_named("app"), f"http://127.0.0.1:{free_port()}/", clock.now())
    cancelled()
    deliver()
    assert Event.get().last_answer == (
        "the receiver cannot be reached: nobody listens there (connection refused)"
    )


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        ("600", 600, 600),
        ("1", 5, 6),
        ("999999", 86_400, 86_400),
        ("a date", 3500, 3600),
        ("soon", 5, 6),
        ("-5", 5, 6),
    ],
)
def test_retry_after_makes_it_later(app_key, receiver, deliver, retry_after, least, most):
    if retry_after == "a date":  # in an hour
        retry_after = format_datetime(clock.now() + HOUR, usegmt=True)
    receiver.answer = Answer(503, headers={"Retry-After": retry_after})
    cancelled()
    deliver()
    waits = (Event.get().next_try_at - clock.now()).total_seconds()
    assert least - 5 <= waits <= most


def test_messages_of_a_revoked_key_are_still_told_of(app_key, receiver, deliver):
    message = store()
    app_key.revoke(clock.now())
    decide_on(message).cancel("shell", clock.now())
    deliver()
    assert receiver.types == ["cancelled"]


# Beside others


@pytest.mark.slow
@pytest.mark.parametrize("answer", [HANG, DRIP, Answer(500), "refuses"])
def test_a_bad_receiver_costs_only_itself(receivers, delivering, answer, monkeypatch):
    monkeypatch.setattr(delivery, "TIMEOUT", 3)  # the end of the test waits for it
    bad, good = receivers(), receivers()
    bad.answer = answer
    url = f"http://127.0.0.1:{free_port()}" if answer == "refuses" else bad.url
    EventAddress.set(key_named("bad"), url, clock.now())
    EventAddress.set(key_named("good"), good.url, clock.now())
    many(120, "bad")
    many(50, "good")
    wait_until(lambda: len(good.events) == 50)


@pytest.mark.slow
def test_waiting_for_a_hanging_receiver_ends(app_key, receiver, deliver, quickly):
    receiver.answer = HANG
    many(10)
    deliver()
    tried = Event.select().where(Event.tries == 1).count()
    assert 1 <= tried == len(receiver.requests) < 10, "or they would be tried with each pass"
    assert Event.select().where(Event.next_try_at <= clock.now()).count() == 10 - tried


@on_both
def test_a_single_pass_tries_each_event_once(app_key, receiver, deliver, monkeypatch):
    monkeypatch.setattr(delivery, "DELAYS", (0.01,) * 9)
    receiver.answer = Answer(500)
    for _ in range(3):
        cancelled()
    deliver()
    assert len(receiver.ids) == len({*receiver.ids}) == 3


@on_both
@pytest.mark.slow
def test_of_two_schedulers_each_event_goes_once(app_key, receiver, deliveries):
    deliveries(), deliveries()
    many(200)
    wait_until(lambda: not Event.select().count())
    assert len(receiver.ids) == len({*receiver.ids}) == 200


@on_both
@pytest.mark.slow
def test_a_dead_schedulers_events_are_taken_over(app_key, receiver, deliver):
    cancelled()
    now = clock.now()
    (held,) = Event.claim(app_key.id, 1, now, now + SECOND, None)
    deliver()
    assert receiver.events == []
    wait_until(lambda: clock.now() > held.next_try_at)
    deliver()
    assert receiver.types == ["cancelled"]


@pytest.mark.slow
@pytest.mark.parametrize(("status", "left"), [(204, []), (500, [1])])
def test_a_lease_shorter_than_a_request_makes_no_second_one(
    app_key, receiver, deliveries, status, left
):
    receiver.delay, receiver.answer = 3, Answer(status)
    deliveries(1)
    cancelled()
    wait_until(lambda: Event.get_or_none(tries=0) is None)
    assert [event.tries for event in Event.select()] == left
    assert len(receiver.ids) == 1


@on_both
def test_no_more_is_claimed_than_is_begun(app_key, receiver, delivering):
    receiver.open.clear()
    many(5)
    wait_until(lambda: receiver.under_way == 2)
    claimed = Event.select().where(Event.next_try_at > clock.now())
    assert claimed.count() == 2
    EventAddress.switch_off(app_key.id, "by an operator", clock.now())
    receiver.open.set()
    wait_until(lambda: Event.select().count() == 3)
    assert Event.backlogs()[app_key.id].given_up == 3
    assert len(receiver.requests) == 2


@pytest.mark.slow
def test_stopping_begins_no_more(app_key, receiver, delivering):
    receiver.delay = 0.3
    many(20)
    wait_until(lambda: receiver.requests)
    begun = len(receiver.requests)
    delivering.stop()
    delivering.finish()
    seen = len(receiver.requests)
    assert seen <= begun + delivery.AT_ONCE
    assert Event.select().count() == 20 - seen
    assert Event.select().where(Event.next_try_at <= clock.now()).count() == 20 - seen


@pytest.mark.slow
def test_stopping_waits_for_a_silent_receiver_only_as_long_as_there_is_time(
    app_key, receiver, delivering
):
    receiver.answer = HANG
    many(1)
    wait_until(lambda: receiver.requests)
    began = time.monotonic()
    delivering.stop(1)
    delivering.finish()
    assert time.monotonic() - began < delivery.TIMEOUT
    assert Event.get().tries == 0, "it is tried again when the lease has ended"


@on_both
@pytest.mark.slow
def test_a_database_that_is_away_loses_nothing(app_key, receiver, delivering, monkeypatch):
    from texting import database

    def fail(*_):
        raise database.ERRORS[0]("is gone")

    cancelled()
    with monkeypatch.context() as patch:
        patch.setattr(Event, "delivered", fail)
        wait_until(lambda: receiver.events)
        time.sleep(0.5)
    wait_until(lambda: not Event.select().count())
    assert len(receiver.ids) == 1


@on_both
def test_what_waits_is_found_by_an_index(app_key):
    now = clock.now()
    statements = [
        *plans(lambda: Event.give_up(now)),
        *plans(lambda: Event.forget(now)),
        *plans(lambda: Event.receivers(now, None)),
        *plans(lambda: Event.claim(app_key.id, 8, now, now + HOUR, None)),
    ]
    assert len(statements) == 4
    for lines in statements:
        assert re.search("event_(due|given_up)", str(lines))


@on_both
def test_how_many_wait_is_read_from_indexes_alone(app_key):
    cancelled()
    statements = plans(Event.by_name)
    assert len(statements) == 2
    # Postgres may look at rows, too, while its statistics say that there are few
    by_index = "(COVERING INDEX|Index Only Scan using|Bitmap Index Scan on) event_(due|given_up)"
    for lines in statements:
        assert re.search(by_index, str(lines))
