"""SMPP 3.4: `smpp://`, and `smpps://` over TLS."""

import asyncio
import contextlib
import re
import threading
from collections import deque
from functools import partial
from typing import ClassVar

from texting.carriers import (
    Carrier,
    CarrierError,
    Fault,
    IncomingText,
    LateAnswer,
    Outgoing,
    Report,
    TooFast,
    pdus,
    urls,
)
from texting.carriers.alphabets import NAMES, cut
from texting.carriers.deliveries import BASES, as_number, report_in
from texting.carriers.opt_outs import REGIONS
from texting.carriers.smpp_session import LOST, Bind
from texting.carriers.tls import trusted

PAUSE = 1  # seconds after the peer says "too fast" between the parts of a text
ACCOUNT_PAUSE = 60  # seconds until a refused bind is tried again just to listen
MOST_HELD = 10_000  # receipts and replies waiting for `received`


class Smpp(Carrier):
    """Send through `smpp://USER:PASSWORD@HOST:2775/FROM`, each part percent-encoded or not.

    FROM is a number, a short code or a name. Options: `binds`, `bind`, `system_type`, `source_ton`,
    `source_npi`, `dest_ton`, `dest_npi`, `alphabet`, `msg_id_type`, `region`. SMPP 3.4 limits a
    system_id to 15 characters and a password to 8. Many carriers give out longer ones, so they are
    sent whole.

    The first `session`, `check` or `received` binds, and `close` unbinds; without a bind, `send`
    raises at once. All texts share one bind, or `binds` of them. A lost bind is made again at once,
    then after growing pauses. Sessions wait for the next try and share its outcome.

    Each part of a long text is sent after the previous one was taken, so an invalid text or number
    is refused before any part goes out. If a later part is not taken, the text is in doubt, or
    fails for good if that part is refused for good. "Too fast" is waited out, and `received`
    reports it, because other texts come too fast as well. Only the last part asks for a receipt,
    and its message_id is the reference. If the answer to it comes after the timeout, over the same
    session, `received` returns it.

    Receipts are acknowledged at once. A scheduler that is killed loses those since the last
    `received`, and their messages stay `sent`. A reply is acknowledged by the next `received`
    after the one that returned it, or by `close`; until then the peer keeps it. After `close`, one
    more `received` returns the rest.
    """

    title, codes = "SMPP", pdus.CODES
    listens = True  # unless it only transmits
    options: ClassVar = {
        "binds": "1",
        "bind": "transceiver",
        "system_type": "",
        "source_ton": None,
        "source_npi": None,
        "dest_ton": str(pdus.INTERNATIONAL),
        "dest_npi": str(pdus.E164),
        "alphabet": "gsm",
        "msg_id_type": None,
        "region": None,
    }

    def __init__(self, url: str, concurrency: int, timeout: float, *_: object):
        super().__init__(url)
        (user, password), place, options = urls.account(url, self.options)
        _check_words(options)
        self._bases, self._region = _bases(options["msg_id_type"]), options["region"]
        self._coding = NAMES[options["alphabet"]]
        self.listens = self.tells_receipts = options["bind"] == "transceiver"
        host, _, from_ = place.partition("/")
        ton, npi, from_ = _from(from_)
        self.from_name = ton == pdus.ALPHANUMERIC
        if self.listens and self.from_name:
            self.warn_of_name()
        ton, npi = _number(options, "source_ton", ton), _number(options, "source_npi", npi)
        self._from = pdus.address(ton, npi, from_)
        self._recipient = _number(options, "dest_ton"), _number(options, "dest_npi")
        self._window = asyncio.Semaphore(concurrency)
        bind = pdus.BIND_TRANSCEIVER if self.listens else pdus.BIND_TRANSMITTER
        login = {"USER": user, "PASSWORD": password, "system_type": options["system_type"]}
        body = pdus.bind(*(_ascii(name, value) for name, value in login.items()))
        peer = _peer(self.name, host)
        self._timeout = timeout
        self._binds = [
            Bind(peer, (bind, body), timeout, self._deliver)
            for _ in range(_number(options, "binds", least=1, most=100))
        ]
        self._lock = threading.RLock()
        self._loop = self._thread = self._listening = None
        self._closed = False
        # Receipts, late answers and TooFast; replies with functions that acknowledge them
        self._arrived = deque()
        self._unanswered = []  # the functions of the last returned replies

    def session(self) -> contextlib.AbstractContextManager:
        if not any(bind.open for bind in self._binds):
            self._run(self._session()).result()
        return contextlib.nullcontext()

    def send(self, outgoing: Outgoing) -> str | None:
        try:
            coding, parts = cut(outgoing.text, self._coding)
        except ValueError as problem:
            raise CarrierError(f"SMPP: {problem}", Fault.PERMANENT) from None
        addresses = self._from + pdus.address(*self._recipient, outgoing.to.removeprefix("+"))
        fields = {"coding": coding, "has_header": len(parts) > 1, "valid_for": outgoing.valid_for}
        bodies = [pdus.submit_sm(addresses, part, receipt=False, **fields) for part in parts[:-1]]
        bodies.append(pdus.submit_sm(addresses, parts[-1], receipt=self.listens, **fields))
        return self._run(self._send(bodies, outgoing.message_id)).result()

    def check(self) -> None:
        self._run(self._check()).result()

    def received(self) -> list[Report]:
        with self._lock:
            if self.listens and not self._closed:
                idle = self._listening is None or self._listening.done()
                if idle and not any(bind.open for bind in self._binds):
                    with contextlib.suppress(CarrierError):  # the next call tries again
                        self._listening = self._run(self._listen())
                for answer in self._unanswered:
                    self._loop.call_soon_threadsafe(answer)
            arrived = [self._arrived.popleft() for _ in range(len(self._arrived))]
            self._unanswered = [answer for _, answer in arrived if answer]
            return [event for event, _ in arrived]

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._thread is not None and self._thread.is_alive():
            self._run(self._hang_up()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._runner.close()  # cancels what is still running

    def _run(self, coroutine):
        """Run a coroutine on the event loop, which has its own thread; return its future."""
        with self._lock:
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                loop = runner.get_loop()
                thread = threading.Thread(target=loop.run_forever, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    coroutine.close()
                    runner.close()
                    raise CarrierError(str(error), unreached=True) from None
                self._runner, self._loop, self._thread = runner, loop, thread
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    # The methods below run on the event loop.

    async def _session(self):
        """Return a bound session; wait for one if there is none."""
        attempts = [bind.attempt() for bind in self._binds]
        if session := self._bound():
            return session
        for attempt in attempts[:-1]:  # the peer may allow fewer binds
            with contextlib.suppress(CarrierError):
                return await asyncio.shield(attempt)
        return await asyncio.shield(attempts[-1])

    def _bound(self):
        """Return the bound session with the fewest requests under way, or None."""
        bound = [bind.session for bind in self._binds if bind.open]
        return min(bound, key=lambda session: len(session.under_way), default=None)

    async def _send(self, bodies, message_id):
        async with self._window:
            for bind in self._binds:
                bind.attempt()  # for the next text, if it is lost
            session = self._bound()
            if session is None:
                raise CarrierError(LOST, unreached=True)
            for taken, body in enumerate(bodies[:-1]):
                await self._submit(session, body, taken, len(bodies))
            late = partial(self._answered_late, message_id)
            answer = await self._submit(session, bodies[-1], len(bodies) - 1, len(bodies), late)
            return self._reference(answer)

    def _reference(self, answer):
        """Return the reference in the body of an answer."""
        return as_number(pdus.message_id(answer), self._bases[0])

    def _answered_late(self, message_id, answer):
        self._arrived.append((LateAnswer(message_id, self._reference(answer)), None))

    async def _submit(self, session, body, taken, parts, late=None):
        """Send one part after `taken` others; return the body of the answer."""
        give_up_at = asyncio.get_running_loop().time() + self._timeout
        while True:
            status, answer = await session.ask(pdus.SUBMIT_SM, body, late)
            if status == pdus.OK:
                return answer
            too_late = asyncio.get_running_loop().time() > give_up_at
            if too_late or not taken or status not in pdus.CODES.too_fast:
                raise _refusal(status, taken, parts)
            self._arrived.append((TooFast(pdus.reason(status)), None))
            await asyncio.sleep(PAUSE)

    async def _check(self):
        session = await self._session()
        await session.ask(pdus.ENQUIRE_LINK)

    async def _listen(self):
        """Bind if necessary, so that the peer can deliver."""
        try:
            await self._session()
        except CarrierError as error:
            if error.fault is Fault.ACCOUNT:
                await asyncio.sleep(ACCOUNT_PAUSE)

    def _deliver(self, session, command, sequence, body):
        """Keep a receipt or a reply until `received` returns it."""
        if self._closed:
            return  # without an answer the peer delivers it again
        answer = partial(session.answer, command, sequence)
        try:
            event = report_in(pdus.delivery(command, body), self._bases[1], self._region)
        except ValueError:
            answer(pdus.PERMANENT_ERROR)
            return
        if event and len(self._arrived) >= MOST_HELD:
            answer(pdus.TEMPORARY_ERROR)
        elif isinstance(event, IncomingText):
            self._arrived.append((event, answer))
        else:
            if event:
                self._arrived.append((event, None))
            answer()

    async def _hang_up(self):
        for answer in self._unanswered:
            answer()
        await asyncio.gather(*(bind.session.unbind() for bind in self._binds if bind.open))


def _refusal(status, taken, parts):
    """Return the CarrierError for a command_status after `taken` parts were taken."""
    error = pdus.CODES.error(f"SMPP: {pdus.reason(status)}", status)
    if not taken:
        return error
    reason = f"{error}, after {taken} of {parts} parts were taken"
    if error.permanent:
        return CarrierError(reason, Fault.PERMANENT)
    return CarrierError(reason, in_doubt=True)


def _from(from_):
    """Return the type of number, the numbering plan and the address of FROM."""
    if re.fullmatch(r"\+[1-9]\d{6,14}|[1-9]\d{8,14}", from_, re.ASCII):
        return pdus.INTERNATIONAL, pdus.E164, from_.removeprefix("+")
    if re.fullmatch(r"\d{3,8}", from_, re.ASCII):
        return pdus.NETWORK_SPECIFIC, pdus.UNKNOWN, from_
    if re.fullmatch(r"(?=.*[A-Za-z])[\w &+.'!*-]{1,11}", from_, re.ASCII):
        return pdus.ALPHANUMERIC, pdus.UNKNOWN, from_
    raise ValueError(
        "FROM in …@HOST/FROM must be number, short code or name of up to 11 characters"
    )


def _peer(scheme, address):
    """Return the arguments of asyncio.open_connection."""
    parts = urls.split(f"//{address}")
    if not parts:
        raise ValueError(f"HOST in {scheme}://USER:PASSWORD@HOST:PORT/FROM cannot be used")
    tls = scheme == "smpps"
    port = parts.port or (3550 if tls else 2775)
    return {"host": parts.hostname, "port": port, "ssl": trusted() if tls else None}


def _ascii(name, value):
    if not re.fullmatch(r"[ -~]{0,64}", value):
        raise ValueError(f"{name} must be up to 64 printable ASCII characters")
    return value


def _check_words(options):
    """Raise ValueError if an option has an unknown word."""
    if options["bind"] not in ("transceiver", "transmitter"):
        raise ValueError("bind must be transceiver or transmitter")
    if options["alphabet"] not in NAMES:
        raise ValueError(f"alphabet must be one of {', '.join(NAMES)}")
    if options["region"] not in (None, *REGIONS):
        raise ValueError("region must be the ISO 3166 code of a country, like US")


def _bases(msg_id_type):
    """Return the bases of message ids in answers and receipts; None if ids are compared as text."""
    if msg_id_type is None:
        return None, None
    bases = [BASES.get(word) for word in msg_id_type.split(",")]
    if len(bases) != 2 or None in bases:
        raise ValueError("msg_id_type must be hex or dec for answers, a comma, and for receipts")
    return bases


def _number(options, name, default=None, least=0, most=255):
    value = options[name]
    if value is None:
        return default
    if re.fullmatch(r"\d{1,3}", value, re.ASCII) and least <= int(value) <= most:
        return int(value)
    raise ValueError(f"{name} must be a number from {least} to {most}")
