"""Texts are alike that differ in nothing but digits and a name: a few words at one place."""

import random
import re

import pytest

from texting.desk.grouping import CANDIDATES, TO_READ, Alike, groups

SALE = "Hi {}, our sale starts on Friday: {}% off all boots. Show code {} at the till."
LONG = "Anna-Bertha Carla-Dora Emil-Fi"  # thirty characters


def grouped(*texts):
    """The places of texts, by the groups that they are in."""
    return [group.members for group in groups(("shop", text) for text in texts)]


def read(*texts):
    """The texts of one group that are read, with what differs in brackets."""
    (group,) = groups(("shop", text) for text in texts)
    return [
        "".join(f"[{words}]" if differs else words for words, differs in each)
        for each in group.to_read(texts)
    ]


def in_common(texts):
    """How many characters texts begin with alike."""
    together = enumerate(zip(*texts, strict=False))
    return next((n for n, each in together if len({*each}) > 1), min(map(len, texts)))


def may_share(texts):
    """Whether texts may share a card, by the words of the promise."""
    bare = [re.sub(r"\d+", "0", text) for text in texts]
    begins = in_common(bare)
    ends = in_common([each[::-1] for each in bare])
    shortest = min(map(len, bare))
    places = ((begin, min(ends, shortest - begin)) for begin in range(begins + 1))
    return len({*bare}) == 1 or any(
        all(is_name(each, begin, len(each) - end) for each in bare) for begin, end in places
    )


def is_name(text, begins, ends):
    name = text[begins:ends]
    letters, of_name = (sum(c.isalpha() for c in each) for each in (text, name))
    return len(name) <= 30 and len(name.split()) <= 3 and 3 * of_name <= letters


KINDS = {  # a template, names, and more kinds that begin, or end, alike
    "English": (
        ["Hi {}, your table for {} is booked.", "Hi {}, your table for {} is gone: we are closed."],
        ["Ann", "Bob", "Mary Ann Lee", "José"],
    ),
    "German": (
        ["Guten Tag {}, Ihr Paket {} ist da.", "Guten Tag {}, Ihr Vertrag endet am {}. März."],
        ["Frau Weiß", "Herr Dr. Öz", "Uwe"],
    ),
    "Spanish": (
        ["¡Hola {}! Su próxima cita es a las {}.", "¡Hola {}! Su prueba número {} salió positiva."],
        ["Íñigo", "María José", "Luz"],
    ),
    "Russian": (
        ["Здравствуйте, {}! Ваш заказ {} готов.", "Здравствуйте, {}! Вы уволены с {} мая."],
        ["Анна", "Пётр Ильич", "Юля"],
    ),
    "Arabic": (
        [
            "مرحبا {}، موعدك القادم في الساعة {} مساء.",
            "مرحبا {}، نتيجة الفحص رقم {} إيجابية للأسف.",
        ],
        ["سارة", "محمد علي", "نور"],
    ),
    "Hindi": (
        ["नमस्ते {}, आपकी नियुक्ति कल {} बजे है।", "नमस्ते {}, आपका खाता {} दिन में बंद होगा।"],
        ["राम", "सीता देवी", "अर्जुन"],
    ),
    "Japanese": (
        ["{}様、明日{}時のご予約を承りました。", "{}様、検査番号{}の結果は陽性でした。"],
        ["田中", "佐藤花子", "やまもと"],
    ),
    "Chinese": (
        [
            "{}您好，您的订单{}已经发货，请注意查收。",
            "{}您好，您的账户将于{}日内关闭，请联系我们。",
        ],
        ["王伟", "李小龙", "欧阳娜娜"],
    ),
    "Thai": (
        ["สวัสดีคุณ{} นัดหมายของคุณคือเวลา {} นาฬิกา", "สวัสดีคุณ{} พัสดุหมายเลข {} ถูกตีกลับแล้ว"],
        ["สมชาย", "กี", "มาลี"],
    ),
    "Korean": (
        ["{}님, 내일 {}시 예약이 확정되었습니다.", "{}님, 주문 {}번이 취소되었음을 알려드립니다."],
        ["김민수", "이영희", "박 준"],
    ),
}


def of_language(language, chance):
    """A hundred texts of a language, each with its kind."""
    templates, names = KINDS[language]
    for _ in range(100):
        kind = chance.randrange(len(templates))
        number = chance.choice([3, 12, 450, 20261])
        yield (language, kind), templates[kind].format(chance.choice(names), number)


@pytest.mark.parametrize("seed", range(10))
def test_texts_of_ten_languages_have_a_card_for_each_kind_and_no_card_mixes_them(seed):
    chance = random.Random(seed)
    asked = [each for language in KINDS for each in of_language(language, chance)]
    chance.shuffle(asked)
    found = grouped(*(text for _, text in asked))
    for places in found:
        assert may_share([asked[place][1] for place in places])
    kinds = [{asked[place][0] for place in places} for places in found]
    assert [len(each) for each in kinds] == [1] * len(kinds)
    assert len(found) == 20


@pytest.mark.parametrize("language", KINDS)
def test_a_newsletter_of_any_language_is_one_card(language):
    templates, names = KINDS[language]
    body = " ".join([templates[0].partition("{}")[2]] * 3)
    texts = [f"{name}{body.replace('{}', str(n))}" for n, name in enumerate(names * 5)]
    assert grouped(*texts) == [[*range(len(texts))]]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_there_is_all_of_a_card_may_share_it(seed):
    """Texts of few words of all kinds, many of which are alike."""
    chance = random.Random(seed)
    words = [
        *"ab7?\n",
        " ",
        "  ",
        "c8",
        "日",
        "本語",
        "ไทย",
        "สี",
        "é",
        "🎉",
        "👩\u200d🚀",
        "Ann",
        "कि",
    ]
    texts = ["".join(chance.choices(words, k=chance.randint(0, 14))) for _ in range(150)]
    texts += [f"Come to us at 8, {each} please, and bring all of it" for each in texts]
    found = grouped(*texts)
    assert sorted(place for group in found for place in group) == [*range(len(texts))]
    assert [group[0] for group in found] == sorted(group[0] for group in found)
    for group in found:
        assert may_share([texts[place] for place in group]), [texts[place] for place in group]


@pytest.mark.parametrize(
    "texts",
    [
        ("Hello", "Hello"),
        ("Your code is 1", "Your code is 123456"),
        ("Parcel A12B is here", "Parcel A9B is here"),
        ("12", "3456"),
        ("Ann, call us", "Bob, call us"),
        ("Hi Ann, call us at once", "Hi Mary Lou, call us at once"),
        ("Hi , call us", "Hi Bob, call us"),
        ("Hi, please call us soon", "Hi, please Bob d W call us soon"),
        ("Your order is ready now", "Your order is ready now Ann Lee"),
        ("Hi Ann\nCall us soon", "Hi Bob\nCall us soon"),
        ("🎉 Hi Ann, come in 🎉", "🎉 Hi José, come in 🎉"),
        ("🎉", "🎉"),
        ("", ""),
        (SALE.format("Ann", 10, 4711), SALE.format("Bob Lee", 5, 1), SALE.format("", 20, 99)),
        (SALE.format(LONG, 1, 1), SALE.format("Bob", 1, 1)),
        (f"abcd {'e' * 4}, fghi", "abcd j, fghi"),
    ],
)
def test_these_are_alike_in_whatever_order(texts):
    for some in (texts, texts[::-1]):
        assert grouped(*some) == [[*range(len(texts))]]
        assert may_share(some)


@pytest.mark.parametrize(
    "texts",
    [
        ("Hello", "Bye"),
        ("Doors open at 8", "Dinner starts at 7"),
        ("Doors open at 8", "You are fired at 9"),
        ("Your test is negative", "Your test is positive"),
        ("検査の結果：陰性", "検査の結果：陽性、すぐ来院してください"),
        ("🎉", "🎉🎉"),
        ("!", "?"),
        ("", "Hello"),
        ("Hi Ann", "Hi Bob"),
        ("Hi Ann, call us", "Hi Ann Maria van Lee, call us"),
        ("Hi Ann, call us at once", "Hi Bob, call us at twice"),
        ("Hi Ann, see you on Friday at noon", "Hi Bob, see you on Monday at noon"),
        ("Ann", "Ann\nBob Carl Dan Eve"),
        ("ab", "ba"),
        (SALE.format("Ann B C", 1, 1), SALE.format("Ann B C D", 1, 1), SALE.format("X", 1, 1))[1:],
        (SALE.format(f"{LONG}-", 1, 1), SALE.format("Bob", 1, 1)),
        (f"abcd {'e' * 5}, fghi", "abcd j, fghi"),
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


def test_no_text_makes_another_differ_in_more():
    """The third is like the second, but what differs in the first would be longer."""
    long, short = (f"{SALE} {SALE[4:]}".replace("{}", each, 1) for each in (LONG, "Bob"))
    assert len(LONG) == 30
    assert grouped(long, short, short.replace("Hi", "Yo")) == [[0, 1], [2]]
    assert grouped(short, short.replace("Hi", "Yo"), long) == [[0, 1], [2]]


def test_two_newsletters_that_come_by_turns_are_two_groups():
    spring = "Hi {}, our spring sale is over, and all boots are sold."
    texts = [each.format(f"name{chr(97 + n)}", 5, n) for n in range(26) for each in (SALE, spring)]
    assert grouped(*texts) == [[*range(0, 52, 2)], [*range(1, 52, 2)]]


def test_a_group_is_found_behind_others_that_begin_and_end_like_it():
    kinds = [
        f"{'Dear customer of ours, ' * 3}{chr(97 + n) * 40}: {{}}{', bye' * 9}" for n in range(26)
    ]
    texts = [kind.format(name) for name in ("Ann", "Bob", "Cy") for kind in kinds]
    assert len(kinds) > CANDIDATES
    assert grouped(*texts) == [[n, n + 26, n + 52] for n in range(26)]


@pytest.mark.parametrize("common", [0, 20, 40, 60])
def test_each_text_is_compared_with_few_groups_whatever_they_have_in_common(monkeypatch, common):
    compared, admit = [], Alike.admit
    monkeypatch.setattr(Alike, "admit", lambda self, new: compared.append(new) or admit(self, new))
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
    monkeypatch.setattr(Alike, "__init__", lambda self, new: seen.append(new) or init(self, new))

    def texts():
        for n, word in enumerate(("one", "two", "three")):
            assert len(seen) == n
            yield "shop", word

    assert len(groups(texts())) == 3


# What is read


def test_what_differs_is_marked_digits_too():
    assert read(
        "Hi Ann, please pay 5 by 3 May.",
        "Hi Bob Lee, please pay 10 by 3 May.",
        "Hi Ann, please pay 5 by 3 May.",
    ) == [
        "Hi [Ann], please pay [5] by 3 May.",
        "Hi [Bob Lee], please pay [10] by 3 May.",
    ]
    assert read("Call us", "Call us") == ["Call us"]
    assert read("Your order is here", "Your order is here, Ann") == [
        "Your order is here",
        "Your order is here[, Ann]",
    ]
    assert read("1 a 1", "1 a 2", "1 a 1") == ["1 a [1]", "1 a [2]"]
    assert read("田中様、明日10時です。", "田村様、明日9時です。") == [
        "田[中]様、明日[10]時です。",
        "田[村]様、明日[9]時です。",
    ]
    assert read("Hi Anna, call us soon", "Hi Ann, call us soon")[0] == "Hi [Anna], call us soon"


def test_no_word_and_no_character_is_torn():
    for one, other in (
        ("👩\u200d🚀", "👩\u200d⚕️"),
        ("👍🏽", "👍🏿"),
        ("किरण", "किशोर"),
        ("e\u0301a", "eo"),
    ):
        text = "Come and see all of us, {}, at noon!"
        assert read(text.format(one), text.format(other))[0] == text.format(f"[{one}]")


def test_what_differs_in_any_text_is_marked_in_those_that_are_read():
    texts = [f"Pay {n} by 3 May" for n in (100, 200, 300)] + ["Pay 100 by 4 May"]
    assert read(*texts)[0] == "Pay [100] by [3] May"


def test_the_first_is_read_and_the_two_that_are_least_like_it():
    text = "Your appointment with {} at 9 is confirmed, see you soon"
    names = ["Dr. Lee"] * 20 + ["Dr. Eel", "the police", "Dr. Lie", "nobody ever, sorry", "Dr. L"]
    assert read(*(text.format(each) for each in names)) == [
        text.format(f"[{each}]") for each in ("Dr. Lee", "nobody ever, sorry", "the police")
    ]
    amounts = [f"Please pay {n} dollars" for n in (10, 11, 12, 1_000_000, 10, 9_000)]
    assert read(*amounts) == [f"Please pay [{n}] dollars" for n in (10, 1_000_000, 9_000)]
    assert len(read(*amounts)) == TO_READ


@pytest.mark.parametrize("seed", range(20))
def test_the_words_and_digits_that_differ_are_marked_and_no_others(seed):
    """Of texts with white space of all kinds."""
    chance = random.Random(seed)
    words = ["a ", "b\n", "c7 ", "c8 ", "c77d5 ", "c8d6 ", "7  ", "9 ", "日8", "本"]
    for _ in range(50):
        texts = ["".join(chance.choices(words, k=chance.randint(1, 8))) for _ in range(12)]
        for group in groups(("shop", text) for text in texts):
            some = [texts[place] for place in group.members]
            pieces = group.to_read(some)
            assert "".join(words for words, _ in pieces[0]) == some[0]
            assert {"".join(words for words, _ in each) for each in pieces} <= {*some}
            assert len(pieces) == min(TO_READ, len({*some}))
            same = {"".join(words for words, differs in each if not differs) for each in pieces}
            assert len(same) == 1
