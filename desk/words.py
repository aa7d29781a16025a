"""Numbers, times and texts in words and markup, as the desk's pages show them."""

import re
import unicodedata
from datetime import datetime, timedelta

import regex
from flask import request
from markupsafe import Markup, escape

import recipients
from recipients.hours import written

_TIME = re.compile(r"\b(\d\d?):(\d\d) ([AP])M\b")
NAMED = {"\t": "a tab", "\N{NO-BREAK SPACE}": "a no-break space"}
EMOJI = "emoji"
_EMOJI_JOINERS = "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}\N{COMBINING ENCLOSING KEYCAP}"
# Without what is a letter or sign elsewhere, such as © and ™
_EMOJI = regex.compile(
    r"[\p{Emoji_Presentation}\p{Emoji_Modifier}\p{Regional_Indicator}"
    r"[\p{Extended_Pictographic}&&[\u2600-\U0010FFFF]]]",
    regex.VERSION1,
)
FOLDED = 6  # lines that are shown of a longer text
WIDE, NARROW = 62, 38  # characters in a line, on a desktop and on a phone
MOST_NAMED = 20  # invisible characters in a text; each one's markup takes 80 characters
# Runs of characters that cannot be seen. Joiners (U+200C, U+200D) and presentation selectors
# (U+FE0E, U+FE0F) are needed in emoji, and joiners in words of some scripts: Arabic to Arabic
# Extended-A, Devanagari to Myanmar, Khmer, Mongolian, further Indic ones, Arabic's presentation
# forms. A digit is an emoji only with an enclosing keycap (U+20E3).
_HIDDEN = regex.compile(
    r"""(?:
    [[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\N{BRAILLE PATTERN BLANK}]--[\n\t]]
    (?<![[\p{Emoji}\uFE0E\uFE0F]--[0-9#*]][\u200C\u200D](?=[\p{Emoji}--[0-9#*]]))
    (?<![[\u0600-\u109F\u1780-\u18AF\uA800-\uABFF\uFB50-\uFDFF\uFE70-\uFEFC\U00010A00-\U00011FFF]
      &&[\p{L}\p{M}]][\u200C\u200D])
    (?<![\p{Emoji}--[0-9#*]][\uFE0E\uFE0F])
    (?<![\uFE0E\uFE0F](?=\u20E3))
    )+""",
    regex.VERBOSE | regex.VERSION1,
)

# Times


def hour_cycle() -> str:
    """Return the cycle of hours of the browser's first language, as scripts name it."""
    language = (request.accept_languages.best or "")[:20]
    return "h23" if recipients.counts_24_hours(language) else "h12"


def for_reader(words: str) -> str:
    """Return words with their times of day, such as 7:00 PM, as the reader's language has them."""

    def in_24(match):
        return f"{int(match[1]) % 12 + 12 * (match[3] == 'P'):02}:{match[2]}"

    return _TIME.sub(in_24, words) if hour_cycle() == "h23" else words


def time_of_day(at: datetime) -> str:
    """Write the time of day of an instant in its own zone."""
    return for_reader(written(at)).partition(",")[0]


def date_and_time(at: datetime, now: datetime) -> str:
    """Write an instant in its own zone, with the year unless it is the current one."""
    return for_reader(written(at)) + (f", {at.year}" if at.year != now.year else "")


def ago(at: datetime, now: datetime) -> str:
    """Write an instant relative to now: "in 3 hours", "2 days ago"."""
    if abs(at - now) < timedelta(minutes=1):
        return "just now" if at <= now else "in less than a minute"
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def span(length: timedelta) -> str:
    """Write a length of time: "40 minutes", "2 h 40 min", "13 hours", "3 days"."""
    days, minutes = length.days, length // timedelta(minutes=1)
    if days >= 730:
        return f"{int(days / 365.25):,} years"
    if days >= 2:
        return f"{days} days"
    if minutes >= 600 or (minutes >= 60 and minutes % 60 == 0):
        return counted(minutes // 60, "hour")
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return counted(minutes, "minute") if minutes else "less than a minute"


# Numbers


def counted(count: int, noun: str, or_more: bool = False) -> str:
    """Write a number with its noun: "1 text", "2 texts", "1,000+ texts"."""
    return f"{number(count, or_more)} {noun}{'' if count == 1 else 's'}"


def number(count: int, or_more: bool = False) -> str:
    """Write a number, with a plus sign if counting stopped there: "1,000", "1,000+"."""
    return f"{count:,}{'+' if or_more else ''}"


def international(number: str) -> str:
    """Return a number as people write it, or as it is if libphonenumber rejects it by now."""
    try:
        return recipients.find(number).international
    except recipients.InvalidNumber:
        return number


def unbroken(number: str) -> Markup:
    """Return a number as people write it, which stays on one line."""
    return Markup('<span class="number">{}</span>').format(international(number))


# Texts


def named_characters(characters: list[str]) -> list[str]:
    """Return characters as people call them, all emoji as one."""
    is_emoji = any(_EMOJI.fullmatch(each) for each in characters)
    joined = _EMOJI_JOINERS if is_emoji else ""
    named = (
        EMOJI if _EMOJI.fullmatch(each) or each in joined else NAMED.get(each, each)
        for each in characters
    )
    return list(dict.fromkeys(named))


def fold(text: str) -> str:
    """Return the class of a text that is folded: "long", "long on-phones" if only there, or "".

    It has more than six lines. They are estimated: a text that is not folded may have a few more.
    """
    lines = text.split("\n")
    wide, narrow = (sum(-(-len(line) // width) or 1 for line in lines) for width in (WIDE, NARROW))
    return "long" if wide > FOLDED else "long on-phones" if narrow > FOLDED else ""


def visible(text: str, longest: int | None = None) -> Markup:
    """Escape a text; replace characters that are invisible or change its direction by names.

    At most MOST_NAMED of these are named and `longest` characters are shown; the end says how many
    are left out.
    """
    text = text.replace("\r\n", "\n")
    shown, count = text[:longest], 0

    def named(match):
        nonlocal count
        some = match[0][: max(0, MOST_NAMED - count)]
        count += len(match[0])
        return "".join(map(_named, some))

    markup = _HIDDEN.sub(named, str(escape(shown)))
    if count > MOST_NAMED:
        markup += _control(f"and {count - MOST_NAMED:,} more that cannot be seen")
    if rest := len(text) - len(shown):
        markup += _control(f"and {counted(rest, 'more character')}")
    return Markup(markup)


def _named(character):
    """Return the markup in place of a character that cannot be seen."""
    name = unicodedata.name(character, "control character")
    return f'<span class="control" title="{name}">U+{ord(character):04X}</span>'


def _control(words):
    return f' <span class="control">{words}</span>'


FILTERS = (ago, counted, date_and_time, fold, number, span, time_of_day, unbroken, visible)
"""The filters of the templates."""
