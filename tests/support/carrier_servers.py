"""Carriers for tests: real HTTP servers on loopback with answers that a test sets.

There are no assertions to rewrite: PYTEST_DONT_REWRITE lets tests import the classes as well.
"""

import base64
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections import namedtuple
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode

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
    `asked` lists the GETs. `connections` counts the connections. An answer takes `delay` seconds.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.requests, self.asked, self.texts, self.answers = [], [], [], {}
        self.answer = None
        self.delay = self.connections = 0
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

    def log_message(self, *args):
        """Keep quiet."""


class TwilioServer(CarrierServer):
    """Play Twilio's messages and account; `messages` is its list, the newest first."""

    sid, token, sender = "AC" + "5" * 32, "a token: /?#@&+%é", "+15005550006"
    login = (sid, token)
    page_size = 2

    def __init__(self):
        super().__init__()
        self.messages, self.status = [], "active"

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
        login = base64.b64encode(":".join(self.login).encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            return refusal(20003, 401)
        if f"/2010-04-01/Accounts/{self.sid}" not in request.path:
            return refusal(20404, 404)
        if request.method == "POST" and answer[0] == 201 and isinstance(answer.body, dict):
            self.list(request, answer.body)
        return answer

    def list(self, request, answer):
        """Add a text to the list of messages."""
        number, text = self.read(request)
        message = {"to": number, "body": text, "from": self.sender, "status": "sent"}
        dates = {"date_created": format_datetime(datetime.now(UTC))}
        self.messages.insert(0, message | dates | {"sid": answer.get("sid")})

    def yes(self, count):
        return Answer(201, {"sid": f"SM{count:032x}", "status": "queued", "error_code": None})

    def told(self, request):
        path, _, query = request.path.partition("?")
        if not path.endswith("/Messages.json"):
            return Answer(200, {"sid": self.sid, "status": self.status})
        query = {name: values[0] for name, values in parse_qs(query).items()}
        listed = [each for each in self.messages if each["to"] == query.get("To", each["to"])]
        first = int(query.get("Page", 0)) * self.page_size
        more = listed[first + self.page_size :]
        query = urlencode(query | {"Page": int(query.get("Page", 0)) + 1, "PageToken": "PASM1"})
        page = {
            "messages": listed[first : first + self.page_size],
            "next_page_uri": f"{path}?{query}" if more else None,
        }
        return Answer(200, page)


class VonageServer(CarrierServer):
    """Play Vonage's `POST /sms/json`, whose yes or no is in the body of a 200."""

    key, secret, sender = "abcd1234", "s3cret", "15005550006"

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"vonage://{self.key}:{self.secret}@{self.sender}?base_url=http://{self.address}"

    def read(self, request):
        form = parse_qs(request.body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        ((number,), (text,)) = form["to"], form["text"]
        assert (form["api_key"], form["api_secret"]) == ([self.key], [self.secret])
        return f"+{number}", text

    def yes(self, count):
        return verdict({"status": "0", "message-id": f"0A{count:014X}"})

    def told(self, request):
        return Answer(200, {"value": 10.28, "autoReload": False})


class WebhookServer(CarrierServer):
    """Play the operator's webhook."""

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"webhook+http://{self.address}/texts?secret=s3cret"

    def read(self, request):
        body = json.loads(request.body)
        return body["to"], body["message"]

    def yes(self, count):
        return Answer(202, {"reference": f"ref-{count}"})


class AppriseServer(WebhookServer):
    """Play a carrier for Apprise's json:// plugin."""

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"json://{self.address}/texts?:to={{to}}"

    def yes(self, count):
        return Answer()


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


def verdict(*parts):
    """Return an answer of Vonage's: an object for each part of a text."""
    return Answer(200, {"message-count": str(len(parts)), "messages": list(parts)})


def refusal(code, status=400, headers=None):
    """Return a refusal of Twilio's, with the number and the text in its words."""
    words = f"Error {code}: +12125550123 said 'attack at dawn'"
    more = f"https://www.twilio.com/docs/errors/{code}"
    body = {"code": code, "message": words, "more_info": more, "status": status}
    return Answer(status, body, headers or {})


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


twilio_server = served(TwilioServer)
vonage_server = served(VonageServer)
webhook_server = served(WebhookServer)
apprise_server = served(AppriseServer)
