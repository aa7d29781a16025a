"""Callbacks of Twilio and Vonage, signed by their own libraries."""

import json
import time
from urllib.parse import quote, urlencode

from twilio.request_validator import RequestValidator

import carriers
from carrier_errors import NUMBER
from carriers import Callback, OptOut, Reply
from signed_callbacks import vonage_signer

PUBLIC_URL = "https://sms.example.com/staging"
TOKEN, SECRET = "auth-t0ken", "signature s3cret"
URLS = {
    "twilio": f"twilio://AC1:{TOKEN}@+15005550006?base_url=http://127.0.0.1",
    "vonage": f"vonage://key:s3cret@ACME?signature_secret={quote(SECRET)}",
}
REFERENCE = "SM" + "1" * 32
# Of a text that was not delivered by then, if nothing else is said
FIELDS = {
    "twilio": {"MessageSid": REFERENCE, "To": NUMBER},
    "vonage": {"messageId": REFERENCE, "msisdn": NUMBER[1:], "to": "ACME", "err-code": "0"},
}
DELIVERED = {
    "twilio": FIELDS["twilio"] | {"MessageStatus": "delivered"},
    "vonage": FIELDS["vonage"] | {"status": "delivered"},
}


def connected(name, options=""):
    """Return a carrier that only reads callbacks."""
    return carriers.connect(URLS[name] + options, public_url=PUBLIC_URL, sending=False)


def of_twilio(fields, token=TOKEN, kind="status", url=None, signed_url=None, **headers):
    url = url or f"{PUBLIC_URL}/carriers/twilio/{kind}"
    signature = RequestValidator(token).compute_signature(signed_url or url, fields)
    headers = {"x-twilio-signature": signature} | headers
    return Callback(kind, "POST", url, headers, urlencode(fields).encode())


def of_vonage(fields, secret=SECRET, kind="status", how="form", method="sha256", timestamp=None):
    fields = {"timestamp": str(timestamp or int(time.time()))} | fields
    fields |= {"sig": vonage_signer(secret, method).sign_params(dict(fields)).upper()}
    return unsigned_of_vonage(fields, how, kind)


def unsigned_of_vonage(fields, how="form", kind="status"):
    url = f"{PUBLIC_URL}/carriers/vonage/{kind}"
    match how:
        case "query":
            return Callback(kind, "GET", f"{url}?{urlencode(fields)}", {}, b"")
        case "json":
            headers = {"content-type": "application/json; charset=utf-8"}
            return Callback(kind, "POST", url, headers, json.dumps(fields).encode())
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return Callback(kind, "POST", url, headers, urlencode(fields).encode())


SIGNED = {"twilio": of_twilio, "vonage": of_vonage}


def unidentified(carrier, callback):
    """Return what a callback says, without what identifies it."""
    events = carrier.callback(callback)
    return [e._replace(message_ids=()) if isinstance(e, OptOut | Reply) else e for e in events]
