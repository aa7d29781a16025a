"""What is unusual for a key waits for approval: its parts to a country, on a day of UTC."""

import json
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from acceptance.decisions import Request
from acceptance.storage import insert_all
from access.keys import ApiKey, Role
from access.usual import KeyDay
from answers import accepted, sender
from app import create_app
from database import EPOCH, clock, db
from databases import on_both
from models import Message, new_id
from own_threads import begin
from samples import ALWAYS_OPEN, DAY, LONDON, MILLISECOND, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import decide_on, new_message

pytestmark = on_both

NUMBER = count()
NUMBERS = {"US": NEW_YORK, "GB": LONDON}
UNUSUAL = "once it is approved; it waits for approval: unusual for this key."


@pytest.fixture
def shop(settings):
    """Create an application that holds what is odd; return how its key sends texts."""
    return sender_of(create_app(settings._replace(**ALWAYS_OPEN, hold_odd=True)), "shop")


def sender_of(app, name, role=Role.SENDER):
    """Make a key; return `send(parts, country)`, which returns the answer."""
    secret = ApiKey.issue(name, None, clock.now(), role=role)

    def send(parts=1, country="US", repeat=None, **options):
        text = "x" * (160 if parts == 1 else 153 * parts)
        post = sender(send.app.test_client(), secret)
        return accepted(post(repeat, to=NUMBERS[country], message=text, **options))

    send.app, send.key = app, ApiKey.named(name)
    return send


def is_held(answer):
    """Say whether a text waits because it is odd; the answer and the row must say the same."""
    message = Message.get_by_id(answer["message_id"])
    held = message.held_because is not None
    assert held == answer["message"].endswith(UNUSUAL)
    assert not held or (answer["manual_mode"] and message.manual_mode and not message.approved)
    return held


def send_many(send, parts, country="US"):
    """Send texts of ten parts, and of one; return how many parts went unhindered."""
    sizes = [10] * (parts // 10) + [1] * (parts % 10)
    return sum(size for size in sizes if not is_held(send(size, country)))


# What is odd


def test_the_first_twenty_parts_of_a_new_key_to_a_country_go(shop):
    assert send_many(shop, 20) == 20
    answer = shop()
    assert answer["status"] == "queued"
    assert answer["can_send_now"]
    assert answer["manual_mode"] is True
    assert answer["message"] == f"Text message queued for immediate sending {UNUSUAL}"
    assert Message.get_by_id(answer["message_id"]).held_because == (
        "21 parts to United States today, at most 0 on a day before"
    )
    assert send_many(shop, 20, "GB") == 20


@pytest.mark.parametrize(("days", "goes"), [(1, 90), (14, 90), (15, 20)])
def test_three_times_the_most_of_fourteen_days_goes(shop, at, days, goes):
    assert send_many(shop, 20) == 20
    approve_all(shop())
    at(clock.now() + DAY)
    assert send_many(shop, 30) == 30
    at(clock.now() + days * DAY)
    assert send_many(shop, goes) == goes
    assert is_held(shop())


def test_a_day_is_one_of_utc(shop, at):
    midnight = TUESDAY_NOON.replace(hour=0) + DAY
    at(midnight - MILLISECOND)
    assert send_many(shop, 20) == 20
    assert is_held(shop())
    at(midnight)
    assert send_many(shop, 60) == 60
    assert is_held(shop())


def test_a_scheduled_text_is_judged_by_the_day_of_its_request(shop):
    later = {"send_date": "2026-03-09T17:00:00Z"}
    assert all(not is_held(shop(10, **later)) for _ in range(2))
    answer = shop(1, **later)
    assert is_held(answer)
    assert answer["message"] == f"Text message scheduled for 2026-03-09T17:00:00.000Z {UNUSUAL}"


def test_a_repeated_request_gets_the_same_answer_and_counts_once(shop):
    assert send_many(shop, 19) == 19
    first = shop(1, repeat="a")
    assert not is_held(first)
    held = shop(1, repeat="b")
    assert is_held(held)
    assert shop(1, repeat="a") == first
    assert shop(1, repeat="b") == held


def test_texts_of_testers_are_never_odd(settings):
    app = create_app(settings._replace(**ALWAYS_OPEN, hold_odd=True))
    assert send_many(sender_of(app, "test", Role.TESTER), 50) == 50


# For whom


@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("rule", ["yes", "no", "default"])
def test_the_rule_of_a_key_stands_in_place_of_the_setting(settings, run, setting, rule):
    send = sender_of(create_app(settings._replace(**ALWAYS_OPEN, hold_odd=setting)), "shop")
    assert f"hold-odd: {rule}\n" in run("keys", "rules", "shop", "--hold-odd", rule)
    (told,) = json.loads(run("keys", "list", "--json"))
    assert told["rules"]["hold_odd"] == {"yes": True, "no": False, "default": None}[rule]
    is_on = setting if rule == "default" else rule == "yes"
    assert send_many(send, 40) == (20 if is_on else 40)
    assert KeyDay.select().exists() == is_on


def test_what_was_sent_before_it_was_asked_for_is_usual(settings, at):
    """Of any day of the fourteen before, and of today; not what waits, or was kept back."""
    at(TUESDAY_NOON - 14 * DAY)
    send = sender_of(create_app(settings._replace(**ALWAYS_OPEN)), "shop")
    for country in NUMBERS:
        assert send_many(send, 30, country) == 30
    assert not is_held(send(10, manual_mode=True))
    decide_on(Message.find(send(10)["message_id"])).cancel("shell", clock.now())
    at(TUESDAY_NOON)
    assert send_many(send, 80) == 80
    at(TUESDAY_NOON + SECOND)
    send.key.rule({"hold_odd": True}, clock.now())
    assert send_many(send, 10) == 10
    assert is_held(send())
    assert send_many(send, 90, "GB") == 90
    assert is_held(send(1, "GB"))


@pytest.mark.parametrize("again", ["yes", "default"])
def test_what_was_sent_while_it_was_not_asked_for_counts(shop, run, at, again):
    """Today, and tomorrow as a day before, also to a country that was not texted before."""
    assert send_many(shop, 10) == 10
    run("keys", "rules", "shop", "--hold-odd", "no")
    assert [send_many(shop, 90, country) for country in NUMBERS] == [90, 90]
    run("keys", "rules", "shop", "--hold-odd", again)
    assert [is_held(shop(1, country)) for country in NUMBERS] == [True, True]
    at(TUESDAY_NOON + DAY)
    assert [send_many(shop, 310, country) for country in NUMBERS] == [300, 270]


def test_what_people_approve_later_counts_on_the_day_on_which_it_was_not_asked_for(shop, run, at):
    run("keys", "rules", "shop", "--hold-odd", "no")
    waiting = shop(10, "GB", manual_mode=True)
    run("keys", "rules", "shop", "--hold-odd", "yes")
    assert send_many(shop, 1) == 1
    approve_all(waiting)
    at(TUESDAY_NOON + DAY)
    assert send_many(shop, 31, "GB") == 30


# In any mix


def approve_all(*answers):
    for each in answers:
        assert decide_on(Message.find(each["message_id"])).decide(True, "shell", clock.now())


class Model:
    """What was sent, what people decided of it, and whether what is odd is held."""

    def __init__(self):
        self.texts, self.holds = [], True

    def counted(self, country, day, by="day"):
        """Count the parts to a country that were sent on a day, or approved on it."""
        mine = (each for each in self.texts if each["counts"] and each["country"] == country)
        return sum(each["parts"] for each in mine if each[by] == day)

    def is_odd(self, country, parts, day):
        of_days = [self.counted(country, other) for other in range(day - 14, day + 1)]
        approved = self.counted(country, day, "approved")
        total = of_days.pop() + parts
        return self.holds and total > 20 and total > 3 * max(*of_days, approved)


STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([1, 2, 10]), st.sampled_from(["US", "US", "GB"])),
    st.tuples(st.just("send"), st.sampled_from([9, 10]), st.just("US")),
    st.tuples(st.just("ask"), st.sampled_from([1, 10]), st.just("US")),
    st.tuples(
        st.sampled_from(["yes", "no", "cancel", "undo", "undo"]), st.integers(0, 30), st.none()
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 1, 3, 14, 15]), st.none()),
    st.tuples(st.just("hold"), st.booleans(), st.none()),
)


@hypothesis_settings(database=None, derandomize=True, max_examples=40)
@given(steps=st.lists(STEPS, min_size=10, max_size=40))
def test_any_mix_of_texts_decisions_and_days_is_judged_as_by_counting(shop, at, steps):
    send, model = sender_of(shop.app, f"key {next(NUMBER)}"), Model()
    for what, number, country in steps:
        now = clock.now()
        day = (now - EPOCH).days
        if what in ("send", "ask"):
            odd = model.is_odd(country, number, day)
            answer = send(number, country, manual_mode=what == "ask")
            assert is_held(answer) == odd
            counts = not answer["manual_mode"]
            text = {"id": answer["message_id"], "country": country, "parts": number, "day": day}
            model.texts.append(text | {"counts": counts, "approved": None, "undo": None})
        elif what == "wait":
            at(now + number * DAY)
        elif what == "hold":
            model.holds = number
            send.key.rule({"hold_odd": number}, now)
        elif model.texts:
            text = model.texts[number % len(model.texts)]
            decided = [each for each in model.texts if each["undo"]]
            decide(decided[-1] if what == "undo" and decided else text, what, now, day)
        for row in KeyDay.select().where(KeyDay.key_id == send.key.id):
            assert row.parts == model.counted(row.country, row.day)


def decide(text, what, now, day):
    """Have a person decide about a text, or undo that, and the model know."""
    message, before = Message.find(text["id"]), {n: text[n] for n in ("counts", "approved")}
    if what == "undo" and text["undo"]:
        these = decide_on(message)
        undo = these.undo_approval if text["undo"] == "yes" else these.undo_cancel
        if undo("shell", now):
            text.update({"undo": None} | text["was"])
    elif what == "cancel" and decide_on(message).cancel("shell", now):
        text.update(counts=False, undo="cancel", was=before)
    elif what in ("yes", "no") and decide_on(message).decide(what == "yes", "shell", now):
        yes = what == "yes"
        text.update(counts=yes, approved=day if yes else None, undo=what, was=before)


def test_what_comes_together_is_judged_one_after_the_other(shop, at):
    assert send_many(shop, 20) == 20
    at(clock.now() + DAY)
    stored = insert_all(
        [
            Request(new_message(key=shop.key.id, parts=10, id=new_id(clock.now())), hold_odd=True)
            for _ in range(8)
        ]
    )
    assert [each.held_because for each in stored] == [None] * 6 + [
        "70 parts to United States today, at most 20 on a day before"
    ] * 2


def test_a_text_in_doubt_that_is_cancelled_twice_counts_less_once(shop, at):
    first, text = shop(10), shop(5)
    Message.update(in_doubt=1).where(Message.id == text["message_id"]).execute()
    message = Message.find(text["message_id"])
    assert decide_on(message).cancel("Ann", clock.now())
    assert decide_on(message).cancel("Olga", clock.now())
    assert KeyDay.get().parts == 10
    assert decide_on(message).undo_cancel("Olga", clock.now())
    assert KeyDay.get().parts == 15
    assert not is_held(first)


def test_what_people_approve_beside_the_first_text_counts(shop, run, at):
    """The days of a key are counted when its first text comes."""
    run("keys", "rules", "shop", "--hold-odd", "no")
    waiting = shop(10, "GB", manual_mode=True)
    run("keys", "rules", "shop", "--hold-odd", "yes")
    first = [Request(new_message(key=shop.key.id), hold_odd=True)]
    with ThreadPoolExecutor(1) as threads:
        with db.transaction():
            approve_all(waiting)
            beside = begin(threads, insert_all, first)
            wait([beside], timeout=0.5)  # it waits, or has counted too early
        beside.result()
    at(TUESDAY_NOON + DAY)
    assert send_many(shop, 31, "GB") == 30


def test_of_many_at_once_none_is_one_too_many(shop, database_url):
    def send_one(n):
        with closing(db):
            return is_held(shop())

    with ThreadPoolExecutor(15) as pool:
        held = [*pool.map(send_one, range(30))]
    assert held.count(False) == 20
    assert KeyDay.get().parts == 20


def test_several_people_and_texts_at_once_count_each_once(shop, database_url):
    waiting = [shop(10, manual_mode=True) for _ in range(12)]

    def act(n):
        with closing(db):
            if n % 2:
                approve_all(waiting[n // 2])
            else:
                decide_on(Message.find(shop(1)["message_id"])).cancel("shell", clock.now())

    assert not is_held(shop())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(24)))
    counted = 1 + 120
    assert KeyDay.get().parts == counted
