"""The recipient of a number: country, place and zones."""

import string
import subprocess
import sys
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numbering_plans import REGIONS, e164, iana, numbers
from samples import HOUR, daily
from texting import recipients
from texting.recipients import InvalidNumber

JANUARY = datetime(2026, 1, 15, 12, tzinfo=UTC)  # a Thursday
JULY = datetime(2026, 7, 15, 12, tzinfo=UTC)  # a Wednesday

OFFICE = daily(9 * 60, 17 * 60, range(5))


def offset_at(name, at):
    return at.astimezone(ZoneInfo(name)).utcoffset() / HOUR


# Numbers


@given(
    st.text(st.characters(exclude_categories=()), max_size=60)
    | st.text("+0123456789 -()", max_size=20).map("+".__add__)
)
@settings(max_examples=400)
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
        ("020 7946 0958", "GB", "+442079460958"),
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


@pytest.mark.parametrize(
    "text",
    [
        *("+49 30 1234567 Anna", "030 1234567 (Anna)", "Tel. 0151 23456789 privat"),
        *("+43 664 123456 Frau", "+1 800 FLOWERS"),
    ],
)
def test_letters_are_no_digits(text):
    """libphonenumber dials them, so a name behind a number would make it a stranger's."""
    with pytest.raises(InvalidNumber, match="has letters"):
        recipients.national(text, "DE")


@pytest.mark.parametrize(
    "text", ["Anna: 030 1234567", "+49 (0)30 1234567 ext. 12", "030 1234567 x12", "030 1234567 p"]
)
def test_words_before_a_number_and_an_extension_behind_it_are_left_out(text):
    assert recipients.national(text, "DE") == "+49301234567"


@given(st.text(st.characters(exclude_categories=()), max_size=40))
@settings(max_examples=200)
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


# Country, place, zones

SUMMER, WINTER, NEVER = (False, True), (True, False), (False, False)  # DST in January, in July

# number, country, place, offsets in January and in July, DST in January and in July
WORLD = [
    ("+12125550123", "US", "New York, United States", -5, -4, SUMMER),
    ("+16025550123", "US", "Arizona, United States", -7, -7, NEVER),
    ("+18085550123", "US", "Hawaii, United States", -10, -10, NEVER),
    ("+13065550123", "CA", "Saskatchewan, Canada", -6, -6, NEVER),
    ("+18765550123", "JM", "Jamaica, Jamaica", -5, -5, NEVER),
    ("+17875550123", "PR", "Puerto Rico, Puerto Rico", -4, -4, NEVER),
    ("+50940123456", "HT", "Port-au-Prince, Haiti", -5, -4, SUMMER),
    ("+526641234567", "MX", "Tijuana, Mexico", -8, -7, SUMMER),
    ("+529981234567", "MX", "Quintana Roo, Mexico", -5, -5, NEVER),
    ("+5511961234567", "BR", "São Paulo, Brazil", -3, -3, NEVER),
    ("+5568991234567", "BR", "Acre, Brazil", -5, -5, NEVER),
    ("+5491123456789", "AR", "Buenos Aires, Argentina", -3, -3, NEVER),
    ("+56221234567", "CL", "Santiago, Metropolitan Region, Chile", -3, -4, WINTER),
    ("+442079460958", "GB", "London, United Kingdom", 0, 1, SUMMER),
    ("+441624756789", "IM", "Isle of Man, Isle of Man", 0, 1, SUMMER),
    ("+35312345678", "IE", "Dublin, Ireland", 0, 1, SUMMER),
    ("+34928123456", "ES", "Las Palmas, Spain", 0, 1, SUMMER),
    ("+390669812345", "VA", "Vatican, Vatican City", 1, 2, SUMMER),
    ("+4779123456", "SJ", "Longyearbyen, Svalbard & Jan Mayen", 1, 2, SUMMER),
    ("+358181234567", "AX", "Mariehamn, Åland Islands", 2, 3, SUMMER),
    ("+38344123456", "XK", "Pristina, Kosovo", 1, 2, SUMMER),
    ("+74012345678", "RU", "Kaliningrad, Russia", 2, 2, NEVER),
    ("+77272345678", "KZ", "Almaty, Kazakhstan", 5, 5, NEVER),
    ("+905012345678", "TR", "Istanbul, Türkiye", 3, 3, NEVER),
    ("+201001234567", "EG", "Cairo, Egypt", 2, 3, SUMMER),
    ("+212650123456", "MA", "Casablanca, Morocco", 1, 1, NEVER),
    ("+262639012345", "YT", "Mayotte, Mayotte", 3, 3, NEVER),
    ("+29022158", "SH", "Jamestown, St. Helena", 0, 0, NEVER),
    ("+989123456789", "IR", "Tehran, Iran", 3.5, 3.5, NEVER),
    ("+9779841234567", "NP", "Kathmandu, Nepal", 5.75, 5.75, NEVER),
    ("+911123456789", "IN", "New Delhi, India", 5.5, 5.5, NEVER),
    ("+861012345678", "CN", "Beijing, China", 8, 8, NEVER),
    ("+62361123456", "ID", "Denpasar, Indonesia", 8, 8, NEVER),
    ("+61291234567", "AU", "Sydney, Australia", 11, 10, WINTER),
    ("+61891621234", "CC", "Cocos Islands, Cocos (Keeling) Islands", 6.5, 6.5, NEVER),
    ("+6492345678", "NZ", "Pukekohe, New Zealand", 13, 12, WINTER),
    ("+80012345678", "001", "UTC, World", 0, 0, NEVER),
]


@pytest.mark.parametrize(("to", "country", "place", "january", "july", "dst"), WORLD)
def test_a_number_has_its_country_place_and_clock(to, country, place, january, july, dst):
    recipient = recipients.find(to)
    winter = OFFICE.facts(recipient.clocks, JANUARY)
    summer = OFFICE.facts(recipient.clocks, JULY)
    assert (recipient.country, recipients.location(recipient)) == (country, place)
    shown = [repr(facts.timezone_offset) for facts in (winter, summer)]  # 5, not 5.0
    assert shown == [repr(january), repr(july)]
    assert (winter.is_dst, summer.is_dst) == dst
    assert winter.timezone == f"GMT{january:+}"
    assert winter.local_time.endswith((", Jan 15", ", Jan 16"))


# Numbers without a known place below the country, or in an area with two clocks:
# number, main zone, offsets in January and in July
SEVERAL_ZONES = [
    ("+18002345678", "New_York", [-8, -7, -6, -5], [-7, -6, -5, -4]),
    ("+12083350123", "Los_Angeles", [-8, -7], [-7, -6]),
    ("+299700286", "Nuuk", [-4, -2], [-3, -1]),  # in no known area
    ("+34612345678", "Madrid", [0, 1], [1, 2]),
    ("+351912345678", "Lisbon", [-1, 0], [0, 1]),
    ("+79161234567", "Moscow", [*range(3, 11)], [*range(3, 11)]),  # +9: Yakutsk and Chita
    ("+56961234567", "Santiago", -3, [-4, -3]),  # -3: Punta Arenas and Coyhaique
    ("+6281123456789", "Jakarta", [7, 8, 9], [7, 8, 9]),
    ("+243991234567", "Kinshasa", [1, 2], [1, 2]),
    ("+61412345678", "Sydney", [8, 10, 10.5, 11], [8, 9.5, 10]),
    ("+6433050123", "Auckland", [13, 13.75], [12, 12.75]),  # Akaroa or the Chathams
    ("+61880030123", "Sydney", [10.5, 11], [9.5, 10]),  # Tibooburra, which GeoNames lacks
    ("+68672001234", "Tarawa", [12, 14], [12, 14]),
    ("+970599123456", "Hebron", 2, 3),
    # area codes to which the authority gives two zones
    ("+13645550123", "New_York", [-6, -5], [-5, -4]),
    ("+19155550123", "Chicago", [-7, -6], [-6, -5]),
    ("+18675550123", "Edmonton", [-7, -6], [-7, -6, -5]),
    # libphonenumber has one zone for these digits, but names no place
    ("+12082010123", "Los_Angeles", [-8, -7], [-7, -6]),
]


@pytest.mark.parametrize(("to", "main", "january", "july"), SEVERAL_ZONES)
def test_a_number_has_all_its_possible_zones(to, main, january, july):
    recipient = recipients.find(to)
    assert recipient.zone.key.endswith(f"/{main}")
    assert OFFICE.facts(recipient.clocks, JANUARY).timezone_offset == january
    assert OFFICE.facts(recipient.clocks, JULY).timezone_offset == july


@pytest.mark.parametrize(
    ("hour", "minute", "is_open"), [(16, 59, 0), (17, 0, 1), (20, 59, 1), (21, 0, 0)]
)
def test_a_canadian_number_without_an_area_is_on_no_clock_of_st_johns(hour, minute, is_open):
    """From Vancouver, which joined before, it is too far; Halifax is not, and closes at 21:00."""
    clocks = recipients.find("+16002345678").clocks
    told = daily(9 * 60, 17 * 60).facts(clocks, JANUARY.replace(hour=hour, minute=minute))
    assert told.within_business_hours == bool(is_open)


@pytest.mark.parametrize(
    ("to", "hours"),
    [("+16045550123", -7), ("+14035550123", -6), ("+18675550123", -6), ("+212650123456", 0)],
)
def test_where_clocks_change_no_more_since_2026_they_do_not(to, hours):
    """British Columbia, Alberta, the Northwest Territories and Morocco, as the README says."""
    zone = recipients.find(to).zone
    for year in (2027, 2028):
        for month in range(1, 13):
            assert offset_at(zone.key, datetime(year, month, 15, 12, tzinfo=UTC)) == hours


# Numbers whose zones libphonenumber has wrong or too wide: number, place, zone
CORRECTED = [
    ("+16895550123", "Florida, United States", "America/New_York"),
    ("+14745550123", "Saskatchewan, Canada", "America/Regina"),
    ("+17095550123", "Newfoundland and Labrador, Canada", "America/St_Johns"),
    ("+19075550123", "Alaska, United States", "America/Anchorage"),
    ("+61889812345", "Darwin, Australia", "Australia/Darwin"),
    # GeoNames has places of these names only in other states
    ("+61754667123", "Thornton, Australia", "Australia/Brisbane"),
    ("+61267550123", "Somerton, Australia", "Australia/Sydney"),
    ("+61889261123", "Plenty, Australia", "Australia/Darwin"),
    # numbered with a state next door
    ("+61755361234", "Tweed Heads, Australia", "Australia/Sydney"),
    ("+61880871234", "Broken Hill, Australia", "Australia/Broken_Hill"),
    # GeoNames lacks these names
    ("+61889049555", "Elliott, Australia", "Australia/Darwin"),
    ("+976144212345", "Bayankhongor city, Bayankhongor, Mongolia", "Asia/Ulaanbaatar"),
    ("+526561234567", "Chihuahua, Mexico", "America/Ciudad_Juarez"),
    ("+528681234567", "Tamaulipas, Mexico", "America/Matamoros"),
    ("+523291234567", "Nayarit, Mexico", "America/Mexico_City"),  # Bahía de Banderas keeps its time
    ("+18502240123", "Tallahassee, United States", "America/New_York"),
    ("+12507850123", "Fort St. John, Canada", "America/Dawson_Creek"),
    ("+18677660123", "Yellowknife, Canada", "America/Edmonton"),
    ("+869912345678", "Urumqi, Xinjiang, China", "Asia/Urumqi"),
    ("+68675021123", "Bairiki, Kiribati", "Pacific/Tarawa"),
    # mobiles of New Zealand, Ecuador and Ukraine
    ("+64211234567", "Auckland, New Zealand", "Pacific/Auckland"),
    ("+380501234567", "Kyiv, Ukraine", "Europe/Kyiv"),
    ("+380652123456", "Crimea, Ukraine", "Europe/Kyiv"),
]


@pytest.mark.parametrize(("to", "place", "zone"), CORRECTED)
def test_a_number_is_on_the_clock_of_its_place_where_libphonenumber_is_wrong(to, place, zone):
    recipient = recipients.find(to)
    assert recipient.zone.key == zone
    for at in (JANUARY, JULY):
        offsets = [local.utcoffset() for local in recipient.clocks.local_times(at)]
        assert offsets == [at.astimezone(ZoneInfo(zone)).utcoffset()]
    assert recipients.location(recipient) == place


def test_every_number_is_in_zones_that_iana_gives_its_country_today():
    for to in numbers():
        recipient = recipients.find(to)
        zones = {zone.key for zone in recipient.clocks.zones}
        own = {"UTC"} if recipient.country == "001" else iana()[recipient.country]
        assert zones, to
        assert zones <= own, to
        for at in (JANUARY, JULY):
            offsets = OFFICE.facts(recipient.clocks, at).timezone_offset
            several = offsets if isinstance(offsets, list) else [offsets]
            of_zones = {offset_at(name, at) for name in zones}
            assert several == sorted({*several} & of_zones), to
            assert recipient.clocks.people or {*several} == of_zones, to


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
        # the 9 marks a mobile and is not part of the area
        ("+5493414211234", "Rosario, Santa Fe, Argentina"),
        ("+902123456789", "Istanbul (Europe), Türkiye"),
    ],
)
def test_a_place_carries_no_code_of_a_state(to, place):
    assert recipients.location(recipients.find(to)) == place


# In the scheduler


def test_finding_a_recipient_loads_neither_the_geocoder_nor_babel():
    code = (
        "import sys; from texting import recipients; recipients.find('+12125550123'); "
        "print([m for m in sys.modules if m.startswith(('babel', 'phonenumbers.geo'))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("number", "zone", "hours"),
    [
        ("+16045550123", "America/Vancouver", -7),
        ("+14035550123", "America/Edmonton", -6),
        (None, "America/Inuvik", -6),  # whose area code has other territories, too
        ("+212522123456", "Africa/Casablanca", 0),
    ],
)
def test_the_zones_are_those_of_2026_in_which_these_change_no_more(number, zone, hours):
    for month in (1, 3, 7, 11):
        at = datetime(2027, month, 20, tzinfo=UTC)
        assert offset_at(zone, at) == hours
        times = recipients.find(number).clocks.local_times(at) if number else ()
        assert {each.utcoffset() / HOUR for each in times} <= {hours}
