"""Common parts of carriers over HTTP: connections, deadlines, URLs and answers."""

import base64
import http.client
import io
import json
import threading
import time
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from carriers import CONNECT_TIMEOUT, CarrierError, silence
from carriers.tls import trusted

LONGEST_ANSWER = 64 * 1024  # bytes; the rest is not read
LONGEST_PAUSE = 3600  # seconds; a longer Retry-After is cut to this
LONGEST_REFERENCE = 255  # characters
RECENTLY = 600  # seconds
MOST_FIELDS = 200  # in a callback; the carriers' have some twenty
SENDER = r"\d{3,8}|(?=.*[A-Za-z])[\w &+-]{1,11}"  # a short code or a name


class Answer(NamedTuple):
    """A server's answer; `body` may be incomplete."""

    status: int
    body: bytes
    retry_after: float | None  # seconds

    def json(self) -> dict:
        """Return the JSON object in the body, or an empty object."""
        try:
            # A wrong encoding, such as Latin-1 in a reason, must not hide the rest.
            value = json.loads(self.body.decode(json.detect_encoding(self.body), "replace"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class Client:
    """A pool of connections to one server.

    Its certificate must be signed by an authority that the machine or certifi trusts. Redirects are
    not followed and nothing is sent again. Proxies from the environment are not used: they would
    see texts and numbers.
    """

    def __init__(self, name: str, base: SplitResult, concurrency: int, timeout: float):
        silence("urllib3")
        self._name = name
        self._base = base
        self._path = base.path.rstrip("/")
        self._concurrency, self._timeout = concurrency, timeout
        self._lock = threading.Lock()
        self._pool = None
        self._served_until = 0.0  # by time.monotonic()

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        headers: dict[str, str] | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; `path` is appended to the base's.

        Raise CarrierError if none comes in time: in doubt if it was a POST and the server was
        reached.
        """
        import urllib3  # not at the top: the web sends no requests and should not pay for it

        try:
            response = self._connections().urlopen(
                method, self._path + path, body, headers, redirect=False, preload_content=False
            )
        except urllib3.exceptions.HTTPError:
            raise CarrierError(
                f"{self._name} gave no answer", in_doubt=method == "POST", silent=True
            ) from None
        try:
            content = response.read(longest)
        except urllib3.exceptions.HTTPError:
            content = b""
        finally:
            response.close()  # no effect on the connection if the whole answer was read
        return Answer(response.status, content, _retry_after(response))

    def note_served(self) -> None:
        """Note that the server took a text from this sender."""
        self._served_until = time.monotonic() + RECENTLY

    def served_recently(self) -> bool:
        """Return whether the server took a text from this sender in the last ten minutes.

        If so, a refusal that may be about the recipient's country is not about the account.
        """
        return time.monotonic() < self._served_until

    def close(self) -> None:
        """Close the pooled connections."""
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
                    maxsize=self._concurrency,
                    timeout=urllib3.Timeout(connect=connect, read=self._timeout),
                    retries=False,
                    **tls,
                )
                self._pool.ConnectionCls = _connection(self._pool.ConnectionCls, self._name)
            return self._pool


def _connection(kind, name):
    """Return a class of connections that tell "not reached" from "no answer" and keep deadlines.

    urllib3's errors are not enough: an SSLError can come from the handshake or from the answer.
    """

    class Connection(kind):
        response_class = _Response

        def connect(self):
            try:
                super().connect()
            except Exception:  # of whatever kind: no request was sent
                raise CarrierError(f"{name} cannot be reached", unreached=True) from None

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


def account_url(url: str, options: set[str]) -> tuple[str, str, str, dict[str, str]]:
    """Return user, password, sender and options of `SCHEME://USER:PASSWORD@SENDER?OPTIONS`.

    Each may be percent-encoded. A `/{to}` after the sender is ignored. Raise ValueError if a part
    is missing or an option is not among `options`.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    parts, _, query = rest.partition("?")
    credentials, _, sender = parts.rpartition("@")
    user, password = map(unquote, credentials.partition(":")[::2])
    if not (user and password):
        raise ValueError(f"{scheme}://USER:PASSWORD@FROM lacks the user or the password")
    given = dict(parse_qsl(query, keep_blank_values=True))
    if given.keys() - options:
        raise ValueError(f"{scheme}://… takes no option but {', '.join(sorted(options))}")
    if not all(given.values()):
        raise ValueError(f"an option of {scheme}://… is empty")
    return user, password, unquote(sender.removesuffix("/{to}")), given


def base_url(url: str) -> SplitResult:
    """Return the parts of an address to which paths can be added; raise ValueError if invalid."""
    try:
        base = urlsplit(url)
        usable = base.scheme in ("http", "https") and base.hostname and base.port != 0
    except ValueError:
        usable = False
    if not usable or base.username is not None or base.query or base.fragment:
        raise ValueError("base_url must be an http:// or https:// address")
    return base


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header for HTTP Basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def reference(value: object) -> str | None:
    """Return a carrier's reference if it can be stored, otherwise None."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_REFERENCE and value.isprintable()
    return value if usable else None


def _retry_after(response):
    """Return the seconds that an answer's Retry-After header asks for, or None."""
    import urllib3

    try:
        return urllib3.Retry(retry_after_max=LONGEST_PAUSE).get_retry_after(response)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None
