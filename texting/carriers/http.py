"""Common parts of carriers over HTTP: connections, deadlines, answers and callbacks."""

import base64
import http.client
import importlib
import io
import json
import re
import ssl
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import certifi

from texting.carriers import (
    CONNECT_TIMEOUT,
    Carrier,
    CarrierError,
    Codes,
    Dated,
    NotGenuine,
    Receipt,
    Report,
    Shown,
    opt_outs,
)
from texting.carriers.tls import reason_of, trusted

LONGEST_PAUSE = 3600  # seconds; a longer Retry-After is cut to this
LONGEST_REFERENCE = 255  # characters
RECENTLY = 600  # seconds
SKEW = 300  # seconds by which a carrier's clock may be ahead
MOST_FIELDS = 200  # in a callback; the carriers' have some twenty
AGENT = "text-message-sending-service"  # some firewalls refuse requests without one
IN_TARGETS = "%/?:@!$&'()*+,;=~[]"  # characters that are not percent-encoded
STATUSES = Codes(account={401, 402, 403, 404}, too_fast={429})


class Response(NamedTuple):
    """A server's answer; `body` may be incomplete."""

    method: str  # the request's
    status: int
    body: bytes
    retry_after: float | None  # seconds

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def leaves_doubt(self) -> bool:
        """Whether the text may have been taken, if the body has no words of the carrier's own.

        A gateway answers 502 or 504 if it got no answer from the carrier.
        """
        return self.method == "POST" and (self.success or self.status in (502, 504))

    def json(self) -> dict:
        """Return the JSON object in the body, or an empty object."""
        try:
            # A wrong encoding, such as Latin-1 in a reason, must not hide the rest.
            value = json.loads(self.body.decode(json.detect_encoding(self.body), "replace"))
        except (ValueError, RecursionError):
            return {}
        return as_object(value)


class HttpCarrier(Carrier):
    """A carrier over HTTP: connections to one server, kept open.

    Its certificate must be signed by an authority that the machine or certifi trusts. Redirects are
    not followed and nothing is sent again. Proxies from the environment are not used: they would
    see texts and numbers.
    """

    longest_answer = 64 * 1024  # bytes; the rest is not read
    longest_pause = LONGEST_PAUSE
    reasons: dict[int, str]  # the meaning of the codes in reports
    # The final statuses in reports
    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __init__(self, base: SplitResult, headers: dict, concurrency: int, timeout: float):
        self._base, self._concurrency, self._timeout = base, concurrency, timeout
        self.headers = {"Accept": "application/json", "User-Agent": AGENT} | headers
        self._idle = []  # connections, the most recently used at the end
        self._session = threading.local()
        weakref.finalize(self, _close_all, self._idle)
        self._served_until = 0.0  # by time.monotonic()

    def load(self) -> None:
        for module in ("encodings.idna", "encodings.punycode"):  # by socket, for a host name
            importlib.import_module(module)
        certifi.where()  # imports modules when it is first called

    @contextmanager
    def session(self) -> Iterator[None]:
        """Connect, or take an open connection, for this thread's next request."""
        self._session.connection = connection = self._connect()
        try:
            yield
        finally:
            del self._session.connection
            self._keep(connection)

    def ask(
        self, method: str, path: str, body: str | None = None, headers: dict | None = None
    ) -> Response:
        """Return the answer to one request; `path` is appended to the base's.

        Raise CarrierError if no answer comes in time: in doubt if it was a POST and the server was
        reached.
        """
        own = getattr(self._session, "connection", None)
        connection = own or self._connect()
        began = time.monotonic()
        target = quote(self._base.path.rstrip("/") + path, safe=IN_TARGETS)
        response = None
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before
                connection.request(method, target, body and body.encode(), headers or self.headers)
            response = connection.getresponse()
            content = response.read(self.longest_answer)
        except (http.client.HTTPException, OSError):
            content = b""
        finally:
            if response is None or not response.isclosed():  # the rest must not be read
                connection.close()
            if connection is not own:
                self._keep(connection)
        if response is None:
            reason = f"{self.title} gave no answer"
            raise CarrierError(reason, in_doubt=method == "POST", silent=True)
        if date := response.headers.get("Date"):  # read later, as each answer has one
            at = time.monotonic()
            self.dated = Dated(date, at - began, time.time(), at)
        pause = _retry_after(response.headers.get("Retry-After", ""), self.longest_pause)
        return Response(method, response.status, content, pause)

    def post(self, path: str, form: dict[str, object]) -> Response:
        """POST a form, and return the answer."""
        headers = self.headers | {"Content-Type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(form), headers)

    def post_json(self, path: str, content: object, **headers: str) -> Response:
        """POST a JSON object, and return the answer."""
        headers = self.headers | {"Content-Type": "application/json"} | headers
        return self.ask("POST", path, body=json.dumps(content), headers=headers)

    def get_json(self, path: str) -> dict:
        """Return the JSON object at a path; raise CarrierError if the answer is another one."""
        answer = self.ask("GET", path)
        content = answer.json()
        if answer.status != 200 or not content:
            raise self.error_of(answer)
        return content

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer means; subclasses read their own codes."""
        return self.refusal(answer)

    def refusal(
        self, answer: Response, code: object = None, reason: str = "", **facts: Any
    ) -> CarrierError:
        """Return the CarrierError that the carrier's own code means; the HTTP status without one.

        An answer without a code is `silent`, unless the facts say that it is the carrier's own. A
        code of the account that may be about the recipient's country is not about the account if
        the server took a text from this FROM in the last ten minutes.
        """
        facts["retry_after"] = answer.retry_after
        if code is None:
            facts = {"in_doubt": answer.leaves_doubt, "silent": True} | facts
            reason = f"{self.title}: no usable answer (HTTP {answer.status})"
            return STATUSES.error(reason, answer.status, **facts)
        of_country = code in self.codes.no_route and code in self.codes.account
        if of_country and time.monotonic() < self._served_until:
            return CarrierError(reason, no_route=True)
        return self.codes.error(reason, code, **facts)

    def record_served(self) -> None:
        """Note that the server took a text from this FROM."""
        self._served_until = time.monotonic() + RECENTLY

    def explained(self, code: int, otherwise: str) -> str:
        """Return the meaning of a code in a report, for an operator."""
        return self.reasons.get(code, otherwise)

    def _receipts(self, field, callbacks, secret, option, from_):
        """Return the field that asks for receipts; warn if there is no `secret` to verify them.

        `callbacks` is the address below which the carrier may call, if there is one; `option` is
        the URL's option for the secret. If `from_` is a name, warn that no replies can come.
        """
        self.from_name = bool(re.search("[A-Za-z]", from_))
        if callbacks and secret:
            if self.from_name:
                self.warn_of_name()
            self.tells_receipts = True
            return {field: f"{callbacks}/status"}
        if callbacks:
            self.warn(
                f"{self.name}://… has no ?{option}=, so callbacks cannot be verified: "
                "no receipts are asked for, and replies are refused"
            )
        return {}

    def _report(
        self, ref, status, code, recipient, *, given=None, of_part=False, at=None, ids=()
    ) -> list[Report]:
        """Return what a callback about a text, made at an instant, says.

        `ref` is the carrier's reference, and `given` the id that `send` was given, if the carrier
        repeats it. `ids` identify the report.
        """
        code = int(code) if re.fullmatch(r"[1-9]\d{0,6}", code, re.ASCII) else None
        told, id = [], _uuid(given)
        of = {"message_id": id, "of_part": of_part} if id else {}
        if reference(ref) and status in self.delivered:
            told = [Receipt(ref, True, **of)]
        elif reference(ref) and status in self.failed:
            words = f"{self.explained(code, status)} (error {code})" if code else status
            told = [Receipt(ref, False, f"{self.title}: {words}", **of)]
        elif reference(ref) and status:
            told = [Shown(ref, **of)]
        if code in self.codes.opted_out:
            told += opt_outs.reported(recipient, at, ids)
        return told

    def close(self) -> None:
        _close_all(self._idle)

    def _connect(self):
        """Return an open connection: the most recently used of the idle ones, or a new one."""
        with suppress(IndexError):
            while not (connection := self._idle.pop()).is_open():
                connection.close()
            return connection
        host, port = self._base.hostname, self._base.port
        connection = _Connection(host, port, self.title, self._context, self._timeout)
        connection.connect()
        return connection

    def _keep(self, connection):
        """Keep a connection for the next request, if it is open."""
        if connection.sock is None or len(self._idle) >= self._concurrency:
            connection.close()
        else:
            self._idle.append(connection)

    @cached_property
    def _context(self):
        """The TLS context of all connections, or None."""
        if self._base.scheme != "https":
            return None
        context = trusted()
        context.set_alpn_protocols(["http/1.1"])
        return context


def _close_all(connections):
    while connections:
        connections.pop().close()


class _WholeResponse(http.client.HTTPResponse):
    """An answer that arrives completely within the socket's timeout, or not at all."""

    def __init__(self, connection, *args, **kwargs):
        super().__init__(connection, *args, **kwargs)
        self.fp = io.BufferedReader(_Deadline(self.fp.detach(), connection))

    def begin(self):
        """Read the status and the headers; skip interim answers (RFC 9110, section 15.2).

        http.client takes a 102 or 103 for the final answer. The final one would then be read as the
        answer to the next text.
        """
        super().begin()
        while 101 < self.status < 200:
            self.headers = None
            super().begin()


class _Connection(http.client.HTTPConnection):
    """A connection that distinguishes "not reached" from "no answer".

    Python's own raises the same errors for both; after a lost answer, the text is in doubt.
    """

    response_class = _WholeResponse

    def __init__(self, host, port, title, context, timeout):
        self.default_port = http.client.HTTPS_PORT if context else http.client.HTTP_PORT
        super().__init__(host, port or self.default_port, timeout=min(CONNECT_TIMEOUT, timeout))
        self._title, self._context, self._answer_timeout = title, context, timeout

    def connect(self):
        try:
            super().connect()
            if self._context:
                name = self.host.rstrip(".")  # as certificates have it
                self.sock = self._context.wrap_socket(self.sock, server_hostname=name)
        except Exception as error:  # of any kind: no request was sent
            self.close()
            reason = f"{self._title} cannot be reached: {reason_of(error)}"
            raise CarrierError(reason, unreached=True) from None

    def request(self, *arguments):
        """Send a request; its time-out is set anew, since reading an answer shortens it."""
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self._answer_timeout)
        self._pieces = []
        super().request(*arguments)
        self.sock.sendall(b"".join(self._pieces))

    def send(self, data):
        """Keep a piece of a request: to send its head and its body together costs half."""
        self._pieces.append(data)

    def is_open(self):
        """Return whether it can be used: TLS' own messages, like session tickets, are no answer."""
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False  # the server has closed it, or says why it will


class _Deadline(io.RawIOBase):
    """Read from a socket until a deadline; the socket's own timeout restarts with every byte."""

    def __init__(self, raw, connection):
        super().__init__()
        self._raw, self._connection = raw, connection
        self._deadline = time.monotonic() + connection.gettimeout()

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self):
        super().close()
        self._raw.close()


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header for HTTP Basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def as_object(value: Any) -> dict:
    """Return a JSON object, or an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict]:
    """Return the objects of a JSON array."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def parsed(query: str) -> list[tuple[str, str]]:
    """Return the fields of a callback's form or query; raise ValueError if there are too many."""
    return parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)


def check_age(timestamp: str, oldest: float) -> None:
    """Raise NotGenuine unless a callback's timestamp is in the last `oldest` seconds."""
    at = int(timestamp) if re.fullmatch(r"\d{1,12}", timestamp, re.ASCII) else 0
    if not -SKEW <= time.time() - at <= oldest + SKEW:
        raise NotGenuine


def named(url: str) -> str | None:
    """Return the message id in a report's address, as `m`, or None."""
    with suppress(ValueError):
        ids = [value for name, value in parsed(urlsplit(url).query) if name == "m"]
        return ids[0] if len(ids) == 1 else None


def instant(text: object) -> datetime | None:
    """Return an instant as a carrier tells it (ISO 8601, with an offset), or None."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else None
    except (TypeError, ValueError, OverflowError):
        return None


def reference(value: object) -> str | None:
    """Return a carrier's reference if it can be stored, otherwise None."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_REFERENCE and value.isprintable()
    return value if usable else None


def _uuid(given):
    """Return a message's id as `send` was given it, or None if it cannot be one."""
    with suppress(ValueError):
        return str(uuid.UUID(given)) if given else None


def balance(amount: object, currency: object) -> str | None:
    """Return a balance as text, as the carrier tells it; None if it tells none."""
    words = f"{amount} {currency}"
    return words if re.fullmatch(r"-?\d[\d.]{0,19} [A-Z]{3}", words, re.ASCII) else None


def _retry_after(text, longest):
    """Return the seconds that a Retry-After header asks for (RFC 9110), or None."""
    try:
        if re.fullmatch("[0-9]+", text.strip()):
            seconds = int(text)
        else:
            at = parsedate_to_datetime(text)  # without a zone, it is in UTC
            seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0), longest)
