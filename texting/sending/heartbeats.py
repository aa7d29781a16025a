"""Which schedulers are alive: each beats every few seconds, and watches the others.

This is safe even if clocks are wrong. A scheduler gives a text to a carrier only within FRESH
seconds of its last beat that is known to be stored, counted from just before that beat. Another one
declares it dead only after seeing no beat for longer. Both go by their own monotonic clocks. That
clock may stop while a machine sleeps, so a leap of the wall clock counts as elapsed time, too.
"""

import math
import uuid
from datetime import timedelta

from texting.database.clock import WRONG
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.sending.runtime import Clock

BEAT_EVERY = 3  # seconds
FRESH = 10  # seconds after a beat during which texts may be given to carriers
WATCHED = 20  # seconds without a beat until another one is dead: longer than FRESH
GAP = 10  # seconds without a look, after which the watch starts afresh


class Pulse:
    """This scheduler's beats, and those it has seen of others."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.sender = None  # until the first beat
        self.beaten_at = -math.inf  # just before the last stored beat, by the monotonic clock
        self.ahead = 0  # then: wall clock minus monotonic clock, in seconds
        self.seen = {}  # for each sender, its last beat count and when we first saw it
        self.looked_at = -math.inf

    def is_fresh(self, sender: uuid.UUID, *moments: tuple[float, float]) -> bool:
        """Return whether texts that this sender claimed may still be given to a carrier.

        The last beat has to be fresh, and so do these moments.
        """
        monotonic, now_ahead = self.moment()
        passed = [
            monotonic - at + max(0, now_ahead - ahead)
            for at, ahead in ((self.beaten_at, self.ahead), *moments)
        ]
        return sender == self.sender and max(passed) <= FRESH

    def moment(self) -> tuple[float, float]:
        """Return the monotonic clock, and how many seconds the wall clock is ahead of it."""
        monotonic = self.clock.monotonic()
        return monotonic, self.clock.now().timestamp() - monotonic

    def record_beat(self, before: tuple[float, float]) -> None:
        """Note that a beat is stored; `before` is the moment before it."""
        self.beaten_at, self.ahead = before

    @property
    def is_due(self) -> bool:
        """Whether it is time to beat again."""
        return self.sender is None or self.clock.monotonic() - self.beaten_at >= BEAT_EVERY

    def beat(self) -> None:
        """Beat; become a new sender if this one was declared dead and lost its texts."""
        before, now = self.moment(), self.clock.now()
        if not (self.sender and Heartbeat.beat(self.sender, now)):
            self.sender = None
            sender = uuid.uuid4()
            Heartbeat.insert(sender=sender, beat_at=now).execute()
            self.sender = sender
        self.record_beat(before)

    def beat_in_transaction(self) -> bool:
        """Beat in a transaction that claims something; return False if this sender is dead.

        Nobody can declare it dead before the transaction ends; so who takes over finds the claim.
        """
        if Heartbeat.beat(self.sender, self.clock.now()):
            return True
        self.beaten_at = -math.inf  # beat again at once, as another sender
        return False

    def end(self) -> None:
        """Delete this sender, unless it may still have texts: then others take them over."""
        if self.sender and not Attempt.under_way(self.sender).exists():
            Heartbeat.end(self.sender)
        self.sender = None

    def watch(self, timeout: float) -> tuple[list[Heartbeat], bool]:
        """Return the dead senders, and whether there are more that may be dead.

        The last beat of a dead one is older than `timeout` seconds by the wall clock, or ahead of
        that, which says nothing; and it was watched for long enough without a beat.
        """
        now, monotonic = self.clock.now(), self.clock.monotonic()
        silent = Heartbeat.beat_at < now - timedelta(seconds=timeout)
        silent |= Heartbeat.beat_at > now + WRONG
        before = self.seen if monotonic - self.looked_at <= GAP else {}
        self.seen, self.looked_at = {}, monotonic
        dead = []
        for each in Heartbeat.select().where(silent, Heartbeat.sender != self.sender):
            beats, since = before.get(each.sender, (None, monotonic))
            self.seen[each.sender] = each.beats, since if beats == each.beats else monotonic
            if monotonic - self.seen[each.sender][1] >= WATCHED:
                dead.append(each)
        return dead, len(self.seen) > len(dead)
