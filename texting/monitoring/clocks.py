"""Clocks that are wrong: this process's, compared with the database's and with carriers'.

On Postgres all processes share the database's clock. Over HTTP, each answer of a carrier has a
date; a carrier may be wrong itself, so that is only told.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Self

from peewee import SQL, BigIntegerField, BooleanField, TextField, UUIDField

from texting import database
from texting.carriers import Carrier
from texting.database import InstantField, Table, clock, db
from texting.database.clock import SKEW, WRONG

COMPARE_EVERY = 60  # seconds
LASTS = timedelta(seconds=150)
"""How long what a process says of its clock holds: two comparisons have been missed then."""

LONGEST = timedelta(days=1)
"""How long it may hold: a single pass is followed by the next after STALLED_AFTER at the latest."""

log = logging.getLogger("clock")


class Reading(NamedTuple):
    """By how many seconds this machine's clock is ahead of another, at least; negative: behind."""

    ahead: float
    against: str  # "the database", or a carrier

    @property
    def is_wrong(self) -> bool:
        return abs(self.ahead) > WRONG.total_seconds()

    def __str__(self) -> str:
        direction = "ahead of" if self.ahead > 0 else "behind"
        return f"{span(abs(self.ahead))} {direction} {self.against}'s"


class WrongClock(Table):
    """A process whose clock is wrong, as it last said; there is no row of one that is right."""

    process = UUIDField(primary_key=True)
    who = TextField()  # "the scheduler on web-1"
    against = TextField()
    ahead = BigIntegerField()  # as in Reading
    stops = BooleanField(default=False, constraints=[SQL("DEFAULT false")])  # sends nothing by it
    until = InstantField(LONGEST)  # by the database's clock

    @classmethod
    def told(cls) -> list[Self]:
        """Return what processes say of their clocks, the one that is off most first."""
        rows = [*cls.select()]
        now = now_of_database() if rows else None
        lasting = (each for each in rows if each.until > now)
        return sorted(lasting, key=lambda each: -abs(each.ahead))

    @property
    def sentence(self) -> str:
        words = f"the clock of {self.who} is {Reading(self.ahead, self.against)}"
        return f"{words}, so it sends nothing" if self.stops else words


def span(seconds: float) -> str:
    """Return a length of time as people say it: 61 s, 35 min, 16 h, 3 days."""
    seconds = round(seconds)
    for least, unit, name in ((2 * 86_400, 86_400, "days"), (7_200, 3_600, "h"), (600, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds} s"


# Comparing


def ahead_of(theirs: float, before: float, after: float) -> float:
    """Return by how many seconds our clock is ahead for certain; negative: behind.

    Theirs was read between two moments of ours.
    """
    return max(0, before - theirs) or min(0, after - theirs)


def against_database() -> Reading | None:
    """Compare this machine's clock with the database's; None if that has none of its own."""
    before, began = clock.now().timestamp(), time.monotonic()
    theirs = db.read_clock()
    if theirs is None:
        return None
    after = before + time.monotonic() - began  # our clock may be set meanwhile
    return Reading(ahead_of(theirs, before, after), "the database")


def against_carrier(carrier: Carrier) -> Reading | None:
    """Compare this machine's clock with a carrier's, by its latest answer; None if there is none.

    Nor is it compared if our clock was set since, or the machine has slept.
    """
    answer = carrier.dated
    if answer is None or was_set_since(answer.wall, answer.monotonic):
        return None
    try:
        at = parsedate_to_datetime(answer.date)
        theirs = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return Reading(ahead_of(theirs, answer.wall - answer.took, answer.wall), carrier.name)


def was_set_since(wall: float, monotonic: float) -> bool:
    """Return whether our clock was set since it showed `wall`: it goes not as the monotonic one."""
    leap = clock.now().timestamp() - wall - (time.monotonic() - monotonic)
    return abs(leap) > SKEW.total_seconds()


def now_of_database() -> datetime:
    """Return now by the database's clock, or by ours if that has none of its own."""
    reading = against_database()
    return clock.now() - timedelta(seconds=reading.ahead if reading else 0)


def now() -> datetime:
    """Return now by this machine's clock or, where that is wrong, by the database's."""
    reading = against_database()
    is_wrong = reading and reading.is_wrong
    return clock.now() - timedelta(seconds=reading.ahead if is_wrong else 0)


# Telling


class ClockWatch:
    """The clock of this process: compared each minute, and when it was set; told where wrong."""

    def __init__(
        self,
        program: str,
        carriers: Collection[Carrier] = (),
        sends: bool = False,
        lasts: timedelta = LASTS,
    ):
        self.process, self.who = uuid.uuid4(), f"the {program} on {socket.gethostname()}"
        self.carriers, self.sends, self.lasts = carriers, sends, lasts
        self.is_wrong = self.has_other = False  # by the database's; whether that has one
        self._compared_at = None  # by the wall clock and the monotonic clock
        self._told = None  # the Reading that is stored

    def look(self) -> bool:
        """Compare if it is time to; return whether the clock is wrong by the database's."""
        if self._is_due():
            self.compare()
        return self.is_wrong

    def _is_due(self):
        at = self._compared_at
        return at is None or time.monotonic() - at[1] >= COMPARE_EVERY or was_set_since(*at)

    def may_be_wrong(self) -> bool:
        """Return whether the clock was set since it was compared with the database's."""
        return self.has_other and was_set_since(*self._compared_at)

    def compare(self) -> None:
        """Compare the clock with all others; store and log what is wrong, or is so no more."""
        found = against_database()
        self._compared_at = clock.now().timestamp(), time.monotonic()
        self.has_other = found is not None
        self.is_wrong = self.has_other and found.is_wrong
        all_found = [each for each in (found, *map(against_carrier, self.carriers)) if each]
        self._tell(next((each for each in all_found if each.is_wrong), None))
        self._end_what_was_told({each.against for each in all_found if not each.is_wrong})

    def _end_what_was_told(self, agreeing):
        """Forget what others on this machine said of clocks that now agree with its own.

        A single pass cannot do so itself; what it said was dated by the wrong clock on SQLite.
        """
        of_these = (WrongClock.who == self.who) & WrongClock.against.in_(agreeing)
        if agreeing and WrongClock.select().where(of_these).exists():
            WrongClock.delete().where(of_these).execute()

    def _tell(self, reading):
        this, before = WrongClock.process == self.process, self._told
        if reading:
            stops = self.sends and self.is_wrong
            if before is None or before.against != reading.against:
                waits = ": nothing is sent until they agree" if stops else ""
                log.error("the clock of this machine is %s", f"{reading}{waits}")
            now = now_of_database()
            told = {"who": self.who, "against": reading.against, "ahead": round(reading.ahead)}
            told |= {"stops": stops, "until": now + min(self.lasts, LONGEST)}
            row = WrongClock.insert(process=self.process, **told)
            row.on_conflict(conflict_target=[WrongClock.process], update=told).execute()
            WrongClock.delete().where(WrongClock.until <= now).execute()
        elif before:
            log.info("the clock of this machine agrees with %s's again", before.against)
            WrongClock.delete().where(this).execute()
        self._told = reading


def start(program: str, at_first: Callable[[], None]) -> None:
    """Start a thread that compares this process's clock; once, it does something before."""
    threading.Thread(target=_look_again, args=(ClockWatch(program), at_first), daemon=True).start()


def _look_again(watch, at_first):
    left = [at_first]
    while True:
        with database.log_errors(log, "clocks are not compared"):
            while left:
                left[-1]()
                left.pop()
            watch.look()
        time.sleep(COMPARE_EVERY)
