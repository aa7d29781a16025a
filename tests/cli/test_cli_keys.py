"""flask keys: creating, listing, rotating and revoking."""

from datetime import timedelta

import pytest

from access.keys import ApiKey
from database import clock
from samples import DAY, TUESDAY_NOON


@pytest.mark.parametrize(
    "name",
    ["app", "Björk & Söhne", "名前", "-", "a b", "x" * 100, "'; DROP TABLE api_key; --", "%s"],
)
def test_a_key_is_created_listed_and_revoked(name, run):
    secret = run("keys", "create", "--group", name, "--", name)
    assert secret == secret.strip() + "\n"
    assert len(secret.split()) == 1
    listed = run("keys", "list").splitlines()[1]
    assert listed.split("  ")[0] == name
    assert listed.endswith("  -")
    assert run("keys", "revoke", "--", name) == f"{name}: revoked\n"
    assert run("keys", "revoke", "--", name) == f"{name}: was already revoked\n"
    assert not run("keys", "list").splitlines()[1].endswith("  -")


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\tb", "\x1b[31m", "x" * 101, "a\udcff", "\u202e"]
)
@pytest.mark.parametrize("command", ["create", "revoke", "rotate"])
def test_a_name_that_cannot_be_shown_is_refused(command, name, refused):
    assert "printable" in refused("keys", command, name, status=2)
    assert ApiKey.select().count() == 0


def test_a_name_is_taken_until_its_key_is_revoked(run, refused):
    first = run("keys", "create", "app")
    assert refused("keys", "create", "app") == "Error: a key named 'app' exists already"
    run("keys", "revoke", "app")
    assert run("keys", "create", "app") != first


def test_a_key_that_has_expired_is_good_again_once_it_is_extended(run, at):
    at(TUESDAY_NOON)
    secret = run("keys", "create", "app", "--expires", "1d").strip()
    at(TUESDAY_NOON + 2 * DAY)
    assert ApiKey.authenticate(secret, clock.now()) is None
    extended = run("keys", "extend", "app", "--expires", "30d")
    assert extended == "app: valid until 2026-04-04T17:00:00.000Z\n"
    assert ApiKey.authenticate(secret, clock.now())
    assert ApiKey.authenticate(secret, clock.now() + 30 * DAY) is None
    assert run("keys", "extend", "app", "--expires", "never") == "app: does not expire\n"
    assert ApiKey.authenticate(secret, clock.now() + 3000 * DAY)


def test_a_shorter_life_counts_at_once(run, at):
    at(TUESDAY_NOON)
    secret = run("keys", "create", "app").strip()
    assert ApiKey.authenticate(secret, TUESDAY_NOON)
    run("keys", "extend", "app", "--expires", "1h")
    assert ApiKey.authenticate(secret, TUESDAY_NOON + timedelta(hours=1)) is None


def test_a_key_that_would_expire_at_once_is_refused(run, refused):
    line = "must be more than 0"
    assert line in refused("keys", "create", "app", "--expires", "0d", status=2)
    run("keys", "create", "app", "--expires", "never")
    assert line in refused("keys", "extend", "app", "--expires", "0m", status=2)


def test_a_revoked_key_is_not_extended(run, refused):
    run("keys", "create", "app")
    run("keys", "revoke", "app")
    assert refused("keys", "extend", "app", "--expires", "1d") == "Error: the key 'app' is revoked"
    refused("keys", "extend", "app", status=2)
    refused("keys", "extend", "app", "--expires", "soon", status=2)


def test_the_list_shows_the_role_and_until_when_an_old_secret_is_good(run, at):
    at(TUESDAY_NOON)
    run("keys", "create", "ann", "--role", "approver")
    assert run("keys", "list").splitlines()[1].split()[:3] == ["ann", "-", "approver"]
    run("keys", "rotate", "ann", "--overlap", "2d")
    header, ann = run("keys", "list").splitlines()
    assert ann[header.index("old secret until") :].split() == ["2026-03-05T17:00:00.000Z", "-"]
    at(TUESDAY_NOON + 3 * DAY)
    assert "2026-03-05" not in run("keys", "list")


def test_no_key_was_used_before_it_was_created(run, at):
    """The last use is known to the hour."""
    at(TUESDAY_NOON + DAY / 48)
    secret = run("keys", "create", "app").strip()
    ApiKey.authenticate(secret, TUESDAY_NOON + DAY / 32)
    header, app = run("keys", "list").splitlines()
    assert app[header.index("last used") :].split()[0] == "2026-03-03T17h"
