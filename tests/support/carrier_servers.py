"""Carriers for tests: real HTTP servers on loopback that behave as they are told.

Load the fixtures with `pytest_plugins = ["carrier_servers"]`. There are no assertions to rewrite:
PYTEST_DONT_REWRITE lets tests import the classes as well.
"""

import base64
import json
import socket
import threading
from collections import namedtuple
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest


def pytest_configure(config):
    """Let Apprise load its plugins: one tries a module that Python 3.13 no longer has."""
    old = "ignore:'imghdr' is deprecated:DeprecationWarning"
    config.addinivalue_line("filterwarnings", old)


Request = namedtuple("Request", "path headers body")


class Answer(namedtuple("Answer", "status body headers length", defaults=(200, b"", {}, None))):
    """What a server answers; `length` is the Content-Length that it claims."""


HANG = "say nothing until the server is closed"
HANG_UP = "close the connection without an answer"


class CarrierServer(ThreadingHTTPServer):
    """Take texts; `answers[number]`, or else `answer`, is what a number's text is answered with.

    `texts` lists the (number, text) pairs that came, `requests` what they came in, in the order of
    arrival; `connections` counts what they came over. An answer takes `delay` seconds.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.requests, self.texts, self.answers = [], [], {}
        self.answer = None
        self.delay = self.connections = 0
        self.closing = threading.Event()
        self._connections = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def take(self, request):
        """Note the text in `request` and return the answer to it."""
        number, text = self.read(request)
        self.requests.append(request)
        self.texts.append((number, text))
        self.closing.wait(self.delay)
        return self.answers.get(number) or self.answer or self.yes(len(self.texts))

    def process_request(self, request, client_address):
        self.connections += 1
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Say nothing: a client that gave up is what some tests are about."""

    def hang_up(self):
        """Close the connections that clients keep."""
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

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.take(Request(self.path, dict(self.headers), body))
        if answer == HANG:
            self.server.closing.wait()
        if answer in (HANG, HANG_UP):
            self.close_connection = True
            return
        content = (
            answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        )
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", answer.length or len(content))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = answer.length is not None

    def log_message(self, *args):
        """Keep quiet."""


class TwilioServer(CarrierServer):
    """Play Twilio's `POST /2010-04-01/Accounts/{SID}/Messages.json`."""

    sid, token, sender = "AC" + "5" * 32, "a token: /?#@&+%é", "+15005550006"

    @property
    def base_url(self):
        return f"http://{self.address}"

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        token = "a%20token%3A%20%2F%3F%23%40%26%2B%25%C3%A9"
        return f"twilio://{self.sid}:{token}@{self.sender}?base_url={self.base_url}"

    def read(self, request):
        form = parse_qs(request.body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        ((number,), (text,)) = form["To"], form["Body"]
        return number, text

    def take(self, request):
        answer = super().take(request)
        login = base64.b64encode(f"{self.sid}:{self.token}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            return refusal(20003, 401)
        if not request.path.endswith(f"/2010-04-01/Accounts/{self.sid}/Messages.json"):
            return refusal(20404, 404)
        return answer

    def yes(self, count):
        return Answer(201, {"sid": f"SM{count:032x}", "status": "queued", "error_code": None})


class WebhookServer(CarrierServer):
    """Play a carrier that takes the JSON object which Apprise's json:// posts."""

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"json://{self.address}/texts?:to={{to}}"

    def read(self, request):
        body = json.loads(request.body)
        return body["to"], body["message"]

    def yes(self, count):
        return Answer()


def refusal(code, status=400, headers=None):
    """Answer as Twilio does where it refuses, with the number and the text in its words."""
    words = f"Error {code}: +12125550123 said 'attack at dawn'"
    more = f"https://www.twilio.com/docs/errors/{code}"
    body = {"code": code, "message": words, "more_info": more, "status": status}
    return Answer(status, body, headers or {})


@pytest.fixture
def twilio_server():
    server = TwilioServer()
    yield server
    server.close()


@pytest.fixture
def webhook_server():
    server = WebhookServer()
    yield server
    server.close()
