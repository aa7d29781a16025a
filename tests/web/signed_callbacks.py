"""Callbacks signed by the carriers' own libraries, as arguments of a werkzeug request."""

import functools
import json
import time
from urllib.parse import quote, urlencode

from twilio.request_validator import RequestValidator

FORM = "application/x-www-form-urlencoded"
PUBLIC_URL = "https://sms.example.com/staging"
TOKEN, SECRET = "auth-t0ken", "s1gnature secret"
TWILIO = f"twilio://AC1:{TOKEN}@+15005550006"
VONAGE = f"vonage://key:s3cret@ACME?signature_secret={quote(SECRET)}"


@functools.cache
def vonage_signer(secret, method):
    """Return what signs the fields of Vonage's callbacks."""
    from vonage_http_client.auth import Auth  # takes 0.2 s

    return Auth(api_key="key", api_secret="s", signature_secret=secret, signature_method=method)


def of_twilio(url, fields, token):
    """Return a POST from Twilio to an address."""
    signature = RequestValidator(token).compute_signature(url, fields)
    return {
        "method": "POST",
        "data": urlencode(fields).encode(),
        "headers": {"X-Twilio-Signature": signature, "Content-Type": FORM},
    }


def call_twilio(client, path, fields, url=None, token=TOKEN, **changes):
    """Have Twilio call back; return the response."""
    return client.open(path, **of_twilio(url or f"{PUBLIC_URL}{path}", fields, token) | changes)


def of_vonage(fields, secret, how="form"):
    """Return Vonage's callback with these fields: a form, JSON, or a GET with a query."""
    fields = {"timestamp": str(int(time.time()))} | fields
    fields["sig"] = vonage_signer(secret, "sha256").sign_params(dict(fields))
    if how == "query":
        return {"method": "GET", "query_string": urlencode(fields)}
    if how == "json":
        headers = {"Content-Type": "application/json"}
        return {"method": "POST", "data": json.dumps(fields).encode(), "headers": headers}
    return {
        "method": "POST",
        "data": urlencode(fields).encode(),
        "headers": {"Content-Type": FORM},
    }
