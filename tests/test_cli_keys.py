"""flask keys: creating, listing, rotating and revoking."""

import pytest

from models import ApiKey


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
    assert run("keys", "revoke", "--", name) == f"{name}: was revoked before\n"
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
