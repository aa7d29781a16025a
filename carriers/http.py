"""What carriers over HTTP share: a pool of connections, time-outs, reading of URLs and answers."""

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

LONGEST_ANSWER = 64 * 1024  # bytes; what follows is not read
LONGEST_PAUSE = 3600  # seconds: no carrier's Retry-After holds messages back for longer
LONGEST_REFERENCE = 255  # characters


class Answer(NamedTuple):
    """What a server answered; `body` is as much of it as came."""

    status: int
    body: bytes
    retry_after: float | None  # seconds

    def json(self) -> dict:
        """Return the JSON object in the body, or an empty one."""
        try:
            # In whichever encoding: a reason in Latin-1 must not hide that there is one
            value = json.loads(self.body.decode(json.detect_encoding(self.body), "replace"))
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class Client:
    """A pool of connections to one server.

    Its certificate must be vouched for by an authority of the machine's or of certifi's. No
    redirect is followed, nothing is sent again, and proxies that the environment names are not
    used: they would see texts and numbers.
    """

    def __init__(self, name: str, base: SplitResult, concurrency: int, timeout: float):
        silence("urllib3")
        self._name = name
        self._base = base
        self._path = base.path.rstrip("/")
        self._concurrency, self._timeout = concurrency, timeout
        self._lock = threading.Lock()
        self._pool = None

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        headers: dict[str, str] | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> Answer:
        """Return the answer to one request; `path` is below the base's.

        Raise CarrierError where none comes in time: for a POST in doubt, if there was a connection.
        """
        import urllib3  # here and below: the web, which asks for nothing, does not pay for it

        try:
            response = self._connections().urlopen(
                method, self._path + path, body, headers, redirect=False, preload_content=False
            )
        except urllib3.exceptions.HTTPError:
            raise CarrierError(f"{self._name} gave no answer", in_doubt=method == "POST") from None
        try:
            content = response.read(longest)
        except urllib3.exceptions.HTTPError:
            content = b""
        finally:
            response.close()  # a connection whose answer was read whole is in the pool already
        return Answer(response.status, content, _retry_after(response))

    def close(self) -> None:
        """Close the connections that are kept."""
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
    """Return a class of connections that tell "not reached" from "no answer", and keep deadlines.

    urllib3's own errors do not: one that breaks off a TLS handshake can break off an answer, too.
    """

    class Connection(kind):
        response_class = _Response

        def connect(self):
            try:
                super().connect()
            except Exception:  # whatever went wrong, nothing has been asked yet
                raise CarrierError(f"{name} cannot be reached") from None

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

    Each may be percent-encoded. `/{to}` behind the sender changes nothing. Raise ValueError where
    a part is missing or an option is not one of `options`.
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
    """Return the parts of an address that paths can be added to; raise ValueError if it is none."""
    try:
        base = urlsplit(url)
        usable = base.scheme in ("http", "https") and base.hostname and base.port != 0
    except ValueError:
        usable = False
    if not usable or base.username is not None or base.query or base.fragment:
        raise ValueError("base_url is no http:// or https:// address")
    return base


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP's Basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def reference(value: object) -> str | None:
    """Return a carrier's reference if it can be stored, otherwise None."""
    usable = isinstance(value, str) and 0 < len(value) <= LONGEST_REFERENCE and value.isprintable()
    return value if usable else None


def _retry_after(response):
    """Return the seconds from now that an answer's Retry-After header asks for, or None."""
    import urllib3

    try:
        return urllib3.Retry(retry_after_max=LONGEST_PAUSE).get_retry_after(response)
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None
