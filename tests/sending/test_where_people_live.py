"""Where people live: create, hours, desk, scheduler and `allowed` go by the same clocks.

A model says from the tables alone by which clocks, and when it is quiet: each place by its own
rule. It is asked around each edge: local midnights, opening and closing, quiet hours at both
places, and the end of the last day.
"""

import random
import time as times
from datetime import UTC, date, datetime, time
from functools import cache, partial
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from answers import accepted, problems, refusal, sender
from app import create_app
from databases import on_both
from desk_visitor import signed_in
from fake_carrier import FakeCarrier
from numbering_plans import REGIONS, iana
from own_threads import IN_ORDER, at_once
from places import QUIET_PLACES
from samples import ALWAYS_OPEN, DAY, HOUR, LONDON, MILLISECOND, NEW_YORK, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, key_named, live_at, store
from texting import recipients
from texting.access.keys import Role
from texting.access.rules import Rules
from texting.cli.hours import as_object
from texting.database import isoformat
from texting.desk.entries import Entry
from texting.messages.attempts import Attempt
from texting.messages.model import Message, Status
from texting.recipients import Residence, quiet, weeks
from texting.recipients.hours import BusinessHours, Clocks, written
from texting.recipients.quiet import QuietHours
from texting.sending.runtime import Clock
from texting.sending.sends import LONGEST_CONNECTING

EVERYWHERE = (22 * 60, 6 * 60)
QUIET = QUIET_PLACES | {
    "DE": weeks.quiet_hours("20:30-08:15"),
    "GB": None,
    "US-CA": None,
    "US-ND": weeks.quiet_hours("16:00-10:30"),
    "AU": weeks.quiet_hours("12:15-13:45"),
}
RULES = {"quiet_hours": EVERYWHERE, "quiet_hours_file": QUIET}
OPEN = BusinessHours.from_settings
DALLAS, TOLL_FREE, MOBILE = "+12142345678", "+18002345678", "+61412345678"
LAST_DAY = date(2026, 3, 3)


class Model(NamedTuple):
    """What is expected for a number whose owner lives at a place until the end of a day."""

    number: str
    place: str
    until: date | None
    settings: object

    def lives_there(self, at):
        there = at.astimezone(there_clocks(self.place).zones[0])
        return self.until is None or there.date() <= self.until

    def clocks(self, at):
        return there_clocks(self.place) if self.lives_there(at) else own(self.number).clocks

    def is_quiet(self, at):
        recipient = own(self.number)
        rules = lines(recipient.country, recipient.states or None)
        if any(self._holds(each, recipient.clocks, at) for each in rules):
            return True
        rules = lines_there(self.place)
        here = there_clocks(self.place)
        return self.lives_there(at) and any(self._holds(each, here, at) for each in rules)

    def _holds(self, rule, clocks, at):
        if rule is None:
            return False
        hours = OPEN(self.settings)._replace(quiet=(QuietHours.of(rule),))
        return hours.quiet_time(clocks, at) is not None

    def is_open(self, at):
        hours = OPEN(self.settings)._replace(quiet=())
        return hours.is_open(self.clocks(at), at) and not self.is_quiet(at)


@cache
def own(number):
    return recipients.find(number)


@cache
def shares():
    """The zones of countries and states with the people in each, from zones.txt."""
    found = {}
    for line in (recipients._NUMBERING / "zones.txt").read_text().splitlines():
        head, *rest = line.split()
        if head.replace("-", "").isalpha():
            found.setdefault(head, []).append((rest[0], float(rest[1])))
    return found


@cache
def there_clocks(place):
    """The clocks of a place."""
    if "/" in place:
        country = next(country for country, zones in iana().items() if place in zones)
        return Clocks(country, (ZoneInfo(place),))
    if place not in shares():
        return Clocks(place, tuple(map(ZoneInfo, iana()[place])))
    zones, people = zip(*shares()[place], strict=True)
    people = tuple(round(1000 * each) for each in people)
    return Clocks(place[:2], tuple(map(ZoneInfo, zones)), people)


def lines(country, states):
    """The rules of a country's numbers: of these states, or of any."""
    of_country = QUIET.get(country, EVERYWHERE)
    if states:
        return [QUIET.get(state, of_country) for state in states]
    return [QUIET[each] for each in QUIET if each.startswith(f"{country}-")] + [of_country]


def lines_there(place):
    country = there_clocks(place).country
    if "/" in place:
        return [QUIET.get(country, EVERYWHERE)]
    return lines(country, [place] if "-" in place else None)


def all_places():
    """Each country and state, and a zone of each country with several."""
    several = [min(zones) for country, zones in iana().items() if country in REGIONS and zones]
    return [*REGIONS, *sorted(quiet.state_names()), *several]


def edges(model, now=datetime(2026, 3, 3, 12, tzinfo=UTC)):
    """Instants around which something changes, within a day and a half, in order."""
    found = set()
    clocks = (there_clocks(model.place), own(model.number).clocks)
    rules = [*lines_there(model.place), *lines(clocks[1].country, own(model.number).states or None)]
    minutes = {0, 9 * 60, 17 * 60}
    for rule in filter(None, rules):
        minutes |= QuietHours.of(rule).edges()
    for zone in {each for one in clocks for each in one.zones}:
        for day in (LAST_DAY, LAST_DAY + DAY):
            for minute in minutes:
                local = datetime.combine(day, time(minute // 60, minute % 60), zone)
                found.add(local.astimezone(UTC))
    return sorted(at for at in found if now <= at <= now + 36 * HOUR)


def some(sequence, count, seed):
    chance = random.Random(seed)
    return sequence if len(sequence) <= count else sorted(chance.sample(sequence, count))


def check(model, now, ask, at):
    """Compare create, `flask hours` and a send_date with the model at an instant."""
    about = (*model[:3], now)
    at(now)
    rules = Rules.from_settings(model.settings)
    recipient = recipients.find(model.number, Residence(model.place, model.until))
    told = as_object(recipient, rules.hours(recipient), now)
    response = ask(to=model.number)
    opening = told["next_opening"]
    if opening is None:
        refusal(response, 403)
    else:
        body, clocks = accepted(response), model.clocks(now)
        local_time = written(now.astimezone(clocks.zones[0]))
        assert told["local_time"] == body["recipient_local_time"] == local_time, about
        assert body["recipient_location"] == recipients.location(own(model.number))
        assert body["recipient_country"] == own(model.number).country
        assert body["within_business_hours"] is model.is_open(now), about
        assert body["can_send_now"] is (opening == now) is model.is_open(now), about
        assert body["scheduled_send_date"] == isoformat(opening), about
        assert model.is_open(opening), about
        for instant in edges(model, now):
            assert instant <= now or instant >= opening or not model.is_open(instant), about
    assert told["zones"][0] == model.clocks(now).zones[0].key, about
    assert told["place"] == (model.place if model.lives_there(now) else None), about
    assert told["quiet"] is model.is_quiet(now), about
    at(now - DAY)
    response = ask(to=model.number, send_date=isoformat(now))
    assert (response.status_code == 400) is model.is_quiet(now), about
    if model.is_quiet(now):
        (problem,) = problems(response)
        assert f" local time: it is {told['local_time']} for the recipient then" in problem


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_everything_goes_by_the_place_around_each_edge(part, settings, key, at):
    settings = settings._replace(**RULES)
    ask = sender(create_app(settings).test_client(), key)
    for n, place in [*enumerate(all_places())][part::4]:
        number = (NEW_YORK, LONDON, TOLL_FREE, MOBILE, DALLAS)[n % 5]
        model = Model(number, place, LAST_DAY if n % 3 else None, settings)
        live_at(*model[:3])
        for instant in some(edges(model), 1, n):
            for now in (instant - MILLISECOND, instant):
                check(model, now, ask, at)
        Message.delete().execute()


FEW = {
    NEW_YORK: "US-ND",
    DALLAS: "US-CA",
    "+12125550188": "DE",
    "+12125550199": "America/Phoenix",
    LONDON: "US",
    "+442083661178": "AU",
    MOBILE: "GB",
    TOLL_FREE: "BR",
    "+15142345678": "Europe/Berlin",
    "+33478901234": "CA-QC",
}


@on_both
@pytest.mark.parametrize("until", [None, LAST_DAY])
def test_a_few_of_them(until, settings, key, at):
    settings = settings._replace(**RULES)
    ask = sender(create_app(settings).test_client(), key)
    for number, place in FEW.items():
        model = Model(number, place, until, settings)
        live_at(*model[:3])
        for instant in some(edges(model), 4, number):
            for now in (instant - MILLISECOND, instant):
                check(model, now, ask, at)


@on_both
@pytest.mark.parametrize("until", [None, LAST_DAY])
def test_the_scheduler_sends_when_the_model_says(until, settings, key, run_pass):
    settings = settings._replace(**RULES)
    models = [Model(number, place, until, settings) for number, place in FEW.items()]
    for model in models:
        live_at(*model[:3])
    for hour in range(0, 36, 2):
        now = datetime(2026, 3, 3, 12, hour % 4 * 15, tzinfo=UTC) + hour * HOUR
        waiting = {each.number: store(to=each.number, send_at=now, now=now) for each in models}
        rules, carrier = Rules.from_settings(settings), FakeCarrier()
        for model in models:
            residence = Residence(model.place, model.until)
            entry = Entry(waiting[model.number], now, rules, residence=residence)
            assert (entry.forecast[0] == now) is model.is_open(now), (model, now)
        run_pass(now, carrier, **RULES)
        assert sorted(carrier.numbers) == sorted(m.number for m in models if m.is_open(now)), now
        for model in models:
            message, zone = again(waiting[model.number]), model.clocks(now).zones[0]
            for (why,) in (
                Attempt.select(Attempt.allowed).where(Attempt.message == message).tuples()
            ):
                assert why["zone"] == zone.key
                assert why["zone_from"] == ("place" if model.lives_there(now) else "number")
                assert why["local_time"] == written(now.astimezone(zone))
            if message.status == Status.SCHEDULED:
                assert model.is_open(message.send_at), (model, now)
                assert not any(
                    model.is_open(each)
                    for each in edges(model, now)
                    if now < each < message.send_at
                )
        Message.delete().execute()


class Moving(FakeCarrier):
    """A carrier to which it takes long to connect, while somebody moves: `move`, once."""

    move = None

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.clock.monotonic = lambda: times.monotonic() + self.passed
        self.passed = 0

    def session(self):
        move, self.move = self.move, None
        if move:
            self.passed += LONGEST_CONNECTING + 0.1
            at_once(move)
        return super().session()


@on_both
def test_whoever_moves_between_judgement_and_send_gets_it_where_the_model_says(
    settings, at, without_waiting
):
    """Of one scheduler, which has known where they lived before."""
    settings, carrier, texts, moved = settings._replace(**RULES), Moving(), 0, set()
    scheduler = Scheduler(settings, carrier, IN_ORDER._replace(clock=carrier.clock))
    places = [*FEW.values()]
    for hour in range(0, 36, 4):
        now = datetime(2026, 3, 3, 12, tzinfo=UTC) + hour * HOUR
        at(now)
        for number, old, new in zip(FEW, places, places[1:] + places[:1], strict=True):
            if not Model(number, old, None, settings).is_open(now):
                continue
            live_at(number, old)
            carrier.move, model = partial(live_at, number, new), Model(number, new, None, settings)
            message = store(to=number, send_at=now, now=now)
            scheduler.run_pass()
            assert carrier.move is None, "it was judged by the old place, and connected"
            texts += model.is_open(now)
            moved.add(model.is_open(now))
            assert len(carrier.texts) == texts, (model, now)
            if model.is_open(now):
                newest = Attempt.select().where(Attempt.message == message)
                allowed = newest.order_by(Attempt.claim_number.desc()).get().allowed
                assert allowed["zone"] == model.clocks(now).zones[0].key
            else:
                assert again(message).status == Status.SCHEDULED
                assert model.is_open(again(message).send_at), (model, now)
            Message.delete().execute()
    assert moved == {True, False}


# By example

MORNING = TUESDAY_NOON - 3 * HOUR  # 9 AM in New York, 8 AM in Chicago, 3 PM in Berlin


@on_both
def test_a_change_of_place_after_the_create_counts(run_pass, carrier, key, post, at):
    at(MORNING - HOUR)
    assert accepted(post())["scheduled_send_date"] == isoformat(MORNING)
    live_at(NEW_YORK, "America/Chicago")
    run_pass(MORNING)
    assert carrier.texts == []
    message = Message.get()
    assert (message.status, message.send_at) == (Status.SCHEDULED, MORNING + HOUR)
    live_at(NEW_YORK, "US-NY")
    run_pass(MORNING + HOUR)
    assert carrier.numbers == [NEW_YORK]


def test_the_carrier_gives_a_text_up_when_quiet_hours_begin_there(run_pass):
    class Noting(FakeCarrier):
        def send(self, outgoing):
            self.valid_for = outgoing.valid_for
            return super().send(outgoing)

    live_at(NEW_YORK, "DE")
    store()
    run_pass(TUESDAY_NOON, noting := Noting(), **RULES | ALWAYS_OPEN)
    assert noting.valid_for == 2.5 * 3600  # 6 PM to 8:30 PM in Berlin


@pytest.mark.parametrize("until", [LAST_DAY, None])
def test_quiet_hours_at_a_send_date_count_the_last_day(until, settings, key, at):
    ask = sender(create_app(settings._replace(**RULES)).test_client(), key)
    live_at(LONDON, "DE", until)
    at(TUESDAY_NOON)
    evening, next_evening = (f"2026-03-0{day}T20:00Z" for day in (3, 4))  # 21:00 in Berlin
    (problem,) = problems(ask(to=LONDON, send_date=evening))
    assert problem.startswith("send_date: must not be in quiet hours of Germany, 8:30 PM - 8:15 AM")
    assert "it is 9:00 PM, Tuesday, Mar 3 for the recipient then; the first" in problem
    response = ask(to=LONDON, send_date=next_evening)
    assert response.status_code == (201 if until else 400)


def test_the_last_day_ends_by_the_clock_there(settings, key, at):
    app = create_app(settings._replace(business_hours=(0, 1440)))
    ask = sender(app.test_client(), key)
    live_at(NEW_YORK, "Pacific/Auckland", LAST_DAY)
    midnight = datetime(2026, 3, 3, 11, tzinfo=UTC)  # of the 4th in Auckland
    at(midnight - MILLISECOND)
    assert accepted(ask())["recipient_local_time"] == "11:59 PM, Tuesday, Mar 3"
    at(midnight)
    assert accepted(ask())["recipient_local_time"] == "6:00 AM, Tuesday, Mar 3"


def test_holidays_and_the_working_week_are_those_of_the_places_country(settings, key, at):
    app = create_app(settings._replace(business_days=None, skip_holidays=True))
    ask = sender(app.test_client(), key)
    at(datetime(2026, 10, 2, 12, tzinfo=UTC))  # a Friday
    for place, opens in (("DE", None), ("EG", "2026-10-04"), ("Africa/Cairo", "2026-10-04")):
        live_at(NEW_YORK, place)
        body = accepted(ask())
        assert body["recipient_country"] == "US"
        assert opens is None or body["scheduled_send_date"].startswith(opens)
    at(datetime(2026, 10, 3, 7, 30, tzinfo=UTC))  # the day of German unity
    live_at(NEW_YORK, "DE")
    assert accepted(ask())["scheduled_send_date"].startswith("2026-10-05")


def test_where_both_places_leave_no_minute_the_answer_is_403(settings, key, at):
    at(TUESDAY_NOON)
    lines = {"US": weeks.quiet_hours("18:00-13:00"), "GB": weeks.quiet_hours("17:00-09:00")}
    ask = sender(create_app(settings._replace(quiet_hours_file=lines)).test_client(), key)
    accepted(ask())
    live_at(NEW_YORK, "GB")
    refusal(ask(), 403)


def test_a_place_that_is_known_no_more_is_as_if_there_were_none(settings, key, post, at):
    at(TUESDAY_NOON)
    live_at(NEW_YORK, "Mars/Olympus")
    assert accepted(post())["recipient_timezone"] == "GMT-5"


def test_the_desk_says_where_somebody_lives_and_waits_for_the_hours_there(settings, at):
    at(MORNING)
    live_at(NEW_YORK, "US-AZ", LAST_DAY)
    message = store(manual_mode=True, key=key_named("shop"), send_at=MORNING)
    app = create_app(settings._replace(secret_key="not so secret, but long enough"))
    visitor = signed_in(app, "Olga", role=Role.OPERATOR)
    for page in ("/desk/", f"/desk/messages/{message.id}"):
        text = visitor.read(page)
        assert "+1 212-555-0123 New York, United States" in text
        assert "Waits until 9:00 AM in Arizona: outside business hours" in text
        assert "in the last day · known to live in Arizona until Mar 3, 2026" in text
        assert "it is 7:00 AM there now" in text
