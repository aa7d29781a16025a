"""An SMPP peer with answers and faults that a test sets: a real server on loopback.

It has its own code for PDUs, so that it shares no mistake with the service. There are no assertions
to rewrite: PYTEST_DONT_REWRITE lets tests import the classes as well.
"""

import socket
import socketserver
import struct
import threading
from collections import namedtuple
from contextlib import suppress

from carrier_servers import HANG as SILENCE
from carrier_servers import HANG_UP, served
from phone import show

BIND_TRANSMITTER, BIND_TRANSCEIVER, SUBMIT_SM, DELIVER_SM = 2, 9, 4, 5
UNBIND, ENQUIRE_LINK, GENERIC_NACK, RESPONSE = 6, 0x15, 0x80000000, 0x80000000

Login = namedtuple("Login", "command system_id password system_type version")
Part = namedtuple(
    "Part",
    "source_ton source_npi source dest_ton dest_npi to esm_class validity receipt coding octets",
)


def pdu(command, status=0, sequence=1, body=b""):
    return struct.pack(">4I", 16 + len(body), command, status, sequence) + body


def delivery(text, source="12125550123", *, ton=1, esm_class=0, coding=0, tlvs=()):
    """Return the body of a deliver_sm."""
    body = b"\0" + bytes([ton, 1]) + source.encode() + b"\0" + b"\1\1" + b"15005550006\0"
    body += bytes([esm_class, 0, 0]) + b"\0\0" + bytes([0, 0, coding, 0, len(text)]) + text
    return body + b"".join(struct.pack(">HH", tag, len(value)) + value for tag, value in tlvs)


def split(body, layout):
    """Return the fields of a body: `s` a string with NUL, `b` a byte, `t` a text with length."""
    for kind in layout:
        if kind == "s":
            value, _, body = body.partition(b"\0")
            yield value.decode("latin-1")
        else:
            value, body = body[0], body[1:]
            if kind == "t":
                value, body = body[:value], body[value:]
            yield value


class SmppPeer(socketserver.ThreadingTCPServer):
    """Take texts; `answer` is a command_status, SILENCE, HANG_UP or a function of a part.

    It comes after `delay` seconds.

    `logins`, `parts` and `unbinds` record requests in order, and `most` the highest number of parts
    that waited for their answers at once. A test may set `bind_status`, `most_binds`, `enquiries`
    (answer the client's enquire_link) and `accepts` (answer its unbind).
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128
    answer = 0

    def __init__(self, tls=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.tls = tls
        self.bind_status, self.most_binds, self.delay = 0, 1000, 0
        self.enquiries = self.accepts = True
        self.logins, self.pdus = [], []
        self.parts = self.requests = []
        self.unbinds = self.waiting = self.most = 0
        self.lock = threading.Lock()
        self.sessions = []
        self._enquiry = threading.Timer(0, self.enquire)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.005,))
        self._thread.start()

    def message_id(self, count):
        return f"id-{count}"

    def greet(self, session):
        """Deliver what waits for a newly bound session: nothing."""

    @property
    def address(self):
        return f"localhost:{self.server_address[1]}"

    @property
    def url(self):
        scheme = "smpps" if self.tls else "smpp"
        return f"{scheme}://user:s3cret@{self.address}/15005550006"

    @property
    def texts(self):
        """The (number, text) pairs, if parts of one text came after each other."""
        texts = []
        for part in self.parts:
            header = part.octets[:6] if part.esm_class else b""
            before = texts.pop()[1] if header and header[5] > 1 else ""
            text = before + show(part.octets[len(header) :], part.coding)
            texts.append((f"+{part.to}", text))
        return texts

    @property
    def bound(self):
        return [session for session in self.sessions if session.bound]

    def enquire(self):
        """Probe all clients ten times a second until the peer is closed."""
        for session in self.bound:
            session.write(pdu(ENQUIRE_LINK, 0, 77))
        self._enquiry = threading.Timer(0.1, self.enquire)
        self._enquiry.daemon = True
        self._enquiry.start()

    def handle_error(self, request, client_address):
        """Say nothing: in some tests clients give up."""

    def close(self):
        self._enquiry.cancel()
        self.shutdown()
        self._thread.join()
        for session in self.sessions:
            session.hang_up()
        self.server_close()


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        peer = self.server
        self.bound, self.parts = False, 0
        self.guard = threading.Lock()
        with suppress(OSError):
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if peer.tls:
                self.request = peer.tls.wrap_socket(self.request, server_side=True)
            peer.sessions.append(self)
            while header := self.read(16):
                length, command, status, sequence = struct.unpack(">4I", header)
                self.take(command, status, sequence, self.read(length - 16))
        self.bound = False

    def finish(self):
        self.request.close()

    def read(self, count):
        found = b""
        while len(found) < count:
            more = self.request.recv(count - len(found))
            if not more:
                return b""
            found += more
        return found

    def write(self, octets):
        with self.guard, suppress(OSError):
            self.request.sendall(octets)

    def hang_up(self):
        with suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def deliver(self, body, sequence=1):
        self.write(pdu(DELIVER_SM, 0, sequence, body))

    def take(self, command, status, sequence, body):
        peer = self.server
        peer.pdus.append((command, status, sequence, body))
        if command in (BIND_TRANSMITTER, BIND_TRANSCEIVER):
            system_id, password, system_type, version = list(split(body, "sssb"))
            with peer.lock:
                peer.logins.append(Login(command, system_id, password, system_type, version))
                if peer.bind_status == SILENCE:
                    return
                status = 0x0D if len(peer.bound) >= peer.most_binds else peer.bind_status
                self.bound = status == 0
            self.write(pdu(command | RESPONSE, status, sequence, b"peer\0" if not status else b""))
            if self.bound:
                peer.greet(self)
        elif command == SUBMIT_SM:
            fields = list(split(body, "sbbsbbsbbbssbbbbt"))
            part = Part(*fields[1:8], *fields[11:13], fields[14], fields[16])
            self.parts += 1
            with peer.lock:
                peer.parts.append(part)
                peer.waiting += 1
                peer.most = max(peer.most, peer.waiting)
                count = len(peer.parts)
            if peer.delay:
                threading.Timer(peer.delay, self.reply, (part, sequence, count)).start()
            else:
                self.reply(part, sequence, count)
        elif command == UNBIND:
            peer.unbinds += 1
            if peer.accepts:
                self.write(pdu(UNBIND | RESPONSE, 0, sequence))
        elif command == ENQUIRE_LINK and peer.enquiries:
            self.write(pdu(ENQUIRE_LINK | RESPONSE, 0, sequence))

    def reply(self, part, sequence, count):
        peer = self.server
        with peer.lock:
            peer.waiting -= 1
        status = peer.answer(part) if callable(peer.answer) else peer.answer
        if status == HANG_UP:
            self.hang_up()
        elif status != SILENCE:
            body = b"" if status else peer.message_id(count).encode() + b"\0"
            self.write(pdu(SUBMIT_SM | RESPONSE, status, sequence, body))


peer = served(SmppPeer)
