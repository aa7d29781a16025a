"""carriers/aws.py: signed requests, refusals in words, and what SNS may tell and have fetched."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA1

import kits
from carrier_errors import MESSAGE_ID, NUMBER, connect, error_of, meaning, refused, send
from carrier_servers import HANG_UP, Answer
from kits import PUBLIC_URL, REFERENCE, asked, connected
from kits.aws import (
    PEM,
    TOPIC,
    TOPICS,
    URL,
    AwsCallbacks,
    call,
    certificate,
    check,
    envelope,
    event,
    key,
    refusal,
    sign,
    signed,
)
from stored_messages import again, held
from texting.carriers import CannotVerify, IncomingText, NotGenuine, Receipt, Shown
from texting.messages.model import Status

HOW = AwsCallbacks()
VECTOR = json.loads(Path(kits.__file__).with_name("aws_signed_message.json").read_text())
SOON = timedelta(minutes=1)
DELIVERED = event("TEXT_DELIVERED")


def sent(server, number=-1):
    return json.loads(server.requests[number].body)


@pytest.fixture
def carrier(aws_server):
    return connect(f"{aws_server.url}&{TOPICS}", public_url=PUBLIC_URL)


def by(server, message=DELIVERED, **changes):
    """Return a callback by the SNS that this server plays."""
    return sign(message, base=server.base_url, **changes)


def refuses(carrier, callback, server, *, fetched=0):
    with pytest.raises(NotGenuine):
        carrier.callback(callback)
    assert len(server.asked) == fetched


# The request


@pytest.mark.parametrize(
    ("valid_for", "seconds"), [(60, 60), (0, 5), (259_200, 259_200), (10**9, 259_200)]
)
def test_a_text_names_its_message_and_the_end_of_its_time(aws_server, carrier, valid_for, seconds):
    assert send(carrier, valid_for=valid_for)
    assert sent(aws_server) == {
        "OriginationIdentity": "+15005550006",
        "DestinationPhoneNumber": NUMBER,
        "MessageBody": "attack at dawn, 🚀 héllo",
        "MessageType": "TRANSACTIONAL",
        "ConfigurationSetName": "texts",
        "TimeToLive": seconds,
        "Context": {"m": MESSAGE_ID},
    }


def test_a_secret_key_may_have_slashes_and_plus_signs(aws_server, monkeypatch):
    def take(request):
        assert check(request, json.loads(request.body), "a/b+c")
        return Answer(200, {"MessageId": "1"})

    monkeypatch.setattr(aws_server, "take", take)
    for secret in ("a%2Fb%2Bc", "a/b+c"):
        assert send(connect(aws_server.url.replace("s3cret", secret))) == "1"


@pytest.mark.parametrize(
    ("from_", "is_name"),
    [
        ("+15005550006", False),
        ("12345", False),
        ("ACME", True),
        (f"pool-{'a' * 32}", False),
        (f"phone-{'a' * 32}", False),
        ("arn:aws:sms-voice:us-east-1:123456789012:pool/pool-1", False),
        ("arn:aws:sms-voice:us-east-1:123456789012:sender-id/ACME/GB", True),
    ],
)
def test_any_identity_is_a_sender_and_a_name_is_warned_of(aws_server, from_, is_name):
    url = f"{aws_server.url}&{TOPICS}".replace("+15005550006", from_)
    carrier = connect(url, public_url=PUBLIC_URL)
    send(carrier)
    assert sent(aws_server)["OriginationIdentity"] == from_
    assert ("nobody can answer" in (carrier.warning or "")) == is_name


@pytest.mark.parametrize(
    ("options", "tells", "warns"),
    [
        (f"&{TOPICS}", True, ""),
        (f"&topics={TOPIC}", False, "no ?set="),
        ("&set=texts", False, "no ?topics="),
    ],
)
def test_receipts_need_a_configuration_set_and_topics(options, tells, warns):
    carrier = connect(URL + options, public_url=PUBLIC_URL)
    assert carrier.tells_receipts == tells
    assert warns in (carrier.warning or "")
    assert bool(carrier.warning) == bool(warns)


def test_the_regions_own_hosts_are_asked_and_no_others(asked_hosts):
    carrier = connect(f"{URL}&{TOPICS}".replace("us-east-1", "eu-west-2"))
    assert refused(carrier).unreached
    topic = TOPIC.replace("us-east-1", "eu-west-2")
    told = envelope(DELIVERED, base="https://sns.eu-west-2.amazonaws.com", TopicArn=topic)
    with pytest.raises(CannotVerify):
        carrier.callback(call(signed(told)))
    assert asked_hosts == ["sms-voice.eu-west-2.amazonaws.com", "sns.eu-west-2.amazonaws.com"]


# The answer


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (Answer(400, {"__type": "AccessDeniedException", "message": NUMBER}), "the account"),
        (Answer(400, {"__type": "ConflictException", "Reason": NUMBER}), "for now"),
        (Answer(400, {"__type": f"{NUMBER}", "Reason": "KEYWORD_MISMATCH"}), "for now"),
        (Answer(400, {"__type": "X", "Fields": [None, {"Name": "/messageBody"}]}), "for good"),
        (Answer(400, {"__type": "X", "Fields": {"Name": 1}, "Reason": []}), "for now"),
        (refusal("ServiceUnavailableException", 503), "too fast"),
        (refusal("TooManyRequestsException", 429), "too fast"),
        (refusal("InternalServerException", 500), "in doubt"),
        (refusal("ValidationException", 500), "for now"),
        (Answer(200, {}), "in doubt"),
        (Answer(200, {"MessageId": 7}), "in doubt"),
        (Answer(500, {"MessageId": REFERENCE}), "for now"),
    ],
    ids=repr,
)
def test_an_answer_means(aws_server, carrier, answer, means):
    aws_server.answer = answer
    assert meaning(refused(carrier)) == means


@pytest.mark.parametrize("code", ["COUNTRY_NOT_ENABLED", "NO_ORIGINATION_IDENTITIES_FOUND"])
def test_what_its_senders_do_not_reach_may_go_through_another_carrier(aws_server, carrier, code):
    aws_server.answer = refusal(code)
    error = refused(carrier)
    assert (error.no_route, meaning(error)) == (True, "for good")


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (None, None),
        (Answer(200, {}), None),
        (refusal("DESTINATION_PHONE_NUMBER_NOT_VERIFIED"), None),  # a sandbox
        (refusal("COUNTRY_NOT_ENABLED"), None),
        (refusal("RESOURCE_NOT_ACTIVE"), "the account"),
        (refusal("ThrottlingException"), "too fast"),
        (refusal("InternalServerException", 500), "for now"),
        (HANG_UP, "for now"),
    ],
    ids=repr,
)
def test_a_check_sends_nothing_and_its_number_does_not_matter(aws_server, carrier, answer, means):
    aws_server.answer = answer
    if means is None:
        carrier.check()
    else:
        assert meaning(error_of(carrier.check)) == means
    assert aws_server.texts == []
    assert json.loads(aws_server.asked[0].body)["DryRun"] is True


# What SNS signs


def test_a_message_that_sns_itself_signed_is_genuine_and_a_byte_more_is_not(
    aws_server, monkeypatch
):
    message, path = VECTOR["message"], VECTOR["message"]["SigningCertURL"].rpartition("/")[2]
    aws_server.certificates[f"/{path}"] = "\n".join(VECTOR["certificate"]).encode()
    at = datetime.fromisoformat(message["Timestamp"]).timestamp()
    monkeypatch.setattr("time.time", lambda: at + 60)
    region, topic = "us-west-2", message["TopicArn"]
    url = f"{aws_server.url.replace('us-east-1', region)}&topics={topic}"
    message = message | {"SigningCertURL": f"{aws_server.base_url}/{path}"}
    assert connect(url).callback(call(message)) == []
    for name in ("Message", "MessageId"):
        with pytest.raises(NotGenuine):
            connect(url).callback(call(message | {name: message[name] + "0"}))


def test_a_certificate_is_fetched_once(aws_server, carrier):
    for _ in range(3):
        assert carrier.callback(by(aws_server)) == [Receipt(REFERENCE, True)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(carrier.callback, [by(aws_server)] * 8))
    assert [each.path for each in aws_server.asked] == [PEM]


def test_a_fetch_that_takes_long_holds_up_no_message_whose_certificate_is_known(
    aws_server, carrier, monkeypatch
):
    """A stranger who knows a topic can name any path of SNS's."""
    carrier.callback(by(aws_server))
    told, asks, goes_on = aws_server.told, threading.Event(), threading.Event()

    def tell_slowly(request):
        asks.set()
        goes_on.wait(30)
        return told(request)

    monkeypatch.setattr(aws_server, "told", tell_slowly)
    stranger = by(aws_server, SigningCertURL=f"{aws_server.base_url}/another.pem")
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(carrier.callback, stranger)
        assert asks.wait(30)
        assert pool.submit(carrier.callback, by(aws_server)).result(5)
        goes_on.set()
        assert isinstance(waits.exception(), NotGenuine)


@pytest.mark.parametrize(
    "changes",
    [
        {"TopicArn": f"{TOPIC}-of-another"},
        {"TopicArn": TOPIC.replace("123456789012", "999999999999")},
        {"SignatureVersion": "1"},
        {"age": timedelta(hours=24, minutes=10)},
        {"age": timedelta(hours=-1)},
        {"Timestamp": "yesterday"},
        {"Timestamp": "2026-03-06T20:00:26"},
        *(
            {"SigningCertURL": url}
            for url in (
                "https://sns.us-east-1.amazonaws.com" + PEM,  # not the test server
                "http://169.254.169.254/latest/meta-data/x.pem",
                "http://127.0.0.1:1/x.pem",
                "file:///etc/passwd.pem",
                "/x.pem",
                "{base}.evil.example/x.pem",
                "{base}@evil.example/x.pem",
                "{base}/../x.pem",
                "{base}/x.pem?y.pem",
                "{base}/x.pem#",
                "{base}/x.pem\n",
                "{base}/x.txt",
                "{base}",
                "HTTP{base}/x.pem",
                "",
            )
        ),
        {"Type": "Another"},
        {"Subject": "a\nb"},
        {"Message": '{"a": 1}\nMessageId\nb'},
    ],
    ids=str,
)
def test_what_does_not_come_from_a_topic_of_ours_is_refused_and_nothing_is_fetched(
    aws_server, carrier, changes
):
    changes = {
        name: value.replace("{base}", aws_server.base_url) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    kind, message = changes.pop("Type", None), changes.pop("Message", DELIVERED)
    told = signed(envelope(message, base=aws_server.base_url, **changes))
    refuses(carrier, call(told | ({"Type": kind} if kind else {})), aws_server)


def test_a_message_without_a_signature_or_in_another_form_is_refused(aws_server, carrier):
    told = envelope(DELIVERED, base=aws_server.base_url)
    refuses(carrier, call(told), aws_server)
    refuses(carrier, call(told | {"Signature": "é"}), aws_server)
    refuses(carrier, call(DELIVERED), aws_server)  # raw message delivery is not signed


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"no certificate",
        lambda: certificate(ends=-SOON),
        lambda: certificate(begins=SOON),
        lambda: certificate(ec.generate_private_key(ec.SECP256R1())),
        lambda: certificate(key("another")),
    ],
    ids=["empty", "words", "expired", "too new", "elliptic", "another's"],
)
def test_a_certificate_that_is_not_valid_verifies_nothing(aws_server, carrier, make):
    aws_server.certificates[PEM] = make()
    refuses(carrier, by(aws_server), aws_server, fetched=1)


def test_a_certificate_that_is_not_there_is_not_looked_for_elsewhere(aws_server, carrier):
    aws_server.answer = Answer(302, b"", {"Location": f"{aws_server.base_url}/elsewhere"})
    refuses(carrier, by(aws_server), aws_server, fetched=1)
    aws_server.answer = Answer(404, certificate())
    refuses(carrier, by(aws_server), aws_server, fetched=2)


def test_a_signature_by_sha1_is_refused_whatever_its_version_says(aws_server, carrier):
    told = envelope(DELIVERED, base=aws_server.base_url)
    refuses(carrier, call(signed(told, hashed=SHA1())), aws_server, fetched=1)


@pytest.mark.parametrize("answer", [HANG_UP, Answer(500), Answer(503)], ids=repr)
def test_what_cannot_be_verified_now_is_repeated_later(aws_server, carrier, answer):
    aws_server.answer = answer
    with pytest.raises(CannotVerify):
        carrier.callback(by(aws_server))
    aws_server.answer = None
    assert carrier.callback(by(aws_server)) == [Receipt(REFERENCE, True)]


@pytest.fixture
def client(open_client, aws_server):
    return open_client(f"{aws_server.url}&{TOPICS}")


def test_sns_is_asked_to_repeat_what_cannot_be_verified_now(client, aws_server):
    """It repeats a message after a 503, not after a 403 (SNS's guide: 200 to 4xx is success)."""
    message = held(Status.SENT, carrier_reference=REFERENCE, carrier="aws")
    aws_server.answer = Answer(500)
    assert client.open(**asked(by(aws_server))).status_code == 503
    assert again(message).status == Status.SENT
    aws_server.answer = None
    assert client.open(**asked(by(aws_server))).status_code == 204
    assert again(message).status == Status.DELIVERED


@pytest.mark.parametrize(
    "changes",
    [
        {"SigningCertURL": "http://169.254.169.254/latest/x.pem"},
        {"TopicArn": f"{TOPIC}-of-another"},
        {"age": timedelta(hours=25)},
    ],
    ids=str,
)
def test_hostile_messages_of_sns_get_a_403_and_have_nothing_fetched(client, aws_server, changes):
    told = asked(by(aws_server, {"messageBody": "STOP"}, **changes))
    for name in ("aws", "another"):
        assert client.open(**told | {"path": f"/carriers/{name}/inbound"}).status_code == 403
    assert aws_server.asked == []


# Subscriptions

CONFIRM = "You have chosen to subscribe.\nTo confirm, visit the SubscribeURL."


def wanted(server, **changes):
    kind = "SubscriptionConfirmation"
    return call(signed(envelope(CONFIRM, kind, base=server.base_url, **changes)))


def test_a_subscription_to_a_topic_of_ours_is_confirmed_once(aws_server, carrier):
    for _ in range(3):
        assert carrier.callback(wanted(aws_server)) == []
    assert aws_server.confirmed == ["t0ken"]


@pytest.mark.parametrize(
    "changes",
    [
        {"TopicArn": f"{TOPIC}-of-another"},
        {"SubscribeURL": "http://169.254.169.254/latest/?Action=ConfirmSubscription&Token=t"},
        {"SubscribeURL": "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription"},
        {"SubscribeURL": "{base}.evil.example/?Action=ConfirmSubscription&Token=t"},
        {"age": timedelta(hours=25)},
        {"SignatureVersion": "1"},
    ],
    ids=str,
)
def test_any_other_is_refused_and_nothing_is_fetched(aws_server, carrier, changes):
    if "SubscribeURL" in changes:
        changes = {"SubscribeURL": changes["SubscribeURL"].format(base=aws_server.base_url)}
    refuses(carrier, wanted(aws_server, **changes), aws_server)


def test_a_confirmation_that_is_not_signed_fetches_nothing_it_names(aws_server, carrier):
    told = envelope(CONFIRM, "SubscriptionConfirmation", base=aws_server.base_url)
    refuses(carrier, call(signed(told, key("another"))), aws_server, fetched=1)
    assert aws_server.confirmed == []


@pytest.mark.parametrize("answer", [HANG_UP, Answer(500), Answer(400)], ids=repr)
def test_a_confirmation_that_fails_is_made_when_sns_asks_again(
    aws_server, carrier, monkeypatch, answer
):
    told = aws_server.told
    fails = lambda request: answer if "Token" in request.path else told(request)  # noqa: E731
    monkeypatch.setattr(aws_server, "told", fails)
    with pytest.raises(CannotVerify):
        carrier.callback(wanted(aws_server))
    monkeypatch.setattr(aws_server, "told", told)
    assert carrier.callback(wanted(aws_server)) == []
    assert aws_server.confirmed == ["t0ken"]


def test_an_ended_subscription_changes_nothing(aws_server, carrier):
    told = envelope(CONFIRM, "UnsubscribeConfirmation", base=aws_server.base_url)
    assert carrier.callback(call(signed(told))) == []
    assert aws_server.confirmed == []


# What it says


def test_an_event_names_the_message_by_its_context():
    carrier = connected("aws")
    for kind in ("TEXT_QUEUED", "TEXT_PENDING", "TEXT_UNKNOWN", "TEXT_OF_TOMORROW", "VOICE_X"):
        told = sign(event(kind, context={"m": MESSAGE_ID, "account": "x"}))
        assert carrier.callback(told) == [Shown(REFERENCE, MESSAGE_ID)]


@pytest.mark.parametrize("is_final", [False, None, "true"])
def test_what_a_network_took_for_now_is_not_delivered(is_final):
    told = event("TEXT_SUCCESSFUL", isFinal=is_final, context={"m": MESSAGE_ID})
    assert connected("aws").callback(sign(told)) == [Shown(REFERENCE, MESSAGE_ID)]


@pytest.mark.parametrize("kind", ["status", "inbound"])
def test_events_and_replies_are_told_apart_by_what_they_say(kind):
    reply = {"originationNumber": NUMBER, "messageBody": "Yes", "inboundMessageId": "in1"}
    told = envelope(reply)
    at = datetime.fromisoformat(told["Timestamp"])
    assert connected("aws").callback(call(signed(told), kind)) == [
        IncomingText(NUMBER, "Yes", at, True, ("aws in1",))
    ]
    assert connected("aws").callback(sign(DELIVERED, kind)) == [Receipt(REFERENCE, True)]


@pytest.mark.parametrize(
    ("text", "word"), [("TD", "STOP"), (" td\n", "STOP"), ("TD?", None), ("STOP", None)]
)
def test_td_is_a_stop_too(text, word):
    (reply,) = connected("aws").callback(HOW.reply(text))
    assert (reply.text, reply.word) == (text, word)


def test_a_reply_without_an_id_of_its_own_has_that_of_its_message():
    told = envelope({"originationNumber": NUMBER, "messageBody": "Yes"})
    (reply,) = connected("aws").callback(call(signed(told)))
    assert reply.message_ids == (f"aws {told['MessageId']}",)


@pytest.mark.parametrize(
    "message",
    [
        *("", "no JSON", "[" * 20_000, "[]", "7", "null", {}, {"eventType": None}),
        {"eventType": ["TEXT_DELIVERED"], "messageId": REFERENCE},
        {"eventType": "TEXT_DELIVERED", "messageId": 7},
        {"messageBody": 7, "originationNumber": NUMBER},
        {"messageBody": "STOP", "originationNumber": None},
    ],
    ids=lambda message: repr(message)[:60],
)
def test_a_genuine_message_of_another_shape_says_nothing(message):
    assert connected("aws").callback(sign(message)) == []


@pytest.mark.parametrize("context", [[MESSAGE_ID], {"m": 7}, None])
def test_an_event_that_does_not_name_the_message_shows_its_reference(context):
    event = {"eventType": "TEXT_QUEUED", "messageId": REFERENCE, "context": context}
    assert connected("aws").callback(sign(event)) == [Shown(REFERENCE)]


def test_what_verifies_signatures_is_loaded_late():
    code = (
        f"import sys; from texting import carriers; carriers.connect({URL!r}); "
        "print({'cryptography', 'botocore'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
