"""Texts over SMPP: sent, refused and received."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from smpp_peer import DELIVER_SM, RESPONSE

from carriers import CarrierError
from running import wait_until

NUMBER = "+12125550123"
TEXT = "attack at dawn, 🚀 héllo"
SECRETS = ("2125550123", "5005550006", "attack", "user", "s3cret", "127.0.0.1", "localhost")

THROTTLED, QUEUE_FULL, INVALID_NUMBER, SYSTEM_ERROR = 0x58, 0x14, 0x0B, 0x08
BIND_FAILED, INVALID_SENDER = 0x0D, 0x0A


def send(carrier, text=TEXT, to=NUMBER, valid_for=259_200):
    return carrier.send(to, text, message_id="a message", valid_for=valid_for)


def refused(carrier, text=TEXT):
    """Send and return the CarrierError, which must be raised."""
    with pytest.raises(CarrierError) as caught:
        send(carrier, text)
    words = str(caught.value)
    assert words.isprintable()
    assert not [secret for secret in SECRETS if secret in words], words
    return caught.value


def kind(error):
    """Return the one meaning of an error."""
    flags = {
        "for good": error.permanent,
        "too fast": error.too_fast,
        "the account": error.account,
        "in doubt": error.in_doubt,
    }
    assert sum(flags.values()) <= 1
    return next((name for name, flag in flags.items() if flag), "for now")


def outcomes(carrier, count):
    """Send texts at once, a thread each; return references and errors."""

    def outcome(number):
        try:
            return send(carrier, f"text {number}")
        except CarrierError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(outcome, range(count)))


def received(carrier, count):
    """Wait for a number of receipts and opt-outs from the peer; return them."""
    words = []
    wait_until(lambda: words.extend(carrier.received()) or len(words) >= count)
    return words


def answers_to(peer, sequence):
    """The statuses with which a deliver_sm was answered."""
    answer = (DELIVER_SM | RESPONSE, sequence)
    return [pdu[1] for pdu in peer.pdus if (pdu[0], pdu[2]) == answer]
