"""meaning.py: which replies are a plain no, and which are for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sending import meaning
from sending.meaning import Meaning
from sentences import ASKING_FOR_HELP, MAYBE_NOES, OTHERS, PLAIN_NOES, STARTING


def test_there_are_a_hundred_noes_and_a_hundred_others():
    assert len({*PLAIN_NOES}) >= 100
    assert len({*MAYBE_NOES, *OTHERS}) >= 100


@pytest.mark.parametrize("text", PLAIN_NOES)
def test_a_plain_no_is_one(text):
    assert meaning.read(text) is Meaning.NO


@pytest.mark.parametrize("text", MAYBE_NOES)
def test_what_may_be_a_no_is_for_people(text):
    assert meaning.read(text) is Meaning.MAYBE_NO


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_is_no_no(text):
    assert meaning.read(text) is Meaning.OTHER


@pytest.mark.parametrize("text", ASKING_FOR_HELP)
def test_a_call_for_help_is_one(text):
    assert meaning.read(text) is Meaning.HELP


@pytest.mark.parametrize("text", STARTING)
def test_a_start_is_one(text):
    assert meaning.read(text) is Meaning.START


@pytest.mark.parametrize("text", [*PLAIN_NOES, *MAYBE_NOES])
def test_a_piece_of_a_text_is_never_more_than_perhaps_a_no(text):
    assert meaning.read_part(text) in (Meaning.MAYBE_NO, Meaning.OTHER)


@given(st.text() | st.text(st.sampled_from([*"stop noe\n-. ı", "\ud800", "\0", "🛑", "\u0301"])))
def test_any_text_at_all_can_be_read(text):
    assert meaning.read(text) in Meaning
    assert meaning.read_part(text) in Meaning


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["opt me ", "no ", "stop ", "\n", "a\u0301", "🛑", "-\n", "stpo "]
)
def test_long_texts_are_read_in_no_time(piece):
    assert meaning.read(piece * 20_000 + "x") in Meaning
