"""A gunicorn worker whose threads never wait for a client.

gunicorn's own threaded worker gives a connection to a thread with its first byte, and the thread
waits for the rest, and for the client to take the answer. Here one loop collects what clients send,
a thread gets whole requests, and the loop sends what a client does not take at once, as a proxy
that buffers does. Clients that are silent, slow or many cost memory alone.
"""

import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, BinaryIO

from gunicorn.http import get_parser
from gunicorn.http.errors import LimitRequestHeaders
from gunicorn.workers.gthread import TConn, ThreadWorker

from database import run_together

LONGEST_REQUEST = 128 * 1024  # bytes; the application refuses bodies half as long
REQUEST_TIMEOUT = 10  # seconds until a request that is not whole is taken as it is
LINGERING = 2  # seconds for a client to read the answer and close, before we do
SEND_TIMEOUT = 30  # seconds for a client to take an answer
MOST_UNSENT = 4 * 1024 * 1024  # bytes of answers that clients have not taken
PIECE = 64 * 1024  # bytes of a file that are read at once
BUSY = 0.05  # seconds that the main thread answers before another takes its place

FRAMING = re.compile(
    rb"\r\n(content-length|transfer-encoding|expect)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE
)


class Outbox:
    """What gunicorn takes for a client's socket: it keeps what is to be sent.

    A file is read piece by piece, each when the client has taken what was before.
    """

    def __init__(self):
        self.unsent = bytearray()
        self.path, self.at, self.end = None, 0, 0  # of a file

    def sendall(self, data: bytes) -> None:
        self.unsent += data

    send = sendall

    def sendfile(self, file: BinaryIO, offset: int, count: int) -> None:
        self.path, self.at, self.end = file.name, offset, offset + count

    def read_on(self) -> bytearray:
        """Return what is unsent, or the next piece of the file; nothing at the end of both."""
        if not self.unsent and self.at < self.end:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                self.unsent += file.read(min(PIECE, self.end - self.at))
            self.at += len(self.unsent)
        return self.unsent

    def recv(self, size: int) -> bytes:
        return b""

    def gettimeout(self) -> None:
        return None

    def setblocking(self, *ignored: Any) -> None:
        pass

    settimeout = shutdown = close = setblocking


class Connection(TConn):
    """A connection, what has come over it since its last request, and what is to be sent."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.socket, self.sock = self.sock, Outbox()
        self.initialized = self.data_ready = True  # no thread waits for more
        self.received = bytearray()
        self.length = None  # of the request, once its head is there
        self.chunked = self.cut_short = self.overread = self.lingering = False

    @property
    def unsent(self) -> bytearray:
        """Return what the client has not taken yet."""
        return self.sock.unsent

    def send(self) -> None:
        """Send as much as the client takes at once."""
        try:
            while unsent := self.sock.read_on():
                del unsent[: self.socket.send(unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the client is gone, or the file: nothing may follow what was cut
            self.sock, self.overread = Outbox(), True

    def close(self, graceful: bool = False) -> None:
        with suppress(OSError):
            self.socket.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield what has come, and note when a reader asks for more."""
        yield bytes(self.received)
        self.overread = True

    def is_whole(self) -> bool:
        """Say whether a request has come to its end, or to one that no more bytes can mend."""
        if self.length is None and not self._read_head():
            return False
        if len(self.received) > LONGEST_REQUEST or self.length > LONGEST_REQUEST:
            self.cut_short = len(self.received) < self.length or self.chunked
            return True
        if not self.chunked:
            return len(self.received) >= self.length
        ends = self.received.endswith(b"\r\n") or self.received.find(b"\r\n\r\n", self.length) > 0
        return ends and self._chunks_end()

    def _read_head(self):
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        fields = {name.lower(): value for name, value in FRAMING.findall(self.received, 0, end)}
        length = fields.get(b"content-length", b"").strip()
        self.length = end + 4 + (int(length) if re.fullmatch(rb"\d{1,18}", length) else 0)
        self.chunked = b"transfer-encoding" in fields
        if b"expect" in fields and len(self.received) == end + 4 and self.length < LONGEST_REQUEST:
            self.socket.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _chunks_end(self):
        """Say whether gunicorn's own parser wants no more of the body."""
        self.overread = False
        with suppress(Exception):  # the thread that handles the request will meet it again
            body = next(get_parser(self.cfg, self.pieces(), self.client)).body
            while body.read(65_536):
                pass
        return not self.overread


def drain(queue: deque) -> Iterator[Any]:
    """Yield what a queue has, and take it out; other threads may do the same."""
    with suppress(IndexError):
        while True:
            yield queue.popleft()


class Worker(ThreadWorker):
    """Collect requests in the main thread, and answer there, together, what was posted.

    Threads that pass Python's lock from CPU to CPU cost more than the work: with one for each
    request, 0.6 to 0.7 times as many messages are created a second. Other requests, which read and
    may take long, have a thread each. While the main thread is kept waiting, by the database say,
    another collects requests in its place, and gives what was posted to more threads.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.waiting = {}  # connections that no thread has, the longest waiting first
        self.look_at = 0.0  # by time.monotonic(), when connections are looked at for the next time
        self.posted = deque()  # connections with a request that no thread has begun to answer
        self.answered = deque()  # connections, each with whether it can be kept
        self.busy_since = None  # by time.monotonic(), while the main thread answers
        self.collecting = threading.Lock()  # held by the thread that collects requests

    def run(self) -> None:
        """Serve until told to stop."""
        threading.Thread(target=self.stand_in, daemon=True).start()
        with self.collecting:
            super().run()

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Collect requests, and answer what was posted."""
        super().wait_for_and_dispatch_events(0 if self.posted else timeout)
        if not self.posted:
            return
        self.busy_since = time.monotonic()
        self.collecting.release()
        try:
            self.answer_posted()
        finally:
            self.busy_since = None
            if not self.collecting.acquire(blocking=False):
                self.method_queue.defer(lambda: None)  # wakes the thread that stands in
                self.collecting.acquire()
        self.finish_answered()

    def stand_in(self) -> None:
        """Collect requests while the main thread has been answering for more than BUSY seconds."""
        while True:
            time.sleep(BUSY)
            since = self.busy_since
            if not since or time.monotonic() < since + BUSY:
                continue
            with self.collecting:
                while self.busy_since == since:
                    self.notify()
                    super().wait_for_and_dispatch_events(BUSY)
                    self.finish_answered()
                    if self.posted:
                        self.tpool.submit(self.answer_apart)
                    self.murder_keepalived()

    def answer_posted(self) -> None:
        """Answer on this thread what no other has begun to answer."""
        run_together(partial(self.answer, connection) for connection in drain(self.posted))

    def answer_apart(self) -> None:
        """Answer on another thread than that which collects requests."""
        self.answer_posted()
        self.method_queue.defer(self.finish_answered)

    def handle(self, conn: TConn) -> Any:
        """Answer a request, as far as the client takes the answer at once."""
        keep = super().handle(conn)
        if isinstance(conn, Connection):
            conn.send()
        return keep

    def answer(self, connection: Connection) -> None:
        """Answer a connection's request."""
        self.answered.append((connection, self.handle(connection)))

    def enqueue_req(self, conn: TConn) -> None:
        """Have a whole request answered."""
        if isinstance(conn, Connection) and conn.received.startswith(b"POST "):
            self.posted.append(conn)
        else:
            super().enqueue_req(conn)

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection; where there are too many, close the one that waits the longest."""
        if self.cfg.is_ssl:  # a handshake needs a thread
            super().accept(listener)
            return
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # another worker's, or gone again
            return
        except OSError:  # no more files may be open
            self.drop_longest_waiting(self.nr_conns * 9 // 10)
            return
        self.nr_conns += 1
        connection = Connection(self.cfg, client, address, listener.getsockname())
        self.wait_for(connection, REQUEST_TIMEOUT)
        self.drop_longest_waiting(self.worker_connections - 1)

    def wait_for(self, connection: Connection, seconds: float) -> None:
        """Wait so long for what this connection's client sends or does."""
        self._wait(connection, seconds, EVENT_READ, partial(self.receive, connection))

    def wait_to_send(self, connection: Connection, keep: bool) -> None:
        """Wait for a client to take an answer; where all leave too much, drop the first of them.

        Not this one, which may be long by itself.
        """
        self._wait(connection, SEND_TIMEOUT, EVENT_WRITE, partial(self.send, connection, keep))
        slow = [each for each in self.waiting if each.unsent]
        too_much = sum(len(each.unsent) for each in slow) - MOST_UNSENT
        for each in slow[:-1]:
            if too_much <= 0:
                return
            too_much -= len(each.unsent)
            self.drop(each)

    def _wait(self, connection, seconds, event, callback):
        connection.timeout = time.monotonic() + seconds
        self.waiting[connection] = None
        self.poller.register(connection.socket, event, callback)

    def stop_waiting_for(self, connection: Connection) -> None:
        """Leave this connection to a thread, or to its end."""
        self.poller.unregister(connection.socket)
        del self.waiting[connection]

    def drop(self, connection: Connection) -> None:
        """Close this connection at once."""
        self.stop_waiting_for(connection)
        self.nr_conns -= 1
        connection.close()

    def drop_longest_waiting(self, most: int) -> None:
        """Have no more than so many connections, as far as no thread has them."""
        while self.nr_conns > most and self.waiting:
            self.drop(next(iter(self.waiting)))

    def receive(self, connection: Connection, sock: socket.socket) -> None:
        """Take what a client sent; a whole request goes to a thread."""
        if connection not in self.waiting:  # dropped for one that was accepted just before
            return
        try:
            data = sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            self.drop(connection)
            return
        if connection.lingering or not (data or connection.received):
            if not data:
                self.drop(connection)
            return
        if not connection.received:
            connection.timeout = time.monotonic() + REQUEST_TIMEOUT
        connection.received += data
        if not data:
            connection.cut_short = True
            self.hand_over(connection)
        else:
            self.hand_over_if_whole(connection)

    def hand_over_if_whole(self, connection: Connection) -> None:
        """Give a thread the request, if it is whole; refuse headers without an end."""
        try:
            if connection.is_whole():
                self.hand_over(connection)
                return
        except OSError:  # while it was told to continue
            self.drop(connection)
            return
        if connection.length is None and len(connection.received) > LONGEST_REQUEST:
            self.stop_waiting_for(connection)
            error = LimitRequestHeaders("limit request headers size")
            self.handle_error(None, connection.sock, connection.client, error)
            self.finish(connection, keep=False)

    def hand_over(self, connection: Connection) -> None:
        """Give a thread what has come."""
        self.stop_waiting_for(connection)
        connection.overread = False
        connection.parser = get_parser(self.cfg, connection.pieces(), connection.client)
        self.enqueue_req(connection)

    def handle_request(self, req: Any, conn: TConn) -> bool:
        """Answer a request; after one that was cut short, nothing can be told apart any more."""
        if isinstance(conn, Connection) and conn.cut_short:
            req.force_close()
        return super().handle_request(req, conn)

    def finish_request(self, conn: TConn, fs: Future) -> None:
        """Finish with what a thread of its own has answered."""
        if isinstance(conn, Connection):
            self.finish(conn, not fs.cancelled() and not fs.exception() and fs.result())
        else:
            super().finish_request(conn, fs)

    def finish_answered(self) -> None:
        """Finish with what was answered together."""
        for connection, keep in drain(self.answered):
            self.finish(connection, keep)

    def send(self, connection: Connection, keep: bool, sock: socket.socket) -> None:
        """Send more of an answer, and finish with it at its end."""
        if connection not in self.waiting:  # dropped for another just before
            return
        connection.send()
        if not connection.unsent:
            self.stop_waiting_for(connection)
            self.finish(connection, keep)

    def finish(self, conn: Connection, keep: bool) -> None:
        """Wait for a connection's next request, or for its client to take all or to close it."""
        if conn.unsent:
            self.wait_to_send(conn, keep)
            return
        if not keep or conn.overread:
            self.linger(conn)
            return
        conn.received = bytearray(conn.parser.unreader.take_buffered())
        conn.length, conn.chunked = None, False
        self.wait_for(conn, REQUEST_TIMEOUT if conn.received else self.cfg.keepalive)
        if conn.received:
            self.hand_over_if_whole(conn)

    def linger(self, connection: Connection) -> None:
        """Close our side, and leave the client the time to read what it was sent.

        To close at once while it still sends would reset the connection, and lose the answer
        (RFC 9112, 9.6).
        """
        connection.lingering = True
        self.wait_for(connection, LINGERING)
        try:
            connection.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.drop(connection)

    def murder_keepalived(self, force: bool = False) -> None:
        """Close the connections for which we have waited long enough."""
        super().murder_keepalived(force)
        now = time.monotonic()
        if now < self.look_at and not force:
            return
        self.look_at = now + 0.2
        for connection in [each for each in self.waiting if force or each.timeout <= now]:
            if connection.length is None or connection.lingering or connection.unsent or force:
                self.drop(connection)
            else:  # the application says what is missing
                connection.cut_short = True
                self.hand_over(connection)

    def _cap_keepalive(self, deadline):
        super()._cap_keepalive(deadline)
        for connection in self.waiting:
            if not connection.unsent:
                connection.timeout = min(connection.timeout, deadline)
