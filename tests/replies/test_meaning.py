"""meaning.py: which replies are a plain no, and which are for people."""

import re
import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from running import ROOT
from sentences import ASKING_FOR_HELP, MAYBE_NOES, OTHERS, PLAIN_NOES, STARTING
from texting.replies import meaning
from texting.replies.meaning import Meaning


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


def written_out(phrase, between):
    """The texts that a phrase of PERHAPS stands for."""
    words = [
        [between] if word == "…" else word.replace("*", "abc").split("/") for word in phrase.split()
    ]
    return map(" ".join, product(*words))


@pytest.mark.parametrize("language", meaning.PERHAPS)
def test_a_phrase_of_any_language_is_found_anywhere(language):
    for phrase in meaning.phrases(meaning.PERHAPS[language]):
        for between in ("", "w x y"):
            for text in written_out(phrase, between):
                assert meaning.read(f"Well, {text.upper()} then!") is Meaning.MAYBE_NO, text
                assert meaning.read(f"x{text}") is not Meaning.NO, text


@pytest.mark.parametrize("word", meaning.ALONE)
def test_some_words_are_perhaps_a_no_only_if_nothing_else_is_said(word):
    assert meaning.read(f"{word}, please!") is Meaning.MAYBE_NO
    assert meaning.read(f"{word} mañana") is Meaning.OTHER


def test_between_the_words_of_a_phrase_are_three_words_at_most():
    assert meaning.read("no quiero recibir jamás más") is Meaning.MAYBE_NO
    assert meaning.read("no puedo hoy por la tarde, más bien mañana") is Meaning.OTHER


def test_the_pages_have_the_words_that_are_looked_for():
    page = (ROOT / "docs" / "possible-opt-outs.md").read_text()
    table = dict(re.findall(r"^\| (.+) \| (.+) \|$", page, re.M))
    described = {name: re.findall("`(.+?)`", row) for name, row in table.items()}
    wanted = {name: meaning.phrases(written) for name, written in meaning.PERHAPS.items()}
    assert {name: described.get(name) for name in wanted} == wanted
    (alone,) = re.findall("all that is said: (.*)\\.$", page, re.M)
    assert re.findall("`(.+?)`", alone) == [*meaning.ALONE]
    page = (ROOT / "docs" / "carriers.md").read_text()
    (plain,) = re.findall(r"^\| only an opt-out: (.*?), once or more", page, re.M)
    assert re.findall("`(.+?)`", plain) == [*meaning.NOES, *map(" ".join, meaning.PAIRS)]


@given(st.text() | st.text(st.sampled_from([*"stop noe\n-. ı", "\ud800", "\0", "🛑", "\u0301"])))
def test_any_text_at_all_can_be_read(text):
    assert meaning.read(text) in Meaning
    assert meaning.read_part(text) in Meaning


FILLED = "stop" + " please" * 285  # and one character: 2,000, as many as are judged


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (FILLED + "!", Meaning.NO),
        (FILLED + "!!", Meaning.MAYBE_NO),
        ("STOP" + " " * 40_000, Meaning.NO),
        ("\n" * 40_000 + "STOP", Meaning.NO),
        ("STOP\n\n" + "x" * 40_000, Meaning.NO),
        ("STOP\n--\n" + "x" * 40_000, Meaning.NO),
        ("STOP" + " " * 40_000 + "by tomorrow", Meaning.MAYBE_NO),
        ("STOP\n" + " " * 40_000 + "by tomorrow", Meaning.MAYBE_NO),
        ("STOP\n" + "-" * 40_000 + "by tomorrow", Meaning.MAYBE_NO),
        ("START" + " " * 40_000 + "x", Meaning.OTHER),
        ("HELP" + " " * 40_000 + "x", Meaning.OTHER),
        ("S" + "\u0301" * 17_000 + "TOP", Meaning.NO),
        ("S" + "\u0301\u0323" * 9_000 + "TART", Meaning.START),
        ("S" + "\u200b" * 17_000 + "TOP", Meaning.NO),
        ("x" * 40_000 + " stop", Meaning.OTHER),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_of_a_long_text_the_beginning_is_judged_and_the_rest_is_no_no(text, means):
    assert meaning.read(text) is means


@pytest.mark.parametrize(
    "text",
    [
        *(each * 20_000 + "x" for each in ("opt me ", "no ", "stop ", "\n", "🛑", "-\n", "stpo ")),
        *(
            each * 20_000
            for each in ("e\u0301", "\u0301", "\u0301\u0323", "\ufdfa", "\uff9e\u0316")
        ),
        *("x\n" + blank * 39_000 + "x" for blank in (" ", "\t", "\u00a0", "-", "\u2003-", "\r")),
        *("not " + "a" * 40_000, "not " * 10_000, "STOP" + "\u0301\u0323" * 20_000),
    ],
    ids=lambda text: repr(text)[:12],
)
@pytest.mark.parametrize("read", [meaning.read, meaning.read_part])
def test_no_text_takes_long_to_read(read, text):
    start = time.thread_time()
    read(text)
    assert time.thread_time() - start < 0.5
