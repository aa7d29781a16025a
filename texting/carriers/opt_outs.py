"""Recognize STOP and START, and the numbers of senders."""

import re
import unicodedata
from datetime import datetime

import phonenumbers

from texting.carriers import IncomingText, OptOut, Part

REGIONS = phonenumbers.SUPPORTED_REGIONS

# The keywords that Twilio documents ("Twilio support for opt-out keywords", including the Canadian
# ARRET) and Vonage documents for short codes ("Opt-Out Assist"). Twilio's YES is left out: it also
# answers ordinary questions, and must not subscribe anybody by mistake. If Twilio itself takes a
# YES for an opt-in, it says so in a separate field, which counts.
STOP = {
    *("stop", "stopall", "unsubscribe", "cancel", "end", "quit", "revoke", "optout"),
    *("arret", "arrete", "arrett"),
}
START = {"start", "unstop"}


def read(text: str) -> bool | None:
    """Return True if a text says STOP, False if it says START, None otherwise.

    Ignore case, accents, white space and punctuation. A text with further words says neither.
    """
    letters = unicodedata.normalize("NFKD", text).casefold()  # 𝐒 has no small letter of its own
    word = "".join(character for character in letters if character.isalnum())
    return True if word in STOP else False if word in START else None


def reported(number: str, at: datetime | None, message_ids: tuple[str, ...]) -> list[OptOut]:
    """Return, in a list, the STOP that a carrier reports about a number, if it is one."""
    return [
        OptOut(plus, True, "carrier", at, certain, message_ids)
        for plus, certain in _with_plus(number)
    ]


def replies(
    number: str,
    text: str | None,
    at: datetime | None = None,
    message_ids: tuple[str, ...] = (),
    word: str | None = None,
    part: Part | None = None,
) -> list[IncomingText]:
    """Return, in a list, the text from a number, if there is a text."""
    return [
        IncomingText(plus, text, at, certain, message_ids, word, part)
        for plus, certain in _with_plus(number)
        if text is not None
    ]


def _with_plus(number):
    """Return, in a list, a number with its plus sign, and whether it is surely international.

    The list is empty for other senders: texts also come from short codes and names.
    """
    digits = number.removeprefix("+")
    if not re.fullmatch(r"\d{7,15}", digits, re.ASCII):
        return []
    return [(f"+{digits}", number.startswith("+") and not digits.startswith("0"))]


def international(number: str) -> str:
    """Return a number that a carrier calls international, with its plus sign."""
    return f"+{number.removeprefix('+')}"


def national(number: str, region: str) -> str | None:
    """Return the E.164 form of a number as written in a region, or None if it is invalid.

    The number may have its country code.
    """
    try:
        found = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_valid_number(found):
        return None
    return phonenumbers.format_number(found, phonenumbers.PhoneNumberFormat.E164)
