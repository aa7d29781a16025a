"""Make places.gz: the first digits of each place that libphonenumber names.

`make numbering` runs it. The library's geocoder keeps a dictionary of languages for each of 287,000
prefixes: 0.3 seconds and 70 MB of a web process, although only the English names are shown.
"""

import gzip
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from phonenumbers.geodata import GEOCODE_DATA

PLACES = Path(__file__).parent / "places.gz"
DIGITS = 9  # of the longest prefix
CODE = re.compile(r"(?:,| -) [A-Z]{2,5}$| MG$")  # ", NY" and " - SP"; once without a dash


def beginnings() -> Iterator[tuple[str, str]]:
    """Yield the first digits and the name of each place, ascending.

    A place ends where the next begins. After the last number of a prefix, the place of a shorter
    prefix continues, or a nameless one.
    """
    named = {
        prefix: CODE.sub("", names["en"]) for prefix, names in GEOCODE_DATA.items() if "en" in names
    }
    first = {prefix.ljust(DIGITS, "0") for prefix in named}
    next_ = {str(int(prefix) + 1).ljust(DIGITS, "0") for prefix in named}
    last = None
    for digits in sorted({"0" * DIGITS} | first | next_):
        prefixes = (digits[:length] for length in range(DIGITS, 0, -1))
        name = next((named[prefix] for prefix in prefixes if prefix in named), "")
        if name != last:
            yield digits, name
        last = name


def make() -> bytes:
    """Return what places.gz holds: a line with the names in JSON, then two arrays.

    They are the places' first digits, four bytes each, and the numbers of their names, two bytes
    each, the lowest byte first. Lists in JSON take the web server five times as long to read.
    """
    first, names = zip(*beginnings(), strict=True)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    arrays = [*map(int, first), *(numbers[name] for name in names)]
    layout = f"<{len(first)}I{len(first)}H"
    return json.dumps([*numbers]).encode() + b"\n" + struct.pack(layout, *arrays)


if __name__ == "__main__":
    PLACES.write_bytes(gzip.compress(make(), mtime=0))
