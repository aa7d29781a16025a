"""Statements with names: both databases have the same ones, and an index serves each."""

import pytest

from databases import on_both
from query_plans import reads_whole
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import FAKE, key_named, store_many
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.database import db
from texting.database.statements import STATEMENTS, array, run
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.sending.carrier_state import CarrierState

ID = f"{7:032x}"
ONE = {"id": ID, "claim_number": 1, "copy": 0, "reference": "a", "tries": 1}
NOW = Message.send_at.db_value(TUESDAY_NOON)
PAIRS = {"pairs": array([("US", 1)])}
EXAMPLES = {  # the values of each, and the columns that it returns
    "beat": ({"now": NOW, "sender": ID}, None),
    "carrier_state": ({"name": FAKE}, {*CarrierState._meta.columns}),
    "open_of_sender": (
        {"sender": ID, "carrier": FAKE},
        {"message_id", "claim_number", "result"},
    ),
    "is_any_due": ({"at": NOW}, {"is_due"}),
    "hold_keys": (
        {"ids": array([1])},
        {"id", "role", "limits", "recipient_limit", "paused_at", "revoked_at"},
    ),
    "stored_before": (
        {"rows": array([{"key": 1, "name": "order", "digest": "a"}])},
        {"key_id", "idempotency_key", "response", "request_digest"},
    ),
    "listed": ({"numbers": array([NEW_YORK])}, {"number", "opted_out"}),
    "begin_attempts": (
        {"rows": array([]), "carrier": FAKE, "sender": ID, "now": NOW},
        None,
    ),
    "lock_messages": ({"ids": array([ID])}, {"id"}),
    "copies": (
        {"ids": array([ID])},
        {"message_id", "claim_number", "carrier", "result", "words", "reference", "status"},
    ),
    "accept": (
        {"rows": array([ONE]), "carrier": FAKE, "now": NOW},
        {"to", "id", "status", "attempts", "parts", "last_error", "finished_at", "receipt_at"}
        | {"receiver"},
    ),
    "end_accepted": ({"rows": array([ONE]), "now": NOW}, None),
    "has_early_receipts": (
        {"carrier": FAKE, "references": array(["fake a"]), "ids": array([ID])}
        | {"phones": array([NEW_YORK])},
        {"has_some"},
    ),
    "lanes_after": ({"lanes": array(["", "GB"])}, {"lane"}),
    "keys_with_texts": ({}, {"id", "urgent"}),
    "pairs_with_texts": (PAIRS, {"lane", "key_id"}),
    "ready_since": (PAIRS, {"at", "lane", "key_id"}),
    "claimable": (PAIRS | {"share": 2}, {"id", "key_id", "send_at"}),
    "claim": (PAIRS | {"share": 2}, {*Message._meta.columns}),
}


def test_both_databases_have_the_same_statements():
    sqlite, postgres = STATEMENTS["SQLite"], STATEMENTS["Postgres"]
    assert [*sqlite] == [*postgres]
    for name, statement in sqlite.items():
        assert statement.sentence == postgres[name].sentence
        assert {*statement.parameters} == {*postgres[name].parameters} == {*EXAMPLES[name][0]}
    assert EXAMPLES.keys() == sqlite.keys()


@on_both
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_statement_returns_the_same_columns_on_both(name, database_url):
    values, columns = EXAMPLES[name]
    with db.atomic():
        description = run(name, **values).description
    assert (description and {column[0] for column in description}) == columns


@on_both
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "begin_attempts"])
def test_an_index_serves_a_statement(name, database_url):
    store_many(300, key=key_named("a"), status=Status.SENT, finished_at=TUESDAY_NOON)
    numbers = [f"+1212555{n:04}" for n in range(300)]
    OptedOut.add(numbers, TUESDAY_NOON, "reply")
    DoNotCall.add(numbers, TUESDAY_NOON, "operator")
    usual = {"carrier": FAKE, "received_at": TUESDAY_NOON, "delivered": True}
    rows = [
        {"reference": f"fake {n}", "phone": phone, "message_id": f"{n:032x}"} | usual
        for n, phone in enumerate(numbers)
    ]
    EarlyReceipt.insert_many(rows).execute()
    CarrierState.prepare(FAKE)
    db.execute_sql("ANALYZE")
    values, _ = EXAMPLES[name]

    def action():
        with db.atomic():
            run(name, **values)

    assert [lines for lines in reads_whole(action) if "api_key" not in str(lines)] == []


@on_both
def test_odd_values_go_in_and_come_out_as_they_are(database_url):
    odd = ["", " ", "NULL", "a,b", '"', "'", "{}", "[1]", "\\", "%s", "?", ":now", "ü\n🙂"]
    OptedOut.add(odd, TUESDAY_NOON, "reply")
    DoNotCall.add(["a", *odd[:3]], TUESDAY_NOON, "operator")
    found = {*map(tuple, run("listed", numbers=array(["a", *odd])).fetchall())}
    assert {(number, bool(said)) for number, said in found} >= {(each, True) for each in odd}
    assert {number for number, said in found if not said} == {"a", *odd[:3]}
