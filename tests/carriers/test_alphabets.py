"""carriers/alphabets.py: a phone shows the whole text, however it was split."""

import json
import os
import random
import subprocess
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phone import EXTENSION, STANDARD, character, show
from texting.carriers.alphabets import (
    DEFAULT,
    GSM,
    LATIN1,
    UCS2,
    clusters,
    costly,
    count_parts,
    cut,
    decode,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
gsm_texts = st.text(st.sampled_from([c for c in DEFAULT if c != "\x1b"] + [*"^{}\\[~]|€\f"]))
long_texts = st.one_of(texts, gsm_texts, st.text(st.sampled_from("aé€🚀й日\x1b`")))


def shown(coding, parts):
    """Return the text that a phone shows for some parts, and the numbers in their headers."""
    if len(parts) == 1:
        return show(parts[0], coding), []
    assert {part[:3] for part in parts} == {b"\5\0\3"}
    assert len({part[3] for part in parts}) == 1, "parts of several texts"
    numbers = [(part[5], part[4]) for part in parts]
    return "".join(show(part[6:], coding) for part in parts), numbers


CODES = {bytes([code]): name for code, name in enumerate(STANDARD) if name != "ESC"}
CODES |= {bytes([0x1B, code]): name for code, name in EXTENSION.items()}


@pytest.mark.parametrize(("octets", "name"), CODES.items())
def test_each_character_of_the_alphabet_has_its_code(octets, name):
    assert cut(character(name), GSM) == (GSM, [octets])
    assert decode(octets, GSM) == character(name)


def test_no_other_character_goes_out_in_the_default_alphabet():
    expressible = {character(name) for name in CODES.values()}
    every = map(chr, [*range(0xD800), *range(0xE000, 0x110000, 7)])
    assert {each for each in every if cut(each, GSM)[0] == GSM} == expressible


@pytest.mark.parametrize(
    ("text", "coding", "sizes"),
    [
        ("x" * 160, GSM, [160]),
        ("x" * 161, GSM, [153, 8]),
        ("€" * 80, GSM, [160]),
        ("x" * 152 + "€" * 5, GSM, [152, 10]),
        ("x" * 306 + "y", GSM, [153, 153, 1]),
        ("é" * 140, LATIN1, [140]),
        ("ê" * 141, LATIN1, [134, 7]),
        ("x" * 70, UCS2, [140]),
        ("x" * 71, UCS2, [134, 8]),
        ("x" * 66 + "🚀" * 3, UCS2, [132, 12]),
        ("", GSM, [0]),
        ("€" * 153, GSM, [152, 152, 2]),
        ("д" * 134, UCS2, [134, 134]),
        ("д" * 135, UCS2, [134, 134, 2]),
        ("😀" * 67, UCS2, [132, 132, 4]),
    ],
)
def test_a_text_is_cut_where_a_part_is_full_and_never_inside_a_character(text, coding, sizes):
    used, parts = cut(text, coding)
    assert count_parts(text) == len(cut(text, GSM)[1])
    header = 6 if len(parts) > 1 else 0
    assert used == coding
    assert [len(part) - header for part in parts] == sizes
    assert shown(coding, parts)[0] == text


@pytest.mark.parametrize(
    ("text", "coding"), [("x`", GSM), ("x€", LATIN1), ("Привет", GSM), ("\x1b[", GSM)]
)
def test_what_an_alphabet_cannot_express_goes_out_in_one_that_can(text, coding):
    used, parts = cut(text, coding)
    assert used == UCS2
    assert b"".join(parts) == text.encode("utf-16-be")


@given(long_texts, st.integers(1, 40), st.sampled_from([GSM, LATIN1, UCS2]))
def test_what_a_phone_shows_part_by_part_is_the_text(text, times, coding):
    text *= times
    coding, parts = cut(text, coding)
    seen, numbers = shown(coding, parts)
    assert seen == text
    assert numbers == [(n, len(parts)) for n in range(1, len(parts) + 1)] or len(parts) == 1
    for part in parts:
        header = 0 if len(parts) == 1 else 6
        # A header of 6 octets takes 7 of the 160 septets.
        room = 160 - (7 if header else 0) if coding == GSM else 140 - header
        assert len(part) - header <= room


def test_parts_of_two_texts_have_different_references():
    (first, _), (second, _) = cut("x" * 200, GSM)[1], cut("x" * 200, GSM)[1]
    assert first[3] != second[3]


def test_a_text_of_more_parts_than_can_be_numbered_is_refused():
    assert len(cut("x" * 153 * 255, GSM)[1]) == 255
    assert count_parts("x" * (153 * 255 + 1)) == 256, "it is counted all the same"
    with pytest.raises(ValueError, match="255 parts"):
        cut("x" * (153 * 255 + 1), GSM)


@pytest.mark.parametrize(
    ("octets", "coding", "text"),
    [
        (b"STOP", 0xF0, "STOP"),  # a message class
        (b"\x1b\x65", 0xF1, "€"),
        (b"\xe9", 0xF5, "é"),
        (b"STOP", 1, "STOP"),  # ASCII
        (b"\x1bA", GSM, "A"),  # not in the extension table
        (b"x\x1b", GSM, "x "),
        (b"\xff", GSM, "\ufffd"),
        (b"\0S\xd8", UCS2, "S\ufffd"),
    ],
)
def test_what_comes_in_is_read_by_its_data_coding(octets, coding, text):
    assert decode(octets, coding) == text


# What people see as one character


@pytest.mark.parametrize(
    "whole",
    [
        *("e\u0301", "नी", "ก\u0e33", "க\u0bbf", "\u0600١", "\u0600\u0661\u064b"),  # and marks
        *("क्षि", "न्त्र्य", "ক্ষি", "ક્ષે"),  # conjuncts
        *("\u1112\u1161\u11ab", "\uac00\u11a8"),  # Hangul
        *("❤\ufe0f", "1\ufe0f\u20e3", "👍🏽", "🇩🇪", "👩\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈"),
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland's flag
    ],
)
def test_what_people_see_as_one_character_is_not_torn(whole):
    assert clusters("дx" + whole + "д" + whole * 2) == ["д", "x", whole, "д", whole, whole]
    size = len(whole.encode("utf-16-be")) // 2
    first, *_ = cut("д" * (68 - size) + whole * 40, UCS2)[1]
    assert len(first) == 6 + 2 * (68 - size)


@pytest.mark.parametrize("text", ["\r\n", "ab", "🇩x", "\n\u0301", "가가", "👍👍"])
def test_others_stand_alone(text):
    assert clusters("д" + text) == ["д", *text]


def test_a_character_that_fills_no_part_is_torn():
    text = "д" + "\u0301" * 500
    coding, parts = cut(text, UCS2)
    assert len(parts) == 8
    assert shown(coding, parts)[0] == text


def test_a_long_row_of_flags_takes_time_in_proportion_to_its_length():
    began = time.process_time()
    assert clusters("🇩🇪" * 32_768) == ["🇩🇪"] * 32_768
    assert time.process_time() - began < 2  # with its square: more than 10


@given(texts)
def test_clusters_are_the_text(text):
    assert "".join(clusters(text)) == text


@pytest.mark.parametrize(
    ("text", "characters", "fewer"),
    [
        ("Hello", [], 1),
        ("x" * 70 + "’", ["’"], 1),
        ("x" * 159 + "€", ["€"], 1),
        ("€’" * 40, ["’"], 1),
        ("д" * 200, ["д"], 2),
    ],
)
def test_the_characters_that_cost_room_are_named(text, characters, fewer):
    assert costly(text) == (characters, fewer)


# Against Twilio's own calculator

COUNT = """
const { SegmentedMessage } = require("sms-segments-calculator");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => new SegmentedMessage(text).segmentsCount)));
"""
SCRIPTS = [
    *((0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x556)),
    *((0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF)),
    *((0xE01, 0xE5B), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17FF)),
    *((0x2010, 0x2027), (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)),
    # Without skin tones on their own: the calculator's Unicode 10 joins them to people alone
    *((0x1F300, 0x1F3FA), (0x1F400, 0x1F64F), (0x1F680, 0x1F6C5)),
]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧", "🇩🇪", "❤️", "1️⃣", "👨🏿‍🚀", "🏳️‍🌈"]


def random_text(chance):
    """A text of up to 500 characters: GSM 03.38 alone, or two scripts, with or without emoji."""
    pool = [character for character in DEFAULT if character != "\x1b"] + [*"^{}\\[~]|€"]
    if chance.random() < 0.7:
        ranges = chance.sample(SCRIPTS, 2)
        every = (chr(code) for first, last in ranges for code in range(first, last + 1))
        pool = [each for each in every if unicodedata.category(each) != "Cn"]
    if chance.random() < 0.3:
        pool += EMOJI * 10
    return "".join(chance.choices(pool, k=chance.randrange(1, 500)))


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_texts_have_the_parts_that_twilios_calculator_counts(npm_package, count):
    modules = npm_package("sms-segments-calculator", "1.3.0")
    chance = random.Random(29)
    texts = [random_text(chance) for _ in range(count)]
    counted = subprocess.run(
        ["node", "-e", COUNT],
        input=json.dumps(texts),
        env=os.environ | {"NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(counted.stdout)
    assert max(theirs) > 10
    pairs = zip(texts, theirs, strict=True)
    assert [(text, parts) for text, parts in pairs if count_parts(text) != parts] == []
