"""The sends under way: threads talk to the carrier, and do nothing else."""

import logging
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from texting.carriers import Carrier, CarrierError
from texting.messages.model import Message
from texting.sending import outcomes
from texting.sending.heartbeats import Pulse
from texting.sending.outcomes import Outcome, Terms
from texting.sending.runtime import Ended, Runtime, Stop

SHORTEST_VALIDITY = 60  # seconds that a carrier is given to deliver a text
LONGEST_CONNECTING = 1  # seconds of connecting after which a text is judged again
STOPPED = "the scheduler was stopped before the carrier answered"

log = logging.getLogger("scheduler")


class NotSent(Exception):
    """The carrier was not given the text; without an outcome, the text keeps its place."""

    def __init__(self, outcome: Outcome | None = None):
        self.outcome = outcome


@dataclass(eq=False)
class Send:
    """A claimed message that the carrier is given, or one in doubt that it is asked about.

    If the carrier keeps ids, one in doubt that may go is given `again`: this is the question.
    """

    message: Message
    key_name: str | None  # for the log
    sender: UUID  # the scheduler's id when it was claimed
    terms: Terms  # as they were when it was judged
    judged_at: tuple[float, float]  # the moment just before
    not_before: float = 0  # when SEND_RATE lets it go, by the monotonic clock
    since: datetime | None = None  # for a question: when the carrier was first given the text
    probe: datetime | None = None  # when it was chosen to go first after a pause
    again: bool = False
    copy: int = 0  # how many copies were taken before, see `carriers.key_of`
    allowed: dict | None = None  # why it may go

    @property
    def asking(self) -> bool:
        """Whether the carrier is asked about the text, which nobody has claimed."""
        return self.since is not None

    @property
    def is_probe(self) -> bool:
        return self.probe is not None

    @property
    def log_fields(self) -> dict:
        """Return the fields of a line in the log about this message."""
        return {"message_id": str(self.message.id), "key": self.key_name}


class Answer(NamedTuple):
    """How a send ended: the error, or what the carrier returned."""

    send: Send
    error: CarrierError | NotSent | None
    said: Any = None  # a reference, or all that were found

    @property
    def settles(self) -> bool:
        """Whether it tells if the carrier has the text."""
        if self.send.asking:
            return self.error is None
        return not getattr(self.error, "in_doubt", False)


class Sends:
    """Begin sends through a carrier, and return their answers."""

    def __init__(
        self, carrier: Carrier, size: int, stop: Stop, pulse: Pulse, ended: Ended, runtime: Runtime
    ):
        self.carrier, self.size, self.stop, self.pulse = carrier, size, stop, pulse
        self.clock, self.submit, self.ended = runtime.clock, runtime.submit, ended
        self.most = size  # at once; fewer for a while if no more threads can be started
        self.under_way = {}  # each Send by the future of its thread

    @property
    def room(self) -> int:
        """Return how many more sends may begin."""
        return max(0, self.most - len(self.under_way))

    @property
    def room_to_ask(self) -> int:
        """Return how many more questions may begin: half of all at once, so that texts go, too."""
        asking = sum(send.asking for send in self.under_way.values())
        return max(0, max(1, self.size // 2) - asking)

    def try_all_threads(self) -> None:
        """Allow all sends at once again, after threads could not be started."""
        self.most = self.size

    def begin(self, send: Send) -> None:
        """Have a thread give the carrier a text, or ask about one; its future goes to `ended`.

        If no thread can be started, the message keeps its place.
        """
        message = send.message
        action, arguments = self.give, (send,)
        if send.asking and self.carrier.keeps_ids:
            action = self.give if send.again else self.look_up
        elif send.asking:
            action, arguments = self.carrier.find, (message.to, message.message, send.since)
        try:
            future = self.submit(action, *arguments)
        except RuntimeError as error:
            log.error("message %s waits: %s", message.id, error, extra=send.log_fields)
            self.most = min(self.most, len(self.under_way))
            future = Future()
            future.set_exception(NotSent())
        self.under_way[future] = send
        future.add_done_callback(self.ended.put)

    def give(self, send: Send) -> str | None:
        """Give the carrier a text and return its reference; raise NotSent if it may not go.

        This process, or the database, may have stalled since the message was claimed; a process
        that stalled may beat again before this thread goes on, so the judgement has to be fresh,
        too. If connecting took long, people may have decided otherwise: the text keeps its place,
        and is claimed and judged again while the session is open.
        """
        message, clock = send.message, self.clock
        self.stop.sleep(send.not_before - clock.monotonic())
        if self.stop.is_requested:
            raise NotSent
        begun_at = clock.monotonic()
        with self.carrier.session():
            has_waited = clock.monotonic() - begun_at > LONGEST_CONNECTING
            is_late = not self.pulse.is_fresh(send.sender, send.judged_at)
            if self.stop.is_requested or is_late or has_waited:
                raise NotSent
            now = clock.now()
            if outcome := outcomes.judge_again(message, send.terms, now):
                raise NotSent(outcome)
            lasts = outcomes.deliver_by(message, send.terms, now) - now
            return self.carrier.send(
                message.to,
                message.message,
                message_id=str(message.id),
                valid_for=max(SHORTEST_VALIDITY, round(lasts.total_seconds())),
                **({"copy": send.copy} if self.carrier.keeps_ids else {}),
            )

    def look_up(self, send: Send) -> list[str]:
        """Return the reference of a text that may not be given again, if the carrier has it."""
        reference = self.carrier.look_up(str(send.message.id), send.copy)
        return [reference] if reference else []

    def finished(self, ended: Collection[Future]) -> list[Answer]:
        """Return the answers to the sends that have ended."""
        own = [future for future in ended if future in self.under_way]
        return [self._answer(self.under_way.pop(future), future) for future in own]

    def _answer(self, send, ended):
        """Return the answer to a send; a bug of ours leaves the text in doubt."""
        error = ended.exception()
        if error is None:
            return Answer(send, None, ended.result())
        if not isinstance(error, CarrierError | NotSent):
            kind, id, about = type(error).__name__, send.message.id, send.log_fields
            log.error("message %s hit an unexpected %s while being sent", id, kind, extra=about)
            error = CarrierError(f"unexpected {kind}", in_doubt=True)
        return Answer(send, error)

    def abandon(self) -> list[Answer]:
        """Stop waiting; return answers that leave the texts in doubt: the carrier may have them."""
        lost = CarrierError(STOPPED, in_doubt=True)
        answers = [Answer(send, lost) for send in self.under_way.values()]
        self.under_way.clear()
        return answers
