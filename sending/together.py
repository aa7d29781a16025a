"""The senders of several carriers in a single pass: side by side, until none has anything left."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import partial

import database
import reports
from sending.carrier_state import CarrierState
from sending.runtime import TICK, NoThread, Stop, in_own_thread
from sending.sender import Sender

log = logging.getLogger("scheduler")


class Together:
    """Let each sender work in a thread of its own, once more whenever another did something.

    What one carrier does not take may become another's. `most` bounds what they claim together, or
    a pass might never end while messages arrive.
    """

    def __init__(
        self, senders: Sequence[Sender], stop: Stop, meanwhile: Callable[[Sender], int], most: int
    ):
        self.senders, self.stop, self.meanwhile = senders, stop, meanwhile
        self.left = most
        self.progress = 0  # how often any of them did something
        self.at_work = {*senders}
        self.guard = threading.Lock()

    def send(self) -> Counter:
        """Send until all are done; return how often each thing happened."""
        counts = Counter()
        threads = []
        for sender in self.senders:
            try:
                threads.append(in_own_thread(partial(self.work, sender)))
            except NoThread as error:
                log.error("texts of carrier %s wait: %s", sender.name, error)
                with self.guard:
                    self.at_work.discard(sender)
        wait(threads)
        for thread in threads:
            counts.update(thread.result())
        return counts

    def work(self, sender: Sender) -> Counter:
        """Send through one carrier until all are done."""
        counts = Counter()
        try:
            CarrierState.prepare(sender.name)
            while True:
                with self.guard:
                    seen, most = self.progress, self.left
                    self.at_work.add(sender)
                claimed, most = sender.claimed, min(most, reports.awaiting_carrier(False))
                counts.update(sender.send_queued(lambda: self.meanwhile(sender), most))
                claimed = sender.claimed - claimed
                with self.guard:
                    self.at_work.discard(sender)
                    self.left = max(0, self.left - claimed)
                    self.progress += bool(claimed)
                    is_done = not self.at_work and self.progress == seen
                if is_done or self.stop.is_requested:
                    return counts
                if not claimed:
                    self.stop.sleep(TICK)
        finally:
            with self.guard:
                self.at_work.discard(sender)
            database.db.close()
