"""carriers/opt_outs.py: which texts mean STOP and which mean START."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from texting.carriers import opt_outs

STOPS = ("STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT", "ARRET")
STARTS = ("START", "UNSTOP")

words = st.sampled_from([*((word, True) for word in STOPS), *((word, False) for word in STARTS)])
around = st.text(st.sampled_from(" \t\r\n\u00a0\u2003.!\"'«»"), max_size=5)


@given(words, around, around, st.sampled_from([str.upper, str.lower, str.title]))
def test_the_documented_words_count_in_any_case_with_anything_around(word, before, after, case):
    text, stop = word
    assert opt_outs.read(before + case(text) + after) is stop


@pytest.mark.parametrize(
    "text", ["ARRÊT", "arrêté", "ARRETT", "Stop All", "OPT-OUT", "opt out", "ｓｔｏｐ", "Ｓtop。"]
)
def test_accents_width_hyphens_and_spaces_do_not_count(text):
    assert opt_outs.read(text) is True


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "🛑", "\0", "YES", "HELP", "INFO", "ENDE", "STOPP", "STARTE", "стоп"),
        *("STOP PLEASE", "Please stop", "don't stop", "bus stop?", "STOP 12", "start now"),
        "x" * 100_000,
    ],
)
def test_any_other_text_means_neither(text):
    assert opt_outs.read(text) is None


@given(st.text())
def test_any_text_at_all_can_be_read(text):
    assert opt_outs.read(text) in (True, False, None)
