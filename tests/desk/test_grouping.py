"""Texts are alike if they differ in nothing but digits and up to three words at one place."""

import random

import pytest

from texting.desk.grouping import CANDIDATES, Alike, groups

SALE = "Hi {}, our sale starts on Friday: {}% off all boots. Show code {} at the till."


def grouped(*texts):
    """The places of texts, by the groups that they are in."""
    return [group.members for group in groups(("shop", text) for text in texts)]


def marked(*texts):
    """Texts of one group with what differs in brackets."""
    (group,) = groups(("shop", text) for text in texts)
    pieces = group.marked(texts, texts)
    return [
        "".join(f"[{words}]" if differs else words for words, differs in each) for each in pieces
    ]


@pytest.mark.parametrize(
    "texts",
    [
        ("Hello", "Hello"),
        ("Your code is 1", "Your code is 123456"),
        ("Parcel A12B is here", "Parcel A9B is here"),
        ("12", "3456"),
        ("Hi Ann", "Hi Bob"),
        ("Ann, call us", "Bob, call us"),
        ("Hi Ann, call us", "Hi Ann Maria Lee, call us"),
        ("Hi , call us", "Hi Bob, call us", "Hi Bob von Stein, call us"),
        ("Hi call us", "Hi Bob de Witt call us"),
        ("Bye Ann", "Bye Ann Maria"),
        ("Hi Ann\nCall us", "Hi Bob\nCall us"),
        ("a a", "a a a"),
        ("🎉 Hi Ann 🎉", "🎉 Hi José 🎉"),
        ("🎉", "🎉"),
        (SALE.format("Ann", 10, 4711), SALE.format("Bob Lee", 5, 1), SALE.format("", 20, 99)),
    ],
)
def test_these_are_alike_in_whatever_order(texts):
    for some in (texts, texts[::-1]):
        assert grouped(*some) == [[*range(len(texts))]]


@pytest.mark.parametrize(
    "texts",
    [
        ("Hello", "Bye"),
        ("🎉", "🎉🎉"),
        ("", "Hello"),
        ("Your code is 1", "Your code is one two three four"),
        ("Hi Ann, call us", "Hi Ann Maria van Lee, call us"),
        ("Hi Ann, call us at once", "Hi Bob, call us at twice"),
        ("Hi Ann, see you on Friday at noon", "Hi Bob, see you on Monday at noon"),
        ("Hi Ann, call us Soon", "hi Ann, call us soon"),
        ("Hi Ann, call us soon", "Hi Ann, call  us again soon please"),
        ("Ann", "Ann\nBob Carl Dan Eve"),
        ("ab", "ba"),
    ],
)
def test_these_are_not(texts):
    for some in (texts, texts[::-1]):
        assert grouped(*some) == [[0], [1]]


def test_only_texts_with_the_same_key_are_alike():
    found = groups([("shop", "Hello 1"), ("clinic", "Hello 2"), ("shop", "Hello 3")])
    assert [group.members for group in found] == [[0, 2], [1]]


def test_what_was_cleared_is_like_nothing():
    assert grouped(None, "Hello", None, "Hello") == [[0], [1, 3], [2]]


def test_all_of_a_group_differ_at_one_place():
    """Each of these is like the first, and no two others are alike."""
    first = "one two three four five six seven eight"
    other = [first.replace(word, "x") for word in ("one", "four", "eight")]
    assert grouped(first, *other) == [[0, 1], [2], [3]]
    assert grouped(first, other[0], first) == [[0, 1, 2]]


def test_two_newsletters_that_come_by_turns_are_two_groups():
    spring = "Hi {}, our spring sale is over, and all boots are sold."
    texts = [each.format(f"name{chr(97 + n)}", 5, n) for n in range(26) for each in (SALE, spring)]
    assert grouped(*texts) == [[*range(0, 52, 2)], [*range(1, 52, 2)]]


def test_a_group_is_found_behind_others_that_begin_like_it():
    others = [f"Hi Ann, {' '.join(chr(97 + n) * 5 for _ in range(9))}" for n in range(26)]
    letters = [SALE.format(name, 5, 1) for name in ("Ann", "Bob", "Cy")]
    assert len(others) > CANDIDATES
    assert grouped(*others, *letters)[-1] == [26, 27, 28]


@pytest.mark.parametrize("common", [0, 20, 40, 60])
def test_each_text_is_compared_with_few_groups_whatever_they_have_in_common(monkeypatch, common):
    compared, admit = [], Alike.admit
    monkeypatch.setattr(
        Alike, "admit", lambda self, text: compared.append(text) or admit(self, text)
    )
    chance = random.Random(1)
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(600)]
    texts = [
        " ".join(
            [*words[:common], *chance.choices(words, k=chance.randint(40, 60)), *words[:common]]
        )
        for _ in range(500)
    ]
    assert len(grouped(*texts)) == 500
    assert len(compared) <= 500 * (CANDIDATES + 1)


def test_a_text_is_read_once_those_before_it_have_their_groups(monkeypatch):
    """So whoever gives the texts can pause between any two."""
    seen, init = [], Alike.__init__
    monkeypatch.setattr(Alike, "__init__", lambda self, text: seen.append(text) or init(self, text))

    def texts():
        for n, word in enumerate(("one", "two", "three")):
            assert len(seen) == n
            yield "shop", word

    assert len(groups(texts())) == 3


@pytest.mark.parametrize("seed", range(20))
def test_the_words_and_digits_that_differ_are_marked_and_no_others(seed):
    """Of texts with white space of all kinds."""
    chance = random.Random(seed)
    words = ["a ", "b\n", "c7 ", "c8 ", "c77d5 ", "c8d6 ", "7  ", "9 "]
    for _ in range(50):
        texts = ["".join(chance.choices(words, k=chance.randint(1, 6))) for _ in range(12)]
        for group in groups(("shop", text) for text in texts):
            some = [texts[place] for place in group.members]
            pieces = group.marked(some, some)
            assert ["".join(words for words, _ in each) for each in pieces] == some
            same = {"".join(words for words, differs in each if not differs) for each in pieces}
            assert len(same) == 1


@pytest.mark.parametrize("seed", range(20))
def test_whatever_there_is_each_text_is_in_one_group_of_texts_that_are_alike(seed):
    """By the words of the promise, on texts of few words, many of which are alike."""
    chance = random.Random(seed)
    texts = [
        " ".join(chance.choices(["a", "b", "7", "c8"], k=chance.randint(0, 7))) for _ in range(80)
    ]
    found = grouped(*texts)
    assert sorted(place for group in found for place in group) == [*range(80)]
    assert [group[0] for group in found] == sorted(group[0] for group in found)
    for group in found:
        assert all(are_alike(texts[one], texts[other]) for one in group for other in group)


def are_alike(one, other):
    """Whether texts of digits 7 and 8 and single spaces differ at one place of three words."""
    some, others = one.split(), other.split()
    if some == others:
        return True
    longer, shorter = sorted((some, others), key=len, reverse=True)
    return any(
        longer[:begin] == shorter[:begin]
        and longer[begin + 3 :] == shorter[len(shorter) - len(longer[begin + 3 :]) :]
        and begin + len(longer[begin + 3 :]) <= len(shorter)
        for begin in range(len(longer))
    )


def test_what_differs_is_marked_digits_too():
    assert marked("Hi Ann, pay 5 by 3 May.", "Hi Bob Lee, pay 10 by 3 May.") == [
        "Hi [Ann, ]pay [5 ]by 3 May.",
        "Hi [Bob Lee, ]pay [10 ]by 3 May.",
    ]
    assert marked("Call us", "Call us") == ["Call us"] * 2
    assert marked("Bye Ann", "Bye Ann Lee") == ["Bye [Ann]", "Bye [Ann Lee]"]
    assert marked("1 a 1", "1 a 2", "1 a 1") == ["1 a [1]", "1 a [2]", "1 a [1]"]


def test_what_differs_in_any_text_is_marked_in_those_that_are_shown():
    texts = ["Pay 5 by 3 May", "Pay 5 by 3 May", "Pay 5 by 4 May"]
    (group,) = groups(("shop", text) for text in texts)
    assert group.marked(texts, texts[:1]) == [[("Pay 5 by ", False), ("3 ", True), ("May", False)]]
