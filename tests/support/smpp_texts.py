"""Texts over SMPP: sent at once, and what comes back."""

from concurrent.futures import ThreadPoolExecutor

from carrier_errors import send
from running import wait_until
from smpp_peer import DELIVER_SM, RESPONSE
from texting.carriers import CarrierError

THROTTLED, QUEUE_FULL, INVALID_NUMBER, SYSTEM_ERROR = 0x58, 0x14, 0x0B, 0x08
BIND_FAILED, INVALID_SENDER = 0x0D, 0x0A


def outcomes(carrier, count):
    """Send texts at once, a thread each; return references and errors."""

    def outcome(number):
        try:
            return send(carrier, text=f"text {number}")
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
