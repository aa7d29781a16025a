"""A key is created with all that was asked for, or not at all."""

import pytest

from access.audit import Audit
from access.keys import ApiKey
from database import db
from events.outbox import EventAddress


@pytest.fixture
def no_addresses(database_url):
    """A database that fails where addresses for events are to be stored."""
    db.execute_sql("ALTER TABLE event_address RENAME TO gone")
    yield
    db.execute_sql("ALTER TABLE gone RENAME TO event_address")


def test_a_key_whose_address_cannot_be_stored_is_not_created(no_addresses, flask):
    result = flask("keys", "create", "shop", "--events", "https://example.com/events")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: the database failed: ")
    assert ApiKey.select().count() == 0
    assert Audit.select().count() == 0


def test_it_can_be_created_afterwards(database_url, run):
    run("keys", "create", "shop", "--events", "https://example.com/events")
    assert EventAddress.of(ApiKey.named("shop")).url == "https://example.com/events"
    assert [each.what for each in Audit.select()] == ["key created", "events address set"]


def test_a_name_that_is_taken_is_still_refused_in_one_line(database_url, run, refused):
    run("keys", "create", "shop")
    line = refused("keys", "create", "shop", "--events", "https://example.com/events")
    assert line == "Error: a key named 'shop' exists already"
    assert EventAddress.select().count() == 0
