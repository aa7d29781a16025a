"""Why a text was allowed: what was judged is kept with each copy, whatever is changed since."""

import json
from datetime import UTC, date, datetime

import pytest

from app import create_app
from databases import on_both
from desk_visitor import signed_in
from fake_carrier import FOR_NOW
from places import QUIET_PLACES, SILENCES
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import decide_on, key_named, live_at, store
from texting.access.do_not_call import DoNotCall
from texting.access.keys import Role
from texting.messages.attempts import Attempt
from texting.messages.model import Message, Status

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

DALLAS = "+12142345678"
AT = TUESDAY_NOON + 2 * MINUTE  # 11:02 in Dallas
TEXAS = {
    "window": "9:00 PM - 9:00 AM local time",
    "from": "QUIET_HOURS_FILE US-TX",
    "zone": "America/Chicago",
}
OF_DALLAS = {
    "zone": "America/Chicago",
    "zone_from": "number",
    "local_time": "11:02 AM, Tuesday, Mar 3",
    "business_hours": "9:00 AM - 5:00 PM local time",
    "send_date": None,
    "quiet_hours": [TEXAS],
    "lists": "opted-out",
    "approved_by": None,
}
SETTINGS = {"quiet_hours": (22 * 60, 6 * 60), "quiet_hours_file": QUIET_PLACES}


@pytest.fixture
def allowed(run_pass, run):
    """Send a message at an instant; return why each of its copies was allowed."""

    def send(message, at=AT, carrier=None, **changes):
        arguments = (carrier,) if carrier else ()
        run_pass(at, *arguments, **SETTINGS | changes)
        return shown(run, message)

    return send


def shown(run, message):
    (found,) = [json.loads(run("messages", "show", str(message.id)))]
    return [each["allowed"] for each in found["history"]]


def test_it_says_by_which_clock_and_which_rules(allowed):
    assert allowed(store(to=DALLAS, send_at=AT)) == [OF_DALLAS]


def test_it_has_the_names_and_the_order_of_the_contract(allowed):
    (why,) = allowed(store(to=DALLAS, send_at=AT))
    assert list(why) == list(OF_DALLAS)
    assert list(why["quiet_hours"][0]) == ["window", "from", "zone"]


EVERYBODYS = {"window": "10:00 PM - 6:00 AM local time", "from": "QUIET_HOURS"}
EVENING = datetime(2026, 3, 4, 1, 30, tzinfo=UTC)  # 7:30 PM in Dallas


@pytest.mark.parametrize(
    ("columns", "rules", "changes", "instant", "differences"),
    [
        ({}, {}, {"quiet_hours_file": {}}, AT, {"quiet_hours": [TEXAS | EVERYBODYS]}),
        ({}, {"quiet_hours": "none"}, {}, AT, {"quiet_hours": []}),
        (
            {},
            {"quiet_hours": "sun 00:00-24:00"},
            {},
            AT,
            {"quiet_hours": [TEXAS | {"window": None, "from": "key"}]},
        ),
        (
            {},
            {"hours": "tue 11:00-12:00"},
            {},
            AT,
            {"business_hours": "11:00 AM - 12:00 PM local time"},
        ),
        ({"check_dnc": True}, {}, {}, AT, {"lists": "all"}),
        ({}, {"check_dnc": "asked"}, {}, AT, {"lists": None}),
        ({}, {}, {"check_dnc": "always"}, AT, {"lists": "all"}),
        ({"approved_by": "Ann", "approved_at": TUESDAY_NOON}, {}, {}, AT, {"approved_by": "Ann"}),
        (
            {"send_date": EVENING, "send_at": EVENING},
            {},
            {},
            EVENING,
            {
                "business_hours": None,
                "send_date": "2026-03-04T01:30:00.000Z",
                "local_time": "7:30 PM, Tuesday, Mar 3",
            },
        ),
        (
            {"send_date": AT - HOUR, "send_at": AT - HOUR},  # overtaken by an hour
            {},
            {},
            AT,
            {"send_date": None},
        ),
    ],
)
def test_what_was_judged_is_what_is_kept(columns, rules, changes, instant, differences, allowed):
    key = key_named("app")
    if rules:
        key.rule(rules, TUESDAY_NOON)
    message = store(**{"to": DALLAS, "send_at": AT, "key": key} | columns)
    assert allowed(message, instant, **changes) == [OF_DALLAS | differences]


def test_each_place_has_an_entry_with_its_own_rule(allowed):
    live_at(DALLAS, "CA-QC")
    quebec = {"window": "9:00 PM - 9:00 AM local time", "from": "QUIET_HOURS_FILE CA-QC"}
    assert allowed(store(to=DALLAS, send_at=AT)) == [
        OF_DALLAS
        | {
            "zone": "America/Toronto",
            "zone_from": "place",
            "local_time": "12:02 PM, Tuesday, Mar 3",
            "quiet_hours": [quebec | {"zone": "America/Toronto"}, TEXAS],
        }
    ]


def test_after_its_last_day_a_place_is_not_named(allowed):
    live_at(DALLAS, "CA-QC", date(2026, 3, 2))
    assert allowed(store(to=DALLAS, send_at=AT)) == [OF_DALLAS]


def test_a_holiday_has_its_own_window_beside_that_of_the_day(allowed):
    lyon = SILENCES["Lyon on a holiday"].to
    at = datetime(2026, 4, 6, 8, tzinfo=UTC)  # Easter Monday
    key_named("app").rule({"quiet_hours": "mon 21:00-08:00, holidays 12:00-13:00"}, TUESDAY_NOON)
    ((why),) = allowed(store(to=lyon, send_at=at, key=key_named("app"), country="FR"), at)
    window = "9:00 PM - 8:00 AM local time and 12:00 PM - 1:00 PM local time"
    assert why["quiet_hours"] == [{"window": window, "from": "key", "zone": "Europe/Paris"}]


def test_each_copy_has_its_own(allowed, carrier, run):
    carrier.answer = FOR_NOW
    key = key_named("app")
    message = store(to=DALLAS, send_at=AT, key=key)
    assert allowed(message) == [OF_DALLAS]
    key.rule({"hours": "00:00-24:00", "quiet_hours": "none"}, AT)
    again = allowed(message, AT + 5 * MINUTE)
    assert again[0] == OF_DALLAS
    assert again[1]["local_time"] == "11:07 AM, Tuesday, Mar 3"
    assert again[1]["business_hours"] == "12:00 AM - 12:00 AM local time"
    assert again[1]["quiet_hours"] == []


def test_settings_and_rules_that_change_since_change_nothing(allowed, settings):
    message = store(to=DALLAS, send_at=AT, key=key_named("app"))
    before = allowed(message)
    key_named("app").rule({"quiet_hours": "none", "check_dnc": "always"}, AT)
    live_at(DALLAS, "DE")
    DoNotCall.add([DALLAS], AT, "operator")
    runner = create_app(settings._replace(quiet_hours_file={}, **ALWAYS_OPEN)).test_cli_runner()
    result = runner.invoke(args=["messages", "show", str(message.id)])
    assert [each["allowed"] for each in json.loads(result.stdout)["history"]] == before


def test_a_text_that_was_not_given_leaves_nothing(allowed, carrier):
    message = store(to=DALLAS, send_at=EVENING)
    assert allowed(message, EVENING) == []
    assert Message.get().status == Status.SCHEDULED
    assert carrier.texts == []


def test_an_automatic_reply_goes_by_no_hours_and_no_list(allowed):
    message = store(to=DALLAS, send_at=EVENING, auto_reply_to="STOP")
    (why,) = allowed(message, EVENING)
    assert why == OF_DALLAS | {
        "local_time": "7:30 PM, Tuesday, Mar 3",
        "business_hours": None,
        "quiet_hours": [],
        "lists": None,
    }


def test_a_number_that_is_valid_no_more_gets_its_text_at_a_send_date(run_pass, carrier, run):
    """As before: where it is never quiet, nobody asks whose clock it is."""
    withdrawn = "+22501234567"
    message = store(to=withdrawn, send_at=AT, send_date=AT, country="CI")
    run_pass(AT)
    assert carrier.numbers == [withdrawn]
    assert shown(run, message) == [None]


def test_copies_of_an_older_version_have_none(run):
    message = store(to=DALLAS, status=Status.SENT, finished_at=AT)
    assert shown(run, message) == [None]


def test_it_is_written_in_the_transaction_that_begins_the_attempt(run_pass, carrier):
    store(to=DALLAS, send_at=AT)
    seen = []
    carrier.answer = lambda: seen.extend(Attempt.select(Attempt.allowed).tuples())
    run_pass(AT, **SETTINGS)
    assert seen == [(OF_DALLAS,)]


# Redaction


@pytest.mark.parametrize("how", ["--to", "--older-than", "KEEP_TEXTS"])
def test_redaction_forgets_a_zone_that_came_from_a_place(how, allowed, run, run_pass, at):
    live_at(DALLAS, "CA-QC")
    message = store(to=DALLAS, send_at=AT)
    other = store(to=NEW_YORK, send_at=AT)
    (before,) = allowed(message)
    at(AT + 3 * DAY)
    if how == "KEEP_TEXTS":
        run_pass(AT + 3 * DAY, keep_texts=DAY)
    else:
        run("messages", "redact", how, DALLAS if how == "--to" else "1")
    (after,) = shown(run, message)
    assert after == before | {"zone": None, "local_time": None, "quiet_hours": [TEXAS]}
    assert shown(run, other)[0]["zone"] == "America/New_York"
    assert "Toronto" not in json.dumps(after)


# At the desk


def page_of(message, settings, reader="Olga"):
    app = create_app(settings._replace(secret_key="not so secret, but long enough"))
    return signed_in(app, reader, role=Role.OPERATOR).read(f"/desk/messages/{message.id}")


def test_the_messages_page_says_it_in_a_sentence(allowed, settings):
    message = store(to=DALLAS, send_at=TUESDAY_NOON, manual_mode=True, approved=False)
    decide_on(message).approve("Ann", TUESDAY_NOON)
    allowed(message)
    assert (
        "Allowed: 11:02 AM, Tuesday, Mar 3 in Dallas, by the number; business hours 9:00 AM - "
        "5:00 PM; no quiet hours of Texas (9:00 PM - 9:00 AM); not opted out; approved by Ann"
    ) in page_of(message, settings)


def test_a_text_of_last_month_is_proved_whatever_settings_are_changed_since(
    allowed, settings, run, run_pass
):
    message = store(to=DALLAS, send_at=AT)
    allowed(message)
    proof = (
        "Allowed: 11:02 AM, Tuesday, Mar 3 in Dallas, by the number; business hours 9:00 AM - "
        "5:00 PM; no quiet hours of Texas (9:00 PM - 9:00 AM); not opted out"
    )
    assert proof in page_of(message, settings)
    since = dict(SETTINGS)
    changes = {"business_hours": (600, 720), "quiet_hours_file": {}, "check_dnc": "always"}
    for days, (name, value) in enumerate(changes.items(), 10):
        since[name] = value
        run_pass(AT + days * DAY, **since)
    assert proof in page_of(message, settings._replace(**since), "Ann")
    changed = [line for line in run("audit").splitlines() if "setting changed" in line]
    assert len(changed) == 3
    for name, line in zip(reversed(changes), changed, strict=True):
        assert name.upper() in line


def test_the_sentence_names_a_known_place_a_send_date_and_the_key(allowed, settings, run):
    live_at(DALLAS, "CA-QC")
    key = key_named("app")
    key.rule({"quiet_hours": "sun 00:00-24:00", "check_dnc": "asked"}, TUESDAY_NOON)
    message = store(to=DALLAS, send_at=EVENING, send_date=EVENING, key=key)
    allowed(message, EVENING)
    assert (
        "Allowed: 8:30 PM, Tuesday, Mar 3 in America/Toronto, by the known place; sent at its "
        "send_date; no quiet hours of the key; no quiet hours of the key; the lists did not count"
    ) in page_of(message, settings)
    run("messages", "redact", "--to", DALLAS)
    assert "Toronto" not in page_of(message, settings, "Ann")
