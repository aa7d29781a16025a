"""What a sender runs on, passed in: time, threads, and the request to stop."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from queue import Empty, Queue, SimpleQueue
from typing import Any, NamedTuple

from texting.database import clock

TICK = 0.2  # seconds, since a signal does not end a sleep
GATHERED = 0.002  # seconds that an answer waits for others: a round costs much the same for several
LOOK_EVERY = 1  # seconds for which, while texts are under way, what changes rarely is not read anew


class Clock:
    """The time of this machine."""

    def now(self) -> datetime:
        return clock.now()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Ended(Queue):
    """The futures of sends whose threads have ended.

    A SimpleQueue might wait for ever: Python 3.11 treats an expired timeout as none.
    """

    def gather(self, seconds: float) -> list[Future]:
        """Return the futures of sends that have ended; if none has, wait at most this long."""
        try:
            done = [self.get(timeout=seconds)]
        except Empty:
            return []
        time.sleep(GATHERED)
        while not self.empty():
            done.append(self.get())
        return done


class Threads:
    """Lasting threads: each waits for the next call, since starting one takes longer than a call.

    A ThreadPoolExecutor that can start no thread raises an error but may call the action later.
    """

    def __init__(self):
        self._idle = []  # each waiting thread's queue of calls

    def submit(self, action: Callable, *arguments: Any) -> Future:
        """Have a thread call something; raise RuntimeError if the machine can start none."""
        future = Future()
        try:
            calls = self._idle.pop()
        except IndexError:
            calls = SimpleQueue()
            threading.Thread(target=self._serve, args=(calls,), daemon=True).start()
        calls.put((future, action, arguments))
        return future

    def _serve(self, calls):
        while True:
            future, action, arguments = calls.get()
            try:
                end, result = future.set_result, action(*arguments)
            except BaseException as error:
                end, result = future.set_exception, error
            self._idle.append(calls)  # first: end() may lead to the next call
            end(result)
            del future, action, arguments, end, result  # keep nothing of a text


class Runtime(NamedTuple):
    """The clock, how to call something in a thread, and how to make the queue of ended sends."""

    clock: Clock = Clock()
    submit: Callable[..., Future] = Threads().submit
    make_queue: Callable[[], Ended] = Ended


THIS_MACHINE = Runtime()


class Stop:
    """The request to stop: no send begins after it; those under way get `timeout` seconds.

    The host would kill a process that waits longer.
    """

    def __init__(self, timeout: float, clock: Clock):
        self.timeout, self.clock = timeout, clock
        self.by = math.inf  # when to end in any case, by the monotonic clock

    def request(self) -> None:
        """Stop soon; a second request gives no more time."""
        self.by = min(self.by, self.clock.monotonic() + self.timeout)

    @property
    def is_requested(self) -> bool:
        return self.by < math.inf

    @property
    def seconds_left(self) -> float:
        return max(0, self.by - self.clock.monotonic())

    def sleep(self, seconds: float) -> None:
        """Do nothing for this many seconds, or until a stop is requested."""
        wake_at = self.clock.monotonic() + seconds
        while not self.is_requested and (left := wake_at - self.clock.monotonic()) > 0:
            self.clock.sleep(min(TICK, left))
