"""Which schedulers are alive: each beats every few seconds, and watches the others.

This is safe even if clocks are wrong. A scheduler gives a text to a carrier only within FRESH
seconds of its last beat that is known to be stored, counted from just before that beat. Another one
declares it dead only after seeing no beat for longer. Both go by their own monotonic clocks. That
clock may stop while a machine sleeps, so a leap of the wall clock counts as elapsed time, too.
"""

import logging
import math
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from peewee import IntegerField, UUIDField

from texting.database import PAST, InstantField, Table, all_but_broken, db, is_outage
from texting.database.clock import WRONG
from texting.messages.attempts import Attempt
from texting.messages.model import Message
from texting.messages.waiting import SET_ASIDE
from texting.sending.carrier_state import CarrierState
from texting.sending.runtime import Clock

BEAT_EVERY = 3  # seconds
FRESH = 10  # seconds after a beat during which texts may be given to carriers
WATCHED = 20  # seconds without a beat until another one is dead: longer than FRESH
GAP = 10  # seconds without a look, after which the watch starts afresh

log = logging.getLogger("scheduler")


class Heartbeat(Table):
    """A scheduler that is alive, or that died while it had texts."""

    sender = UUIDField(primary_key=True)
    beats = IntegerField(default=0)
    beat_at = InstantField(PAST)

    @classmethod
    def beat(cls, sender: uuid.UUID, now: datetime) -> bool:
        """Beat once; return False if the sender has been declared dead.

        Within a transaction, nobody can declare it dead before that ends.
        """
        beat = cls.update(beats=cls.beats + 1, beat_at=now).where(cls.sender == sender)
        return beat.execute() == 1

    @classmethod
    def end(cls, sender: uuid.UUID, beats: int | None = None) -> bool:
        """Delete a sender that ends, or one that is dead if it has not beaten again."""
        this = cls.sender == sender
        if beats is not None:
            this &= cls.beats == beats
        return cls.delete().where(this).execute() == 1


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

    def note_beat(self, before: tuple[float, float]) -> None:
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
        self.note_beat(before)

    def lives_on(self) -> bool:
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
            with db.atomic():
                Heartbeat.end(self.sender)
                let_go(self.sender)
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


def let_go(sender: uuid.UUID) -> None:
    """Leave to others the questions and probes of a sender that has ended."""
    Attempt.let_go(sender)
    CarrierState.let_go(sender)


def take_over(dead: Heartbeat, now: datetime) -> int:
    """Queue the messages that a dead scheduler was sending; return how many.

    They are in doubt: the carrier may have accepted them. Its questions are left to others. Do
    nothing if it has beaten again.
    """
    try:
        ids = [each.message_id for each in Attempt.under_way(dead.sender)]
        return _lose(dead, ids, now, ends=True)
    except Exception as error:
        if is_outage(error):
            raise

    def put_off(sender):
        later = Heartbeat.update(beat_at=now + SET_ASIDE)
        later.where(Heartbeat.sender == sender.sender, Heartbeat.beats == sender.beats).execute()

    def lose_but_broken(senders):
        return _lose_but_broken(*senders, now, put_off)

    what = "what scheduler {0.sender} had in hand is not taken over".format
    return sum(all_but_broken(lose_but_broken, [dead], log, what, put_off))


def _lose(dead: Heartbeat, ids: Collection[uuid.UUID], now: datetime, ends: bool) -> int:
    """Queue messages of a dead scheduler, and delete the scheduler if it `ends`.

    Locks are taken in the usual order: messages, then the sender, then attempts.
    """
    with db.atomic():
        rows = Message.select().where(Message.id.in_(ids)).order_by(Message.id)
        messages = {each.id: each for each in db.lock_rows(rows)}
        if ends and not Heartbeat.end(dead.sender, dead.beats):
            return 0
        lost = Attempt.lose(dead.sender, ids, now)
        if ends:
            let_go(dead.sender)
        return sum(messages[each.message_id].lose(each.carrier, each.claim_number) for each in lost)


def _lose_but_broken(dead, now, put_off):
    """Take over the messages of a dead scheduler one by one; retry later what breaks this.

    First give all to a scheduler that never beats: if the dead one wakes up, it has nothing.
    """
    with db.atomic():
        if not Heartbeat.end(dead.sender, dead.beats):
            return 0
        let_go(dead.sender)
        heir = Heartbeat.create(sender=uuid.uuid4(), beat_at=dead.beat_at)
        under_way = (Attempt.sender == dead.sender) & Attempt.result.is_null()
        Attempt.update(sender=heir.sender).where(under_way).execute()
    ids = [each.message_id for each in Attempt.under_way(heir.sender)]

    def lose(ids):
        return _lose(heir, ids, now, ends=False)

    lost = sum(all_but_broken(lose, ids, log, "message {} is not taken over".format))
    if Attempt.under_way(heir.sender).exists():
        put_off(heir)
    else:
        Heartbeat.end(heir.sender)
    return lost
