"""Hand text messages to carriers: the only code that talks to them.

`connect` turns a CARRIER_URL into a `Carrier`, whose `send` either returns the carrier's reference
or raises a `CarrierError` that says what the caller may do. Nothing here logs, and the libraries
below are kept from logging what they are given: numbers, texts, credentials.
"""

import base64
import contextlib
import json
import logging
import re
import ssl
import sys
import threading
import time
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

TIMEOUT = 10  # seconds for a connection, and again for each wait for more of an answer
LONGEST_ANSWER = 64 * 1024  # bytes; what follows is not read
LONGEST_PAUSE = 3600  # seconds: no carrier's Retry-After holds messages back for longer
HTTP_FOR_GOOD = {400, 413, 422}  # about this text; 401, 403 and 404 are about the settings


class CarrierError(Exception):
    """The carrier did not take the text; `str()` says why, in words for an operator.

    The words hold no number, no text and no credentials. They are for now unless said otherwise:

    permanent    trying again does not help
    too_fast     the carrier says "slow down", which is no failed try; `retry_after` is the number
                 of seconds that it asked for, or None
    opted_out    the recipient told the carrier that no texts are wanted; always permanent
    """

    def __init__(
        self, reason, *, permanent=False, too_fast=False, retry_after=None, opted_out=False
    ):
        super().__init__(reason)
        self.permanent = permanent or opted_out
        self.too_fast = too_fast
        self.retry_after = retry_after
        self.opted_out = opted_out


class Carrier(Protocol):
    def send(self, to: str, text: str) -> str | None:
        """Have `text`, exactly as it is, delivered to `to` (E.164); return a reference, if any.

        Raises CarrierError where the carrier did not take it. Many threads may call this at once.
        """


def connect(url: str, concurrency: int = 8) -> Carrier:
    """Return the carrier that `url` names, ready for `concurrency` sends at once; send nothing.

    Raises ValueError, in one line without credentials, for a URL that no carrier takes.
    """
    scheme, _, rest = url.partition(":")
    match scheme.lower():
        case "console" | "simulator" if rest:
            raise ValueError(f"{scheme.lower()}: takes nothing after the colon")
        case "console":
            return Console()
        case "simulator":
            return Simulator()
        case "twilio":
            return Twilio(url, concurrency)
    if not re.match(r"[a-z][a-z0-9.+-]*://", url, re.IGNORECASE):
        raise ValueError("not the URL of a carrier: console:, simulator:, twilio://… or Apprise's")
    if "{to}" not in url:
        raise ValueError("{to} is missing: it says where in the URL the recipient's number belongs")
    return AppriseCarrier(url, concurrency)


class Console:
    """Write each text to standard output, a line each: for a first try.

    The one place where numbers and texts are shown. What is not printable is escaped, so that no
    text can pass for another line or steer a terminal.
    """

    def __init__(self):
        self._turn = threading.Lock()

    def send(self, to, text):
        encoding = sys.stdout.encoding or "utf-8"
        line = f"{to} {text!r}\n".encode(encoding, "backslashreplace").decode(encoding)
        try:
            with self._turn:
                sys.stdout.write(line)
                sys.stdout.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            raise CarrierError("standard output cannot be written to") from None


class Simulator:
    """Send nothing; the number decides what happens. All are valid, and reserved for fiction.

    +1 212 555 0101   refused for good
    +1 212 555 0102   failing for now
    +1 212 555 0103   "too fast", try again after a second
    +1 212 555 0104   the recipient has opted out
    any other         taken
    """

    def send(self, to, text):
        match to:
            case "+12125550101":
                raise CarrierError("the simulator refuses this number for good", permanent=True)
            case "+12125550102":
                raise CarrierError("the simulator fails for now")
            case "+12125550103":
                raise CarrierError("the simulator is too busy", too_fast=True, retry_after=1)
            case "+12125550104":
                raise CarrierError("the recipient has opted out", opted_out=True)


# Twilio's codes, https://www.twilio.com/docs/api/errors. For good is only what is wrong with this
# text or this recipient. What is wrong with the account (a token, a sender, a bill) would fail
# every queued text in one pass, so it is for now, as is every code that is not listed.
TWILIO_FOR_GOOD = {
    21211: "the number is not valid",
    21214: "the number cannot be reached",
    21217: "the number is not valid",
    21265: "the number is a short code",
    21266: "the number is the sender's own",
    21408: "texts to the recipient's country are not enabled for the account",
    21608: "a trial account only reaches verified numbers",
    21610: "the recipient has opted out",
    21612: "the number cannot be reached from this sender",
    21614: "the number takes no texts",
    21617: "the text is too long",
    21635: "the number is a landline",
}
TWILIO_FOR_NOW = {
    10001: "the account is not active",
    20003: "the account SID or the token is wrong",
    20005: "the account is not active",
    20404: "the account is not known",
    21212: "the sender is not valid",
    21606: "the sender cannot send texts",
    21659: "the sender is not a number of Twilio's",
    21660: "the sender is not a number of the account",
    21701: "the messaging service does not exist",
    21703: "the messaging service has no sender",
}
TWILIO_TOO_FAST = {
    14107: "the sender's rate is exceeded",
    20429: "too many requests",
    21611: "the sender's queue is full",
    30022: "the sender's rate is exceeded",
    63038: "the account's daily limit is reached",
}
TWILIO_REASONS = TWILIO_FOR_GOOD | TWILIO_FOR_NOW | TWILIO_TOO_FAST
TWILIO_OPTED_OUT = 21610


class Twilio:
    """Twilio's API: `twilio://ACCOUNT_SID:AUTH_TOKEN@FROM`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, an alphanumeric sender or the SID of a
    messaging service. `?base_url=` (percent-encoded or not) names a region or a test server.
    Proxies that the environment names are not used.
    """

    def __init__(self, url, concurrency):
        import urllib3  # here and below: a scheduler with nothing to send does not pay for it

        parts, _, query = url.partition("://")[2].partition("?")
        credentials, _, sender = parts.rpartition("@")
        sid, token, sender = map(unquote, (*credentials.partition(":")[::2], sender))
        if not (sid and token):
            raise ValueError("twilio://ACCOUNT_SID:AUTH_TOKEN@FROM lacks the SID or the token")
        if re.fullmatch(r"MG[0-9a-fA-F]{32}", sender):
            self._sender = {"MessagingServiceSid": sender}
        elif re.fullmatch(r"\+[1-9]\d{6,14}|\d{3,8}|(?=.*[A-Za-z])[\w &+-]{1,11}", sender, re.A):
            self._sender = {"From": sender}
        else:
            raise ValueError("FROM in twilio://…@FROM is no +number, short code, name or MG… SID")
        base = _base_url(query)
        account = f"/2010-04-01/Accounts/{quote(sid, safe='')}"
        self._path = f"{base.path.rstrip('/')}{account}/Messages.json"
        login = base64.b64encode(f"{sid}:{token}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {login}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        _silence("urllib3")
        self._pool = urllib3.connection_from_url(
            f"{base.scheme}://{base.netloc}",
            maxsize=concurrency,
            timeout=urllib3.Timeout(connect=TIMEOUT, read=TIMEOUT),
            retries=False,
            **({"ssl_context": _trusted()} if base.scheme == "https" else {}),
        )

    def send(self, to, text):
        from urllib3 import exceptions

        body = urlencode({"To": to, **self._sender, "Body": text})
        try:
            response = self._pool.urlopen(
                "POST", self._path, body, self._headers, redirect=False, preload_content=False
            )
        except (exceptions.ConnectTimeoutError, exceptions.NewConnectionError, exceptions.SSLError):
            raise CarrierError("Twilio cannot be reached") from None
        except exceptions.HTTPError:
            raise CarrierError("Twilio gave no answer; it may have taken the text") from None
        try:
            answer = response.read(LONGEST_ANSWER)
        except exceptions.HTTPError:
            answer = b""
        finally:
            response.close()  # a connection whose answer was read whole is in the pool already
        return self._judge(response.status, answer, response.headers.get("Retry-After"))

    @staticmethod
    def _judge(status, answer, retry_after):
        """Return the reference in Twilio's answer, or raise what the answer means."""
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        sid, code = answer.get("sid"), answer.get("code")
        # 201 means taken, whatever became of the rest: sending again would be a second text.
        # Any other 2xx is Twilio's only if it has a SID; a captive portal says 200, too.
        if status == 201 or (sid and 200 <= status < 300):
            return sid if isinstance(sid, str) else None
        if type(code) is not int:
            code = None
        if code is None:
            reason = f"no usable answer (HTTP {status})"
        else:
            reason = f"{TWILIO_REASONS.get(code, 'refused')} (HTTP {status}, error {code})"
        for_good = code in TWILIO_FOR_GOOD
        too_fast = not for_good and (status == 429 or code in TWILIO_TOO_FAST)
        raise CarrierError(
            f"Twilio: {reason}",
            permanent=for_good,
            too_fast=too_fast,
            retry_after=_seconds(retry_after) if too_fast else None,
            opted_out=code == TWILIO_OPTED_OUT,
        )


class AppriseCarrier:
    """Any carrier that Apprise knows: a URL of Apprise's with `{to}` where the number belongs.

    Each text gets an instance of the plugin of its own, so Apprise throttles none. The plugin is
    handed the text directly: Apprise.notify() would cut trailing white space off and have no more
    than a few texts under way at once. A yes is the plugin's: some, Vonage's among them, do not
    look at what the carrier answers. Proxies that the environment names are used.
    """

    def __init__(self, url, concurrency):
        import apprise

        _keep_connections(concurrency)
        _silence("urllib3", "requests", "smpp", "smpplib")
        logging.getLogger("apprise").setLevel(logging.WARNING)
        logging.getLogger("apprise").addFilter(_apprise_log)
        self._url = url
        self._name = f"{url.partition(':')[0].lower()}://"
        if self._name in ("smpp://", "smpps://"):
            with contextlib.suppress(ImportError):  # the plugin says so below
                _hear_answers()
        self._instantiate = apprise.Apprise.instantiate
        self._asset = apprise.AppriseAsset(http_redirects=False)
        self._how = {
            "title": "",
            "notify_type": apprise.NotifyType.INFO,
            "body_format": apprise.NotifyFormat.TEXT,
        }
        with _apprise_log.listening() as said:
            try:
                plugin = self._plugin("+12125550100")
            except Exception as problem:  # plugins let out whatever their libraries raise
                raise ValueError(self._words(f"cannot be used: {problem}")) from None
        if plugin is None:
            if any("disabled on this system" in line for line in said):
                raise ValueError(f"{self._name} needs a package that is not installed")
            raise ValueError(f"no carrier takes this {self._name} URL")
        if plugin.resolve_format("text") != "text":
            raise ValueError(f"{self._name} takes no plain text")
        if not _texts_only(plugin, "+12125550100"):
            raise ValueError(f"{self._name} does not text {{to}} alone where it stands")

    def send(self, to, text):
        with _apprise_log.listening() as said:
            try:
                plugin = self._plugin(to)
            except Exception:  # the URL was good for another number
                plugin = None
            # A plugin drops a number that it holds too short, and some then text their own sender.
            if plugin is None or not _texts_only(plugin, to):
                raise CarrierError(f"{self._name} takes no such number", permanent=True)
            try:
                if plugin.send(body=text, **self._how):
                    return
            except Exception as problem:
                said.append(f"{type(problem).__name__}: {problem}")
        said = " ".join(said)
        status = re.search(r"error=(\d{3})\b", said)
        status = status and int(status[1])
        raise CarrierError(
            self._words(said or "gave no reason", text),
            permanent=status in HTTP_FOR_GOOD,
            too_fast=status == 429,
        )

    def _plugin(self, to):
        """Return a plugin that texts `to`, or None; raise what the plugin raises."""
        url = self._url.replace("{to}", quote(to, safe=""))
        plugin = self._instantiate(url, self._asset, suppress_exceptions=False)
        if plugin is not None:
            plugin.socket_connect_timeout = plugin.socket_read_timeout = TIMEOUT
        return plugin

    def _words(self, said, text=""):
        """Return what Apprise said, in one line, without the text, numbers or parts of the URL."""
        place, _, query = self._url.partition("://")[2].partition("?")
        parts = [*re.split("[/:@]", place), *(value for _, value in parse_qsl(query))]
        secrets = {text, *parts, *map(unquote, parts)} - {"", "{to}"}
        longest_first = sorted(map(re.escape, secrets), key=len, reverse=True)
        number = r"\+?\d(?:[\s().-]{0,2}\d){6,}"
        private = "|".join([*(rf"(?<!\w){secret}(?!\w)" for secret in longest_first), number])
        said = re.sub(private, "***", said)
        return f"{self._name} {' '.join(said.split())[:300]}"


def _texts_only(plugin, to):
    """Say whether `plugin` has kept `to`, and nobody else, as its recipient."""
    targets = getattr(plugin, "targets", None)
    return to[1:] in unquote(plugin.url()) and (targets is None or len(targets) == 1)


class _Listener(logging.Filter):
    """Keep what a library logs from everybody but a thread that listens: numbers are in it."""

    def __init__(self):
        super().__init__()
        self._thread = threading.local()

    def filter(self, record):
        if hasattr(self._thread, "said"):
            self._thread.said.append(record.getMessage())
        return False

    @contextlib.contextmanager
    def listening(self):
        """Collect what the library warns of in this thread."""
        self._thread.said = []
        try:
            yield self._thread.said
        finally:
            del self._thread.said


_apprise_log = _Listener()


def _keep_connections(concurrency):
    """Let requests, which most plugins of Apprise's call, keep its connections.

    It would open one for each text and read a hundred certificates anew for each: 35 ms of CPU.
    """
    import requests

    adapter = requests.adapters.HTTPAdapter(pool_maxsize=concurrency)

    class Session(requests.Session):
        def __init__(self):
            super().__init__()
            self.mount("https://", adapter)
            self.mount("http://", adapter)

        def close(self):
            """Leave the connections to the next text."""

    requests.sessions.Session = Session  # what requests.post() and its like make


@cache
def _hear_answers():
    """Let smpplib, which Apprise's SMPP calls, hear the peer's answer to each part of a text.

    The plugin hangs up after the first: a refusal is not noticed, and parts that the peer has not
    read by then are lost with the connection.
    """
    import smpplib.client
    from smpplib import consts, smpp

    class Client(smpplib.client.Client):
        unanswered, refusal = 0, None

        def send_message(self, **part):
            self.unanswered += 1
            return super().send_message(**part)

        def unbind(self):
            while self.unanswered:
                answer = self.read_pdu()
                self.unanswered -= answer.command == "submit_sm_resp" or answer.is_error()
                if answer.is_error():
                    self.refusal = consts.DESCRIPTIONS.get(answer.status, answer.status)
            with contextlib.suppress(Exception):  # what counts has been said
                self.send_pdu(smpp.make_pdu("unbind", client=self))
            if self.refusal:
                self.disconnect()
                raise ConnectionError(self.refusal)

    smpplib.client.Client = Client


def _silence(*libraries):
    """Let these libraries log nothing: they log URLs, numbers, texts as hexadecimal digits."""
    for library in libraries:
        logging.getLogger(library).setLevel(logging.CRITICAL)


def _base_url(query):
    """Return the parts of the base URL in a twilio:// URL's query, or Twilio's own."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    try:
        base = urlsplit(options.pop("base_url", "https://api.twilio.com"))
        usable = base.scheme in ("http", "https") and base.hostname and base.port != 0
    except ValueError:
        usable = False
    if options:
        raise ValueError("twilio://… takes no option but base_url")
    if not usable or base.username is not None or base.query or base.fragment:
        raise ValueError("base_url in twilio://… is no http:// or https:// address")
    return base


def _trusted():
    """Return a TLS context that trusts what the machine trusts, and what requests does."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _seconds(retry_after):
    """Return a Retry-After header, seconds or an HTTP date, as seconds from now, or None."""
    try:
        if retry_after.strip().isdecimal():
            seconds = int(retry_after)
        else:
            seconds = mktime_tz(parsedate_tz(retry_after)) - time.time()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0), LONGEST_PAUSE)
