"""carriers/twilio.py: requests, answers, the list of messages, callbacks."""

import json
import re
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, formatdate
from urllib.parse import parse_qs, urlencode

import pytest
from twilio.request_validator import RequestValidator

from carrier_errors import (
    MESSAGE_ID,
    NUMBER,
    TEXT,
    connect,
    error_of,
    form,
    impatient,
    meaning,
    refused,
    send,
)
from carrier_servers import HANG, HANG_UP, Answer
from kits import KITS, PUBLIC_URL, REFERENCE, connected
from kits.twilio import TOKEN, TwilioServer, refusal, sign
from texting.carriers import IncomingText, NotGenuine, Receipt
from texting.carriers.http import LONGEST_PAUSE

NOW = datetime(2026, 3, 3, 17, 0, tzinfo=UTC)
SERVICE = "MG" + "aB" * 16
DELIVERED = {"MessageSid": REFERENCE, "To": NUMBER, "MessageStatus": "delivered"}

# Fields of the request: CreateMessageRequest in Twilio's description of its API,
# github.com/twilio/twilio-oai, spec/json/twilio_api_v2010.json.
DOCUMENTED = {
    "To": r"\+[1-9]\d{1,14}",
    "From": r"\+[1-9]\d{1,14}|\d{5}|[\w ]{1,11}",
    "MessagingServiceSid": r"MG[0-9a-fA-F]{32}",
    "Body": r"(?s).{1,1600}",
    "ValidityPeriod": r"[1-9]\d{0,3}|[12]\d{4}|3[0-5]\d{3}|36000",
    "StatusCallback": r"https?://[^_\s]+",
    "SmartEncoded": r"true|false",
}


# The request


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        *((number, {"From": "+15005550006"}) for number in ("+15005550006", "%2B15005550006")),
        *((sender, {"From": sender}) for sender in ("12345", "ACME")),
        ("My%20Shop", {"From": "My Shop"}),
        (SERVICE, {"MessagingServiceSid": SERVICE, "SmartEncoded": "false"}),
    ],
)
@pytest.mark.parametrize(
    ("valid_for", "validity"),
    [
        *((too_short, "1") for too_short in (-1, 0, 0.5, 1)),
        *((60, "60"), (35_999.9, "35999"), (36_000, "36000"), (10**9, "36000")),
    ],
)
@pytest.mark.parametrize("public_url", [None, PUBLIC_URL])
def test_the_request_is_one_that_twilio_describes(
    twilio_server, sender, expected, valid_for, validity, public_url
):
    url = twilio_server.url.replace("+15005550006", sender)
    send(connect(url, public_url=public_url), text="x" * 1600, valid_for=valid_for)
    (request,) = twilio_server.requests
    assert request.path == f"/2010-04-01/Accounts/{twilio_server.sid}/Messages.json"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    expected = expected | {"To": NUMBER, "Body": "x" * 1600, "ValidityPeriod": validity}
    if public_url:
        expected["StatusCallback"] = f"{PUBLIC_URL}/carriers/twilio/status?m={MESSAGE_ID}"
    assert form(request) == expected
    assert all(re.fullmatch(DOCUMENTED[name], value) for name, value in expected.items())


def test_a_base_url_may_have_a_path_and_be_percent_encoded(twilio_server):
    encoded = f"http%3A%2F%2F{twilio_server.address}%2Fproxy%2F"
    send(connect(twilio_server.url.replace(twilio_server.base_url, encoded)))
    assert twilio_server.requests[0].path.startswith("/proxy/2010-04-01/")


# An API key


@pytest.fixture
def api_key_url(twilio_server, monkeypatch):
    account, key = twilio_server.sid, "SK" + "7" * 32
    monkeypatch.setattr(twilio_server, "login", (key, "key-s3cret"))
    return (
        f"twilio://{key}:key-s3cret@+15005550006?account={account}"
        f"&base_url={twilio_server.base_url}"
    )


def test_an_api_key_asks_for_no_receipts_that_it_could_not_verify(twilio_server, api_key_url):
    carrier = connect(api_key_url, public_url=PUBLIC_URL)
    assert send(carrier)  # the server takes no other login
    (request,) = twilio_server.requests
    assert request.path == f"/2010-04-01/Accounts/{twilio_server.sid}/Messages.json"
    assert "StatusCallback" not in form(request)
    assert "auth_token" in carrier.warning


def test_an_api_key_with_the_auth_token_asks_for_receipts(twilio_server, api_key_url):
    carrier = connect(api_key_url + "&auth_token=the-token", public_url=PUBLIC_URL)
    send(carrier)
    assert "StatusCallback" in form(twilio_server.requests[0])
    assert carrier.warning is None
    assert carrier.callback(sign(DELIVERED, secret="the-token"))


# The answer


UNREADABLE = [
    Answer(201),
    Answer(201, b"<html>Created</html>"),
    Answer(201, b'{"sid": "SM', length=500),
    Answer(201, b'{"sid": "SM1"}' + b" " * 1000, pause=0.02),
    Answer(201, b"\xff\xfe"),
    Answer(201, []),
    Answer(201, "SM1"),
    Answer(201, {"sid": None}),
    Answer(201, {"sid": {"a": 1}}),
    Answer(201, {"sid": "SM\0\ud800"}),
    Answer(201, {"sid": "S" * 1000}),
    Answer(201, b"[" * 60_000),
    Answer(201, b"plain", {"Content-Encoding": "gzip"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("answer", UNREADABLE, ids=lambda answer: repr(answer)[:60])
def test_a_201_that_cannot_be_read_means_sent(twilio_server, answer):
    twilio_server.answer = answer
    assert send(impatient(twilio_server.url)) is None


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (Answer(201, {"code": 21211, "status": 400}), "for good"),
        *(
            (Answer(400, {"code": code}), "for now")
            for code in ("21211", [21211], True, -21211, 1_021_211)
        ),
        (Answer(400, b'{"code": 21211', length=1000), "for now"),
        (Answer(400, b'{"code": ' + b"9" * 5_000 + b"}"), "for now"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_only_twilios_own_code_counts(twilio_server, answer, means):
    twilio_server.answer = answer
    assert meaning(refused(connect(twilio_server.url))) == means


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("999999999999", LONGEST_PAUSE),
        ("9" * 5000, None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 99 Oct 99999999 07:28:00 GMT", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_nothing(twilio_server, header, seconds):
    headers = {"Retry-After": header} if header is not None else {}
    twilio_server.answer = refusal(20429, 429, headers)
    carrier = connect(twilio_server.url)
    assert refused(carrier).retry_after == seconds
    twilio_server.answer = refusal(21211, 400, headers)
    assert refused(carrier).retry_after is None


def test_retry_after_may_be_a_date(twilio_server):
    in_an_hour = formatdate(time.time() + 1800, usegmt=True)
    twilio_server.answer = refusal(20429, 429, {"Retry-After": in_an_hour})
    assert 1500 < refused(connect(twilio_server.url)).retry_after <= 1800


# Asking for the account


def test_an_account_that_serves_passes_the_check(twilio_server):
    connect(twilio_server.url).check()
    (request,) = twilio_server.asked
    assert request.path == f"/2010-04-01/Accounts/{twilio_server.sid}.json"
    assert twilio_server.texts == []


def test_an_api_key_checks_what_it_may_ask_for(twilio_server, api_key_url):
    connect(api_key_url).check()
    assert "/Messages.json" in twilio_server.asked[0].path


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        ("suspended", None, "the account is suspended"),
        ("closed", None, "the account is closed"),
        ("active", refusal(20003, 401), "the token is wrong"),
    ],
)
@pytest.mark.parametrize("ask", ["check", "balance"])
def test_an_account_that_does_not_serve_is_what_the_check_says(
    twilio_server, status, answer, words, ask
):
    twilio_server.status, twilio_server.answer = status, answer
    error = error_of(getattr(connect(twilio_server.url), ask))
    assert words in str(error)
    assert meaning(error) == "the account"


# Asking for a text in doubt


def listed(number, **changes):
    """Return a message as Twilio lists it."""
    return {
        "sid": f"SM{number:032x}",
        "to": NUMBER,
        "from": "+15005550006",
        "messaging_service_sid": None,
        "body": TEXT,
        "status": "delivered",
        "direction": "outbound-api",
        "date_created": format_datetime(NOW),
        "date_sent": None,
    } | changes


@pytest.fixture
def find(twilio_server):
    def find(*messages, text=TEXT, sender="+15005550006", options=""):
        twilio_server.messages = list(messages)
        carrier = connect(twilio_server.url.replace("+15005550006", sender) + options)
        return [int(sid[2:], 16) for sid in carrier.find(NUMBER, text, NOW)]

    return find


TRIAL = "Sent from your Twilio trial account - "
TOOK = ("accepted", "scheduled", "queued", "sending", "sent", "delivered", "undelivered", "read")


UNREADABLE_DATES = (
    *(None, 7, ["x"], "", "yesterday", "Tue, 03 Mar 99999 17:00:00 +0000"),
    *("Tue, 03 Mar 2026 17:00:00 +99999999999999999999", "Fri, 31 Dec 9999 23:59:00 -2300"),
)


def created(minutes):
    return {"date_created": format_datetime(NOW + timedelta(minutes=minutes))}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        *(({"status": status}, [1]) for status in TOOK),
        *(({"status": status}, []) for status in ("failed", "canceled")),  # given to no network
        *(({"body": body}, []) for body in ("another text", TEXT.upper(), None, "")),
        *(({"body": f"{before}{TEXT}\r\n"}, [1]) for before in ("", TRIAL)),
        *(({"from": sender}, found) for sender, found in ((None, [1]), ("+15005550009", []))),
        *((created(minutes), found) for minutes, found in ((-0.1, []), (0, [1]), (60, [1]))),
        *(({"date_created": date}, []) for date in UNREADABLE_DATES),
        ({"date_created": "Tue, 03 Mar 2026 17:00:00 -0000"}, [1]),
        *(({"sid": sid}, []) for sid in (None, ["SM1"])),
        ({"to": "+12125550199"}, []),
    ],
)
def test_a_text_that_twilio_took_is_found_and_no_other(find, changes, found):
    assert find(listed(1, **changes)) == found


def test_a_text_of_a_messaging_service_is_found_by_its_service(find):
    ours = listed(1, messaging_service_sid=SERVICE, **{"from": "+15005550009"})
    assert find(ours, listed(2), sender=SERVICE) == [1]


def test_all_pages_are_looked_at_and_the_oldest_comes_first(find, twilio_server):
    others = [listed(n, body="other", date_sent=None) for n in range(10, 15)]
    later = NOW + timedelta(minutes=1)
    assert find(listed(3, date_created=format_datetime(later)), *others, listed(2), listed(1)) == [
        *(1, 2, 3)
    ]
    assert len(twilio_server.asked) == 4
    assert all(parse_qs(request.path)["PageSize"] for request in twilio_server.asked[1:])


def test_no_page_is_asked_for_that_is_older_than_the_text(find, twilio_server):
    old = format_datetime(NOW - timedelta(days=1))
    assert find(listed(9), *(listed(n, date_created=old) for n in range(50))) == [9]
    assert len(twilio_server.asked) == 2


@pytest.mark.parametrize("date", UNREADABLE_DATES)
def test_a_message_that_cannot_be_read_hides_no_other(find, twilio_server, date):
    broken = [listed(2, date_created=date), {"sid": None}, None, "x"]
    twilio_server.answer = Answer(200, {"messages": [listed(3), *broken, listed(1)]})
    assert find() == [1, 3]


def test_of_a_long_list_one_page_is_kept_in_memory(twilio_server):
    many = [listed(n, body="other", more=["x" * 10] * 300) for n in range(100)]
    page = {"messages": [listed(0, body=TEXT), *many]}
    page["next_page_uri"] = f"/2010-04-01/Accounts/{TwilioServer.sid}/Messages.json"
    content = json.dumps(page).encode()
    twilio_server.answer = Answer(200, content)
    carrier = connect(twilio_server.url)
    tracemalloc.start()
    try:
        for ask in (lambda: carrier.find(NUMBER, TEXT, NOW), lambda: carrier.incoming(NOW)):
            ask()
            _, most = tracemalloc.get_traced_memory()
            assert most < 15 * len(content), "that is less than twenty pages"
    finally:
        tracemalloc.stop()
    assert len(twilio_server.asked) == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(500), Answer(200), Answer(200, b"<html>"), Answer(200, {"messages": "none"})),
        *(HANG, HANG_UP, refusal(20003, 401), refusal(20429, 429)),
    ],
    ids=lambda answer: repr(answer)[:40],
)
def test_a_list_that_does_not_come_is_an_error_and_not_an_empty_list(twilio_server, answer):
    twilio_server.answer = answer
    assert not error_of(impatient(twilio_server.url).find, NUMBER, TEXT, NOW).in_doubt


@pytest.mark.parametrize(
    ("following", "pages"),
    [
        *((address, 1) for address in ("//evil.example/", "http://evil.example/", 7, "", None)),
        (f"/2010-04-01/Accounts/{TwilioServer.sid}/Messages.json", 20),
    ],
)
def test_a_list_leads_nowhere_else_and_has_an_end(twilio_server, following, pages):
    page = {"messages": [listed(1)], "next_page_uri": following}
    twilio_server.answer = Answer(200, page)
    assert connect(twilio_server.url).find(NUMBER, TEXT, NOW) == [f"SM{1:032x}"]
    assert len(twilio_server.asked) == pages


# Smart encoding


SMART = "“Don’t” – ½ price…"
ENCODED = '"Don\'t" - 1/2 price...'


@pytest.mark.parametrize("sender", ["+15005550006", SERVICE])
def test_twilio_may_replace_characters_where_that_is_asked_for(twilio_server, sender):
    url = twilio_server.url.replace("+15005550006", sender)
    send(connect(url + "&smart_encoding=true"))
    send(connect(url + "&smart_encoding=false"))
    first, second = map(form, twilio_server.requests)
    assert first["SmartEncoded"] == "true"
    assert second.get("SmartEncoded") == ("false" if "MessagingServiceSid" in second else None)


@pytest.mark.parametrize(
    ("options", "body", "found"),
    [
        ("&smart_encoding=true", ENCODED, [1]),
        ("&smart_encoding=true", SMART, [1]),
        ("&smart_encoding=true", ENCODED.replace("1/2", "1/3"), []),
        ("&smart_encoding=true", ENCODED + " 🎉", []),
        ("", ENCODED, []),
    ],
)
def test_a_text_in_doubt_is_found_however_it_was_encoded(find, options, body, found):
    assert find(listed(1, body=body), text=SMART, options=options) == found


# Callbacks, signed by Twilio's own library


@pytest.fixture
def carrier():
    return connected("twilio")


def test_a_stop_from_a_number_without_a_plus_sign_may_be_a_short_codes(carrier):
    callback = sign({"From": "12345678", "Body": "STOP"}, kind="inbound")
    assert carrier.callback(callback) == [IncomingText("+12345678", "STOP", certain=False)]


@pytest.mark.parametrize(
    ("fields", "replies"),
    [
        ({"Body": "STOP"}, [("STOP", None)]),
        ({"Body": " stop. 🛑\n"}, [(" stop. 🛑\n", None)]),
        ({"Body": "Bonjour", "OptOutType": "STOP"}, [("Bonjour", "STOP")]),
        ({"Body": "YES", "OptOutType": "start"}, [("YES", "START")]),
        ({"Body": "END", "OptOutType": "HELP"}, [("END", "HELP")]),
        ({"Body": "STOP", "OptOutType": "another"}, [("STOP", None)]),
        ({"Body": "Who is this?"}, [("Who is this?", None)]),
        ({"Body": ""}, [("", None)]),  # beside a picture
        ({}, []),
    ],
)
def test_a_reply_is_returned_as_it_came_with_twilios_own_reading(carrier, fields, replies):
    callback = sign({"From": NUMBER, "To": "+15005550006"} | fields, kind="inbound")
    assert carrier.callback(callback) == [
        IncomingText(NUMBER, text, word=word) for text, word in replies
    ]


@pytest.mark.parametrize(
    ("url", "signed_url"),
    [
        ("https://sms.example.com/x", "https://sms.example.com:443/x"),
        ("https://sms.example.com:443/x", "https://sms.example.com/x"),
        ("http://sms.example.com/x", "http://sms.example.com:80/x"),
        ("https://sms.example.com:8443/x", "https://sms.example.com:8443/x"),
        ("https://sms.example.com:8443/x", "https://sms.example.com/x"),
        ("https://[2001:db8::1]:8443/x", "https://[2001:db8::1]:8443/x"),
    ],
)
def test_the_port_may_be_signed_or_not(carrier, url, signed_url):
    assert carrier.callback(sign(DELIVERED, address=url, signed=signed_url))


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (f"m={MESSAGE_ID}", MESSAGE_ID),
        (f"a=b&m={MESSAGE_ID}&c", MESSAGE_ID),
        *((query, None) for query in ("m", "m=", f"M={MESSAGE_ID}", f"n={MESSAGE_ID}")),
        (f"m={MESSAGE_ID}&m={MESSAGE_ID}", None),
        (f"m={MESSAGE_ID}&m=", None),
        (f"m={MESSAGE_ID}&{'&'.join('a' * 300)}", None),
    ],
)
def test_the_address_of_a_report_names_the_message_once(carrier, query, named):
    url = f"{PUBLIC_URL}/carriers/twilio/status?{query}"
    assert carrier.callback(sign(DELIVERED, address=url)) == [
        Receipt(REFERENCE, True, message_id=named)
    ]


def test_the_message_that_is_named_is_signed(carrier):
    callback = KITS["twilio"].callbacks.report("sent", message_id=MESSAGE_ID)
    for other in (MESSAGE_ID[:-1] + "3", f"{MESSAGE_ID}&m=x", ""):
        with pytest.raises(NotGenuine):
            carrier.callback(callback._replace(url=callback.url.replace(MESSAGE_ID, other)))


@pytest.mark.parametrize("moved", ["From", "FromMessageSid", "F"])
def test_an_address_that_takes_over_signed_fields_names_no_message(carrier, moved):
    """Twilio signs address, names and values in one row, which can be divided in other ways."""
    fields = DELIVERED | {"From": "+15005550006"}
    url = f"{PUBLIC_URL}/carriers/twilio/status?m={MESSAGE_ID}"
    genuine = sign(fields, address=url)
    row = "".join(f"{name}{fields[name]}" for name in ("From", "MessageSid"))
    fields = {
        "From": {"MessageSid": REFERENCE},
        "FromMessageSid": {},
        "F": {row[1:4]: row[4:]},
    }[moved]
    taken = row.removesuffix("".join(f"{name}{value}" for name, value in fields.items()))
    rest = {"MessageStatus": "delivered", "To": NUMBER}
    forged = genuine._replace(url=url + taken, body=urlencode(fields | rest).encode())
    try:
        events = carrier.callback(forged)
    except NotGenuine:
        events = []
    assert [event.message_id for event in events] in ([], [None])


def test_a_reply_to_an_address_that_names_a_message_is_a_reply(carrier):
    url = f"{PUBLIC_URL}/carriers/twilio/inbound?m={MESSAGE_ID}"
    fields = {"From": NUMBER, "Body": "hi", "MessageStatus": "sent"}
    assert carrier.callback(sign(fields, "inbound", address=url)) == [IncomingText(NUMBER, "hi")]


def test_a_shared_key_signs_with_sha256(carrier):
    settings = {"x-twilio-webhooks-signature-settings": "key=key1,algorithm=HMAC_SHA256"}
    callback = sign(DELIVERED, **settings)
    with pytest.raises(NotGenuine):
        carrier.callback(callback)
    validator, fields = RequestValidator(TOKEN), DELIVERED
    signature = validator.compute_signature(callback.url, fields, "HMAC_SHA256")
    callback.headers["x-twilio-signature"] = signature
    assert carrier.callback(callback) == [Receipt(REFERENCE, True)]
