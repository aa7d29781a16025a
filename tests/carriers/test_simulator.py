"""carriers/simulator.py: outcomes by number."""

import phonenumbers
import pytest

from carrier_errors import meaning, refused, send
from texting.carriers import connect, simulator


@pytest.mark.parametrize(
    ("number", "means"),
    [
        ("+12125550100", "taken"),
        ("+12125550101", "for good"),
        ("+12125550102", "for now"),
        ("+12125550103", "too fast"),
        ("+12125550104", "opted out"),
        ("+12125550199", "taken"),
        ("+447911123456", "taken"),
    ],
)
def test_the_simulator_does_what_its_numbers_stand_for(number, means):
    assert phonenumbers.is_valid_number(phonenumbers.parse(number))
    carrier = connect("simulator:")
    if means == "taken":
        assert send(carrier, number) is None
    else:
        error = refused(carrier, number)
        assert meaning(error) == means
        assert not error.silent
        assert error.retry_after == (1 if means == "too fast" else None)
        documented = f"{number[:2]} {number[2:5]} {number[5:8]} {number[8:]}"
        assert documented in simulator.Simulator.__doc__
