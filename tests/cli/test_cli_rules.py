"""flask keys rules: rules of a key in place of the settings."""

import json
import threading

import pytest

from access.audit import Audit
from access.keys import ApiKey
from app import create_app
from database import Refused, db
from databases import on_sqlite
from samples import TUESDAY_NOON

FORMS = {
    "hours": "mon-fri 09:00-17:00, sat 10:00-14:00",
    "quiet-hours": "sun-fri 21:00-09:00, sat 21:00-12:00, holidays 00:00-24:00",
    "check-dnc": "always",
    "expire-after": "10m",
}
DEFAULTS = dict.fromkeys(FORMS, "default") | {"urgent": "no"}


@pytest.fixture
def rules(run):
    """Set or show the rules of a key; return what is printed, by rule."""

    def call(name, *options):
        lines = run("keys", "rules", name, *options).splitlines()
        return dict(line.split(": ", 1) for line in lines)

    return call


@pytest.fixture
def app_key(run):
    run("keys", "create", "app")


def options(**rules):
    return [word for name, text in rules.items() for word in (f"--{name.replace('_', '-')}", text)]


def listed(run, name="app"):
    (key,) = [key for key in json.loads(run("keys", "list", "--json")) if key["name"] == name]
    return key["rules"]


@pytest.mark.parametrize("create", [True, False])
def test_rules_are_set_shown_and_returned_to_the_settings(create, run, rules):
    given = [word for name, text in FORMS.items() for word in (f"--{name}", text)]
    if create:
        run("keys", "create", "app", *given, "--urgent")
    else:
        run("keys", "create", "app")
        assert rules("app") == DEFAULTS
        assert rules("app", *given, "--urgent") == FORMS | {"urgent": "yes"}
    assert rules("app") == FORMS | {"urgent": "yes"}
    assert listed(run) == {
        "hours": FORMS["hours"],
        "quiet_hours": FORMS["quiet-hours"],
        "check_dnc": "always",
        "expire_after": "10m",
        "urgent": True,
    }
    assert "expire-after: 10m" in run("keys", "list")
    assert rules("app", "--hours", "default", "--not-urgent") == {
        **FORMS,
        "hours": "default",
        "urgent": "no",
    }
    assert rules("app", *options(**dict.fromkeys(FORMS, "default"))) == DEFAULTS
    assert listed(run) == dict.fromkeys(ApiKey().rules._fields[:4]) | {"urgent": False}


def test_a_rule_is_kept_as_it_is_meant(app_key, rules):
    printed = rules("app", "--hours", "  Mon-Fri   09:00-17:00", "--quiet-hours", "NONE")
    assert printed["hours"] == "mon-fri 09:00-17:00"
    assert printed["quiet-hours"] == "none"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["rules"], ["create"]])
@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("hours", "", "must be an opening and a closing time, like 09:00-17:00"),
        ("hours", "17:00-09:00", "must be an opening and a later closing time of the same day"),
        ("hours", "local", "entry 1 must begin with one day or range of"),
        ("hours", "none", "entry 1 must begin with one day or range of"),
        ("hours", "holidays 09:00-17:00", "entry 1 must begin with one day or range of"),
        ("hours", "mon 09:00-17:00, mon 10:00-12:00", "entry 2 must not repeat mon"),
        ("hours", "09:00-17:00\n", None),
        ("quiet-hours", "", "must be a start and an end, like 21:00-08:00"),
        ("quiet-hours", "21-8", "must be a start and an end, like 21:00-08:00"),
        ("quiet-hours", "no", "entry 1 must begin with one day or range of"),
        ("quiet-hours", "none, 21:00-08:00", "entry 1 must begin with one day or range of"),
        ("quiet-hours", "sun 21:00-21:00", "the hours of entry 1 must start and end at different"),
        ("quiet-hours", "sun 21:00", "the hours of entry 1 must be a start and an end"),
        ("quiet-hours", "sun", "entry 1 must have a space and hours after the days"),
        ("quiet-hours", "mon 21:00-08:00, sun-mon 21:00-08:00", "entry 2 must not repeat mon"),
        ("quiet-hours", "00:00-24:00", "its rules leave no minute open in 248 countries"),
        ("quiet-hours", "17:00-13:00", "its rules leave no minute open in Antarctica, Canada, Rus"),
        ("check-dnc", "yes", "must be one of always, asked"),
        ("check-dnc", "", "must be one of always, asked"),
        ("expire-after", "0m", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("expire-after", "10", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("expire-after", "1000000d", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("expire-after", "10 m", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("expire-after", "-5m", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("expire-after", "\0", "must be minutes, hours or days, like 30m, 72h or 10d"),
        ("hours", "\ud800", "must be an opening and a closing time, like 09:00-17:00"),
    ],
)
def test_a_rule_that_cannot_be_used_changes_nothing_and_names_key_and_mistake(
    command, option, text, problem, run, refused
):
    if command == ["rules"]:
        run("keys", "create", "app")
    if problem is None:
        run("keys", *command, "app", f"--{option}", text)
        return
    line = refused("keys", *command, "app", "--urgent", f"--{option}", text)
    assert line.startswith(f"Error: the key 'app': {'' if 'leave' in problem else option + ': '}")
    assert problem in line
    kept = ApiKey.get_or_none()
    assert kept is None if command == ["create"] else kept.rules == ApiKey().rules


def test_rules_that_only_together_leave_a_country_no_minute_are_refused(app_key, rules, refused):
    rules("app", "--hours", "21:00-24:00")
    assert "leave no minute open" in refused("keys", "rules", "app", "--quiet-hours", "20:00-08:00")
    rules("app", "--hours", "default", "--quiet-hours", "20:00-08:00")
    assert "leave no minute open" in refused("keys", "rules", "app", "--hours", "21:00-24:00")
    rules("app", "--hours", "21:00-24:00", "--quiet-hours", "none")


@on_sqlite
def test_only_allowed_countries_matter(settings, run):
    run("keys", "create", "app")
    runner = create_app(settings._replace(allowed_countries=frozenset({"US"}))).test_cli_runner()
    result = runner.invoke(args=["keys", "rules", "app", "--quiet-hours", "17:00-13:00"])
    assert result.exit_code == 0, result.output


def test_rules_of_a_revoked_key_are_refused(app_key, run, rules, refused):
    run("keys", "revoke", "app")
    assert refused("keys", "rules", "app", "--urgent") == "Error: the key 'app' is revoked"
    assert rules("app") == DEFAULTS
    assert refused("keys", "rules", "nobody") == "Error: there is no key named 'nobody'"


def test_a_rotated_key_keeps_its_rules_and_a_new_one_of_the_name_has_none(app_key, run, rules):
    rules("app", "--urgent", "--quiet-hours", "none")
    run("keys", "rotate", "app")
    assert rules("app") == DEFAULTS | {"urgent": "yes", "quiet-hours": "none"}
    run("keys", "revoke", "app")
    run("keys", "create", "app")
    assert rules("app") == DEFAULTS


def test_each_change_is_in_the_audit(app_key, rules, at):
    at(TUESDAY_NOON)
    rules("app", "--urgent", "--hours", "09:00-12:00")
    rules("app", "--hours", "default")
    rules("app")
    noted = [(row.what, row.key_name, row.details) for row in Audit.select().order_by(Audit.id)]
    assert noted[1:] == [
        ("key rules set", "app", "hours: 09:00-12:00, urgent: yes"),
        ("key rules set", "app", "hours: default"),
    ]


def test_two_who_set_different_rules_at_once_both_know_the_others(app_key):
    """Of two rules that together leave no minute open, one is refused."""

    def check(own):
        if own.hours and own.quiet_hours:
            raise Refused("closed")

    def rule(**changes):
        try:
            ApiKey.get().rule(changes, TUESDAY_NOON, check)
            results.append("set")
        except Refused:
            results.append("refused")
        finally:
            db.close()

    for _ in range(5):
        results = []
        ApiKey.update(hours=None, quiet_hours=None).execute()
        both = [{"hours": "22:00-24:00"}, {"quiet_hours": "21:00-08:00"}]
        threads = [threading.Thread(target=rule, kwargs=changes) for changes in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["refused", "set"]
        assert (ApiKey.get().hours is None) != (ApiKey.get().quiet_hours is None)
