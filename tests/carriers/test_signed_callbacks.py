"""The contract of carriers' callbacks: which are genuine, and what they say of a text."""

import json
import time
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

import carriers
from callbacks import (
    DELIVERED,
    FIELDS,
    PUBLIC_URL,
    REFERENCE,
    SIGNED,
    connected,
    of_twilio,
    of_vonage,
    unidentified,
)
from carrier_errors import NUMBER
from carriers import Callback, NotGenuine, OptOut, Receipt

by_all = pytest.mark.parametrize("name", SIGNED)
names = {"twilio": "abcXYZ09", "vonage": "abcXYZ09_é -"}
names = {name: st.text(st.sampled_from(letters), min_size=1) for name, letters in names.items()}
fields = {name: st.dictionaries(names[name], st.text(max_size=20), max_size=8) for name in names}


@by_all
@given(data=st.data())
def test_whatever_the_carrier_signs_is_genuine(name, data):
    connected(name).callback(SIGNED[name](data.draw(fields[name])))


@by_all
@given(data=st.data(), value=st.text(max_size=20))
def test_whatever_is_changed_on_the_way_is_not_genuine(name, data, value):
    callback = SIGNED[name](data.draw(fields[name]))
    genuine = dict(parse_qsl(callback.body.decode(), keep_blank_values=True))
    changed = genuine | {data.draw(names[name]): value + "x"}
    if changed != genuine:
        with pytest.raises(NotGenuine):
            connected(name).callback(callback._replace(body=urlencode(changed).encode()))


JSON = {"content-type": "application/json"}
SURROGATE = json.dumps({"timestamp": str(int(time.time())), "sig": "a", "text": "\ud800"}).encode()
SIGNATURE, METHOD = "x-twilio-signature", "x-twilio-webhooks-signature-settings"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {"body": body}) for name in SIGNED for body in (b"", b"\xff\xfe")),
        *((name, {"body": b"&".join([b"a=b"] * 100_000)}) for name in SIGNED),
        ("twilio", {"headers": of_twilio(DELIVERED["twilio"], "another").headers}),
        *(("twilio", {"headers": {SIGNATURE: given}}) for given in ("", "é", "A" * 28)),
        ("twilio", {"headers": {}}),
        ("twilio", {"headers": dict.fromkeys((SIGNATURE, METHOD), "algorithm=NONE")}),
        ("twilio", {"url": "https://other.example.com/staging/carriers/twilio/status"}),
        ("twilio", {"url": "http://sms.example.com/staging/carriers/twilio/status"}),
        ("twilio", {"url": f"{PUBLIC_URL}/carriers/twilio/status?a=b"}),
        ("vonage", {"body": b"sig=&timestamp=1"}),
        ("vonage", {"method": "GET"}),
        ("vonage", {"headers": JSON}),
        *(
            ("vonage", {"headers": JSON, "body": body})
            for body in (b"[" * 60_000, b"[]", b'{"sig": 1, "timestamp": 2}', SURROGATE)
        ),
        ("vonage", {"headers": JSON, "body": b'{"timestamp": ' + b"9" * 5000}),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_not_signed_is_not_genuine(name, changes):
    with pytest.raises(NotGenuine):
        connected(name).callback(SIGNED[name](DELIVERED[name])._replace(**changes))


@pytest.mark.parametrize(
    ("url", "callback"),
    [
        *(
            (url, Callback("status", "POST", "https://example.com/carriers/x/status", {}, b""))
            for url in ("console:", "simulator:", "webhook+https://example.com/", "json://a/{to}")
        ),
        ("twilio://SK1:s3cret@+15005550006?account=AC1", of_twilio(DELIVERED["twilio"], "s3cret")),
        ("vonage://key:s3cret@ACME", of_vonage(DELIVERED["vonage"], "s3cret")),
    ],
)
def test_a_carrier_without_a_secret_for_them_finds_none_genuine(url, callback):
    carrier = carriers.connect(url, public_url=PUBLIC_URL, sending=False)
    with pytest.raises(NotGenuine):
        carrier.callback(callback)


OURS = {"twilio": "+15005550006", "vonage": "ACME"}


@by_all
@pytest.mark.parametrize("kind", ["status", "inbound"])
@pytest.mark.parametrize("from_us", [True, False])
def test_a_callback_names_the_sender_of_a_text_and_of_its_answer(name, kind, from_us):
    sender = OURS[name] if from_us else "+15005550009"
    ours, theirs = ("From", "To") if kind == "status" else ("To", "From")
    fields = {"twilio": {ours: sender, theirs: OURS[name]}, "vonage": {"to": sender}}[name]
    assert connected(name).is_named_in(SIGNED[name](fields, kind=kind)) == from_us


# What they say


SEEN = "https://www.twilio.com/docs/errors/30999"


@pytest.mark.parametrize(
    ("name", "fields", "became"),
    [
        *(("twilio", {"MessageStatus": status}, "delivered") for status in ("delivered", "read")),
        *(("twilio", {"MessageStatus": status}, None) for status in ("queued", "sending", "sent")),
        ("twilio", {"MessageStatus": "sent", "SmsStatus": "delivered"}, None),
        ("twilio", {"SmsStatus": "delivered"}, "delivered"),
        ("twilio", {}, None),
        *(
            ("twilio", {"MessageStatus": status, "ErrorCode": code}, f"Twilio: {reason}")
            for status, code, reason in (
                ("undelivered", "30005", "the number is not in service (error 30005)"),
                ("failed", "30999", f"failed, see {SEEN} (error 30999)"),
                ("failed", "", "failed"),
                ("failed", f"30005 {NUMBER}", "failed"),
                ("failed", "21610", "the recipient has opted out (error 21610)"),
            )
        ),
        ("vonage", {"status": "delivered"}, "delivered"),
        *(("vonage", {"status": each}, None) for each in ("accepted", "buffered", "another")),
        ("vonage", {"status": "unknown", "err-code": "1"}, None),
        *(
            ("vonage", {"status": status, "err-code": code}, f"Vonage: {reason}")
            for status, code, reason in (
                ("expired", "", "expired"),
                ("failed", "6", "filtered as unwanted (error 6)"),
                ("rejected", "99", "rejected (error 99)"),
                ("rejected", f"99 {NUMBER}", "rejected"),
                ("rejected", "9", "the recipient has opted out (error 9)"),
            )
        ),
    ],
)
def test_a_status_says_what_became_of_a_text(name, fields, became):
    receipt = Receipt(REFERENCE, became == "delivered", None if became == "delivered" else became)
    stop = OptOut(NUMBER, True, "carrier")
    told = [receipt] * bool(became) + [stop] * ("opted out" in (became or ""))
    assert unidentified(connected(name), SIGNED[name](FIELDS[name] | fields)) == told


@pytest.mark.parametrize(
    ("name", "field", "sender"),
    [
        *(
            ("twilio", "From", sender)
            for sender in ("12345", "whatsapp:+12125550123", "ACME", "", "+0", "+1 212")
        ),
        *(("vonage", "msisdn", sender) for sender in ("12345", "ACME", "")),
        ("vonage", "another", ""),
    ],
)
def test_a_stop_from_what_is_no_number_is_nothing(name, field, sender):
    text = {"twilio": "Body", "vonage": "text"}[name]
    callback = SIGNED[name]({field: sender, text: "STOP"}, kind="inbound")
    assert connected(name).callback(callback) == []
