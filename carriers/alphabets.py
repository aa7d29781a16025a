"""Encode texts for mobile networks: alphabets, and the parts of long texts.

3GPP TS 23.038 defines the alphabet, its extension table and the values of data_coding. 3GPP TS
23.040, 9.2.3.24.1, defines the header of concatenated parts.
"""

import itertools
import random
import re
import unicodedata
from collections.abc import Iterable

GSM, LATIN1, UCS2 = 0, 3, 8  # data_coding
NAMES = {"gsm": GSM, "latin1": LATIN1, "ucs2": UCS2}

ESCAPE = 0x1B
DEFAULT = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = dict(zip(bytes.fromhex("0A 14 28 29 2F 3C 3D 3E 40 65"), "\f^{}\\[~]|€", strict=True))
SEPTETS = {character: bytes([code]) for code, character in enumerate(DEFAULT) if code != ESCAPE}
SEPTETS |= {character: bytes([ESCAPE, code]) for code, character in EXTENSION.items()}

WHOLE = {GSM: 160, LATIN1: 140, UCS2: 140}  # capacity of a single part, in septets or octets
CONCATENATED = {GSM: 153, LATIN1: 134, UCS2: 134}  # the same, beside a header of six octets
MOST_PARTS = 255

# What UAX #29 goes by, besides the category Mark
PLAIN = re.compile("[\0-\u02ff\u0370-\u0482\u048a-\u0556\u2010-\u2027\u3041-\u3096\u30a0-\u9fff]*")
JOINER = "\N{ZERO WIDTH JOINER}"
EXTENDING = {JOINER, "\N{ZERO WIDTH NON-JOINER}", *"\u0e33\u0eb3\uff9e\uff9f"}
EXTENDING |= {chr(code) for code in (*range(0x1F3FB, 0x1F400), *range(0xE0020, 0xE0080))}
NOT_JOINED = {*"\u102b\u102c\u1038\u1062\u1063\u1064\u1083\u108f\u1a61\u1a63\u1a64\uaa7b\uaa7d"}
NOT_JOINED |= {chr(code) for code in (*range(0x1067, 0x106E), *range(0x1087, 0x108D))}
NOT_JOINED |= {*"\u109a\u109b\u109c\U00011720\U00011721"}
PREPENDED = {*"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"}
PREPENDED |= {*"\U000110bd\U000110cd\U000111c2\U000111c3"}
PICTURE = re.compile("[©®‼⁉™ℹ\u2190-\u21ff\u2300-\u2bff〰〽㊗㊙\U0001f000-\U0001faff]")
FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")  # regional indicators
SYLLABLES = tuple(  # Hangul: what follows what
    (re.compile(before), re.compile(after))
    for before, after in (
        ("[\u1100-\u115f\ua960-\ua97c]", "[\u1100-\u11a7\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7c6]"),
        ("[\u1160-\u11a7\ud7b0-\ud7c6]", "[\u1160-\u11ff\ud7b0-\ud7fb]"),
        ("[\u11a8-\u11ff\ud7cb-\ud7fb\uac00-\ud7a3]", "[\u11a8-\u11ff\ud7cb-\ud7fb]"),
        (f"[{''.join(map(chr, range(0xAC00, 0xD7A4, 28)))}]", "[\u1160-\u11a7\ud7b0-\ud7c6]"),
    )
)
LONGEST_CLUSTER = 32  # characters; twice as many units fit into a part

_references = itertools.count(random.randrange(256))


def cut(text: str, coding: int) -> tuple[int, list[bytes]]:
    """Return the data_coding for `text` and its parts, with headers if there are several.

    The data_coding is `coding` if that can express the whole text, otherwise UCS2. Each septet is
    stored in one octet. Parts do not split what people see as one character: no escape sequence, no
    letter from its accents, no emoji. Raise ValueError for more parts than can be numbered.
    """
    coding, parts = _divided(text, coding)
    if len(parts) > 1:
        if len(parts) > MOST_PARTS:
            raise ValueError(f"the text has more than {MOST_PARTS} parts")
        header = bytes([5, 0, 3, next(_references) % 256, len(parts)])
        parts = [header + bytes([number]) + part for number, part in enumerate(parts, start=1)]
    return coding, parts


def count_parts(text: str) -> int:
    """Return into how many parts networks cut `text`: in GSM 03.38, or in UCS2 if it needs that."""
    return len(_divided(text, GSM)[1])


def costly(text: str) -> tuple[list[str], int]:
    """Return the characters that cost `text` room, and its parts if each took as little as an "x".

    These are the ones that GSM 03.38 lacks, or else the ones that it writes with two septets.
    """
    characters = dict.fromkeys(text)
    found = [each for each in characters if each not in SEPTETS]
    found = found or [each for each in characters if len(SEPTETS[each]) > 1]
    return found, count_parts(text.translate(dict.fromkeys(map(ord, found), "x")))


def _divided(text: str, coding: int) -> tuple[int, list[bytes]]:
    """Return the data_coding for `text` and the octets of its parts, without headers."""
    try:
        characters = _encoded(text, coding)
    except (KeyError, UnicodeEncodeError):
        coding = UCS2
        characters = _encoded(text, coding)
    parts = _filled(characters, WHOLE[coding])
    if len(parts) > 1:
        parts = _filled(characters, CONCATENATED[coding])
    return coding, parts


def _encoded(text: str, coding: int) -> list[bytes]:
    """Return the octets of each character; raise KeyError or UnicodeEncodeError if one has none."""
    if coding == GSM:
        return [SEPTETS[character] for character in text]
    if coding == LATIN1:
        return [character.encode("latin-1") for character in text]
    whole = text.encode("utf-16-be")
    if len(whole) <= WHOLE[UCS2]:
        return [whole]
    return [each.encode("utf-16-be") for each in clusters(text)]


def clusters(text: str) -> list[str]:
    """Return what people see as one character each, in order.

    These are the extended grapheme clusters of Unicode's UAX #29, except that one which fills no
    part is cut, and so are the two characters of a line break.
    """
    if PLAIN.fullmatch(text):
        return list(text)
    found = []
    for character in text:
        if found and len(found[-1]) < LONGEST_CLUSTER and _joins(found[-1], character):
            found[-1] += character
        else:
            found.append(character)
    return found


def _joins(cluster, character):
    """Return whether a character continues a cluster."""
    last = cluster[-1]
    if character < "\u0300" or unicodedata.category(last) in ("Cc", "Zl", "Zp"):
        return last in PREPENDED and character >= " "
    if character in EXTENDING or last in PREPENDED:
        return True
    if unicodedata.category(character)[0] == "M":
        return character not in NOT_JOINED
    if last == JOINER:
        return bool(PICTURE.match(cluster) and PICTURE.match(character))
    if FLAG.match(character):
        return len(cluster) == 1 and bool(FLAG.match(cluster))
    return any(before.match(last) and after.match(character) for before, after in SYLLABLES)


def _filled(characters: Iterable[bytes], size: int) -> list[bytes]:
    """Return the characters joined to parts of at most `size` octets."""
    parts = [bytearray()]
    for character in characters:
        if len(parts[-1]) + len(character) > size:
            parts.append(bytearray())
        parts[-1] += character
    return [bytes(part) for part in parts]


def decode(octets: bytes, coding: int) -> str:
    """Return the text of one part without a header; replace unreadable octets by U+FFFD.

    `coding` is any data_coding, including those with a message class.
    """
    if coding == UCS2:
        return octets.decode("utf-16-be", "replace")
    if coding == GSM or coding & 0xF4 == 0xF0:  # with a message class, and not 8-bit data
        return _from_septets(octets)
    return octets.decode("latin-1")


def _from_septets(octets):
    text, codes = [], iter(octets)
    for code in codes:
        table = DEFAULT
        if code == ESCAPE:
            # A code missing from the extension table means the character of the default alphabet.
            code = next(codes, 0x20)
            table = EXTENSION if code in EXTENSION else DEFAULT
        text.append(table[code] if code < 0x80 else "\ufffd")
    return "".join(text)
