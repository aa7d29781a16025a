"""Which texts differ in nothing but digits and a name: those are decided together.

Pure: no database and no page. A text is compared bare: with a zero for each number.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable
from heapq import nlargest
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import NamedTuple, Self

MOST_WORDS, MOST_CHARACTERS = 3, 30
"""How many words may differ, at one place, and how long they may be."""

CANDIDATES = 8
"""With how many groups a text is compared that begin or end like it."""

TO_READ = 3
"""How many texts of a group are read."""

_DIGITS = re.compile(r"(\d+)")
_UNSPACED = re.compile(  # Thai to Tibetan, Burmese, Khmer, Tai, Javanese; Chinese and Japanese
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\ua980-\ua9df\uaa60-\uaadf"
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
"""The letters of languages that put no space between two words."""

_JOINER = "\N{ZERO WIDTH JOINER}"
_ATTACHED = ("Mn", "Mc", "Me", "Sk")  # marks on a letter, shades of an emoji

_LENGTHS = list(accumulate(range(24), lambda length, _: length * 4 // 3 + 1, initial=1))
"""How much of a beginning or an end is looked up."""

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether the texts of its group differ there."""


class Bare(NamedTuple):
    """A text with a zero for each number."""

    text: str
    words: int
    letters: int

    @classmethod
    def of(cls, text: str) -> Self:
        bare = _DIGITS.sub("0", text)
        return cls(bare, len(bare.split()), _letters(bare))


class Alike:
    """Texts with the same beginning and the same end, and a few words between."""

    def __init__(self, first: Bare):
        self.members = []  # their places among all texts
        self._begin = self._end = first.text  # what all have in common; the two may overlap
        self._shortest = self._longest = len(first.text)
        self._words, self._letters = first.words, first.letters  # the most of any

    @property
    def _ends(self):
        """The bare beginning and end that all texts have, one after the other."""
        return self._begin, _last(self._end, self._shortest - len(self._begin))

    def admit(self, new: Bare) -> bool:
        """Return whether a text belongs here; if it does, the ends fit.

        Only slices are compared, so a text of any length takes microseconds.
        """
        text = new.text
        begin, end = _same_beginning(self._begin, text), _same_end(self._end, text)
        shortest, longest = min(self._shortest, len(text)), max(self._longest, len(text))
        after = _last(end, shortest - len(begin))
        if longest - len(begin) - len(after) > MOST_CHARACTERS:
            return False
        middle = text[len(begin) : len(text) - len(after)]
        in_common, letters = new.letters - _letters(middle), max(self._letters, new.letters)
        if not letters or 3 * in_common < 2 * letters:
            return False
        if len(middle.split()) > MOST_WORDS:
            return False
        # What all have in common has as many words in each, but for a word that is torn there
        words = len(middle.split()) + self._words - new.words
        words += bool(begin[-1:].strip()) and not middle[:1].strip()
        words += after == end and _begins_word(text, len(text) - len(end))
        if words > MOST_WORDS:
            return False
        self._begin, self._end, self._shortest, self._longest = begin, end, shortest, longest
        self._words, self._letters = max(self._words, new.words), letters
        return True

    def to_read(self, texts: Iterable[str]) -> list[Pieces]:
        """Return the first of the group's texts, and those least like it, in pieces.

        Digits differ if any two of all the texts have others.
        """
        unlike, same, first = {}, None, None  # how much each differs from the first
        for text in texts:
            if text in unlike:
                continue
            begin, middle, end = self._split(text)
            numbers = _DIGITS.findall(begin + "\n" + end)
            if first is None:
                first, same = (Counter(middle), numbers), dict(enumerate(numbers))
            same = {n: number for n, number in same.items() if numbers[n] == number}
            pairs = zip(first[1], numbers, strict=True)
            digits = sum(max(map(len, pair)) for pair in pairs if len({*pair}) > 1)
            unlike[text] = _differences(first[0], Counter(middle)), digits
        read, *others = unlike
        least = nlargest(TO_READ - 1, others, key=unlike.__getitem__)
        return [self._pieces(each, same) for each in (read, *least)]

    def _split(self, text):
        """Return the beginning, the middle and the end of a text."""
        begin, end = self._ends
        numbers = _DIGITS.findall(text)
        longer = [len(each) - 1 for each in numbers]
        begins = len(begin) + sum(longer[: begin.count("0")])
        ends = len(text) - len(end) - sum(_last(longer, end.count("0")))
        return text[:begins], text[begins:ends], text[ends:]

    def _pieces(self, text, same):
        """Return a text in pieces; `same` has the places of numbers, in its ends, that are."""
        begin, middle, end = self._split(text)
        parts, number = [], 0
        for side in (begin, end):
            for words, digits in zip(*[iter([*_DIGITS.split(side), ""])] * 2, strict=True):
                parts += [(words, False), (digits, number not in same)]
                number += bool(digits)
            if side is begin:
                parts.append((middle, True))
        pieces = []
        for differs, run in groupby((part for part in parts if part[0]), key=itemgetter(1)):
            pieces.append(("".join(words for words, _ in run), differs))
        return pieces


def groups(texts: Iterable[tuple[Hashable, str | None]]) -> list[Alike]:
    """Return texts as groups of those that are alike, in the order of their first ones.

    Each comes with what it must share with the others of its group: a key. Each is compared with
    so many groups at most, however many there are; it is read from `texts` once those before it
    have their groups.
    """
    found, equals, index, latest = [], {}, {}, {}
    for place, (key, text) in enumerate(texts):
        new = Bare.of(text or "")
        alone = place if text is None else None  # a text that was cleared is like nothing
        group = equals.get((key, new.text, alone))
        if group is None:
            group = latest.get(key)  # most often it is this one
            if group is None or not group.admit(new):
                group = _find(index, key, new)
            if not group.members:
                found.append(group)
            equals[key, new.text, alone] = latest[key] = group
        group.members.append(place)
    return found


def _find(index, key, new):
    """Return the group that admits a text, or a new one, by an index of beginnings and ends."""
    ends = [*_fingerprints(key, new.text)]
    rare_first = sorted((index.get(each, ()) for each in ends), key=len)
    near = [*dict.fromkeys(chain(*rare_first))][:CANDIDATES]
    group = next((each for each in near if each.admit(new)), None)
    if group is None:
        group = Alike(new)
        for each in ends:
            if len(known := index.setdefault(each, [])) < CANDIDATES:
                known.append(group)
    return group


def _fingerprints(key, text):
    """Yield fingerprints of beginnings and ends, the longest first.

    Of two texts that are alike, a third is the same at one of the ends.
    """
    for length in reversed(_LENGTHS):
        if len(text) >= length > len(text) // 6:
            yield hash((key, "begins", text[:length]))
            yield hash((key, "ends", text[-length:]))


def _differences(one, other):
    """Return how many characters two counts of them have that the other has not."""
    return sum((one - other).values()) + sum((other - one).values())


def _letters(text):
    return sum(map(str.isalpha, text))


def _last(text, count):
    return text[max(0, len(text) - count) :]


def _same_beginning(one, other):
    """Return with what two texts begin, words as a whole."""
    most = _in_common(one, other)
    for count in range(most, max(0, most - MOST_CHARACTERS) - 1, -1):
        if not _is_within_word(one, count) and not _is_within_word(other, count):
            return one[:count]
    return ""  # a longer word differs, which is no name


def _same_end(one, other):
    """Return with what two texts end, words as a whole."""
    most = _in_common(one[::-1], other[::-1])
    for count in range(most, max(0, most - MOST_CHARACTERS) - 1, -1):
        first, second = len(one) - count, len(other) - count
        if not _is_within_word(one, first) and not _is_within_word(other, second):
            return one[first:]
    return ""


def _in_common(one, other):
    """Return how many characters two texts begin with alike, by halves: slices compare fast."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _is_within_word(text, place):
    """Return whether a word, or one character that is written as several, is torn here."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if before == _JOINER or after == _JOINER or unicodedata.category(after) in _ATTACHED:
        return True
    return _is_of_word(before) and _is_of_word(after)


def _begins_word(text, place):
    """Return whether something begins here that has a space before it."""
    return text[place : place + 1].strip() != "" and not text[:place][-1:].strip()


def _is_of_word(character):
    """Return whether a word goes on with a character, which has a space before the next."""
    is_part = character.isalnum() or unicodedata.category(character).startswith("M")
    return is_part and not _UNSPACED.match(character)
