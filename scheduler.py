"""One pass over the messages: promote what is due, send what may be sent, print the counts.

Run it from cron, or with --every to repeat it. Any number may run at once.
"""

import argparse
import gc
import logging
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any

import carriers
import database
import logs
import models
import receipts
import recipients
import reports
import settings as environment
from carrier_state import CarrierState
from carriers import Carrier, CarrierError, OptOut
from do_not_call import DoNotCall
from models import Message
from recipients.hours import BusinessHours

MOVES = (
    *("promoted", "sent", "retrying", "failed", "blocked", "expired"),
    *("rescheduled", "taken over"),
)
WAITS = ("waiting for approval", "waiting for a carrier")

LONGEST_DELAY = 30 * 86_400  # seconds, whatever RETRY_DELAY and MAX_RETRIES come to
SETTLING = 10  # seconds after which a living sender has reached a database that is back
TICK = 0.2  # seconds, since a signal does not end a sleep
COLLECT_EVERY = 1  # seconds until a STOP is recorded while sends are under way
RECORDED_AT_ONCE = 100  # receipts in one transaction: each holds one of the database's locks
SILENCE, LONGEST_LISTENING = 3, 60  # seconds that a single pass listens for; to bind takes a while
TWIN = 10  # seconds until a carrier is asked again where an equal text was under way
MAY_HAVE_TAKEN_IT = "the carrier may have taken it"

log = logging.getLogger("scheduler")


class ClaimLost(Exception):
    """Say that a message was not sent, because another sender may hold it by now."""


class Scheduler:
    """Make passes until `stopping` is set, which lets it begin no new send."""

    def __init__(self, settings: environment.Settings, carrier: Carrier | None):
        self.settings = settings
        self.carrier = carrier
        self.carrier_name = carrier.name if carrier else ""
        self.hours = BusinessHours.from_settings(settings)
        self.claimant = uuid.uuid4()
        self.stopping = False
        self.settled_at = 0.0  # by time.monotonic()
        self.uncollected = []  # receipts and opt-outs

    def run_pass(self) -> Counter:
        """Do all that can be done now; return how often each thing happened, and what waits."""
        now, counts = models.clock(), Counter()
        state = CarrierState.passed(self.carrier_name, now)
        if time.monotonic() >= self.settled_at:
            dead = now - timedelta(seconds=self.settings.claim_timeout)
            counts["taken over"] = Message.take_over(dead)
        scheduled_before = now - self.settings.expire_after
        promoted = Message.promote(now, scheduled_before, self.settings.check_dnc)
        counts["promoted"] = promoted[models.Status.QUEUED]
        counts["blocked"] = promoted[models.Status.BLOCKED]
        counts["expired"] = promoted[models.Status.EXPIRED]
        counts["expired"] += Message.expire(now, scheduled_before)
        receipts.forget(now)
        if self.carrier:
            self.collect()
            if not state.trouble or now >= state.retry_at:
                self.send_queued(counts, probing=bool(state.trouble))
            self.collect()
        counts["waiting for approval"] = reports.awaiting_approval()
        counts["waiting for a carrier"] = reports.awaiting_carrier()
        database.db.close()
        return counts

    # Sending

    def send_queued(self, counts: Counter, probing: bool) -> None:
        """Send until nothing may be sent, the carrier says to stop, or we are stopping.

        The threads talk to the carrier and do nothing else. What they bring back is recorded
        before more is claimed, so a scheduler that dies leaves no more messages in doubt than
        it had sends under way. Where the carrier served nobody lately, `probing` sends one text
        at first.
        """
        under_way, ended, done, stop = {}, SimpleQueue(), [], False
        most = 1 if probing else self.settings.send_concurrency
        left = reports.awaiting_carrier()  # or a pass might never end while messages arrive
        patience = self.settings.claim_timeout / 4
        renew_at = time.monotonic() + patience
        with ThreadPoolExecutor(self.settings.send_concurrency) as pool:
            while True:
                outcomes = [(under_way.pop(future), future) for future in done]
                in_doubt = bool(outcomes or under_way)
                renewing = list(under_way.values()) if time.monotonic() >= renew_at else []
                if renewing:
                    renew_at = time.monotonic() + patience
                again = self.settle(outcomes, under_way.values(), counts)
                judged = [_judgement(future) for _, future in outcomes]
                stop |= self.stopping or "stop" in judged
                while stop and again:  # the carrier is asked about them once more
                    self.insist(True, again.pop().put_back, models.clock())
                if "serves" in judged and probing and not stop:
                    probing, most = False, self.settings.send_concurrency
                    if CarrierState.end_trouble(self.carrier_name):
                        log.info("carrier %s takes texts again", self.carrier_name)
                free = 0 if stop else max(0, min(left, most - len(under_way) - len(again)))
                left -= free
                claimed, ready = self.insist(in_doubt, self.claim, free, renewing, again, counts)
                for message in ready:
                    future = self.begin(pool, message)
                    under_way[future] = message
                    future.add_done_callback(ended.put)
                if not under_way and not claimed:
                    return
                soon = min(patience, COLLECT_EVERY) if self.carrier.listens else patience
                done = gather(ended, soon if under_way else 0)
                self.insist(True, self.collect)

    def begin(self, pool: ThreadPoolExecutor, message: Message) -> Future:
        """Ask the carrier about this message where it is in doubt and can be asked, or send it."""
        if message.in_doubt and self.carrier.can_be_asked:
            doubtful = message.to, message.message, message.in_doubt_since
            return pool.submit(self.carrier.find, *doubtful)
        return pool.submit(self.send, message)

    def send(self, message: Message) -> str | None:
        """Give the carrier a text, unless our claim may be another's by now; return its reference.

        It may where this process stood still, or the database did.
        """
        if time.monotonic() > message.held_until:
            raise ClaimLost
        left = message.scheduled_first_at + self.settings.expire_after - models.clock()
        return self.carrier.send(
            message.to,
            message.message,
            message_id=str(message.id),
            valid_for=max(1, round(left.total_seconds())),
        )

    def insist(self, in_doubt: bool, action: Callable, *arguments: Any) -> Any:
        """Call something that needs the database, again while that is away; return what it returns.

        While messages are in doubt, a database that is away is waited for, because giving up would
        mean to send them twice; but no longer than CLAIM_TIMEOUT where we are told to stop.
        """
        give_up_at = time.monotonic() + self.settings.claim_timeout
        while True:
            try:
                return action(*arguments)
            except database.ERRORS as error:
                if not database.is_outage(error):
                    raise
                self.reconnect()
                if not in_doubt or (self.stopping and time.monotonic() > give_up_at):
                    raise
                log.error("the database failed, trying again: %s", database.reason(error))
                time.sleep(1)

    def reconnect(self) -> None:
        """Disconnect, and leave other senders the time to record what they sent meanwhile.

        While it was away, no sender could renew a claim: they all look dead at first.
        """
        database.disconnect()
        self.settled_at = time.monotonic() + SETTLING

    def claim(
        self, free: int, renewing: list[Message], again: list[Message], counts: Counter
    ) -> tuple[list[Message], list[Message]]:
        """Renew our claims and take more messages; return these, and those to be sent now.

        Among the latter are those that are sent `again`, as far as they still may be.
        """
        now, held_until = models.clock(), time.monotonic() + self.settings.claim_timeout / 2
        with database.db.atomic():
            held = Message.renew(self.claimant, renewing, now)
            claimed = Message.claim(self.claimant, free, now)
            ready, events = self.gate([*again, *claimed], now)
        for message in (*claimed, *(each for each in renewing if each.id in held)):
            message.held_until = held_until
        for event in events:
            self.note(counts, *event)
        return claimed, ready

    # What carriers answer

    def settle(
        self,
        outcomes: list[tuple[Message, Future]],
        under_way: Collection[Message],
        counts: Counter,
    ) -> list[Message]:
        """Write down what became of sends; return those that a carrier, asked, does not have.

        A carrier that was asked gave a list of references, a send one or none. Where an equal text
        is being sent, one of them may be that one's, so the carrier is asked again later. Each step
        waits for a database that is away by itself, so that none happens twice.
        """
        now = models.clock()
        answers = [(m, future.result()) for m, future in outcomes if not future.exception()]
        asked = [(m, answer) for m, answer in answers if isinstance(answer, list)]
        yes = {m.id: answer for m, answer in answers if not isinstance(answer, list)}
        others = [m for m, _ in outcomes] + [m for m in under_way if m.in_doubt]
        found = [m for m, answer in asked if answer]
        with_twins = self.insist(True, Message.with_twins, found, others)
        known = self.insist(True, receipts.known, {each for _, answer in asked for each in answer})
        known.update(yes.values())
        again = []
        for message, answer in asked:
            new = [each for each in answer if each not in known]
            if new and message.id in with_twins:
                delay = retry_delay(0, TWIN)
                error = CarrierError("an equal text is under way", too_fast=True, retry_after=delay)
                self.insist(True, self.refuse, message, error, counts, now)
            elif new:
                yes[message.id] = new[0]
                known.add(new[0])
            else:
                again.append(message)
        self.insist(True, receipts.sent, yes, now)
        for message_id in yes:
            self.note(counts, message_id, "sent")
        for message, future in outcomes:
            if error := future.exception():
                self.insist(True, self.refuse, message, error, counts, now)
        return [m for m in again if self.insist(True, self.may_send_again, m, counts, now)]

    def may_send_again(self, message: Message, counts: Counter, now: datetime) -> bool:
        """Say whether a text in doubt, which the carrier turned out not to have, is sent again."""
        message.in_doubt, message.in_doubt_since = 0, None
        if message.attempts <= message.max_retries:
            return True
        if message.fail("the carrier gave no answer, and has not taken it", now, counted=False):
            self.note(counts, message.id, "failed", "no answer")
        return False

    def refuse(
        self, message: Message, error: BaseException, counts: Counter, now: datetime
    ) -> None:
        """Record a carrier's no, and what follows from it."""
        if isinstance(error, ClaimLost):
            message.put_back(now)  # if it is still ours
            return
        if not isinstance(error, CarrierError):
            log.error("unexpected %s while sending message %s", type(error).__name__, message.id)
            error = CarrierError(f"unexpected {type(error).__name__}", in_doubt=True)
        asking = bool(message.in_doubt and self.carrier.can_be_asked)
        if error.opted_out:
            said = OptOut(message.to, stop=True, source="carrier")
            counts["blocked"] += receipts.record_opt_out(said, now, self.settings.check_dnc)
        if error.account:
            message.put_back(now)
            if CarrierState.begin_trouble(self.carrier_name, str(error), now):
                log.error(
                    "carrier %s refuses the account, nothing is sent until that is mended: %s",
                    self.carrier_name,
                    error,
                )
            return
        if event := self.try_later(message, error, now, doubt=error.in_doubt and not asking):
            self.note(counts, message.id, *event)

    def try_later(
        self, message: Message, error: CarrierError, now: datetime, doubt: bool = False
    ) -> tuple[str, str] | None:
        """Have this message tried again, or give it up; return the move and its reason.

        With `doubt`, the carrier may have taken it this time.
        """
        last = message.attempts >= message.max_retries and not error.too_fast
        if doubt:
            last = not self.carrier.can_be_asked and (last or message.in_doubt > 0)
        words = str(error)
        if error.permanent or last:
            words += f"; {MAY_HAVE_TAKEN_IT}" if message.in_doubt or doubt else ""
            return ("failed", words) if message.fail(words, now, doubt=doubt) else None
        delay = retry_delay(message.attempts, self.settings.retry_delay)
        if error.retry_after is not None:
            delay = error.retry_after
        at = now + timedelta(seconds=delay)
        moved = message.retry_at(at, words, now, counted=not error.too_fast, doubt=doubt)
        return ("retrying", words) if moved else None

    def note(self, counts: Counter, message_id: uuid.UUID, move: str, reason: str = "") -> None:
        """Count what happened to a message, and leave a line in the log."""
        counts[move] += 1
        level = logging.WARNING if move in ("retrying", "failed", "expired") else logging.INFO
        log.log(level, "message %s %s%s", message_id, move, reason and f": {reason}")

    # What may not be sent after all

    def gate(self, claimed: list[Message], now: datetime) -> tuple[list[Message], list[tuple]]:
        """Hold back what may not be sent after all; return the rest, and what happened.

        A message that cannot be judged is set aside, so that it does not hold up its neighbours.
        """
        ready, events = [], []
        always = self.settings.check_dnc
        listed = DoNotCall.listed({m.to for m in claimed if always or m.check_dnc})
        for message in claimed:
            try:
                held = self.hold_back(message, listed, now)
            except database.ERRORS:
                raise
            except Exception as error:
                kind = type(error).__name__  # its words may hold the number
                log.error("message %s cannot be judged: %s", message.id, kind)
                held = self.try_later(message, CarrierError(f"cannot be judged: {kind}"), now)
            if held:
                events.append((message.id, *held))
            else:
                ready.append(message)
        return ready, events

    def hold_back(
        self, message: Message, listed: set[str], now: datetime
    ) -> tuple[str, str] | None:
        """Move a claimed message that may not be sent now; return the move and its reason."""
        if message.to in listed and (message.check_dnc or self.settings.check_dnc):
            message.block(now)
            return "blocked", ""
        if message.scheduled_first_at + self.settings.expire_after <= now:
            message.give_up_late(now)
            return "expired", ""
        words = opening = None
        if message.take_overs > message.max_retries:
            words = f"{message.take_overs} schedulers died with it; {MAY_HAVE_TAKEN_IT}"
        elif message.in_doubt > 1 and not self.carrier.can_be_asked:
            words = f"given to the carrier twice without an answer; {MAY_HAVE_TAKEN_IT}"
        else:
            try:
                opening = self.must_wait(message, now)
            except recipients.InvalidNumber as error:  # libphonenumber knew less when it came in
                words = f"the number {error}"
        if words:
            message.fail(words, now, counted=False)
            return "failed", words
        if opening:
            message.reschedule(opening)
            return "rescheduled", ""
        return None

    def must_wait(self, message: Message, now: datetime) -> datetime | None:
        """Return the next opening, where this message keeps to business hours and is outside."""
        if message.obeys_send_date(now):
            return None
        recipient = recipients.find(message.to)
        if recipients.within_business_hours(recipient, now, self.hours):
            return None
        return recipients.next_opening(recipient, now, self.hours)

    # What carriers and recipients say later

    def collect(self) -> bool:
        """Record what came over the carrier's session; return whether anything did.

        A carrier that is asked for more may take it that the last is recorded, so it is.
        """
        if not self.uncollected:
            self.uncollected = self.carrier.received()
        heard, now = bool(self.uncollected), models.clock()
        while self.uncollected:
            receipts.record(self.uncollected[:RECORDED_AT_ONCE], now, self.settings.check_dnc)
            del self.uncollected[:RECORDED_AT_ONCE]
        return heard

    def listen(self, seconds: float | None) -> None:
        """Hear for so many seconds; after a single pass, while the carrier has much to say."""
        if not (self.carrier and self.carrier.listens):
            self.sleep(seconds or 0)
            return
        longest, silence = (seconds, seconds) if seconds else (LONGEST_LISTENING, SILENCE)
        now = time.monotonic()
        end, quiet_at = now + longest, now + silence
        while not self.stopping and time.monotonic() < min(end, quiet_at):
            if self.collect():
                database.db.close()
                quiet_at = time.monotonic() + silence
            time.sleep(min(TICK, silence))

    def sleep(self, seconds: float) -> None:
        """Do nothing for so many seconds, or until we are told to stop."""
        wake_at = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < wake_at:
            time.sleep(min(TICK, seconds))

    def close(self) -> None:
        """Close the carrier; record what it said before and meanwhile.

        Where the database fails at first, do not: what was not acknowledged comes again.
        """
        if self.carrier:
            self.collect()
            self.carrier.close()
            self.collect()


def gather(ended: SimpleQueue, seconds: float) -> list[Future]:
    """Return the sends that have ended; wait so many seconds where none has."""
    try:
        done = [ended.get(timeout=seconds)]
    except Empty:
        return []
    while not ended.empty():
        done.append(ended.get())
    return done


def _judgement(future):
    """Say what an outcome tells of the carrier: it "serves", sending has to "stop", or nothing."""
    error = future.exception()
    if isinstance(error, CarrierError):
        if error.account or error.too_fast:
            return "stop"
        return "serves" if error.permanent else None
    return None if error else "serves"


def retry_delay(failures: int, first: int) -> float:
    """Return the seconds until the next attempt: 1, 5, 25 times `first` after 0, 1, 2 failures."""
    return min(first * 5**failures, LONGEST_DELAY) * random.uniform(0.9, 1.1)


def line(counts: Counter) -> str:
    """Write the counts of a pass in one line."""
    return ", ".join(f"{counts[name]} {name}" for name in (*MOVES, *WAITS))


def main() -> int:
    """Run one pass, or one every so often until SIGTERM or SIGINT; return the exit status."""
    parser = argparse.ArgumentParser(description="Promote due messages and send queued ones.")
    parser.add_argument(
        "--every", type=seconds, metavar="SECONDS", help="repeat until SIGTERM or SIGINT"
    )
    every = parser.parse_args().every
    settings = environment.load_or_exit()
    logs.start(settings.log_level, settings.log_format)
    environment.warn_of_misspelt()
    carrier = None
    try:
        if url := settings.carrier_url:
            limits = settings.send_concurrency, settings.carrier_timeout
            carrier = carriers.connect(url, *limits, settings.public_url)
    except ValueError as problem:
        environment.exit_with(f"CARRIER_URL: {problem}")
    gc.freeze()  # or the collector looks at all that is loaded once more when the process ends
    if every:  # a single pass prints its counts, and nothing else where all is well
        introduce(carrier)
    show = log.info if settings.log_format == "JSON" else show_counts
    database.connect(settings.database_url)
    scheduler = Scheduler(settings, carrier)

    def stop(signum, frame):
        scheduler.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    shown = None
    while True:
        status = 0
        try:
            counts = line(scheduler.run_pass())
            if counts != shown:
                show(counts)
                shown = counts
            scheduler.listen(every)
        except database.ERRORS as error:
            scheduler.reconnect()
            log.error("the pass failed: the database: %s", database.reason(error))
            status = 1
            scheduler.sleep(every or 0)
        if every is None or scheduler.stopping:
            try:
                scheduler.close()
            except database.ERRORS as error:
                log.error("receipts are lost: the database: %s", database.reason(error))
                status = 1
            return status if every is None else 0


def show_counts(counts: str) -> None:
    """Print the counts of a pass; where nobody can read them, say so and go on."""
    try:
        print(counts, flush=True)
    except OSError as error:
        log.error("the counts cannot be printed: %s", error.strerror)


def introduce(carrier: Carrier | None) -> None:
    """Say where texts go, or that they go nowhere."""
    if carrier is None:
        log.warning("CARRIER_URL is not set: messages are promoted and wait")
        return
    log.info("texts go to %s", carrier.name)
    if carrier.warning:
        log.warning(carrier.warning)


def seconds(text: str) -> float:
    """Read the argument of --every."""
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400")
    return value


if __name__ == "__main__":
    status = main()
    try:
        print(end="", flush=True)
    except OSError:  # not before: `console:` must not take what nobody can read for sent
        logs.discard_output()
    sys.exit(status)
