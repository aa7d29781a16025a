"""The health of the service, read from the database, and the problems that need an operator."""

import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import database
from access.keys import ids_of
from carriers.lanes import TESTERS, Lane, Routes
from carriers.ways import Way
from database import clock, isoformat
from database.clock import is_ahead
from reports import queue
from sending import claims, passes
from sending.carrier_state import CarrierState, in_trouble
from sending.passes import PassTimes

STALLED_AFTER = timedelta(minutes=2)
"""Longest stall before we report a problem: a pass of cron and a first retry fit in."""

OVERDUE_AFTER = timedelta(hours=1)
"""Longest time that one message may be due while others go: its retries take less."""

HOUR = timedelta(hours=1)
DEAD_AFTER = HOUR
"""How long a receiver may take no event before somebody is told."""

MOST_NAMES = 10
"""Keys that a notice names."""

NO_PASS = "no scheduler makes a pass"

ASK = "Sending resumes once it accepts texts; flask carriers check asks it."
RETRY = "Fix the cause, then flask messages retry the ids of flask messages list --ids --status"
KINDS = {  # of problems: the title of a notice, and what to do
    "down": ("carrier {} is down", f"Wait, or ask the carrier. {ASK}"),
    "refused": ("carrier {} refuses the account", f"Fix the credentials, sender or credit. {ASK}"),
    "pausing": ("carrier {} asked for a long pause", f"Send more slowly: SEND_RATE. {ASK}"),
    "unroutable": ("texts have no carrier", "Change CARRIER_URL, or cancel the texts."),
    "failed": ("most texts fail", f"{RETRY} failed"),
    "undelivered": ("most texts do not arrive", f"{RETRY} undelivered"),
    "events": ("events are not delivered", "Restart the scheduler; its log has the reason."),
    "disk": ("the database disk is almost full", "Make room; the service then recovers by itself."),
    "receiver": ("webhooks for {} fail", "Tell its developers; flask events list has details."),
    "stalled": ("texts are due, nothing is sent", "See the scheduler's log, and flask stats."),
    "overdue": ("a text is overdue", "flask messages list --status queued, then messages show."),
    "scheduler": (NO_PASS, "Start it; its log has the reason."),
}


class Problem(NamedTuple):
    """A problem for an operator: kind and name stay while it lasts, the sentence may change."""

    kind: str  # of KINDS
    sentence: str = ""
    name: str = ""  # of the carrier, or the key
    public: str | None = None  # the sentence for strangers, if it must say less

    @property
    def title(self) -> str:
        return KINDS[self.kind][0].format(self.name)

    @property
    def what_to_do(self) -> str:
        return KINDS[self.kind][1]


def listed(keys: list[str]) -> str:
    """Return keys in a sentence: the first MOST_NAMES, and how many more there are."""
    more = [f"{len(keys) - MOST_NAMES} more keys"] if len(keys) > MOST_NAMES else []
    return ", ".join([*keys[:MOST_NAMES], *more])


class CarrierHealth(NamedTuple):
    """The health of one of several carriers."""

    carrier: str
    trouble: str | None  # why another carrier replaces it
    is_down: bool
    trouble_since: datetime | None
    stand_in: str | None  # the first carrier that takes its place

    def problem(self) -> Problem:
        """Return its trouble."""
        problem, other = _trouble(self, "a carrier"), "another" if self.stand_in else "no other"
        instead = f"; {self.stand_in or other} takes its place"
        public = f"{problem.public}; {other} takes its place"
        return problem._replace(sentence=problem.sentence + instead, public=public)


class Health(NamedTuple):
    """The state of the service at one instant, without numbers, texts or credentials."""

    now: datetime
    oldest_due: datetime | None  # when the message that has waited longest became due
    retrying: int
    last_sent_at: datetime | None
    passes: PassTimes
    carrier: str | None  # of the last pass; "" if it had none, None before the first pass
    trouble: str | None  # why the carrier takes nothing
    is_down: bool  # and does not merely refuse the account
    trouble_since: datetime | None
    commonest_error: tuple[str, int] | None  # of the last hour
    failure_spike: queue.FailureSpike | None  # of most of the latest messages
    oldest_event: datetime | None = None  # since when an event is due that nobody tries
    dead_receivers: Collection[str] = ()  # keys whose receivers have taken no event for an hour
    bytes_left: int | None = None  # on the disk of SQLite's file, if they are too few
    carriers: tuple[CarrierHealth, ...] = ()  # of the last pass, if they are several
    without_carrier: int = 0  # texts for which no carrier may be used

    @property
    def last_pass_at(self) -> datetime | None:
        return self.passes.last_at

    def seconds_since(self, instant: datetime | None) -> int | None:
        return instant and round((self.now - instant).total_seconds())

    @property
    def is_silent(self) -> bool:
        """Whether no scheduler makes a pass."""
        return not self.last_pass_at or self.passes.is_missing(self.now, STALLED_AFTER)

    def is_stuck(self, stalled_after: timedelta = STALLED_AFTER) -> bool:
        """Return whether texts are due for that long, and none has gone."""
        limit = self.now - stalled_after
        is_due = self.oldest_due is not None and self.oldest_due < limit
        return is_due and not (self.last_sent_at and self.last_sent_at >= limit)

    def holds(self, carriers: Collection[str]) -> bool:
        """Return whether texts wait that may go through these carriers."""
        if self.is_silent or self.is_stuck():
            return True
        if not self.carriers:
            return TESTERS not in carriers and (bool(self.trouble) or not self.carrier)
        return {*carriers} <= {each.carrier for each in self.carriers if each.trouble}

    def problems(self, stalled_after: timedelta = STALLED_AFTER, public: bool = False) -> list[str]:
        """Return a sentence for each problem; an empty list if texts go as they should.

        In `public`, they name the part that has a problem, but neither the carrier nor its words.
        """
        problems = self.each_problem(stalled_after)
        found = ((each.public if public else None) or each.sentence for each in problems)
        return [*dict.fromkeys(found)]  # without names, some are the same

    def each_problem(self, stalled_after: timedelta = STALLED_AFTER) -> Iterator[Problem]:
        """Yield the problems, first a disk so full that no other may be recorded."""
        yield from disk_problems(self.bytes_left)
        for each in self.carriers:
            if each.trouble:
                yield each.problem()
        if texts := self.without_carrier:
            have = "text has" if texts == 1 else "texts have"
            why = "no usable carrier for their country and key"
            yield Problem("unroutable", f"{texts} {have} {why}")
        if self.trouble and not self.carriers:
            yield _trouble(self, "the carrier")
        if end := self.failure_spike:
            said = f"{end.summary} for one reason"
            yield Problem(end.status, f"{said}: {end.reason}", public=said)
        if self.oldest_event and self.now - self.oldest_event > stalled_after:
            since = isoformat(self.oldest_event)
            sentence = f"events have been due since {since}: no scheduler delivers them"
            yield Problem("events", sentence)
        yield from receiver_problems(self.dead_receivers)
        if self.oldest_due is not None:
            yield from self._due(stalled_after)
        if self.passes.is_missing(self.now, stalled_after):
            last = self.last_pass_at
            when = f"the last one was at {isoformat(last)}" if last else "there has been none yet"
            yield Problem("scheduler", f"{NO_PASS}: {when}")

    def _due(self, stalled_after):
        """Return the problem if texts are due and do not go."""
        if self.is_stuck(stalled_after):
            limit = self.now - stalled_after
            sentence = f"nothing was sent for {int(stalled_after.total_seconds())} s"
            why = ""
            if self.last_pass_at is None or self.last_pass_at < limit:
                why = f": {NO_PASS}"
            elif not self.carrier:
                why = ": CARRIER_URL is not set"
            yield Problem("stalled", f"{sentence} though texts are due{why}")
        elif self.now - self.oldest_due > OVERDUE_AFTER:
            yield Problem("overdue", f"a message has been due since {isoformat(self.oldest_due)}")

    def error(self, public: bool = False) -> dict | None:
        """Return the commonest error as a JSON object, in `public` without its words."""
        if not self.commonest_error:
            return None
        words, messages = self.commonest_error
        return {"error": None if public else words, "messages": messages}


def disk_problems(bytes_left: int | None) -> Iterator[Problem]:
    """Yield the problem of a disk with this many bytes left, unless that is None."""
    if bytes_left is not None:
        left = bytes_left // 1_000_000
        yield Problem("disk", f"the database disk is almost full ({left} MB left)")


def receiver_problems(keys: Iterable[str]) -> Iterator[Problem]:
    """Yield the problems of receivers that have taken no event of these keys for an hour."""
    failed = "have failed for an hour"
    for key in keys:
        yield Problem("receiver", f"webhooks for {key} {failed}", key, f"webhooks {failed}")


def _trouble(state, stranger):
    """Return the problem of the carrier of a Health or a CarrierHealth."""
    kind, words, why = "refused", "has refused the account", f": {state.trouble}"
    if state.is_down:
        kind, words = "down", "has been down"
    if state.trouble == PAUSES:
        kind, words, why = "pausing", "has asked for a long pause", ""
    said = f"{words} since {isoformat(state.trouble_since)}"
    return Problem(kind, f"{state.carrier} {said}{why}", state.carrier, f"{stranger} {said}")


def read(now: datetime, ways: Sequence[Way] = ()) -> Health:
    """Read the health of the service with these carriers; an index serves each query."""
    passes.correct(now)
    several = CarrierState.of_latest_pass()
    # The first that is in trouble stands for all
    carrier = next((state for state in several if state.trouble), several[0] if several else None)
    return Health(
        now,
        oldest_due=queue.oldest_due(now),
        retrying=queue.retrying(),
        last_sent_at=queue.last_sent_at(),
        passes=passes.pass_times(),
        carrier=carrier and carrier.name,
        trouble=carrier and carrier.trouble,
        is_down=bool(carrier and carrier.is_down),
        trouble_since=carrier and carrier.trouble_since,
        commonest_error=queue.commonest_error(now - HOUR),
        failure_spike=queue.failure_spike(now),
        oldest_event=queue.oldest_event(now),
        dead_receivers=queue.dead_receivers(now - DEAD_AFTER),
        bytes_left=database.db.bytes_left(),
        carriers=tuple(map(_health_of, several)) if len(several) > 1 else (),
        without_carrier=without_carrier(Routes(ways)) if ways else 0,
    )


def without_carrier(routes: Routes) -> int:
    """Count the texts to be sent for which no carrier may be used."""
    keys, texts = ids_of(routes.keys), 0
    for text in claims.lanes():
        lane = Lane.read(text)
        if lane.only is None and not routes.order(lane):
            able = [id for id, name in keys.items() if routes.order(lane, name)]
            texts += queue.in_lane(text, able)
    return texts


def _health_of(state):
    trouble = state.trouble or (PAUSES if in_trouble(state) else None)
    since = state.trouble_since if state.trouble else state.paused_at
    stand_in = CarrierState.stand_in(state.name) if trouble else None
    return CarrierHealth(state.name, trouble, state.is_down, since if trouble else None, stand_in)


PAUSES = "it asked for a pause of more than a minute"


class HeldByRate(NamedTuple):
    """The texts that wait because SEND_RATE is used up; parts and instant are estimates."""

    texts: int
    parts: int
    empty_at: datetime  # when the last of them would be sent


def held_by_rate(per_second: float | None, now: datetime) -> HeldByRate | None:
    """Return what SEND_RATE, in parts a second, holds up; None if it holds up nothing."""
    carrier, *others = CarrierState.of_latest_pass() or [None]
    if others or not (per_second and carrier):  # each of several has its own rate
        return None
    if carrier.retry_at or not carrier.used_rate_lately(now):
        return None
    some = queue.next_parts()
    if not some:
        return None
    texts = queue.awaiting_carrier(testers_too=False)
    parts = round(texts * sum(some) / len(some))
    left = timedelta(seconds=round(parts / per_second))
    return HeldByRate(texts, parts, now + left)


class Reader:
    """Read the health no more than once in `lasts` seconds, however many ask; any thread may.

    A failure lasts as long: otherwise each that waits would try a dead database in turn.
    """

    # When this process failed to store a message, if it has stored none since
    not_stored_at: datetime | None = None

    def __init__(self, ways: Sequence[Way]):
        self.ways, self.lasts = ways, 0
        self._lock, self._read_at = threading.Lock(), -math.inf
        self._health = self._error = None

    def problems_of_web(self, now: datetime) -> list[str]:
        """Return a sentence if this process could not store the latest message, lately.

        In memory, because a database that stores no message does not store this either.
        """
        at = self.not_stored_at
        if at is None or now - at > STALLED_AFTER or is_ahead(at, now):
            return []
        return [f"the web could not store a message at {isoformat(at)}; its log has the reason"]

    def read(self) -> Health:
        """Return the health, at most `lasts` seconds old; raise what the database raised."""
        with self._lock:
            if time.monotonic() - self._read_at < self.lasts:
                if self._error:
                    raise self._error.with_traceback(None)
                return self._health
            try:
                self._health, self._error = read(clock.now(), self.ways), None
            except Exception as error:
                self._error = error
                raise
            finally:
                self._read_at = time.monotonic()
            return self._health
