"""flask keys: creating, listing, rotating and revoking."""

import json
import re
import shlex

import pytest

from samples import DAY, HOUR, NEW_YORK, TUESDAY_NOON
from stored_messages import again, key_named, store
from texting.access.audit import Audit
from texting.access.keys import ApiKey, Role
from texting.access.limits import parse
from texting.database import clock, db
from texting.events.outbox import EventAddress
from texting.messages.model import Status

pytestmark = pytest.mark.usefixtures("noon")


@pytest.fixture
def cell(run):
    """What `flask keys list` shows of its only key under a heading."""

    def read(heading):
        header, row = run("keys", "list").splitlines()
        return row[header.index(heading) :].split()[0]

    return read


@pytest.mark.parametrize(
    "name",
    ["app", "Björk & Söhne", "名前", "-", "a b", "x" * 100, "'; DROP TABLE api_key; --", "%s"],
)
def test_a_key_is_created_listed_and_revoked(name, session, run):
    word = shlex.quote(name)
    session(f"""
        $ flask keys create --group {word} --limit 9/s -- {word}
        tms_
    """)
    listed = run("keys", "list").splitlines()[1]
    assert listed.split("  ")[0] == name
    assert listed.endswith("  -")
    session(f"""
        $ flask keys revoke -- {word}
        {name}: revoked
        $ flask keys revoke -- {word}
        {name}: was already revoked
    """)
    assert not run("keys", "list").splitlines()[1].endswith("  -")


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\tb", "\x1b[31m", "x" * 101, "a\udcff", "\u202e"]
)
@pytest.mark.parametrize("command", ["create", "revoke", "rotate"])
def test_a_name_that_cannot_be_shown_is_refused(command, name, refused):
    assert "printable" in refused("keys", command, name, status=2)
    assert ApiKey.select().count() == 0


def test_a_name_is_taken_until_its_key_is_revoked(session):
    session("""
        $ flask keys create app --limit 9/s
        tms_
        $ flask keys create app --events https://example.com/
        Error: a key named 'app' exists already
        [1]
        $ flask keys revoke app
        app: revoked
        $ flask keys create app --limit 9/s
        tms_
    """)
    first, second = ApiKey.select().order_by(ApiKey.id)
    assert first.digest != second.digest
    assert EventAddress.select().count() == 0


def test_the_end_of_a_key_is_moved(session, run, at):
    secret = run("keys", "create", "app", "--expires", "1d").strip()
    at(TUESDAY_NOON + 2 * DAY)
    assert ApiKey.authenticate(secret, clock.now()) is None
    session("""
        $ flask keys extend app --expires 30d
        app: valid until 2026-04-04T17:00:00.000Z
    """)
    assert ApiKey.authenticate(secret, clock.now())
    assert ApiKey.authenticate(secret, clock.now() + 30 * DAY) is None
    session("""
        $ flask keys extend app --expires never
        app: does not expire
    """)
    assert ApiKey.authenticate(secret, clock.now() + 3000 * DAY)
    run("keys", "extend", "app", "--expires", "1h")
    assert ApiKey.authenticate(secret, clock.now() + HOUR) is None


def test_a_key_is_paused_and_resumed(session, run):
    run("keys", "create", "app")
    session("""
        $ flask keys pause app
        app: paused
        $ flask keys pause app
        app: was already paused
    """)
    (key,) = json.loads(run("keys", "list", "--json"))
    assert key["paused_at"] == "2026-03-03T17:00:00.000Z"
    session("""
        $ flask keys resume app
        app: resumed
        $ flask keys resume app
        app: was not paused
    """)
    assert [row.what for row in Audit.select()] == ["key created", "key paused", "key resumed"]


def test_a_revoked_key_is_not_extended(refused, run):
    run("keys", "create", "app", "--expires", "never")
    run("keys", "revoke", "app")
    assert refused("keys", "extend", "app", "--expires", "1d") == "Error: the key 'app' is revoked"


def test_the_list_shows_the_role_and_until_when_an_old_secret_is_valid(run, cell, at):
    run("keys", "create", "ann", "--role", "approver")
    assert (cell("role"), cell("old secret until")) == ("approver", "-")
    run("keys", "rotate", "ann", "--overlap", "2d")
    assert cell("old secret until") == "2026-03-05T17:00:00.000Z"
    at(TUESDAY_NOON + 3 * DAY)
    assert cell("old secret until") == "-"


def test_the_last_use_is_shown_by_the_hour_but_not_before_the_creation(run, cell, at):
    at(TUESDAY_NOON + HOUR / 2)
    secret = run("keys", "create", "app").strip()
    ApiKey.authenticate(secret, TUESDAY_NOON + 3 * HOUR / 4)
    for hours, told in ((0, "2026-03-03T17:30:00.000Z"), (2, "2026-03-03T19:00:00.000Z")):
        if hours:
            ApiKey.update(last_used_at=TUESDAY_NOON + hours * HOUR).execute()
        assert cell("last used") == f"{told[:13]}h"
        assert json.loads(run("keys", "list", "--json"))[0]["last_used_at"] == told


def test_an_approver_without_a_group_is_told_that_it_sees_nothing(session):
    session("""
        $ flask keys create ann --role approver
        tms_
        desk: off (SECRET_KEY), so ann cannot sign in
        ann sees no messages: an approver sees only those of its --group
        $ flask keys create bob --role approver --group sales
        tms_
        desk: off (SECRET_KEY), so bob cannot sign in
        $ flask keys create olga --role operator
        tms_
        desk: off (SECRET_KEY), so olga cannot sign in
    """)


ANYWHERE = (
    "app: if this key leaks, anybody can send any number of texts to any country; --limit and "
    "--countries bound that\n"
)


@pytest.mark.parametrize(
    ("words", "changes", "is_told"),
    [
        ((), {}, True),
        (("--countries", "all", "--urgent"), {}, True),
        (("--countries", "all"), {"allowed_countries": frozenset({"US"})}, True),
        (("--countries", "default"), {"allowed_countries": frozenset({"US"})}, False),
        (("--countries", "US"), {}, False),
        (("--limit", "5/d"), {}, False),
        (("--countries", "all", "--limit", "5p/mo"), {}, False),
        ((), {"key_limits": parse("5/d")}, False),
        ((), {"allowed_countries": frozenset({"US"})}, False),
        (("--role", "tester"), {}, False),  # its texts go nowhere
        (("--role", "operator"), {}, False),
        (("--role", "approver", "--group", "a"), {}, False),
    ],
)
def test_who_creates_a_key_without_bounds_is_told_so_beside_it(flask_with, words, changes, is_told):
    result = flask_with(**{"secret_key": "k" * 32} | changes)("keys", "create", "app", *words)
    assert result.exit_code == 0
    assert re.fullmatch(r"tms_\S+\n", result.stdout)
    assert result.stderr == (ANYWHERE if is_told else "")


@pytest.fixture
def no_addresses(database_url):
    """A database that fails where addresses for events are to be stored."""
    db.execute_sql("ALTER TABLE event_address RENAME TO gone")
    yield
    db.execute_sql("ALTER TABLE gone RENAME TO event_address")


def test_a_key_whose_address_cannot_be_stored_is_not_created(no_addresses, refused):
    words = ("keys", "create", "shop", "--events", "https://example.com/events")
    assert refused(*words, status=2).startswith("Error: the database failed: ")
    assert ApiKey.select().count() == 0
    assert Audit.select().count() == 0


@pytest.mark.parametrize("role", ["approver", "operator"])
def test_a_key_for_the_desk_says_that_the_desk_is_off(flask, flask_with, role):
    words = ("keys", "create", "--role", role, "--group", "red")
    off = "desk: off (SECRET_KEY), so Ann cannot sign in\n"
    assert flask(*words, "Ann").stderr == off
    assert flask_with(secret_key="k" * 32)(*words, "Bob").stderr == ""
    assert "desk" not in flask("keys", "create", "app", "--limit", "5/s").stderr


def test_all_that_send_are_paused_and_resumed_together(session, run_pass, carrier):
    """The people at the desk go on, and a revoked key, which nobody can pause, is told."""
    shop, spare = key_named("shop"), key_named("spare key")
    ApiKey.issue("check", None, TUESDAY_NOON, role=Role.TESTER)
    ApiKey.issue("late", None, TUESDAY_NOON, expires_at=TUESDAY_NOON - HOUR)
    for name, role in (("Ann", Role.APPROVER), ("Olga", Role.OPERATOR)):
        ApiKey.issue(name, "red", TUESDAY_NOON, role=role)
    key_named("stopped").pause(TUESDAY_NOON)
    assert ApiKey.named("stopped").revoke(TUESDAY_NOON)
    shop.pause(TUESDAY_NOON)
    message, last = store(), store(key=spare)
    store(key=spare, status=Status.SENT, finished_at=TUESDAY_NOON)
    spare.revoke(TUESDAY_NOON)
    session(
        """
        $ flask keys pause --all
        app: paused
        check: paused
        late: paused
        shop: was already paused
        spare key: revoked, but 1 text of it will be sent: flask messages cancel --key 'spare key'
        [1]
        $ flask messages cancel --key "spare key" --yes --status queued
        1 message: 1 queued
        MESSAGE: cancelled
        1 cancelled
        $ flask keys pause --all
        app: was already paused
        check: was already paused
        late: was already paused
        shop: was already paused
    """.replace("MESSAGE", str(last.id))
    )
    assert not ApiKey.named("Ann").paused_at
    run_pass(TUESDAY_NOON)
    assert carrier.texts == []
    session("""
        $ flask keys resume --all
        app: resumed
        check: resumed
        late: resumed
        shop: resumed
    """)
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]
    assert again(message).status == Status.SENT


@pytest.mark.parametrize("words", [(), ("shop", "--all")])
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_one_or_all_have_to_be_given(refused, command, words):
    line = refused("keys", command, *words, status=2)
    assert line == "Error: Give the name of a key, or --all."
