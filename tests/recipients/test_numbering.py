"""The corrections to libphonenumber's zones, compared with better sources."""

import csv
import gc
import gzip
import random
import re
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import phonenumbers
import pytest
from phonenumbers.tzdata import TIMEZONE_DATA

from numbering_plans import REGIONS, iana, numbers
from running import ROOT
from samples import HOUR, daily
from texting import recipients
from texting.recipients.numbering import make_zones

NUMBERING = ROOT / "texting/recipients/numbering"
SEASONS = [datetime(2026, month, 15, 12, tzinfo=UTC) for month in (1, 4, 7, 10)]
ALWAYS = daily(0, 1440)


@cache
def places():
    """Return libphonenumber's names of places by prefix; to load them takes half a second."""
    from phonenumbers.geodata import GEOCODE_DATA

    return GEOCODE_DATA


@cache
def stated():
    """Return the content of zones.txt: shares by country and zone, zones by prefix."""
    shares, corrections = {}, {}
    for line in (NUMBERING / "zones.txt").read_text().splitlines():
        head, *rest = line.split()
        if head.isalpha():
            shares.setdefault(head, {})[rest[0]] = float(rest[1])
        elif head.isdigit():
            zones, *tails = rest
            if zones in shares:  # of a whole country
                continue
            for tail in tails or [""]:
                assert head + tail not in corrections
                corrections[head + tail] = zones.split(",")
    return shares, corrections


def offsets(zones, at):
    return sorted({at.astimezone(ZoneInfo(zone)).utcoffset() / HOUR for zone in zones})


def shown(recipient, at):
    """Return the offsets that the service shows for a recipient."""
    told = ALWAYS.facts(recipient.clocks, at).timezone_offset
    return told if isinstance(told, list) else [told]


def longest(table, digits):
    return next((digits[:n] for n in range(len(digits), 0, -1) if digits[:n] in table), "")


def recipient_of(prefix, tries, table=TIMEZONE_DATA):
    """Return a recipient whose longest prefix in a table is this one; None if none is found."""
    chance = random.Random(prefix)
    for n in range(tries):
        digits = max(0, 8 + n % 6 - len(prefix))
        number = prefix + str(chance.randrange(10**digits)).zfill(digits)[:digits]
        try:
            recipient = recipients.find(f"+{number}")
        except recipients.InvalidNumber:
            continue
        if recipient.has_area and longest(table, number) in (prefix, longest(table, prefix)):
            return recipient
    return None


@pytest.fixture
def no_garbage_collection():
    """Turn off the garbage collector, which takes half of the time for 200,000 places."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.soak
@pytest.mark.usefixtures("no_garbage_collection")
def test_the_tables_are_what_their_scripts_make():
    from texting.recipients.numbering import make_places  # takes half a second, for GEOCODE_DATA

    assert (NUMBERING / "zones.txt").read_text() == make_zones.make()
    assert gzip.decompress((NUMBERING / "places.gz").read_bytes()) == make_places.make()


def test_every_zone_is_its_countrys_own_and_most_people_come_first():
    shares, _ = stated()
    for country, zones in shares.items():
        assert {*zones} == iana()[country] - {"Europe/Simferopol"}
        assert list(zones.values()) == sorted(zones.values(), reverse=True)
    assert {c for c in REGIONS if len(iana()[c]) > 1} == {*shares}


def test_a_number_of_no_known_place_is_on_the_clocks_of_one_in_a_hundred_people():
    shares, _ = stated()
    compared = {}
    for to in numbers():
        recipient = recipients.find(to)
        if recipient.country not in shares or recipient.has_area:
            continue
        for at in SEASONS:
            people = Counter()
            for zone, share in shares[recipient.country].items():
                people[at.astimezone(ZoneInfo(zone)).utcoffset() / HOUR] += round(1000 * share)
            likely = sorted(offset for offset, count in people.items() if count >= 1000)
            assert shown(recipient, at) == likely, (to, at)
            compared[recipient.country] = likely
    assert compared["RU"] == [*range(3, 11)]
    assert len(compared) > 15


@pytest.mark.parametrize("prefix", make_zones.MOBILES)
def test_a_prefix_of_mobiles_without_a_place_is_the_whole_country(prefix):
    found = [recipient_of(p, 200) for p in TIMEZONE_DATA if p.startswith(prefix)]
    found = [recipient for recipient in found if recipient]
    assert found
    for recipient in found:
        assert recipients.location(recipient) == recipients.location(recipient_of(prefix, 200))
        assert recipient.clocks.people


@pytest.mark.slow
def test_every_correction_shows_at_four_instants_a_year():
    _, corrections = stated()
    unused = set()
    for prefix, zones in corrections.items():
        recipient = recipient_of(prefix, 60, TIMEZONE_DATA | corrections)
        if recipient is None:
            unused.add(prefix)
            continue
        for at in SEASONS:
            assert shown(recipient, at) == offsets(zones, at), prefix
    assert len(unused) < len(corrections) / 5


@pytest.mark.slow
def test_a_prefix_without_a_correction_keeps_libphonenumbers_zones():
    _, corrections = stated()
    compared = 0
    for prefix in random.Random(1).sample(sorted(places()), 6_000):
        recipient = recipient_of(prefix, 12)
        if recipient is None:
            continue
        theirs = longest(TIMEZONE_DATA, recipient.e164[1:])
        ours = longest(corrections, recipient.e164[1:])
        own = iana()[recipient.country] & {*TIMEZONE_DATA[theirs]}
        if own and len(ours) < len(theirs) and not is_calling_code(theirs):
            compared += 1
            for at in SEASONS:
                assert shown(recipient, at) == offsets(own, at), prefix
    assert compared > 500


def is_calling_code(prefix):
    return int(prefix) in phonenumbers.COUNTRY_CODE_TO_REGION_CODE


# North America, by its numbering authority

AREA_CODES = {
    row["area_code"]: row["time_zones"]
    for row in csv.DictReader((NUMBERING / "nanpa-2026-01-05.csv").read_text().splitlines())
    if row["country"] in ("US", "CANADA") and row["location"] not in ("AS", "CNMI", "GU")
}
HOURS = {"N": -3.5, "A": -4, "E": -5, "C": -6, "M": -7, "P": -8, "AK": -9, "(UTC-10)": -10}
EXCEPTIONS = {
    "775": [-8],  # "PT/MT only for W Wendover"
    "867": [-7, -6],  # "CMP": Yukon has kept -7 since 2020
}


def given(code):
    """Return the winter offsets that the authority gives an area code."""
    letters = AREA_CODES[code]
    letters = [letters] if letters in HOURS else letters
    return EXCEPTIONS.get(code) or sorted({HOURS[letter] for letter in letters})


def test_an_area_code_has_the_clocks_that_the_authority_gives_it():
    assert len(AREA_CODES) > 400
    for code in AREA_CODES:
        expected = given(code)
        try:
            assert shown(recipients.find(f"+1{code}5550123"), SEASONS[0]) == expected, code
        except recipients.InvalidNumber:  # libphonenumber does not know the code yet
            assert offsets(stated()[1][f"1{code}"], SEASONS[0]) == expected, code


def test_a_number_of_no_known_place_has_all_the_clocks_of_its_area_code():
    several = {code for code in AREA_CODES if len(given(code)) > 1}
    compared = 0
    for prefix in TIMEZONE_DATA:
        if prefix[0] != "1" or prefix[1:4] not in several:
            continue
        recipient = recipient_of(prefix, 12)
        if recipient and longest(places(), recipient.e164[1:]) == prefix[:4]:
            assert shown(recipient, SEASONS[0]) == given(prefix[1:4]), prefix
            compared += 1
    assert compared > 300


@pytest.mark.slow
def test_a_numbers_place_is_the_one_that_libphonenumber_names_without_codes_of_states():
    from phonenumbers import geocoder

    compared, coded = 0, 0
    for prefix in random.Random(2).sample(sorted(places()), 4_000):
        recipient = recipient_of(prefix, 12, places())
        if recipient is None:
            continue
        country = recipients.country_name(recipient.country)
        theirs = geocoder.description_for_valid_number(recipient.number, "en")
        place = recipients.location(recipient).removesuffix(f", {country}")
        if theirs not in ("", country):
            assert place == re.sub(r"(?:,| -) [A-Z]{2,5}$| MG$", "", theirs), recipient.e164
            compared += 1
            coded += place != theirs
    assert compared > 2_000
    assert coded > 100
