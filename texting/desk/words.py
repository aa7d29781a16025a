"""Numbers, times and texts in words and markup, as the desk's pages show them."""

import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime, timedelta

from flask import request
from markupsafe import Markup, escape

from texting import recipients
from texting.recipients.hours import written

_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_TIME = re.compile(r"\b(\d\d?):(\d\d) ([AP])M\b")
TWELVE_HOURS = (
    "aa ak am ar as bal bem bgc bho bn brx byn cad ccp ceb chr cic ckb csw doi dz ee el en fil gaa "
    "gez gu haw hi iu kab km kn ko kok kpe ks kxv lkt mai mi mic ml mni moh mr ms mus naq nus ny "
    "om or osa pa qu raj sa sat sd sid so sq ssy syr ta te ti tig to tpi trv trw ur vai wal xnr yue"
)
"""The languages in which times of day are written as 7:00 PM."""
OTHERWISE = {
    "en": "150 AI AT BE BI BW BZ CC CH CK CM CX CZ DE DG DK ES FI FK FR GB GG GI GS HU ID IE IL IM "
    "IO IT JE KE MG MS MT MU MV NF NG NL NO NR NU PL PN PT RO RW SC SE SH SI SK SX TK TV TZ UG ZA "
    "ZW",
    "es": "419 AR BO CL CO CR CU DO EC GT HN MX NI PA PE PH PR PY SV US UY VE",
    "zh": "HK MO MY SG TW",
}
"""Where a language is written with the other hours."""

UNSEEN = ("Cc", "Cf", "Mn", "Me", "Zs")
"""Unicode's categories of characters that show nothing by themselves."""

# Times


def hour_cycle() -> str:
    """Return the cycle of hours of the browser's first language, as scripts name it."""
    language, *more = (request.accept_languages.best or "en").lower().split("-")
    is_other = {*more} & {*OTHERWISE.get(language, "").lower().split()}
    return "h12" if (language in TWELVE_HOURS.split()) is not bool(is_other) else "h23"


def for_reader(words: str) -> str:
    """Return words with their times of day, such as 7:00 PM, as the reader's language has them."""

    def in_24(match):
        return f"{int(match[1]) % 12 + 12 * (match[3] == 'P'):02}:{match[2]}"

    return _TIME.sub(in_24, words) if hour_cycle() == "h23" else words


def time_of_day(at: datetime) -> str:
    """Write the time of day of an instant in its own zone."""
    return for_reader(written(at)).partition(",")[0]


def date_and_time(at: datetime, now: datetime, seconds: bool = False) -> str:
    """Write an instant in its own zone, with the year unless it is the current one."""
    words = for_reader(written(at)) + (f", {at.year}" if at.year != now.year else "")
    return re.sub(r"(:\d\d)", rf"\1:{at:%S}", words, count=1) if seconds else words


def instant(at: datetime, now: datetime, seconds: bool = False) -> Markup:
    """Write an instant so that the script rewrites it in the reader's zone."""
    time = Markup('<time class="instant"{} datetime="{}">{} UTC</time>')
    mark = Markup(" data-seconds" if seconds else "")
    return time.format(mark, at.isoformat(), date_and_time(at, now, seconds))


def with_instants(sentence: str, now: datetime) -> Markup:
    """Return a sentence with its instants written in this way."""
    *before, last = re.split(f"({_INSTANT})", sentence)
    pairs = zip(before[::2], before[1::2], strict=True)
    known = (escape(words) + instant(datetime.fromisoformat(at), now) for words, at in pairs)
    return Markup("").join(known) + escape(last)


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


def marked(pieces: Iterable[tuple[str, bool]]) -> Markup:
    """Return a text in pieces as one, with a mark on those that differ, but for space at their end.

    A template takes six times as long for thousands of pieces, and has no pause.
    """
    html = []
    for words, differs in pieces:
        mark = words.rstrip() if differs else ""
        if mark:
            html.append(f"<mark>{escape(mark)}</mark>")
        html.append(escape(words[len(mark) :]))
    return Markup("".join(html))


def named(character: str) -> str:
    """Return a character, or its name in Unicode if nobody would see it."""
    is_unseen = unicodedata.category(character) in UNSEEN
    return unicodedata.name(character, "control character").lower() if is_unseen else character


FILTERS = (ago, counted, instant, number, span, time_of_day, unbroken, with_instants)
"""The filters of the templates."""
