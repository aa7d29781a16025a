"""flask keys rules: rules of a key in place of the settings."""

import json
from datetime import timedelta

import pytest

from samples import TUESDAY_NOON
from texting.access.audit import Audit
from texting.access.keys import ApiKey

FORMS = {
    "hours": "mon-fri 09:00-17:00, sat 10:00-14:00",
    "quiet-hours": "sun-fri 21:00-09:00, sat 21:00-12:00, holidays 00:00-24:00",
    "check-dnc": "always",
    "expire-after": "10m",
    "countries": "US,CA",
    "recipient-limit": "3/24h",
}
NO_SUCH = "no country with telephone numbers has the ISO 3166 code"
UNKNOWN = {"US,UK": "UK (did you mean GB?)", "xx,aq,us": "AQ, XX", "US,all": "ALL"}
DEFAULTS = dict.fromkeys(FORMS, "default") | {"urgent": "no"}


@pytest.fixture
def rules(run):
    """Set or show the rules of the key app; return what is printed, by rule."""

    def call(*options):
        lines = run("keys", "rules", "app", *options).splitlines()
        return dict(line.split(": ", 1) for line in lines)

    return call


@pytest.fixture
def app_key(run):
    run("keys", "create", "app")


def options(rules):
    return [word for name, text in rules.items() for word in (f"--{name}", text)]


def listed(run):
    (key,) = json.loads(run("keys", "list", "--json"))
    return key["rules"]


@pytest.mark.parametrize("create", [True, False])
def test_rules_are_set_shown_and_returned_to_the_settings(create, run, rules):
    if create:
        run("keys", "create", "app", *options(FORMS), "--urgent")
    else:
        run("keys", "create", "app")
        assert rules() == DEFAULTS
        assert rules(*options(FORMS), "--urgent") == FORMS | {"urgent": "yes"}
    assert rules() == FORMS | {"urgent": "yes"}
    columns = {name.replace("-", "_"): text for name, text in FORMS.items()}
    assert listed(run) == columns | {"urgent": True}
    assert "expire-after: 10m" in run("keys", "list")
    changed = rules("--hours", "default", "--not-urgent")
    assert changed == FORMS | {"hours": "default", "urgent": "no"}
    assert rules(*options(dict.fromkeys(FORMS, "default"))) == DEFAULTS
    assert listed(run) == dict.fromkeys(columns) | {"urgent": False}


def test_a_rule_is_kept_as_it_is_meant(app_key, session):
    session("""
        $ flask keys rules app --hours "  Mon-Fri   09:00-17:00" --quiet-hours NONE
        hours: mon-fri 09:00-17:00
        quiet-hours: none
        check-dnc: default
        expire-after: default
        urgent: no
        countries: default
        recipient-limit: default
    """)


@pytest.mark.parametrize("command", ["rules", "create"])
@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("hours", "", "hours: must be an opening and a closing time, like 09:00-17:00"),
        ("hours", "none", "hours: entry 1 must begin with one day or range of"),
        ("quiet-hours", "sun", "quiet-hours: entry 1 must have a space and hours after the days"),
        ("check-dnc", "yes", "check-dnc: must be one of always, opted-out, asked"),
        ("expire-after", "0m", "expire-after: must be minutes, hours or days, like 30m, 72h or"),
        *(
            ("countries", text, "countries: must be a list of ISO 3166 codes, like US,CA,GB")
            for text in ("", ",", "US,,CA", "US,", " ,US", "US CA", "+1", "ＵＳ", "U", "none")
        ),
        *(("countries", text, f"countries: {NO_SUCH} {code}") for text, code in UNKNOWN.items()),
        *(
            ("recipient-limit", text, "recipient-limit: must be a number and a window, like 3/24h")
            for text in ("", "3", "3/24s", "3/h", "3/24h,1/1h", "all", "3/24h\0", "\ud800")
        ),
        *(
            ("recipient-limit", text, "recipient-limit: must be a whole number from 1 to 999999999")
            for text in ("0/24h", "-1/24h", "/24h", "1000000000/1d", "３/24h", "1p/24h")
        ),
        ("expire-after", "\0", "expire-after: must be minutes, hours or days, like 30m, 72h or"),
        ("hours", "\ud800", "hours: must be an opening and a closing time, like 09:00-17:00"),
    ],
)
def test_a_rule_that_cannot_be_used_changes_nothing_and_names_key_and_mistake(
    command, option, text, problem, run, refused
):
    if command == "rules":
        run("keys", "create", "app")
    line = refused("keys", command, "app", "--urgent", f"--{option}", text)
    assert line.startswith(f"Error: the key 'app': {problem}")
    kept = ApiKey.get_or_none()
    assert kept is None if command == "create" else kept.rules == ApiKey().rules


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (" us, ca,US ", "US,CA"),
        ("CA", "CA"),
        ("001", "001"),
        (" ALL ", "all"),
        ("Default", "default"),
    ],
)
def test_countries_are_kept_in_their_order_each_once(app_key, rules, text, kept):
    assert rules("--countries", text)["countries"] == kept
    assert rules()["countries"] == kept


@pytest.mark.parametrize(
    ("text", "kept"), [(" 3/24H ", "3/24h"), ("NONE", "none"), ("1/9999d", "1/9999d")]
)
def test_a_limit_of_recipients_is_kept_as_it_is_meant(app_key, rules, text, kept):
    assert rules("--recipient-limit", text)["recipient-limit"] == kept
    assert rules()["recipient-limit"] == kept


@pytest.mark.parametrize("name", ["keep_texts", "keep_messages"])
@pytest.mark.parametrize("command", ["rules", "create"])
def test_a_limit_of_recipients_counts_no_longer_than_texts_are_kept(
    name, command, app, run, refused
):
    if command == "rules":
        run("keys", "create", "app")
    app.config["SETTINGS"] = app.config["SETTINGS"]._replace(**{name: timedelta(days=2)})
    line = refused("keys", command, "app", "--recipient-limit", "3/49h")
    assert line == (
        "Error: the key 'app': recipient-limit: must not have a longer window than "
        f"{name.upper()}, after which a text counts no more"
    )
    run("keys", command, "app", "--recipient-limit", "3/48h")


def test_rules_of_a_revoked_key_are_refused(app_key, run, rules, refused):
    run("keys", "revoke", "app")
    assert refused("keys", "rules", "app", "--urgent") == "Error: the key 'app' is revoked"
    assert rules() == DEFAULTS


def test_a_rotated_key_keeps_its_rules_and_a_new_one_of_the_name_has_none(app_key, run, rules):
    rules("--urgent", "--quiet-hours", "none")
    run("keys", "rotate", "app")
    assert rules() == DEFAULTS | {"urgent": "yes", "quiet-hours": "none"}
    run("keys", "revoke", "app")
    run("keys", "create", "app")
    assert rules() == DEFAULTS


def test_each_change_is_in_the_audit(app_key, rules, at):
    at(TUESDAY_NOON)
    rules("--urgent", "--hours", "09:00-12:00")
    rules("--hours", "default")
    rules()
    noted = [(row.what, row.key_name, row.details) for row in Audit.select().order_by(Audit.id)]
    assert noted[1:] == [
        ("key rules set", "app", "hours: 09:00-12:00, urgent: yes"),
        ("key rules set", "app", "hours: default"),
    ]
