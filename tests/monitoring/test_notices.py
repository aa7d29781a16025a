"""notices.py: who is told what, how often, and what becomes of addresses that fail."""

import json
import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from peewee import OperationalError

from answers import accepted, sender
from carrier_servers import DRIP, Answer, playing
from databases import on_both
from own_threads import at_once
from people import People
from running import wait_until
from samples import DAY, HOUR, LONDON, MILLISECOND, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import decide_on, held, key_named, store
from texting.access import limits
from texting.access.keys import ApiKey, Role
from texting.access.limits import KeyUse
from texting.access.texted_countries import KeyCountry
from texting.carriers import IncomingText
from texting.database import clock, db
from texting.events.outbox import Event, EventAddress
from texting.messages import model
from texting.messages.model import Message, Status
from texting.monitoring import notices
from texting.monitoring.notices import LEASE, Notice, Notices, Notification, OutgoingNotice
from texting.replies import inbound
from texting.replies import model as replies
from texting.reports import usage
from texting.sending.carrier_state import CarrierState

LATER = TUESDAY_NOON + 15 * MINUTE


@pytest.fixture
def look(settings, people, at):
    """Look at an instant as a scheduler does at its end; return what people were told by it."""

    def now(instant, **changes):
        at(instant)
        before = len(people.told)
        scheduler = Notices(settings._replace(**{"notify_url": people.url} | changes))
        scheduler.start()
        scheduler.finish(look=True)
        return people.told[before:]

    yield now
    for thread in threading.enumerate():  # one that was too slow still uses the database
        if thread.name == "notices":
            thread.join(60)
            assert not thread.is_alive()


def awaiting(key="app", **columns):
    return store(key=key_named(key), manual_mode=True, approved=False, **columns)


def used(key, number, limits_of_it=None, now=TUESDAY_NOON, **more):
    """A key that has used up so many of a day."""
    if limits_of_it:
        key.limit(limits.parse(limits_of_it), TUESDAY_NOON)
    for name, used in ({"used_d": number} | more).items():
        of, unit = name.split("_")
        (limit,) = limits.parse(f"1{'p' if of == 'parts' else ''}/{unit}")
        window = limit.window_of(key.id, int(now.timestamp()))
        KeyUse.add(Counter({window: used - KeyUse.of([window])[window]}))


# Approvals


def test_people_are_told_how_many_texts_wait_whose_and_when_the_first_would_leave(look):
    awaiting(send_at=TUESDAY_NOON + 3 * HOUR)
    awaiting("bank", send_at=TUESDAY_NOON + 2 * HOUR, available_to_group=True)
    awaiting("bank", send_at=TUESDAY_NOON + 4 * HOUR, status=Status.SCHEDULED)
    store()
    desk = {"public_url": "https://texts.example.com/staging", "secret_key": "x" * 8}
    assert look(TUESDAY_NOON, **desk) == [
        "3 texts wait for approval, from bank (2), app (1). The first would be sent at "
        "2026-03-03T19:00:00.000Z. https://texts.example.com/staging/desk/"
    ]


def test_without_a_desk_no_address_is_told(look):
    awaiting()
    assert look(TUESDAY_NOON, public_url="https://texts.example.com") == [
        "1 text waits for approval, from app (1). The first would be sent at once."
    ]


def test_what_waits_is_told_again_each_day_and_when_the_first_has_twelve_hours_left(look):
    awaiting(send_at=TUESDAY_NOON + 3 * HOUR, first_send_at=TUESDAY_NOON)
    awaiting(send_at=TUESDAY_NOON + 3 * HOUR, first_send_at=TUESDAY_NOON + HOUR)
    told = "2 texts wait for approval, from app (2). The first would be sent at"
    assert look(TUESDAY_NOON) == [f"{told} 2026-03-03T20:00:00.000Z."]
    assert look(TUESDAY_NOON + DAY - MILLISECOND) == []
    assert look(TUESDAY_NOON + DAY) == [f"{told} once."]
    assert look(TUESDAY_NOON + DAY) == []
    assert look(TUESDAY_NOON + 2 * DAY) == [f"{told} once."]
    late = TUESDAY_NOON + 60 * HOUR  # 72h - 12h
    assert look(late - MILLISECOND) == []
    ends = "Without approval, the first expires at 2026-03-06T17:00:00.000Z."
    assert look(late) == [f"{told} once. {ends}"]
    assert look(late) == look(late + 11 * HOUR) == []
    Message.delete().where(Message.first_send_at == TUESDAY_NOON).execute()
    (again,) = look(late + 12 * HOUR)
    assert again.endswith("the first expires at 2026-03-06T18:00:00.000Z.")
    assert look(late + 12 * HOUR) == []
    Message.delete().execute()
    assert look(TUESDAY_NOON + 9 * DAY) == []


def test_of_many_keys_ten_are_named(look):
    for number in range(12):
        awaiting(f"key {number:02}")
    (told,) = look(TUESDAY_NOON)
    assert "key 09 (1), 2 more keys." in told
    assert "key 10" not in told


def test_what_waits_is_told_again_only_when_something_new_waits_and_after_a_quarter(look):
    awaiting()
    assert len(look(TUESDAY_NOON)) == 1
    assert look(LATER) == []
    awaiting(now=LATER)
    (told,) = look(LATER)
    assert told.startswith("2 texts wait")
    awaiting(now=LATER + MINUTE)
    assert look(LATER + 15 * MINUTE - MILLISECOND) == []
    assert len(look(LATER + 15 * MINUTE)) == 1
    assert look(LATER + HOUR) == []
    decided = awaiting(now=LATER + HOUR)
    decide_on(decided).decide(False, "shell", LATER + HOUR)
    assert look(LATER + 2 * HOUR) == []


def test_a_text_that_was_stored_late_is_new(look):
    """Another process may store an older id after a newer one was told."""
    early = model.new_id(TUESDAY_NOON - MINUTE)
    first = awaiting()
    look(TUESDAY_NOON)
    awaiting(id=early)
    assert len(look(LATER)) == 1
    decide_on(first).decide(False, "shell", LATER)
    assert look(LATER + MINUTE) == []
    awaiting(id=model.new_id(TUESDAY_NOON - MINUTE))
    assert len(look(LATER + HOUR)) == 1


# Problems


def trouble(words="no credit"):
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    CarrierState.begin_pause("twilio", TUESDAY_NOON, trouble=words)


def well():
    """The carrier takes the text that goes first after the pause."""
    CarrierState.update(probe_claimed_at=TUESDAY_NOON + MINUTE).execute()
    assert CarrierState.end_pause("twilio", TUESDAY_NOON + MINUTE)


def test_a_problem_is_told_when_it_begins_and_when_it_is_over(look):
    assert look(TUESDAY_NOON) == []
    trouble()
    (told,) = look(TUESDAY_NOON)
    assert told == (
        "twilio has refused the account since 2026-03-03T17:00:00.000Z: no credit. Noticed at "
        "2026-03-03T17:00:00.000Z. Texts waiting to be sent: 0. Fix the credentials, sender or "
        "credit; after a change of CARRIER_URL, restart. Each minute a text tries it again, if one "
        "is due; flask carriers check asks it."
    )
    trouble("unknown sender")
    assert look(TUESDAY_NOON + MINUTE) == []
    well()
    assert look(TUESDAY_NOON + 2 * MINUTE) == [
        "The problem reported at 2026-03-03T17:00:00.000Z is over: "
        "carrier twilio refuses the account."
    ]
    CarrierState.record_pass(TUESDAY_NOON + 3 * MINUTE, {"twilio": []})
    assert look(TUESDAY_NOON + 3 * MINUTE) == []
    trouble()
    assert look(TUESDAY_NOON + 4 * MINUTE)[0].startswith("twilio has refused the account")


def fails(name):
    """A receiver that has taken no event for long."""
    key = key_named(name)
    EventAddress.set(key, "http://127.0.0.1:1/", TUESDAY_NOON - DAY)
    decide_on(store(key=key, now=TUESDAY_NOON - DAY)).cancel("shell", TUESDAY_NOON - DAY)
    failing = EventAddress.update(failing_since=TUESDAY_NOON - DAY, failures=3)
    failing.where(EventAddress.key == key).execute()
    Event.update(next_try_at=TUESDAY_NOON + HOUR).where(Event.key == key).execute()


def titles(people):
    return [title.partition(": ")[2] for title, _ in people.texts]


@on_both
def test_an_open_problem_hides_no_other_and_each_is_told_when_it_ends(look, people):
    """Texts are due and nothing is sent; then all else goes wrong beside it, and ends."""
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    due = store(send_at=TUESDAY_NOON - 3 * MINUTE)
    look(TUESDAY_NOON)
    trouble()
    fails("bank")
    look(TUESDAY_NOON)
    fails("shop: 24/7")
    look(TUESDAY_NOON + 2 * MINUTE)
    look(TUESDAY_NOON + 3 * MINUTE)
    began = [
        "texts are due, nothing is sent",
        *("carrier twilio refuses the account", "webhooks for bank fail"),
        *("webhooks for shop: 24/7 fail", "no scheduler is running"),
    ]
    assert titles(people) == began
    assert "Events waiting: 1. " in people.told[2]
    assert "Texts waiting to be sent: 1. " in people.told[0]
    for later in (4 * MINUTE, 5 * MINUTE):  # their numbers and words change
        store(send_at=TUESDAY_NOON)
        CarrierState.update(trouble="unknown sender").execute()
        assert look(TUESDAY_NOON + later) == []
    CarrierState.update(trouble=None, trouble_since=None).execute()
    CarrierState.record_pass(TUESDAY_NOON + 6 * MINUTE, {"twilio": []})
    look(TUESDAY_NOON + 6 * MINUTE)
    EventAddress.update(failing_since=None).execute()
    Message.update(status=Status.SENT, finished_at=TUESDAY_NOON).execute()
    look(TUESDAY_NOON + 7 * MINUTE)
    assert sorted(titles(people)[5:]) == sorted(f"over: {each}" for each in began)
    assert titles(people)[5] in (f"over: {began[1]}", f"over: {began[4]}")
    assert due.to[1:] not in str(people.requests)


def test_texts_under_way_are_among_those_that_wait_and_those_of_paused_keys_are_not(look):
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    store(send_at=TUESDAY_NOON - 3 * MINUTE)
    for _ in range(2):
        held(Status.SENDING, claimed_for="twilio")
    store(key=key_named("paused"))
    key_named("paused").pause(TUESDAY_NOON)
    (told,) = look(TUESDAY_NOON)
    assert told.startswith(
        "No text has gone through twilio for 2 minutes, although some have been due since "
        "2026-03-03T16:57:00.000Z: 2 texts have no answer yet"
    )
    assert "Texts waiting to be sent: 3. " in told


@on_both
def test_what_waits_is_what_is_due_without_a_scheduler_too_and_what_is_to_be_tried_again(look):
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    waits = {"status": Status.SCHEDULED, "due_since": TUESDAY_NOON, "attempts": 1}
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * MINUTE)
    store(send_at=TUESDAY_NOON + 30 * MINUTE, **waits)
    awaiting(status=Status.SCHEDULED, send_at=TUESDAY_NOON)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 30 * MINUTE)
    store(key=key_named("paused"), send_at=TUESDAY_NOON + 30 * MINUTE, **waits)
    key_named("paused").pause(TUESDAY_NOON)
    told = look(TUESDAY_NOON + 10 * MINUTE)
    (told,) = (each for each in told if each.startswith("no scheduler"))
    assert "Texts waiting to be sent: 2. " in told


def test_an_outage_that_becomes_a_refused_account_is_something_new(look, people):
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    CarrierState.begin_pause("twilio", TUESDAY_NOON, trouble="no answer", is_down=True)
    look(TUESDAY_NOON)
    trouble()
    look(TUESDAY_NOON + MINUTE)
    assert titles(people) == [
        *("carrier twilio is down", "carrier twilio refuses the account"),
        "over: carrier twilio is down",
    ]


def test_title_and_type_tell_a_pager_what_it_is(look, people):
    def told(**changes):
        before = len(people.requests)
        look(TUESDAY_NOON, **changes)
        bodies = (json.loads(request.body) for request in people.requests[before:])
        return [(each["title"], each["type"]) for each in bodies]

    trouble()
    assert told() == [("Text messages: carrier twilio refuses the account", "failure")]
    CarrierState.update(trouble=None, trouble_since=None).execute()
    assert told() == [("Text messages: over: carrier twilio refuses the account", "success")]
    awaiting()
    used(key_named("shop"), 10, "10/d")
    service = "Text messages (texts.example.com)"
    assert told(public_url="https://texts.example.com:8443/staging") == [
        (f"{service}: 1 text waits for approval", "warning"),
        (f"{service}: shop has used up its limit", "warning"),
    ]


@on_both
def test_texts_of_a_carrier_in_trouble_are_no_second_problem(look, people):
    """Nothing goes, and then the reason is known; it is told as over once texts go again."""
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    store(send_at=TUESDAY_NOON - 3 * MINUTE)
    CarrierState.begin_pause("twilio", TUESDAY_NOON, trouble="no answer", is_down=True)
    look(TUESDAY_NOON)
    assert titles(people) == ["carrier twilio is down"]
    CarrierState.update(trouble=None, is_down=False, trouble_since=None).execute()
    look(TUESDAY_NOON)
    assert titles(people)[1:] == ["texts are due, nothing is sent", "over: carrier twilio is down"]
    trouble()
    look(TUESDAY_NOON)
    assert titles(people)[3:] == ["carrier twilio refuses the account"]
    CarrierState.update(trouble=None, trouble_since=None).execute()
    Message.update(status=Status.SENT, finished_at=TUESDAY_NOON).execute()
    look(TUESDAY_NOON)
    over = ["carrier twilio refuses the account", "texts are due, nothing is sent"]
    assert sorted(titles(people)[4:]) == [f"over: {each}" for each in over]


# Limits


@pytest.fixture
def operator_sees_limits():
    """The limits that the overview and notices take for used up."""
    return lambda: [str(limit) for _, limit in usage.limits_used_up(clock.now(), ())]


def used_up(limit, until):
    return (
        f"The key shop has used up its limit of {limit}: its texts are refused until "
        f"{until}T00:00:00.000Z. flask keys limit replaces it."
    )


@pytest.mark.parametrize("limit", ["9/d", "1/s,5/d"])
def test_a_limit_of_the_day_that_is_used_up_is_told_once_a_day(look, limit):
    key, (*_, daily) = key_named("shop"), limits.parse(limit)
    used(key, daily.number - 1, limit)
    assert look(TUESDAY_NOON) == []
    used(key, daily.number)
    assert look(TUESDAY_NOON) == [used_up(daily, "2026-03-04")]
    assert look(TUESDAY_NOON + HOUR) == []
    used(key, daily.number, now=TUESDAY_NOON + DAY)
    assert look(TUESDAY_NOON + DAY) == [used_up(daily, "2026-03-05")]


def test_limits_of_a_month_and_in_parts_are_told_once_in_each(look):
    key = key_named("shop")
    used(key, 9, "9/d,9p/d,20p/mo", parts_d=9)
    assert look(TUESDAY_NOON) == [used_up(each, "2026-03-04") for each in ("9/d", "9p/d")]
    for days, told in (
        (1, [("9/d", "2026-03-05"), ("20p/mo", "2026-04-01")]),
        (2, [("9/d", "2026-03-06")]),
        (32, [("9/d", "2026-04-05"), ("20p/mo", "2026-05-01")]),
    ):
        now = TUESDAY_NOON + days * DAY
        used(key, 9, now=now, parts_d=8, parts_mo=20)
        assert look(now) == [used_up(*each) for each in told]


def test_a_limit_of_a_month_that_is_set_to_what_was_used_on_earlier_days_is_told(look):
    key = key_named("shop")
    used(key, 0, "30/mo", used_mo=20)
    assert look(TUESDAY_NOON + DAY) == []
    key.limit(limits.parse("20/mo"), TUESDAY_NOON + DAY)
    assert look(TUESDAY_NOON + DAY) == [used_up("20/mo", "2026-04-01")]


TWO_PARTS = "x" * 161


@on_both
def test_a_limit_in_parts_whose_rest_no_text_fits_is_told_once_one_was_refused(
    look, client, at, operator_sees_limits
):
    at(TUESDAY_NOON)
    secret = ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("3p/d,9/d,99p/mo"))
    send = sender(client, secret)
    accepted(send(message=TWO_PARTS))
    assert look(TUESDAY_NOON) == []
    for _ in range(2):
        assert send(message=TWO_PARTS).status_code == 429
    assert operator_sees_limits() == ["3p/d"]
    assert look(TUESDAY_NOON) == [used_up("3p/d", "2026-03-04")]
    assert look(TUESDAY_NOON + HOUR) == []
    at(TUESDAY_NOON + DAY)
    assert operator_sees_limits() == []
    accepted(send(message=TWO_PARTS))
    assert look(TUESDAY_NOON + DAY) == []
    assert send(message=TWO_PARTS).status_code == 429
    assert look(TUESDAY_NOON + DAY) == [used_up("3p/d", "2026-03-05")]


@on_both
def test_a_rest_that_was_too_small_is_none_once_the_limit_is_raised(
    client, at, operator_sees_limits
):
    at(TUESDAY_NOON)
    secret = ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("3p/d"))
    send = sender(client, secret)
    accepted(send(message=TWO_PARTS))
    assert send(message="x" * 307).status_code == 429
    assert send(message=TWO_PARTS).status_code == 429
    assert send(message="x" * 307).status_code == 429
    assert operator_sees_limits() == ["3p/d"]
    ApiKey.named("shop").limit(limits.parse("4p/d"), TUESDAY_NOON)
    assert operator_sees_limits() == []
    accepted(send(message=TWO_PARTS))
    assert operator_sees_limits() == ["4p/d"]


@on_both
def test_a_rest_that_was_too_small_stays_so_when_smaller_texts_go(client, at, operator_sees_limits):
    at(TUESDAY_NOON)
    secret = ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("9p/d"))
    send = sender(client, secret)
    for _ in range(4):
        accepted(send(message=TWO_PARTS))
    ApiKey.named("shop").limit(limits.parse("10p/d"), TUESDAY_NOON)
    assert send(message="x" * 307).status_code == 429
    accepted(send())
    assert operator_sees_limits() == ["10p/d"]


@on_both
def test_a_text_that_never_fits_says_nothing_of_what_is_used_up(client, at, operator_sees_limits):
    at(TUESDAY_NOON)
    secret = ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("2p/h,3p/d"))
    send = sender(client, secret)
    accepted(send())
    assert send(message="x" * 307).status_code == 403
    assert operator_sees_limits() == []
    accepted(send())


def test_the_default_limits_are_told_too_and_others_than_the_days_are_not(look):
    used(key_named("shop"), 5)
    used(key_named("bank"), 4, "4/h")
    told = look(TUESDAY_NOON, key_limits=limits.parse("1/s,5/d"))
    assert told == [used_up("5/d", "2026-03-04")]


# Countries


@pytest.fixture
def texts(app, at):
    """Send a text with the key shop, made at noon: `texts(LONDON, at=TUESDAY_NOON + DAY)`."""
    at(TUESDAY_NOON)
    send = sender(app.test_client(), ApiKey.issue("shop", None, TUESDAY_NOON))

    def text(*numbers, now):
        at(now)
        for number in numbers:
            accepted(send(to=number, message=f"Hello at {now}"))

    return text


@pytest.fixture
def news(look, people):
    """Look at an instant; return what was told then of countries, and the titles of it all."""

    def told(instant):
        found = [each for each in look(instant) if "for the first time" in each]
        return found, [title for title in titles(people) if title.startswith("shop texts")]

    return told


EGYPT, LEBANON = "+201001234567", "+9613123456"
EGYPT_IS_NEW = (
    "The key shop texts Egypt (EG) for the first time. If it has leaked: flask keys pause shop "
    "stops it, and flask messages cancel --key shop --country EG cancels what waits."
)


@on_both
def test_from_its_second_day_on_a_first_text_of_a_key_to_a_country_is_told_once(news, texts):
    texts(NEW_YORK, now=TUESDAY_NOON + DAY - MILLISECOND)
    assert news(TUESDAY_NOON + DAY)[0] == []
    texts(NEW_YORK, EGYPT, now=TUESDAY_NOON + DAY)
    assert news(TUESDAY_NOON + DAY) == ([EGYPT_IS_NEW], ["shop texts Egypt (EG)"])
    texts(NEW_YORK, EGYPT, now=TUESDAY_NOON + 3 * DAY)
    assert news(TUESDAY_NOON + 3 * DAY)[0] == []
    Message.delete().execute()
    texts(EGYPT, LONDON, LEBANON, now=TUESDAY_NOON + 4 * DAY)
    (told,), shown = news(TUESDAY_NOON + 4 * DAY)
    assert "texts United Kingdom (GB), Lebanon (LB) for the first time" in told
    assert shown == ["shop texts Egypt (EG)", "shop texts 2 new countries"]


def test_each_key_has_its_own_countries_and_a_rotated_one_keeps_them(news, texts, client, at):
    texts(EGYPT, now=TUESDAY_NOON)
    other = sender(client, ApiKey.issue("a b", None, TUESDAY_NOON))
    shop = sender(client, ApiKey.named("shop").rotate(TUESDAY_NOON, TUESDAY_NOON))
    at(TUESDAY_NOON + DAY)
    accepted(shop(to=EGYPT))
    assert news(TUESDAY_NOON + DAY)[0] == []
    accepted(other(to=EGYPT))
    (told,), _ = news(TUESDAY_NOON + DAY)
    assert told.startswith("The key a b texts Egypt (EG)")
    assert "flask keys pause 'a b' stops it" in told


def test_what_is_refused_is_no_text_and_a_testers_texts_go_nowhere(news, at, client):
    at(TUESDAY_NOON)
    tester = sender(client, ApiKey.issue("test", None, TUESDAY_NOON, role=Role.TESTER))
    limited = sender(client, ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("1/d")))
    at(TUESDAY_NOON + DAY)
    accepted(tester(to=EGYPT))
    accepted(limited(to=EGYPT))
    assert limited(to=LONDON).status_code == 429
    assert news(TUESDAY_NOON + DAY)[0] == [EGYPT_IS_NEW]
    assert news(TUESDAY_NOON + 2 * DAY)[0] == []


def test_what_was_new_more_than_a_day_ago_is_told_no_more(news, texts):
    texts(EGYPT, now=TUESDAY_NOON + 2 * DAY)
    assert news(TUESDAY_NOON + 3 * DAY)[0] == []


def test_a_key_that_is_revoked_by_then_is_told_of_no_more(news, texts):
    texts(EGYPT, now=TUESDAY_NOON + DAY)
    ApiKey.named("shop").revoke(TUESDAY_NOON + DAY)
    assert news(TUESDAY_NOON + DAY)[0] == []


# Several schedulers


@on_both
def test_several_schedulers_at_once_tell_each_thing_once(settings, people, at):
    at(TUESDAY_NOON)
    awaiting()
    trouble()
    used(key_named("shop"), 10, "10/d")
    for number in range(11):  # one after another, so that the others are at it, too
        fails(f"receiver {number}")
    together = threading.Barrier(4)

    def run(_):
        one = Notices(settings._replace(notify_url=people.url))
        one.start()
        together.wait(60)
        for _ in range(3):
            one.look()
        one.finish(look=True)

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(run, range(4))] == [None] * 4
    assert len(people.told) == 14, people.told


@on_both
def test_of_several_at_once_one_tells_of_a_country(database_url):
    for number in range(50):
        key = key_named(f"key {number}", now=TUESDAY_NOON - 2 * DAY)
        KeyCountry.note({(key.id, "EG"): TUESDAY_NOON})
    told = at_once(*[lambda: KeyCountry.claim_news(TUESDAY_NOON)] * 4)
    assert sum(map(len, told)) == 50


def test_of_two_who_read_the_same_one_tells_it_again(database_url):
    for told_at in (TUESDAY_NOON, TUESDAY_NOON + DAY):
        both = Notice.about("approvals"), Notice.about("approvals")
        assert [each.change(told_at=told_at) for each in both] == [True, False]


# Addresses


def test_no_notice_has_a_number_or_a_text_nor_has_a_title(look, people):
    awaiting(message="attack at dawn")
    hear("xyzzy stop", TUESDAY_NOON)
    trouble()
    assert len(look(TUESDAY_NOON)) == 3
    assert [each for each in (NEW_YORK[1:], "dawn", "xyzzy") if each in str(people.requests)] == []


@pytest.mark.slow
def test_every_address_is_told_also_beside_one_that_is_gone_and_one_that_drips(
    look, people, caplog, monkeypatch
):
    monkeypatch.setattr(notices, "PATIENCE", 3)
    awaiting()
    for dripping in playing(People):
        dripping.answer = DRIP
        gone = "json://user:s3cret@127.0.0.1:9/notices"
        urls = f" {gone}\n {dripping.url} {people.url}"
        assert len(look(TUESDAY_NOON, notify_url=urls)) == 1
        assert len(dripping.told) == 1
    assert caplog.messages == ["address 1 of NOTIFY_URL (json://) did not take a notice"]


def test_an_address_that_fails_is_logged_once_an_hour_over_all_schedulers(look, people, caplog):
    people.answer = Answer(500)
    used(key_named("a"), 10, "10/d")
    used(key_named("b"), 10, "10/d")
    assert len(look(TUESDAY_NOON)) == 2
    assert len(caplog.messages) == 1
    awaiting()
    assert len(look(TUESDAY_NOON + HOUR - MINUTE)) == 3, "the first two, again"
    assert len(caplog.messages) == 1
    awaiting(now=TUESDAY_NOON + HOUR)
    assert len(look(TUESDAY_NOON + HOUR + 14 * MINUTE)) == 3
    assert len(caplog.messages) == 2
    assert "s3cret" not in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@on_both
def test_a_notice_that_fails_is_tried_after_half_a_minute_and_after_two(look, people):
    used(key_named("shop"), 10, "10/d")
    people.answer = Answer(500)
    again = TUESDAY_NOON + MINUTE / 2
    (told,) = look(TUESDAY_NOON)
    assert look(again - MILLISECOND) == []
    assert look(again) == [told]
    assert look(again + 2 * MINUTE - MILLISECOND) == []
    assert look(again + 2 * MINUTE) == [told]
    assert look(again + HOUR) == []
    assert OutgoingNotice.select().count() == 0


def test_a_notice_that_was_accepted_at_last_is_sent_no_more(look, people):
    used(key_named("shop"), 10, "10/d")
    people.answer = Answer(500)
    (told,) = look(TUESDAY_NOON)
    people.answer = Answer()
    assert look(TUESDAY_NOON + MINUTE) == [told]
    assert look(TUESDAY_NOON + 5 * MINUTE) == []


def test_only_the_address_that_failed_is_told_again(look, people):
    trouble()
    for other in playing(People):
        other.answer = Answer(500)
        both = f"{people.url} {other.url}"
        assert len(look(TUESDAY_NOON, notify_url=both)) == len(other.told) == 1
        assert look(TUESDAY_NOON + MINUTE, notify_url=both) == []
        assert len(other.told) == 2


def test_that_it_is_over_replaces_the_notice_that_did_not_go_out(look, people):
    trouble()
    people.answer = Answer(500)
    look(TUESDAY_NOON)
    well()
    people.answer = Answer()
    (told,) = look(TUESDAY_NOON + MINUTE)
    assert told.endswith("is over: carrier twilio refuses the account.")
    assert look(TUESDAY_NOON + 2 * MINUTE) == []


def test_what_replaces_a_notice_that_failed_has_all_its_tries(look, people):
    trouble()
    people.answer = Answer(500)
    for minutes in (0, 1):
        assert len(look(TUESDAY_NOON + minutes * MINUTE)) == 1
    well()
    CarrierState.record_pass(TUESDAY_NOON + HOUR, {"twilio": []})
    (told,) = look(TUESDAY_NOON + 2 * MINUTE)
    assert told.endswith("is over: carrier twilio refuses the account.")
    assert look(TUESDAY_NOON + 3 * MINUTE) == look(TUESDAY_NOON + 6 * MINUTE) == [told]
    assert look(TUESDAY_NOON + HOUR) == []


@pytest.mark.parametrize("end", ["end", "put_off"])
def test_what_replaces_a_notice_while_that_is_being_sent_goes_at_once(look, end):
    """However that ends."""
    for text in ("A", "B"):
        notice = Notification("title", text, "warning", "subject")
        OutgoingNotice.write([1], TUESDAY_NOON, 0, notice)
        if text == "A":
            sent = OutgoingNotice.claim(1, TUESDAY_NOON)
    sent.end() if end == "end" else sent.put_off(TUESDAY_NOON)
    assert look(TUESDAY_NOON) == ["B"]


@on_both
def test_of_several_schedulers_one_tries_again(settings, people, at):
    at(TUESDAY_NOON)
    for number in range(5):
        fails(f"receiver {number}")
    people.answer = Answer(500)
    schedulers = [Notices(settings._replace(notify_url=people.url)) for _ in range(4)]
    for each in schedulers:
        each.start()
    schedulers[0].look()
    failed = OutgoingNotice.next_try_at == TUESDAY_NOON + MINUTE / 2
    wait_until(lambda: OutgoingNotice.select().where(failed).count() == 5)
    people.answer = Answer()
    at(TUESDAY_NOON + MINUTE)
    at_once(*[each.look for each in schedulers])
    for each in schedulers:
        each.finish(look=True)
    assert len(people.told) == 10


def test_what_could_not_be_kept_is_noticed_again(settings, database_url):
    """It is recorded as noticed in the transaction that has it sent."""
    trouble()
    KeyCountry.note({(key_named("shop", now=TUESDAY_NOON - 2 * DAY).id, "EG"): TUESDAY_NOON})
    kept = []

    def look(*taken):
        def keep(notification):
            if notification.kind not in taken:
                raise OperationalError("the disk is full")
            kept.append(notification.kind)

        [*notices.pending(settings, TUESDAY_NOON, keep)]

    for taken in ((), ("warning",)):  # of a country; then of the carrier
        with pytest.raises(OperationalError):
            look(*taken)
    for _ in range(2):
        look("warning", "failure")
    assert kept == ["warning", "failure"]


def test_a_notice_whose_scheduler_died_is_sent_by_another(look, people):
    trouble()
    OutgoingNotice.write([1], TUESDAY_NOON, 0, Notification("A", "B", "warning", "C"))
    assert OutgoingNotice.claim(1, TUESDAY_NOON)
    assert "B" not in look(TUESDAY_NOON + LEASE - MILLISECOND)
    assert look(TUESDAY_NOON + LEASE) == ["B"]


def test_a_notice_of_an_address_that_is_gone_is_forgotten(look):
    OutgoingNotice.write([2], TUESDAY_NOON, 0, Notification("A", "B", "warning", "C"))
    assert look(TUESDAY_NOON + DAY) == []
    assert OutgoingNotice.select().count() == 1
    assert look(TUESDAY_NOON + DAY + MILLISECOND) == []
    assert OutgoingNotice.select().count() == 0


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        *(("s3cret", ""), ("nosuch://s3cret@host", " (nosuch://)"), ("json://", " (json://)")),
        *(("tgram://s3cret/", " (tgram://)"), ("s3cret json://x", ""), ("s3cret:x", "")),
        ("s3cret@x://y", ""),
    ],
)
def test_of_an_address_that_apprise_does_not_take_only_the_scheme_is_shown(
    settings, url, scheme, caplog, capfd
):
    with pytest.raises(ValueError, match=r"^Apprise does not know address") as refused:
        notices.connect(settings._replace(notify_url=url))
    assert str(refused.value) == f"Apprise does not know address 1{scheme}"
    assert "s3cret" not in caplog.text + "".join(capfd.readouterr())


def test_a_database_that_is_away_stops_nothing(settings, people, caplog, monkeypatch):
    one = Notices(settings._replace(notify_url=people.url))
    one.start()
    db.execute_sql("ALTER TABLE notice RENAME TO away")
    try:
        one.look()
    finally:
        db.execute_sql("ALTER TABLE away RENAME TO notice")
    trouble()
    one.finish(look=True)
    assert len(people.told) == 2


def test_without_addresses_nobody_looks(settings, monkeypatch):
    trouble()
    one = Notices(settings)
    one.start()
    one.finish(look=True)
    assert Notice.select().count() == 0


def test_a_scheduler_names_no_key_that_is_revoked(look):
    key = key_named("shop")
    used(key, 10, "10/d")
    ApiKey.update(revoked_at=TUESDAY_NOON).where(ApiKey.id == key.id).execute()
    assert look(TUESDAY_NOON) == []


# Replies


def hear(text, now, number=NEW_YORK):
    inbound.record(
        [IncomingText(number, text)], now, inbound.ReplyRules("fake", "asked", None, None)
    )


def test_people_are_told_how_many_replies_wait_and_how_many_may_be_a_no(look):
    hear("STOP", TUESDAY_NOON, LONDON)
    assert look(TUESDAY_NOON) == [], "it joined the list, and waits for nobody"
    for text in ("Yes", "stpo", "don't stop"):
        hear(text, TUESDAY_NOON)
    desk = {"public_url": "https://texts.example.com/staging", "secret_key": "x" * 8}
    assert look(TUESDAY_NOON, **desk) == [
        "3 replies wait to be read; 2 may be opting out. "
        "https://texts.example.com/staging/desk/replies"
    ]
    assert look(LATER) == []
    replies.Reply.mark_read([each.id for each in replies.Reply.select()], "Ann", LATER)
    assert look(LATER) == []
    hear("Well", LATER)
    assert look(LATER) == ["1 reply waits to be read."]
