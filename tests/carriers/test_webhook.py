"""carriers/webhook.py: a POST to the operator, signed according to Standard Webhooks."""

import base64
import json

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from carrier_errors import MESSAGE_ID, NUMBER, TEXT, connect, meaning, refused, send
from carrier_servers import Answer


def test_the_body_is_the_documented_object(webhook_server):
    send(connect(webhook_server.url))
    (request,) = webhook_server.requests
    assert request.method == "POST"
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {"message_id": MESSAGE_ID, "to": NUMBER, "message": TEXT}


@pytest.mark.parametrize(
    ("option", "secret"),
    [
        ("s3cret", b"s3cret"),
        ("s%263cret%20%C3%A9", "s&3cret é".encode()),
        ("whsec_" + base64.b64encode(b"k" * 24).decode().rstrip("="), b"k" * 24),
    ],
)
def test_a_receiver_verifies_it_with_a_library(webhook_server, option, secret):
    send(connect(f"webhook+http://{webhook_server.address}/?secret={option}"))
    (request,) = webhook_server.requests
    assert Webhook(secret).verify(request.body, request.headers)["to"] == NUMBER
    assert request.headers["webhook-id"] == MESSAGE_ID
    with pytest.raises(WebhookVerificationError):
        Webhook(b"another").verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(request.body + b" ", request.headers)


def test_another_copy_has_another_webhook_id_and_the_same_message_id(webhook_server):
    carrier = connect(f"webhook+http://{webhook_server.address}/")
    for copy in (0, 1, 1):
        send(carrier, copy=copy)
    ids = [each.headers["webhook-id"] for each in webhook_server.requests]
    assert ids[0] != ids[1] == ids[2]
    named = {json.loads(each.body)["message_id"] for each in webhook_server.requests}
    assert named == {MESSAGE_ID}


def test_without_a_secret_it_is_not_signed(webhook_server):
    send(connect(f"webhook+http://{webhook_server.address}/"))
    assert "webhook-signature" not in webhook_server.requests[0].headers


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("?secret=s3cret", "/"),
        ("/?secret=s3cret", "/"),
        ("/a/b?secret=s3cret&c=d%20e&f", "/a/b?c=d%20e&f"),
        ("/a?c=1&secret=s3cret&c=2", "/a?c=1&c=2"),
        ("/%C3%A9/{to}", "/%C3%A9/{to}"),
    ],
)
def test_all_but_the_secret_stays_the_address(webhook_server, address, path):
    send(connect(f"webhook+http://{webhook_server.address}{address}"))
    assert webhook_server.requests[0].path.replace("%7B", "{").replace("%7D", "}") == path


def test_a_user_and_a_password_are_https_basic_ones(webhook_server):
    send(connect(f"webhook+http://us%40er:pass@{webhook_server.address}/"))
    login = base64.b64encode(b"us@er:pass").decode()
    assert webhook_server.requests[0].headers["Authorization"] == f"Basic {login}"


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (Answer(200, {"reference": "order-7"}), "order-7"),
        (Answer(204), None),
        (Answer(200, b"ok"), None),
        (Answer(200, {"reference": 7}), None),
        (Answer(200, {"reference": "x" * 1000}), None),
        (Answer(200, {"reference": "a\nb"}), None),
        (Answer(200, {"error": None, "reference": "r"}), "r"),
        (Answer(200, b"x", length=100), None),
        (Answer(299, b"[" * 60_000), None),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_any_2xx_is_a_yes_and_its_reference_is_kept(webhook_server, answer, kept):
    webhook_server.answer = answer
    assert send(connect(webhook_server.url)) == kept


@pytest.mark.parametrize(
    "body",
    [
        {"error": "no credit", "reference": "r"},
        '{"error": "crédit épuisé"}'.encode("latin-1"),
        '{"error": "crédit épuisé"}'.encode("utf-16"),
    ],
)
def test_an_error_in_the_body_is_a_no_whatever_the_status(webhook_server, body):
    webhook_server.answer = Answer(200, body)
    assert meaning(refused(connect(webhook_server.url))) == "for now"


def test_it_cannot_be_checked_without_sending(webhook_server):
    with pytest.raises(NotImplementedError):
        connect(webhook_server.url).check()
