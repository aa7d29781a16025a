"""Callbacks of Twilio and Vonage as arguments of a werkzeug request; their kits sign them."""

import kits
from kits import FORM, PUBLIC_URL
from kits.twilio import TOKEN
from kits.vonage import SECRET

TWILIO, VONAGE = (kits.KITS[name].callbacks.url for name in ("twilio", "vonage"))
__all__ = ["FORM", "PUBLIC_URL", "SECRET", "TOKEN", "TWILIO", "VONAGE"]


def of_twilio(url, fields, token):
    """Return a POST from Twilio to an address."""
    return _anywhere(kits.twilio.sign(fields, secret=token, address=url))


def call_twilio(client, path, fields, url=None, token=TOKEN, **changes):
    """Have Twilio call back; return the response."""
    return client.open(path, **of_twilio(url or f"{PUBLIC_URL}{path}", fields, token) | changes)


def of_vonage(fields, secret, how="form"):
    """Return Vonage's callback with these fields: a form, JSON, or a GET with a query."""
    return _anywhere(kits.vonage.sign(fields, secret=secret, how=how))


def _anywhere(callback):
    """Return a callback without its path; its query only if that has its fields."""
    request = kits.asked(callback)
    del request["path"]
    if callback.method != "GET":
        del request["query_string"]
    return request
