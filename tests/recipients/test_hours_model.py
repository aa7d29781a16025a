"""Business and quiet hours, compared minute by minute with a model that paints them on a timeline.

The model knows no zones: it has the offset of each zone at each minute, and the local days of a
country as one row of minutes, open or not. `make test` compares the weeks in which clocks change,
`make soak` a whole year.
"""

import functools
import random
from collections import Counter
from datetime import UTC, date, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import holidays
import pytest
from babel import Locale

import recipients
import settings as environment
from numbering_plans import iana
from recipients.hours import BusinessHours
from running import ROOT
from samples import DAY, MINUTE

MARGIN = 3  # days, more than any offset
SHARE = 1_000  # of 100,000 people
NUMBERS = {
    "AU": "+61412345678",
    "CL": "+56961234567",
    "EG": "+201001234567",
    "FR": "+33478901234",
    "GB": "+442083661177",
    "KI": "+68672012345",
    "NP": "+9779841234567",
    "NZ": "+64211234567",
    "RU": "+79161234567",
    "US": "+18002345678",
}


class Setting(NamedTuple):
    """Variables of the environment, and the same as the model reads them."""

    variables: dict[str, str]
    week: list[range]  # the open minutes of Monday to Sunday
    quiet: list[range] = ()  # of those that begin on Monday to Sunday, into the next day
    is_local: bool = False  # the country's weekends and holidays are closed
    quiet_holidays: range = range(0)


def hours(opens, closes):
    return range(round(60 * opens), round(60 * closes))


CLOSED = range(0)
SETTINGS = {
    "default": Setting({}, [hours(9, 17)] * 7),
    "by the day": Setting(
        {
            "BUSINESS_HOURS": "mon-thu 09:00-20:00, fri 09:00-12:30,sun 11:00-23:00",
            "QUIET_HOURS": "21:00-12:00",
        },
        [*[hours(9, 20)] * 4, hours(9, 12.5), CLOSED, hours(11, 23)],
        [hours(21, 36)] * 7,
    ),
    "always": Setting(
        {"BUSINESS_HOURS": "00:00-24:00", "QUIET_HOURS": "21:00-08:00"},
        [hours(0, 24)] * 7,
        [hours(21, 32)] * 7,
    ),
    "local": Setting(
        {"BUSINESS_DAYS": "local", "SKIP_HOLIDAYS": "true", "QUIET_HOURS": "12:00-12:30"},
        [hours(9, 17)] * 7,
        [hours(12, 12.5)] * 7,
        is_local=True,
    ),
    "quiet by the day": Setting(
        {
            "BUSINESS_HOURS": "00:00-24:00",
            "QUIET_HOURS": "sun-fri 21:00-09:00, sat 21:00-12:00, holidays 00:00-24:00",
        },
        [hours(0, 24)] * 7,
        [*[hours(21, 33)] * 5, hours(21, 36), hours(21, 33)],
        quiet_holidays=hours(0, 24),
    ),
    "quiet past midnight": Setting(
        {
            "BUSINESS_HOURS": "mon-fri 00:30-24:00",
            "QUIET_HOURS": "tue 12:30-11:00,thu-fri 23:30-24:00, HOLIDAYS 20:00 - 01:30, "
            "sun 01:00-03:00",
        },
        [*[hours(0.5, 24)] * 5, CLOSED, CLOSED],
        [CLOSED, hours(12.5, 35), CLOSED, *[hours(23.5, 24)] * 2, CLOSED, hours(1, 3)],
        quiet_holidays=hours(20, 25.5),
    ),
}


def people(country):
    """Return how many in 100,000 live in each zone of a country, the most populous first."""
    lines = (ROOT / "recipients/numbering/zones.txt").read_text().splitlines()
    shares = [line.split()[1:] for line in lines if line.startswith(f"{country} ")]
    counts = {zone: int(share.replace(".", "")) for zone, share in shares}
    return counts or dict.fromkeys(iana()[country], 100_000)


@functools.cache
def minutes_of(window):
    """Say of each minute of a day whether it is in a window."""
    return bytearray(minute in window for minute in range(1440))


class Model:
    """The minutes of some days, by number: `is_open`, `is_quiet`, and when that ends."""

    def __init__(self, country, setting, first, days):
        self.start = datetime(first.year, first.month, first.day, tzinfo=UTC)
        self.length = 1440 * days
        self.paint(country, setting, first, days)
        zones = people(country)
        clocks = [ZoneInfo(zone) for zone in zones]  # it keeps eight, and reads others again
        known, counting = {}, {}
        self.is_open, self.is_quiet = bytearray(self.length), bytearray(self.length)
        for minute in range(self.length):
            if minute % 15 == 0:  # clocks change on the quarter of an hour
                at = self.start + minute * MINUTE
                offsets = tuple(at.astimezone(clock).utcoffset() // MINUTE for clock in clocks)
                likely = known.get(offsets) or self.likely(offsets, zones)
                known[offsets] = likely
            reach = self.reach[(minute + likely[0]) // 1440 + MARGIN]
            near = counting.get((likely, reach)) or self.near(likely, reach)
            counting[likely, reach] = near
            local = [minute + offset + 1440 * MARGIN for offset in near]
            self.is_open[minute] = all(self.painted[each] for each in local)
            self.is_quiet[minute] = any(self.silent[each] for each in local)
        self.opening, self.silence = self.ends(self.is_open, 1), self.ends(self.is_quiet, 0)

    def paint(self, country, setting, first, days):
        """Paint the open minutes of all local days, and note how far clocks may be apart."""
        self.painted, self.reach, reach = bytearray(), [], None
        festive = closed_days(country, first.year)
        closed = festive if setting.is_local else ()
        free = weekend(country, setting)
        self.silence(setting, festive, first, days)
        for n in range(days + MARGIN + 60, -MARGIN - 1, -1):
            day = first + n * DAY
            is_open = day not in closed and day.weekday() not in free
            window = setting.week[day.weekday()] if is_open else CLOSED
            reach = len(window) / 2 if window else reach
            self.reach.insert(0, reach)
            self.painted = minutes_of(window) + self.painted
        self.painted = bytearray(
            is_open and not is_silent
            for is_open, is_silent in zip(self.painted, self.silent, strict=False)
        )

    def silence(self, setting, festive, first, days):
        """Paint the quiet minutes of all local days, each window from the day of its beginning."""
        self.silent = bytearray(1440 * (days + 2 * MARGIN + 62))
        for n in range(-1, days + 2 * MARGIN + 60):
            day, midnight = first + (n - MARGIN) * DAY, 1440 * n
            windows = [setting.quiet[day.weekday()]] if setting.quiet else []
            windows += [setting.quiet_holidays] if day in festive else []
            for minute in (midnight + each for window in windows for each in window):
                if minute >= 0:
                    self.silent[minute] = 1

    @staticmethod
    def likely(offsets, zones):
        total = Counter()
        for offset, count in zip(offsets, zones.values(), strict=True):
            total[offset] += count
        return tuple(offset for offset in dict.fromkeys(offsets) if total[offset] >= SHARE)

    @staticmethod
    def near(offsets, reach):
        chosen = []
        for offset in offsets:
            if all(abs(offset - other) <= reach for other in chosen):
                chosen.append(offset)
        return chosen

    @staticmethod
    def ends(row, value):
        """Return for each minute the next one that has a value; None beyond the model."""
        following, result = None, []
        for minute in reversed(range(len(row))):
            result.append(following)
            if row[minute] == value:
                following = minute
        return result[::-1]


def weekend(country, setting):
    if not setting.is_local:
        return ()
    locale = Locale.parse(f"und_{country}")
    return (locale.weekend_start, locale.weekend_end)


def closed_days(country, year):
    return {*holidays.country_holidays(country, years=[year - 1, year, year + 1])}


def compare(name, model, asked, minutes):
    recipient = recipients.find(NUMBERS[name])
    for minute in minutes:
        at = model.start + minute * MINUTE
        opening, silence = model.opening[minute], model.silence[minute]
        is_open = asked.is_open(recipient.clocks, at)
        assert is_open == model.is_open[minute], at
        if not is_open and opening is not None:
            found = asked.next_opening(recipient.clocks, at)
            assert found == model.start + opening * MINUTE, at
        end = asked.quiet_until(recipient.clocks, at)
        assert (end is not None) == model.is_quiet[minute], at
        if end and silence is not None:
            assert end == model.start + silence * MINUTE, at


@pytest.fixture
def read(monkeypatch, tmp_path):
    """Return the business hours of some variables."""
    monkeypatch.chdir(tmp_path)
    for name in ("BUSINESS_HOURS", "BUSINESS_DAYS", "SKIP_HOLIDAYS", "QUIET_HOURS"):
        monkeypatch.delenv(name, raising=False)

    def load(setting):
        for name, value in setting.variables.items():
            monkeypatch.setenv(name, value)
        return BusinessHours.from_settings(environment.load())

    return load


CHANGES = {  # of the clocks in 2026; any day where there are none
    "AU": [date(2026, 4, 4), date(2026, 10, 3)],
    "CL": [date(2026, 4, 4), date(2026, 9, 5)],
    "EG": [date(2026, 4, 23), date(2026, 10, 29)],
    "FR": [date(2026, 3, 29), date(2026, 10, 25), date(2026, 7, 14)],
    "GB": [date(2026, 3, 29), date(2026, 10, 25)],
    "KI": [date(2026, 7, 1)],
    "NP": [date(2026, 7, 1)],
    "NZ": [date(2026, 4, 4), date(2026, 9, 26)],
    "RU": [date(2026, 2, 22), date(2026, 12, 31)],
    "US": [date(2026, 3, 8), date(2026, 11, 1), date(2026, 12, 31)],
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("country", NUMBERS)
def test_hours_are_those_of_the_model_when_clocks_change(country, setting, read):
    asked, chance = read(SETTINGS[setting]), random.Random(f"{country} {setting}")
    for change in CHANGES[country]:
        model = Model(country, SETTINGS[setting], change - 2 * DAY, 5)
        rows = model.is_open, model.is_quiet
        turns = {m for row in rows for m in range(1, model.length) if row[m] != row[m - 1]}
        assert len(turns) > 2
        around = {minute + n for minute in turns for n in (-1, 0)} & {*range(model.length)}
        compare(country, model, asked, sorted(around | {*chance.sample(range(model.length), 30)}))


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("country", NUMBERS)
def test_hours_are_those_of_the_model_at_each_minute_of_a_year(country, setting, read):
    model = Model(country, SETTINGS[setting], date(2026, 1, 1), 365)
    compare(country, model, read(SETTINGS[setting]), range(model.length))
