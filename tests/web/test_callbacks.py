"""callbacks.py: what carriers and recipients say later, signed by the carriers' own libraries."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import refusal
from samples import NEW_YORK, TUESDAY_NOON
from signed_callbacks import (
    FORM,
    PUBLIC_URL,
    SECRET,
    TOKEN,
    TWILIO,
    VONAGE,
    call_twilio,
    of_twilio,
    of_vonage,
)
from stored_messages import again, held, store, store_many
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.database import clock
from texting.messages import receipts
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.replies.model import Reply

SID, MESSAGE_ID = "SM" + "1" * 32, "0A0000000123ABCD1"
TWILIOS = ["/carriers/twilio/status", "/carriers/twilio/inbound"]
VONAGES = ["/carriers/vonage/status", "/carriers/vonage/inbound"]


def status(client, **fields):
    return call_twilio(client, TWILIOS[0], {"MessageSid": SID, "To": NEW_YORK} | fields)


def reply(client, text, **fields):
    return call_twilio(client, TWILIOS[1], {"From": NEW_YORK, "Body": text} | fields)


def understood(response):
    assert response.status_code == 204, response.text
    assert response.data == b""
    assert "Content-Type" not in response.headers


def sent(reference=SID, finished_at=TUESDAY_NOON, **columns):
    columns = {"carrier": "vonage" if reference == MESSAGE_ID else "twilio"} | columns
    return held(Status.SENT, carrier_reference=reference, finished_at=finished_at, **columns)


# Receipts


def test_twilio_says_delivered(open_client, run):
    message = sent()
    understood(status(open_client(TWILIO), MessageStatus="delivered"))
    assert again(message).status == Status.DELIVERED
    assert again(message).finished_at == TUESDAY_NOON
    shown = json.loads(run("messages", "show", str(message.id)))
    assert (shown["status"], shown["last_error"]) == ("delivered", None)
    assert shown["receipt_at"]
    listed = json.loads(run("messages", "list", "--status", "delivered", "--json"))
    assert [each["message_id"] for each in listed] == [str(message.id)]


def test_twilio_says_undelivered_and_why(open_client, run):
    message = sent()
    understood(status(open_client(TWILIO), MessageStatus="undelivered", ErrorCode="30005"))
    shown = json.loads(run("messages", "show", str(message.id)))
    assert shown["status"] == "undelivered"
    assert shown["last_error"] == "Twilio: the number is not in service (error 30005)"


@pytest.mark.parametrize("said", ["delivered", "undelivered"])
@pytest.mark.parametrize("is_early", [False, True])
def test_a_receipt_leaves_a_line_without_number_or_text(open_client, caplog, said, is_early):
    caplog.set_level("INFO")
    given = {"claimed_for": "twilio", "message": "attack at dawn"}
    message = held(Status.SENDING, **given) if is_early else sent()
    understood(status(open_client(TWILIO), MessageStatus=said))
    if is_early:
        receipts.record_accepted({message.id: SID}, TUESDAY_NOON, "twilio")
    (line,) = [each for each in caplog.records if each.name == "receipts"]
    assert line.getMessage() == f"message {message.id} is {said} by a receipt of twilio"
    assert line.levelname == "INFO"
    assert NEW_YORK[1:] not in caplog.text
    assert "dawn" not in caplog.text


@pytest.mark.parametrize("how", ["form", "json", "query"])
@pytest.mark.parametrize("scheme", ["vonage", "nexmo"])
def test_vonage_says_delivered_in_each_of_its_ways(open_client, how, scheme):
    message = sent(MESSAGE_ID)
    client = open_client(VONAGE.replace("vonage", scheme))
    fields = {"messageId": MESSAGE_ID, "msisdn": NEW_YORK[1:], "status": "delivered"}
    understood(client.open(VONAGES[0], **of_vonage(fields, SECRET, how)))
    assert again(message).status == Status.DELIVERED


@pytest.mark.parametrize(
    "fields",
    [{"MessageStatus": "sent"}, {"MessageStatus": "nonsense"}, {}, {"MessageSid": ""}],
)
def test_what_is_no_last_word_changes_nothing(open_client, fields):
    message = sent()
    understood(status(open_client(TWILIO), **fields))
    assert again(message).status == Status.SENT
    assert not EarlyReceipt.select().exists()


# STOP and START


@pytest.mark.parametrize("check", ["opted-out", "asked", "always"])
def test_a_recipient_that_replies_stop_gets_no_more_texts(open_client, check):
    scheduled, queued, other = (
        store(status=Status.SCHEDULED, send_at=TUESDAY_NOON, check_dnc=True),
        store(check_dnc=True),
        store(check_dnc=False),
    )
    (neighbours,) = store_many(1, check_dnc=True)
    client = open_client(TWILIO, check_dnc=check)
    understood(reply(client, " Stop.\n"))
    assert OptedOut.get().source == "reply"
    assert [again(message).status for message in (scheduled, queued, other)] == [
        *(Status.BLOCKED, Status.BLOCKED, Status.QUEUED if check == "asked" else Status.BLOCKED)
    ]
    assert Message.get(Message.to == neighbours).status == Status.QUEUED
    understood(reply(client, "start"))
    assert not OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_vonage_hands_on_a_stop_and_a_start(open_client, how):
    client = open_client(VONAGE)
    for text, listed in (("ARRÊT", True), ("Start!", False)):
        fields = {"msisdn": NEW_YORK[1:], "to": "15005550006", "text": text}
        understood(client.open(VONAGES[1], **of_vonage(fields, SECRET, how)))
        assert OptedOut.lists(NEW_YORK) == listed


def test_an_opt_out_that_the_carrier_keeps_joins_the_list_as_the_carriers(open_client):
    message = sent()
    client = open_client(TWILIO)
    understood(status(client, MessageStatus="failed", ErrorCode="21610"))
    assert again(message).status == Status.UNDELIVERED
    assert OptedOut.get().source == "carrier"
    reply(client, "START")
    assert not OptedOut.lists(NEW_YORK)


# Genuine only


def unchanged(message):
    assert again(message).status == Status.SENT
    assert not DoNotCall.select().exists()
    assert not EarlyReceipt.select().exists()


DELIVERED = {"MessageSid": SID, "MessageStatus": "delivered", "To": NEW_YORK, "ErrorCode": "21610"}


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": {}},
        {"headers": {"X-Twilio-Signature": "", "Content-Type": FORM}},
        {"headers": {"X-Twilio-Signature": "é\xff" * 9, "Content-Type": FORM}},
        {"data": b""},
        {"data": b"\xff\0\xfe"},
        {"data": b"MessageSid=" + SID.encode() + b"&MessageStatus=delivered"},
        {"data": b"&".join(b"a=b" for _ in range(1000))},
        {"query_string": "a=b"},
        {"environ_overrides": {"QUERY_STRING": "\xff&%00&%ff&["}},
        {"token": "another"},
        {"url": f"http://localhost{TWILIOS[0]}"},
        {"url": f"https://sms.example.com{TWILIOS[0]}"},
        {"url": f"{PUBLIC_URL}{TWILIOS[1]}"},
        {"url": f"{PUBLIC_URL}{TWILIOS[0]}/"},
    ],
)
def test_a_callback_that_is_not_twilios_is_403_and_changes_nothing(open_client, changes):
    message = sent()
    refusal(call_twilio(open_client(TWILIO), TWILIOS[0], DELIVERED, **changes), 403)
    unchanged(message)


def test_twilios_signature_covers_the_query(open_client):
    message = sent()
    client, path = open_client(TWILIO), f"{TWILIOS[0]}?tenant=a%20b&x="
    understood(call_twilio(client, path, DELIVERED))
    assert again(message).status == Status.DELIVERED


@pytest.mark.parametrize("seen", [{"HTTP_HOST": "10.0.0.7:8000"}, {"SCRIPT_NAME": "/staging"}])
def test_a_proxy_and_a_prefix_change_what_is_seen_and_not_what_is_signed(open_client, seen):
    message = sent()
    signed = of_twilio(f"{PUBLIC_URL}{TWILIOS[0]}", DELIVERED, TOKEN)
    understood(open_client(TWILIO).open(TWILIOS[0], environ_overrides=seen, **signed))
    assert again(message).status == Status.DELIVERED


@pytest.mark.parametrize("how", ["form", "json", "query"])
@pytest.mark.parametrize("carrier", [VONAGE, VONAGE.partition("?")[0]])
def test_a_callback_that_is_not_vonages_is_403_and_changes_nothing(open_client, how, carrier):
    message = sent(MESSAGE_ID)
    fields = {"messageId": MESSAGE_ID, "status": "delivered", "msisdn": NEW_YORK[1:], "text": "END"}
    for path in VONAGES:
        refusal(open_client(carrier).open(path, **of_vonage(fields, "another", how)), 403)
    unchanged(message)


@pytest.mark.parametrize(
    ("carrier_url", "public_url"),
    [
        (TWILIO, None),
        (None, PUBLIC_URL),
        (None, None),
        ("console:", PUBLIC_URL),
        ("json://127.0.0.1/{to}", PUBLIC_URL),
        ("smpp://user:s3cret@localhost/15005550006", PUBLIC_URL),
        (VONAGE, PUBLIC_URL),
        ("twilio://SK1:secret@+15005550006?account=AC1", PUBLIC_URL),
    ],
)
def test_where_no_callback_of_twilios_can_be_genuine_each_is_403(
    open_client, carrier_url, public_url
):
    message = sent()
    client = open_client(carrier_url, public_url)
    for path in TWILIOS:
        refusal(call_twilio(client, path, DELIVERED | {"Body": "STOP"}), 403)
    unchanged(message)


def test_a_carrier_url_that_cannot_be_used_stops_the_start_in_one_line(open_client):
    with pytest.raises(SystemExit) as stopped:
        open_client("twilio://AC1:s3cret@")
    assert str(stopped.value).startswith("CARRIER_URL: ")
    assert "\n" not in str(stopped.value)
    assert "s3cret" not in str(stopped.value)


# What is no callback


ELSEWHERE = [
    *("/carriers/", "/carriers/x", "/carriers/twilio", "/carriers/twilio/", "/carriers//status"),
    *("/carriers/twilio/status/", "/carriers/twilio/other", "/carriers/twilio/status/x"),
    *("/carriers/console/status", "/carriers/nobody/inbound", "/carriers/a_b/status"),
    *("/carriers/%C3%A9/status", "/carriers/%00/status", f"/carriers/{'x' * 65}/status"),
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"]


@pytest.mark.parametrize("path", [*TWILIOS, *VONAGES, *ELSEWHERE])
def test_strangers_get_one_answer_whatever_they_try(open_client, path):
    told = {
        (answer.status_code, answer.mimetype, "Allow" in answer.headers)
        for carrier in (TWILIO, VONAGE, f"{TWILIO}#name=nobody", None)
        for method in METHODS
        for answer in [open_client(carrier).open(path, method=method)]
    }
    assert told == {(403, "application/json", False)}


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "FOO"])
def test_twilio_posts_and_nothing_else_is_its(open_client, method):
    message = sent()
    answer = call_twilio(open_client(TWILIO), TWILIOS[0], DELIVERED, method=method)
    assert answer.status_code == 403
    unchanged(message)


@pytest.mark.parametrize("how", ["query", "form", "json"])
@pytest.mark.parametrize("method", ["HEAD", "PUT", "OPTIONS"])
def test_vonage_gets_and_posts_and_nothing_else_is_its(open_client, how, method):
    message = sent(MESSAGE_ID)
    fields = {"messageId": MESSAGE_ID, "status": "delivered"}
    signed = of_vonage(fields, SECRET, how) | {"method": method}
    assert open_client(VONAGE).open(VONAGES[0], **signed).status_code == 403
    unchanged(message)


@pytest.mark.parametrize("path", [*TWILIOS, *VONAGES])
def test_a_body_of_more_than_64_kib_is_413(open_client, path):
    client = open_client(TWILIO if path in TWILIOS else VONAGE)
    refusal(client.post(path, data=b"a" * (64 * 1024 + 1)), 413)
    refusal(client.post(path, data=b"a" * (64 * 1024)), 403)


def test_a_body_shorter_than_announced_is_400(open_client):
    signed = of_twilio(f"{PUBLIC_URL}{TWILIOS[0]}", DELIVERED, TOKEN)
    signed["environ_overrides"] = {"CONTENT_LENGTH": "1000"}
    refusal(open_client(TWILIO).open(TWILIOS[0], **signed), 400)


TEXTS = st.text() | st.sampled_from(["STOP", "delivered", "failed", "9", "21610", SID, NEW_YORK])
NAMES = ["MessageSid", "MessageStatus", "ErrorCode", "To", "From", "Body", "OptOutType", "SmsSid"]


@pytest.mark.slow
@given(  # a "From" within another field may be forged
    fields=st.dictionaries(st.sampled_from(NAMES), TEXTS.filter(lambda text: "From" not in text)),
    path=st.sampled_from(TWILIOS),
)
def test_whatever_twilio_signs_is_understood(client, open_client, fields, path):
    understood(call_twilio(open_client(TWILIO), path, fields))


VONAGE_NAMES = ["messageId", "status", "err-code", "msisdn", "to", "text", "type"]


@pytest.mark.slow
@given(
    fields=st.dictionaries(st.sampled_from(VONAGE_NAMES), TEXTS),
    path=st.sampled_from(VONAGES),
    how=st.sampled_from(["form", "json", "query"]),
)
def test_whatever_vonage_signs_is_understood(open_client, fields, path, how):
    understood(open_client(VONAGE).open(path, **of_vonage(fields, SECRET, how)))


@given(
    path=st.sampled_from([*TWILIOS, *VONAGES]),
    body=st.binary(),
    query=st.binary(),
    content_type=st.sampled_from([FORM, "application/json", "text/plain", ""]),
)
def test_whatever_else_comes_is_refused(open_client, path, body, query, content_type):
    client = open_client(TWILIO if path in TWILIOS else VONAGE)
    raw = {"QUERY_STRING": query.decode("latin-1")}
    response = client.post(path, data=body, content_type=content_type, environ_overrides=raw)
    refusal(response, 403)


# Whom it is from


RENAMED = f"{TWILIO}#name=us"


@pytest.mark.parametrize("address", ["twilio", "us", "older"])
def test_a_stop_counts_at_whatever_name_its_signature_covers(open_client, address):
    fields = {"MessageSid": SID, "From": NEW_YORK, "Body": "STOP"}
    client, path = open_client(RENAMED), f"/carriers/{address}/inbound"
    understood(call_twilio(client, path, fields))
    assert OptedOut.lists(NEW_YORK)
    assert Reply.get().carrier == "us"
    refusal(call_twilio(client, path, fields, f"{PUBLIC_URL}/carriers/another/inbound"), 403)


@pytest.mark.parametrize("given_as", ["twilio", "us"])
@pytest.mark.parametrize("address", ["twilio", "us"])
def test_a_receipt_is_of_the_text_that_was_given_under_the_name_in_its_address(
    open_client, given_as, address
):
    message = sent(carrier=given_as)
    path = f"/carriers/{address}/status"
    understood(call_twilio(open_client(RENAMED), path, DELIVERED | {"ErrorCode": ""}))
    assert (again(message).status == Status.DELIVERED) == (given_as == address)


@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_a_callback_under_another_carriers_name_is_its_own(open_client, how):
    """Its own texts are meant, and none of the carrier that has the name."""
    texts = [sent(MESSAGE_ID, carrier=name) for name in ("twilio", "vonage")]
    fields = {"messageId": MESSAGE_ID, "msisdn": NEW_YORK[1:], "status": "delivered"}
    client = open_client(f"{TWILIO} {VONAGE}")
    understood(client.open(TWILIOS[0], **of_vonage(fields, SECRET, how)))
    assert [again(each).status for each in texts] == [Status.SENT, Status.DELIVERED]
    stop = {"messageId": MESSAGE_ID, "msisdn": NEW_YORK[1:], "text": "STOP"}
    understood(client.open(TWILIOS[1], **of_vonage(stop, SECRET, how)))
    assert Reply.get().carrier == "vonage"


SENDERS = {"us": "+15005550006", "eu": "+447700900000", "name": "ACME", "codes": "12345"}
SERVICE = f"MG{'1' * 32}"


def all_of(url, **others):
    """Carriers of one secret, one for each sender."""
    senders = SENDERS | others
    return " ".join(f"{url.format(sender)}#name={name}" for name, sender in senders.items())


ALL_OF_TWILIO = all_of(f"twilio://AC1:{TOKEN}@{{}}", service=SERVICE)
ALL_OF_VONAGE = all_of(VONAGE.replace("ACME", "{}"))


@pytest.mark.parametrize(
    ("fields", "address", "whose"),
    [
        *(({"To": sender}, "before", name) for name, sender in SENDERS.items()),
        ({"To": SENDERS["us"], "MessagingServiceSid": SERVICE}, "before", "us"),
        ({"To": "+15005550009", "MessagingServiceSid": SERVICE}, "before", "service"),
        ({"To": "+15005550009"}, "before", "us"),
        ({}, "before", "us"),
        ({"To": SENDERS["us"]}, "eu", "eu"),
        ({"To": SENDERS["eu"]}, "service", "service"),
    ],
)
def test_of_several_twilios_with_one_token_it_is_of_the_one_named(
    open_client, fields, address, whose
):
    said = {"MessageSid": SID, "From": NEW_YORK, "Body": "Hello"} | fields
    understood(call_twilio(open_client(ALL_OF_TWILIO), f"/carriers/{address}/inbound", said))
    assert Reply.get().carrier == whose


@pytest.mark.parametrize("how", ["form", "json", "query"])
@pytest.mark.parametrize(
    ("to", "address", "whose"),
    [
        *((SENDERS[name].removeprefix("+"), "before", name) for name in ("us", "eu", "codes")),
        *(("ACME", "before", "name"), ("acme", "before", "name"), (None, "before", "us")),
        *((SENDERS["eu"][1:], "eu", "eu"), (SENDERS["eu"][1:], "name", "name")),
        (SENDERS["eu"][1:], "us", None),
    ],
)
def test_of_several_vonages_with_one_secret_it_is_of_the_one_named(
    open_client, how, to, address, whose
):
    said = {"messageId": "A", "msisdn": NEW_YORK[1:], "text": "Hello"} | ({"to": to} if to else {})
    client = open_client(ALL_OF_VONAGE)
    understood(client.open(f"/carriers/{address}/inbound", **of_vonage(said, SECRET, how)))
    assert [reply.carrier for reply in Reply.select()] == [whose] * bool(whose)


# The rest of the service


def test_the_description_stays_the_one_public_operation(open_client):
    described = open_client(TWILIO).get("/openapi.json").json
    assert [*described["paths"]] == ["/v1/text-messages"]


def test_no_number_and_no_reference_gets_into_the_log(open_client, caplog):
    client = open_client(TWILIO)
    with caplog.at_level("DEBUG"):
        status(client, MessageStatus="failed", ErrorCode="21610")
        reply(client, "STOP")
        call_twilio(client, TWILIOS[0], DELIVERED, token="another")
    for secret in (NEW_YORK, NEW_YORK[1:], SID, TOKEN, "STOP"):
        assert secret not in caplog.text


def test_a_receipt_is_recorded_at_the_services_own_clock(open_client, at):
    message = sent()
    at(TUESDAY_NOON)
    status(open_client(TWILIO), MessageStatus="delivered")
    assert again(message).receipt_at == TUESDAY_NOON == clock.now()
