"""Record what carriers report without being asked: receipts, replies, late answers."""

import logging
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from texting.carriers import Carrier, IncomingText, OptOut, Report, TooFast
from texting.database import skip_broken, skip_on_error
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.sending.carrier_state import CarrierState
from texting.sending.watch import CarrierWatch

LISTED_EVERY = timedelta(minutes=5)  # the list of incoming texts is read
LATE_IN_LIST = timedelta(minutes=5)  # how late a text may be listed, by clocks that differ
CALLED_BACK_WITHIN = timedelta(seconds=30)  # how late the callback of an incoming text may arrive
LONGEST_UNHEARD = timedelta(days=3)
MOST_SHOWN = 64  # characters of an id
MOST_PARTS = 50  # of a list: a hundred thousand texts
LISTED_AGAIN_AFTER = REGISTERED_AGAIN_AFTER = 60  # seconds
RECORDED_AT_ONCE = 20  # receipts in a transaction, as others wait; listed replies in a step

log = logging.getLogger("scheduler")


@dataclass
class Reading:
    """A carrier's list of incoming texts since an instant, as far as we have read it."""

    begun_at: datetime
    since: datetime
    until: datetime | None  # later ones are left to their callbacks
    parts: int = 0
    replies: list[IncomingText | OptOut] | None = None  # of the last part, those not recorded yet
    rest: str | None = None  # where the list goes on


class ReportRecorder:
    """Record receipts, replies and late answers from a carrier's session, and missed replies.

    First, have a carrier call back that must be told where to.
    """

    def __init__(self, carrier: Carrier, rules: ReplyRules, watch: CarrierWatch):
        self.carrier, self.rules, self.watch = carrier, rules, watch
        self.unrecorded = []
        self.reading = None
        self.asked = None  # the future of the next part of the list
        self.read_at = 0  # not before this, by the monotonic clock
        self.registering = None  # the future of register()
        self.register_at = 0 if carrier.registers else math.inf

    @property
    def is_waiting(self) -> bool:
        """Whether the carrier is asked for something here."""
        return bool(self.asked or self.registering)

    def register(self) -> None:
        """Have the carrier call back, beside texts; try again a minute after a failure."""
        clock = self.watch.clock
        if clock.monotonic() >= self.register_at and not self.registering:
            with suppress(RuntimeError):  # no thread can be started: the next step tries again
                self.registering = self.watch.sends.submit(self.carrier.register)
        if self.watch.stop.is_requested:
            self.registering = None
        if not (self.registering and self.registering.done()):
            return
        error, self.registering = self.registering.exception(), None
        self.register_at = clock.monotonic() + REGISTERED_AGAIN_AFTER if error else math.inf
        if error:
            self.watch.warn_hourly("is not told where to call back", error)

    def read_list(self) -> None:
        """Begin to read the list of incoming texts, every few minutes: callbacks may get lost.

        A callback says more than the list, so the latest texts are left to theirs, unless no
        scheduler has run lately. Texts from before a scheduler first ran do not count.
        """
        clock = self.watch.clock
        if self.reading or not self.carrier.lists_incoming or clock.monotonic() < self.read_at:
            return
        state, now = CarrierState.get_or_none(CarrierState.name == self.watch.name), clock.now()
        if state is None or state.heard_until is None:
            CarrierState.prepare(self.watch.name)
            CarrierState.record_heard(self.watch.name, now)
        elif (was_paused := state.was_paused(now)) or state.heard_until <= now - LISTED_EVERY:
            since = max(state.heard_until, now - LONGEST_UNHEARD) - LATE_IN_LIST
            until = None if was_paused else now - CALLED_BACK_WITHIN
            self.reading = Reading(now, since, until)
            self.ask()

    def ask(self) -> None:
        """Ask the carrier for the next part of the list."""
        with suppress(RuntimeError):  # no thread can be started: the next step asks
            reading = self.reading
            self.asked = self.watch.sends.submit(self.carrier.incoming, reading.since, reading.rest)

    def record_missed(self) -> bool:
        """Go on with the list, and record some missed texts; return whether there is more.

        Only the end of the list is noted, so after a failure it is read again.
        """
        if self.watch.stop.is_requested:
            self.reading = self.asked = None
        reading = self.reading
        if reading is None or (self.asked and not self.asked.done()):
            return False
        if self.asked:
            self.receive_part()
            return True
        if reading.replies:
            self.record_some()
            return True
        if reading.rest or not reading.parts:
            self.ask()
        else:
            CarrierState.record_heard(self.watch.name, reading.begun_at)
            self.reading = None
        return False

    def receive_part(self) -> None:
        """Take a part of the list from the carrier, or give up until later."""
        reading, problem = self.reading, self.asked.exception()
        if not problem and reading.parts == MOST_PARTS:
            problem = "there are too many, and the oldest are not read"
        if problem:
            self.watch.warn_hourly("cannot list incoming texts", problem)
            self.read_at = self.watch.clock.monotonic() + LISTED_AGAIN_AFTER
            self.reading = None
        else:
            reading.replies, reading.rest = self.asked.result()
            reading.parts += 1
        self.asked = None

    def record_some(self) -> None:
        """Record some texts of the list, except the latest."""
        replies, until = self.reading.replies, self.reading.until
        for reply in replies[:RECORDED_AT_ONCE]:
            if not (until and reply.at and reply.at > until):
                with skip_on_error(log, self.not_recorded(reply)):
                    inbound.record([reply], self.watch.clock.now(), self.rules)
        del replies[:RECORDED_AT_ONCE]

    def collect(self) -> bool:
        """Record some of what has come; return whether there was anything.

        Calling `received` acknowledges the last batch, so that is recorded first. Each reply has
        its own transaction, since nothing tells it from another with the same words.
        """
        if not self.unrecorded:
            self.unrecorded = self.carrier.received()
        now = self.watch.clock.now()
        if any(isinstance(event, TooFast) for event in self.unrecorded):
            self.watch.record_too_fast()
        some = self.unrecorded[:RECORDED_AT_ONCE]
        replies = (n for n, each in enumerate(some) if isinstance(each, IncomingText))
        at_once = next(replies, len(some)) or 1

        def record(events):
            inbound.record(events, now, self.rules)

        skip_broken(record, some[:at_once], log, self.not_recorded)
        del self.unrecorded[:at_once]
        return bool(some)

    def not_recorded(self, event: Report) -> str:
        """Describe an event that is not recorded by the carrier's ids, without number and text."""
        ids = getattr(event, "message_ids", None) or [getattr(event, "reference", None)]
        of_which = ", ".join(repr(id)[:MOST_SHOWN] for id in ids if id) or "without an id"
        kind, name = type(event).__name__, self.watch.name
        return f"carrier {name}: {kind} {of_which} is not recorded"
