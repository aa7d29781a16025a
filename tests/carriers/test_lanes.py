"""carriers/lanes.py: which carriers may be used for a text, and in which order."""

import pytest

from texting.carriers.configs import parse
from texting.carriers.lanes import TESTERS, Lane, Routes, is_of_answers, new_lane, of_answers

WAYS = parse(
    "console:#name=us&countries=US,CA console:#name=shop&keys=shop,till console:#name=world"
)
ROUTES = Routes(WAYS, can_be_asked={"us", "world"})
ALL = ("us", "shop", "world")


@pytest.mark.parametrize(
    "lane",
    [
        Lane(),
        Lane("US"),
        Lane("US", no_route=("us", "shop"), refused_last="world", doubts=("us", "us", "")),
        Lane(only="us", doubts=("us",)),
        Lane(only=""),
    ],
    ids=str,
)
def test_a_lane_is_read_as_it_was_stored(lane):
    assert Lane.read(str(lane)) == lane


def test_lanes_of_new_texts_are_their_countries_and_those_of_testers_and_answers_apart():
    assert new_lane("US", False) == "US"
    assert [new_lane("US", True), of_answers("us")] == [f"={TESTERS}", "=us"]
    lanes = map(Lane.read, ("US", "", f"={TESTERS}", "=us", "=us?us", "="))
    assert [*map(is_of_answers, lanes)] == [False, False, False, True, True, True]


@pytest.mark.parametrize(
    ("lane", "key", "order"),
    [
        ("US", "shop", ALL),
        ("US", "app", ("us", "world")),
        ("GB", "till", ("shop", "world")),
        ("GB", "app", ("world",)),
        ("", "app", ("world",)),
        ("001", "app", ("world",)),
        # After a no for now, the next one in a circle
        ("US>us", "shop", ("shop", "world", "us")),
        ("US>shop", "shop", ("world", "us", "shop")),
        ("US>world", "shop", ALL),
        ("US>gone", "shop", ALL),
        ("GB>us", "shop", ("shop", "world")),
        # Those without a route are left out, unless all are
        ("US!us", "shop", ("shop", "world")),
        ("US!us!world", "shop", ("shop",)),
        ("US!us!world", "app", ("us", "world")),
        ("US!shop>us", "shop", ("world", "us")),
        ("US!gone", "shop", ALL),
        # For one alone
        ("=shop", "app", ("shop",)),
        ("=", "app", ()),
        ("=gone", "app", ()),
        (f"={TESTERS}", "app", (TESTERS,)),
    ],
)
def test_which_carriers_may_be_used_in_which_order(lane, key, order):
    assert ROUTES.order(Lane.read(lane), key) == order


def test_a_text_may_have_no_carrier():
    assert Routes(WAYS[:2]).order(Lane("GB"), "app") == ()


@pytest.mark.parametrize(
    ("lane", "asked"),
    [
        ("US", None),
        ("US?us", "us"),
        ("GB?us", "us"),
        ("US?shop?us", "shop"),
        ("US??us", "us"),
        ("US?gone", "gone"),
        ("US?", None),
    ],
)
def test_a_carrier_that_may_have_a_text_is_asked_before_that_goes_anywhere(lane, asked):
    assert Lane.read(lane).asked == asked
    if asked:
        assert not any(ROUTES.may_take(name, Lane.read(lane), "shop", ()) for name in ALL)


@pytest.mark.parametrize(
    ("trouble", "taken_by"),
    [
        ((), ["us"]),
        (("us",), ["us", "shop"]),  # the first one's probe, and what goes through the second
        (("shop",), ["us"]),
        (("us", "shop"), ["us", "shop", "world"]),
        (ALL, ["us", "shop", "world"]),
    ],
)
def test_a_text_is_given_to_the_first_that_is_well_and_one_in_trouble_may_try_its_own(
    trouble, taken_by
):
    assert [n for n in ALL if ROUTES.may_take(n, Lane("US"), "shop", trouble)] == taken_by


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda lane: lane.after_refusal("world", no_route=False), "US!shop>world?us?world?us"),
        (lambda lane: lane.after_refusal("world", no_route=True), "US!shop!world>us?us?world?us"),
        (lambda lane: lane.with_doubts(["shop", "us", "shop"]), "US!shop>us?shop?us"),
        (lambda lane: lane.with_doubts([None, "us", None]), "US!shop>us??us"),
        (lambda lane: lane.with_doubts([None]), "US!shop>us?"),
        (lambda lane: lane.with_doubts([]), "US!shop>us"),
        (lambda lane: lane.anew(), "US?us?world?us"),
    ],
)
def test_what_is_true_of_a_text_changes(change, after):
    assert str(change(Lane.read("US!shop>us?us?world?us"))) == after


def test_stand_ins_are_those_that_may_take_some_of_its_texts():
    assert ROUTES.stand_ins("us") == ["shop", "world"]
    apart = Routes(parse("console:#name=a&countries=US console:#name=b&countries=GB"))
    assert apart.stand_ins("a") == []
