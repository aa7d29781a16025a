"""Hand text messages to carriers: the only code that talks to them.

`connect` turns a CARRIER_URL into a `Carrier`. Each carrier has a module of its own beside this
one, which is imported only where its URL is used: a scheduler does not pay for the others. Nothing
here logs, and the libraries below are kept from logging what they are given: numbers, texts,
credentials.
"""

import logging
import re
from datetime import datetime
from difflib import get_close_matches
from typing import NamedTuple

CONNECT_TIMEOUT = 10  # seconds


class CarrierError(Exception):
    """The carrier did not take the text; `str()` says why, in words for an operator.

    The words hold no number, no text and no credentials. Without a flag the carrier fails for now
    and the text is tried again. At most one of `permanent`, `too_fast`, `account` and `in_doubt`
    is set:

    permanent    trying again does not help: it is about this text or this recipient
    opted_out    the recipient told the carrier that no texts are wanted; always permanent
    too_fast     the carrier says "slow down", which is no failed try; `retry_after` is the number
                 of seconds that it asked for, or None
    account      the carrier refuses the whole account: wrong credentials, an unknown sender,
                 no credit, a bind refused. Every other text would be refused, too
    in_doubt     no answer came, or it was lost: the carrier may have taken the text
    """

    def __init__(
        self,
        reason: str,
        *,
        permanent: bool = False,
        opted_out: bool = False,
        too_fast: bool = False,
        retry_after: float | None = None,
        account: bool = False,
        in_doubt: bool = False,
    ):
        super().__init__(reason)
        self.permanent = permanent or opted_out
        self.opted_out = opted_out
        self.too_fast = too_fast
        self.retry_after = retry_after if too_fast else None
        self.account = account
        self.in_doubt = in_doubt


class NotGenuine(Exception):
    """A callback is not signed by the carrier."""


class Receipt(NamedTuple):
    """A carrier's last word on a text that it took: did it reach the phone?"""

    reference: str  # what `send` returned
    delivered: bool
    reason: str | None = None  # why not, in words for an operator, without number and text


class OptOut(NamedTuple):
    """A recipient's word on whether texts are wanted: STOP, or START."""

    number: str  # E.164
    stop: bool
    source: str  # "reply" where the recipient wrote it, "carrier" where the carrier says so


class Callback(NamedTuple):
    """A request that a carrier made to the service."""

    kind: str  # "status" or "inbound"
    method: str
    url: str  # as the carrier was told: PUBLIC_URL, the path and the query
    headers: dict[str, str]  # names in lower case
    body: bytes


class Carrier:
    """What delivers texts. Many threads may call `send` and `find` at once.

    What a carrier cannot do is not overridden.
    """

    name: str  # its scheme, which may be shown and logged
    can_be_asked = False
    """Whether `find` can tell what became of a text that is in doubt."""
    warning: str | None = None
    """What an operator should know about this URL, in one line for the log, without credentials."""
    listens = False
    """Whether receipts and incoming texts come over a session of its own, by `received`."""

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        """Have `text`, exactly as it is, delivered to `to` (E.164); return a reference, if any.

        `valid_for` is the number of seconds after which it should no longer be delivered. Raise
        CarrierError where the carrier did not take it.
        """
        raise NotImplementedError

    def find(self, to: str, text: str, since: datetime) -> list[str]:
        """Return the references of all texts like this that the carrier took since an instant.

        The oldest first. Raise CarrierError where it gives no answer.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Ask the carrier, without sending, whether it would serve; raise CarrierError if not.

        Raise NotImplementedError where it cannot be asked.
        """
        raise NotImplementedError

    def received(self) -> list[Receipt | OptOut]:
        """Return what came over a session of its own since the last call; never wait."""
        return []

    def callback(self, request: Callback) -> list[Receipt | OptOut]:
        """Return what a genuine callback says, nothing where it says nothing to us.

        Raise NotGenuine where it is not signed, or this carrier makes none.
        """
        raise NotGenuine

    def close(self) -> None:
        """Close all connections. Nothing is under way."""


OWN = {
    *("console", "simulator", "twilio", "vonage", "nexmo"),
    *("webhook+https", "webhook+http", "smpp", "smpps"),
}
"""The schemes of the carriers that have a module here; Apprise knows more."""
CLOSE = 0.82
"""How similar a misspelt scheme is to one of OWN, by difflib; Apprise's xmpps is 0.8 like smpps."""


def connect(
    url: str,
    concurrency: int = 8,
    timeout: float = 60,
    public_url: str | None = None,
    *,
    sending: bool = True,
) -> Carrier:
    """Return the carrier that `url` names, ready for `concurrency` sends at once; send nothing.

    An answer is waited for up to `timeout` seconds. Callbacks are asked for under `public_url`.
    With `sending=False` it is good for `callback` alone, and Apprise is not loaded. Raise
    ValueError, in one line without credentials, for a URL that no carrier takes.
    """
    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    match scheme:
        case "console" | "simulator" if rest:
            raise ValueError(f"{scheme}: takes nothing after the colon")
        case "console":
            from carriers.console import Console

            return Console()
        case "simulator":
            from carriers.simulator import Simulator

            return Simulator()
        case "twilio":
            from carriers.twilio import Twilio

            return Twilio(url, concurrency, timeout, public_url)
        case "vonage" | "nexmo":
            from carriers.vonage import Vonage

            return Vonage(url, concurrency, timeout, public_url)
        case "smpp" | "smpps":
            from carriers.smpp import Smpp

            return Smpp(url, concurrency, timeout)
        case "webhook+https" | "webhook+http":
            from carriers.webhook import Webhook

            return Webhook(url, concurrency, timeout)
        case "webhook":
            raise ValueError("webhook is no carrier; did you mean webhook+https?")
    if near := get_close_matches(scheme, OWN, 1, CLOSE):
        raise ValueError(f"{url.partition(':')[0]} is no carrier; did you mean {near[0]}?")
    if not re.match("[a-z0-9]+://", url, re.IGNORECASE):
        raise ValueError("not the URL of a carrier: console:, simulator:, twilio://… or another")
    if "{to}" not in url:
        raise ValueError("{to} is missing: it says where in the URL the recipient's number belongs")
    if not sending:
        carrier = Carrier()
        carrier.name = scheme
        return carrier
    from carriers.apprise import Apprise

    return Apprise(url, concurrency, timeout)


def silence(*libraries: str) -> None:
    """Keep these libraries from logging: they log URLs, numbers, texts in hexadecimal digits."""
    for library in libraries:
        logging.getLogger(library).setLevel(logging.CRITICAL)
