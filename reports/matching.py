"""Search a list by a part of a number, or by words: a bounded number of its rows at a time."""

import re
from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from peewee import Expression, Field, Model, ModelSelect

LOOKED_THROUGH = 10_000
"""How many rows one page of a search looks through; the next page looks through older ones."""

LONGEST = 60  # characters of a search
_SIGNS = re.compile(r"[\s()+./-]")  # around the digits of a number


def matches(words: str, number: Field, text: Field) -> Expression:
    """Return the condition that a text has each of some words, or that a number has their digits.

    The zeros before a national number are left out. Case does not matter.
    """
    condition = reduce(and_, (_contains(text, word) for word in words.split()))
    digits = _SIGNS.sub("", words)
    if digits.isascii() and digits.isdigit():
        condition |= number.contains(digits.lstrip("0") or digits)
    return condition


def look_through(
    rows: ModelSelect, matching: ModelSelect, down_to: Callable[[Model], Expression], limit: int
) -> tuple[list[Model], Model | None]:
    """Return the matching ones of LOOKED_THROUGH rows, and the row after which to look further.

    Both queries have the newest first; `down_to` returns the condition that a row is no older than
    another.
    """
    last = rows.offset(LOOKED_THROUGH - 1).first()
    if last:
        matching = matching.where(down_to(last))
    found = list(matching.limit(limit))
    return found, found[-1] if len(found) == limit else last


def _contains(text, word):
    """Return the condition that a text has a word; SQLite knows the case of ASCII only."""
    forms = {word} if word.isascii() else {word, word.lower(), word.upper(), word.capitalize()}
    return reduce(or_, (text.contains(form) for form in sorted(forms)))
