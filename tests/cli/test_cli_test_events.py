"""`flask keys events NAME --test`: what a receiver makes of an event, told in a line."""

import socket

import pytest

from carrier_servers import DRIP, HANG, HANG_UP, Answer
from texting.access.audit import Audit
from texting.database import clock
from texting.events import delivery
from texting.events.outbox import Event, EventAddress

TEST = "keys", "events", "app", "--test"


def test_a_test_is_signed_like_every_event_and_its_answer_printed(run, app_key, receiver):
    assert run(*TEST) == "the receiver answered HTTP 204\n"
    (event,) = receiver.events
    assert event["type"] == "text_message.test"
    assert [*event["data"]] == ["message_id"]
    (request,) = receiver.requests
    assert request.path == "/events?of=app"
    assert receiver.ids[0].startswith("evt_")
    assert receiver.forged == []


def test_each_test_is_another_event(run, app_key, receiver):
    run(*TEST)
    run(*TEST)
    assert len({*receiver.ids}) == 2
    assert len({event["data"]["message_id"] for event in receiver.events}) == 2


def test_while_two_secrets_are_valid_either_verifies_a_test(run, app_key, receiver):
    EventAddress.rotate(app_key, clock.now())
    for secret in EventAddress.of(app_key).secrets(clock.now()):
        receiver.secret = secret
        run(*TEST)
    assert receiver.forged == []


@pytest.mark.parametrize("status", [200, 204, 400, 410, 429, 500])
def test_nothing_is_stored_whatever_the_answer(flask, app_key, receiver, status):
    """410 does not switch the address off, and a failure does not count as one of the receiver."""
    receiver.answer = Answer(status, headers={"Retry-After": "60"})
    before, noted = EventAddress.select().dicts().get(), Audit.select().count()
    result = flask(*TEST)
    assert (result.exit_code == 0) is (status < 300)
    assert EventAddress.select().dicts().get() == before
    assert Event.select().count() == 0
    assert Audit.select().count() == noted


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(400, b"The signature does not match."), "400: The signature does not match."),
        (Answer(302, headers={"Location": "/"}), "302"),
        (Answer(410), "410"),
        (
            Answer(500, b"<p>\n\n  Oops\xff\x1b[2J </p>" + b"x" * 9000),
            "500: <p> Oops\ufffd\\x1b[2J",
        ),
    ],
)
def test_a_refusal_is_told_in_one_line_with_the_beginning_of_its_words(
    refused, app_key, receiver, answer, line
):
    receiver.answer = answer
    told = refused(*TEST)
    assert told.startswith(f"Error: the receiver answered HTTP {line}")
    assert len(told) < 300


@pytest.mark.parametrize("answer", [HANG, HANG_UP, DRIP])
def test_a_receiver_that_does_not_answer_is_given_up(
    refused, app_key, receiver, answer, monkeypatch
):
    monkeypatch.setattr(delivery, "TIMEOUT", 0.3)
    receiver.answer = answer
    assert refused(*TEST) == "Error: the receiver gave no answer"


def test_a_receiver_that_cannot_be_reached_gets_one_line(refused, app_key):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    EventAddress.set(app_key, f"http://me:s3cret@127.0.0.1:{port}/?token=s3cret", clock.now())
    line = refused(*TEST)
    assert line.startswith("Error: the receiver cannot be reached: ")
    assert "s3cret" not in line


def test_without_an_address_that_is_on_nothing_is_sent(refused, run, app_key, receiver):
    run("keys", "create", "other")
    assert refused("keys", "events", "other", "--test") == "Error: other has no address for events"
    run("keys", "events", "app", "--off")
    line = "Error: the address of app is switched off: by an operator"
    assert refused(*TEST) == line
    assert receiver.requests == []


@pytest.mark.parametrize("more", ["--off", "--secret", "--rotate", "http://localhost/"])
def test_a_test_stands_alone(refused, app_key, receiver, more):
    assert refused(*TEST, more, status=2) == "Error: Give an address or one option."
    assert receiver.requests == []
