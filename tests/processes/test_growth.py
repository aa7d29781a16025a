"""Large tables: indexes serve what is asked often; what is old can be deleted or redacted."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

import models
from models import FINISHED, ApiKey, Message, Status
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import again, key_named, store, store_many

DAY = timedelta(days=1)
OLD = TUESDAY_NOON - 31 * DAY


def plan(sql, parameters):
    """How the database would run a statement; on Postgres, whether an index could serve it."""
    if models.db.for_update:
        models.db.execute_sql("SET enable_seqscan = off")
        explained = models.db.execute_sql(f"EXPLAIN {sql}", parameters).fetchall()
        return "\n".join(line for (line,) in explained)
    explained = models.db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return "\n".join(line for *_, line in explained)


def asked_by(action):
    """The statements that an action sends, with their parameters."""
    asked = []
    models.db.query_hooks.append(lambda event: asked.append((event.sql, event.params)))
    try:
        action()
    finally:
        models.db.query_hooks.clear()
    verbs = ("SELECT", "UPDATE", "DELETE")
    return [(sql, parameters) for sql, parameters in asked if sql.startswith(verbs)]


ASKED_OFTEN = {
    "take over": lambda: Message.take_over(TUESDAY_NOON),
    "block": lambda: Message.block_listed(TUESDAY_NOON),
    "promote": lambda: Message.promote(TUESDAY_NOON),
    "claim": lambda: Message.claim(models.new_id(TUESDAY_NOON), 8, TUESDAY_NOON),
    "await approval": Message.awaiting_approval,
    "await a carrier": Message.awaiting_carrier,
    "oldest due": lambda: Message.oldest_due(TUESDAY_NOON),
    "by status": Message.by_status,
    "purge": lambda: Message.purge(OLD),
    "redact": lambda: Message.redact(OLD),
    "answered": lambda: Message.answered(1, "key"),
    "authenticate": lambda: ApiKey.authenticate("secret", TUESDAY_NOON),
    "a key's messages": lambda: list(Message.listing(visible_to=key_named("app"))),
}


@pytest.mark.parametrize("name", ASKED_OFTEN)
def test_an_index_serves_what_is_asked_often(database_url, name):
    store_many(30)
    asked = asked_by(ASKED_OFTEN[name])
    assert asked
    for sql, parameters in asked:
        lines = plan(sql, parameters).splitlines()
        whole = [
            line
            for line in lines
            if ("Seq Scan on message" in line)
            or (line.startswith("SCAN") and "INDEX" not in line and "SUBQUERY" not in line)
        ]
        assert not whole or name == "a key's messages", (sql, lines)


@pytest.fixture
def ages(database_url, at):
    """An old and a young message in each state."""
    at(TUESDAY_NOON)
    return {
        (status, finished_at): store(
            status=status, finished_at=finished_at if status in FINISHED else None, send_at=OLD
        )
        for status in Status
        for finished_at in (OLD, TUESDAY_NOON - 29 * DAY)
    }


def test_purge_deletes_what_ended_long_ago_and_nothing_else(ages, flask):
    result = flask("messages", "purge", "--older-than", "30")
    assert (result.exit_code, result.stdout) == (0, "4 deleted\n")
    kept = {message.id for message in Message.select()}
    gone = {message.id for (status, ended), message in ages.items() if message.id not in kept}
    assert gone == {ages[status, OLD].id for status in FINISHED}
    assert flask("messages", "purge", "--older-than", "30").stdout == "0 deleted\n"


def test_redact_clears_number_and_text_of_what_ended_long_ago_and_keeps_the_record(ages, flask):
    result = flask("messages", "redact", "--older-than", "30")
    assert (result.exit_code, result.stdout) == (0, "4 redacted\n")
    for (status, ended), before in ages.items():
        after = again(before)
        if status in FINISHED and ended == OLD:
            assert (after.to, after.message, after.answer) == (None, None, None)
        else:
            assert (after.to, after.message) == (NEW_YORK, "Hello")
        assert (after.status, after.finished_at) == (before.status, before.finished_at)
    assert flask("messages", "redact", "--older-than", "30").stdout == "0 redacted\n"


def test_purge_and_redact_work_in_batches(database_url, flask, at):
    at(TUESDAY_NOON)
    store_many(2500, status=Status.SENT, finished_at=OLD)
    assert flask("messages", "redact", "--older-than", "30").stdout == "2500 redacted\n"
    assert flask("messages", "purge", "--older-than", "30").stdout == "2500 deleted\n"
    assert Message.select().count() == 0


def test_several_purges_at_once_beside_a_busy_service_delete_each_message_once(
    database_url, start, serve, key
):
    store_many(3000, status=Status.SENT, finished_at=OLD)
    waiting = store_many(200, status=Status.SCHEDULED, send_at=TUESDAY_NOON + 365_000 * DAY)
    purges = [
        start("flask", "messages", "purge", "--older-than", "30", DATABASE_URL=database_url)
        for _ in range(3)
    ]
    scheduler = start("scheduler.py", DATABASE_URL=database_url)
    ended = [threading.Thread(target=process.wait) for process in (*purges, scheduler)]
    for thread in ended:
        thread.start()
    for thread in ended:
        thread.join()
    assert [process.popen.returncode for process in (*purges, scheduler)] == [0] * 4, [
        process.output for process in purges
    ]
    deleted = [int(process.output.split()[-2]) for process in purges]
    assert sum(deleted) == 3000
    assert Message.select().count() == len(waiting)


def test_the_benchmarks_fill_a_table_with_messages(database_url, monkeypatch):
    monkeypatch.syspath_prepend(Path(models.__file__).parent / "benchmarks")
    import fill

    fill.fill(3, Status.QUEUED)
    assert [message.status for message in Message.select()] == [Status.QUEUED] * 3
