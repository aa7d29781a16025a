"""The clock of these tests stands still."""

import pytest

from samples import TUESDAY_NOON


@pytest.fixture(autouse=True)
def noon(at):
    at(TUESDAY_NOON)
