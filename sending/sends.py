"""The sends under way: threads of a pool that talk to the carrier and do nothing else."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from carriers import Carrier, CarrierError
from models import Message, Status
from sending import outcomes
from sending.outcomes import Outcome, Terms
from sending.runtime import NoThread, Runtime, Stop

STOPPED = "the scheduler was stopped before the carrier answered"

log = logging.getLogger("scheduler")


class NotSent(Exception):
    """Say that the carrier was not given a text; without an outcome, it keeps its place."""

    def __init__(self, outcome: Outcome | None = None):
        self.outcome = outcome


@dataclass(eq=False)
class Send:
    """A claimed message that the carrier is given, or asked about.

    Its deadlines go by the monotonic clock.
    """

    message: Message
    key_name: str | None  # for the log
    held_until: float  # then another sender may have the message
    terms: Terms  # that held when it was judged
    ahead: float = 0  # the wall clock of the monotonic one, in seconds, when it was claimed
    not_before: float = 0  # SEND_RATE lets the text go then
    asking: bool = False
    probe: datetime | None = None  # when it was claimed to go first after a pause

    @property
    def is_probe(self) -> bool:
        return self.probe is not None

    @property
    def log_fields(self) -> dict:
        """Return the fields of a line in the log about this message."""
        return {"message_id": str(self.message.id), "key": self.key_name}


class Answer(NamedTuple):
    """The end of a send: why there was no yes, or what the carrier returned."""

    send: Send
    error: CarrierError | NotSent | None
    said: Any = None  # a reference, or all that were found

    @property
    def may_go_soon(self) -> bool:
        """Whether the text is queued again only because it came too fast, or too late."""
        if isinstance(self.error, NotSent):
            return self.error.outcome is None or self.error.outcome.status == Status.QUEUED
        return self.error is not None and self.error.too_fast


class Sends:
    """Begin sends through a carrier, and return their answers."""

    def __init__(self, carrier: Carrier, size: int, stop: Stop, runtime: Runtime):
        self.carrier, self.size, self.stop = carrier, size, stop
        self.most = size  # sends at once in the present pass
        self.clock, self.make_pool = runtime.clock, runtime.make_pool
        self.pool = None  # of the present pass
        self.under_way = {}  # each Send by the future of its thread
        self.ended = runtime.make_queue()  # the futures of those whose thread has ended

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Have a pool of threads, and wait for them in the end unless time is up."""
        self.pool, self.most = self.make_pool(self.size), self.size
        try:
            yield
        finally:
            self.pool.shutdown(wait=self.stop.seconds_left > 0)

    @property
    def room(self) -> int:
        """Return how many more sends may be begun."""
        return max(0, self.most - len(self.under_way))

    def begin(self, send: Send, probe: datetime | None) -> None:
        """Have a thread ask the carrier about a message in doubt, or give it the text.

        If no thread can be started, the message keeps its place, and the present pass goes on with
        the threads that there are.
        """
        message = send.message
        send.probe = probe
        action, arguments = self.give, (send,)
        if send.asking:
            now, since = self.clock.now(), message.in_doubt_since
            since = min(since, now - (since - now))  # a clock that was ahead has been set back
            action, arguments = self.carrier.find, (message.to, message.message, since)
        try:
            future = self.pool.submit(action, *arguments)
        except NoThread as error:
            log.error("message %s waits: %s", message.id, error, extra=send.log_fields)
            self.most = min(self.most, len(self.under_way))
            future = Future()
            future.set_exception(NotSent())
        self.under_way[future] = send
        future.add_done_callback(self.ended.put)

    def give(self, send: Send) -> str | None:
        """Give the carrier a text and return its reference; raise NotSent if it may not go.

        This process, or the database, may have stood still since the message was claimed.
        """
        message = send.message
        if (early := send.not_before - self.clock.monotonic()) > 0:
            self.stop.sleep(early)
            if self.stop.is_requested:
                raise NotSent
        now = self.clock.now()
        # Others go by the wall clock, which may have jumped ahead
        if max(self.clock.monotonic(), now.timestamp() - send.ahead) > send.held_until:
            raise NotSent(Outcome(Status.QUEUED, send_at=now))
        if outcome := outcomes.judge_again(message, send.terms, now):
            raise NotSent(outcome)
        left = message.expires_at - now
        return self.carrier.send(
            message.to,
            message.message,
            message_id=str(message.id),
            valid_for=max(1, round(left.total_seconds())),
        )

    def gather(self, seconds: float) -> list[Answer]:
        """Return the answers that have come; wait so many seconds if none has."""
        ended = self.ended.gather(seconds)
        return [self._answer(self.under_way.pop(future), future) for future in ended]

    def _answer(self, send, ended):
        """Return how a send has ended; an error of ours leaves the text in doubt."""
        error = ended.exception()
        if error is None:
            return Answer(send, None, ended.result())
        if not isinstance(error, CarrierError | NotSent):
            kind, words = type(error).__name__, "unexpected %s while sending message %s"
            log.error(words, kind, send.message.id, extra=send.log_fields)
            error = CarrierError(f"unexpected {kind}", in_doubt=True)
        return Answer(send, error)

    def abandon(self) -> list[Answer]:
        """Wait for no more answers; the carrier may have taken these texts."""
        lost = CarrierError(STOPPED, in_doubt=True)
        answers = [Answer(send, lost) for send in self.under_way.values()]
        self.under_way.clear()
        return answers
