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
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import timedelta

import carriers
import logs
import models
import recipients
import settings as environment
from carriers import CarrierError
from hours import BusinessHours
from models import DoNotCall, Message, clock

MOVES = ("promoted", "sent", "retrying", "failed", "blocked", "rescheduled", "taken over")
WAITS = ("waiting for approval", "waiting for a carrier")

LONGEST_DELAY = 30 * 86_400  # seconds, whatever RETRY_DELAY and MAX_RETRIES come to
SETTLING = 10  # seconds after which a living sender has reached a database that is back

log = logging.getLogger("scheduler")


class Scheduler:
    """Makes passes until `stopping` is set, which lets it begin no new send."""

    def __init__(self, settings: environment.Settings, carrier: carriers.Carrier | None):
        self.settings = settings
        self.carrier = carrier
        self.hours = BusinessHours.from_settings(settings)
        self.claimant = uuid.uuid4()
        self.stopping = False
        self.settled_at = 0.0  # by time.monotonic()

    def run_pass(self) -> Counter:
        """Do all that can be done now; how often each thing happened, and what waits."""
        now, counts = clock(), Counter()
        dead = now - timedelta(seconds=self.settings.claim_timeout)
        counts["blocked"] = models.revive(lambda: Message.block_listed(now))
        if time.monotonic() >= self.settled_at:
            counts["taken over"] = Message.take_over(dead)
        counts["promoted"] = Message.promote(now)
        if self.carrier:
            self.send_queued(counts)
        counts["waiting for approval"] = Message.awaiting_approval()
        counts["waiting for a carrier"] = Message.awaiting_carrier()
        return counts

    def send_queued(self, counts):
        """Send until nothing may be sent, the carrier says "too fast", or we are stopping.

        The threads talk to the carrier and do nothing else. What they bring back is recorded
        before more is claimed, so a scheduler that dies leaves no more messages in doubt than
        it had sends under way.
        """
        under_way, done, too_fast = {}, set(), False
        left = Message.awaiting_carrier()  # or a pass would never end where messages never stop
        patience = self.settings.claim_timeout / 4
        renew_at = time.monotonic() + patience
        with ThreadPoolExecutor(self.settings.send_concurrency) as pool:
            while True:
                outcomes = [(under_way.pop(future), future) for future in done]
                too_fast |= any(getattr(f.exception(), "too_fast", False) for _, f in outcomes)
                stop = too_fast or self.stopping
                free = 0 if stop else min(left, self.settings.send_concurrency - len(under_way))
                left -= free
                renewing = list(under_way.values()) if time.monotonic() >= renew_at else []
                if renewing:
                    renew_at = time.monotonic() + patience
                in_doubt = bool(outcomes or under_way)
                ready, events = self.exchange(outcomes, renewing, free, in_doubt)
                for message_id, move, reason in events:
                    counts[move] += 1
                    log.info("message %s %s%s", message_id, move, reason and f": {reason}")
                for message in ready:
                    future = pool.submit(
                        self.carrier.send,
                        message.to,
                        message.message,
                        message_id=str(message.id),
                        valid_for=259_200,
                    )
                    under_way[future] = message
                if not under_way and not events:
                    return
                done, _ = wait(under_way, timeout=patience, return_when=FIRST_COMPLETED)

    def exchange(self, outcomes, renewing, free, in_doubt):
        """Record outcomes and claim anew, in one transaction: what to send now, what happened.

        While messages are in doubt, a database that is away is waited for, because giving up would
        mean to send them twice; but no longer than CLAIM_TIMEOUT by one who is told to stop.
        """
        give_up_at = time.monotonic() + self.settings.claim_timeout
        while True:
            try:
                with models.db.atomic():
                    now = clock()
                    Message.sent({m.id: f.result() for m, f in outcomes if not f.exception()}, now)
                    events = [self.record(message, future, now) for message, future in outcomes]
                    Message.renew(self.claimant, renewing, now)
                    claimed = Message.claim(self.claimant, free, now)
                    ready = self.gate(claimed, events, now)
                return ready, events
            except models.DATABASE_ERRORS as error:
                self.reconnect()
                if not in_doubt or (self.stopping and time.monotonic() > give_up_at):
                    raise
                log.error("the database failed, trying again: %s", models.reason(error))
                time.sleep(1)

    def reconnect(self):
        """Leave a database that failed, and others the time to tell it what they sent meanwhile.

        While it was away, no sender could renew a claim: they all look dead at first.
        """
        models.disconnect()
        self.settled_at = time.monotonic() + SETTLING

    def record(self, message, future, now):
        """Write down a carrier's no, its yes being written; the event: message id, move, reason."""
        error = future.exception()
        if error is None:
            return message.id, "sent", ""
        if not isinstance(error, CarrierError):
            log.error("unexpected %s while sending message %s", type(error).__name__, message.id)
            error = CarrierError(f"unexpected {type(error).__name__}")
        if error.opted_out:
            DoNotCall.add([message.to], now)
        if error.permanent or (message.attempts >= message.max_retries and not error.too_fast):
            message.fail(str(error), now)
            return message.id, "failed", str(error)
        delay = retry_delay(message.attempts, self.settings.retry_delay)
        if error.too_fast and error.retry_after is not None:
            delay = error.retry_after
        message.retry_at(now + timedelta(seconds=delay), str(error), counted=not error.too_fast)
        return message.id, "retrying", str(error)

    def gate(self, claimed, events, now):
        """Hold back what may not be sent after all; the rest."""
        listed = DoNotCall.listed(message.to for message in claimed if message.check_dnc)
        ready = []
        for message in claimed:
            if message.check_dnc and message.to in listed:
                message.block(now)
                events.append((message.id, "blocked", ""))
                continue
            try:
                opening = self.must_wait(message, now)
            except recipients.InvalidNumber as error:  # libphonenumber knew less when it came in
                message.fail(f"the number {error}", now, counted=False)
                events.append((message.id, "failed", f"the number {error}"))
                continue
            if opening:
                message.reschedule(opening)
                events.append((message.id, "rescheduled", ""))
            else:
                ready.append(message)
        return ready

    def must_wait(self, message, now):
        """The next opening, where this message keeps to business hours and it is outside them."""
        if message.send_date:
            return None
        recipient = recipients.find(message.to)
        if recipients.within_business_hours(recipient, now, self.hours):
            return None
        return recipients.next_opening(recipient, now, self.hours)


def retry_delay(failures: int, first: int) -> float:
    """Seconds until the next attempt after so many earlier failures: 1, 5, 25 times `first`."""
    return min(first * 5**failures, LONGEST_DELAY) * random.uniform(0.9, 1.1)


def line(counts: Counter) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in (*MOVES, *WAITS))


def main() -> int:
    """Run one pass, or one every so many seconds until SIGTERM or SIGINT; the exit status."""
    parser = argparse.ArgumentParser(description="Promote due messages and send queued ones.")
    parser.add_argument(
        "--every", type=seconds, metavar="SECONDS", help="repeat until SIGTERM or SIGINT"
    )
    every = parser.parse_args().every
    try:
        settings = environment.load()
        carrier = (
            carriers.connect(
                settings.carrier_url,
                settings.send_concurrency,
                settings.carrier_timeout,
                settings.public_url,
            )
            if settings.carrier_url
            else None
        )
    except environment.SettingsError as problems:
        sys.exit(str(problems))
    except ValueError as problem:
        sys.exit(f"CARRIER_URL: {problem}")
    gc.freeze()  # or the collector looks at all that is loaded once more when the process ends
    logs.start(settings)
    models.connect(settings.database_url)
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
                print(counts, flush=True)
                shown = counts
        except models.ALL_DATABASE_ERRORS as error:
            scheduler.reconnect()
            log.error("the pass failed: the database: %s", models.reason(error))
            status = 1
        if every is None:
            return status
        wake_at = time.monotonic() + every
        while not scheduler.stopping and time.monotonic() < wake_at:
            time.sleep(min(0.2, every))  # short, since a signal does not end a sleep
        if scheduler.stopping:
            return 0


def seconds(text):
    value = float(text)
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 86400")
    return value


if __name__ == "__main__":
    sys.exit(main())
