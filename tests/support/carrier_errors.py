"""Texts for carriers, the meanings of their errors, and the secrets that must not appear."""

from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qsl

import pytest

from carrier_servers import Request
from kits import NUMBER
from kits.twilio import TwilioServer
from texting import carriers
from texting.carriers import Carrier, CarrierError, Fault, Outgoing, key_of

TEXT = "attack at dawn, 🚀 héllo"
MESSAGE_ID = "0198c5a7-7c1e-7a3b-9d2f-5b8c0e4f6a12"
AWKWARD = [
    " leading and trailing \t\n ",
    "\r\n",
    "line\nline\r\nline\rline\u2028line\x85line",
    "{to} {} {0} %s %2B + & = ; #",
    "# *markdown* _and_ <b>HTML</b> &amp; :smile: \\n \\u0041",
    "👩‍👩‍👧‍👦 🇨🇭 é é ‮txet ﷺ",
    "\x01\x1b[31m\x7f\uffff",
    "x" * 1600,
    "🚀" * 1600,
]
"""Texts that a library or a carrier might change."""
SECRETS = ("2125550123", "attack", TwilioServer.sid, "a token", "a%20token", "s3cret", "path-token")
PLACES = ("localhost", "127.0.0.1", "5005550006")
MEANINGS = {
    Fault.TEMPORARY: "for now",
    Fault.PERMANENT: "for good",
    Fault.OPTED_OUT: "opted out",
    Fault.TOO_FAST: "too fast",
    Fault.ACCOUNT: "the account",
}

connect = partial(carriers.connect, timeout=30)
impatient = partial(carriers.connect, timeout=1)


def form(request: Request) -> dict[str, str]:
    """Return the fields of a request's form."""
    return dict(parse_qsl(request.body.decode(), keep_blank_values=True, strict_parsing=True))


def send(
    carrier: Carrier, to: str = NUMBER, text: str = TEXT, valid_for: int = 3600, copy: int = 0
) -> str | None:
    """Send a text as the scheduler does."""
    with carrier.session():
        return carrier.send(Outgoing(to, text, MESSAGE_ID, key_of(MESSAGE_ID, copy), valid_for))


def refused(carrier: Carrier, to: str = NUMBER, text: str = TEXT) -> CarrierError:
    """Send and return the CarrierError, which must be raised."""
    return error_of(send, carrier, to, text)


def error_of(action: Callable, *arguments: object) -> CarrierError:
    """Do something and return the CarrierError, which must be raised and tell no secret."""
    with pytest.raises(CarrierError) as caught:
        action(*arguments)
    words = str(caught.value)
    assert_tells_no_secret(words)
    assert not [place for place in PLACES if place in words]
    assert words == " ".join(words.split())
    return caught.value


def meaning(error: CarrierError) -> str:
    """Return the one meaning of an error."""
    assert error.retry_after is None or error.fault is Fault.TOO_FAST
    if error.in_doubt:
        assert error.fault is Fault.TEMPORARY
        return "in doubt"
    return MEANINGS[error.fault]


def assert_tells_no_secret(words: str) -> None:
    assert not [secret for secret in SECRETS if secret in words], words
