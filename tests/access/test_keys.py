"""Keys, read by their secret."""

import re
from datetime import timedelta

import pytest

from access.keys import ApiKey
from query_plans import plans
from samples import HOUR, TUESDAY_NOON


@pytest.fixture
def issue(database_url):
    """Issue a key of this name; its secret."""
    return lambda name: ApiKey.issue(name, None, TUESDAY_NOON)


def is_known(secret, now=TUESDAY_NOON):
    return ApiKey.authenticate(secret, now) is not None


def test_a_change_of_a_key_is_in_force_at_once(issue):
    secret = issue("app")
    assert ApiKey.authenticate(secret, TUESDAY_NOON).name == "app"
    ApiKey.update(role="tester").execute()
    assert ApiKey.authenticate(secret, TUESDAY_NOON).role == "tester"
    ApiKey.update(revoked_at=TUESDAY_NOON).execute()
    assert not is_known(secret)
    ApiKey.update(revoked_at=None, expires_at=TUESDAY_NOON).execute()
    assert not is_known(secret)
    assert is_known(secret, TUESDAY_NOON - HOUR)


def test_after_a_rotation_the_old_secret_is_the_same_key_until_the_overlap_ends(issue):
    old = issue("app")
    new = ApiKey.get().rotate(TUESDAY_NOON + HOUR, TUESDAY_NOON)
    assert {ApiKey.authenticate(each, TUESDAY_NOON).name for each in (old, new)} == {"app"}
    assert is_known(new, TUESDAY_NOON + HOUR)
    assert not is_known(old, TUESDAY_NOON + HOUR)
    ApiKey.update(revoked_at=TUESDAY_NOON).execute()
    assert not is_known(old)


def test_one_statement_that_an_index_serves_finds_a_key(issue):
    for name in "abc":
        issue(name)
    is_known("tms_guess")  # opens the connection
    (plan,) = plans(lambda: is_known("tms_guess"), of_keys=True)
    assert not any(re.search("SCAN|Seq Scan", line) for line in plan)


def test_use_is_noted_to_the_hour(issue):
    secret = issue("app")
    assert ApiKey.get().last_used_at is None
    assert is_known(secret, TUESDAY_NOON + timedelta(minutes=59))
    assert ApiKey.get().last_used_at == TUESDAY_NOON
    assert is_known(secret, TUESDAY_NOON + timedelta(minutes=60))
    assert ApiKey.get().last_used_at == TUESDAY_NOON + HOUR
