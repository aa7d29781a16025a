"""Hand text messages to carriers; no other code talks to them.

`connect` turns a CARRIER_URL into a `Carrier`. Each carrier has its own module in this package.
Only the module that the URL needs is imported, so a scheduler does not pay for the others. Nothing
here logs, and the libraries are muted: they would log numbers, texts and credentials.
"""

import logging
import pkgutil
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from texting.carriers import urls

CONNECT_TIMEOUT = 10  # seconds

LISTED_WITHIN = timedelta(seconds=30)
"""Until then, a text that a carrier has accepted may be missing from its list."""


class Fault(Enum):
    """What is at fault if a carrier did not take a text; that decides what becomes of it."""

    TEMPORARY = "nothing that lasts: the text is tried again"
    PERMANENT = "this text or this recipient: trying again does not help"
    OPTED_OUT = "the recipient, who told the carrier to stop sending texts: permanent as well"
    TOO_FAST = "the speed: the carrier says “slow down”, which does not count as a failed try"
    # Wrong credentials, an unknown sender, no credit, a bind refused
    ACCOUNT = "the account: the carrier would refuse every other text as well"


@dataclass(eq=False, repr=False)
class CarrierError(Exception):
    """The carrier did not take the text; `str()` says why, in words for an operator.

    The words hold no number, no text and no credentials. Beside the fault, which is temporary if
    nothing is known of it, an error tells:

    retry_after  the seconds after which a carrier that says "slow down" wants more, or None
    in_doubt     no answer came, or it was lost: the carrier may have taken the text
    silent       the answer is not the carrier's own, neither its JSON nor a status of its protocol:
                 nothing came, or a gateway's page. Several in a row mean that it is down
    unreached    there was no connection, so nothing was sent: it is down; always silent
    no_route     its sender does not reach this recipient's country, or is not allowed there:
                 another carrier may take the text. The fault counts if there is none
    """

    reason: str
    fault: Fault = Fault.TEMPORARY
    _: KW_ONLY
    retry_after: float | None = None
    in_doubt: bool = False
    silent: bool = False
    unreached: bool = False
    no_route: bool = False

    def __post_init__(self):
        super().__init__(self.reason)
        self.silent |= self.unreached
        if self.fault is not Fault.TOO_FAST:
            self.retry_after = None

    @property
    def permanent(self) -> bool:
        return self.fault in (Fault.PERMANENT, Fault.OPTED_OUT)


class Codes(NamedTuple):
    """A carrier's codes for a refusal, grouped by what is at fault; without a group, temporary."""

    permanent: Collection = ()
    account: Collection = ()
    too_fast: Collection = ()
    no_route: Collection = ()  # each of these is in another group, too
    opted_out: Collection = ()  # in a refusal or a report; may be permanent, too

    def error(self, reason: str, code: object, **facts: Any) -> CarrierError:
        """Return the CarrierError that a code means; `facts` are more fields of CarrierError."""
        groups = {
            Fault.OPTED_OUT: self.opted_out,  # first, whatever else its code means
            Fault.PERMANENT: self.permanent,
            Fault.ACCOUNT: self.account,
            Fault.TOO_FAST: self.too_fast,
        }
        fault = next((each for each in groups if code in groups[each]), Fault.TEMPORARY)
        return CarrierError(reason, fault, no_route=code in self.no_route, **facts)


class NotGenuine(Exception):
    """A callback is not signed by the carrier."""


class CannotVerify(Exception):
    """Nobody can tell now whether a callback is genuine: the carrier has to repeat it."""


class Receipt(NamedTuple):
    """A carrier's final report on a text: whether it reached the phone."""

    reference: str  # what `send` returned
    delivered: bool
    reason: str | None = None  # why not; for an operator, without number and text
    # The recipient in E.164, if the carrier's receipts name it
    number: str | None = None
    message_id: str | None = None  # what `send` was given, if the carrier repeats it
    # Whether it may be about one part of a long text, which the carrier counts as several: then it
    # says nothing about the others
    of_part: bool = False


class Shown(NamedTuple):
    """A carrier's report that is not final, but shows that it has a text."""

    reference: str  # what `send` returns, or would have returned
    message_id: str | None = None  # what `send` was given, a UUID, if the carrier repeats it
    of_part: bool = False  # as in Receipt


class LateAnswer(NamedTuple):
    """A carrier's acceptance of a text after `send` had given up and left it in doubt."""

    message_id: str  # what `send` was given
    reference: str | None  # what `send` would have returned


class TooFast(NamedTuple):
    """The carrier's "slow down" to a part of a text: `send` waits by itself, others must pause."""

    reason: str


class Part(NamedTuple):
    """The place of an incoming text among the parts of a longer one."""

    reference: str  # the same for all parts of a text
    total: int
    number: int  # from 1


class IncomingText(NamedTuple):
    """What a recipient wrote; it becomes a Reply, or a part of one."""

    number: str  # E.164
    text: str
    at: datetime | None = None  # by the carrier's clock, if it gives the time
    certain: bool = True  # as in OptOut
    # What identifies the carrier's message, if it names it: a text with one of these counts once
    message_ids: tuple[str, ...] = ()
    # STOP, START or HELP if the carrier itself took it for that, and so has answered it
    word: str | None = None
    part: Part | None = None


class OptOut(NamedTuple):
    """A recipient's STOP or START."""

    number: str  # E.164
    stop: bool
    source: str  # "reply" if the recipient wrote it, "carrier" if the carrier reports it
    at: datetime | None = None  # by the carrier's clock, if it gives the time
    # Whether the carrier says that the number is international. If it does not, `number` is a plus
    # sign and the carrier's digits, which counts only if this service has texted that number.
    certain: bool = True
    # What identifies the carrier's message, if it names it: an OptOut with one of these counts once
    message_ids: tuple[str, ...] = ()


Report = Receipt | Shown | IncomingText | OptOut | LateAnswer | TooFast
"""What a carrier reports without being asked."""


class Listed(NamedTuple):
    """A part of a carrier's list of incoming texts, or of STOPs and STARTs."""

    replies: list[IncomingText | OptOut]
    rest: str | None = None  # where the list continues, for `incoming`; None at its end


class Callback(NamedTuple):
    """A request from a carrier to the service."""

    kind: str  # "status" or "inbound"
    method: str
    url: str  # as the carrier knows it: PUBLIC_URL, path and query
    headers: dict[str, str]  # names in lower case
    body: bytes


REGISTERS = {
    "AU": "“Unverified”",
    "BE": "a number instead",
    "ES": "blocked",
    "FI": "blocked or “Unknown”",
    "GB": "blocked if generic (“Info”)",
    "IE": "“Likely Scam”",
    "SG": "blocked",
}
"""What becomes of texts from a name that is not in their country's register, or not allowed there.

docs/compliance.md has the sources.
"""


def key_of(message_id: str, copy: int = 0) -> str:
    """Return the id by which a carrier that keeps ids knows a copy of a message.

    `copy` is the number of earlier copies that any carrier took. A person may send a message again
    that was taken and did not arrive: that is another text.
    """
    return f"{UUID(message_id).hex}-{copy}" if copy else message_id


class Outgoing(NamedTuple):
    """A text as it is given to a carrier."""

    to: str  # E.164
    text: str
    message_id: str
    key: str  # by which a carrier that keeps ids knows it, see `key_of`
    valid_for: int  # seconds after which it should no longer be delivered


def message_of(key: str) -> str:
    """Return the id of the message that has this key."""
    return key.partition("-")[0] if key[32:33] == "-" else key


class Dated(NamedTuple):
    """The date of an answer over HTTP, and when it came."""

    date: str
    took: float  # seconds from the request
    wall: float  # by this machine's clock
    monotonic: float


class Carrier:
    """Deliver texts. Many threads may call `send` and `find` at once.

    Subclasses override only the methods that the carrier supports, and state these facts about it.
    They are constructed with the first four arguments of `connect`.
    """

    name: str  # may be shown and logged: the scheme, unless CARRIER_URL gives another
    title: str  # the name in messages for an operator
    # The options of its URL, with their defaults; None if there is no value by default
    options: Mapping[str, str | None] = {}
    codes = Codes()  # of its refusals
    # The HTTP methods of the carrier's callbacks; empty if it makes none
    callback_methods: tuple[str, ...] = ()
    # Whether `received` returns receipts and replies, from a session of the carrier's.
    # Late answers and TooFast may come in any case.
    listens = False
    can_be_asked = False  # whether `find` can settle a text that is in doubt
    # For how long a text that is given again with the same id is not sent twice: then it is given
    # again while it is in doubt. None if it would be sent twice
    keeps_ids: timedelta | None = None
    # How soon a report shows that it has a text in doubt, if any does: no copy is sent before
    shows_within = timedelta(0)
    # Whether a URL with `{to}` goes on to mean Apprise's carrier of the same scheme
    leaves_to_apprise = False
    # What owns the list that `find` searches, if other carriers may have texts in it, too
    list_of: str | None = None
    # A warning about this URL for the operator: one line for the log, without credentials.
    warning: str | None = None
    from_name = False  # whether FROM is a name; some countries keep a register of those
    tells_receipts = False  # whether it reports if texts arrived, and has been asked to
    registers = False  # whether `register` has to be called before it calls back
    # Whether each name of an account is called about the texts of all its names
    calls_all_names = False
    dated: Dated | None = None  # of its latest answer that has a date
    lists_incoming = False  # whether `incoming` returns texts whose callbacks were lost

    def warn(self, words: str) -> None:
        """Add to the warning."""
        self.warning = f"{self.warning}; {words}" if self.warning else words

    def warn_of_name(self) -> None:
        """Warn that nobody can reply STOP to a name; for carriers that understand a STOP."""
        self.warn(
            f"{self.name}://… sends from a name, which nobody can answer: its recipients have no "
            "way to say STOP by a text"
        )

    def __init__(self, url: str, *_: object):
        self.name = url.partition(":")[0].lower()

    def load(self) -> None:
        """Import what connections need, before any thread may use them.

        Two threads that import modules of one package may each find the other's half done.
        """

    def register(self) -> None:
        """Have the carrier call back, if `registers` says that it must be told where to.

        A second time changes nothing. Raise CarrierError if it does not work.
        """
        raise NotImplementedError

    def session(self) -> AbstractContextManager:
        """Return a context in which this thread can `send` without connecting first.

        Connecting may take minutes; raise CarrierError if the carrier cannot be reached.
        """
        return nullcontext()

    def send(self, outgoing: Outgoing) -> str | None:
        """Hand a text to the carrier unchanged; return its reference, if any.

        Raise CarrierError if the carrier did not take it.
        """
        raise NotImplementedError

    def find(self, to: str, text: str, since: datetime) -> list[str]:
        """Return the references of all equal texts that the carrier accepted since an instant.

        The oldest comes first. Raise CarrierError if the carrier gives no answer.
        """
        raise NotImplementedError

    def look_up(self, key: str) -> str | None:
        """Return the reference of the text that was given with this key, or None.

        Raise CarrierError if the carrier gives no answer. Only carriers that keep ids are asked.
        """
        raise NotImplementedError

    @property
    def can_look_up(self) -> bool:
        """Whether `look_up` can settle a text in doubt that may not be given again."""
        return type(self).look_up is not Carrier.look_up

    @property
    def settles_doubts(self) -> bool:
        """Whether a text in doubt waits for this carrier, and goes nowhere else meanwhile."""
        return self.can_be_asked or self.keeps_ids is not None

    def check(self) -> str | None:
        """Ask the carrier, without sending, whether it would take texts; raise CarrierError if not.

        Return the balance, as text, if it is in the answer. Raise NotImplementedError if the
        carrier cannot be asked.
        """
        raise NotImplementedError

    @property
    def can_be_checked(self) -> bool:
        """Whether `check` can tell if the carrier would take texts."""
        return type(self).check is not Carrier.check

    def balance(self) -> str | None:
        """Check, and return the account's balance, as text, if the carrier tells it."""
        return self.check()

    def incoming(self, since: datetime, rest: str | None = None) -> Listed:
        """Return the newest texts that came in since an instant, as many as fit into memory.

        Older ones follow if it is called with the `rest` of that answer. All have the ids that
        callbacks have.
        Raise CarrierError if the carrier gives no answer.
        """
        raise NotImplementedError

    def received(self) -> list[Report]:
        """Return what the carrier's session delivered since the last call; never wait."""
        return []

    def callback(self, request: Callback) -> list[Report]:
        """Return the receipts, opt-outs and replies in a genuine callback; there may be none.

        Raise NotGenuine if the signature does not match, or if this carrier makes no callbacks;
        CannotVerify if what is needed to verify it cannot be had now.
        """
        raise NotGenuine

    def is_named_in(self, request: Callback) -> bool:
        """Return whether a genuine callback names the sender of this carrier."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections. No call may be under way."""


# The carriers of this package by their schemes; all other schemes are Apprise's.
OWN = {
    "console": "texting.carriers.console:Console",
    "simulator": "texting.carriers.simulator:Simulator",
    "twilio": "texting.carriers.twilio:Twilio",
    "vonage": "texting.carriers.vonage:Vonage",
    "nexmo": "texting.carriers.vonage:Vonage",
    "telnyx": "texting.carriers.telnyx:Telnyx",
    "smsgate": "texting.carriers.smsgate:SmsGate",
    "smsgate+http": "texting.carriers.smsgate:SmsGate",
    "aws": "texting.carriers.aws:Aws",
    "infobip": "texting.carriers.infobip:Infobip",
    "smpp": "texting.carriers.smpp:Smpp",
    "smpps": "texting.carriers.smpp:Smpp",
    "webhook+https": "texting.carriers.webhook:Webhook",
    "webhook+http": "texting.carriers.webhook:Webhook",
}
APPRISE = "texting.carriers.apprise:Apprise"
OF_APIS = {  # the carriers' own domains
    "twilio.com": "twilio://ACCOUNT_SID:AUTH_TOKEN@FROM",
    "nexmo.com": "vonage://KEY:SECRET@FROM",
    "vonage.com": "vonage://KEY:SECRET@FROM",
    "telnyx.com": "telnyx://API_KEY@FROM?public_key=BASE64",
    "sms-gate.app": "smsgate://USER:PASSWORD@api.sms-gate.app/3rdparty/v1",
}
# From this similarity on (difflib's), a scheme is a misspelt one of OWN; Apprise's xmpps has 0.8.
CLOSE = 0.82


def classes() -> dict[str, type[Carrier]]:
    """Return the class of each carrier, by the name of its module; this imports all of them."""
    found = {}
    for place in (*OWN.values(), APPRISE):
        found[place.partition(":")[0].rpartition(".")[2]] = pkgutil.resolve_name(place)
    return found


def connect(
    url: str,
    concurrency: int = 8,
    timeout: float = 60,
    public_url: str | None = None,
    *,
    name: str | None = None,
    sending: bool = True,
) -> Carrier:
    """Return the carrier that `url` names, ready for `concurrency` sends at once; send nothing.

    A send waits up to `timeout` seconds for an answer. The carrier is called `name`, and its
    callbacks come to that name below `public_url`. With `sending=False` only `callback` may be
    used, and Apprise is not loaded, so a scheme that Apprise lacks is accepted. Raise ValueError,
    in one line without credentials, for a URL that no carrier takes.
    """
    scheme = urls.scheme(url).lower()
    kind = pkgutil.resolve_name(OWN[scheme]) if scheme in OWN else None
    is_apprises = kind is not None and kind.leaves_to_apprise and "{to}" in url
    if kind and not is_apprises:
        if scheme in ("console", "simulator") and url.partition(":")[2]:
            raise ValueError(f"{scheme}: takes nothing after the colon")
        called = name or getattr(kind, "name", scheme)
        callbacks = f"{public_url}/carriers/{called}" if public_url else None
        carrier = kind(url, concurrency, timeout, callbacks)
    else:
        if not is_apprises:
            check_foreign(url)
        carrier = (
            pkgutil.resolve_name(APPRISE)(url, concurrency, timeout) if sending else Carrier(url)
        )
    if is_apprises:
        carrier.warn(
            f"{scheme}://…/{{to}} is Apprise's form; without the {{to}} the text goes to "
            f"{kind.title} directly"
        )
    if sending:
        carrier.load()
    carrier.name = name or carrier.name
    return carrier


def check_foreign(url: str) -> None:
    """Raise ValueError if a URL with a scheme not in OWN cannot be Apprise's either."""
    given = urls.scheme(url)
    scheme = given.lower()
    near = ["webhook+https"] if scheme == "webhook" else get_close_matches(scheme, OWN, 1, CLOSE)
    if near:
        raise ValueError(f"{given} is not a carrier; did you mean {near[0]}?")
    if scheme in ("http", "https"):
        check_api(url)
    if "+" in scheme:
        raise ValueError(urls.NO_URL)
    if "{to}" not in url:
        raise ValueError("{to} is missing: it marks where the recipient's number goes in the URL")


def check_api(url: str) -> None:
    """Raise ValueError if an address of the web cannot be one of Apprise's carriers."""
    scheme, parts = urls.scheme(url).lower(), urls.split(url)
    host = f".{parts.hostname if parts else ''}"
    for domain, form in OF_APIS.items():
        if host.endswith(f".{domain}"):
            raise ValueError(f"{scheme}://… is the address of an API; write {form}")
    if "{to}" not in url:
        raise ValueError(
            f"{scheme}://… is not a carrier; for a service of your own, write webhook+{scheme}://…"
        )


def mute(*libraries: str) -> None:
    """Stop these libraries from logging URLs, numbers and texts in hexadecimal digits."""
    for library in libraries:
        logging.getLogger(library).setLevel(logging.CRITICAL)
