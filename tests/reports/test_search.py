"""What a search matches is the same on both databases, and no text makes it slow."""

import random
import time

import pytest

from databases import on_both
from samples import LONDON, NEW_YORK
from stored_messages import store, store_many
from texting.messages.model import Message
from texting.reports.search import matches

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

TEXTS = (
    *("STOP it", "stop IT", "Ünique ÜNIQUE ünique", "Привет", "ПРИВЕТ", "приВет", "straße STRASSE"),
    *("100%", "a_b", "axb", "back\\slash", "***=a", "a.b", "(?i)A", "[a]", "'", '"', "👩\u200d🚀"),
    *("\u212a", "İstanbul", "e\u0301", "é", ""),
)  # fmt: skip


def found(words):
    chosen = matches(words, Message.to, Message.message)
    return {each.message for each in Message.select().where(chosen)}


def has(text, word):
    """Whether one of a word's usual forms is in a text, whatever the case of its ASCII letters."""

    def ascii_lower(each):
        return "".join(c.lower() if c.isascii() else c for c in each)

    forms = (word, word.lower(), word.upper(), word.capitalize())
    return any(ascii_lower(form) in ascii_lower(text) for form in forms)


def test_it_finds_the_texts_that_have_each_word_and_no_others():
    for text in TEXTS:
        store(message=text, to=NEW_YORK)
    chance = random.Random(1)
    parts = [text[n : n + k] for text in TEXTS for n in range(len(text)) for k in (1, 2, 4, 9)]
    for _ in range(300):
        words = " ".join(chance.sample(parts, chance.choice((1, 1, 2))))
        words = chance.choice((str, str.lower, str.upper, str.swapcase))(words)
        if words.strip() and not any(each.isdigit() for each in words):
            expected = {text for text in TEXTS if all(has(text, word) for word in words.split())}
            assert found(words) == expected, words


def test_a_cleared_text_and_number_match_nothing():
    store(message=None, to=None)
    store(message="5", to=LONDON)
    assert found("a") == set()
    assert found("5") == {"5"}
    assert found("8366") == {"5"}


HOSTILE = {
    "ends otherwise": ("a" * 1_600, "a" * 59 + "b"),
    "begins otherwise": ("a" * 1_600, "b" + "a" * 59),
    "ends otherwise, not in ASCII": ("é" * 1_600, "é" * 59 + "b"),
    "begins otherwise, not in ASCII": ("é" * 1_600, "b" + "é" * 59),
    "of four bytes": ("🎉" * 3_200, "a" + "🎉" * 59),
    "of one word many times": ("a" * 1_600, "a " * 29 + "b"),
}


@pytest.mark.timed
@pytest.mark.parametrize("case", HOSTILE)
def test_no_text_makes_a_search_much_slower(case):
    text, words = HOSTILE[case]
    store_many(2_000, message=text)
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        found(words)
        took.append(time.perf_counter() - begun)
    assert min(took) < 1
