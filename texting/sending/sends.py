"""The sends under way: threads talk to the carrier, and do nothing else."""

import logging
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from texting.carriers import Carrier, CarrierError, Outgoing, key_of
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


class Kind(Enum):
    """What a carrier is to do with a text."""

    GIVE = "it is given the text"
    AGAIN = "it is given again a text in doubt, whose id it keeps"
    LOOK_UP = "it is asked about the id of a text in doubt that may not go now"
    FIND = "it is asked for a list of texts like one in doubt"


@dataclass(eq=False)
class Send:
    """A claimed message that the carrier is given, or one in doubt that it is asked about."""

    message: Message
    key_name: str | None  # for the log
    sender: UUID  # the scheduler's id when it was claimed
    terms: Terms  # as they were when it was judged
    judged_at: tuple[float, float]  # the moment just before
    not_before: float = 0  # when SEND_RATE lets it go, by the monotonic clock
    kind: Kind = Kind.GIVE
    since: datetime | None = None  # for a question: when the carrier was first given the text
    probe: datetime | None = None  # when it was chosen to go first after a pause
    # If one in doubt may not go again: what becomes of it if the carrier does not have it
    otherwise: Outcome | None = None
    copy: int = 0  # how many copies were taken before, see `carriers.key_of`
    allowed: dict | None = None  # why it may go

    @property
    def asking(self) -> bool:
        """Whether the carrier is asked about the text, which nobody has claimed."""
        return self.kind is not Kind.GIVE

    @property
    def key(self) -> str:
        """Return the id by which a carrier that keeps ids knows the text."""
        return key_of(str(self.message.id), self.copy)

    @property
    def gives(self) -> bool:
        """Whether the carrier is given the text, maybe again."""
        return self.kind in (Kind.GIVE, Kind.AGAIN)

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
        self.asked_last = False

    @property
    def room(self) -> int:
        """Return how many more sends may begin."""
        return max(0, self.most - len(self.under_way))

    @property
    def take_turns(self) -> bool:
        """Whether questions and texts take turns, because there is one place."""
        return self.size == 1

    @property
    def room_to_ask(self) -> int:
        """Return how many more questions may begin: half of all at once, so that texts go, too.

        A text may come while they are under way, and their carrier may take its time.
        """
        asking = sum(send.asking for send in self.under_way.values())
        return max(0, (not self.asked_last if self.take_turns else self.size // 2) - asking)

    def try_all_threads(self) -> None:
        """Allow all sends at once again, after threads could not be started."""
        self.most = self.size

    def begin(self, send: Send) -> None:
        """Have a thread give the carrier a text, or ask about one; its future goes to `ended`.

        If no thread can be started, the message keeps its place.
        """
        message, self.asked_last = send.message, send.asking
        actions = {Kind.FIND: self.find, Kind.LOOK_UP: self.look_up}
        try:
            future = self.submit(actions.get(send.kind, self.give), send)
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
            lasts = max(SHORTEST_VALIDITY, round(lasts.total_seconds()))
            id = str(message.id)
            return self.carrier.send(Outgoing(message.to, message.message, id, send.key, lasts))

    def find(self, send: Send) -> list[str]:
        """Return the references of the texts like this one that the carrier lists since then."""
        return self.carrier.find(send.message.to, send.message.message, send.since)

    def look_up(self, send: Send) -> list[str]:
        """Return the reference of a text that may not be given again, if the carrier has it."""
        reference = self.carrier.look_up(send.key)
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
