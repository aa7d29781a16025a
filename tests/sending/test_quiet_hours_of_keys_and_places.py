"""No text leaves in quiet hours of its key or place, whatever happens and whatever is changed."""

import functools
import random
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import holidays
import pytest

from access.keys import ApiKey
from answers import accepted, problems
from app import create_app
from carriers import CarrierError
from database import clock
from databases import on_both, on_sqlite
from fake_carrier import FOR_NOW, TOO_FAST, FakeCarrier
from models import Message, Status
from places import QUIET_PLACES
from samples import DAY, HOUR, LONDON, MINUTE, SECOND
from scheduler import Scheduler
from sending import heartbeats, sender
from stored_messages import decide_on, die_with_one

pytestmark = on_both

MOODS = [None] * 6
MOODS += [FOR_NOW, TOO_FAST, CarrierError("not reached", unreached=True)]
MOODS += [CarrierError("no answer", in_doubt=True, silent=True)]
AMERICAN = ["America/New_York", "America/Chicago", "America/Denver", "America/Phoenix"]
EVERY_LINE = ["US", "US-TX", "US-KY"]
# By number: the lines of the file that may hold for it, and the zones that count
NUMBERS = {
    "+12142345678": (["US-TX"], ["America/Chicago"]),
    "+12702345678": (["US-KY"], ["America/New_York"]),  # the place is known
    "+12125550123": (["US"], ["America/New_York"]),
    "+18002345678": (EVERY_LINE, [*AMERICAN, "America/Los_Angeles"]),
    "+15142345678": (["CA-QC"], ["America/Toronto"]),
    "+19025551234": ([""], ["America/Halifax"]),
    "+33478901234": (["FR"], ["Europe/Paris"]),
    LONDON: ([""], ["Europe/London"]),
}
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# On Saturdays of four hours Los Angeles has less than half of New York's: it does not count
HOURS = [None, "00:00-24:00", "09:00-17:00", "mon-fri 08:00-20:00, sat 10:00-14:00"]
QUIET = [None, None, "none", "21:00-08:00", "sun 00:00-24:00, mon-sat 22:30-06:00"]
QUIET += ["sat 12:00-11:00, holidays 00:00-24:00, mon-fri 20:00-07:00"]


def windows_of(hours):
    """Read hours another way than the code: by day, when they begin and how long they last."""
    found = {}
    for entry in hours.split(", "):
        days, _, window = entry.rpartition(" ")
        first, _, last = (days or "mon-sun").partition("-")
        begins, ends = (int(t[:2]) * HOUR + int(t[3:]) * MINUTE for t in window.split("-"))
        lasts = ends - begins if ends > begins else ends + DAY - begins
        names = [first]
        if last:
            names = WEEK[WEEK.index(first) : WEEK.index(last) + 1]
        if last and not names:
            names = [*WEEK[WEEK.index(first) :], *WEEK[: WEEK.index(last) + 1]]
        found |= dict.fromkeys(names, (begins, lasts))
    return found


PLACES = {
    "": "22:00-06:00",
    "US": "21:00-08:00",
    "US-TX": "sun-fri 21:00-09:00, sat 21:00-12:00",
    "US-KY": "sun-fri 21:00-08:00, sat 21:00-10:00",
    "CA-QC": "mon-thu 21:00-09:00, fri 21:00-10:00, sat-sun 18:00-10:00",
    "FR": "mon-thu 20:00-10:00, fri 20:00-19:59, sat 19:59-19:58, sun 19:58-10:00, "
    "holidays 00:00-24:00",
}


@functools.cache
def public_holidays(country):
    return holidays.country_holidays(country, years=range(2025, 2056))


def country_of(number):
    return {"+33": "FR", "+44": "GB"}.get(number[:3]) or (
        "CA" if number[2:5] in ("514", "902") else "US"
    )


def counting(zones, at, hours):
    """Return the wall clocks that count: each leaves half of the main one's hours in common."""
    clocks = [at.astimezone(ZoneInfo(zone)) for zone in zones]
    windows, day = windows_of(hours or "09:00-17:00"), clocks[0].date()
    while WEEK[day.weekday()] not in windows:
        day += DAY
    _, lasts = windows[WEEK[day.weekday()]]
    counted = []
    for local in clocks:
        offsets = [each.utcoffset() for each in (*counted, local)]
        if lasts - (max(offsets) - min(offsets)) >= lasts / 2:
            counted.append(local)
    return [local.replace(tzinfo=None) for local in counted]


def is_quiet(number, at, own, hours):
    """Say whether it is quiet for a key with these rules of its own, in wall-clock time alone."""
    if own == "none":
        return False
    lines, zones = NUMBERS[number]
    festive, clocks = public_holidays(country_of(number)), counting(zones, at, hours)
    for text in [own] if own else [PLACES[line] for line in lines]:
        windows = windows_of(text)
        for local in clocks:
            for day in (local.date(), local.date() - DAY):
                names = [WEEK[day.weekday()]] + (["holidays"] if day in festive else [])
                for begins, lasts in (windows[name] for name in names if name in windows):
                    midnight = datetime.combine(day, datetime.min.time())
                    if begins <= local - midnight < begins + lasts:
                        return True
    return False


class Sky(FakeCarrier):
    """A clock that goes on whenever it is read, and a carrier that writes down what leaves when.

    A text leaves at the time that its own thread has read last: others may have read it since.
    """

    def __init__(self, chance, now):
        super().__init__()
        self.chance, self.now, self.left, self.mood = chance, now, Counter(), None
        self.broken, self.thread = [], threading.local()
        self.rules = defaultdict(lambda: (None, None))  # own quiet hours and hours, by key

    def clock(self):
        self.now += self.chance.choice((0, 0, 0, 1, 60, 600)) * SECOND
        self.thread.now = self.now
        return self.thread.now

    def send(self, to, text, **_):
        self.left[text] += 1
        rules = self.rules[text]
        if is_quiet(to, self.thread.now, *rules):
            self.broken.append((to, text, self.thread.now, rules))
        if self.mood:
            raise self.mood


def simulate(first, days, settings, monkeypatch):
    """Live through some days; return the carrier and what happened how often."""
    chance = random.Random(f"keys {first}")
    sky = Sky(chance, datetime(2026, 2, 1, tzinfo=UTC) + first * DAY)
    monkeypatch.setattr(clock, "now", sky.clock)
    monkeypatch.setattr(heartbeats, "WATCHED", 0)
    monkeypatch.setattr(sender, "LONGEST_WAIT", 0)
    settings = settings._replace(
        quiet_hours=(22 * 60, 6 * 60),
        quiet_hours_file=QUIET_PLACES,
        send_concurrency=2,
        retry_delay=1800,
    )
    secrets = {name: ApiKey.issue(name, None, sky.now) for name in ("news", "codes", "bills")}
    client, counts = create_app(settings).test_client(), Counter()
    for day in range(days):
        evening = sky.now + DAY
        for _ in range(3):
            create(client, secrets, sky, counts)
        while sky.now < evening:
            sky.mood = chance.choice(MOODS)
            happen(sky, counts)
            counts.update(Scheduler(settings, sky).run_pass())
            away = chance.choice((MINUTE, HOUR, 5 * HOUR, 14 * HOUR))
            before_the_hour = (sky.now + away).replace(minute=59, second=chance.randrange(60))
            sky.now = before_the_hour if away > MINUTE else sky.now + away
        if day % 50 == 0:
            Message.delete().where(Message.finished_at.is_null(False)).execute()
    return sky, counts


def create(client, secrets, sky, counts):
    chance, number = sky.chance, sky.chance.choice(sorted(NUMBERS))
    name = chance.choice(sorted(secrets))
    body = {"to": number, "message": name, "manual_mode": chance.random() < 0.3}
    send_date = (sky.now + chance.random() * 30 * HOUR + HOUR).replace(microsecond=0)
    if chance.random() < 0.6:
        body["send_date"] = send_date.isoformat()
    answer = client.post("/v1/text-messages", json=body, headers={"X-Api-Key": secrets[name]})
    if "send_date" in body and is_quiet(number, send_date, *sky.rules[name]):
        assert problems(answer)[0].startswith("send_date: must not be in quiet hours")
        counts["refused"] += 1
    else:
        accepted(answer)


def happen(sky, counts):
    """Approve something, try it again, have a scheduler die, or change the rules of a key."""
    chance = sky.chance
    for message in Message.select().where(~Message.approved, Message.finished_at.is_null()):
        if chance.random() < 0.3:
            counts["approved"] += decide_on(message).approve("Ann", sky.now)
    for message in Message.select().where(Message.status.in_([Status.FAILED, Status.EXPIRED])):
        if chance.random() < 0.2:
            counts["retried"] += decide_on(message).retry(sky.now, 3 * DAY)
    if chance.random() < 0.2:
        counts["died"] += die_with_one(sky.now)
    if chance.random() < 0.1:
        key, changes = chance.choice([*ApiKey.select()]), {"urgent": chance.random() < 0.5}
        changes |= {"quiet_hours": chance.choice(QUIET), "hours": chance.choice(HOURS)}
        key.rule(changes, sky.now, lambda own: None)
        sky.rules[key.name] = changes["quiet_hours"], changes["hours"]
        counts["changed"] += 1


def assert_silent(first, days, *simulated):
    sky, counts = simulate(first, days, *simulated)
    assert sky.broken == []
    assert sky.left.total() > days / 2
    for happened in (
        "refused",
        "approved",
        "retried",
        "died",
        "taken over",
        "rescheduled",
        "retrying",
    ):
        assert counts[happened] > days / 100, happened
    assert counts["changed"] > days / 20


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("first", [0, 140])
def test_in_twenty_days_no_text_leaves_in_quiet_hours(first, settings, monkeypatch):
    assert_silent(first, 20, settings, monkeypatch)


@pytest.mark.soak
@on_sqlite
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_in_ten_thousand_days_no_text_leaves_in_quiet_hours(first, settings, monkeypatch):
    assert_silent(first, 1_000, settings, monkeypatch)
