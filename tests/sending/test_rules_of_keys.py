"""The rules of a key and of the recipient's place: in the answer, at the desk, in the sender."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from answers import accepted, problems, refusal, sender
from app import create_app
from databases import on_both
from desk_visitor import Visitor, issue
from places import QUIET_PLACES, SILENCES
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, statuses, store, store_many
from texting import recipients as names
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey, Role
from texting.access.rules import CHECKS
from texting.database import clock, db, isoformat
from texting.messages import waiting
from texting.messages.model import Message, Status
from texting.recipients.hours import written
from texting.sending.carrier_state import CarrierState
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT

pytestmark = on_both

PLACES = {
    "business_hours": (0, 1440),
    "quiet_hours": (22 * 60, 6 * 60),
    "quiet_hours_file": QUIET_PLACES,
}
THREE_AM = datetime(2026, 3, 4, 8, tzinfo=UTC)  # a Wednesday in New York
NINE_AM = datetime(2026, 3, 4, 14, tzinfo=UTC)
places = pytest.mark.parametrize("place", SILENCES)


def rule(name, **changes):
    """Set rules of a key, as the command does."""
    key_named(name).rule(changes, clock.now())


@pytest.fixture
def ask(settings, key):
    """Send a request under settings with quiet hours of places."""
    return sender(create_app(settings._replace(**PLACES)).test_client(), key)


# By place: the API, the desk and the sender


@places
def test_a_text_that_is_asked_for_in_quiet_hours_is_scheduled_for_their_end(place, ask, at):
    to, quiet, end, _ = SILENCES[place]
    at(quiet)
    body = accepted(ask(to=to))
    assert (body["status"], body["within_business_hours"]) == ("scheduled", False)
    assert body["scheduled_send_date"] == isoformat(end)
    at(end)
    assert accepted(ask(to=to))["status"] == "queued"


@places
def test_a_send_date_in_quiet_hours_is_refused_with_their_rule(place, ask, at):
    to, quiet, end, rule = SILENCES[place]
    at(quiet - 300 * DAY)
    (problem,) = problems(ask(to=to, send_date=isoformat(quiet)))
    name = rule.partition(" until ")[0]
    assert problem.startswith(f"send_date: must not be in {name}, ")
    assert problem.endswith(f"the first instant after them is {isoformat(end)}")
    assert accepted(ask(to=to, send_date=isoformat(end)))["scheduled_send_date"] == isoformat(end)


@pytest.mark.slow
@places
@pytest.mark.parametrize("approved", [True, False])
def test_the_desk_and_show_tell_when_it_would_leave_and_by_which_rule(
    place, approved, settings, at, run_pass, carrier
):
    to, quiet, end, rule = SILENCES[place]
    at(quiet)
    app = create_app(settings._replace(**PLACES, secret_key="k" * 32))
    visitor, secret, before = Visitor(app), issue("Olga", role=Role.OPERATOR), quiet - MINUTE
    visitor.sign_in(secret)
    message = store(to=to, now=before, manual_mode=True, approved=approved, first_send_at=before)
    visitor.open(f"/desk/messages/{message.id}")
    name, _, local = rule.partition(" until ")
    there = f"{local.partition(',')[0]} in {names.location(names.find(to)).partition(',')[0]}"
    assert f"Waits until {there}: {name} · {written(end)} UTC" in visitor.page.text
    result = app.test_cli_runner().invoke(args=["messages", "show", str(message.id)])
    assert json.loads(result.stdout)["waits_for"] == (
        rule if approved else "approval by an operator"
    )
    run_pass(quiet, **PLACES)
    at(end)
    CarrierState.record_pass(end, {"twilio": []})
    visitor = Visitor(app)
    visitor.sign_in(secret)
    visitor.open(f"/desk/messages/{message.id}")
    assert "Sends at once" in visitor.page.text
    assert "quiet hours" not in visitor.page.text


@pytest.mark.slow
@places
@pytest.mark.parametrize("dated", [True, False])
def test_a_text_that_was_held_up_leaves_when_the_quiet_hours_end(
    place, dated, run_pass, carrier, caplog
):
    to, quiet, end, rule = SILENCES[place]
    caplog.set_level("INFO")
    send_date = quiet - 10 * MINUTE if dated else None
    message = store(to=to, now=quiet, send_date=send_date, first_send_at=quiet)
    assert +run_pass(quiet, **PLACES) == Counter({"rescheduled": 1})
    assert again(message).send_at == end
    assert f"message {message.id} rescheduled: {rule}" in caplog.messages
    run_pass(end - timedelta(milliseconds=1), **PLACES)
    assert carrier.texts == []
    run_pass(end, **PLACES)
    assert carrier.numbers == [to]


# By key


@pytest.mark.parametrize(
    ("rules", "opens"),
    [
        ({}, "2026-03-04T14:00:00.000Z"),
        ({"hours": "10:00-12:00"}, "2026-03-04T15:00:00.000Z"),
        ({"hours": "thu 18:00-19:00"}, "2026-03-05T23:00:00.000Z"),
        ({"quiet_hours": "20:00-11:30"}, "2026-03-04T16:30:00.000Z"),
        ({"hours": "00:00-24:00", "quiet_hours": "tue 21:00-06:15"}, "2026-03-04T11:15:00.000Z"),
        ({"hours": "00:00-24:00"}, "2026-03-04T13:00:00.000Z"),  # of the place
        ({"hours": "00:00-24:00", "quiet_hours": "none"}, None),
    ],
)
def test_the_keys_own_rules_stand_in_place_of_settings(rules, opens, post_with, at):
    at(THREE_AM)
    if rules:
        rule("app", **rules)
    changes = PLACES | {"business_hours": (540, 1020)}
    body = accepted(post_with(**changes))
    assert body["status"] == ("scheduled" if opens else "queued")
    assert body["scheduled_send_date"] == (opens or isoformat(THREE_AM))


def test_a_keys_own_hours_stand_in_place_of_the_countrys_working_week(post_with, at):
    saturday = datetime(2026, 3, 7, 16, tzinfo=UTC)  # 11:00 in New York
    at(saturday)

    def ask():
        return accepted(post_with(business_days=None))

    assert ask()["scheduled_send_date"] == "2026-03-09T13:00:00.000Z"
    rule("app", hours="sat 10:00-14:00")
    assert ask()["status"] == "queued"
    rule("app", hours="10:00-14:00")
    assert ask()["status"] == "queued"


def test_a_keys_own_quiet_hours_are_named_where_a_send_date_is_refused(ask, at, key):
    at(TUESDAY_NOON)
    rule("app", quiet_hours="13:00-14:00")
    (problem,) = problems(ask(send_date="2026-03-03T18:30Z"))
    assert "quiet hours of the key, 1:00 PM - 2:00 PM local time" in problem
    rule("app", quiet_hours="none")
    accepted(ask(send_date=isoformat(THREE_AM)))
    rule("app", quiet_hours=None)
    (problem,) = problems(ask(send_date=isoformat(THREE_AM)))
    assert "quiet hours of United States" in problem


@pytest.mark.parametrize("send_date", [None, THREE_AM])
def test_a_change_holds_for_what_waits_when_its_time_comes(send_date, run_pass, carrier, key, at):
    """What is scheduled keeps its time."""
    at(THREE_AM - HOUR)
    rule("app", hours="00:00-24:00", quiet_hours="none")
    message = store(
        status=Status.SCHEDULED, send_at=THREE_AM, first_send_at=THREE_AM, send_date=send_date
    )
    rule("app", quiet_hours="21:00-08:00")
    assert again(message).send_at == THREE_AM
    assert +run_pass(THREE_AM) == Counter({"promoted": 1, "rescheduled": 1})
    assert again(message).send_at == datetime(2026, 3, 4, 13, tzinfo=UTC)
    rule("app", hours="09:00-17:00", quiet_hours=None)
    assert +run_pass(NINE_AM - HOUR) == Counter({"promoted": 1, "rescheduled": 1})
    assert again(message).send_at == NINE_AM
    run_pass(NINE_AM)
    assert carrier.numbers == [NEW_YORK]


def test_one_senders_texts_keep_to_the_rules_of_their_own_keys(run_pass, carrier, at):
    """Every mix of rules in one claim."""
    at(THREE_AM)
    mixes = {
        "none": {},
        "night": {"hours": "00:00-24:00"},
        "silent": {"hours": "00:00-24:00", "quiet_hours": "21:00-08:00"},
        "morning": {"hours": "09:00-10:00"},
        "short": {"hours": "00:00-24:00", "expire_after": "10m"},
        "listed": {"hours": "00:00-24:00", "check_dnc": "always"},
        "asked": {"hours": "00:00-24:00", "check_dnc": "asked"},
    }
    DoNotCall.add(["+12125550101"], THREE_AM, "operator")
    for name, rules in mixes.items():
        key_named(name)
        if rules:
            rule(name, **rules)
        for to in (NEW_YORK, "+12125550101"):
            store(key=key_named(name), to=to, message=name, first_send_at=THREE_AM - HOUR)
    counts = run_pass(THREE_AM, send_concurrency=32)
    given = sorted(text for _, text in carrier.texts)
    assert given == ["asked", "asked", "listed", "night", "night"]
    assert +counts == Counter({"sent": 5, "rescheduled": 6, "expired": 2, "blocked": 1})


# Countries


LONDONER, AMERICAN, CANADIAN = "+442083661177", NEW_YORK, "+14165550123"
OF = {LONDONER: "GB", AMERICAN: "US", CANADIAN: "CA"}
REACHED = [
    (None, None, {"GB", "US", "CA"}),
    (None, "GB,CA", {"GB", "CA"}),
    (None, "all", {"GB", "US", "CA"}),
    ({"US"}, None, {"US"}),
    ({"US"}, "GB", {"GB"}),
    ({"US"}, "all", {"GB", "US", "CA"}),
]
"""ALLOWED_COUNTRIES, the rule of a key, and where its texts may go."""


@pytest.mark.parametrize(("setting", "own", "reached"), REACHED)
def test_a_keys_countries_stand_in_place_of_allowed_countries(
    setting, own, reached, settings, key, at, run_pass, carrier
):
    """When a text is asked for, and before it is sent; beside a key without a rule."""
    now = TUESDAY_NOON - HOUR  # when London is open, too
    at(now)
    changes = {"allowed_countries": setting and frozenset(setting)}
    ApiKey.issue("other", None, now)
    if own:
        rule("app", countries=own)
    client = create_app(settings._replace(**changes)).test_client()
    expected = Counter()
    for to, country in OF.items():
        response = sender(client, key)(to=to)
        if country in reached:
            accepted(response)
            expected[to] += 1
        else:
            refusal(response, 403)
            of_key = " for this key" if own else ""
            name = names.country_name(country)
            assert response.json["message"] == (
                f"Texts to this country are not allowed{of_key}: {name}."
            )
        for name, countries in (("app", reached), ("other", setting or OF.values())):
            store(now, to=to, country=country, key=key_named(name))
            expected[to] += country in countries
    run_pass(now, **changes)
    assert Counter(carrier.numbers) == +expected
    failed = Message.select().where(Message.status == Status.FAILED)
    assert failed.count() == Message.select().count() - expected.total()
    for each in failed:
        assert each.last_error == f"texts to {names.country_name(each.country)} are not allowed"


@pytest.mark.parametrize("dated", [True, False])
def test_what_waits_for_a_country_that_is_not_allowed_any_more_fails_when_its_time_comes(
    dated, run_pass, carrier, key, at, run, settings
):
    """The desk says so before, and a person can send it again once the rule allows it."""
    at(TUESDAY_NOON)
    later = TUESDAY_NOON + MINUTE
    send_date = later if dated else None
    message = store(status=Status.SCHEDULED, send_at=later, send_date=send_date)
    app = create_app(settings._replace(secret_key="k" * 32))
    visitor, secret = Visitor(app), issue("Olga", role=Role.OPERATOR)
    visitor.sign_in(secret)
    refused = "Will not be sent: texts to this country are not allowed for its key"
    for countries, is_refused in (("US", False), ("CA", True), ("all", False), ("CA,GB", True)):
        rule("app", countries=countries)
        visitor.open(f"/desk/messages/{message.id}")
        assert (refused in visitor.page.text) == is_refused
        run_pass(TUESDAY_NOON)
        assert again(message).status == Status.SCHEDULED
    assert +run_pass(later) == Counter({"promoted": 1, "failed": 1})
    assert again(message).last_error == "texts to United States are not allowed"
    at(later)
    rule("app", countries="CA,US")
    run("messages", "retry", str(message.id))
    run_pass(later + HOUR)
    assert carrier.numbers == [NEW_YORK]


def test_what_answers_a_reply_goes_whatever_countries_are_allowed(run_pass, carrier, key):
    """It goes back to a number that has just written."""
    rule("app", countries="CA")
    store(auto_reply_to="STOP", expires_at=TUESDAY_NOON + MINUTE)
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]


def test_a_text_in_doubt_to_a_country_not_allowed_any_more_may_have_been_taken(
    run_pass, carrier, key
):
    rule("app", countries="CA")
    message = store(in_doubt=1, carrier="twilio")
    run_pass(TUESDAY_NOON + HOUR)
    assert carrier.texts == []
    assert again(message).last_error == (
        f"texts to United States are not allowed; {MAY_HAVE_TAKEN_IT}"
    )


# The Do Not Call list


LISTED = {"people": ["operator"], "themselves": ["reply"], "carrier": ["carrier"]}
LISTED |= {"both": ["operator", "reply"], "both again": ["reply", "import"], "nobody": []}
LISTED |= {"themselves, people say": ["opted out"]}
"""Who put a number on the list, in this order."""


@pytest.mark.parametrize("setting", CHECKS)
@pytest.mark.parametrize("own", [None, *CHECKS])
def test_the_list_keeps_texts_off_by_the_rule_of_the_key_at_each_step(
    setting, own, settings, key, at, run_pass
):
    at(TUESDAY_NOON)
    check = own or setting
    if own:
        rule("app", check_dnc=own)
    client = create_app(settings._replace(check_dnc=setting)).test_client()
    due = {"send_at": TUESDAY_NOON, "status": Status.SCHEDULED}
    kept_off = {}
    for number, (who, asked) in enumerate(product(LISTED, [True, False]), 12125550100):
        to, has_opted_out = f"+{number}", who not in ("people", "nobody")
        waits, stopped = store(to=to, check_dnc=asked, **due), store(to=to, check_dnc=asked, **due)
        for source in LISTED[who]:
            which = DoNotCall if source in ("operator", "import") else OptedOut
            which.add([to], TUESDAY_NOON, source.replace("opted out", "operator"))
        is_kept_off = asked or check == "always" or (has_opted_out and check == "opted-out")
        kept_off[to] = who != "nobody" and is_kept_off
        response = sender(client, key)(to=to, check_dnc=asked)
        if not kept_off[to]:
            assert accepted(response)["check_dnc"] is (asked or check == "always")
        else:
            refusal(response, 403)
            says_why = has_opted_out and check == "opted-out"
            why = "has opted out of texts" if says_why else "is on the Do Not Call list"
            assert response.json["message"] == f"The recipient {why}."
        if has_opted_out:
            waiting.block_number(to, TUESDAY_NOON, setting)
            assert (again(stopped).status == Status.BLOCKED) == kept_off[to]
        Message.update(status=Status.SCHEDULED).where(Message.id == waits.id).execute()
    Message.delete().where(Message.status == Status.BLOCKED).execute()
    waiting.promote(TUESDAY_NOON, check_dnc=setting)
    queued = {each.to for each in Message.select().where(Message.status == Status.QUEUED)}
    assert queued == {to for to in kept_off if not kept_off[to]}
    Message.update(status=Status.QUEUED, finished_at=None).execute()
    run_pass(TUESDAY_NOON, check_dnc=setting)
    assert {each.to for each in Message.select() if each.status == Status.SENT} == queued
    assert {each.to for each in Message.select() if each.status == Status.BLOCKED} == {
        to for to in kept_off if kept_off[to]
    }


def test_what_was_answered_as_checked_stays_checked(post, at, run_pass):
    at(TUESDAY_NOON)
    rule("app", check_dnc="always")
    body = accepted(post())
    rule("app", check_dnc="asked")
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    run_pass(TUESDAY_NOON)
    assert Message.get_by_id(body["message_id"]).status == Status.BLOCKED


# Expiry


@pytest.mark.parametrize(
    ("own", "lasts"),
    [(None, 72 * HOUR), ("10m", 10 * MINUTE), ("100h", 100 * HOUR), ("9d", 9 * DAY)],
)
def test_a_text_expires_by_the_rule_of_its_key_at_each_step(own, lasts, run_pass, at):
    """Beside one of a key without a rule, of each kind: they go by the setting."""
    at(TUESDAY_NOON)
    ours, other = key_named("ours"), key_named("other")
    if own:
        rule("ours", expire_after=own)
    steps = [
        *((columns, waiting.expire, Status.QUEUED) for columns in ({}, {"manual_mode": True})),
        ({"status": Status.SCHEDULED, "manual_mode": True}, waiting.expire, Status.SCHEDULED),
        ({"status": Status.SCHEDULED}, waiting.promote, Status.QUEUED),
    ]
    for columns, step, kept in steps:
        found = []
        for key, length in ((ours, lasts), (other, 72 * HOUR)):
            for age in (length - SECOND, length):
                begun = {"first_send_at": TUESDAY_NOON - age, "send_at": TUESDAY_NOON - age}
                found.append(store(key=key, **begun, **columns))
        step(TUESDAY_NOON)
        assert [again(each).status for each in found] == [kept, Status.EXPIRED] * 2, columns
        Message.delete().execute()


FIXED = [
    (None, "10m", 72 * HOUR),
    ("10m", None, 10 * MINUTE),
    ("10m", "9d", 10 * MINUTE),
    ("9d", "10m", 9 * DAY),
]
"""A rule, what it is changed to, and how long a text lasts by the first of them."""


@pytest.mark.parametrize("send_date", [None, TUESDAY_NOON + DAY])
@pytest.mark.parametrize(("own", "changed", "lasts"), FIXED)
def test_how_long_a_text_lasts_is_fixed_when_it_is_accepted(
    own, changed, lasts, send_date, post, run_pass, carrier, at
):
    at(TUESDAY_NOON)
    rule("app", expire_after=own)
    for _ in range(2):
        accepted(post(manual_mode=True, send_date=isoformat(send_date) if send_date else ...))
    rule("app", expire_after=changed)
    first, second = Message.select().order_by(Message.id)
    end = (send_date or TUESDAY_NOON) + lasts
    run_pass(end - SECOND, **PLACES)
    assert decide_on(first).approve("shell", end - SECOND)
    assert run_pass(end - SECOND, **PLACES)["sent"] == 1
    assert run_pass(end, **PLACES)["expired"] == 1
    assert again(second).status == Status.EXPIRED


@pytest.mark.parametrize("send_date", [None, TUESDAY_NOON + DAY])
@pytest.mark.parametrize(("own", "changed", "lasts"), FIXED)
def test_what_a_person_sends_again_lasts_by_the_rule_of_then(
    own, changed, lasts, send_date, run, run_pass, carrier, at
):
    """Whatever it was accepted by, beside one of a key that leaves it to the setting."""
    at(TUESDAY_NOON)
    ended = {"finished_at": TUESDAY_NOON, "status": Status.FAILED, "expires_at": TUESDAY_NOON}
    ours = store(key=key_named("ours"), send_date=send_date, manual_mode=True, **ended)
    other = store(key=key_named("other"), send_date=send_date, manual_mode=True, **ended)
    rule("ours", expire_after=own)
    run("messages", "retry", str(ours.id), str(other.id))
    rule("ours", expire_after=changed)
    ends = {ours: (send_date or TUESDAY_NOON) + lasts}
    ends[other] = (send_date or TUESDAY_NOON) + 72 * HOUR
    for now in sorted({end - before for end in ends.values() for before in (SECOND, 0 * SECOND)}):
        run_pass(now, **PLACES)
        for message, end in ends.items():
            assert (again(message).status == Status.EXPIRED) == (end <= now)


def test_a_text_for_the_end_of_time_is_accepted_and_can_be_sent_again(post, run, at):
    at(TUESDAY_NOON)
    accepted(post(send_date="9999-12-31T20:00:00Z"))
    Message.update(status=Status.FAILED, finished_at=TUESDAY_NOON).execute()
    (message,) = Message.select()
    run("messages", "retry", str(message.id))
    assert Message.get().expires_at.year == 9999


# What show says of the others


LATER = {"status": Status.SCHEDULED, "send_at": TUESDAY_NOON + HOUR}
AT_OPENING = {"status": Status.SCHEDULED, "send_at": NINE_AM}
END = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({}, "the carrier"),
        ({"manual_mode": True}, "approval by an operator"),
        ({"in_doubt": 1}, "the carrier's answer"),
        (LATER, "its time"),
        (LATER | {"attempts": 1, "last_error": "no"}, "another attempt"),
        (LATER | {"send_date": TUESDAY_NOON + HOUR}, "its send_date"),
        (AT_OPENING, "business hours from 9:00 AM, Wednesday, Mar 4"),
        (AT_OPENING | {"to": "+15555555555"}, "its time"),
        ({"status": Status.SENT, "finished_at": TUESDAY_NOON}, None),
        ({"status": Status.SCHEDULED, "send_at": END, "send_date": END}, "its send_date"),
    ],
)
def test_show_says_what_a_message_waits_for(run, at, columns, what):
    at(TUESDAY_NOON)
    message = store(**columns)
    assert json.loads(run("messages", "show", str(message.id)))["waits_for"] == what


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("group", ["sales", None])
def test_show_says_for_whose_approval_a_message_waits(run, at, group, is_shared):
    at(TUESDAY_NOON)
    key = key_named("shop", group)
    message = store(key=key, manual_mode=True, available_to_group=is_shared)
    of_group = "an approver of the group sales, or " if group and is_shared else ""
    shown = json.loads(run("messages", "show", str(message.id)))
    assert shown["waits_for"] == f"approval by {of_group}an operator"


@pytest.mark.parametrize("of_key", [True, False])
def test_hours_that_leave_no_minute_open_refuse_a_text_and_never_send_it(
    of_key, post_with, at, run_pass, carrier
):
    at(TUESDAY_NOON)
    changes = {"business_hours": (7 * 60, 9 * 60)}
    if of_key:
        rule("app", quiet_hours="20:00-10:00")
    else:
        changes["quiet_hours"] = (20 * 60, 10 * 60)
    response = post_with(**changes)
    refusal(response, 403)
    assert "leave no time to text this country" in response.json["message"]
    message = store()
    run_pass(TUESDAY_NOON, **changes)
    assert carrier.texts == []
    assert again(message).status == Status.SCHEDULED


def test_a_send_date_in_quiet_hours_that_never_end_is_refused(ask, at):
    """By Sydney's clock or Perth's the rule always holds."""
    at(TUESDAY_NOON)
    rule("app", quiet_hours="12:00-11:00")
    (problem,) = problems(ask(to="+61412345678", send_date="2026-03-05T00:00:00Z"))
    assert problem.startswith("send_date: must not be in quiet hours of the key, 12:00 PM - 11:00")
    assert problem.endswith(
        "it is 11:00 AM, Thursday, Mar 5 for the recipient then (quiet hours "
        "hold in another of its zones); they never end"
    )


# A change within a pass


@pytest.mark.parametrize(
    ("changes", "becomes"),
    [
        ({"quiet_hours": "21:00-08:00"}, Status.SCHEDULED),
        ({"hours": "09:00-17:00"}, Status.SCHEDULED),
        ({"check_dnc": "always"}, Status.BLOCKED),
        ({"countries": "CA"}, Status.FAILED),
    ],
)
def test_after_a_change_the_next_text_of_the_same_pass_keeps_to_it(
    changes, becomes, run_pass, carrier, at
):
    at(THREE_AM)
    rule("app", hours="00:00-24:00")
    hour_ago = THREE_AM.replace(hour=7)
    numbers = store_many(5, THREE_AM, first_send_at=hour_ago, send_at=hour_ago)
    DoNotCall.add(numbers[1:], THREE_AM, "operator")

    def change():
        rule("app", **changes)
        db.close()  # of this thread

    carrier.answers[numbers[0]] = change
    run_pass(THREE_AM, send_concurrency=1)
    assert carrier.numbers == numbers[:1]
    assert statuses() == {Status.SENT: 1, becomes: 4}


def test_a_key_that_becomes_urgent_in_a_pass_is_served_next(run_pass, carrier, at):
    at(THREE_AM)
    for name in ("news", "codes"):
        rule(name, hours="00:00-24:00")
        store_many(4, THREE_AM, key=key_named(name), message=name)

    def other_than(name):
        return "news" if name == "codes" else "codes"

    def change():
        if len(carrier.texts) == 1:
            rule(other_than(carrier.texts[0][1]), urgent=True)
            db.close()  # of this thread

    carrier.answers = {f"+1212555{n:04}": change for n in range(4)}
    run_pass(THREE_AM, send_concurrency=1)
    first, *rest = [text for _, text in carrier.texts]
    assert rest == 4 * [other_than(first)] + 3 * [first]
