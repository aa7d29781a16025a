"""Large tables: indexes serve what changes messages."""

from datetime import timedelta

import pytest

from databases import on_both
from query_plans import reads_whole
from running import ROOT
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import FAKE, claim, store, store_many
from texting.carriers import Receipt, Shown
from texting.messages import doubts, model, receipts, storing, waiting
from texting.messages.model import Message, Status
from texting.sending import retention

pytestmark = on_both

OLD = TUESDAY_NOON - timedelta(days=31)
DONE_OFTEN = {
    "take over": lambda: doubts.take_over(TUESDAY_NOON, ()),
    "promote": lambda: waiting.promote(TUESDAY_NOON),
    "expire": lambda: waiting.expire(TUESDAY_NOON),
    "block a number": lambda: waiting.block_number(NEW_YORK, TUESDAY_NOON),
    "a receipt": lambda: receipts.record_receipts(
        [Receipt("SM1", True), Receipt("SM2", False)], OLD, FAKE
    ),
    "a report": lambda: receipts.shown(
        [Shown("SM1"), Shown("SM2"), Shown("SM3", str(model.new_id(OLD)))], OLD, FAKE
    ),
    "a yes": lambda: receipts.record_accepted({model.new_id(OLD): "SM3"}, OLD, FAKE),
    "old receipts": lambda: receipts.forget_unmatched(TUESDAY_NOON),
    "claim": lambda: claim(8),
    "purge": lambda: retention.purge(OLD, TUESDAY_NOON),
    "redact": lambda: retention.redact(OLD, TUESDAY_NOON),
    "answered": lambda: storing.stored_before(1, "key", "digest"),
}


@pytest.mark.parametrize("name", DONE_OFTEN)
def test_an_index_serves_what_is_done_often(database_url, name):
    store_many(30)
    store(status=Status.SENT, finished_at=OLD, carrier_reference="SM1")
    assert reads_whole(DONE_OFTEN[name]) == []


def test_the_benchmarks_fill_a_table_with_messages(database_url, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import fill

    fill.fill(3, Status.QUEUED)
    assert [message.status for message in Message.select()] == [Status.QUEUED] * 3
