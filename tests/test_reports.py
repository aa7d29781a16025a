"""Large tables: indexes serve what people and monitoring ask often."""

from datetime import timedelta

import pytest

import reports
from keys import Identity, Role
from models import Status
from query_plans import reads_whole
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import key_named, store, store_many

OLD = TUESDAY_NOON - timedelta(days=31)
OPERATOR = Identity(0, "Olga", None, Role.OPERATOR)
ASKED_OFTEN = {
    "retrying": reports.retrying,
    "last sent": reports.last_sent_at,
    "the commonest error": lambda: reports.commonest_error(OLD),
    "await approval": reports.awaiting_approval,
    "await a carrier": reports.awaiting_carrier,
    "oldest due": lambda: reports.oldest_due(TUESDAY_NOON),
    "by status": reports.by_status,
    "ended": lambda: reports.ended_since(OLD),
    "ended, up to a number": lambda: reports.ended_since(OLD, 50),
    "going out": lambda: reports.going_out(TUESDAY_NOON, 24, 50),
    "all messages": lambda: list(reports.listing(limit=50)),
    "messages to a number": lambda: list(reports.listing(to=NEW_YORK)),
    "messages since": lambda: list(reports.listing(since=OLD)),
    "messages in every status": lambda: list(reports.listing(statuses=Status, limit=50)),
    "what waits for a yes": lambda: list(reports.listing(awaiting_approval=True, limit=50)),
    "a key's messages": lambda: list(reports.listing(key=key_named("app").name)),
    "a group's messages": lambda: list(reports.listing(group=key_named("of", "red").group)),
    "what a key may see": lambda: list(reports.listing(visible_to=key_named("app"))),
    "an operator's page": lambda: reports.awaiting(OPERATOR, None, 50),
    "an operator's count": lambda: reports.count_awaiting(OPERATOR, 50),
    "the desk's page of a number": lambda: reports.page(None, NEW_YORK, None, 50),
} | {
    f"the desk's page of {status}": lambda status=status: reports.page(
        status, None, reports.Place(TUESDAY_NOON, store().id), 50
    )
    for status in (None, *Status)
}


@pytest.mark.parametrize("name", ASKED_OFTEN)
def test_an_index_serves_what_is_asked_often(database_url, name):
    store_many(30)
    store(status=Status.SENT, finished_at=OLD, carrier_reference="SM1")
    assert reads_whole(ASKED_OFTEN[name]) == []
