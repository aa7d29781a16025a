"""Common parts of carriers over HTTP: connections, deadlines, answers and callbacks."""

import base64
import http.client
import io
import json
import re
import threading
import time
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl

from carriers import CONNECT_TIMEOUT, Carrier, CarrierError, Codes, Receipt, opt_outs, silence
from carriers.tls import reason_of, trusted

LONGEST_PAUSE = 3600  # seconds; a longer Retry-After is cut to this
LONGEST_REFERENCE = 255  # characters
RECENTLY = 600  # seconds
MOST_FIELDS = 200  # in a callback; the carriers' have some twenty
STATUSES = Codes(for_good=(), account={401, 402, 403, 404}, too_fast={429})


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

    title: str  # the name in messages for an operator
    longest_answer = 64 * 1024  # bytes; the rest is not read
    longest_pause = LONGEST_PAUSE
    codes: Codes
    reasons: dict[int, str]  # what the codes of reports mean

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

    def refusal(self, answer: Answer, code: object, reason: str, **flags: object) -> CarrierError:
        """Return the CarrierError that the carrier's own code means.

        A code of the account that may be about the recipient's country is not about the account if
        the server took a text from this sender in the last ten minutes.
        """
        of_country = code in self.codes.no_route and code in self.codes.account
        if of_country and time.monotonic() < self._served_until:
            return CarrierError(reason, no_route=True)
        return self.codes.error(reason, code, retry_after=answer.retry_after, **flags)

    def no_verdict(self, answer: Answer, silent: bool = True) -> CarrierError:
        """Return the CarrierError that the HTTP status of an answer without a code means."""
        reason = f"{self.title}: no usable answer (HTTP {answer.status})"
        flags = {"retry_after": answer.retry_after, "in_doubt": answer.unclear, "silent": silent}
        return STATUSES.error(reason, answer.status, **flags)

    def note_served(self) -> None:
        """Note that the server took a text from this sender."""
        self._served_until = time.monotonic() + RECENTLY

    def explained(self, code: int, otherwise: str) -> str:
        """Return what a code of a report means, in words for an operator."""
        return self.reasons.get(code, otherwise)

    def _receipts(self, field, callbacks, secret, option, sender):
        """Return the field that asks for receipts; warn if there is no `secret` to verify them.

        `callbacks` is the address below which the carrier may call, if there is one; `option` is
        the URL's option for the secret. If `sender` is a name, warn that no replies can come.
        """
        self.from_name = bool(re.search("[A-Za-z]", sender))
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

    def _report(self, message_id, status, code, recipient, at=None, given=None, ids=()):
        """Return the receipts and opt-outs in a callback about a text, made at an instant.

        `given` is the id that `send` was given, if the carrier repeats it; `ids` name the report.
        The subclass has the final statuses in `delivered` and `failed`, and the code of a recipient
        who told the carrier to stop in `opted_out`.
        """
        code = int(code) if re.fullmatch(r"[1-9]\d{0,6}", code, re.ASCII) else None
        receipts = []
        if reference(message_id) and status in self.delivered:
            receipts = [Receipt(message_id, True, message_id=given)]
        elif reference(message_id) and status in self.failed:
            words = f"{self.explained(code, status)} (error {code})" if code else status
            reason = f"{self.title}: {words}"
            receipts = [Receipt(message_id, False, reason, message_id=given)]
        opted_out = opt_outs.reported(recipient, at, ids) if code == self.opted_out else []
        return receipts + opted_out

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


def reference(value: object) -> str | None:
    """Return a carrier's reference if it can be stored, otherwise None."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_REFERENCE and value.isprintable()
    return value if usable else None


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
