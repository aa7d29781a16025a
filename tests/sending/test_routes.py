"""sending/routes.py: which carriers may be used for a message, and in which order."""

import pytest

from carriers.ways import parse
from sending.routes import Route, Routes, is_for_none

WAYS = parse(
    "console:#name=us&countries=US,CA console:#name=shop&keys=shop,till console:#name=world "
)
ROUTES = Routes(WAYS, can_be_asked={"us", "world", "gone"})
ALL = ("us", "shop", "world")


@pytest.mark.parametrize(
    ("country", "key", "doubts", "trouble", "usable", "is_asked"),
    [
        ("US", "shop", (), (), ALL, False),
        ("US", "app", (), (), ("us", "world"), False),
        ("GB", "till", (), (), ("shop", "world"), False),
        ("GB", "app", (), (), ("world",), False),
        (None, "app", (), (), ("world",), False),
        ("001", "app", (), (), ("world",), False),
        ("US", "shop", (), ("us",), ("shop", "world"), False),
        ("US", "shop", (), ("shop",), ("us", "world"), False),
        ("US", "shop", (), ("us", "world"), ("shop",), False),
        ("US", "shop", (), ALL, (), False),
        ("GB", "app", (), ("world",), (), False),
        # A doubt stays with a carrier that can be asked, well or not
        ("US", "shop", ("us",), (), ("us",), True),
        ("US", "shop", ("us",), ("us",), ("us",), True),
        ("GB", "app", ("us",), (), ("us",), True),
        ("US", "shop", ("shop", "us"), (), ("us",), True),
        # Others cannot be asked, or are gone: one more copy through the first
        ("US", "shop", ("shop",), (), ALL, False),
        ("US", "shop", ("shop",), ("us",), ("shop", "world"), False),
        ("US", "shop", ("gone",), (), ALL, False),
    ],
)
def test_which_carriers_may_be_used_in_which_order(country, key, doubts, trouble, usable, is_asked):
    route = ROUTES.route(country, key, doubts)
    assert (route.usable(trouble), route.is_asked) == (usable, is_asked)


def test_where_none_may_be_used_the_lane_says_so():
    routes = Routes(WAYS[:2])
    route = routes.route("GB", "app")
    assert route.usable(()) == ()
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
