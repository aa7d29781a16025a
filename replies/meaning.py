"""What a reply says: a plain no, a start, a call for help, perhaps a no, or something else.

Pure. Nothing is decided by a guess: a text that says anything beside its no is for people.
"""

import unicodedata
from enum import Enum

import regex

from carriers import opt_outs


class Meaning(Enum):
    NO = "wants no more texts"
    START = "wants texts again"
    HELP = "asks what this is"
    MAYBE_NO = "may be a no, which people decide"
    OTHER = "something else"


NOES = ("stop", "stopall", "end", "quit", "cancel", "unsubscribe", "optout", "revoke", "remove")
PAIRS = (("opt", "out"), ("take", "off"), ("no", "more"))
WISHES = ("i", "want", "would", "like")
POLITE = (
    *("please", "pls", "thanks", "thank you", "now", "me", "texting", "messaging", "sending"),
    *("texts", "messages", "from", "your", "list", "my", "number", "to", "us", "the", "these"),
    *("this", "all", "any"),
)
HELP = ("help", "info", "aide")
OTHER_NOES = (
    *("alto", "baja", "basta", "parar", "para", "sair", "cancelar", "no mas", "arret", "stopp"),
    *("abmelden", "afmelden", "unsub", "lose my number", "not interested", "no thanks"),
    *("no thank you", "who is this", "who s this", "whos this"),
)
"""Words that may be a no if a text says nothing else."""

POLITE_ELSEWHERE = ("por favor", "gracias", "obrigado", "obrigada", "merci", "bitte", "danke")
POLITE_ELSEWHERE += ("s il vous plait", "grazie", "per favore", "alstublieft", "bedankt")

SHORTEST_MISSPELT = 4  # letters

# Anybody can send 255 parts of any characters: a text is cut, and each pattern takes time in
# proportion to the length

LONGEST = 2_000  # characters that are judged
LONGEST_PLAIN = 3 * LONGEST  # NFKD makes up to 3 letters of one of Korean, and 18 of a ligature
CUT = " etc"  # in place of the rest, which says something beside a no
MARKS = regex.compile(r"(?<=[\p{M}\p{Cf}]{4})[\p{M}\p{Cf}]++")
"""The marks of a run beyond four, which are cut: NFKD takes quadratic time to sort a run."""

SIGNATURE = regex.compile(r"^[^\S\n]*+[\p{Pd}\u2212]*+[^\S\n]*+$", regex.MULTILINE)
"""A blank line, or one of dashes."""

EMOJI = regex.compile(r"[0-9#*]\uFE0F?\u20E3|(?!Ⓜ)\p{Extended_Pictographic}")
HIDDEN = regex.compile(r"[\p{M}\p{Cf}]+")  # accents, and what has no width
WORD = regex.compile(r"[^\W_]+")

# The patterns below match words with a space after each


def _any(words):
    return f"(?:{'|'.join(words)})"


# No wishes in between: "no I want more" is not a no
A_NO = _any((*NOES, *(f"{one} (?:{_any(POLITE)} )*+{other}" for one, other in PAIRS)))
AROUND = _any((*POLITE, *WISHES))
PLAIN_NO = regex.compile(f"(?:{AROUND} )*+(?:{A_NO} (?:{AROUND} )*+)++")
AROUND_OTHER = _any((AROUND, *POLITE_ELSEWHERE))
OTHER_NO = regex.compile(f"(?:{AROUND_OTHER} )*+(?:{_any(OTHER_NOES)} (?:{AROUND_OTHER} )*+)++")
PLAIN_HELP = regex.compile(f"(?:{AROUND} )*+(?:{_any(HELP)} (?:{AROUND} )*+)++")
HAS_NO = regex.compile(
    rf"\b{_any((*NOES, *opt_outs.STOP))} "
    rf"|\b{_any(f'{one} (?:{AROUND} )*+{other}' for one, other in PAIRS)} "
)
DENIAL = regex.compile(
    r"\b(?:don ?t|do not|never|not) (?:\w+ ){0,2}?(?:text|message|contact|write|call|sms|spam)"
    r"|\bleave me alone "
    r"|\b(?:wrong|incorrect) (?:\w+ ){0,2}?(?:number|num|nr|phone|person|contact) "
    r"|\b(?:number|phone) (?:\w+ ){0,3}?(?:wrong|incorrect) |\bwrongnumber "
    r"|\b(?:not|isn ?t) (?:\w+ ){0,3}?(?:number|phone) "
    r"|\b(?:faux|mauvais) numero |\bfalsche nummer "
)
"""A no in other words, or that the number is wrong."""

CORRECT = [
    word
    for word in {*NOES, *opt_outs.STOP, *(word for pair in PAIRS for word in pair), "wrong"}
    if len(word) >= SHORTEST_MISSPELT
]


def read(text: str) -> Meaning:
    """Return what a reply says."""
    text = _judged(text)
    if (stop := opt_outs.read(text)) is not None:
        return Meaning.NO if stop else Meaning.START
    readings = _readings(_before_signature(text))
    if any(map(PLAIN_NO.fullmatch, readings)):
        return Meaning.NO
    if any(map(PLAIN_HELP.fullmatch, readings)):
        return Meaning.HELP
    return _suspected(text)


def read_part(text: str) -> Meaning:
    """Return what an incomplete text says: at most that it may be a no."""
    return _suspected(_judged(text))


def _judged(text):
    """Return the part of a text that is judged: its beginning, without long runs of marks."""
    text = MARKS.sub("", text).strip()
    return text if len(text) <= LONGEST else text[:LONGEST] + CUT


def _suspected(text):
    if any(map(OTHER_NO.fullmatch, _readings(_before_signature(text)))):
        return Meaning.MAYBE_NO
    for words in _readings(text):
        meant = "".join(f"{_corrected(word)} " for word in words.split())
        if HAS_NO.search(meant) or DENIAL.search(meant):
            return Meaning.MAYBE_NO
    return Meaning.OTHER


def _before_signature(text):
    """Return the text before the first blank line or line of dashes; skip leading blank lines."""
    lines = "\n".join(text.splitlines())
    return SIGNATURE.split(lines.lstrip(), maxsplit=1)[0]


def _readings(text) -> set[str]:
    """Return the words of a text: punctuation may part words (stop,please) or not (s.t.o.p).

    They are without case, accents and emoji, and each i is dotted: Turkish has one without.
    """
    plain = unicodedata.normalize("NFKD", EMOJI.sub(" ", text)).casefold()
    plain = HIDDEN.sub("", plain).replace("ı", "i")[:LONGEST_PLAIN]
    parted = "".join(f"{word} " for word in WORD.findall(plain))
    pieces = ("".join(WORD.findall(each)) for each in plain.split())
    return {parted, "".join(f"{word} " for word in pieces if word)}


def _corrected(word):
    """Return the word of a no that this one misspells in one letter, or in two exchanged ones."""
    return next((each for each in CORRECT if _are_alike(word, each)), word)


def _are_alike(one, other):
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while one[start : start + 1] == other[start : start + 1] != "":
        start += 1
    one, other = one[start:], other[start:]
    is_other, is_missing, is_more = one[1:] == other[1:], one == other[1:], one[1:] == other
    are_exchanged = one[:2] == other[1::-1] and one[2:] == other[2:]
    return is_other or is_missing or is_more or are_exchanged
