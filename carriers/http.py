"""Common parts of carriers over HTTP: connections, deadlines, answers and callbacks."""

import base64
import http.client
import io
import json
import re
import threading
import time
import uuid
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from carriers import (
    CONNECT_TIMEOUT,
    Carrier,
    CarrierError,
    Codes,
    News,
    NotGenuine,
    Receipt,
    Shown,
    opt_outs,
    silence,
)
from carriers.tls import reason_of, trusted

LONGEST_PAUSE = 3600  # seconds; a longer Retry-After is cut to this
LONGEST_REFERENCE = 255  # characters
RECENTLY = 600  # seconds
SKEW = 300  # seconds that a carrier's clock may be ahead
MOST_FIELDS = 200  # in a callback; the carriers' have some twenty
STATUSES = Codes(account={401, 402, 403, 404}, too_fast={429})


class Answer(NamedTuple):
    """A server's answer; `body` may be incomplete."""

    method: str  # of the request
    status: int
    body: bytes
    retry_after: float | None  # seconds

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def unclear(self) -> bool:
        """Whether the text may have been taken, if the carrier itself says nothing in the body.

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
        return value if isinstance(value, dict) else {}


class HttpCarrier(Carrier):
    """A carrier over HTTP: a pool of connections to one server.

    Its certificate must be signed by an authority that the machine or certifi trusts. Redirects are
    not followed and nothing is sent again. Proxies from the environment are not used: they would
    see texts and numbers.
    """

    longest_answer = 64 * 1024  # bytes; the rest is not read
    longest_pause = LONGEST_PAUSE
    reasons: dict[int, str]  # what the codes of reports mean
    # The final statuses of reports
    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __init__(self, base: SplitResult, headers: dict, concurrency: int, timeout: float):
        silence("urllib3")
        self._base, self._concurrency, self._timeout = base, concurrency, timeout
        self.headers = {"Accept": "application/json"} | headers
        self._lock = threading.Lock()
        self._pool = None
        self._served_until = 0.0  # by time.monotonic()

    def ask(self, method: str, path: str, **request: object) -> Answer:
        """Return the answer to one request; `path` is appended to the base's.

        `request` are arguments of urllib3's `request`. Raise CarrierError if no answer comes in
        time: in doubt if it was a POST and the server was reached.
        """
        import urllib3  # not at the top: the web sends no requests and should not pay for it

        base = self._base.path.rstrip("/")
        try:
            response = self._connections().request(
                method, base + path, redirect=False, preload_content=False, **request
            )
        except urllib3.exceptions.HTTPError:
            reason = f"{self.title} gave no answer"
            raise CarrierError(reason, in_doubt=method == "POST", silent=True) from None
        try:
            content = response.read(self.longest_answer)
        except urllib3.exceptions.HTTPError:
            content = b""
        finally:
            response.close()  # no effect on the connection if the whole answer was read
        pause = _retry_after(response, self.longest_pause)
        return Answer(method, response.status, content, pause)

    def post(self, path: str, form: dict[str, object]) -> Answer:
        """Return the answer to a form."""
        return self.ask("POST", path, fields=form, encode_multipart=False)

    def post_json(self, path: str, content: object, **headers: str) -> Answer:
        """Return the answer to a JSON object."""
        headers = self.headers | {"Content-Type": "application/json"} | headers
        return self.ask("POST", path, body=json.dumps(content), headers=headers)

    def refusal(
        self, answer: Answer, code: object = None, reason: str = "", **flags: object
    ) -> CarrierError:
        """Return the CarrierError that the carrier's own code means; the HTTP status without one.

        An answer without a code is `silent`, unless the flags say that it is the carrier's own. A
        code of the account that may be about the recipient's country is not about the account if
        the server took a text from this FROM in the last ten minutes.
        """
        flags["retry_after"] = answer.retry_after
        if code is None:
            flags = {"in_doubt": answer.unclear, "silent": True} | flags
            reason = f"{self.title}: no usable answer (HTTP {answer.status})"
            return STATUSES.error(reason, answer.status, **flags)
        of_country = code in self.codes.no_route and code in self.codes.account
        if of_country and time.monotonic() < self._served_until:
            return CarrierError(reason, no_route=True)
        return self.codes.error(reason, code, opted_out=code == self.opted_out, **flags)

    def note_served(self) -> None:
        """Note that the server took a text from this FROM."""
        self._served_until = time.monotonic() + RECENTLY

    def explained(self, code: int, otherwise: str) -> str:
        """Return what a code of a report means, in words for an operator."""
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
    ) -> list[News]:
        """Return what a callback about a text says, made at an instant.

        `ref` is the carrier's reference, and `given` the id that `send` was given, if the carrier
        repeats it; with it, a status that is not the last word shows that the carrier has the text.
        `ids` name the report.
        """
        code = int(code) if re.fullmatch(r"[1-9]\d{0,6}", code, re.ASCII) else None
        told, id = [], _uuid(given)
        of = {"message_id": id, "of_part": of_part} if id else {}
        if reference(ref) and status in self.delivered:
            told = [Receipt(ref, True, **of)]
        elif reference(ref) and status in self.failed:
            words = f"{self.explained(code, status)} (error {code})" if code else status
            told = [Receipt(ref, False, f"{self.title}: {words}", **of)]
        elif reference(ref) and status and of:
            told = [Shown(ref, **of)]
        is_opt_out = code is not None and code == self.opted_out
        return told + (opt_outs.reported(recipient, at, ids) if is_opt_out else [])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _connections(self):
        """Return the pool, made by the first call."""
        import urllib3

        with self._lock:
            if self._pool is None:
                tls = {"ssl_context": trusted()} if self._base.scheme == "https" else {}
                connect = min(CONNECT_TIMEOUT, self._timeout)
                self._pool = urllib3.connection_from_url(
                    f"{self._base.scheme}://{self._base.netloc}",
                    headers=self.headers,
                    maxsize=self._concurrency,
                    timeout=urllib3.Timeout(self._timeout, connect),
                    retries=False,
                    **tls,
                )
                self._pool.ConnectionCls = _connection(self._pool.ConnectionCls, self.title)
            return self._pool


def _connection(kind, name):
    """Return a class of connections that tell "not reached" from "no answer" and keep deadlines.

    urllib3's errors are not enough: a handshake that fails raises ReadTimeoutError, ProtocolError
    or SSLError, as an answer that is lost does, after which the text is in doubt.
    """

    class Connection(kind):
        response_class = _Response

        def connect(self):
            try:
                super().connect()
            except Exception as error:  # of whatever kind: no request was sent
                reason = f"{name} cannot be reached: {reason_of(error)}"
                raise CarrierError(reason, unreached=True) from None

    return Connection


class _Response(http.client.HTTPResponse):
    """An answer that arrives as a whole within the socket's timeout, or not at all."""

    def __init__(self, connection, *args, **kwargs):
        super().__init__(connection, *args, **kwargs)
        self.fp = io.BufferedReader(_Deadline(self.fp.detach(), connection))

    def begin(self):
        """Read the status and the headers; skip interim answers (RFC 9110, section 15.2).

        http.client takes a 102 or 103 for the final answer. The final answer would then be read as
        the one to the next text.
        """
        super().begin()
        while 101 < self.status < 200:
            self.headers = None
            super().begin()


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


def parsed(query: str) -> list[tuple[str, str]]:
    """Return the fields of a callback's form or query; raise ValueError if there are too many."""
    return parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)


def check_age(timestamp: str, oldest: float) -> None:
    """Raise NotGenuine unless a callback's timestamp is in the last `oldest` seconds."""
    at = int(timestamp) if re.fullmatch(r"\d{1,12}", timestamp, re.ASCII) else 0
    if not -SKEW <= time.time() - at <= oldest + SKEW:
        raise NotGenuine


def named(url: str) -> str | None:
    """Return the id of the message that the address of a report names as `m`, or None."""
    with suppress(ValueError):
        ids = [value for name, value in parsed(urlsplit(url).query) if name == "m"]
        return ids[0] if len(ids) == 1 else None


def reference(value: object) -> str | None:
    """Return a carrier's reference if it can be stored, otherwise None."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_REFERENCE and value.isprintable()
    return value if usable else None


def _uuid(given):
    """Return the id of a message as `send` was given it, or None if it cannot be one."""
    with suppress(ValueError):
        return str(uuid.UUID(given)) if given else None


def balance(amount: object, currency: object) -> str | None:
    """Return a balance in words, as a carrier tells it; None if it tells none."""
    words = f"{amount} {currency}"
    return words if re.fullmatch(r"-?\d[\d.]{0,19} [A-Z]{3}", words, re.ASCII) else None


def _retry_after(response, longest):
    """Return the seconds that an answer's Retry-After header asks for, or None."""
    import urllib3

    try:
        return urllib3.Retry(retry_after_max=longest).get_retry_after(response)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None
