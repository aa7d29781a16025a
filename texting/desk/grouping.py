"""Which texts are equal but for digits and a name: those are decided together.

Pure: no database and no page.
"""

import re
from collections.abc import Hashable, Iterable
from itertools import chain

MOST = 3
"""How many words may differ, at one place."""

CANDIDATES = 8
"""With how many groups a text is compared that have half of their words in common with it."""

_WORD = re.compile(r"\S+\s*|\s+")
_DIGITS = re.compile(r"\d+")


class Alike:
    """Texts that begin and end with the same words, digits aside, in the order given."""

    def __init__(self, text: str):
        self.members = []  # their places among all texts
        self._begin = self._end = text  # what all have in common, each number in it a zero
        self._shortest = len(text)
        self._widest = text  # the one with the most words

    @property
    def ends(self) -> tuple[str, str]:
        """Return the words with which all texts begin, and end, each number in them a zero."""
        after = min(len(self._end), self._shortest - len(self._begin))
        return self._begin, self._end[len(self._end) - after :]

    def admit(self, text: str) -> bool:
        """Return whether a text belongs here, each number in it a zero; if it does, the ends fit.

        Only slices are compared, so a text of any length takes microseconds.
        """
        begin, end = _same_beginning(self._begin, text), _same_end(self._end, text)
        shortest = min(self._shortest, len(text))
        after = min(len(end), shortest - len(begin))
        here, most = (_words(each[len(begin) : len(each) - after]) for each in (text, self._widest))
        if (not begin and not after) or max(here, most) > MOST:
            return False
        self._begin, self._end, self._shortest = begin, end, shortest
        if here > most:
            self._widest = text
        return True

    def marked(self, texts: Iterable[str], some: Iterable[str]) -> list[list[tuple[str, bool]]]:
        """Split `some` of the group's texts into pieces, each with whether the texts differ there.

        Digits differ if any two of all the `texts` have others.
        """
        begin, end = self.ends
        before, after = begin.count("0"), end.count("0")
        same = dict.fromkeys(range(before + after))  # the places of numbers, and these
        for text in texts if same else ():
            numbers = _DIGITS.findall(text)
            numbers = numbers[:before] + numbers[len(numbers) - after :]
            same = {n: numbers[n] for n, known in same.items() if known in (None, numbers[n])}
            if not same:
                break
        ends = [len(_WORD.findall(each)) for each in (begin, end)]
        return [_pieces(_WORD.findall(text), *ends, same) for text in some]


def groups(texts: Iterable[tuple[Hashable, str | None]]) -> list[Alike]:
    """Return texts as groups of those that are alike, in the order of their first ones.

    Each comes with what it must share with the others of its group: a key. A text without any word
    in common with others is alone. Each text is compared with so many groups at most, however many
    there are; it is read from `texts` once those before it have their groups.
    """
    found, equals, index, latest = [], {}, {}, {}
    for place, (key, text) in enumerate(texts):
        bare = "" if text is None else _DIGITS.sub("0", text)
        alone = place if text is None else None  # a text that was cleared is like nothing
        group = equals.get((key, bare, alone))
        if group is None:
            group = latest.get(key)  # most often it is this one
            if group is None or not group.admit(bare):
                group = _find(index, key, bare)
            if not group.members:
                found.append(group)
            equals[key, bare, alone] = latest[key] = group
        group.members.append(place)
    return found


def _find(index, key, text):
    """Return the group that admits a text, or a new one, by an index of the halves of texts."""
    halves = [(key, *half) for half in _halves(text.split())]
    rare_first = sorted((index.get(half, ()) for half in halves), key=len)
    near = [*dict.fromkeys(chain(*rare_first))][:CANDIDATES]
    group = next((each for each in near if each.admit(text)), None)
    if group is None:
        group = Alike(text)
        for half in halves:
            if len(known := index.setdefault(half, [])) < CANDIDATES:
                known.append(group)
    return group


def _halves(words):
    """Yield fingerprints of beginnings and ends: all that are alike have one of them in common.

    Of two that are alike, the longer has at most MOST words that the shorter has not, so half of
    its other words are at one of the ends. It may be longer by MOST than this text.
    """
    count = len(words)
    for half in {max(1, (longer - MOST + 1) // 2) for longer in range(count, count + MOST + 1)}:
        if half <= count:
            yield True, half, hash(tuple(words[:half]))
            yield False, half, hash(tuple(words[-half:]))


def _same_beginning(one, other):
    """Return the whole words with which two texts begin."""
    count = _in_common(one, other)
    begin = one[:count]
    if one == other or (_begins_word(one, count) and _begins_word(other, count)):
        return begin
    torn = begin.rstrip()
    return torn[: len(torn) - len(torn.rsplit(None, 1)[-1])] if torn else ""


def _same_end(one, other):
    """Return the whole words with which two texts end."""
    count = _in_common(one[::-1], other[::-1])
    first, second = len(one) - count, len(other) - count
    end = one[first:]
    if one == other or (_begins_word(one, first) and _begins_word(other, second)):
        return end
    whole = end if end[:1].isspace() else "".join(end.split(None, 1)[1:])
    return whole.lstrip()


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


def _begins_word(text, place):
    """Return whether a word, or nothing, begins at a place that follows a word, or nothing."""
    return (not place or text[place - 1].isspace()) and not text[place : place + 1].isspace()


def _words(text):
    """Return how many words a piece of a text has, up to one more than may differ."""
    return len(text.split(None, MOST)) + text[:1].isspace()


def _pieces(words, begin, end, same):
    """Return words joined into pieces, alternately the same in all texts and not.

    `same` has the places of numbers, among those of the ends, that are.
    """
    pieces, number = [], 0
    for place, word in enumerate(words):
        differs = begin <= place < len(words) - end
        if not differs:
            numbers = range(number, number + len(_DIGITS.findall(word)))
            number = numbers.stop
            differs = not all(each in same for each in numbers)
        if pieces and pieces[-1][1] == differs:
            pieces[-1] = (pieces[-1][0] + word, differs)
        else:
            pieces.append((word, differs))
    return pieces
