"""Which texts are equal but for digits and a name: those are decided together.

Pure: no database and no page.
"""

import re
from collections.abc import Hashable, Iterable

MOST = 3
"""How many words may differ, at one place."""

CANDIDATES = 8
"""With how many groups a text is compared that have half of their words in common with it."""

_WORD = re.compile(r"\S+\s*|\s+")
_DIGITS = re.compile(r"\d+")


class Alike:
    """Texts that begin and end with the same words, digits aside, in the order given."""

    def __init__(self, words: tuple[str, ...]):
        self.words = words  # of the first text, without its digits
        self.members = []  # their places among all texts
        self._backwards = words[::-1]
        self._begin = self._end = len(words)  # how many words all have in common at each end
        self._fewest = self._most = len(words)

    @property
    def ends(self) -> tuple[int, int]:
        """Return how many words all texts begin, and end, with."""
        return self._begin, min(self._end, self._fewest - self._begin)

    def admit(self, words: tuple[str, ...]) -> bool:
        """Return whether a text with these words belongs here; if it does, the ends fit it."""
        begin = _in_common(self.words, words, self._begin)
        end = _in_common(self._backwards, words[::-1], self._end)
        fewest, most = min(self._fewest, len(words)), max(self._most, len(words))
        shared = begin + min(end, fewest - begin)
        if not shared or most - shared > MOST:
            return False
        self._begin, self._end, self._fewest, self._most = begin, end, fewest, most
        return True

    def marked(self, texts: list[str], some: Iterable[str]) -> list[list[tuple[str, bool]]]:
        """Split `some` of the group's texts into pieces, each with whether the texts differ there.

        Digits differ if any two of all the `texts` have others.
        """
        begin, end = self.ends
        same = {}
        for text in {*texts}:
            words = _WORD.findall(text)
            ends = [*words[:begin], *words[len(words) - end :]]
            if not same:
                same = dict(enumerate(ends))
            for place in [place for place, word in same.items() if ends[place] != word]:
                del same[place]
        return [_pieces(_WORD.findall(text), begin, end, same) for text in some]


def groups(texts: Iterable[tuple[Hashable, str | None]]) -> list[Alike]:
    """Return texts as groups of those that are alike, in the order of their first ones.

    Each comes with what it must share with the others of its group: a key. A text without any word
    in common with others is alone.
    """
    found, equals, index, latest = [], {}, {}, {}
    for place, (key, text) in enumerate(texts):
        bare = (key, place if text is None else _DIGITS.sub("0", text))
        group = equals.get(bare)
        if group is None:
            words = tuple(_WORD.findall(bare[1])) if text else ()
            group = latest.get(key)  # most often it is this one
            if group is None or not group.admit(words):
                group = _find(index, key, words)
            if not group.members:
                found.append(group)
            equals[bare] = latest[key] = group
        group.members.append(place)
    return found


def _find(index, key, words):
    """Return the group that admits a text, or a new one, by an index of the halves of texts."""
    halves = [(key, *half) for half in _halves(words)]
    near = dict.fromkeys(each for half in halves for each in index.get(half, ()))
    group = next((each for each in near if each.admit(words)), None)
    if group is None:
        group = Alike(words)
        for half in halves:
            if len(known := index.setdefault(half, [])) < CANDIDATES:
                known.append(group)
    return group


def _halves(words):
    """Yield beginnings and ends of a text: all that are alike have one of them in common.

    Of two that are alike, the longer has at most MOST words that the shorter has not, so half of
    its other words are at one of the ends. It may be longer by MOST than this text.
    """
    count = len(words)
    for half in {max(1, (longer - MOST + 1) // 2) for longer in range(count, count + MOST + 1)}:
        if half <= count:
            yield True, words[:half]
            yield False, words[-half:]


def _in_common(some, others, most):
    """Return how many words two texts begin with alike, up to `most`."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if count == most or one != other:
            break
        count += 1
    return count


def _pieces(words, begin, end, same):
    """Return words joined into pieces, alternately the same in all texts and not."""
    pieces, last = [], len(words) - end
    for place, word in enumerate(words):
        of_ends = place if place < begin else place - last + begin
        differs = begin <= place < last or of_ends not in same
        if pieces and pieces[-1][1] == differs:
            pieces[-1] = (pieces[-1][0] + word, differs)
        else:
            pieces.append((word, differs))
    return pieces
