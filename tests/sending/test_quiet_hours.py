"""Quiet hours: no text leaves then, whatever was asked for and whatever happened before."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from answers import accepted, problems
from app import create_app
from carriers import CarrierError
from database import clock
from databases import on_sqlite
from fake_carrier import FOR_NOW, TOO_FAST, FakeCarrier
from models import Message, Status
from samples import ALWAYS_OPEN, DAY, HOUR, LONDON, MINUTE, NEW_YORK, SECOND
from scheduler import Scheduler
from sending import heartbeats, sender
from sending.runtime import Runtime
from stored_messages import again, die_with_one, store

NIGHT = {"quiet_hours": (21 * 60, 8 * 60)}
NINE_PM = datetime(2026, 3, 4, 2, tzinfo=UTC)  # a Tuesday in New York
EIGHT_AM = datetime(2026, 3, 4, 13, tzinfo=UTC)
NINE_AM = datetime(2026, 3, 4, 14, tzinfo=UTC)


# At the claim


@pytest.mark.parametrize(
    ("send_date", "hours", "leaves_at"),
    [
        (None, ALWAYS_OPEN, EIGHT_AM),
        (None, {}, NINE_AM),
        (NINE_PM, ALWAYS_OPEN, EIGHT_AM),
        (NINE_PM, {}, NINE_AM),  # eleven hours later it keeps to business hours
        (EIGHT_AM - MINUTE, {}, EIGHT_AM),
    ],
)
def test_a_text_that_is_held_up_into_quiet_hours_waits(
    send_date, hours, leaves_at, run_pass, carrier
):
    now = max(NINE_PM, send_date or NINE_PM)
    message = store(now=now, send_date=send_date)
    assert +run_pass(now, **NIGHT, **hours) == Counter({"rescheduled": 1})
    waiting = again(message)
    assert (waiting.status, waiting.send_at) == (Status.SCHEDULED, leaves_at)
    run_pass(leaves_at - timedelta(milliseconds=1), **NIGHT, **hours)
    assert carrier.texts == []
    run_pass(leaves_at, **NIGHT, **hours)
    assert carrier.numbers == [NEW_YORK]


def test_without_quiet_hours_a_send_date_is_obeyed_at_night(run_pass, carrier):
    store(now=NINE_PM, send_date=NINE_PM)
    run_pass(NINE_PM)
    assert carrier.numbers == [NEW_YORK]


def test_the_quiet_hours_of_every_zone_that_counts_hold_a_text_up(run_pass, carrier):
    noon_in_sydney = datetime(2026, 7, 15, 1, 30, tzinfo=UTC)  # 11:30 there, 9:30 in Perth
    morning = noon_in_sydney - 2 * HOUR  # 9:30 there, 7:30 in Perth
    message = store(to="+61412345678", now=morning, send_date=morning)
    run_pass(morning, **NIGHT)
    assert again(message).send_at == morning + HOUR / 2
    run_pass(morning + HOUR / 2, **NIGHT)
    assert carrier.numbers == ["+61412345678"]


# At the call


@pytest.mark.parametrize("send_date", [None, NINE_PM - SECOND])
def test_quiet_hours_that_begin_after_the_claim_hold_a_text_back(send_date, settings, carrier, at):
    message = store(now=NINE_PM - SECOND, send_date=send_date)
    at(NINE_PM - SECOND)

    class Late(ThreadPoolExecutor):
        def submit(self, *call):
            at(NINE_PM)
            return super().submit(*call)

    runtime = Runtime(make_pool=Late)
    quiet = Scheduler(settings._replace(**NIGHT, **ALWAYS_OPEN), carrier, runtime)
    assert +quiet.run_pass() == Counter({"rescheduled": 1})
    assert carrier.texts == []
    held = again(message)
    assert (held.status, held.send_at, held.attempts) == (Status.SCHEDULED, EIGHT_AM, 0)
    assert (held.in_doubt, held.last_error) == (0, None)


# Simulated days

# By number, the zones that count with hours from nine to five: up to four hours apart
ZONES = {
    NEW_YORK: ["America/New_York"],
    LONDON: ["Europe/London"],
    "+61412345678": [f"Australia/{city}" for city in ("Sydney", "Brisbane", "Adelaide", "Perth")],
    "+18002345678": [
        f"America/{city}" for city in ("New_York", "Chicago", "Denver", "Phoenix", "Los_Angeles")
    ],
    "+79161234567": ["Europe/Moscow", "Europe/Samara", "Asia/Omsk", "Asia/Krasnoyarsk"],
}
DOWN = CarrierError("not reached", unreached=True)
SILENT = CarrierError("no answer", in_doubt=True, silent=True)
MOODS = [None] * 6 + [FOR_NOW, TOO_FAST, DOWN, SILENT]


def is_quiet(number, at):
    hours = {at.astimezone(ZoneInfo(zone)).hour for zone in ZONES[number]}
    return any(hour >= 21 or hour < 8 for hour in hours)


class Sky(FakeCarrier):
    """A clock that goes on whenever it is read, and a carrier that writes down what leaves when."""

    def __init__(self, chance, now):
        super().__init__()
        self.chance, self.now, self.left, self.mood = chance, now, [], None

    def clock(self):
        self.now += self.chance.choice((0, 0, 0, 1, 60, 600)) * SECOND
        return self.now

    def send(self, to, text, **_):
        self.left.append((to, self.now))
        if self.mood:
            raise self.mood
        return


def simulate(first, days, settings, key, monkeypatch):
    """Live through some days; return the carrier and what happened how often."""
    chance = random.Random(first)
    sky = Sky(chance, datetime(2026, 2, 1, tzinfo=UTC) + first * DAY)
    monkeypatch.setattr(clock, "now", sky.clock)
    monkeypatch.setattr(heartbeats, "WATCHED", 0)
    monkeypatch.setattr(sender, "LONGEST_WAIT", 0)
    settings = settings._replace(**NIGHT, send_concurrency=1, retry_delay=1800)
    client, counts = create_app(settings).test_client(), Counter()
    for day in range(days):
        evening = sky.now + DAY
        for _ in range(2):
            create(client, key, sky, counts)
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


def create(client, key, sky, counts):
    chance, number = sky.chance, sky.chance.choice(sorted(ZONES))
    body = {"to": number, "message": "Hello", "manual_mode": chance.random() < 0.3}
    send_date = sky.now + chance.random() * 30 * HOUR + HOUR
    if chance.random() < 0.7:
        body["send_date"] = send_date.isoformat()
    answer = client.post("/v1/text-messages", json=body, headers={"X-Api-Key": key})
    if "send_date" in body and is_quiet(number, send_date):
        assert problems(answer)[0].startswith("send_date: must not be in quiet hours")
        counts["refused"] += 1
    else:
        accepted(answer)


def happen(sky, counts):
    """Approve something, try something again, or have a scheduler die."""
    chance = sky.chance
    for message in Message.select().where(~Message.approved, Message.finished_at.is_null()):
        if chance.random() < 0.3:
            counts["approved"] += message.approve("Ann", sky.now)
    for message in Message.select().where(Message.status.in_([Status.FAILED, Status.EXPIRED])):
        if chance.random() < 0.2:
            counts["retried"] += message.retry(sky.now, 3 * DAY)
    if chance.random() < 0.2:
        counts["died"] += die_with_one(sky.now)


def assert_silent(first, days, *simulated):
    sky, counts = simulate(first, days, *simulated)
    assert [(number, at) for number, at in sky.left if is_quiet(number, at)] == []
    assert len(sky.left) > days / 2
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


@pytest.mark.slow
@on_sqlite
def test_in_twenty_days_no_text_leaves_in_quiet_hours(settings, key, monkeypatch):
    assert_silent(0, 20, settings, key, monkeypatch)


@pytest.mark.soak
@on_sqlite
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_in_ten_thousand_days_no_text_leaves_in_quiet_hours(first, settings, key, monkeypatch):
    assert_silent(first, 1_000, settings, key, monkeypatch)
