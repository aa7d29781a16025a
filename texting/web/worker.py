"""gunicorn's gevent worker, with bounds on the time that a client takes, and its log."""

import contextlib
import logging
import math
import socket
import ssl
import time
from functools import partial
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.http import errors, message
from gunicorn.http.body import ChunkedReader
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import Unreader
from gunicorn.workers.ggevent import GeventWorker
from werkzeug import exceptions
from werkzeug.test import create_environ, run_wsgi_app

from texting import logs
from texting.settings import VERSION, load_or_exit
from texting.web.bodies import BadRequest
from texting.web.requests import MAX_BODY, REFUSED

MAX_HEAD = 16 * 1024  # bytes of the line and the fields of a request
BODY_TIMEOUT = 10  # seconds for a body to arrive
SEND_TIMEOUT = 30  # seconds for a client to take an answer
UNSENT = 64 * 1024  # bytes of an answer that the system holds for a client
LINGER = 2  # seconds for a client to read an answer before its connection closes
PREMATURE = "Ignored premature client disconnection"  # and, in gunicorn's log, what it had sent

REFUSALS = {
    errors.LimitRequestLine: (414, "The address is too long."),
    errors.LimitRequestHeaders: (431, "The headers are too large, or too many."),
    errors.ExpectationFailed: (417, "No expectation but 100-continue can be met."),
    errors.UnsupportedTransferCoding: (501, "No transfer coding but chunked is understood."),
}
"""What the application answers to gunicorn's errors; to any other error of a client, 400."""


class Request(message.Request):
    """Refuse a head of more than MAX_HEAD bytes, and read little more of it than that.

    gunicorn bounds the line, each field and their number: together, ten times as much.
    """

    def read_into(self, unreader: Unreader, buf: bytearray, stop: bool = False) -> None:
        super().read_into(unreader, buf, stop)
        if len(buf) > MAX_HEAD and b"\r\n\r\n" not in buf[:MAX_HEAD]:
            raise errors.LimitRequestHeaders("")

    def parse_headers(self, data: bytes, from_trailer: bool = False) -> list[tuple[str, str]]:
        line = f"{self.method} {self.uri} HTTP/1.1\r\n"
        if len(line) + len(data) + len(b"\r\n\r\n") > MAX_HEAD:
            raise errors.LimitRequestHeaders("")
        return super().parse_headers(data, from_trailer)


RequestParser.mesg_class = Request


class Deadline:
    """Read a request's body until BODY_TIMEOUT, or raise TimeoutError.

    The connection closes unless the body was read to its end: the next request would begin at an
    unknown place.
    """

    def __init__(self, request: Any):
        self.request, self.reader = request, request.body.reader
        self.ends_at = time.monotonic() + BODY_TIMEOUT
        self.chunked = isinstance(self.reader, ChunkedReader)
        if self.chunked or self.reader.length > MAX_BODY:
            request.force_close()

    def read(self, size: int) -> bytes:
        try:
            with gevent.Timeout(max(0, self.ends_at - time.monotonic()), TimeoutError):
                data = self.reader.read(size)
        except Exception:
            self.request.force_close()
            raise
        if self.chunked and len(data) < size:
            self.request.must_close = False
        return data


class Server(StreamServer):
    """Accept more connections per loop iteration as more are open.

    gunicorn accepts one, so that a worker with few connections, whose iterations are short, gets
    more of the new ones. But in one iteration every open connection may have a request answered:
    beside hundreds, a new one would wait for seconds. The root keeps the workers' shares even. With
    gevent's usual 100, a text beside a hundred clients with big heads took 19 s instead of 4.
    """

    @property
    def max_accept(self) -> int:
        return max(1, math.isqrt(len(self.pool)))


class Worker(GeventWorker):
    """Bound the time that a client takes for a body and for an answer."""

    def server_class(self, listener: Any, spawn: Pool, **others: Any) -> Server:
        """Make the server; gunicorn calls this by the name of a class."""
        tls = {"ssl_context": others["ssl_context"]} if self.cfg.is_ssl else {}
        return Server(listener, partial(self.handle, listener), spawn=spawn, **tls)

    def handle(self, listener: Any, client: socket.socket, addr: Any) -> None:
        # Otherwise the system buffers megabytes for a client that does not read: 750 MB for 200
        # that ask for /docs and read nothing, in place of 26
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)
        # The client's socket has the same name as the listener, which a reload may have closed
        super().handle(client, client, addr)

    def handle_request(self, listener_name: Any, req: Any, sock: socket.socket, addr: Any) -> None:
        sock.settimeout(SEND_TIMEOUT)
        req.body.reader = Deadline(req)
        try:
            super().handle_request(listener_name, req, sock, addr)
            gevent.sleep(0)  # a client that sends one request after another waits its turn
        except TimeoutError:
            raise StopIteration from None
        except StopIteration:
            linger(sock)
            raise

    def handle_error(self, req: Any, client: socket.socket, addr: Any, exc: BaseException) -> None:
        """Have the application answer in place of gunicorn, whose errors are HTML."""
        environ = create_environ() | {REFUSED: error_of(exc)}
        body, status, headers = run_wsgi_app(self.wsgi, environ)
        headers["Connection"] = "close"
        answer = f"HTTP/1.1 {status}\r\n{headers}".encode("latin-1") + b"".join(body)
        with contextlib.suppress(OSError):
            client.sendall(answer)
        exc.__traceback__ = None  # its frames hold the head: 200 KB while the client lingers
        linger(client)


def error_of(exc: BaseException) -> Exception:
    """Return what the application raises for an error that gunicorn found.

    gunicorn's own words repeat what the client sent.
    """
    if type(exc) in REFUSALS:
        status, words = REFUSALS[type(exc)]
        return exceptions.default_exceptions[status](words)
    if isinstance(exc, (errors.ParseException, ssl.SSLError)):
        return BadRequest("request: is not HTTP as RFC 9112 defines it")
    return exc if isinstance(exc, Exception) else exceptions.InternalServerError()


def linger(sock: socket.socket) -> None:
    """Close our side, and let the client read its answer.

    Closing at once while the client still sends would reset the connection, and the answer would
    be lost (RFC 9112, 9.6).
    """
    with gevent.Timeout(LINGER, False), contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            gevent.sleep(0.01)


def without_request(record: logging.LogRecord) -> bool:
    """Keep what a client sent out of the log: half a head may hold a key."""
    if str(record.msg).startswith(PREMATURE):
        record.msg, record.args = PREMATURE, ()
    return True


class Log(Logger):
    """Write gunicorn's lines like all others, after one with the version of the service."""

    def setup(self, cfg: Config) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.addFilter(without_request)
            handler.setFormatter(logs.formatter(load_or_exit().log_format))
        self.info("Text Message Sending Service %s", VERSION)
