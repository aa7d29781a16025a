"""What the servers have in common that play carriers: real HTTP on loopback, with answers that a
test sets. Those of the carriers are in `tests/support/kits/`.

There are no assertions to rewrite: PYTEST_DONT_REWRITE lets tests import the classes as well.
"""

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections import namedtuple
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


def pytest_configure(config):
    """Let Apprise load its plugins, one of which imports a module that Python 3.13 removed."""
    old = "ignore:'imghdr' is deprecated:DeprecationWarning"
    config.addinivalue_line("filterwarnings", old)


Request = namedtuple("Request", "method path headers body")


class Answer(
    namedtuple(
        "Answer",
        "status body headers length pause interim",
        defaults=(200, b"", {}, None, 0, ()),
    )
):
    """A server's answer; `length` overrides its Content-Length.

    With a `pause`, the body is sent a byte at a time, with that many seconds between. `interim`
    statuses are sent first.
    """


DRIP = "send a byte of the answer every tenth of a second"
HANG = "say nothing until the server is closed"
HANG_UP = "close the connection without an answer"


class CarrierServer(ThreadingHTTPServer):
    """Take texts; answer with `answers[number]` or else `answer`, if there is one.

    `texts` lists the (number, text) pairs and `requests` the requests, in the order of arrival.
    `asked` lists the GETs. `connections` counts the connections. An answer takes `delay` seconds,
    and is `dated` otherwise than now, if that is set.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.requests, self.asked, self.texts, self.answers = [], [], [], {}
        self.answer = None
        self.delay = self.connections = 0
        self.dated = None
        self.closing = threading.Event()
        self._connections = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.005,))
        self._thread.start()

    def take(self, request):
        """Record the text in `request` and return the answer to it."""
        if request.method == "GET":
            self.asked.append(request)
            return self.answer or self.told(request)
        number, text = self.read(request)
        self.requests.append(request)
        self.texts.append((number, text))
        self.closing.wait(self.delay)
        return self.answers.get(number) or self.answer or self.yes(len(self.texts))

    def about(self, request, answer):
        """Return an answer with what it repeats of the request."""
        return answer

    def process_request(self, request, client_address):
        self.connections += 1
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Say nothing: in some tests clients give up."""

    def hang_up(self):
        """Close the connections that clients keep open."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.hang_up()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.respond(b"")

    def do_POST(self):
        self.respond(self.rfile.read(int(self.headers["Content-Length"])))

    def respond(self, body):
        answer = self.server.take(Request(self.command, self.path, dict(self.headers), body))
        if answer == HANG:
            self.server.closing.wait()
        if answer in (HANG, HANG_UP):
            self.close_connection = True
            return
        if answer == DRIP:
            self.drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000, 0.1)
            return
        content = (
            answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        )
        for status in answer.interim:
            self.send_response_only(status)
            self.send_header("Link", "</style.css>")
            self.end_headers()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", answer.length or len(content))
        self.end_headers()
        if answer.pause:
            self.drip(content, answer.pause)
        else:
            self.wfile.write(content)
        self.close_connection = answer.length is not None

    def drip(self, content, pause):
        self.close_connection = True
        for byte in content:
            if self.server.closing.wait(pause):
                return
            self.wfile.write(bytes([byte]))

    def date_time_string(self, timestamp=None):
        dated = self.server.dated
        return super().date_time_string(timestamp) if dated is None else dated

    def log_message(self, *args):
        """Keep quiet."""


def self_signed(folder, name="localhost", *, expired=False):
    """Return a server's TLS context for a host name, and its self-signed certificate."""
    openssl = shutil.which("openssl") or pytest.skip("there is no openssl to make a certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=" + name]
    files = ["-keyout", key, "-out", certificate, "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*make, *files], check=True, capture_output=True)
    if expired:
        again = ["-in", certificate, "-signkey", key, "-days", "-1", "-out", certificate]
        subprocess.run([openssl, "x509", *again], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@pytest.fixture
def asked_hosts(monkeypatch):
    """The names of hosts that are looked up, in vain."""
    hosts = []

    def look_up(host, *_, **__):
        hosts.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return hosts


def playing(kind):
    server = kind()
    yield server
    server.close()


def served(kind):
    """Return a fixture: a server of this kind, for one test."""

    @pytest.fixture
    def server():
        yield from playing(kind)

    return server
