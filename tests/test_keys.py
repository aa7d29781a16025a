"""Keys as a process knows them: for a lease."""

import time
from datetime import timedelta

import pytest

import keys
from keys import ApiKey
from samples import TUESDAY_NOON


@pytest.fixture
def issue(database_url):
    """Issue a key of this name; its secret."""
    return lambda name: ApiKey.issue(name, None, TUESDAY_NOON)


def is_known(secret, now=TUESDAY_NOON):
    return ApiKey.authenticate(secret, now) is not None


def test_a_key_is_asked_of_the_database_when_its_lease_is_over_and_not_before(issue, monkeypatch):
    now, later = issue("now"), issue("later")
    monkeypatch.setattr(keys, "LEASE", 0.01)
    assert is_known(now)
    monkeypatch.setattr(keys, "LEASE", 60)
    assert is_known(later)
    ApiKey.update(revoked_at=TUESDAY_NOON).execute()
    time.sleep(0.01)
    assert not is_known(now)
    assert is_known(later)


def test_while_one_request_renews_a_lease_others_do_not_ask(issue, monkeypatch):
    secret, live, asked = issue("app"), ApiKey.live, []
    monkeypatch.setattr(keys, "LEASE", 10)
    assert is_known(secret)

    def live_and_meanwhile(now):
        asked.append(now)
        assert len(asked) > 1 or is_known(secret)
        return live(now)

    monkeypatch.setattr(ApiKey, "live", live_and_meanwhile)
    halfway = time.monotonic() + 6
    monkeypatch.setattr(keys.time, "monotonic", lambda: halfway)
    assert is_known(secret)
    assert len(asked) == 1


def test_an_unknown_key_is_asked_of_the_database_once_a_lease(issue, monkeypatch):
    """A flood of wrong keys must not keep the database busy; made-up ones must not fill memory."""
    issue("app")
    monkeypatch.setattr(keys, "LEASE", 1)
    monkeypatch.setattr(keys, "MOST_LEASES", 3)
    assert not is_known("tms_late")
    ApiKey.update(digest=ApiKey.digest_of("tms_late")).execute()
    assert not is_known("tms_late")
    time.sleep(1)
    assert is_known("tms_late")
    for number in range(10):
        assert not is_known(f"tms_{number}")
    assert len(keys._leases) <= 4


def test_use_is_noted_to_the_hour(issue):
    secret = issue("app")
    assert ApiKey.get().last_used_at is None
    assert is_known(secret, TUESDAY_NOON + timedelta(minutes=59))
    assert ApiKey.get().last_used_at == TUESDAY_NOON
