"""Binds to an SMPP peer. Everything in this module runs on one event loop."""

import asyncio
import contextlib
from collections.abc import Callable

from texting.carriers import CONNECT_TIMEOUT, CarrierError, Fault, pdus
from texting.carriers.tls import reason_of

IDLE = 30  # seconds of silence until the peer is probed
FIRST_PAUSE, LONGEST_PAUSE = 1, 15  # seconds between attempts to bind; doubled each time
UNBIND_TIMEOUT = 5  # seconds
LOST = "SMPP: the connection was lost"

# Takes a deliver_sm or data_sm: its command_id, sequence_number and body
Deliver = Callable[["Session", int, int, bytes], None]


class Session:
    """A connection to the peer, with requests under way in both directions."""

    def __init__(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], timeout, deliver: Deliver
    ):
        self._loop = asyncio.get_running_loop()
        self.served = False  # the peer did more than bind
        self.heard_at = self._loop.time()
        self._reader, self._writer = streams
        self._timeout, self._deliver = timeout, deliver
        # Unanswered requests: futures by command_id and sequence_number of the response.
        self.under_way = {}
        self._overdue = {}  # functions for late answers, by the same keys
        self._sequence = 0
        self.leaving = None  # the task that answers the peer's unbind request
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._keep_alive())]

    @property
    def open(self) -> bool:
        """Whether a request can be written."""
        return self.leaving is None and not self._writer.is_closing()

    async def ask(
        self, command: int, body: bytes = b"", late: Callable[[bytes], None] | None = None
    ) -> tuple[int, bytes]:
        """Send a request and return the command_status and the body of its answer.

        Raise CarrierError if none comes in time or the connection is lost: in doubt if it was a
        submit_sm. If the peer was silent all that time, drop the connection. `late` is called with
        the body of an OK that comes after the timeout.
        """
        in_doubt = command == pdus.SUBMIT_SM
        if not self.open:
            raise CarrierError(LOST, in_doubt=in_doubt, silent=True)
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        key, asked_at = (command | pdus.RESPONSE, self._sequence), self._loop.time()
        self.under_way[key] = answer = self._loop.create_future()
        self._write(command, pdus.OK, self._sequence, body)
        try:
            async with asyncio.timeout(self._timeout):
                return await answer
        except TimeoutError:
            if self.heard_at < asked_at:
                self.close()
            elif late:
                self._overdue[key] = late
            raise CarrierError("SMPP: no answer in time", in_doubt=in_doubt, silent=True) from None
        except ConnectionError:
            raise CarrierError(LOST, in_doubt=in_doubt, silent=True) from None
        finally:
            del self.under_way[key]

    def answer(self, command: int, sequence: int, status: int = pdus.OK) -> None:
        """Answer a request from the peer."""
        body = b"\0" if command in pdus.DELIVERIES else b""  # an empty message_id
        self._write(command | pdus.RESPONSE, status, sequence, body)

    def close(self) -> None:
        """Drop the connection; requests under way raise ConnectionError."""
        self._writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        for answer in self.under_way.values():
            if not answer.done():
                answer.set_exception(ConnectionError())

    async def unbind(self) -> None:
        """Unbind; wait up to UNBIND_TIMEOUT for the answer."""
        with contextlib.suppress(OSError, TimeoutError, CarrierError):
            async with asyncio.timeout(UNBIND_TIMEOUT):
                await self.ask(pdus.UNBIND)
                self._writer.close()
                await self._writer.wait_closed()
        self.close()

    def _write(self, command, status, sequence, body):
        if not self._writer.is_closing():
            header = pdus.HEADER.pack(pdus.HEADER.size + len(body), command, status, sequence)
            self._writer.write(header + body)

    async def _read(self):
        try:
            while not self._writer.is_closing():
                header = pdus.HEADER.unpack(await self._reader.readexactly(pdus.HEADER.size))
                length, command, status, sequence = header
                if not pdus.HEADER.size <= length <= pdus.LONGEST_PDU:
                    break  # the start of the next PDU is unknown
                body = await self._reader.readexactly(length - pdus.HEADER.size)
                self.heard_at = self._loop.time()
                self._take(command, status, sequence, body)
                await self._writer.drain()  # do not read from a peer that does not read, either
        except (OSError, EOFError):
            pass
        finally:
            self.close()

    def _take(self, command, status, sequence, body):
        """Process one PDU from the peer."""
        self.served |= command in (pdus.SUBMIT_SM | pdus.RESPONSE, *pdus.DELIVERIES)
        if command == pdus.GENERIC_NACK:
            for key in [key for key in self.under_way if key[1] == sequence]:
                self._resolve(key, status or pdus.UNKNOWN_COMMAND, b"")
        elif command & pdus.RESPONSE:
            self._resolve((command, sequence), status, body)
        elif command in pdus.DELIVERIES:
            self._deliver(self, command, sequence, body)
        elif command == pdus.ENQUIRE_LINK:
            self.answer(command, sequence)
        elif command == pdus.UNBIND and self.leaving is None:
            self.leaving = asyncio.create_task(self._leave(sequence))
        elif command != pdus.ALERT_NOTIFICATION:  # it takes no answer
            self._write(pdus.GENERIC_NACK, pdus.UNKNOWN_COMMAND, sequence, b"")

    async def _leave(self, sequence):
        """Answer the peer's unbind, after its answers to our requests or after UNBIND_TIMEOUT."""
        if self.under_way:
            await asyncio.wait([*self.under_way.values()], timeout=UNBIND_TIMEOUT)
        self.answer(pdus.UNBIND, sequence)
        self.close()

    def _resolve(self, key, status, body):
        answer = self.under_way.get(key)
        if answer is not None and not answer.done():
            answer.set_result((status, body))
        elif (late := self._overdue.pop(key, None)) and status == pdus.OK:
            late(body)

    async def _keep_alive(self):
        """Probe a silent peer."""
        while self.open:
            await asyncio.sleep(self.heard_at + IDLE - self._loop.time())
            if self._loop.time() >= self.heard_at + IDLE:
                with contextlib.suppress(CarrierError):
                    await self.ask(pdus.ENQUIRE_LINK)


class Bind:
    """One bind to the peer, which is made again after it is lost."""

    def __init__(
        self, peer: dict[str, object], request: tuple[int, bytes], timeout: float, deliver: Deliver
    ):
        self._peer = peer  # arguments of asyncio.open_connection
        self._request, self._timeout, self._deliver = request, timeout, deliver
        self.session = None
        self._attempt = None
        self._began = self._pause = 0

    @property
    def open(self) -> bool:
        """Whether there is a bound session."""
        session = self.session  # read once: other threads call this, too
        return session is not None and session.open

    def attempt(self) -> asyncio.Task[Session]:
        """Return the task that makes the session; start one if there is no session and no task."""
        if not self.open and (self._attempt is None or self._attempt.done()):
            self._attempt = asyncio.create_task(self._bind())
            # If no text waits for the task, nobody retrieves its error, which asyncio would log.
            self._attempt.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._attempt

    async def _bind(self):
        """Return a bound session, after a pause if the last try failed or served nothing."""
        now = asyncio.get_running_loop().time
        if self.session is not None:
            if self.session.served:
                self._pause = 0
            if self.session.leaving:
                await asyncio.wait([self.session.leaving])
        self.session = None
        await asyncio.sleep(self._began + self._pause - now())
        self._began = now()
        self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
        session = await self._connect()
        try:
            status, _ = await session.ask(*self._request)
            if status != pdus.OK:
                raise CarrierError(f"SMPP: bind: {pdus.reason(status)}", Fault.ACCOUNT)
            self.session = session
        finally:
            if not self.open:
                session.close()
        return session

    async def _connect(self):
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                streams = await asyncio.open_connection(**self._peer)
        except (OSError, UnicodeError) as error:
            reason = f"SMPP: the peer cannot be reached: {reason_of(error)}"
            raise CarrierError(reason, unreached=True) from None
        return Session(streams, self._timeout, self._deliver)
