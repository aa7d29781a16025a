"""Postgres' answers: a command waits as long as they take, the web and the sender do not."""

import os
import signal

import pytest

import database
from database import db, postgres
from databases import on_postgres
from models import Message, Status
from running import wait_until
from samples import TUESDAY_NOON
from stored_messages import look, store

pytestmark = on_postgres
SLOW = (
    # Postgres shows only the beginning of a statement
    """SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT "t1"."id"%' AND state = 'active' """
    "AND pid <> pg_backend_pid()"
)


@pytest.fixture
def slow_messages(database_url):
    """Make whatever reads messages take so many seconds."""

    def slow(seconds):
        store(status=Status.SENT, finished_at=TUESDAY_NOON)
        db.execute_sql("ALTER TABLE message RENAME TO stored_message")
        db.execute_sql(
            "CREATE VIEW message AS SELECT stored_message.* "
            f"FROM stored_message, (SELECT pg_sleep({seconds}) OFFSET 0) AS slept"
        )

    yield slow
    database.disconnect()  # a failed test may leave one that still waits for an answer
    db.execute_sql("DROP VIEW message")
    db.execute_sql("ALTER TABLE stored_message RENAME TO message")


@pytest.mark.parametrize("words", [("stats", "--all"), ("messages", "list", "--status", "sent")])
def test_a_command_waits_for_a_slow_statement(slow_messages, flask, monkeypatch, words):
    monkeypatch.setattr(postgres, "ANSWER_TIMEOUT", 0.3)
    slow_messages(0.4)
    result = flask(*words)
    assert result.exit_code == 0, result.output
    with pytest.raises(database.ERRORS):  # the deadline holds again after the command
        Message.select().count()


def test_a_command_that_waits_ends_with_ctrl_c_and_so_does_its_statement(
    slow_messages, database_url, start
):
    slow_messages(600)
    command = start("flask", "messages", "list", "--json", DATABASE_URL=database_url)
    wait_until(lambda: look(database_url, SLOW))
    os.kill(command.popen.pid, signal.SIGINT)
    assert command.wait() == 1, command.output
    assert "Aborted!" in command.output
    assert "Traceback" not in command.output
    wait_until(lambda: not look(database_url, SLOW))
