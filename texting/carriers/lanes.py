"""Which carriers may be used for a text, in which order.

A text's lane has the facts for its routing, not its route. It is written when the text is stored,
and changes when an attempt ends, a doubt is settled, or a person retries. Together with CARRIER_URL
it tells which carrier may be given the text, so nothing is rewritten when that changes. Pure: no
database, no clock.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from texting.carriers import Carrier
from texting.carriers.configs import CarrierConfig

TESTERS = "(testers)"
"""The name of the simulator to which testers' texts go."""


class Lane(NamedTuple):
    """The routing facts of a text.

    They are stored in these forms, if `us` is a carrier:

        US          it goes to the United States
        US!us       the carrier us has no route there
        US>us       us refused it for now, and was the last to do so
        US?us       it is in doubt: us may have it, and is asked first
        US?         it is in doubt, and nobody can be asked
        =us         us may be used, and no other carrier
    """

    country: str = ""  # ISO 3166, or 001
    no_route: tuple[str, ...] = ()
    refused_last: str | None = None
    doubts: tuple[str, ...] = ()  # repeats what attempts say: see `messages.doubts.recount`
    only: str | None = None

    @classmethod
    @lru_cache(4096)
    def read(cls, text: str) -> Self:
        """Read a lane in its stored form."""
        only, country, facts = re.fullmatch("(=?)([^!>?]*)(.*)", text).groups()
        facts = re.findall("([!>?])([^!>?]*)", facts)
        named = {mark: [name for other, name in facts if other == mark] for mark in "!>?"}
        refused_last = named[">"][-1] if named[">"] else None
        more = tuple(named["!"]), refused_last, tuple(named["?"])
        return cls("", *more, only=country) if only else cls(country, *more)

    def __str__(self) -> str:
        begin = self.country if self.only is None else f"={self.only}"
        refused_last = [] if self.refused_last is None else [self.refused_last]
        facts = ("!", self.no_route), (">", refused_last), ("?", self.doubts)
        return begin + "".join(f"{mark}{name}" for mark, names in facts for name in names)

    def after_refusal(self, name: str, no_route: bool) -> Self:
        """Return the lane after a carrier had no route, or refused the text for now."""
        if no_route:
            return self._replace(no_route=(*self.no_route, name))
        return self._replace(refused_last=name)

    def with_doubts(self, asked: Iterable[str | None]) -> Self:
        """Return the lane of a text in doubt; for each copy the carrier to ask, None if nobody."""
        return self._replace(doubts=tuple(dict.fromkeys(name or "" for name in asked)))

    @property
    def asked(self) -> str | None:
        """The carrier to ask about a text in doubt before it goes anywhere, or None."""
        return next(filter(None, self.doubts), None)

    def anew(self) -> Self:
        """Return the lane of a text that a person retries: doubts are not forgotten."""
        return self._replace(no_route=(), refused_last=None)


class Routes:
    """The carriers of CARRIER_URL and the simulator of testers, and what each may be used for."""

    def __init__(
        self,
        configs: Iterable[CarrierConfig],
        can_be_asked: Collection[str] = (),
        lists: Mapping[str, str] | None = None,
        only_repeat: Collection[str] = (),
    ):
        self.configs, self.can_be_asked = tuple(configs), frozenset(can_be_asked)
        # Those that tell of a text in doubt only if they are given it again
        self.only_repeat = frozenset(only_repeat)
        self.lists = lists or {}  # by name, what the list of a carrier is of that others may share
        self.names = tuple(config.name for config in self.configs)
        self.first = self.names[0] if self.names else ""
        self.keys = frozenset(key for config in self.configs for key in config.keys or ())
        self.are_several = len(self.configs) > 1

    @classmethod
    def of(cls, configs: Iterable[CarrierConfig], carriers: Sequence[Carrier]) -> Self:
        """Return the routes for connected carriers, given what CARRIER_URL says about them."""
        known = {config.name: config for config in configs}
        asked = [carrier.name for carrier in carriers if carrier.settles_doubts]
        cannot = [each.name for each in carriers if not (each.can_be_asked or each.can_look_up)]
        lists = {each.name: each.list_of for each in carriers if each.list_of}
        configs = [known.get(each.name) or CarrierConfig(each.name) for each in carriers]
        return cls(configs, asked, lists, only_repeat={*asked}.intersection(cannot))

    def order(self, lane: Lane, key: str = "") -> tuple[str, ...]:
        """Return the carriers that may be used for a text of a key, first choice first.

        After a temporary refusal, the first choice is the next carrier, in a circle. If none has a
        route, which only a change of CARRIER_URL can cause, all may be used again.
        """
        if lane.only is not None:
            return (lane.only,) if lane.only in (*self.names, TESTERS) else ()
        may = [config.name for config in self.configs if config.may_serve(lane.country, key)]
        left = [name for name in may if name not in lane.no_route] or may
        at = left.index(lane.refused_last) + 1 if lane.refused_last in left else 0
        return tuple(left[at:] + left[:at])

    def may_take(self, name: str, lane: Lane, key: str, trouble: Collection[str]) -> bool:
        """Return whether this carrier is the one to be given a text now.

        Its own trouble does not count, so that a text can go first after its pause.
        """
        if lane.asked:
            return False
        well = (each for each in self.order(lane, key) if each == name or each not in trouble)
        return next(well, None) == name

    def config(self, name: str) -> CarrierConfig:
        """Return the carrier of this name; the testers' simulator is not in CARRIER_URL."""
        return next((config for config in self.configs if config.name == name), CarrierConfig(name))

    def listed_with(self, name: str) -> set[str]:
        """Return the carriers that share the list of one, including itself."""
        mine = self.lists.get(name)
        return {name} | {each for each, list_of in self.lists.items() if list_of == mine}

    def stand_ins(self, name: str) -> list[str]:
        """Return the carriers that may take the place of one, if only for some of its texts."""
        mine = self.config(name)
        return [each.name for each in self.configs if each != mine and each.shares_with(mine)]


def new_lane(country: str, is_testers: bool) -> str:
    """Return the lane of a new text."""
    return str(Lane(only=TESTERS) if is_testers else Lane(country))


def of_answers(carrier: str) -> str:
    """Return the lane of an automatic answer to a reply that came through a carrier."""
    return str(Lane(only=carrier))


def is_of_answers(lane: Lane) -> bool:
    """Return whether a lane is for automatic replies, which go before all other texts."""
    return lane.only not in (None, TESTERS)
