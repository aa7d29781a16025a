"""What is redacted is gone: from the tables, and from SQLite's files, or the command says so."""

import contextlib
import json
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peewee import TextField

import models
from answers import sender
from databases import on_both, on_sqlite
from samples import DAY, LONDON, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import FAKE, connection_of, decide_on, key_named, store, store_many
from texting import database
from texting.access.do_not_call import LastReply, OptedOut
from texting.access.keys import ApiKey
from texting.access.places import KnownPlace
from texting.access.sign_ins import SignIn
from texting.carriers import IncomingText, OptOut, Part, Receipt
from texting.database import clock, sqlite
from texting.events.outbox import Event, EventAddress
from texting.messages import receipts
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.recipients import Residence
from texting.replies import inbound, opt_outs
from texting.web import bodies

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

TEXT = "A secret: xyzzy"
RULES = inbound.ReplyRules("twilio", "asked", None, None)
WITHDRAWN = "+22501234567"
WAYS = [("--to", NEW_YORK), ("--older-than", "30")]


@pytest.fixture
def redact(flask):
    return lambda *words: flask("messages", "redact", *words)


def ended(**columns):
    usual = {"status": Status.SENT, "finished_at": TUESDAY_NOON - 90 * DAY, "message": TEXT}
    return store(**usual | columns)


def traces(database_url):
    """Which of the secrets the files of SQLite hold."""
    return found_in_files(database_url, ["xyzzy", NEW_YORK])


def found_in_files(database_url, values):
    """Which of some values the files of SQLite hold."""
    path = Path(database_url.removeprefix("sqlite:///"))
    files = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    return [each for each in values if each.encode() in files]


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

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(read_and_write, number) for number in range(4)]
        try:
            yield
        finally:
            stop.set()
    assert [each.result() for each in done] == [None] * 4


@on_sqlite
@pytest.mark.parametrize("words", WAYS)
def test_under_load_nothing_is_left_in_the_files(redact, database_url, words):
    store_many(100, message="Hello")
    for _ in range(100):
        ended()
    inbound.record([IncomingText(NEW_YORK, "xyzzy", None)], TUESDAY_NOON - 90 * DAY, RULES)
    assert traces(database_url) == ["xyzzy", NEW_YORK]
    with load(database_url):
        result = redact(*words)
        assert (result.exit_code, result.stdout) == (0, "100 redacted\n1 reply deleted\n")
        assert traces(database_url) == []


# Every column of text: what it may hold of a person, and what becomes of that

FORGOTTEN = {
    "message": {"to", "message", "note", "request_digest", "response", "idempotency_key"},
    "reply": {"number", "text", "pieces"},
    "event": {"body"},  # what was replied
    "early_receipt": {"phone"},
    "last_reply": {"number"},
    "known_place": {"number", "place"},
    "attempt": {"allowed"},  # where somebody lives
    "sign_in": {"looks_for"},
}
KEPT_ON_PURPOSE = {
    "opt_out": {"number"},
    "do_not_call": {"number"},
    "do_not_call_history": {"number"},
    "audit": {"number"},  # of the list
}
NO_NUMBER_AND_NO_TEXT = {
    "api_key": {"name", "group", "role", "digest", "old_digest", "limits", "hours"}
    | {"quiet_hours", "check_dnc", "countries", "expire_after"},
    "attempt": {"carrier", "result", "reference", "words", "receipt"},
    "audit": {"who", "what", "key_name", "details"},
    "carrier_state": {"name", "trouble", "logged", "stand_ins"},
    "opt_out": {"source"},
    "do_not_call": {"source"},
    "do_not_call_history": {"kind", "what", "why", "who"},
    "early_receipt": {"reference", "carrier", "reason"},
    "event": {"webhook_id", "last_answer"},
    "event_address": {"url", "secret", "old_secret", "off"},
    "message": {"status", "approved_by", "cancelled_by", "idempotency_digest"}
    | {"last_error", "carrier", "carrier_reference", "lane", "country", "auto_reply_to"},
    "key_country": {"country"},
    "notice": {"subject", "newest"},
    "opt_out_message": {"id"},
    "outgoing_notice": {"subject", "title", "text", "kind"},
    "public_address": {"url"},
    "reply": {"carrier", "read_by", "part_reference"},
    "sign_in": {"id", "digest"},
}


def test_every_column_of_text_is_forgotten_kept_on_purpose_or_of_no_person():
    decided = (FORGOTTEN, KEPT_ON_PURPOSE, NO_NUMBER_AND_NO_TEXT)
    for table in (each._meta for each in models.TABLES):
        texts = {name for name, column in table.columns.items() if isinstance(column, TextField)}
        known = [each.get(table.table_name, set()) for each in decided]
        assert texts == set().union(*known), table.table_name


def written_to(number):
    """Write a number or a text into every column that forgets it; return these values."""
    guess = bodies.digest({"to": number, "message": TEXT})
    answer = json.dumps({"to_phone_normalized": number, "message": "an answer"})
    ended(to=number, request_digest=guess, response=answer, idempotency_key=f"for-{number}")
    ended(to=number, status=Status.CANCELLED, cancelled_by="Ann", note="a note to tell why")
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/", TUESDAY_NOON)
    store(to=number, status=Status.SENT, finished_at=TUESDAY_NOON)
    receipts.record_receipts([Receipt("R1", True, None, number)], TUESDAY_NOON, FAKE)
    said = [IncomingText(number, "START", None), IncomingText(number, "a whole reply", None)]
    parts = [("a first part, ", 1), ("a second part", 2)]
    said += [IncomingText(number, text, None, part=Part("ref", 2, n)) for text, n in parts]
    said.append(IncomingText(number, "a part alone", None, part=Part("another", 2, 1)))
    inbound.record(said, TUESDAY_NOON + SECOND, RULES)
    assert [each.number for each in LastReply.select()] == [number]
    assert Event.select().count() == 3
    KnownPlace.put({number: Residence("America/Boise")}, TUESDAY_NOON)
    key = {"key": key_named("Olga"), "digest": "-"}
    SignIn.create(id="1", began_at=TUESDAY_NOON, looks_for=f"a search {number}", **key)
    return [
        "a search",
        number,
        TEXT,
        guess,
        "a note",
        "an answer",
        "a whole reply",
        "a first part",
        "a part alone",
        "America/Boise",
    ]


@on_sqlite
def test_what_a_number_left_in_any_column_is_gone_from_the_files(redact, database_url):
    values = written_to(NEW_YORK)
    assert found_in_files(database_url, values) == values
    assert redact("--to", NEW_YORK).exit_code == 0
    assert found_in_files(database_url, [*values, "second part"]) == []


def test_a_number_that_is_valid_no_more_is_forgotten_too(redact):
    """Since 2021, numbers of Côte d'Ivoire have ten digits: libphonenumber rejects those before."""
    ended(to=WITHDRAWN)
    inbound.record([IncomingText(WITHDRAWN, TEXT, None)], TUESDAY_NOON, RULES)
    result = redact("--to", "+225 01 23 45 67")
    assert result.exit_code == 0, result.stderr
    assert Message.get().to is None
    assert not inbound.Reply.select().exists()
    mistyped = redact("--to", "+22501234568")
    assert (mistyped.exit_code, mistyped.stdout) == (2, "")


def test_the_last_word_of_a_number_is_kept_as_long_as_the_list_keeps_its_history(redact):
    """Or a START from before the STOP, which comes late, would undo it."""
    for at, stop, number in ((2, True, NEW_YORK), (1, False, LONDON)):
        said = OptOut(number, stop, "reply", TUESDAY_NOON + at * MINUTE)
        opt_outs.record_opt_out(said, TUESDAY_NOON + at * MINUTE, "asked")
    for number in (NEW_YORK, LONDON):
        assert redact("--to", number).exit_code == 0
    assert [each.number for each in LastReply.select()] == [NEW_YORK]
    late = OptOut(NEW_YORK, False, "reply", TUESDAY_NOON + MINUTE)
    opt_outs.record_opt_out(late, TUESDAY_NOON + 3 * MINUTE, "asked")
    assert OptedOut.lists(NEW_YORK)


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
    guess = bodies.digest({"to": NEW_YORK, "message": TEXT})
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


@pytest.mark.parametrize("words", WAYS)
def test_an_idempotency_key_made_of_a_number_is_forgotten_and_still_known(
    client, post, redact, database_url, words
):
    names = [f"reminder-{number}" for number in (NEW_YORK, LONDON)]
    for name in names:
        assert post({"Idempotency-Key": name}).status_code == 201
    first = Message.idempotency_key == names[0]
    old = clock.now() - 90 * DAY
    Message.update(status=Status.SENT, finished_at=old).where(first).execute()
    assert redact(*words).stdout == "1 redacted\n"
    assert [each.idempotency_key for each in Message.select().order_by(Message.id)] == [
        None,
        names[1],
    ]
    again = [post({"Idempotency-Key": name}, message=text) for name in names for text in ("", "Hi")]
    said = ["the answer is no longer kept"] * 2 + ["was used before, with another request body"] * 2
    for response, words in zip(again, said, strict=True):
        assert response.status_code == 400
        assert words in response.text
    assert Message.select().count() == 2
    made = [each.idempotency_digest for each in Message.select()]
    other = sender(client, ApiKey.issue("other", None, clock.now()))
    assert other(names[0]).status_code == 201
    latest = Message.select().order_by(Message.id.desc()).get()
    assert latest.idempotency_digest not in made, "it is keyed by the secret"


def test_one_number_is_forgotten_and_no_other(redact):
    ended()
    for reference, number in (("R1", NEW_YORK), ("R2", LONDON)):
        opt_outs.record_opt_out(OptOut(number, False, "reply"), TUESDAY_NOON, "asked")
        receipts.record_receipts([Receipt(reference, True, None, number)], TUESDAY_NOON, FAKE)
    assert redact("--to", NEW_YORK).exit_code == 0
    assert [each.number for each in LastReply.select()] == [LONDON]
    numbers = {row.receipt.reference: row.phone for row in EarlyReceipt.select()}
    assert numbers == {"R1": None, "R2": LONDON}


def test_receipts_for_a_number_that_still_gets_a_text_wait_on(redact):
    ended()
    waits = store(status=Status.SCHEDULED)
    receipts.record_receipts([Receipt("R1", True, None, NEW_YORK)], TUESDAY_NOON, FAKE)
    result = redact("--to", NEW_YORK)
    assert f"{waits.id}: not redacted" in result.stderr
    assert EarlyReceipt.get().phone == NEW_YORK
    assert decide_on(waits).cancel("shell", clock.now())
    assert "not redacted" not in redact("--to", NEW_YORK).stderr
    assert EarlyReceipt.get().phone is None


@pytest.mark.parametrize("command", ["redact", "list", "cancel"])
@pytest.mark.parametrize("number", ["", " "])
def test_no_number_is_no_number_and_not_all_numbers(flask, command, number):
    ended(status=Status.FAILED)
    store(status=Status.SCHEDULED, manual_mode=True)
    before = [message.__data__ for message in Message.select()]
    result = flask("messages", command, "--to", number)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert [message.__data__ for message in Message.select()] == before
