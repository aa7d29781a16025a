"""carriers/vonage.py: requests, answers, callbacks."""

import contextlib
import hashlib
import re
import time
from datetime import UTC, datetime

import pytest

from carrier_errors import MESSAGE_ID, NUMBER, connect, form, meaning, refused, send
from carrier_servers import Answer
from kits import PUBLIC_URL, REFERENCE, connected, unidentified
from kits.vonage import SECRET, sign, signer, verdict, write
from texting.carriers import IncomingText, NotGenuine, OptOut, Part, Receipt

MESSAGE = "0A0000000123ABCD1"
FIELDS = {"messageId": REFERENCE, "msisdn": NUMBER[1:], "to": "ACME", "err-code": "0"}
DELIVERED = FIELDS | {"status": "delivered"}

# Fields of the request: NewMessage in Vonage's description of its SMS API,
# github.com/Nexmo/api-specification, definitions/sms.yml.
DOCUMENTED = {
    "api_key": r"\w{8}",
    "api_secret": r"\w{6,32}",
    "from": r"[\w ]{1,15}",
    "to": r"\d{7,15}",
    "text": r"(?s).+",
    "type": r"text|unicode",
    "ttl": r"[2-9]\d{4}|\d{6,8}|[1-5]\d{8}|60[0-4]\d{6}",
    "client-ref": r".{1,40}",
    "callback": r"https://\S+",
}


# The request


@pytest.mark.parametrize(
    ("sender", "given"),
    [
        *((n, "15005550006") for n in ("15005550006", "+15005550006", "%2B15005550006")),
        *(("12345", "12345"), ("My%20Shop", "My Shop"), ("ACME/{to}", "ACME")),
    ],
)
@pytest.mark.parametrize(
    ("valid_for", "ttl"),
    [
        *((short, "20000") for short in (-1, 0, 0.5, 20)),
        *((600, "600000"), (604_800, "604800000"), (10**9, "604800000")),
    ],
)
def test_the_request_is_one_that_vonage_describes(vonage_server, sender, given, valid_for, ttl):
    url = vonage_server.url.replace("15005550006", sender) + "&signature_secret=s"
    send(connect(url, public_url=PUBLIC_URL), valid_for=valid_for)
    (request,) = vonage_server.requests
    assert (request.method, request.path) == ("POST", "/sms/json")
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    fields = form(request)
    assert fields.keys() == DOCUMENTED.keys()
    assert {name for name in fields if not re.fullmatch(DOCUMENTED[name], fields[name])} == set()
    assert (fields["from"], fields["to"], fields["ttl"]) == (given, NUMBER[1:], ttl)
    assert fields["client-ref"] == MESSAGE_ID
    assert fields["callback"] == f"{PUBLIC_URL}/carriers/vonage/status"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Hello, Ä ñ Δ @ £ \n", "text"),
        ("{[~]} | ^ \\ €", "text"),
        ("a `backtick`", "unicode"),
        ("héllo ç", "unicode"),
        ("Привет", "unicode"),
        ("🚀", "unicode"),
        ("a\x1bb", "unicode"),
    ],
)
def test_what_gsms_alphabet_lacks_goes_as_unicode(vonage_server, text, kind):
    send(connect(vonage_server.url), text=text)
    assert form(vonage_server.requests[0])["type"] == kind


def test_receipts_are_asked_for_only_where_they_can_be_verified(vonage_server):
    carrier = connect(vonage_server.url, public_url=PUBLIC_URL)
    send(carrier)
    assert "callback" not in form(vonage_server.requests[0])
    assert "signature_secret" in carrier.warning
    assert connect(vonage_server.url).warning is None


# The answer


def part(status="0", **more):
    return {"status": status, "message-id": MESSAGE} | more


def test_the_reference_is_the_last_parts(vonage_server):
    parts = [part(**{"message-id": f"0A{n}"}) for n in range(3)]
    vonage_server.answer = verdict(*parts)
    assert send(connect(vonage_server.url)) == "0A2"


@pytest.mark.parametrize("message_id", [None, 7, "", "x" * 1000, "a\0b"])
def test_a_yes_without_a_usable_id_is_a_yes(vonage_server, message_id):
    vonage_server.answer = verdict(part(**{"message-id": message_id}))
    assert send(connect(vonage_server.url)) is None


def refusal(status):
    return verdict(part(status, **{"error-text": f"no text to {NUMBER}"}))


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (refusal(4), "the account"),
        (refusal(None), "in doubt"),
        *((refusal(status), "for now") for status in ("", {"a": 1}, NUMBER)),
        (Answer(200, {"messages": []}), "in doubt"),
        (Answer(200, {"messages": ["0"]}), "in doubt"),
        (Answer(200, b'{"messages": [{"status": "0"', length=500), "in doubt"),
        (Answer(401, {"error": "Bad Credentials"}), "the account"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_an_answer_is_no_yes_whatever_its_status_is_made_of(vonage_server, answer, means):
    vonage_server.answer = answer
    assert meaning(refused(connect(vonage_server.url))) == means


def test_a_text_that_is_taken_in_part_is_in_doubt(vonage_server):
    vonage_server.answer = verdict(part(), part("1"), part())
    error = refused(connect(vonage_server.url))
    assert meaning(error) == "in doubt"
    assert "2 of 3 parts" in str(error)


def test_the_check_asks_for_the_balance(vonage_server):
    connect(vonage_server.url).check()
    (request,) = vonage_server.asked
    assert request.path == "/account/get-balance"
    assert request.headers["Authorization"] == "Basic YWJjZDEyMzQ6czNjcmV0"


# Callbacks, signed by Vonage's own library


METHODS = ["sha1", "sha256", "sha512"]
RECEIPT = Receipt(REFERENCE, True)


def carrier_of(method=None):
    return connected("vonage", f"&signature_method={method}" if method else "")


@pytest.fixture
def carrier():
    return carrier_of()


@pytest.mark.parametrize("how", ["query", "form", "json"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("told", [True, False])
def test_a_receipt_is_read_however_it_is_sent_and_signed(how, method, told):
    carrier = carrier_of(method if told else None)
    callback = sign(DELIVERED, method=method, how=how)
    assert carrier.callback(callback) == [RECEIPT]


def test_a_signature_by_md5_counts_for_nothing(carrier):
    """Neither the hash, which is the default of accounts, nor the HMAC."""
    with pytest.raises(NotGenuine):
        carrier.callback(sign(DELIVERED, method="md5"))
    fields = DELIVERED | {"timestamp": str(int(time.time()))}
    text = "".join(f"&{name}={fields[name]}" for name in sorted(fields))
    signature = hashlib.md5(f"{text}{SECRET}".encode()).hexdigest()
    with pytest.raises(NotGenuine):
        carrier.callback(write(fields | {"sig": signature}))


@pytest.mark.parametrize("method", ["sha1", "sha512"])
def test_with_a_method_no_other_counts(method):
    with pytest.raises(NotGenuine):
        carrier_of(method).callback(sign(DELIVERED, method="sha256"))


@pytest.mark.parametrize(
    "text", ["STOP", " arrêt. ", "unstop", "Yes, 5 p.m. 🎉\n\nJane & Co = J", "\u200b", ""]
)
@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_a_reply_is_returned_as_it_came(carrier, text, how):
    fields = {"msisdn": NUMBER[1:], "to": "15005550006", "text": text, "messageId": "1"}
    events = unidentified(carrier, sign(fields, how=how, kind="inbound"))
    assert events == [IncomingText(NUMBER, text)]


NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "at"),
    [
        ("2020-01-01 12:00:00", NOON),
        ("2020-01-01 12:00:00 +0000", NOON),  # as Vonage writes it in replies
        ("2020-01-01 17:30:00 +0530", NOON),
        ("2020-01-01 11:00:00 -0100", NOON),
        *((f"2020-01-01 12:00:00{end}", None) for end in (" 0000", " +9900", " +00:00", "+02:00")),
        *((f"2020-01-01{time}", None) for time in ("T12:00:00", " 12:00", " 24:00:00", "")),
        *(("2020-02-30 12:00:00", None), ("0000-00-00 00:00:00", None)),
        *(("0001-01-01 00:00:00 +0100", None), ("٢٠٢٠-01-01 12:00:00", None), ("", None)),
    ],
)
@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_a_stop_has_the_time_that_vonage_signed(carrier, timestamp, at, how):
    said = {"msisdn": NUMBER[1:], "message-timestamp": timestamp}
    (event,) = carrier.callback(sign(said | {"text": "STOP"}, how=how, kind="inbound"))
    assert event == IncomingText(NUMBER, "STOP", at)
    assert at is None or event.at.tzinfo is UTC
    refused = FIELDS | said | {"status": "rejected", "err-code": "9"}
    assert unidentified(carrier, sign(refused, how=how))[1] == OptOut(NUMBER, True, "carrier", at)


@pytest.mark.parametrize(
    ("concat", "part"),
    [("true", Part("7", 2, 2)), *((no, None) for no in ("false", "False", "0", "", None))],
)
@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_a_reply_is_a_part_of_a_longer_text_where_vonage_says_so(carrier, concat, part, how):
    fields = {"msisdn": NUMBER[1:], "text": "stop", "concat": concat}
    fields |= {"concat-ref": "7", "concat-total": "2", "concat-part": "2"}
    fields = {name: value for name, value in fields.items() if value is not None}
    (event,) = carrier.callback(sign(fields, how=how, kind="inbound"))
    assert event == IncomingText(NUMBER, "stop", part=part)


def test_a_receipt_repeats_the_id_that_the_text_was_sent_with(carrier):
    status = DELIVERED | {"client-ref": MESSAGE_ID}
    (receipt,) = carrier.callback(sign(status))
    assert receipt.message_id == status["client-ref"]


def test_what_has_no_text_is_no_reply(carrier):
    fields = {"msisdn": NUMBER[1:], "type": "binary", "data": "00ff", "udh": "050003"}
    assert carrier.callback(sign(fields, kind="inbound")) == []


@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_fields_that_share_a_signature_are_not_genuine(carrier, how):
    """Vonage signs "&err-code=0&messageId=…", whichever names and values that was joined from."""
    fields = DELIVERED | {"timestamp": str(int(time.time()))}
    signature = {"sig": signer(SECRET, "sha256").sign_params(dict(fields))}
    assert carrier.callback(write(fields | signature, how))
    message_id = fields.pop("messageId")
    del fields["err-code"]
    with pytest.raises(NotGenuine):
        carrier.callback(write(fields | signature | {"err-code=0&messageId": message_id}, how))


HOUR = 3600


@pytest.mark.parametrize(
    ("age", "counts"),
    [
        *((age, True) for age in (0, 60, 23 * HOUR, -60)),
        *((age, False) for age in (25 * HOUR, 365 * 24 * HOUR, -HOUR)),
    ],
)
def test_a_callback_counts_for_as_long_as_vonage_repeats_it(carrier, age, counts):
    callback = sign(DELIVERED, timestamp=int(time.time()) - age)
    with contextlib.nullcontext() if counts else pytest.raises(NotGenuine):
        assert carrier.callback(callback)
