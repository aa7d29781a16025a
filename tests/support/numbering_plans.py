"""Countries' zones from IANA and example numbers from libphonenumber, for several test modules."""

from functools import cache
from importlib import resources

import phonenumbers

REGIONS = sorted(phonenumbers.SUPPORTED_REGIONS)
BORROWED = {"AC": "Atlantic/St_Helena", "TA": "Atlantic/St_Helena", "XK": "Europe/Belgrade"}


@cache
def iana():
    """The zones of each country in IANA's zone.tab."""
    zones = {country: {name} for country, name in BORROWED.items()}
    table = resources.files("tzdata.zoneinfo").joinpath("zone.tab").read_text("utf-8")
    for line in table.splitlines():
        if not line.startswith("#"):
            country, _, name, *_ = line.split("\t")
            zones.setdefault(country, set()).add(name)
    return zones


@cache
def numbers():
    """Example numbers of every region and type, in E.164 form."""
    types = phonenumbers.PhoneNumberType.values()
    made = (phonenumbers.example_number_for_type(r, kind) for r in REGIONS for kind in types)
    networks = map(
        phonenumbers.example_number_for_non_geo_entity,
        phonenumbers.COUNTRY_CODES_FOR_NON_GEO_REGIONS,
    )
    return sorted({e164(n) for n in (*made, *networks) if n and phonenumbers.is_valid_number(n)})


def e164(number):
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
