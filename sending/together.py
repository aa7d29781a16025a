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

    What one carrier does not take may become another's, so all are done once each has found
    nothing to do since the last of them did something. `most` bounds what they claim together, or
    a pass might never end while messages arrive.
    """

    def __init__(
        self, senders: Sequence[Sender], stop: Stop, meanwhile: Callable[[Sender], int], most: int
    ):
        self.stop, self.meanwhile = stop, meanwhile
        self.left = most
        self.progress = 0  # how often any of them did something
        self.idle_since = dict.fromkeys(senders)  # the progress before each found nothing to do
        self.guard = threading.Lock()

    def send(self) -> Counter:
        """Send until all are done; return how often each thing happened."""
        threads = []
        for sender in [*self.idle_since]:
            try:
                threads.append(in_own_thread(partial(self.work, sender)))
            except NoThread as error:
                log.error("texts of carrier %s wait: %s", sender.name, error)
                self.leave(sender)
        wait(threads)
        return sum((thread.result() for thread in threads), Counter())

    def leave(self, sender: Sender) -> None:
        """Let the others be done without a sender."""
        with self.guard:
            self.idle_since.pop(sender, None)

    def work(self, sender: Sender) -> Counter:
        """Send through one carrier until all are done."""
        counts = Counter()
        try:
            CarrierState.prepare(sender.name)
            while not self.stop.is_requested:
                seen, before = self.progress, sender.moves
                most = min(self.left, reports.awaiting_carrier(False))
                counts.update(sender.send_queued(lambda: self.meanwhile(sender), most))
                with self.guard:
                    claimed = sender.moves - before
                    if claimed or sender.waits_for_lanes:
                        self.progress += 1
                        self.left = max(0, self.left - claimed)
                    else:
                        self.idle_since[sender] = seen
                        if {*self.idle_since.values()} == {self.progress}:
                            break
                if claimed:
                    continue
                database.db.close()
                self.stop.sleep(TICK)
        finally:
            self.leave(sender)
            database.db.close()
        return counts
