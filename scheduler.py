"""Promote, expire, send and notify, and log the counts, until nothing is left to do.

Run it from cron, or with --every until it is stopped. Any number may run at once.
"""

import argparse
import logging
import math
import os
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NoReturn

import models
from texting import carriers, database, logs
from texting.carriers import Carrier, configs
from texting.carriers.lanes import TESTERS, Lane, Routes
from texting.events.delivery import Deliveries
from texting.events.outbox import Event
from texting.messages import doubts, receipts, waiting
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.monitoring import changed_settings, checks, clocks, dead_web
from texting.monitoring.clocks import LASTS, ClockWatch
from texting.monitoring.notices import Notices
from texting.replies import inbound, opt_outs
from texting.reports import queue
from texting.sending import claims, retention
from texting.sending.carrier_state import CarrierState, known_to_others
from texting.sending.heartbeats import Pulse
from texting.sending.outcomes import UNANSWERED
from texting.sending.runtime import THIS_MACHINE, TICK, Runtime, Stop
from texting.sending.sender import Sender, Shared
from texting.settings import VERSION, Settings, exit_if_invalid, load_or_exit, warn_of_misspelt

MOVES = (
    *("promoted", "sent", "retrying", "failed", "blocked", "expired"),
    *("rescheduled", "taken over"),
)
WAITS = ("waiting for approval", "waiting for a carrier", "waiting for a paused key")
MANY = 1_000  # messages that wait; they are counted up to here, since texts go out meanwhile

TEND_EVERY = 5  # seconds between rounds of chores, like promotion
CHORES_BUDGET = 0.2  # seconds of chores in a round, plus a batch: texts may have to wait
LOOK_EVERY = 1  # seconds until an idle sender looks again
SHORTEST_LISTENING = 5  # seconds of a single pass, if a carrier delivers over a session

log = logging.getLogger("scheduler")
counts_log = logging.getLogger("counts")  # on standard output, whatever LOG_LEVEL is


class Scheduler:
    """Promote, expire and send messages, for one pass or until a stop is requested.

    One thread uses the database: it does the chores, and lets each carrier's sender take steps. It
    never waits for a carrier: other threads do that, and their answers come in one queue.
    """

    def __init__(
        self,
        settings: Settings,
        carrier: Carrier | None,
        runtime: Runtime = THIS_MACHINE,
        others: Sequence[Carrier] = (),
    ):
        self.settings, self.clock = settings, runtime.clock
        self.stop = Stop(settings.shutdown_timeout, runtime.clock)
        connected = [carrier, *others] if carrier else []
        self.routes = Routes.of(settings.carrier_configs, connected)
        self.pulse, self.ended = Pulse(runtime.clock), runtime.make_queue()
        self.counts = Counter()  # since the end of the last pass
        simulator = carriers.connect("simulator:", name=TESTERS)
        self.clocks = ClockWatch("scheduler", [*connected, simulator], sends=True)
        common = self.stop, self.pulse, self.ended, self.retry, self.clocks.may_be_wrong, runtime
        shared = Shared(settings, self.routes, *common, self.counts)
        self.senders = [Sender(each, shared) for each in (*connected, simulator)]
        self.tend_at = self.step_at = 0  # by the monotonic clock
        self.chores, self.forgotten = deque(), Counter()
        self.to_date_back = deque()  # tables, after the clock was set back
        self.due_by = None  # a single pass ends once all texts due by then are done
        self.has_noted_settings = False  # in the audit
        self.was_held = False  # by a wrong clock, by which answers were dated meanwhile
        self.suspects_death = False  # whether another scheduler may be dead

    def run(self, every: float | None, show: Callable[[str], None] = counts_log.info) -> int:
        """Make a single pass, or go on until a stop; return the exit status.

        The counts are shown whenever nothing is left to do, and at least every `every` seconds, but
        only if they have changed.
        """
        shown, listens = None, any(sender.carrier.listens for sender in self.senders)
        while True:
            status, now = 0, self.clock.monotonic()
            end = now + (every or listens * SHORTEST_LISTENING)
            try:
                # While texts are sent, passes are long, so that beginning them costs little
                longest = now + max(every or 0, TEND_EVERY)
                counts = line(self.run_pass(longest if every else None))
                status = int(self.clocks.is_wrong)
                if counts != shown:
                    show(counts)
                    shown = counts
                self.go_on_until(end)
            except database.ERRORS as error:
                database.disconnect()
                log.error("the scheduler cannot work: the database: %s", database.reason(error))
                status = 1
                self.stop.sleep(min(TEND_EVERY, end - self.clock.monotonic()))
            if every is None or self.stop.is_requested:
                break
        try:
            self.finish()
            if every is None and not status:  # the answers of this pass have dates
                self.clocks.compare()
            self.close()
        except database.ERRORS as error:
            database.disconnect()
            log.error("receipts are lost: the database: %s", database.reason(error))
            status = 1
        return status if every is None else 0

    def run_pass(self, until: float | None = None) -> Counter:
        """Do all that can be done now; return counts of what happened, and of what waits.

        A pass ends once nothing more can be done now, or at `until`, by the monotonic clock; then
        it leaves open what is under way. Without `until` it is a single one: it leaves to the next
        one the texts that came after its beginning, or it might never end.
        """
        for sender in self.senders:
            sender.sends.try_all_threads()
        self.tend_at = 0
        self.tend()
        self.collect()
        self.due_by = self.clock.now() if until is None else None
        while self.round() and (until is None or self.clock.monotonic() < until):
            self.await_answers()
        if self.routes.names:
            self.report_unmatched(self.clock.now())
        counts = Counter(self.counts)
        self.counts.clear()
        counts["waiting for approval"] = queue.awaiting_approval(MANY)
        counts["waiting for a carrier"] = queue.awaiting_carrier(MANY)
        counts["waiting for a paused key"] = queue.awaiting_paused_key(MANY)
        database.db.close()
        return counts

    def round(self) -> bool:
        """Do chores, and let senders take a step; return whether there is more to do soon.

        A text that one carrier does not take may go through another, so a pass is done only once no
        sender finds anything to do.
        """
        self.retry(self.tend)
        if self.clocks.is_wrong:
            return self.hold()
        now, may_claim = self.clock.monotonic(), self.retry(self.may_claim)
        is_due, made_progress = now >= self.step_at, False
        for sender in self.senders:
            if is_due or sender.recorder.unrecorded:
                made_progress |= sender.step(may_claim)
        look_at = self.clock.monotonic() + LOOK_EVERY if is_due else self.step_at
        self.step_at = min(look_at, *(sender.resumes_at for sender in self.senders))
        if made_progress:
            self.step_at = min(self.step_at, now + TICK) if self.is_busy else now
        if self.chores:
            self.step_at = now
        if self.stop.is_requested or self.is_busy:
            return self.is_busy
        waits = may_claim and any(sender.waits for sender in self.senders)
        goes_on = made_progress or waits or self.suspects_death or bool(self.chores)
        return goes_on or self.clocks.may_be_wrong()

    def hold(self) -> bool:
        """Only record answers about texts; return whether more are awaited."""
        for sender in self.senders:
            sender.recorder.record()
        self.step_at = self.clock.monotonic() + LOOK_EVERY
        return any(sender.has_texts for sender in self.senders)

    def may_claim(self) -> bool:
        """Return whether to claim texts: a single pass leaves newer ones to the next."""
        return self.due_by is None or waiting.is_any_due(self.due_by)

    @property
    def is_busy(self) -> bool:
        """Whether carriers have yet to answer, or answers have yet to be recorded."""
        return any(sender.is_busy for sender in self.senders)

    def await_answers(self, until: float = math.inf) -> None:
        """Wait for an answer, but only until there is something else to do."""
        seconds = min(self.step_at, until) - self.clock.monotonic()
        ended = self.ended.gather(max(0, min(seconds, TICK, self.stop.seconds_left)))
        for sender in self.senders:
            sender.recorder.unrecorded += sender.sends.finished(ended)
            if not self.stop.seconds_left:
                sender.recorder.unrecorded += sender.sends.abandon()
        self.retry(self.collect)

    def retry(self, action: Callable, *arguments: Any) -> Any:
        """Call something that needs the database, again and again while that is away.

        While we hold messages we wait for the database, because giving up would send them twice.
        Once a stop is requested, we wait no longer than SHUTDOWN_TIMEOUT.
        """
        while True:
            try:
                return action(*arguments)
            except database.ERRORS as error:
                if not database.is_outage(error):
                    raise
                database.disconnect()
                for sender in self.senders:
                    sender.may_be_unheard = True
                if not self.is_busy or not self.stop.seconds_left:
                    raise
                log.error("the database failed, trying again: %s", database.reason(error))
                self.clock.sleep(1)

    # What waits

    def tend(self) -> None:
        """Beat, and do some batches of the chores of every few seconds: there may be many.

        While the clock is wrong by the database's, do none: nothing is judged by it.
        """
        if self.pulse.is_due:
            self.pulse.beat()
        if self.stop.is_requested:
            return
        was_wrong, is_held = self.clocks.is_wrong, self.clocks.look()
        now, monotonic = self.clock.now(), self.clock.monotonic()
        is_freed = was_wrong and not is_held  # nothing goes before its chores are begun
        if monotonic >= self.tend_at or is_freed:
            if is_held:
                self.was_held = True
                self.record_pass(clocks.now())
            else:
                self.begin_chores(now)
            self.tend_at, self.step_at = self.clock.monotonic() + TEND_EVERY, 0
        while self.chores and not is_held and not self.stop.is_requested:
            chore, has_more = self.chores[0], False
            with database.skip_on_error(log, f"{chore.__qualname__} is left for now"):
                has_more = chore(now)
            if not has_more:
                self.chores.popleft()
                continue
            if chore != self.date_back:  # which stays first: the others depend on what it changes
                self.chores.rotate(-1)
            self.step_at = 0  # there may be new texts to send
            if self.clock.monotonic() - monotonic >= CHORES_BUDGET:
                break

    def begin_chores(self, now: datetime) -> None:
        """Check on other schedulers and carriers, and begin all chores that are not under way."""
        if not self.has_noted_settings:
            changed_settings.note(self.settings, now)
            self.has_noted_settings = True
        if not self.to_date_back and (self.was_held or CarrierState.is_behind(now)):
            self.was_held = False
            self.to_date_back.extend(each for each in models.TABLES if each is not CarrierState)
            self.to_date_back.append(CarrierState)  # last: is_behind() reads it
        for sender in self.senders:
            sender.reports.read_list()
        if not self.to_date_back:
            self.record_pass(now)
        for sender in self.senders:
            CarrierState.prepare(sender.name)
        chores = self.take_over, self.promote, self.forget_doubts, self.expire
        chores += self.redact_and_purge, receipts.forget_unmatched, opt_outs.forget_ignored
        chores += inbound.report_incomplete, Event.give_up, Event.forget, waiting.cancel_unresumable
        self.chores.extend(chore for chore in chores if chore not in self.chores)
        if self.to_date_back and self.date_back not in self.chores:
            self.chores.appendleft(self.date_back)

    def record_pass(self, now: datetime) -> None:
        """Note that this scheduler runs."""
        stand_ins = {name: self.routes.stand_ins(name) for name in self.routes.names}
        CarrierState.record_pass(now, stand_ins)

    # Chores: each does a batch, and returns whether there may be more

    def date_back(self, now: datetime) -> bool:
        """Date back what lies in the future, because the clock was set back."""
        table = self.to_date_back[0]
        with database.skip_on_error(log, f"{table.__name__} is not dated back"):
            if table.date_back(now):
                return True
        self.to_date_back.popleft()
        return bool(self.to_date_back)

    def take_over(self, now: datetime) -> bool:
        """Take over what dead schedulers had in hand."""
        dead, self.suspects_death = self.pulse.watch(self.settings.claim_timeout)
        for each in dead:
            with database.skip_on_error(log, f"what scheduler {each.sender} had in hand is left"):
                Heartbeat.end(each.sender, each.beats)
        unable = {*self.routes.names, TESTERS} - self.routes.can_be_asked
        taken_over = doubts.take_over(now, unable)
        self.counts["taken over"] += taken_over
        return taken_over > 0

    def promote(self, now: datetime) -> bool:
        """Queue messages that are due."""
        promoted = waiting.promote(now, check_dnc=self.settings.check_dnc)
        moves = {Status.QUEUED: "promoted", Status.BLOCKED: "blocked", Status.EXPIRED: "expired"}
        self.counts.update({moves[Status(status)]: n for status, n in promoted.items()})
        return bool(promoted)

    def forget_doubts(self, now: datetime) -> bool:
        """Stop asking about texts in doubt where that no longer tells anything.

        Their carrier keeps their ids no more, or cannot be asked, or nobody knows it any more.
        """
        unknown = self.unknown(doubts.carriers_asked(), now) if self.routes.names else ()
        forgotten = [doubts.forget(name) for name in unknown]
        return any([*forgotten, *(sender.questions.forget_ids(now) for sender in self.senders)])

    def unknown(self, names: Iterable[str], now: datetime) -> set[str]:
        """Return which of these carriers no scheduler asks about texts."""
        unknown = {*names} - self.routes.can_be_asked
        others = known_to_others(unknown.difference(self.routes.names, [TESTERS]), now)
        return unknown - others

    def expire(self, now: datetime) -> bool:
        """Expire messages that waited too long for approval, a carrier, or a carrier's answer."""
        expired = waiting.expire(now)
        trouble = CarrierState.in_trouble(self.routes.names) if self.routes.are_several else set()
        lanes = {each: Lane.read(each) for each in claims.lanes()}
        lanes = {each: lane for each, lane in lanes.items() if lane.doubts}
        unasked = [each for each, lane in lanes.items() if not lane.asked]
        asked = {lane.asked for lane in lanes.values() if lane.asked}
        silent = trouble | self.routes.only_repeat | self.unknown(asked, now)
        given_up = [each for each, lane in lanes.items() if self.is_given_up(lane, silent)]
        expired += waiting.expire_in_doubt(given_up, UNANSWERED, now)
        expired += waiting.expire_in_doubt(unasked, UNANSWERED, now, of_paused=True)
        self.counts["expired"] += expired
        return expired > 0

    def is_given_up(self, lane: Lane, silent: set[str]) -> bool:
        """Return whether no carrier will soon, if ever, tell whether it has a text in doubt."""
        return lane.asked in silent if lane.asked else not self.routes.order(lane)

    def redact_and_purge(self, now: datetime) -> bool:
        """Redact and purge what is too old."""
        if done := retention.redact_and_purge(self.settings, now):
            self.forgotten.update(done)
            return True
        if self.forgotten:
            redacted, purged = self.forgotten["redacted"], self.forgotten["purged"]
            log.info("too old: %d redacted, %d purged", redacted, purged)
            self.forgotten.clear()
        return False

    def report_unmatched(self, now: datetime) -> None:
        """Warn of receipts that match no message, once an hour over all schedulers."""
        unmatched = receipts.unmatched(now - timedelta(hours=1), now)
        if unmatched and CarrierState.may_report_unmatched(self.routes.first, now):
            log.warning("receipts of the last hour that match no message: %s", unmatched)

    def collect(self) -> None:
        """Record some of what carriers' sessions delivered."""
        if sum(sender.reports.collect() for sender in self.senders):
            self.step_at = 0

    def collect_all(self) -> None:
        """Record what carriers' sessions delivered, while there is time."""
        while self.stop.seconds_left and sum(each.reports.collect() for each in self.senders):
            pass

    def go_on_until(self, until: float) -> None:
        """Go on until an instant of the monotonic clock, or a stop."""
        while self.clock.monotonic() < until and not self.stop.is_requested:
            self.await_answers(until)
            if not self.round():
                database.db.close()

    def finish(self) -> None:
        """After a stop, wait for the answers to the sends that are under way."""
        while self.is_busy and self.round():
            self.await_answers()

    def close(self) -> None:
        """Close the carriers, and record what they have said by then.

        If the database fails, they stay open, so that unacknowledged receipts come again; so they
        do if answers are still missing when the time is up.
        """
        self.collect_all()
        self.pulse.end()
        if self.stop.seconds_left:
            for sender in self.senders:
                sender.carrier.close()
            self.collect_all()


def line(counts: Counter) -> str:
    """Write the counts of a pass in one line, without those that are 0."""
    told = [f"{counts[name]} {name}" for name in MOVES if counts[name]]
    told += [f"{_up_to_many(counts[name])} {name}" for name in WAITS if counts[name]]
    return ", ".join(told) or "nothing to do"


def _up_to_many(count):
    return f"{MANY:,}+" if count >= MANY else str(count)


def main() -> int:
    """Run one pass, or passes until SIGTERM or SIGINT; return the exit status."""
    options = read_options()
    settings = load_or_exit()
    start_log(options, settings)
    warn_of_misspelt()
    checks.start(settings)
    limits = settings.send_concurrency, settings.carrier_timeout
    with exit_if_invalid("CARRIER_URL"):
        connected = configs.connect_all(settings.carrier_configs, *limits, settings.public_url)
    with exit_if_invalid("NOTIFY_URL"):
        notices = Notices(settings)
    if options.every or options.verbose:
        introduce(connected)
        for warning in checks.warnings(settings, connected):
            log.warning(warning)
    database.connect(settings.database_url)
    checks.end_with_draft()
    first, *others = connected or [None]
    scheduler = Scheduler(settings, first, others=others)
    if options.every is None:  # the next pass may come as late
        scheduler.clocks.lasts = max(LASTS, settings.stalled_after)
    deliveries = Deliveries(
        settings.claim_timeout, Message.record_notified, once=options.every is None
    )
    deliveries.start()
    notices.start()
    if options.every:
        dead_web.start(settings)

    def stop(signum, frame):
        scheduler.stop.request()
        deliveries.stop(settings.shutdown_timeout)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    status = scheduler.run(options.every)
    deliveries.finish()
    if not options.every:
        dead_web.look(settings)
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


def start_log(options: argparse.Namespace, settings: Settings) -> None:
    """Set up the log by the options and settings, and begin it with the version."""
    level = "DEBUG" if options.verbose else settings.log_level
    if options.quiet and level in ("DEBUG", "INFO"):
        level = "WARNING"
    logs.start(level, settings.log_format)
    counts_log.propagate = False
    counts_log.setLevel("WARNING" if options.quiet else "INFO")
    counts_log.addHandler(printed := logging.StreamHandler(sys.stdout))
    printed.setFormatter(logs.formatter(settings.log_format))
    if options.every or options.verbose:  # a single pass prints only its counts
        log.info("Text Message Sending Service %s", VERSION)


def seconds(text: str) -> float:
    """Read the argument of --every."""
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400")
    return value


def introduce(connected: Sequence[Carrier]) -> None:
    """Log where texts go, if anywhere."""
    if not connected:
        log.warning("CARRIER_URL is not set: messages are promoted and wait")
        return
    first, *others = (carrier.name for carrier in connected)
    log.info("texts go to %s", ", otherwise to ".join([first, *others]))
    for carrier in connected:
        if carrier.warning:
            log.warning(carrier.warning)


def end(status: int) -> NoReturn:
    """End the process without waiting for threads, which a carrier may delay by a minute."""
    with suppress(OSError):  # nobody may be reading any more
        print(end="", flush=True)
    os._exit(status)


if __name__ == "__main__":
    end(main())
