"""No text leaves in quiet hours of its key or place, whatever happens and whatever is changed."""

import random
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime

import pytest

from answers import accepted, problems
from app import create_app
from fake_carrier import FOR_NOW, TOO_FAST, FakeCarrier
from places import QUIET_PLACES
from samples import DAY, HOUR, LONDON, MINUTE, SECOND
from scheduler import Scheduler
from stored_messages import decide_on, die_with_one
from texting import recipients
from texting.access.keys import ApiKey, rules_of
from texting.access.rules import Rules
from texting.carriers import CarrierError
from texting.database import clock
from texting.messages.model import Message, Status
from texting.sending import heartbeats

MOODS = [None] * 6
MOODS += [FOR_NOW, TOO_FAST, CarrierError("not reached", unreached=True)]
MOODS += [CarrierError("no answer", in_doubt=True, silent=True)]
# Of Texas, Kentucky, New York, no place, Quebec, two of Canada's provinces, France and London
NUMBERS = ("+12142345678", "+12702345678", "+12125550123", "+18002345678")
NUMBERS += ("+15142345678", "+19025551234", "+33478901234", LONDON)
# On Saturdays of four hours Los Angeles has less than half of New York's: it does not count
HOURS = [None, "00:00-24:00", "09:00-17:00", "mon-fri 08:00-20:00, sat 10:00-14:00"]
QUIET = [None, None, "none", "21:00-08:00", "sun 00:00-24:00, mon-sat 22:30-06:00"]
QUIET += ["sat 12:00-11:00, holidays 00:00-24:00, mon-fri 20:00-07:00"]


def is_quiet(number, at, rules):
    """Say whether it is quiet for a number by the rules of a key."""
    recipient = recipients.find(number)
    return rules.hours(recipient).quiet_time(recipient.clocks, at) is not None


class Sky(FakeCarrier):
    """A clock that goes on whenever it is read, and a carrier that writes down what leaves when.

    A text leaves at the time that its own thread has read last: others may have read it since.
    """

    def __init__(self, chance, now, settings):
        super().__init__()
        self.chance, self.now, self.left, self.mood = chance, now, Counter(), None
        self.broken, self.thread = [], threading.local()
        self.common = Rules.from_settings(settings)
        self.rules = defaultdict(lambda: self.common)  # by the name of the key

    def clock(self):
        self.now += self.chance.choice((0, 0, 0, 1, 60, 600)) * SECOND
        self.thread.now = self.now
        return self.thread.now

    def send(self, outgoing):
        to, text, *_ = outgoing
        self.left[text] += 1
        rules = self.rules[text]
        if is_quiet(to, self.thread.now, rules):
            self.broken.append((to, text, self.thread.now, rules))
        if self.mood:
            raise self.mood


def simulate(first, days, settings, monkeypatch):
    """Live through some days; return the carrier and what happened how often."""
    chance = random.Random(f"keys {first}")
    random.seed(first)  # delays, and the turns of new keys
    settings = settings._replace(
        quiet_hours=(22 * 60, 6 * 60),
        quiet_hours_file=QUIET_PLACES,
        send_concurrency=2,
        retry_delay=1800,
    )
    sky = Sky(chance, datetime(2026, 2, 1, tzinfo=UTC) + first * DAY, settings)
    monkeypatch.setattr(clock, "now", sky.clock)
    monkeypatch.setattr(heartbeats, "WATCHED", 0)
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
    chance, number = sky.chance, sky.chance.choice(NUMBERS)
    name = chance.choice(sorted(secrets))
    body = {"to": number, "message": name, "manual_mode": chance.random() < 0.3}
    send_date = (sky.now + chance.random() * 30 * HOUR + HOUR).replace(microsecond=0)
    if chance.random() < 0.6:
        body["send_date"] = send_date.isoformat()
    answer = client.post("/v1/text-messages", json=body, headers={"X-Api-Key": secrets[name]})
    if "send_date" in body and is_quiet(number, send_date, sky.rules[name]):
        assert problems(answer)[0].startswith("send_date: must not be in quiet hours")
        counts["refused"] += 1
    else:
        accepted(answer)


def happen(sky, counts):
    """Approve something, try it again, have a scheduler die, or change the rules of a key."""
    chance = sky.chance
    for message in Message.select().where(~Message.approved, Message.finished_at.is_null()):
        if chance.random() < 0.3:
            counts["approved"] += len(decide_on(message).approve("Ann", sky.now))
    for message in Message.select().where(Message.status.in_([Status.FAILED, Status.EXPIRED])):
        if chance.random() < 0.2:
            counts["retried"] += len(decide_on(message).retry(sky.now, 3 * DAY))
    if chance.random() < 0.2:
        counts["died"] += die_with_one(sky.now)
    if chance.random() < 0.1:
        key, changes = chance.choice([*ApiKey.select()]), {"urgent": chance.random() < 0.5}
        changes |= {"quiet_hours": chance.choice(QUIET), "hours": chance.choice(HOURS)}
        key.rule(changes, sky.now)
        sky.rules[key.name] = sky.common.of(rules_of({key.id})[key.id])
        counts["changed"] += 1


def assert_silent(first, days, *simulated):
    sky, counts = simulate(first, days, *simulated)
    assert sky.broken == []
    assert sky.left.total() > days / 2
    usual = {"refused", "approved", "retried", "died", "taken over", "rescheduled", "retrying"}
    assert {name for name in usual if counts[name] > days / 100} == usual
    assert counts["changed"] > days / 20


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 140])
def test_in_twenty_days_no_text_leaves_in_quiet_hours(first, settings, monkeypatch):
    assert_silent(first, 20, settings, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_in_ten_thousand_days_no_text_leaves_in_quiet_hours(first, settings, monkeypatch):
    assert_silent(first, 1_000, settings, monkeypatch)
