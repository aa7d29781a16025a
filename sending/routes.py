"""Which carriers may be used for a message, in which order, and why.

Pure: no database, no clock. A message that waits has its route written in its lane, so that an
index finds the messages that a carrier may be given now, however many wait for others.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from access.keys import Identity, Role
from carriers import Carrier
from carriers.ways import Way, by_name

LONGEST_WAIT = timedelta(minutes=1)
"""A longer pause that a carrier asks for is not waited for, if another carrier may be used."""

OF_TESTERS = "testers"
"""The lane of testers' texts, which go to the simulator."""

ANSWERS = "answers"
"""What the lanes of texts that answer replies begin with; they go through the replies' carriers."""

NOT_FOR_IT = "no carrier may be used for its country and key"
ALL_IN_TROUBLE = "every carrier that may be used is in trouble"
IS_ASKED = "this carrier may have taken it, and is asked"
IN_ORDER = "the first that may be used and is not in trouble"


class Route(NamedTuple):
    """The carriers that may be used for a message, in their order for it."""

    carriers: tuple[str, ...]
    is_asked: bool = False  # the only one is asked about a doubt
    in_doubt: bool = False  # a carrier that cannot be asked may have it

    def usable(self, trouble: Collection[str]) -> tuple[tuple[str, ...], str]:
        """Return the carriers that may be used now, in their order, and why; pure."""
        if self.is_asked:
            return self.carriers, IS_ASKED
        if not self.carriers:
            return (), NOT_FOR_IT
        well = tuple(name for name in self.carriers if name not in trouble)
        return well, IN_ORDER if well else ALL_IN_TROUBLE

    def after_no(self, name: str, refuses_way: bool) -> "Route":
        """Return the route of the next try, after a carrier refused the way, or the text for now.

        The next try goes through the next carrier in a circle.
        """
        if name not in self.carriers:
            return self
        at = self.carriers.index(name)
        others = self.carriers[at + 1 :] + self.carriers[:at]
        return self._replace(carriers=others if refuses_way else (*others, name))


class Routes:
    """The carriers of CARRIER_URL, and for which messages each may be used."""

    def __init__(self, ways: Sequence[Way], can_be_asked: Collection[str] = ()):
        self.ways, self.can_be_asked = tuple(ways), frozenset(can_be_asked)
        self.names = tuple(way.name for way in ways)
        self.called = {name: way.name for name, way in by_name(ways).items()}
        self.are_several = len(ways) > 1
        # With one carrier for all, lanes are not looked at
        self.is_plain = not self.are_several and all(
            way.countries is None and way.keys is None for way in ways
        )
        self._mark = self._digest()

    @classmethod
    def of(cls, ways: Iterable[Way], carriers: Sequence[Carrier]) -> "Routes":
        """Return the routes for connected carriers, by what CARRIER_URL says of them."""
        known = {way.name: way for way in ways}
        asked = [carrier.name for carrier in carriers if carrier.can_be_asked]
        return cls([known.get(each.name) or Way(each.name) for each in carriers], asked)

    @property
    def first(self) -> str:
        return self.names[0] if self.names else ""

    def route(self, country: str | None, key: str, doubts: Sequence[str] = ()) -> Route:
        """Return the route of a message; `doubts` are the carriers that may have taken it."""
        if asked := [name for name in doubts if self.asks(name)]:
            return Route((asked[0],), is_asked=True)
        may = tuple(way.name for way in self.ways if way.may_serve(country, key))
        return Route(may, in_doubt=bool(doubts))

    def way(self, name: str) -> Way:
        """Return the carrier of a name; testers' simulator has none in CARRIER_URL."""
        return next((way for way in self.ways if way.name == name), Way(name))

    def asks(self, name: str) -> bool:
        """Say whether a carrier, still in CARRIER_URL, can be asked about a text in doubt."""
        return name in self.names and name in self.can_be_asked

    def rate(self, name: str) -> float | None:
        """Return the rate of a carrier, in parts a second, if it has one of its own."""
        return self.way(name).rate

    def stand_ins(self, name: str) -> list[str]:
        """Return the carriers that may take the place of one, at least for some of its texts."""
        mine = self.way(name)
        return [each.name for each in self.ways if each != mine and each.shares_with(mine)]

    # Lanes

    def lane(self, route: Route) -> str:
        """Write a route as the lane of messages."""
        mark = "!" if route.is_asked else "?" if route.in_doubt else ""
        return f"{self._mark} {','.join(route.carriers)}{mark}"

    def read(self, lane: str | None) -> Route | None:
        """Return the route of a lane; None if it was written for another CARRIER_URL."""
        mark, _, names = (lane or "").partition(" ")
        if mark != self._mark:
            return None
        carriers = tuple(filter(None, names.rstrip("!?").split(",")))
        return Route(carriers, names.endswith("!"), names.endswith("?"))

    def is_old(self, lane: str | None) -> bool:
        """Say whether the messages of a lane need another."""
        is_fixed = lane is not None and lane.partition(" ")[0] in (OF_TESTERS, ANSWERS)
        return not is_fixed and self.read(lane) is None

    def lanes_of(
        self, name: str, lanes: Iterable[str | None], trouble: Collection[str], is_risky: bool
    ) -> list[list[str]]:
        """Return the lanes of which a carrier may be given messages now, in groups by preference.

        One that is in trouble is well enough for the text that goes first, and for questions. That
        text should not be in doubt already if the try `is_risky`.
        """
        others, preferred, rest = {*trouble} - {name}, [], []
        for lane in lanes:
            route = self.read(lane)
            if route is None or route.usable(others)[0][:1] != (name,):
                continue
            if not (is_risky and route.in_doubt):
                preferred.append(lane)
            elif not route.usable(trouble)[0]:
                rest.append(lane)
        return [group for group in (preferred, rest) if group]

    def _digest(self):
        told = [
            (
                *(way.name, sorted(way.countries or "*"), sorted(way.keys or "*")),
                *(self.asks(way.name), *way.was),
            )
            for way in self.ways
        ]
        return hashlib.sha256(repr(told).encode()).hexdigest()[:8]


def of_answers(carrier: str) -> str:
    """Return the lane of texts that answer replies which came from a carrier."""
    return f"{ANSWERS} {carrier}"


def is_for_none(lane: str | None) -> bool:
    """Say whether no carrier may be used for the messages of a lane."""
    return lane is not None and lane != OF_TESTERS and lane.partition(" ")[2] in ("", "?")


def may_any_serve(ways: Sequence[Way], country: str, key: Identity) -> bool:
    """Say whether a key's text to a country can be given to anybody, by CARRIER_URL.

    Testers' texts go to the simulator, and without a carrier all wait for one.
    """
    if not ways or key.role == Role.TESTER:
        return True
    return any(way.may_serve(country, key.name) for way in ways)


def in_trouble(state: Any) -> bool:
    """Say whether a carrier's texts go through others: it is down, or pauses for long."""
    if state.trouble:
        return True
    pauses = bool(state.retry_at and state.paused_at)
    return pauses and state.retry_at - state.paused_at > LONGEST_WAIT
