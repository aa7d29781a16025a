"""The recipient of a phone number: country, place and time zones.

Everything here is a pure function of a number or a recipient; `hours` says when texts may be sent.
Numbers are known from libphonenumber, zones from IANA (the package `tzdata`, never the machine's
older copy), English names from CLDR.
"""

import gzip
import json
import re
import sys
import zoneinfo
from array import array
from bisect import bisect
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import phonenumbers
import tzdata
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberFormat, PhoneNumberType
from phonenumbers.phonenumberutil import is_number_type_geographical
from phonenumbers.tzdata import TIMEZONE_DATA

from texting.recipients import quiet
from texting.recipients.hours import BusinessHours, Clocks, written
from texting.recipients.quiet import QuietHours

zoneinfo.reset_tzpath(to=())
phonenumbers.enable_pattern_cache()  # 1 MB for all countries; Python's own cache evicts

REGIONS = phonenumbers.SUPPORTED_REGIONS
NO_COUNTRY = phonenumbers.REGION_CODE_FOR_NON_GEO_ENTITY  # "001"
COSTLY = {PhoneNumberType.PREMIUM_RATE: "Premium-rate", PhoneNumberType.PERSONAL_NUMBER: "Personal"}
SATELLITE = (870, 878, 881, 882, 883, 888)
"""The country codes of satellites and of global networks (ITU-T E.164.1)."""

CLOSED = "outside business hours"

# Regions without a code of their own in IANA's zone.tab: the zone they follow and their main town
_UNLISTED = {
    NO_COUNTRY: ("UTC", "UTC"),
    "AC": ("Atlantic/St_Helena", "Georgetown"),
    "TA": ("Atlantic/St_Helena", "Edinburgh of the Seven Seas"),
    "XK": ("Europe/Belgrade", "Pristina"),
}
_SHORT_NAMES = {"CC": "Cocos Island"}  # libphonenumber's name; CLDR's is longer

_NUMBERING = Path(__file__).parent / "numbering"
EXAMPLE = "+12125550123"
"""A number that nobody has: 555-0100 to 555-0199 are reserved for fiction in every area code."""

_DIGITS = 9  # the leading digits of a number that determine its place

_E164 = re.compile(r"\+[0-9]{4,20}")
_PUNCTUATION = re.compile(r"[\s().,/\-\u2010-\u2015\u2212]")  # hyphens, dashes and the minus sign
_LONGEST_NUMBER = 40  # characters of a number with its punctuation


class InvalidNumber(ValueError):
    """The text is no phone number; the message says why, in words that can follow a field name."""


class Residence(NamedTuple):
    """Where the owner of a number lives: a country, a state of one, or a zone."""

    place: str  # as `place_code` returns it
    until: date | None = None  # the last day, by the clock there


class Recipient(NamedTuple):
    """A valid number, its country (ISO 3166 or "001") and its possible clocks.

    These are those of the place where its owner lives, if that is known.
    """

    e164: str
    country: str
    clocks: Clocks
    number: PhoneNumber
    has_area: bool  # the digits of the number determine its place
    costly: str | None = None  # a kind of number whose owner may earn money by texts
    residence: Residence | None = None

    @property
    def international(self) -> str:
        """Return the number for display, in libphonenumber's international format."""
        return phonenumbers.format_number(self.number, PhoneNumberFormat.INTERNATIONAL)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the states or provinces of an area code; () elsewhere and where it has none."""
        return _states(self.e164[1:])

    @property
    def zone(self) -> ZoneInfo:
        """Return the main zone, the most populous of those in which the number can be."""
        return (self.clocks.of_number or self.clocks).zones[0]

    def zone_at(self, at: datetime) -> ZoneInfo:
        """Return the main zone by whose clock the recipient lives at an instant."""
        return self.clocks.at(at).zones[0]

    def place_at(self, at: datetime) -> str | None:
        """Return the place where the recipient is known to live at an instant, if any."""
        return self.residence.place if self.clocks.at(at).of_number else None


# Numbers


def find(to: str, residence: Residence | None = None) -> Recipient:
    """Return the recipient of an E.164 number; raise InvalidNumber if it is not one.

    This says by which clocks a message goes: those of the residence, if one is known.
    """
    return _find_there(to, residence) if residence else _find(to)


@lru_cache(maxsize=1024)
def _find_there(to, residence):
    recipient, there = _find(to), _clocks_of_place(residence.place)
    if not there:  # a zone that a newer tzdata has dropped
        return recipient
    until = residence.until and _end_of(residence.until, there.zones[0])
    clocks = there._replace(of_number=recipient.clocks, until=until)
    return recipient._replace(clocks=clocks, residence=residence)


@lru_cache(maxsize=1024)  # a text is judged up to three times, and this takes 0.1 ms
def _find(to):
    number, kind = _read(to)
    country = phonenumbers.region_code_for_number(number)
    has_area = is_number_type_geographical(kind, number.country_code)
    clocks = _area_clocks(country, to[1:]) if has_area else _country_clocks(country)
    costly = "Satellite" if number.country_code in SATELLITE else COSTLY.get(kind)
    return Recipient(to, country, clocks, number, has_area, costly)


def national(text: str, region: str | None) -> str:
    """Return the E.164 form of a number, written with a plus sign or as callers in `region` do.

    Raise InvalidNumber if it is not valid. Without a region the number needs its plus sign.
    """
    number = re.search(r"[+\uFF0B\d].*", text, re.DOTALL)
    if number and phonenumbers.is_alpha_number(number[0]):  # which libphonenumber would dial
        raise InvalidNumber("has letters")
    return phonenumbers.format_number(_valid(text, region)[0], PhoneNumberFormat.E164)


def _read(to):
    """Return a number in E.164 form and its type; refuse others, naming that form if possible."""
    bare, words = to, "is not a valid phone number"
    if to.startswith("+1555"):
        words += f": 555 is no area code; {EXAMPLE} is one that nobody has"
    if not _E164.fullmatch(to):
        words = f"must be a phone number in E.164 format: a plus sign and digits, like {EXAMPLE}"
        if len(to) <= _LONGEST_NUMBER:
            bare = "+" + _PUNCTUATION.sub("", to).removeprefix("+")
    try:
        number, kind = _valid(bare if _E164.fullmatch(bare) else "")
    except InvalidNumber:
        raise InvalidNumber(words) from None
    form = phonenumbers.format_number(number, PhoneNumberFormat.E164)
    if form != to:
        plus = "" if to.strip().startswith("+") else ", with a plus sign before it"
        raise InvalidNumber(f"must be in E.164 format{plus}: {form}")
    return number, kind


def _valid(text, region=None):
    """Return a valid number and its type, which libphonenumber gives to no others."""
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        raise InvalidNumber("is not a phone number") from None
    kind = phonenumbers.number_type(number)
    if kind == PhoneNumberType.UNKNOWN:
        raise InvalidNumber("is not a valid phone number")
    return number, kind


# Zones


def tzdata_version() -> str:
    """Return the version of IANA's data, like 2026f."""
    return tzdata.IANA_VERSION


class _Table(NamedTuple):
    """numbering/zones.txt applied to the data of IANA and libphonenumber."""

    zones: dict[str, list[str]]  # by country, the most populous zone first
    people: dict[str, list[int]]  # in each of these zones, per 100,000 of the country
    prefixes: dict[str, tuple[str, ...]]  # the zones of numbers with this prefix; none: no area


def iana_zones() -> dict[str, list[str]]:
    """Return the zones of each country in IANA's zone.tab."""
    zones = {}
    table = resources.files("tzdata.zoneinfo").joinpath("zone.tab").read_text("utf-8")
    for line in table.splitlines():
        if not line.startswith("#"):
            country, _, name, *_ = line.split("\t")
            zones.setdefault(country, []).append(name)
    return zones


@cache
def _table():
    zones = {region: [zone] for region, (zone, _) in _UNLISTED.items()} | iana_zones()
    counted, people, prefixes = {}, {}, dict(TIMEZONE_DATA)
    for code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
        prefixes.pop(str(code), None)  # a calling code alone is no area
    for line in (_NUMBERING / "zones.txt").read_text("ascii").splitlines():
        head, names, *rest = line.split()
        if head.replace("-", "").isalpha():
            counted.setdefault(head, []).append(names)
            people.setdefault(head, []).append(round(1000 * float(rest[0])))
        elif head != "#":
            corrected = () if names in zones else tuple(names.split(","))
            prefixes |= {head + tail: corrected for tail in rest or [""]}
    return _Table(zones | counted, people, prefixes)


@cache
def _country_clocks(place):
    """Return the possible clocks of a country, or of a state of one."""
    people = _table().people.get(place)
    zones = tuple(map(ZoneInfo, _table().zones[place]))
    return Clocks(place.partition("-")[0], zones, people and tuple(people))


def _clocks_of_place(place):
    """Return the clocks of a country, a state or a zone; None if there is no such place."""
    if country := _countries_of_zones().get(place):
        return Clocks(country, (ZoneInfo(place),))
    return _country_clocks(place) if is_home(place) else None


@cache
def _countries_of_zones():
    """Return the country of each zone in IANA's zone.tab."""
    return {zone: country for country, zones in iana_zones().items() for zone in zones}


def _end_of(day, zone):
    """Return the instant at which a day ends in a zone; None if that is in the year 10000."""
    try:
        midnight = datetime.combine(day + timedelta(days=1), time(), zone)
        return midnight.astimezone(UTC)
    except OverflowError:
        return None


def _area_clocks(country, digits):
    """Return the possible clocks of a number with an area, by its longest known prefix."""
    prefixes = _table().prefixes
    for length in range(len(digits), 1, -1):
        if names := prefixes.get(digits[:length]):
            return _own_clocks(country, names)
    return _country_clocks(country)


def _own_clocks(country, names):
    """Return the clocks of the zones in `names` that are the country's own."""
    own = tuple(ZoneInfo(name) for name in _table().zones[country] if name in names)
    return Clocks(country, own) if own else _country_clocks(country)


def _states(digits):
    """Return the states or provinces of the area code with which the digits of a number begin."""
    return quiet.states_of(digits[1:4]) if digits.startswith("1") else ()


# The hours of a recipient


def local_time(recipient: Recipient, at: datetime) -> str:
    """Return the time in the recipient's main zone, like "2:05 PM, Tuesday, Nov 5"."""
    return written(at.astimezone(recipient.zone_at(at)))


def why_until(recipient: Recipient, hours: BusinessHours, until: datetime) -> str | None:
    """Return what keeps a text from leaving before an instant; None if nothing does.

    Its time is the recipient's: "quiet hours of Texas until 12:00 PM, Sunday, ...".
    """
    why, local = what_keeps(recipient, hours, until), local_time(recipient, until)
    if why == CLOSED:
        return f"business hours from {local}"
    return why and f"{why} until {local}"


def what_keeps(recipient: Recipient, hours: BusinessHours, until: datetime) -> str | None:
    """Return what keeps a text from leaving until an instant, like "quiet hours of Texas".

    CLOSED if it is only that business hours begin then; None if nothing does.
    """
    before = until - timedelta(minutes=1)
    if quiet_time := hours.quiet_time(recipient.clocks, before):
        return quiet_name(quiet_time.hours, recipient)
    return None if hours.is_open(recipient.clocks, before) else CLOSED


def what_changes(recipient: Recipient, hours: BusinessHours, at: datetime) -> str:
    """Return what happens when it becomes business hours, like "the quiet hours of Texas end".

    If they begin just then, too, it is "business hours begin".
    """
    before = at - timedelta(minutes=1)
    if hours.only_quiet(recipient.clocks, before):
        quiet_time = hours.quiet_time(recipient.clocks, before)
        return f"the {quiet_name(quiet_time.hours, recipient)} end"
    return "business hours begin"


def what_decides(recipient: Recipient, hours: BusinessHours, now: datetime) -> str:
    """Return which rule decides when a text may leave that may not leave now.

    That is quiet hours if it could leave earlier without them, otherwise CLOSED.
    """
    without = hours.without_quiet().opens_at(recipient.clocks, now)
    quiet_time = hours.quiet_time(recipient.clocks, without)
    return quiet_name(quiet_time.hours, recipient) if quiet_time else CLOSED


# Names


def preload() -> None:
    """Load the names of places, before the web server forks."""
    location(find("+12125550123"))


def location(recipient: Recipient) -> str:
    """Return the recipient's place and country, like "New York, United States"."""
    place = _place(recipient) or _city(recipient.country, recipient.zone.key)
    return f"{place}, {country_name(recipient.country)}"


def place_name(place: str) -> str:
    """Return the English name of a country, state or province (ISO 3166-2), or a zone's own."""
    return place if "/" in place else quiet.state_names().get(place) or country_name(place)


def quiet_name(hours: QuietHours, recipient: Recipient) -> str:
    """Return what quiet hours of a recipient are called, like "quiet hours of Texas"."""
    whose = "the key" if hours.whose == quiet.KEY else hours.whose and place_name(hours.whose)
    name = f"quiet hours of {whose}" if whose else "quiet hours"
    is_home = recipient.residence and recipient.residence.place == hours.whose
    is_state = "-" in hours.whose and not (recipient.states or is_home)
    return f"{name} (the number can be in any state)" if is_state else name


def is_place(place: str) -> bool:
    """Return whether a code is that of a country with telephone numbers, or of a state of one."""
    return place in REGIONS or place in (NO_COUNTRY, *quiet.state_names())


def is_home(place: str) -> bool:
    """Return whether a code is that of a country or state in which people live."""
    return is_place(place) and place != NO_COUNTRY


def place_code(text: str) -> str:
    """Return the code of a country (DE) or state (US-TX), or the name of a zone, for Residence.

    Old names of zones are understood. Raise ValueError if there is no such place.
    """
    code = text.upper()
    if is_home(code):
        return code
    zones = _countries_of_zones()
    if zone := next((zone for zone in zones if zone.lower() == text.lower()), None):
        return zone
    if zone := _zones_by_old_name().get(text.lower()):
        return zone
    raise ValueError(
        "the place must be a country (DE), a state or province of the United States or Canada "
        f"(US-TX), or a zone of a country (America/Chicago){hint(code)}"
    )


@cache
def _zones_by_old_name():
    """Return the zone that each old name stands for, as US/Central for America/Chicago."""
    from babel.core import get_global

    names = get_global("zone_aliases")
    ours = {names.get(zone, zone): zone for zone in _countries_of_zones()}
    return {old.lower(): ours[name] for old, name in names.items() if name in ours}


def unknown_countries(codes: Iterable[str]) -> str:
    """Return the codes that no country with telephone numbers has, in words, each with a hint."""
    unknown = sorted({*codes} - {*REGIONS, NO_COUNTRY})
    return ", ".join(code + hint(code) for code in unknown)


def hint(code: str) -> str:
    """Return a hint at the country that a wrong code stands for: " (did you mean GB?)" for UK.

    It ends a sentence, and is empty if no country is known.
    """
    from babel.core import get_global

    meant = get_global("territory_aliases").get(code, ())
    return f" (did you mean {meant[0]}?)" if len(meant) == 1 and meant[0] in REGIONS else ""


def country_name(country: str) -> str:
    """Return CLDR's English name of a country; "World" for numbers that belong to none."""
    return "World" if country == NO_COUNTRY else _english().territories[country]


def _place(recipient):
    """Return libphonenumber's name of the number's place, or "" if it knows only the country."""
    if not recipient.has_area:
        return ""
    code, digits = recipient.number.country_code, recipient.e164[1:]
    if token := phonenumbers.country_mobile_token(code):  # Argentina's 9 is not part of the area
        digits = digits.replace(f"{code}{token}", str(code), 1)
    first, which, names = _places()
    place = names[which[bisect(first, int(digits[:_DIGITS].ljust(_DIGITS, "0"))) - 1]]
    country = recipient.country
    return "" if place in (country_name(country), _SHORT_NAMES.get(country)) else place


def _city(country, zone):
    """Return the city that names a country's main zone."""
    if country in _UNLISTED:
        return _UNLISTED[country][1]
    named = _english().time_zones.get(zone, {}).get("city")
    return named or zone.rpartition("/")[2].replace("_", " ")


@cache
def _places():
    """Return the first digits of each place, the number of its name, and the names."""
    names, arrays = gzip.decompress((_NUMBERING / "places.gz").read_bytes()).split(b"\n", 1)
    first, which = array("I"), array("H")
    first.frombytes(arrays[: len(arrays) * 4 // 6])
    which.frombytes(arrays[len(arrays) * 4 // 6 :])
    if sys.byteorder == "big":
        first.byteswap()
        which.byteswap()
    return first, which, json.loads(names)


@cache
def _english():
    from babel import Locale

    return Locale("en")
