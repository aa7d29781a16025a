"""Deliver events to the addresses of keys, in a thread of each scheduler."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from queue import Empty, Queue
from typing import NamedTuple
from uuid import UUID

from texting import database
from texting.carriers import CarrierError
from texting.carriers.http import Response
from texting.carriers.webhook import SignedPosts, decoded
from texting.database import clock, isoformat
from texting.events.outbox import Event, EventAddress, body_of_test, new_webhook_id

TIMEOUT = 15  # seconds, from the connection to the status line
AT_ONCE = 2  # requests to one address
FOR_SLOW, FOR_UNTRIED, IN_ALL = LIMITS = 50, 90, 100
"""Tries under way at once: of slow receivers, of these and of untried ones, and of all.

So those that hang, however many, leave room for others.
"""

SLOW = 5  # seconds that a try takes of a slow receiver
DELAYS = (5, 5 * 60, 30 * 60, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds until each next try; up to a fifth is added."""

LATER = timedelta(hours=1)  # when to try an event again that cannot be tried now
IDLE = 1  # seconds between looks at the database while no try ends
GRACE = 1  # seconds to wait, at the end, for tries that began late
GONE = 410
LONGEST_SHOWN = 200  # bytes of a receiver's answer to a test
OFF_BY_RECEIVER = "the receiver answered 410 (Gone)"

log = logging.getLogger("events")


class Receiver(SignedPosts):
    """The system of a key, while events are sent to it."""

    title = "the receiver"
    longest_pause = 24 * 3600

    def __init__(self, url: str):
        super().__init__(url, AT_ONCE, TIMEOUT)
        self.load()
        self.open = {}  # by id, events whose results are not recorded yet


class Try(NamedTuple):
    """A try that has ended: the answer, or the reason why there is none."""

    event: Event
    address: EventAddress
    answer: Response | None
    words: str
    seconds: float  # that it took

    @property
    def accepted(self) -> bool:
        return self.answer is not None and self.answer.success


Noting = Callable[[set[UUID], datetime], None]
"""A function that records the messages whose events were accepted."""


class Deliveries:
    """Deliver what is due, in a thread, until `finish` or `stop` is called.

    With `once`, each event is tried only once. Any number of schedulers may deliver at the same
    time: each claims only what it begins, and records the results. Only `run` uses the database.
    Each try has a thread, so that no receiver waits for another, within LIMITS.
    """

    def __init__(self, claim_timeout: int, record_notified: Noting, *, once: bool = False):
        self.lease, self.record_notified = timedelta(seconds=claim_timeout), record_notified
        self.began_at = clock.now() if once else None
        self.receivers = {}  # by URL, those with events whose results are not recorded yet
        self.limits = {}  # by URL, which of LIMITS counts
        self.ended = Queue()  # tries; None ends a wait. No SimpleQueue: see sending.runtime.Ended
        self.unrecorded = []
        self.has_more = self.stop_requested = False
        self.give_up_at = math.inf
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self.thread.start()

    def stop(self, seconds: float = math.inf) -> None:
        """Begin no more tries, and wait for receivers at most this many seconds, or TIMEOUT.

        A signal handler may call this: it takes no lock.
        """
        self.stop_requested = True
        self._end_within(min(seconds, TIMEOUT + GRACE))

    def finish(self) -> None:
        """Wait until everything due has been tried, but no longer than TIMEOUT for receivers."""
        self._end_within(TIMEOUT + GRACE)
        self.ended.put(None)
        self.thread.join()

    def _end_within(self, seconds):
        self.give_up_at = min(self.give_up_at, time.monotonic() + seconds)

    @property
    def stopping(self) -> bool:
        """Whether no more tries begin."""
        return self.stop_requested or time.monotonic() >= self.give_up_at - GRACE

    def run(self) -> None:
        """Record, claim and begin tries, over and over.

        Results wait while the database is away. No error ends this thread.
        """
        while True:
            try:
                if self.has_ended():
                    return
                self.wait(min(IDLE, max(0, self.give_up_at - time.monotonic())))
            except Exception as error:  # its message may hold an address
                kind = type(error).__name__
                log.error("event delivery hit an unexpected %s and continues", kind)
                if time.monotonic() >= self.give_up_at:
                    return
                time.sleep(IDLE)

    def has_ended(self) -> bool:
        """Exchange events with the database; return whether this was the last time."""
        left = self.give_up_at - time.monotonic()
        finishing = left < math.inf
        try:
            self.exchange(clock.now())
        except database.ERRORS as error:
            database.disconnect()
            if self.receivers or not database.is_outage(error):
                log.error("the database failed, trying again: %s", database.reason(error))
        if left > 0 and (self.receivers or self.has_more or not finishing):
            return False
        for receiver in self.receivers.values():
            receiver.close()
        return True

    def wait(self, seconds: float) -> None:
        """Wait for a try to end, for at most this many seconds; take all that have ended."""
        try:
            ended = self.ended.get(timeout=seconds)
            while True:
                if ended:
                    self.unrecorded.append(ended)
                ended = self.ended.get_nowait()
        except Empty:
            return

    # The database

    def exchange(self, now: datetime) -> None:
        """Record the tries that have ended, and begin those that are due."""
        self.record(now)
        self.has_more = False
        if not self.stopping:
            addresses = Event.receivers(now, self.began_at)
            random.shuffle(addresses)  # keys may share an address: none should always be first
            for address in addresses:
                self.claim(address, now)
        for url in [url for url, each in self.receivers.items() if not each.open]:
            self.receivers.pop(url).close()
        database.db.close()

    def claim(self, address: EventAddress, now: datetime) -> None:
        """Claim and begin as many events of an address as may be under way at once."""
        room, until = self.room(address), now + self.lease
        if room <= 0:
            return
        receiver = self.receivers.get(address.url) or Receiver(address.url)
        due = address.key_id, room, now
        try:
            with database.db.atomic():  # or what cannot begin would stay claimed
                self.begin_all(receiver, Event.claim(*due, until, self.began_at), address)
        except Exception as error:
            if database.is_outage(error) or isinstance(error, RuntimeError):  # no thread
                raise
            for events in self.claim_but_broken(due, until):
                self.begin_all(receiver, events, address)

    def claim_but_broken(self, due: tuple, until: datetime) -> list[list[Event]]:
        """Claim due events; put off for long those that break this."""
        *_, now = due

        def claim(ids):
            with database.db.atomic():
                return Event.claim(*due, until, self.began_at, ids)

        def put_off(id):
            Event.put_off(id, now, until + LATER)
            self.has_more = True  # the events behind it

        what = "event {} is put off".format
        ids = Event.ids_due(*due, self.began_at)
        return database.skip_broken(claim, ids, log, what, put_off)

    def record(self, now: datetime) -> None:
        """Record the results of the tries that have ended."""

        def record(tries):
            self.record_tries(tries, now)

        def put_off(broken):
            words = "its answer cannot be recorded"
            broken.event.failed(words, next_try(broken.event.tries, None, now), now)

        what = "the answer to event {0.event.webhook_id} is not recorded".format
        database.skip_broken(record, self.unrecorded, log, what, put_off)
        for each in self.unrecorded:
            self.receivers[each.address.url].open.pop(each.event.id, None)
            self.limits[each.address.url] = FOR_SLOW if each.seconds > SLOW else IN_ALL
        self.unrecorded = []

    def record_tries(self, tries: list[Try], now: datetime) -> None:
        """Record the results of some tries in one transaction."""
        failed = [each for each in tries if not each.accepted]
        failed.sort(key=lambda each: each.event.key_id)  # or there could be a deadlock
        with database.db.atomic():
            accepted = [each.event for each in tries if each.accepted and each.event.delivered()]
            EventAddress.record_success({event.key_id for event in accepted})
            self.record_notified({event.message_id for event in accepted}, now)
            told = [(each, line) for each in failed if (line := self.record_failure(each, now))]
        for each, line in told:
            about = {"message_id": str(each.event.message_id), "key": each.address.key.name}
            log.warning(*line, extra=about)

    def record_failure(self, ended: Try, now: datetime) -> tuple | None:
        """Record a failed try; return its log line, or None if it does not count."""
        event, key, answer = ended.event, ended.address.key, ended.answer
        next_try_at = next_try(event.tries, answer and answer.retry_after, now)
        if not event.failed(ended.words, next_try_at, now):
            return None
        EventAddress.record_failure(key.id, ended.address.url, now)
        is_gone = answer and answer.status == GONE
        if is_gone and EventAddress.switch_off(key.id, OFF_BY_RECEIVER, now, ended.address.url):
            then = "the address is switched off"
        elif next_try_at:
            then = f"the next try is at {isoformat(next_try_at)}"
        else:
            then = f"given up after {event.tries + 1} tries"
        line = "event %s of key %s was not delivered, %s: %s"
        return line, event.webhook_id, key.name, ended.words, then

    # The receivers

    def room(self, address: EventAddress) -> int:
        """Return how many more tries of an address may begin."""
        mine = self.limits.setdefault(address.url, FOR_SLOW if address.failures else FOR_UNTRIED)
        under_way = {url: len(each.open) for url, each in self.receivers.items()}
        rooms = [AT_ONCE - under_way.get(address.url, 0)]
        for limit in LIMITS:
            if limit >= mine:
                rooms.append(
                    limit - sum(n for url, n in under_way.items() if self.limits[url] <= limit)
                )
        return min(rooms)

    def begin_all(self, receiver: Receiver, events: list[Event], address: EventAddress) -> None:
        """Begin to try events."""
        for event in events:
            if under_way := receiver.open.get(event.id):  # a request can outlast its lease
                under_way.next_try_at = event.next_try_at
            else:
                self.begin(receiver, event, address)

    def begin(self, receiver: Receiver, event: Event, address: EventAddress) -> None:
        """Begin to try an event."""
        threading.Thread(target=self.deliver, args=(receiver, event, address), daemon=True).start()
        receiver.open[event.id] = event
        self.receivers[address.url] = receiver

    def deliver(self, receiver: Receiver, event: Event, address: EventAddress) -> None:
        """Send an event to its receiver; runs in a thread of its own."""
        began = time.monotonic()
        answer, words = tell(receiver, event.webhook_id, event.body, address)
        self.ended.put(Try(event, address, answer, words, time.monotonic() - began))


def tell(
    receiver: Receiver, webhook_id: str, body: str, address: EventAddress
) -> tuple[Response | None, str]:
    """Send a signed body to an address; return the answer, if any, and a description of it."""
    try:
        secrets = [decoded(secret) for secret in address.secrets(clock.now())]
        answer = receiver.post_signed(webhook_id, body, secrets)
        return answer, f"HTTP {answer.status}"
    except CarrierError as error:
        return None, str(error)
    except Exception as error:  # its message may hold the address
        return None, f"unexpected {type(error).__name__}"


def tell_test(address: EventAddress, now: datetime) -> tuple[bool, str]:
    """Send an event of the type TEST to an address; store nothing.

    Return whether the receiver accepted it, and a description of its answer for an operator.
    """
    receiver = Receiver(address.url)
    try:
        answer, words = tell(receiver, new_webhook_id(), body_of_test(now), address)
    finally:
        receiver.close()
    if answer is None:
        return False, words
    said = " ".join(answer.body[:LONGEST_SHOWN].decode(errors="replace").split())
    return answer.success, f"the receiver answered {words}{said and f': {said}'}"


def next_try(tries: int, retry_after: float | None, now: datetime) -> datetime | None:
    """Return when to try an event again after this many tries and one more; None: never."""
    if tries >= len(DELAYS):
        return None
    return now + timedelta(seconds=max(DELAYS[tries] * random.uniform(1, 1.2), retry_after or 0))
