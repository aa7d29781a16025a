"""The health of the service, read from the database, and the problems that need an operator."""

import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from texting import database
from texting.access.keys import ids_of
from texting.carriers.configs import CarrierConfig, telling_receipts
from texting.carriers.lanes import TESTERS, Lane, Routes
from texting.database import isoformat
from texting.monitoring import clocks
from texting.monitoring.clocks import WrongClock
from texting.monitoring.dead_web import PublicAddress
from texting.reports import queue
from texting.reports.arrivals import Arrivals, arrivals
from texting.sending import claims
from texting.sending.carrier_state import CarrierState, in_trouble
from texting.settings import Settings

HOUR = timedelta(hours=1)
DEAD_AFTER = timedelta(minutes=5)
"""How long a receiver may accept no event before somebody is notified."""

MOST_NAMES = 10
"""How many keys or countries a notice names."""

NO_SCHEDULER = "no scheduler is running"

ASK = "Each minute a text tries it again, if one is due; flask carriers check asks it."
KINDS = {  # of problems: a notice's title, and what to do
    "down": ("carrier {} is down", f"Wait, or ask the carrier. {ASK}"),
    "refused": (
        "carrier {} refuses the account",
        f"Fix the credentials, sender or credit; after a change of CARRIER_URL, restart. {ASK}",
    ),
    "pausing": (
        "carrier {} asked for a long pause",
        "Send more slowly: SEND_RATE. It is used again once the pause is over.",
    ),
    "unroutable": (
        "texts have no carrier",
        "Change CARRIER_URL and restart, or cancel them: flask messages list --status queued.",
    ),
    "receipts": (
        "receipts of carrier {} do not come",
        "See that the carrier can reach PUBLIC_URL (flask check asks it), and in the carrier's own "
        "console whether its callbacks fail: STOPs may be missing, too. Over SMPP, ask the carrier "
        "whether it sends receipts.",
    ),
    "failing": (
        "most texts of carrier {} fail or do not arrive",
        "Fix the cause, then flask messages retry --status undelivered --since 2h; likewise with "
        "--status failed.",
    ),
    "events": ("events are not delivered", "Restart the scheduler; its log has the reason."),
    "disk": ("the database disk is almost full", "Make room; the service then recovers by itself."),
    "receiver": (
        "webhooks for {} fail",
        "Tell its developers; flask events list has details. Events are tried for three days.",
    ),
    "stalled": (
        "texts are due, nothing is sent",
        "See the scheduler's log; flask carriers check asks the carrier.",
    ),
    "scheduler": (NO_SCHEDULER, "Start it; until then, texts wait. Its log says why it stopped."),
    "clock": (
        "the clock of {} is wrong",
        "Set it, or the other one: timedatectl shows whether NTP does, flask check compares them. "
        "A scheduler sends again once its clock is within two minutes of the database's.",
    ),
    "web": (
        "the web cannot store texts",
        "Requests get a 503 meanwhile. flask check asks the database.",
    ),
    "public": (
        "PUBLIC_URL does not answer",
        "No request and no STOP comes in; texts still go out. See whether the web runs, and what "
        "is before it; flask check asks PUBLIC_URL.",
    ),
}

BY_SCHEDULERS = {"stalled", "events", "receipts", "public"}
"""The kinds not reported while no scheduler is running: that may be the cause, or hide them."""


class Problem(NamedTuple):
    """A problem for an operator: kind and name stay while it lasts, the sentence may change."""

    kind: str  # of KINDS
    sentence: str = ""
    name: str = ""  # of the carrier, or the key
    stops: bool = False  # whether texts wait because of it

    @property
    def title(self) -> str:
        return KINDS[self.kind][0].format(self.name)

    @property
    def what_to_do(self) -> str:
        return KINDS[self.kind][1]


def span(length: timedelta) -> str:
    """Write a length of time in its largest whole unit: "33 seconds", "2 days"."""
    length = max(length, timedelta(0))  # another machine's clock may be ahead
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    length //= timedelta(seconds=1)
    unit, seconds = next((each for each in units if length >= each[1]), units[-1])
    return f"{length // seconds} {unit}{'' if length // seconds == 1 else 's'}"


def listed(names: list[str], what: str = "keys") -> str:
    """Return names for a sentence: the first MOST_NAMES, and how many more there are."""
    more = [f"{len(names) - MOST_NAMES} more {what}"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


class CarrierHealth(NamedTuple):
    """The health of one of several carriers."""

    carrier: str
    trouble: str | None  # why a stand-in replaces it
    is_down: bool
    trouble_since: datetime | None
    stand_in: str | None  # the first carrier that takes its place

    def problem(self) -> Problem:
        """Return its trouble."""
        problem, other = _trouble(self), self.stand_in or "no other"
        sentence = f"{problem.sentence}; {other} takes its place"
        return problem._replace(sentence=sentence, stops=self.stand_in is None)


class Health(NamedTuple):
    """The state of the service at one instant, without numbers, texts or credentials."""

    now: datetime
    stalled_after: timedelta
    oldest_due: datetime | None  # when the message that has waited longest became due
    retrying: int
    last_sent_at: datetime | None
    last_pass_at: datetime | None
    expected_since: datetime | None  # if no scheduler has ever run: when the tables were made
    carrier: str | None  # when a scheduler last ran: "" for none; None if none ever ran
    trouble: str | None  # why the carrier accepts nothing
    is_down: bool  # rather than refusing the account
    trouble_since: datetime | None
    oldest_event: datetime | None = None  # since when an event has been due that nobody tries
    dead_receivers: Collection[str] = ()  # keys whose receivers accept no events
    bytes_left: int | None = None  # on the disk of SQLite's file, if too few
    carriers: tuple[CarrierHealth, ...] = ()  # when a scheduler last ran, if there were several
    without_carrier: int = 0  # texts that no carrier may take
    arrivals: Sequence[Arrivals] = ()  # of the carriers that report whether texts arrived
    under_way: Mapping[str, int] = {}  # texts that carriers have yet to answer, by carrier
    answered_at: datetime | None = None  # when PUBLIC_URL last did, if it has stopped
    # Carriers that took nothing for `stalled_after` though they could, and since when texts are due
    stuck: Mapping[str, datetime] = {}
    wrong_clocks: Sequence[WrongClock] = ()  # the one that is off most first

    def seconds_since(self, instant: datetime | None) -> int | None:
        """Return how long ago an instant was; 0 where another machine's clock is ahead."""
        return instant and max(0, round((self.now - instant).total_seconds()))

    @property
    def is_silent(self) -> bool:
        """Whether no scheduler has run for `stalled_after`."""
        since = self.last_pass_at or self.expected_since
        return since is not None and self.now - since > self.stalled_after

    @property
    def is_held(self) -> bool:
        """Whether nobody sends because a scheduler's clock is wrong."""
        return any(each.stops for each in self.wrong_clocks) and not any(self.under_way.values())

    @property
    def in_trouble(self) -> set[str]:
        """The carriers whose trouble is a problem of its own."""
        if self.carriers:
            return {each.carrier for each in self.carriers if each.trouble}
        return {self.carrier} if self.trouble else set()

    def holds(self, carriers: Sequence[str]) -> bool:
        """Return whether texts wait that may go through these carriers, the first choice first."""
        if not carriers and self.carrier and not self.carriers:
            carriers = (self.carrier,)  # the web does not know CARRIER_URL
        well = [each for each in carriers if each not in self.in_trouble]
        is_idle = not self.carrier and TESTERS not in carriers
        return self.is_silent or is_idle or not well or well[0] in self.stuck

    def problems(self) -> list[Problem]:
        """Return the problems; first a full disk, because then no other can be recorded."""
        hidden = BY_SCHEDULERS if self.is_silent else {"stalled"} if self.is_held else ()
        return [each for each in self._problems() if each.kind not in hidden]

    def _problems(self):
        yield from disk_problems(self.bytes_left)
        yield from clock_problems(self.wrong_clocks)
        for each in self.carriers:
            if each.trouble:
                yield each.problem()
        if texts := self.without_carrier:
            have, their = ("text has", "its") if texts == 1 else ("texts have", "their")
            why = f"no usable carrier for {their} country and key"
            yield Problem("unroutable", f"{texts} {have} {why}", stops=True)
        if self.trouble and not self.carriers:
            yield _trouble(self)
        yield from arrival_problems(self.arrivals)
        if self.oldest_event and self.now - self.oldest_event > self.stalled_after:
            since = isoformat(self.oldest_event)
            sentence = f"events have been due since {since}: no scheduler delivers them"
            yield Problem("events", sentence)
        yield from receiver_problems(self.dead_receivers)
        if self.is_silent:
            last = self.last_pass_at
            when = f"one last ran at {isoformat(last)}" if last else "none has run yet"
            yield Problem("scheduler", f"{NO_SCHEDULER}: {when}", stops=True)
        if self.stuck:
            through, why = self._what_is_stuck()
            due = f"although some have been due since {isoformat(min(self.stuck.values()))}"
            sentence = f"No text has gone{through} for {span(self.stalled_after)}, {due}{why}"
            yield Problem("stalled", sentence, stops=True)
        if self.answered_at:
            since = isoformat(self.answered_at)
            yield Problem("public", f"PUBLIC_URL has not answered since {since}")

    def _what_is_stuck(self):
        """Return, as parts of a sentence, the carriers through which nothing is sent, and why."""
        if not any(self.stuck):
            return "", ": CARRIER_URL is not set"
        names = sorted(filter(None, self.stuck))
        texts = sum(self.under_way.get(name, 0) for name in names)
        have = "text has" if texts == 1 else "texts have"
        why = f": {texts} {have} no answer yet" if texts else ""
        return f" through {', '.join(names)}", why


def disk_problems(bytes_left: int | None) -> Iterator[Problem]:
    """Yield the problem of a disk with this many bytes left, unless that is None."""
    if bytes_left is not None:
        left = bytes_left // 1_000_000
        yield Problem("disk", f"the database disk is almost full ({left} MB left)")


def clock_problems(told: Iterable[WrongClock]) -> Iterator[Problem]:
    """Yield the problem of each program on a machine whose clock is wrong."""
    for who in dict.fromkeys(each.who for each in told):
        of_it = [each for each in told if each.who == who]
        worst = next((each for each in of_it if each.stops), of_it[0])
        yield Problem("clock", worst.sentence, who, worst.stops)


def receiver_problems(keys: Iterable[str]) -> Iterator[Problem]:
    """Yield the problems of receivers that have accepted no event of these keys for DEAD_AFTER."""
    failed = "have failed for five minutes"
    for key in keys:
        yield Problem("receiver", f"webhooks for {key} {failed}", key)


def arrival_problems(arrivals: Iterable[Arrivals]) -> Iterator[Problem]:
    """Yield the problems of carriers that accept texts of which few or none arrive."""
    for each in arrivals:
        if each.lacks_receipts:
            words = f"receipts of {each.carrier} do not come (can it reach PUBLIC_URL?)"
            yield Problem("receipts", f"{words}; {each.of_taken}", each.carrier)
        if each.mostly_bad:
            words = f"most texts of {each.carrier} fail or do not arrive; {each.of_ended}"
            yield Problem("failing", words, each.carrier)


def _trouble(state):
    """Return the problem of the carrier of a Health or a CarrierHealth."""
    kind, words, why = "refused", "has refused the account", f": {state.trouble}"
    if state.is_down:
        kind, words = "down", "has been down"
    if state.trouble == PAUSES:
        kind, words, why = "pausing", "has asked for a long pause", ""
    said = f"{words} since {isoformat(state.trouble_since)}"
    return Problem(kind, f"{state.carrier} {said}{why}", state.carrier, stops=True)


def read(now: datetime, settings: Settings) -> Health:
    """Read the health of the service; an index serves each query."""
    telling = telling_receipts(settings.carrier_url or "", settings.public_url)
    several, configs = CarrierState.of_latest_pass(), settings.carrier_configs
    # The first one in trouble stands for all
    carrier = next((state for state in several if state.trouble), several[0] if several else None)
    due = queue.due(now, claims.ready())
    found = Health(
        now,
        settings.stalled_after,
        oldest_due=due[0].since if due else None,
        retrying=queue.retrying(),
        last_sent_at=queue.last_sent_at(),
        last_pass_at=carrier and carrier.last_pass_at,
        expected_since=None if carrier else database.made_at(),
        carrier=carrier and carrier.name,
        trouble=carrier and carrier.trouble,
        is_down=bool(carrier and carrier.is_down),
        trouble_since=carrier and carrier.trouble_since,
        oldest_event=queue.oldest_event(now),
        dead_receivers=queue.dead_receivers(now - DEAD_AFTER),
        bytes_left=database.db.bytes_left(),
        carriers=tuple(map(_health_of, several)) if len(several) > 1 else (),
        without_carrier=without_carrier(Routes(configs)) if configs else 0,
        arrivals=arrivals(now, telling),
        under_way=queue.under_way(),
        answered_at=_last_answer(settings),
        wrong_clocks=WrongClock.told(),
    )
    known = {config.name: config for config in configs}
    routes = Routes(known.get(each.name) or CarrierConfig(each.name) for each in several)
    return found._replace(stuck=_stuck(found, due, routes))


def _stuck(state, due, routes):
    """Return the carriers that took no text for `stalled_after`, and since when some are due.

    A text whose carriers are all in trouble, or that has none, waits for a known reason.
    """
    limit, since = state.now - state.stalled_after, {}
    late = [each for each in due if each.since < limit]
    names = ids_of(routes.keys) if late and routes.keys else {}
    for each in late:
        lane = Lane.read(each.lane or "")
        may = (each.carrier,) if each.carrier else routes.order(lane, names.get(each.key_id, ""))
        doubts = [name for name in lane.doubts if name in routes.names]  # they are asked first
        may = doubts[:1] or [name for name in may if name not in state.in_trouble]
        for name in may[:1]:
            since.setdefault(name, each.since)
    well = [name for name in since if name not in state.in_trouble]
    return {name: since[name] for name in well if not queue.taken_since(limit, name)}


def _last_answer(settings):
    """Return when PUBLIC_URL last answered, if it has stopped; None if nobody asks it."""
    if not (settings.public_url and settings.notify_url):
        return None
    silent = PublicAddress.silent(settings.public_url)
    return silent and silent.answered_at


def without_carrier(routes: Routes) -> int:
    """Count the texts to be sent that no carrier may take."""
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


class Reader:
    """Read the health at most once in `lasts` seconds, however many threads ask.

    A failure lasts as long: otherwise each waiting thread would try a dead database in turn.
    """

    # When this process last failed to store a message, if it has stored none since
    not_stored_at: datetime | None = None

    def __init__(self, settings: Settings):
        self.settings, self.lasts = settings, 0
        self._lock, self._read_at = threading.Lock(), -math.inf
        self._health = self._error = None

    def problems(self, health: Health, now: datetime) -> list[Problem]:
        """Return all problems that this process knows of, given the health."""
        return health.problems() + self._problems_of_web(now)

    def _problems_of_web(self, now):
        """Return the problem if this process recently failed to store its latest message.

        This is in memory, because a database that stores no messages would not store it either.
        """
        at = self.not_stored_at
        if at is None or now - at > self.settings.stalled_after:
            return []
        words = f"the web could not store a message at {isoformat(at)}; its log has the reason"
        return [Problem("web", words)]

    def read(self) -> Health:
        """Return the health, at most `lasts` seconds old; raise what the database raised."""
        with self._lock:
            if time.monotonic() - self._read_at < self.lasts:
                if self._error:
                    raise self._error.with_traceback(None)
                return self._health
            try:
                self._health, self._error = read(clocks.now(), self.settings), None
            except Exception as error:
                self._error = error
                raise
            finally:
                self._read_at = time.monotonic()
            return self._health
