"""Encode texts for mobile networks: alphabets, and the parts of long texts.

3GPP TS 23.038 defines the alphabet, its extension table and the values of data_coding. 3GPP TS
23.040, 9.2.3.24.1, defines the header of concatenated parts.
"""

import itertools
import random
from collections.abc import Iterable

import regex

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

# Extended grapheme clusters of Unicode's UAX #29. Networks count a line break as two characters;
# \X alone takes quadratic time for a row of flags
CLUSTER = regex.compile(r"\r|\p{Regional_Indicator}{2}(?=\p{Regional_Indicator})|\X")
LONGEST_CLUSTER = 32  # characters; twice as many units fit into a part

_references = itertools.count(random.randrange(256))


def cut(text: str, coding: int) -> tuple[int, list[bytes]]:
    """Return the data_coding for `text` and its parts, with headers if there are several.

    The data_coding is `coding` if that can express the whole text, otherwise UCS2. Each septet is
    stored in one octet. No part ends within what people see as one character: an escape
    sequence, a letter with accents, an emoji. Raise ValueError for more parts than can be numbered.
    """
    coding, parts = _divided(text, coding)
    if len(parts) > 1:
        if len(parts) > MOST_PARTS:
            raise ValueError(f"the text has more than {MOST_PARTS} parts")
        header = bytes([5, 0, 3, next(_references) % 256, len(parts)])
        parts = [header + bytes([number]) + part for number, part in enumerate(parts, start=1)]
    return coding, parts


def count_parts(text: str) -> int:
    """Return how many parts networks cut `text` into: in GSM 03.38, or in UCS2 if it needs that."""
    return len(_divided(text, GSM)[1])


def costly(text: str) -> tuple[list[str], int]:
    """Return the characters that make `text` longer, and how many parts it has with "x" for each.

    These are the characters that GSM 03.38 lacks, or else those that take two septets.
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
    if len(whole) <= WHOLE[UCS2]:  # 7 microseconds; 141 to take 70 characters apart
        return [whole]
    return [each.encode("utf-16-be") for each in clusters(text)]


def clusters(text: str) -> list[str]:
    """Return what people see as single characters, in order; split those too long for a part."""
    return [
        cluster[start : start + LONGEST_CLUSTER]
        for cluster in CLUSTER.findall(text)
        for start in range(0, len(cluster), LONGEST_CLUSTER)
    ]


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

    `coding` is any data_coding, including those with a message class. A part may begin or end with
    half a surrogate pair.
    """
    if coding == UCS2:
        whole = octets if len(octets) % 2 == 0 else octets[:-1] + b"\xff\xfd"
        return whole.decode("utf-16-be", "surrogatepass")
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
