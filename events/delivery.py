"""Deliver events to the addresses of keys, beside texts: a thread of each scheduler."""

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from queue import Empty, Queue
from typing import NamedTuple
from uuid import UUID

import database
from carriers import CarrierError, urls
from carriers.http import Answer
from carriers.webhook import SignedPosts, decoded
from database import clock
from database.clock import Steps
from events.outbox import Event, EventAddress

TIMEOUT = 15  # seconds, from the connection to the status line
AT_ONCE = 4  # requests to one address
MOST = 128  # requests in all; addresses that do not understand get half of them
KEPT_FREE = 16  # of that half, for those with nothing under way; as many more for a first try
AHEAD, FEW = 100, 8  # events of an address in hand; fewer until it understands
YIELD = 1  # seconds between claims for an address that does not understand, while others do
DELAYS = (5, 5 * 60, 30 * 60, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds until each further try; up to a fifth more."""

LONGEST = timedelta(seconds=1.2 * DELAYS[-1])
"""How far ahead the next try of an event can be."""

BUSY, IDLE = 0.1, 0.5  # seconds between looks into the database
GRACE = 1  # seconds at the end for answers to tries that began late
UNUSED = 60  # seconds until the connections to an address are closed
GONE = 410
OFF_BY_RECEIVER = "the receiver answered 410 (Gone)"

log = logging.getLogger("events")


class Receiver(SignedPosts):
    """The system of a key."""

    title = "the receiver"
    longest_pause = 24 * 3600
    timeout_is_total = True

    def __init__(self, url: str, concurrency: int, timeout: float):
        super().__init__(url, concurrency, timeout)
        self.avoids_link_local = not urls.is_link_local(url)  # or an operator insists on it


class Lane:
    """The events in hand for one address, and its connections."""

    def __init__(self, url: str):
        self.receiver = Receiver(url, AT_ONCE, TIMEOUT)
        self.waiting = deque()  # each an event and its EventAddress
        self.under_way = 0
        self.understands = False  # as far as its last answer tells
        self.used_at, self.claimed_at = time.monotonic(), -math.inf
        self.served_at = -math.inf  # when its last try began

    @property
    def load(self) -> int:
        """How many events of it are in hand."""
        return self.under_way + len(self.waiting)

    @property
    def room(self) -> int:
        """How many more events may be claimed for it."""
        return (AHEAD if self.understands else FEW) - self.load

    def may_begin(self, under_way: int) -> bool:
        """Say whether it may have one more try, beside so many in all."""
        if not self.waiting or self.under_way >= AT_ONCE:
            return False
        if self.understands:
            return under_way < MOST
        if self.under_way:
            return under_way < MOST // 2 - KEPT_FREE
        is_first = self.served_at == -math.inf
        return under_way < MOST // 2 + (KEPT_FREE if is_first else 0)


class Try(NamedTuple):
    """A try that has ended, with an answer or the reason for none."""

    event: Event
    address: EventAddress
    answer: Answer | str

    @property
    def understood(self) -> bool:
        return not isinstance(self.answer, str) and self.answer.success

    @property
    def words(self) -> str:
        return self.answer if isinstance(self.answer, str) else f"HTTP {self.answer.status}"


class Deliveries:
    """Deliver what is due, in a thread, until `finish` or `stop` is called.

    With `once`, each event is tried no more than once. Any number of schedulers may deliver at
    once: each claims events, renews its claims, and records what became of them. Only `run` talks
    to the database; a thread for each try talks to the receiver. `note_notified` notes the messages
    of which receivers have understood an event.
    """

    def __init__(
        self,
        claim_timeout: int,
        note_notified: Callable[[set[UUID], datetime], None],
        *,
        once: bool = False,
    ):
        self.claim_timeout, self.note_notified = claim_timeout, note_notified
        self.began_at = clock.now() if once else None
        self.lanes = {}  # by URL
        self.claimed_at = {}  # when events of a key were claimed last
        self.in_hand = {}  # the claimed events by their ids
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
        """Begin no more tries, and wait for receivers no longer than so many seconds, or TIMEOUT.

        A handler of signals may call this: it takes no lock.
        """
        self.stop_requested = True
        self.end_by(time.monotonic() + min(seconds, TIMEOUT + GRACE))

    def finish(self) -> None:
        """Return when all that is due was tried, but wait for receivers no longer than TIMEOUT."""
        self.end_by(time.monotonic() + TIMEOUT + GRACE)
        self.ended.put(None)
        self.thread.join()

    def end_by(self, instant: float) -> None:
        """Let the thread end by then, unless it ends sooner."""
        self.give_up_at = min(self.give_up_at, instant)

    @property
    def stopping(self) -> bool:
        """Whether no more tries are begun."""
        return self.stop_requested or time.monotonic() >= self.give_up_at - GRACE

    @property
    def idle(self) -> bool:
        """Whether no address that understands has events in hand."""
        return not any(lane.understands and lane.load for lane in self.lanes.values())

    def run(self) -> None:
        """Record, claim and begin, again and again.

        A database that is away is asked again. What was delivered meanwhile is recorded then. No
        error ends this thread.
        """
        while True:
            try:
                if self.has_ended():
                    return
                self.wait(BUSY if self.in_hand else IDLE)
            except Exception as error:  # its words may hold an address
                words = "events are delivered in spite of an unexpected %s"
                log.error(words, type(error).__name__)
                if time.monotonic() >= self.give_up_at:
                    return
                time.sleep(IDLE)

    def has_ended(self) -> bool:
        """Take a turn with the database; say whether it was the last."""
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
        """Begin tries, and take what comes back, for so many seconds."""
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
            if len(self.unrecorded) == len(self.in_hand) or (ended.understood and self.idle):
                return

    # In turns with the database

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
            self.release(now, ())
            return
        receivers = Event.receivers(now, self.began_at)
        self.release(now, {(address.key_id, address.url) for address, _ in receivers})
        at, lanes = time.monotonic(), self.lanes.values()
        others = any(lane.understands and lane.used_at > at - YIELD for lane in lanes)
        pace = YIELD if others else 0
        due = [address for address, is_due in receivers if is_due]
        # Keys may share an address: each gets its turn
        for address in sorted(due, key=lambda each: self.claimed_at.get(each.key_id, -math.inf)):
            lane = self.lane(address.url)
            if lane.room > 0 and (lane.understands or at - lane.claimed_at >= pace):
                lane.claimed_at = self.claimed_at[address.key_id] = at
                claimed = Event.claim(address.key_id, lane.room, now, lease, self.began_at)
                self.keep(claimed, address, lane)
        self.close_unused()
        database.db.close()

    def lane(self, url: str) -> Lane:
        """Return the lane of an address."""
        if url not in self.lanes:
            self.lanes[url] = Lane(url)
        return self.lanes[url]

    def keep(self, claimed: list[Event], address: EventAddress, lane: Lane) -> None:
        """Have claimed events wait in a lane."""
        for event in claimed:
            if held := self.in_hand.get(event.id):  # this process stood still for so long
                held.next_try_at = event.next_try_at
            else:
                self.in_hand[event.id] = event
                lane.waiting.append((event, address))

    def release(self, now: datetime, current: set[tuple[int, str]]) -> None:
        """Put back what waits for an address that its key does not have any more."""
        gone = []
        for lane in self.lanes.values():
            stays = deque()
            for event, address in lane.waiting:
                if (address.key_id, address.url) in current:
                    stays.append((event, address))
                else:
                    gone.append(event)
            lane.waiting = stays
        Event.renew(gone, now)
        for event in gone:
            del self.in_hand[event.id]

    def let_go(self) -> None:
        """Put back what is under way yet; close the connections that nobody uses."""
        Event.renew(self.in_hand.values(), clock.now())
        for lane in self.lanes.values():
            if not lane.under_way:
                lane.receiver.close()
        database.db.close()

    def close_unused(self) -> None:
        """Close connections that have not been used for a while."""
        before = time.monotonic() - UNUSED
        for url, lane in [*self.lanes.items()]:
            if not lane.load and lane.used_at < before:
                self.lanes.pop(url).receiver.close()

    def record(self, now: datetime) -> None:
        """Record what became of the tries that have ended."""
        if not self.unrecorded:
            return
        understood = [each.event for each in self.unrecorded if each.understood]
        with database.db.atomic():
            Event.delivered(understood)
            EventAddress.note_success({event.key_id for event in understood})
            self.note_notified({event.message_id for event in understood}, now)
            failed = [each for each in self.unrecorded if not each.understood]
            lines = [self.record_no(each, now) for each in failed]
        for each in self.unrecorded:
            self.in_hand.pop(each.event.id, None)
        self.unrecorded = []
        for (event, address, _), line in zip(failed, lines, strict=True):
            about = {"message_id": str(event.message_id), "key": address.key.name}
            log.warning(*line, extra=about)

    def record_no(self, ended: Try, now: datetime) -> tuple:
        """Record a try in vain; return the line for the log."""
        event, key = ended.event, ended.address.key
        answer = None if isinstance(ended.answer, str) else ended.answer
        next_try_at = next_try(event.tries, answer and answer.retry_after, now)
        event.failed(ended.words, next_try_at, now)
        EventAddress.note_failure(key.id, ended.address.url, now)
        is_gone = answer is not None and answer.status == GONE
        if is_gone and EventAddress.switch_off(key.id, OFF_BY_RECEIVER, now, ended.address.url):
            then = "the address is switched off"
        elif next_try_at:
            then = f"tried again at {next_try_at:%Y-%m-%d %H:%M:%S} UTC"
        else:
            then = f"given up after {event.tries + 1} tries"
        line = "event %s of key %s was not delivered, %s: %s"
        return line, event.webhook_id, key.name, ended.words, then

    # In turns with the receivers

    def begin(self) -> None:
        """Begin as many tries as may be under way; addresses take turns.

        The next is the one whose last try began first, so those that answer nothing share what
        they may have, and leave some for others.
        """
        while not self.stopping:
            able = [lane for lane in self.lanes.values() if lane.may_begin(self.under_way)]
            if not able:
                return
            self.begin_one(min(able, key=lambda lane: lane.served_at))

    def begin_one(self, lane: Lane) -> None:
        """Begin the next try of a lane."""
        arguments = lane.receiver, *lane.waiting[0]
        threading.Thread(target=self.deliver, args=arguments, daemon=True).start()
        lane.waiting.popleft()  # not before: there may be no more threads
        lane.served_at = time.monotonic()
        lane.under_way += 1
        self.under_way += 1

    def deliver(self, receiver: Receiver, event: Event, address: EventAddress) -> None:
        """Give the receiver an event, in a thread of its own."""
        try:
            secrets = [decoded(secret) for secret in address.secrets(clock.now())]
            answer = receiver.post_signed(event.webhook_id, event.body, secrets)
        except CarrierError as error:
            answer = str(error)
        except Exception as error:  # its words may hold the address
            answer = f"unexpected {type(error).__name__}"
        self.ended.put(Try(event, address, answer))

    def take(self, ended: Try) -> None:
        """Note that a try has ended."""
        lane = self.lanes[ended.address.url]
        lane.under_way -= 1
        self.under_way -= 1
        lane.understands, lane.used_at = ended.understood, time.monotonic()
        self.unrecorded.append(ended)


def next_try(tries: int, retry_after: float | None, now: datetime) -> datetime | None:
    """Return when an event is tried again after so many tries and one more; None for never."""
    if tries >= len(DELAYS):
        return None
    return now + timedelta(seconds=max(DELAYS[tries] * random.uniform(1, 1.2), retry_after or 0))
