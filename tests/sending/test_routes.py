"""sending/routes.py: which carriers may be used for a message, in which order, and why."""

import pytest

from carriers.ways import parse
from sending.routes import (
    ALL_IN_TROUBLE,
    IN_ORDER,
    IS_ASKED,
    NOT_FOR_IT,
    Route,
    Routes,
    is_for_none,
)

WAYS = parse(
    "console:#name=us&countries=US,CA console:#name=shop&keys=shop,till console:#name=world "
)
ROUTES = Routes(WAYS, can_be_asked={"us", "world", "gone"})
ALL = ("us", "shop", "world")


@pytest.mark.parametrize(
    ("country", "key", "doubts", "trouble", "usable", "why"),
    [
        ("US", "shop", (), (), ALL, IN_ORDER),
        ("US", "app", (), (), ("us", "world"), IN_ORDER),
        ("GB", "till", (), (), ("shop", "world"), IN_ORDER),
        ("GB", "app", (), (), ("world",), IN_ORDER),
        (None, "app", (), (), ("world",), IN_ORDER),
        ("001", "app", (), (), ("world",), IN_ORDER),
        ("US", "shop", (), ("us",), ("shop", "world"), IN_ORDER),
        ("US", "shop", (), ("shop",), ("us", "world"), IN_ORDER),
        ("US", "shop", (), ("us", "world"), ("shop",), IN_ORDER),
        ("US", "shop", (), ALL, (), ALL_IN_TROUBLE),
        ("GB", "app", (), ("world",), (), ALL_IN_TROUBLE),
        # A doubt stays with a carrier that can be asked, well or not
        ("US", "shop", ("us",), (), ("us",), IS_ASKED),
        ("US", "shop", ("us",), ("us",), ("us",), IS_ASKED),
        ("GB", "app", ("us",), (), ("us",), IS_ASKED),
        ("US", "shop", ("shop", "us"), (), ("us",), IS_ASKED),
        # Others cannot be asked, or are gone: one more copy through the first
        ("US", "shop", ("shop",), (), ALL, IN_ORDER),
        ("US", "shop", ("shop",), ("us",), ("shop", "world"), IN_ORDER),
        ("US", "shop", ("gone",), (), ALL, IN_ORDER),
    ],
)
def test_which_carriers_may_be_used_in_which_order_and_why(
    country, key, doubts, trouble, usable, why
):
    assert ROUTES.route(country, key, doubts).usable(trouble) == (usable, why)


def test_where_none_may_be_used_that_is_why():
    routes = Routes(WAYS[:2])
    route = routes.route("GB", "app")
    assert route.usable(()) == ((), NOT_FOR_IT)
    assert is_for_none(routes.lane(route))
    assert not is_for_none(routes.lane(routes.route("US", "app")))


@pytest.mark.parametrize(
    ("before", "name", "refuses_way", "after"),
    [
        (ALL, "us", False, ("shop", "world", "us")),
        (("shop", "world", "us"), "shop", False, ("world", "us", "shop")),
        (ALL, "shop", False, ("world", "us", "shop")),
        (ALL, "us", True, ("shop", "world")),
        (("shop", "world"), "world", True, ("shop",)),
        (("us",), "us", False, ("us",)),
        (ALL, "gone", True, ALL),
    ],
)
def test_the_next_try_goes_through_the_next_in_a_circle(before, name, refuses_way, after):
    assert Route(before).after_no(name, refuses_way).carriers == after


@pytest.mark.parametrize(
    "route",
    [Route(ALL), Route(()), Route(("us",), is_asked=True), Route(("world", "us"), in_doubt=True)],
    ids=str,
)
def test_a_lane_says_what_the_route_is_until_the_carriers_change(route):
    lane = ROUTES.lane(route)
    assert ROUTES.read(lane) == route
    others = (
        Routes(WAYS[:2], {"us"}),
        Routes(WAYS[::-1], {"us", "world"}),
        Routes(WAYS, {"us"}),
        Routes(parse("console:#name=us console:#name=shop console:#name=world"), {"us", "world"}),
    )
    assert [other.read(lane) for other in others] == [None] * 4
    assert all(other.is_old(lane) for other in others)


@pytest.mark.parametrize(
    ("name", "trouble", "is_risky", "groups"),
    [
        ("us", (), False, [[False]]),
        ("world", (), False, []),
        ("shop", ("us",), False, [[False, True]]),
        ("us", ("us",), False, [[False, True]]),  # a probe: well enough
        ("us", ("us",), True, [[False]]),  # the doubt goes through another
        ("us", ALL, True, [[False], [True]]),  # nobody else has it
    ],
)
def test_a_carrier_is_given_the_lanes_of_which_it_is_the_first_that_is_well(
    name, trouble, is_risky, groups
):
    with_doubt = [False, True] if trouble else [False]
    lanes = [ROUTES.lane(Route(ALL, in_doubt=doubt)) for doubt in with_doubt]
    found = ROUTES.lanes_of(name, [None, "testers", "old lane", *lanes], trouble, is_risky)
    assert found == [
        [ROUTES.lane(Route(ALL, in_doubt=doubt)) for doubt in group] for group in groups
    ]


def test_stand_ins_are_those_that_may_take_some_of_its_texts():
    assert ROUTES.stand_ins("us") == ["shop", "world"]
    apart = Routes(parse("console:#name=a&countries=US console:#name=b&countries=GB"))
    assert apart.stand_ins("a") == []


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        ("console:", True),
        ("console:#name=a&rate=1/s", True),
        ("console:#countries=US", False),
        ("console:#keys=a", False),
        ("console: simulator:", False),
    ],
)
def test_one_carrier_for_everything_needs_no_lanes(url, is_plain):
    assert Routes(parse(url)).is_plain == is_plain
