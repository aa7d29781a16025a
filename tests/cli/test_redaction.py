"""What is redacted is gone: from the tables, and from SQLite's files, or the command says so."""

import contextlib
import json
import random
import threading
import uuid
from pathlib import Path

import pytest

import database
import schemas
from carriers import Receipt
from database import clock, sqlite
from databases import on_sqlite
from models import Message, Status
from samples import DAY, LONDON, NEW_YORK, TUESDAY_NOON
from sending import receipts
from sending.receipts import EarlyReceipt
from stored_messages import again, connection_of, store, store_many

pytestmark = pytest.mark.usefixtures("database_url")

TEXT = "A secret: xyzzy"
WAYS = [("--to", NEW_YORK), ("--older-than", "30")]


@pytest.fixture
def redact(flask):
    return lambda *words: flask("messages", "redact", *words, "--yes")


def ended(**columns):
    usual = {"status": Status.SENT, "finished_at": TUESDAY_NOON - 90 * DAY, "message": TEXT}
    return store(**usual | columns)


def traces(database_url):
    """Which of the secrets the files of SQLite hold."""
    path = Path(database_url.removeprefix("sqlite:///"))
    files = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    return [each for each in ("xyzzy", NEW_YORK) if each.encode() in files]


@contextlib.contextmanager
def load(database_url):
    """Readers and writers that use the database without a pause."""
    stop = threading.Event()

    def read_and_write(number):
        with contextlib.closing(connection_of(database_url)) as connection:
            while not stop.is_set():
                rows = connection.execute("SELECT id FROM message LIMIT 50")
                rows.fetchone()  # the snapshot stays while the rest is being read
                stop.wait(0.01)
                rows.fetchall()
                connection.execute(
                    "INSERT INTO early_receipt (reference, delivered, received_at) VALUES (?, 1, 0)"
                    "ON CONFLICT DO UPDATE SET received_at = received_at + 1",
                    [f"R{number}"],
                )

    threads = [threading.Thread(target=read_and_write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@on_sqlite
@pytest.mark.parametrize("words", WAYS)
def test_under_load_nothing_is_left_in_the_files(redact, database_url, words):
    store_many(100, message="Hello")
    for _ in range(100):
        ended()
    assert traces(database_url) == ["xyzzy", NEW_YORK]
    with load(database_url):
        result = redact(*words)
        assert (result.exit_code, result.stdout) == (0, "100 redacted\n")
        assert traces(database_url) == []


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("words", WAYS)
def test_copies_that_split_pages_keep_are_gone_too(redact, database_url, words):
    chance = random.Random(1)
    ids = [uuid.UUID(int=chance.getrandbits(128)) for _ in range(600)]
    with database.db.atomic():
        for id in ids:
            ended(id=id, message=TEXT + "x" * chance.randrange(200))
        for id in ids:
            grown = Message.update(last_error="e" * chance.randrange(10, 300))
            grown.where(Message.id == id).execute()
    assert redact(*words).stdout == "600 redacted\n"
    assert traces(database_url) == []


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize("words", WAYS)
def test_what_a_reader_keeps_in_the_log_is_said_and_gone_when_it_is_run_again(
    redact, database_url, words, monkeypatch
):
    monkeypatch.setattr(sqlite, "SCRUB_TRIES", 2)
    ended()
    with contextlib.closing(connection_of(database_url)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM message").fetchone()
        result = redact(*words)
        assert (result.exit_code, result.stdout) == (1, "1 redacted\n")
        assert "SQLite's files may still hold copies" in result.stderr
        assert traces(database_url) != []
    result = redact(*words)
    assert (result.exit_code, result.stdout) == (0, "0 redacted\n")
    assert traces(database_url) == []


@pytest.mark.slow
@on_sqlite
def test_a_writer_that_does_not_end_is_said_too(redact, database_url, monkeypatch):
    monkeypatch.setattr(sqlite, "SCRUB_TRIES", 2)
    monkeypatch.setattr(database.pool, "PATIENCE", 0.5)
    ended()
    begin, scrub = threading.Event(), database.db.obj.scrub

    def scrub_later():
        begin.set()
        with contextlib.closing(connection_of(database_url)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            return scrub()

    monkeypatch.setattr(database.db.obj, "scrub", scrub_later)
    result = redact("--to", NEW_YORK)
    assert begin.is_set()
    assert (result.exit_code, result.stdout) == (1, "1 redacted\n")
    assert "SQLite's files may still hold copies: database is locked" in result.stderr


@on_sqlite
def test_after_a_redaction_other_connections_write_in_short_waits_again(redact):
    ended()
    assert redact("--to", NEW_YORK).exit_code == 0
    ((timeout,),) = database.db.execute_sql("PRAGMA busy_timeout").fetchall()
    assert timeout == 0


@pytest.mark.parametrize("words", [("--to", NEW_YORK), ("--older-than", "0")])
def test_the_digest_of_a_request_gives_no_number_back(post, redact, words):
    headers = {"Idempotency-Key": "1"}
    message_id = post(headers, message=TEXT).json["message_id"]
    guess = schemas.digest({"to": NEW_YORK, "message": TEXT})
    assert Message.get().request_digest == guess, "or this test proves nothing"
    Message.update(status=Status.SENT, finished_at=clock.now() - DAY).execute()
    assert redact(*words).stdout == "1 redacted\n"
    stored = Message.get()
    assert guess not in stored.__data__.values()
    assert str(stored.id) == message_id
    for text in (TEXT, "another"):
        again = post(headers, message=text)
        assert again.status_code == 400
        assert "the answer is no longer kept" in again.text
    assert Message.select().count() == 1


def test_receipts_that_wait_for_a_message_forget_the_number(redact):
    ended()
    receipts.record_receipts([Receipt("R1", True, None, NEW_YORK)], TUESDAY_NOON)
    receipts.record_receipts([Receipt("R2", True, None, LONDON)], TUESDAY_NOON)
    assert redact("--to", NEW_YORK).exit_code == 0
    numbers = {row.reference: row.number for row in EarlyReceipt.select()}
    assert numbers == {"R1": None, "R2": LONDON}


def test_receipts_for_a_number_that_still_gets_a_text_wait_on(redact):
    ended()
    waits = store(status=Status.SCHEDULED)
    receipts.record_receipts([Receipt("R1", True, None, NEW_YORK)], TUESDAY_NOON)
    result = redact("--to", NEW_YORK)
    assert f"{waits.id}: not redacted" in result.stderr
    assert EarlyReceipt.get().number == NEW_YORK
    assert waits.cancel("shell", clock.now())
    assert "not redacted" not in redact("--to", NEW_YORK).stderr
    assert EarlyReceipt.get().number is None


def test_what_an_equal_text_in_doubt_needs_is_said(redact):
    doubtful = store(message=TEXT, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    kept = ended()
    result = redact("--older-than", "30")
    assert result.stdout == "0 redacted\n"
    assert "1 message not redacted: an equal text is in doubt" in result.stderr
    Message.update(in_doubt=0).where(Message.id == doubtful.id).execute()
    result = redact("--older-than", "30")
    assert result.stdout == "1 redacted\n"
    assert "not redacted" not in result.stderr
    assert again(kept).to is None


@pytest.mark.parametrize("command", ["redact", "list", "cancel", "retry", "approve"])
@pytest.mark.parametrize("number", ["", " "])
def test_no_number_is_no_number_and_not_all_numbers(flask, command, number):
    ended(status=Status.FAILED)
    store(status=Status.SCHEDULED, manual_mode=True)
    before = [message.__data__ for message in Message.select()]
    words = [] if command in ("redact", "list") else ["--since", "9999d", "--yes"]
    result = flask("messages", command, "--to", number, *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert [message.__data__ for message in Message.select()] == before


def test_a_redacted_message_is_shown_without_what_it_lost(redact, run):
    message = ended()
    assert redact("--to", NEW_YORK).exit_code == 0
    shown = json.loads(run("messages", "show", str(message.id)))
    assert (shown["to"], shown["message"], shown["status"]) == (None, None, "sent")
