"""Large tables: indexes serve the frequent questions of people and monitoring."""

import re
from datetime import timedelta

import pytest

from databases import on_both, on_sqlite
from query_plans import plans, reads_whole, steps
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import key_named, store, store_many
from texting.access.keys import ApiKey, Role
from texting.access.texted_countries import KeyCountry
from texting.database import PAGE
from texting.messages.model import FINISHED, Status, first_id
from texting.reports import listings, queue, usage
from texting.reports.arrivals import arrivals
from texting.reports.listings import Filter
from texting.sending import claims

pytestmark = on_both

OLD = TUESDAY_NOON - timedelta(days=31)
OPERATOR = ApiKey(id=0, name="Olga", role=Role.OPERATOR)
APPROVER = ApiKey(id=0, name="Ann", group="front", role=Role.APPROVER)
CARD = [first_id(TUESDAY_NOON)] * 3
ASKED_OFTEN = {
    "retrying": queue.retrying,
    "last sent": queue.last_sent_at,
    "what became of a carrier's texts": lambda: arrivals(TUESDAY_NOON, ["fake"]),
    "await approval": queue.awaiting_approval,
    "await approval, with the first": queue.approvals,
    "await a carrier": queue.awaiting_carrier,
    "await a paused key": queue.awaiting_paused_key,
    "under way": queue.under_way,
    "countries that are new to a key": lambda: KeyCountry.claim_news(TUESDAY_NOON),
    "due": lambda: queue.due(TUESDAY_NOON, claims.ready()),
    "whether a carrier took one": lambda: queue.taken_since(TUESDAY_NOON, "fake"),
    "waiting, by status": queue.waiting,
    "ended": lambda: queue.ended_since(OLD),
    "ended, up to a number": lambda: queue.ended_since(OLD, 50),
    "going out": lambda: queue.going_out(TUESDAY_NOON, 24, 50),
    "an operator's page": lambda: listings.awaiting(OPERATOR, None, 50),
    "an operator's card": lambda: listings.still_awaiting(OPERATOR, CARD),
    "an operator's count": lambda: listings.count_awaiting(OPERATOR, 50),
    "an operator's new texts": lambda: listings.count_awaiting(OPERATOR, 50, TUESDAY_NOON),
    "an approver's page": lambda: listings.awaiting(APPROVER, None, 50),
    "an approver's count": lambda: listings.count_awaiting(APPROVER, 50),
    "an approver's new texts": lambda: listings.count_awaiting(APPROVER, 50, TUESDAY_NOON),
    "what keys sent": lambda: usage.accepted_between([key_named("app")], OLD, TUESDAY_NOON, 50),
    "the desk's page of a number": lambda: listings.page(Filter(to=NEW_YORK), None, 50),
} | {
    f"the desk's page of {status}": lambda status=status: listings.page(
        Filter(status=status), listings.Cursor(0, TUESDAY_NOON, first_id(TUESDAY_NOON)), 50
    )
    for status in (None, *Status)
}
LISTED = {
    "message_1": [Filter(), Filter(since=OLD)],  # the primary key's
    "message_to": [Filter(to=NEW_YORK), *(Filter(to=NEW_YORK, status=each) for each in Status)],
    "message_key": [Filter(key="app"), Filter(group="red"), Filter(visible_to="of red")],
    "message_ended": [Filter(status=each) for each in FINISHED],
    "message_awaiting": [Filter(awaiting_approval=True)],
}


@pytest.mark.parametrize("name", ASKED_OFTEN)
def test_an_index_serves_what_is_asked_often(database_url, name):
    store_many(30)
    store(status=Status.SENT, finished_at=OLD, carrier_reference="SM1")
    store(status=Status.FAILED, carrier="fake", finished_at=TUESDAY_NOON)
    assert reads_whole(ASKED_OFTEN[name]) == []


@on_sqlite
def test_however_many_texts_testers_send_the_last_that_was_sent_is_found_at_once(
    database_url, tester
):
    taken = []
    for texts in (20, 2000):
        store_many(texts, key=tester, status=Status.SENT, finished_at=TUESDAY_NOON)
        taken.append(steps(queue.last_sent_at))
    assert taken[1] < 2 * taken[0]


def test_of_the_texts_that_were_sent_none_but_the_last_is_looked_at(database_url):
    lines = [line for lines in plans(queue.last_sent_at) for line in lines]
    assert any("message_finished" in line for line in lines)
    assert not [line for line in lines if "Filter:" in line or "api_key" in line]


@on_sqlite  # Postgres chooses by the rows that there are
@pytest.mark.parametrize(
    ("index", "only"), [(index, only) for index, filters in LISTED.items() for only in filters]
)
def test_an_index_serves_a_listing(database_url, index, only):
    store_many(30)
    store(key=key_named("of red", "red"), status=Status.SENT, finished_at=OLD)
    (plan,) = plans(lambda: list(listings.listing(only, 50)))
    assert any(re.search(rf"SEARCH t1 .*_?{index}\b|SCAN t1 .*_{index}\b", line) for line in plan)


def test_a_listing_reads_a_page_at_a_time(database_url):
    store_many(2 * PAGE + 1)
    assert len(plans(lambda: list(listings.listing(Filter())))) == 3
    assert len(plans(lambda: next(listings.listing(Filter())))) == 1
