"""Large tables: indexes serve what is asked often."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

import database
import models
from models import ApiKey, Message, Receipts, Status
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import key_named, store, store_many

DAY = timedelta(days=1)
OLD = TUESDAY_NOON - 31 * DAY


def plan(sql, parameters):
    """How the database would run a statement; on Postgres, whether an index could serve it."""
    if database.db.for_update:
        database.db.execute_sql("SET enable_seqscan = off")
        explained = database.db.execute_sql(f"EXPLAIN {sql}", parameters).fetchall()
        return "\n".join(line for (line,) in explained)
    explained = database.db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return "\n".join(line for *_, line in explained)


def asked_by(action):
    """The statements that an action sends, with their parameters."""
    asked = []
    database.db.query_hooks.append(lambda event: asked.append((event.sql, event.params)))
    try:
        action()
    finally:
        database.db.query_hooks.clear()
    verbs = ("SELECT", "UPDATE", "DELETE")
    return [(sql, parameters) for sql, parameters in asked if sql.startswith(verbs)]


ASKED_OFTEN = {
    "take over": lambda: Message.take_over(TUESDAY_NOON),
    "promote": lambda: Message.promote(TUESDAY_NOON, OLD),
    "expire": lambda: Message.expire(TUESDAY_NOON, OLD),
    "block a number": lambda: Message.block_number(NEW_YORK, TUESDAY_NOON),
    "a receipt": lambda: Receipts.record([("SM1", True, None), ("SM2", False, "")], OLD),
    "a yes": lambda: Message.sent({models.new_id(OLD): "SM3"}, OLD),
    "old receipts": lambda: Receipts.forget(TUESDAY_NOON),
    "retrying": Message.retrying,
    "last sent": Message.last_sent_at,
    "the commonest error": lambda: Message.commonest_error(OLD),
    "claim": lambda: Message.claim(models.new_id(TUESDAY_NOON), 8, TUESDAY_NOON),
    "await approval": Message.awaiting_approval,
    "await a carrier": Message.awaiting_carrier,
    "oldest due": lambda: Message.oldest_due(TUESDAY_NOON),
    "by status": Message.by_status,
    "purge": lambda: Message.purge(OLD),
    "redact": lambda: Message.redact(OLD),
    "answered": lambda: Message.answered(1, "key"),
    "authenticate": lambda: ApiKey.authenticate("secret", TUESDAY_NOON),
    "all messages": lambda: list(Message.listing(limit=50)),
    "messages to a number": lambda: list(Message.listing(to=NEW_YORK)),
    "messages since": lambda: list(Message.listing(since=OLD)),
    "messages in every status": lambda: list(Message.listing(statuses=Status, limit=50)),
    "what waits for a yes": lambda: list(Message.listing(awaiting_approval=True, limit=50)),
    "a key's messages": lambda: list(Message.listing(key=key_named("app").name)),
    "a group's messages": lambda: list(Message.listing(group=key_named("of", "red").group)),
    "what a key may see": lambda: list(Message.listing(visible_to=key_named("app"))),
}


@pytest.mark.parametrize("name", ASKED_OFTEN)
def test_an_index_serves_what_is_asked_often(database_url, name):
    store_many(30)
    store(status=Status.SENT, finished_at=OLD, carrier_reference="SM1")
    asked = asked_by(ASKED_OFTEN[name])
    assert asked
    for sql, parameters in asked:
        if 'FROM "api_key"' in sql:  # a small table
            continue
        lines = plan(sql, parameters).splitlines()
        whole = [
            line
            for line in lines
            if ("Seq Scan on message" in line)
            or re.match("SCAN (?!CONSTANT)(?!.*(INDEX|SUBQUERY))", line)
        ]
        assert not whole, (sql, lines)


def test_the_benchmarks_fill_a_table_with_messages(database_url, monkeypatch):
    monkeypatch.syspath_prepend(Path(models.__file__).parent / "benchmarks")
    import fill

    fill.fill(3, Status.QUEUED)
    assert [message.status for message in Message.select()] == [Status.QUEUED] * 3
