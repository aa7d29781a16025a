"""Deliver events to the addresses of keys, beside texts: a thread of each scheduler."""

import logging
import math
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from queue import Empty, Queue
from typing import NamedTuple
from uuid import UUID

import database
from carriers import CarrierError, urls
from carriers.http import Answer
from carriers.webhook import SignedPosts, decoded
from database import clock, isoformat
from database.clock import Steps
from events.outbox import Event, EventAddress

TIMEOUT = 15  # seconds, from the connection to the status line
AT_ONCE = 4  # requests to one address
MOST = 128  # requests in all; failing addresses begin one only while half of them are free
AHEAD = 100  # events of a healthy address in hand; of any other, one
DELAYS = (5, 5 * 60, 30 * 60, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds until each further try; up to a fifth more."""

LONGEST = timedelta(seconds=1.2 * DELAYS[-1])
"""How far ahead the next try of an event can be."""

BUSY, IDLE = 0.1, 1  # seconds between looks into the database
GRACE = 1  # seconds at the end for answers to tries that began late
UNUSED = 60  # seconds until the connections to an address are closed
GONE = 410
OFF_BY_RECEIVER = "the receiver answered 410 (Gone)"

log = logging.getLogger("events")


class Receiver(SignedPosts):
    """The system of a key."""

    title = "the receiver"
    longest_pause = 24 * 3600

    def __init__(self, url: str, concurrency: int, timeout: float):
        super().__init__(url, concurrency, timeout)
        # An operator may have insisted on such an address
        self.avoids_link_local = not urls.is_link_local(urls.split(url).hostname)


class Endpoint:
    """One address: its events in hand, and its connections."""

    def __init__(self, url: str):
        self.receiver = Receiver(url, AT_ONCE, TIMEOUT)
        self.waiting = deque()  # events
        self.under_way = 0
        self.healthy = None  # whether its last event was accepted; None before its first answer
        self.used_at = time.monotonic()

    @property
    def load(self) -> int:
        """How many of its events are in hand."""
        return self.under_way + len(self.waiting)

    @property
    def room(self) -> int:
        """How many more events may be claimed for it."""
        return (AHEAD if self.healthy else 1) - self.load

    def may_begin(self, under_way: int) -> bool:
        """Return whether it may have one more try, with this many under way in all."""
        most = MOST // 2 if self.healthy is False else MOST
        return bool(self.waiting) and self.under_way < AT_ONCE and under_way < most


class Try(NamedTuple):
    """A try that has ended, with an answer or the reason why there is none."""

    event: Event
    address: EventAddress
    answer: Answer | None
    words: str

    @property
    def accepted(self) -> bool:
        return self.answer is not None and self.answer.success


Noting = Callable[[set[UUID], datetime], None]
"""What records the messages whose events were accepted."""


class Deliveries:
    """Deliver what is due, in a thread, until `finish` or `stop` is called.

    With `once`, each event is tried no more than once. Any number of schedulers may deliver at
    once: each claims events, renews its claims, and records the results. Only `run` uses the
    database; each try has a thread.
    """

    def __init__(self, claim_timeout: int, note_notified: Noting, *, once: bool = False):
        self.claim_timeout, self.note_notified = claim_timeout, note_notified
        self.began_at = clock.now() if once else None
        self.endpoints = OrderedDict()  # by URL; the next one to have a turn first
        self.in_hand = {}  # the claimed events by their ids
        self.addresses = {}  # that are on, with the secrets that they have now, by key and URL
        self.ended = Queue()  # tries; None ends a wait; no SimpleQueue, see sending.runtime.Ended
        self.unrecorded = []
        self.under_way = 0
        self.renew_at = -math.inf
        self.steps = Steps(lambda: clock.now(), time.monotonic)
        self.stop_requested = False
        self.give_up_at = math.inf
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self.thread.start()

    def stop(self, seconds: float = math.inf) -> None:
        """Begin no more tries, and wait for receivers at most this many seconds, or TIMEOUT.

        A handler of signals may call this: it takes no lock.
        """
        self.stop_requested = True
        self._end_within(min(seconds, TIMEOUT + GRACE))

    def finish(self) -> None:
        """Return when all that is due was tried, but wait for receivers no longer than TIMEOUT."""
        self._end_within(TIMEOUT + GRACE)
        self.ended.put(None)
        self.thread.join()

    def _end_within(self, seconds):
        self.give_up_at = min(self.give_up_at, time.monotonic() + seconds)

    @property
    def stopping(self) -> bool:
        """Whether no more tries are begun."""
        return self.stop_requested or time.monotonic() >= self.give_up_at - GRACE

    def run(self) -> None:
        """Record, claim and begin, again and again.

        During an outage of the database, results wait to be recorded. No error ends this thread.
        """
        while True:
            try:
                if self.has_ended():
                    return
                self.wait(BUSY if self.in_hand else IDLE)
            except Exception as error:  # its words may hold an address
                kind = type(error).__name__
                log.error("event delivery hit an unexpected %s and continues", kind)
                if time.monotonic() >= self.give_up_at:
                    return
                time.sleep(IDLE)

    def has_ended(self) -> bool:
        """Exchange events with the database; return whether that was the last time."""
        left = self.give_up_at - time.monotonic()
        finishing = left < math.inf
        try:
            self.exchange(clock.now())
            if left <= 0 or (finishing and not self.in_hand):
                self.let_go()
                return True
        except database.ERRORS as error:
            database.disconnect()
            if self.in_hand or not database.is_outage(error):
                log.error("the database failed, trying again: %s", database.reason(error))
            return left <= 0 or (finishing and not self.in_hand)
        return False

    def wait(self, seconds: float) -> None:
        """Begin tries, and take their results, for at most this many seconds."""
        wake_at = time.monotonic() + seconds
        self.begin()
        while (left := wake_at - time.monotonic()) > 0:
            try:
                ended = self.ended.get(timeout=left)
            except Empty:
                return
            if ended is None:
                return
            self.take(ended)
            self.begin()
            if len(self.unrecorded) == len(self.in_hand):
                return

    # The database

    def exchange(self, now: datetime) -> None:
        """Record the tries that have ended, renew claims, and claim what is due."""
        lasts = timedelta(seconds=self.claim_timeout)
        lease = now + lasts
        self.record(now)
        if self.steps.noticed() or time.monotonic() >= self.renew_at:
            self.renew_at = time.monotonic() + self.claim_timeout / 4
            Event.renew(self.in_hand.values(), lease)
            Event.correct(now, lasts, LONGEST)
        if self.stopping:
            self.release(now, {})
            return
        held = {event.key_id for event in self.in_hand.values()}
        receivers = Event.receivers(now, self.began_at, held)
        self.release(now, {(each.key_id, each.url): each for each in receivers})
        Event.read_texts(event for each in self.endpoints.values() for event in each.waiting)
        random.shuffle(receivers)  # keys may share an address: none is always the first
        for address in receivers:
            endpoint = self.endpoints.get(address.url) or Endpoint(address.url)
            if endpoint.room > 0:
                self.endpoints[address.url] = endpoint
                claimed = Event.claim(address.key_id, endpoint.room, now, lease, self.began_at)
                self.keep(claimed, endpoint)
        self.close_unused()
        database.db.close()

    def keep(self, claimed: list[Event], endpoint: Endpoint) -> None:
        """Keep claimed events in hand for their endpoint."""
        for event in claimed:
            if held := self.in_hand.get(event.id):  # this process stood still for so long
                held.next_try_at = event.next_try_at
            else:
                self.in_hand[event.id] = event
                endpoint.waiting.append(event)

    def release(self, now: datetime, addresses: dict[tuple[int, str], EventAddress]) -> None:
        """Release the events that wait for none of these addresses, which are on now."""
        gone = []
        for url, endpoint in self.endpoints.items():
            gone += [each for each in endpoint.waiting if (each.key_id, url) not in addresses]
        Event.renew(gone, now)
        for event in gone:
            del self.in_hand[event.id]
        for endpoint in self.endpoints.values():
            endpoint.waiting = deque(each for each in endpoint.waiting if each.id in self.in_hand)
        self.addresses = addresses

    def let_go(self) -> None:
        """Release what is still under way, and close the connections that no try uses."""
        Event.renew(self.in_hand.values(), clock.now())
        for endpoint in self.endpoints.values():
            if not endpoint.under_way:
                endpoint.receiver.close()
        database.db.close()

    def close_unused(self) -> None:
        """Close connections that have not been used for a while."""
        before = time.monotonic() - UNUSED
        for url, endpoint in [*self.endpoints.items()]:
            if not endpoint.load and endpoint.used_at < before:
                self.endpoints.pop(url).receiver.close()

    def record(self, now: datetime) -> None:
        """Record the results of the tries that have ended."""
        if not self.unrecorded:
            return
        accepted = [each.event for each in self.unrecorded if each.accepted]
        with database.db.atomic():
            Event.delivered(accepted)
            EventAddress.note_success({event.key_id for event in accepted})
            self.note_notified({event.message_id for event in accepted}, now)
            failed = [each for each in self.unrecorded if not each.accepted]
            lines = [self.record_failure(each, now) for each in failed]
        for each in self.unrecorded:
            self.in_hand.pop(each.event.id, None)
        self.unrecorded = []
        for each, line in zip(failed, lines, strict=True):
            about = {"message_id": str(each.event.message_id), "key": each.address.key.name}
            log.warning(*line, extra=about)

    def record_failure(self, ended: Try, now: datetime) -> tuple:
        """Record a failed try; return the line for the log."""
        event, key, answer = ended.event, ended.address.key, ended.answer
        next_try_at = next_try(event.tries, answer and answer.retry_after, now)
        event.failed(ended.words, next_try_at, now)
        EventAddress.note_failure(key.id, ended.address.url, now)
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

    def begin(self) -> None:
        """Begin as many tries as may be under way; addresses take turns."""
        while not self.stopping:
            able = (url for url, each in self.endpoints.items() if each.may_begin(self.under_way))
            if (url := next(able, None)) is None:
                return
            self.begin_one(url, self.endpoints[url])
            self.endpoints.move_to_end(url)

    def begin_one(self, url: str, endpoint: Endpoint) -> None:
        """Begin the next try of an endpoint."""
        event = endpoint.waiting[0]
        arguments = endpoint.receiver, event, self.addresses[event.key_id, url]
        threading.Thread(target=self.deliver, args=arguments, daemon=True).start()
        endpoint.waiting.popleft()  # not before: there may be no more threads
        endpoint.under_way += 1
        self.under_way += 1

    def deliver(self, receiver: Receiver, event: Event, address: EventAddress) -> None:
        """Send an event to its receiver; runs in a thread of its own."""
        answer = None
        try:
            secrets = [decoded(secret) for secret in address.secrets(clock.now())]
            answer = receiver.post_signed(event.webhook_id, event.body, secrets)
            words = f"HTTP {answer.status}"
        except CarrierError as error:
            words = str(error)
        except Exception as error:  # its words may hold the address
            words = f"unexpected {type(error).__name__}"
        self.ended.put(Try(event, address, answer, words))

    def take(self, ended: Try) -> None:
        """Note that a try has ended."""
        endpoint = self.endpoints[ended.address.url]
        endpoint.under_way -= 1
        self.under_way -= 1
        endpoint.healthy, endpoint.used_at = ended.accepted, time.monotonic()
        self.unrecorded.append(ended)


def next_try(tries: int, retry_after: float | None, now: datetime) -> datetime | None:
    """Return when an event that failed once more after this many tries is due; None: never."""
    if tries >= len(DELAYS):
        return None
    return now + timedelta(seconds=max(DELAYS[tries] * random.uniform(1, 1.2), retry_after or 0))
