"""Search a list by a part of a number, or by words: a bounded number of its rows at a time."""

import re
from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from peewee import Expression, Field, Model, ModelSelect

from texting.database import db

LOOKED_THROUGH = 10_000
"""How many rows one page of a search looks through; the next page looks through older ones."""

LONGEST_SEARCH = 60  # characters of a search
FEWEST_DIGITS = 5  # of a part of a national number, without its zero
_SIGNS = re.compile(r"[\s()+./-]")  # around the digits of a number


def matches(words: str, number: Field, text: Field) -> Expression:
    """Return the condition that a text has each of some words, or that a number has their digits.

    Digits after a zero may also be a national number, so then the zeros may be left out. Case does
    not matter: what is not ASCII may be in lower case, in upper case, capitalized or as written.
    """
    condition = reduce(and_, (_contains(text, word) for word in dict.fromkeys(words.split())))
    digits = _SIGNS.sub("", words)
    if digits.isascii() and digits.isdigit():
        condition |= db.contains(number, digits)
        national = digits.lstrip("0")
        if FEWEST_DIGITS <= len(national) < len(digits):
            condition |= db.contains(number, national)
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
    """Return the condition that a text has a word; databases ignore the case of ASCII only."""
    forms = {word, word.lower(), word.upper(), word.capitalize()}
    in_lower_ascii = {form.encode().lower().decode() for form in forms}
    return reduce(or_, (db.contains(text, form) for form in sorted(in_lower_ascii)))
