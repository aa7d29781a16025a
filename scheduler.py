"""One pass over the messages: promote, expire, send, tell, print the counts.

Run it from cron, or with --every to repeat it. Any number may run at once.
"""

import argparse
import logging
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn

import carriers
import database
import logs
import reports
import settings as environment
from carriers import Carrier, ways
from events.delivery import Deliveries
from events.outbox import Event
from models import Message, Status
from monitoring import checks
from monitoring.notices import Notices
from sending import claims, inbound, receipts, retention
from sending.carrier_state import CarrierState
from sending.outcomes import UNANSWERED
from sending.passes import Passes
from sending.replies import Reply
from sending.routes import Route, Routes, of_answers
from sending.runtime import THIS_MACHINE, TICK, NoThread, Runtime, Stop, in_own_thread
from sending.sender import TESTERS, Sender
from sending.together import Together

MOVES = (
    *("promoted", "sent", "retrying", "failed", "blocked", "expired"),
    *("rescheduled", "taken over"),
)
WAITS = ("waiting for approval", "waiting for a carrier")

IDLE = 0.25  # seconds until one of several carriers that has nothing to send looks again
PROMOTE_EVERY = 5  # seconds, in a pass that lasts longer; as often dead senders are looked for
LOOK_EVERY = 1  # seconds between two passes, for urgent texts
SILENCE, LONGEST_LISTENING = 3, 60  # seconds that a single pass listens for; to bind takes a while
TESTERS_PATIENCE = 15  # seconds that a single pass, which is done, waits for testers' texts

log = logging.getLogger("scheduler")


class Scheduler:
    """Make passes until a stop is requested.

    Testers' texts go to a simulator, in a thread of their own. Repeated passes and that thread do
    not wait for each other; a single pass waits for it in the end, but not for long. Each of
    several carriers, the first and its `others`, has a thread of its own, too.
    """

    def __init__(
        self,
        settings: environment.Settings,
        carrier: Carrier | None,
        runtime: Runtime = THIS_MACHINE,
        others: Sequence[Carrier] = (),
    ):
        self.settings, self.clock = settings, runtime.clock
        self.stop = Stop(settings.shutdown_timeout, runtime.clock)
        connected = [carrier, *others] if carrier else []
        self.routes = Routes.of(settings.ways, connected)
        self.senders = [
            Sender(settings, each, self.stop, runtime=runtime, routes=self.routes)
            for each in connected
        ]
        self.sending = {}  # the futures of what they do, by name
        simulator = carriers.connect("simulator:")
        stop = Stop(settings.shutdown_timeout, runtime.clock, self.stop)
        self.testers = Sender(settings, simulator, stop, for_testers=True, runtime=runtime)
        self.testing = None  # the future of what the testers' sender does
        self.counts = Counter()  # since the end of the last pass
        self.counting = threading.Lock()
        self.look_at = 0  # when a long pass promotes again, by the monotonic clock
        self.looking = threading.Lock()

    def run(self, every: float | None, show: Callable[[str], None]) -> int:
        """Make one pass, or one every so often until a stop; return the exit status."""
        shown = None
        if every:
            with suppress(NoThread):  # then each pass tries
                self.testing = in_own_thread(lambda: self.keep_serving_testers(every))
        while True:
            status = 0
            if every:
                self.keep_all_sending(every)
            try:
                Passes.begin(self.clock.now(), every)
                counts = line(self.run_pass(repeated=every is not None))
                if counts != shown:
                    show(counts)
                    shown = counts
                self.listen(every)
            except database.ERRORS as error:
                database.disconnect()
                log.error("the pass failed: the database: %s", database.reason(error))
                status = 1
                self.stop.sleep(every or 0)
            if every is None or self.stop.is_requested:
                break
        if threads := [*self.sending.values(), *filter(None, [self.testing])]:
            self.testers.stop.request()
            wait(threads, self.testers.stop.seconds_left)
        try:
            self.close()
        except database.ERRORS as error:
            log.error("receipts are lost: the database: %s", database.reason(error))
            status = 1
        return status if every is None else 0

    def run_pass(self, repeated: bool = False) -> Counter:
        """Do all that can be done now; count what happened, and what waits.

        Do not wait for testers at all if the pass will be repeated.
        """
        self.take_over(wait_until_settled=True)
        now = self.clock.now()
        Message.decide_expiry(self.settings.expire_after)
        self.promote(now)
        self.expire(now)
        self.forget(now)
        receipts.forget(now)
        inbound.settle(now)
        Event.give_up(now)
        Event.forget(now)
        self.serve_testers()
        if self.senders and not (repeated and self.routes.are_several):
            self.collect()
            if self.routes.are_several:
                self.send_side_by_side()
            else:
                (sender,) = self.senders
                self.count(sender.send_queued(partial(self.meanwhile, sender)))
            self.collect()
        if self.senders:
            self.report_unmatched(now)
        if not repeated:
            self.await_testers()
        with self.counting:
            counts, self.counts = self.counts, Counter()
        counts["waiting for approval"] = reports.awaiting_approval()
        counts["waiting for a carrier"] = reports.awaiting_carrier()
        database.db.close()
        return counts

    def count(self, moves: Mapping[str, int]) -> None:
        """Add to the counts of the present pass; any thread may."""
        with self.counting:
            self.counts.update(moves)

    def take_over(self, wait_until_settled: bool = False) -> int:
        """Queue the messages of dead senders; return how many.

        Take over nothing before the living have had the time to renew their claims, and nothing
        if a stop is requested meanwhile.
        """
        now, timeout = self.clock.now(), self.settings.claim_timeout
        self.correct(now)
        stand_ins = {name: self.routes.stand_ins(name) for name in self.routes.names}
        state = CarrierState.passed(self.routes.first, now, timeout, stand_ins)
        dead = now - timedelta(seconds=timeout)
        if not reports.claimed_before(dead):
            return 0
        if state.settled_at and state.settled_at > now:
            if not wait_until_settled:
                return 0
            database.db.close()
            self.stop.sleep((state.settled_at - now).total_seconds())
        if self.stop.is_requested:
            return 0
        taken_over = claims.take_over(dead)
        self.count({"taken over": taken_over})
        return taken_over

    def correct(self, now: datetime) -> None:
        """Let what was noted by a clock that has been set back since be of now."""
        for kept in (claims, Message, Reply, receipts):
            kept.correct(now)

    def promote(self, now: datetime, testers: bool = False) -> int:
        """Queue the messages that are due, or those of testers alone; return how many."""
        always = self.settings.check_dnc
        promoted = Message.promote(now, always_check_dnc=always, testers=testers)
        moves = {Status.QUEUED: "promoted", Status.BLOCKED: "blocked", Status.EXPIRED: "expired"}
        self.count({moves[Status(status)]: number for status, number in promoted.items()})
        return promoted[Status.QUEUED]

    def expire(self, now: datetime) -> None:
        """Expire what has waited too long for approval or a carrier."""
        self.count({"expired": Message.expire(now)})
        if self.routes.is_plain:
            return
        names = self.routes.names
        trouble = CarrierState.in_trouble(names) if self.routes.are_several else ()
        given_up = [Route((), in_doubt=True)]  # that nobody may send, or be asked about
        given_up += [Route((name,), is_asked=True) for name in trouble]
        served = {of_answers(name) for name in names if name not in trouble}
        lanes = {*map(self.routes.lane, given_up), *(claims.lanes_of_answers() - served)}
        self.count({"expired": Message.expire_in_doubt(lanes, UNANSWERED, now)})

    def forget(self, now: datetime) -> None:
        """Redact and purge what has become too old."""
        redacted, purged = retention.forget(self.settings, now, lambda: self.stop.is_requested)
        if redacted or purged:
            log.info("too old: %d redacted, %d purged", redacted, purged)

    def collect(self) -> bool:
        """Record what sessions of carriers delivered; return whether there was anything."""
        return sum(sender.inbox.collect() for sender in self.senders) > 0

    def send_side_by_side(self) -> None:
        """Send what is queued, each carrier in a thread of its own, until all are done."""
        most = reports.awaiting_carrier(False) * len(self.senders)
        together = Together(self.senders, self.stop, self.meanwhile, most)
        self.count(together.send())

    def keep_all_sending(self, every: float) -> None:
        """Have each of several carriers send in a thread of its own, if it does not yet."""
        for sender in self.senders if self.routes.are_several else ():
            thread = self.sending.get(sender.name)
            if not thread or thread.done():
                try:
                    action = partial(self.keep_sending, sender, every)
                    self.sending[sender.name] = in_own_thread(action)
                except NoThread as error:
                    log.error("texts of carrier %s wait: %s", sender.name, error)

    def keep_sending(self, sender: Sender, every: float) -> None:
        """Send through one of several carriers until a stop is requested."""

        def meanwhile() -> int:
            self.count(sender.recorder.take_counts())
            return 0

        is_prepared = False
        while not self.stop.is_requested:
            with database.survived(log, sender.name):
                if not is_prepared:
                    CarrierState.prepare(sender.name)
                    is_prepared = True
                sender.inbox.collect()
                self.count(sender.send_queued(meanwhile, math.inf))
            self.stop.sleep(min(every, IDLE))

    def meanwhile(self, sender: Sender) -> int:
        """Take over, promote, expire, forget and serve testers every few seconds of a long pass.

        Return how many messages that has queued. It happens often enough for `passed` to see that
        claims are being renewed.
        """
        if self.stop.is_requested or self.clock.monotonic() < self.look_at:
            return 0
        if not self.looking.acquire(blocking=False):  # another carrier's thread does it
            return 0
        try:
            now, retry = self.clock.now(), sender.retry_through_outage
            queued = retry(self.take_over) + retry(self.promote, now)
            retry(self.expire, now)
            retry(self.forget, now)
            retry(inbound.settle, now)
            retry(self.serve_testers)
            look_every = min(PROMOTE_EVERY, self.settings.claim_timeout / 4)
            self.look_at = self.clock.monotonic() + look_every
        finally:
            self.looking.release()
        return queued

    def serve_testers(self) -> None:
        """Begin to send the queued messages of testers, unless that is under way."""
        if self.testing and self.testing.done():
            self.await_testers()
        if not self.testing and reports.awaiting_carrier(testers=True):
            try:
                self.testing = in_own_thread(self.send_of_testers)
            except NoThread as error:
                log.error("testers' texts wait: %s", error)

    def keep_serving_testers(self, every: float) -> None:
        """Promote and send the messages of testers every so often until a stop is requested.

        A pass may be asking its carrier for a minute.
        """
        while not self.stop.is_requested:
            with database.survived(log, "testers"):
                self.promote(self.clock.now(), testers=True)
                if reports.awaiting_carrier(testers=True):
                    self.send_of_testers()
            self.stop.sleep(every)

    def send_of_testers(self) -> None:
        """Send the queued messages of testers."""
        try:
            CarrierState.prepare(TESTERS)
            self.count(self.testers.send_queued())
        finally:
            database.db.close()

    def await_testers(self) -> None:
        """Wait until the messages of testers are sent, or as many as TESTERS_PATIENCE allows."""
        if self.testing:
            testing, self.testing = self.testing, None
            if not wait([testing], TESTERS_PATIENCE).done:
                self.testers.stop.request()
            testing.result()

    def report_unmatched(self, now: datetime) -> None:
        """Warn, once an hour over all schedulers, of receipts that match no message."""
        unmatched = receipts.unmatched(now - timedelta(hours=1), now)
        if unmatched and CarrierState.may_report_unmatched(self.routes.first, now):
            log.warning("receipts of the last hour that match no message: %s", unmatched)

    def listen(self, seconds: float | None) -> None:
        """Collect receipts for so many seconds, or until an urgent text is to be sent.

        Without any, until the carrier is silent. Several carriers do so in their threads.
        """
        if self.sending:
            self.stop.sleep(seconds or 0)
            return
        listens = any(sender.sends.carrier.listens for sender in self.senders)
        if not (listens or seconds):
            return
        longest, silence = (seconds, seconds) if seconds else (LONGEST_LISTENING, SILENCE)
        now = self.clock.monotonic()
        end, quiet_at, look_at = now + longest, now + silence, now + LOOK_EVERY
        while not self.stop.is_requested and (now := self.clock.monotonic()) < min(end, quiet_at):
            if listens and self.collect():
                database.db.close()
                quiet_at = self.clock.monotonic() + silence
            if seconds and self.senders and now >= look_at:
                look_at = now + LOOK_EVERY
                is_urgent = reports.awaits_urgently()
                database.db.close()
                if is_urgent:
                    return
            self.clock.sleep(min(TICK, silence, end - now))

    def close(self) -> None:
        """Close the carrier; record what it said before and meanwhile.

        If the database fails, it stays open: receipts that were not acknowledged come again. It is
        left as it is, too, if it still owes answers when time is up.
        """
        self.collect()
        if self.stop.seconds_left:
            for sender in self.senders:
                sender.sends.carrier.close()
            self.collect()


def line(counts: Counter) -> str:
    """Write the counts of a pass in one line."""
    return ", ".join(f"{counts[name]} {name}" for name in (*MOVES, *WAITS))


def main() -> int:
    """Run one pass, or one every so often until SIGTERM or SIGINT; return the exit status."""
    options = read_options()
    settings = environment.load_or_exit()
    start_log(options, settings)
    environment.warn_of_misspelt()
    checks.start(settings)
    limits = settings.send_concurrency, settings.carrier_timeout
    with environment.exit_if_invalid("CARRIER_URL"):
        connected = ways.connect_all(settings.ways, *limits, settings.public_url)
    with environment.exit_if_invalid("NOTIFY_URL"):
        notices = Notices(settings)
    if options.every or options.verbose:
        introduce(connected)
        for warning in checks.warnings(settings, connected):
            log.warning(warning)
    database.connect(settings.database_url)
    first, *others = connected or [None]
    scheduler = Scheduler(settings, first, others=others)
    deliveries = Deliveries(
        settings.claim_timeout, Message.note_notified, once=options.every is None
    )
    deliveries.start()
    notices.start()

    def stop(signum, frame):
        scheduler.stop.request()
        deliveries.stop(settings.shutdown_timeout)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    in_log = options.quiet or settings.log_format == "JSON"
    status = scheduler.run(options.every, log.info if in_log else show_counts)
    deliveries.finish()
    notices.finish(not scheduler.stop.is_requested, scheduler.stop.by)
    return status


def read_options() -> argparse.Namespace:
    """Read the options of the command line."""
    parser = argparse.ArgumentParser(description="Promote due messages and send queued ones.")
    parser.add_argument(
        "--every", type=seconds, metavar="SECONDS", help="repeat until SIGTERM or SIGINT"
    )
    lines = parser.add_mutually_exclusive_group()
    lines.add_argument("--quiet", action="store_true", help="only warnings and errors, for cron")
    lines.add_argument("--verbose", action="store_true", help="log like LOG_LEVEL=DEBUG")
    return parser.parse_args()


def start_log(options: argparse.Namespace, settings: environment.Settings) -> None:
    """Set up the log as options and settings say, and begin it with the version."""
    level = "DEBUG" if options.verbose else settings.log_level
    if options.quiet and level in ("DEBUG", "INFO"):
        level = "WARNING"
    logs.start(level, settings.log_format)
    if options.every or options.verbose:  # a single pass prints no more than its counts
        log.info("Text Message Sending Service %s", environment.VERSION)


def seconds(text: str) -> float:
    """Read the argument of --every."""
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400")
    return value


def introduce(connected: Sequence[Carrier]) -> None:
    """Say where texts go, or that they go nowhere."""
    if not connected:
        log.warning("CARRIER_URL is not set: messages are promoted and wait")
        return
    first, *others = (carrier.name for carrier in connected)
    log.info("texts go to %s", ", otherwise to ".join([first, *others]))
    for carrier in connected:
        if carrier.warning:
            log.warning(carrier.warning)


def show_counts(counts: str) -> None:
    """Print the counts of a pass; if nobody can read them, say so and go on."""
    try:
        print(counts, flush=True)
    except OSError as error:
        log.error("the counts cannot be printed: %s", error.strerror)


def end(status: int) -> NoReturn:
    """End the process, and do not wait for threads: a carrier may keep them for a minute."""
    with suppress(OSError):  # nobody may be able to read it
        print(end="", flush=True)
    os._exit(status)


if __name__ == "__main__":
    end(main())
