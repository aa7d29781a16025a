"""Texts as mobile networks carry them: alphabets, and parts with a header.

The alphabet, its extension table and data_coding's values for it are those of 3GPP TS 23.038; the
header of concatenated parts is that of 3GPP TS 23.040, 9.2.3.24.1.
"""

import itertools
import random
from collections.abc import Iterable

GSM, LATIN1, UCS2 = 0, 3, 8  # data_coding
NAMES = {"gsm": GSM, "latin1": LATIN1, "ucs2": UCS2}

ESCAPE = 0x1B
DEFAULT = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
EXTENSION = {
    0x0A: "\f",
    0x14: "^",
    0x28: "{",
    0x29: "}",
    0x2F: "\\",
    0x3C: "[",
    0x3D: "~",
    0x3E: "]",
    0x40: "|",
    0x65: "€",
}
SEPTETS = {character: bytes([code]) for code, character in enumerate(DEFAULT) if code != ESCAPE}
SEPTETS |= {character: bytes([ESCAPE, code]) for code, character in EXTENSION.items()}

WHOLE = {GSM: 160, LATIN1: 140, UCS2: 140}  # what one part holds, in septets or octets
CONCATENATED = {GSM: 153, LATIN1: 134, UCS2: 134}  # beside a header of six octets
MOST_PARTS = 255

_references = itertools.count(random.randrange(256))


def cut(text: str, coding: int) -> tuple[int, list[bytes]]:
    """Return the data_coding that `text` needs, and its parts; several have their header.

    It is `coding` where that can express the whole text, otherwise UCS2. A septet takes an octet.
    No character is torn: neither an escape sequence nor a surrogate pair. Raise ValueError where
    there are more parts than can be numbered.
    """
    try:
        characters = _encoded(text, coding)
    except (KeyError, UnicodeEncodeError):
        coding = UCS2
        characters = _encoded(text, coding)
    parts = _filled(characters, WHOLE[coding])
    if len(parts) > 1:
        parts = _filled(characters, CONCATENATED[coding])
        if len(parts) > MOST_PARTS:
            raise ValueError(f"the text has more than {MOST_PARTS} parts")
        header = bytes([5, 0, 3, next(_references) % 256, len(parts)])
        parts = [header + bytes([number]) + part for number, part in enumerate(parts, start=1)]
    return coding, parts


def _encoded(text: str, coding: int) -> list[bytes]:
    """Return each character of `text` by itself; raise an error where one cannot be expressed."""
    if coding == GSM:
        return [SEPTETS[character] for character in text]
    encoding = "latin-1" if coding == LATIN1 else "utf-16-be"
    return [character.encode(encoding) for character in text]


def _filled(characters: Iterable[bytes], size: int) -> list[bytes]:
    """Return the characters in parts of at most `size` octets."""
    parts = [bytearray()]
    for character in characters:
        if len(parts[-1]) + len(character) > size:
            parts.append(bytearray())
        parts[-1] += character
    return [bytes(part) for part in parts]


def decode(octets: bytes, coding: int) -> str:
    """Return the text of one part that has no header; what cannot be read becomes U+FFFD.

    `coding` is any data_coding, those of message classes included.
    """
    message_class = coding & 0xF0 == 0xF0
    if coding == UCS2:
        return octets.decode("utf-16-be", "replace")
    if coding == GSM or (message_class and not coding & 0x04):
        return _from_septets(octets)
    return octets.decode("latin-1")


def _from_septets(octets):
    text, codes = [], iter(octets)
    for code in codes:
        table = DEFAULT
        if code == ESCAPE:
            # A code that the extension table does not have is shown as the default alphabet's.
            code = next(codes, 0x20)
            table = EXTENSION if code in EXTENSION else DEFAULT
        text.append(table[code] if code < 0x80 else "\ufffd")
    return "".join(text)
