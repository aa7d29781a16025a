"""However many messages wait in other lanes or are finished, a claim is index lookups."""

import pytest

import stored_messages
from access.keys import ApiKey
from models import Status
from query_plans import plans, reads_whole
from samples import TUESDAY_NOON
from sending import claims
from stored_messages import key_named, store, store_many


@pytest.fixture
def many(database_url):
    """Finished messages, many in the lane of another carrier, and a few to be claimed.

    Postgres has no statistics: a plan may not hang on whether ANALYZE has been here.
    """
    store_many(1000, key=key_named("a"), status=Status.SENT, finished_at=TUESDAY_NOON)
    store_many(1000, key=key_named("a"), lane="=elsewhere")
    for name in ("a", "b", "u"):
        store_many(20, key=key_named(name))
    store(key=key_named("a"), country="GB", lane="GB")
    ApiKey.update(urgent=True).where(ApiKey.name == "u").execute()


def claim_urgent_ones():
    assert {message.key_id for message in stored_messages.claim(8)} == {key_named("u").id}


def claim_others():
    ApiKey.update(urgent=False).execute()
    claimed = stored_messages.claim(8, first_key=key_named("b").id)
    assert len(claimed) == 8
    assert {message.lane for message in claimed} <= {"US", "GB"}


@pytest.mark.parametrize("action", [claims.lanes, claim_urgent_ones, claim_others])
def test_what_waits_in_other_lanes_is_not_even_passed_over(action, many):
    """An index by the key alone would go through all of its texts in the lane of another."""
    lines = [line for lines in plans(action) for line in lines if "api_key" not in line]
    assert any("message_lane" in line for line in lines)
    assert [
        line for line in lines if "message_sendable_key" in line or "Filter: (lane =" in line
    ] == []


@pytest.mark.parametrize("action", [claims.lanes, claim_urgent_ones, claim_others])
def test_no_statement_of_a_claim_reads_the_whole_table(action, many):
    assert not reads_whole(action)
