"""The state of a carrier: how long it pauses, and what a pause changes."""

import pytest

from samples import SECOND, TUESDAY_NOON
from sending.carrier_state import CarrierState, changes_for_pause

BEFORE = TUESDAY_NOON - SECOND


def changes(state, by_probe=True, trouble=None, is_down=False, asked_for=None):
    """Return what an answer at noon changes in a state."""
    return changes_for_pause(state, by_probe, TUESDAY_NOON, trouble, is_down, asked_for)


@pytest.mark.parametrize(
    ("before", "trouble", "after"),
    [(0, None, 1), (1, None, 2), (32, None, 60), (60, None, 60), (0, "down", 5), (5, "down", 10)],
)
def test_a_pause_is_twice_the_one_before_up_to_a_minute(before, trouble, after):
    state = CarrierState(name="x", pause=before)
    changed = changes(state, trouble=trouble)
    assert changed["pause"] == after
    assert changed["retry_at"] == TUESDAY_NOON + after * SECOND
    assert (changed["paused_at"], changed["tried_at"]) == (TUESDAY_NOON, None)


def test_a_pause_lasts_as_long_as_the_carrier_asked_for_and_the_next_is_doubled_all_the_same():
    changed = changes(CarrierState(name="x", pause=4), asked_for=90)
    assert changed["retry_at"] == TUESDAY_NOON + 90 * SECOND
    assert changed["pause"] == 8


@pytest.mark.parametrize(("left", "until"), [(1, 2), (30, 30)])
def test_a_text_that_was_under_way_lengthens_the_pause_and_neither_doubles_nor_ends_it(left, until):
    retry_at = TUESDAY_NOON + left * SECOND
    state = CarrierState(name="x", pause=2, paused_at=BEFORE, retry_at=retry_at)
    changed = changes(state, by_probe=False)
    assert (changed["pause"], changed["retry_at"]) == (2, TUESDAY_NOON + until * SECOND)


def test_a_trouble_began_with_its_first_answer_and_too_fast_leaves_it_as_it_is():
    state = CarrierState(name="x", trouble="no credit", trouble_since=BEFORE)
    changed = changes(state, trouble="not reached", is_down=True)
    assert (changed["trouble"], changed["trouble_since"]) == ("not reached", BEFORE)
    assert changed["is_down"]
    assert "trouble" not in changes(state)
