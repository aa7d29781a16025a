"""How recipients say that they want no texts, or want them again."""

import re
import unicodedata

# What Twilio documents ("Twilio support for opt-out keywords", the Canadian ARRET with it), and
# Vonage for short codes ("Opt-Out Assist"). Twilio's YES is not among them: it is also the answer
# to many a question, and nobody gets texts again by mistake. Where Twilio itself takes a YES for
# an opt-in, it says so in a field of its own, which counts.
STOP = {
    *("stop", "stopall", "unsubscribe", "cancel", "end", "quit", "revoke", "optout"),
    *("arret", "arrete", "arrett"),
}
START = {"start", "unstop"}


def read(text: str) -> bool | None:
    """Return True for a text that says STOP, False for one that says START, None for any other.

    Case, accents, white space and punctuation do not count; a text with further words is another.
    """
    letters = unicodedata.normalize("NFKD", text.casefold())
    word = "".join(character for character in letters if character.isalnum())
    return True if word in STOP else False if word in START else None


def e164(number: str) -> str | None:
    """Return a number as E.164, whether it came with its plus sign or without; None if it is none.

    Senders of incoming texts can be short codes and names, too.
    """
    digits = re.fullmatch(r"\+?([1-9]\d{6,14})", number, re.ASCII)
    return f"+{digits[1]}" if digits else None
