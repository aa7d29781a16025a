"""Commands for many messages: whole, as for one after the other, and honest about an end midway."""

import json
import os
import signal
from itertools import product
from pathlib import Path

import pytest

from access.audit import Audit
from access.do_not_call import DoNotCall
from cli import dnc, messages
from database import PAGE, db, tables
from databases import on_both
from events.outbox import Event, EventAddress
from models import Message, Status
from samples import DAY, HOUR, TUESDAY_NOON
from stored_messages import again, decide_on, statuses, store, store_many

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

# Many


@pytest.mark.slow
def test_any_number_of_pages_is_listed_and_decided_on(run, monkeypatch):
    monkeypatch.setattr(tables, "PAGE", 10)
    store_many(2_500)
    ids = [message["message_id"] for message in json.loads(run("messages", "list", "--json"))]
    assert len(ids) == len({*ids}) == 2_500
    assert ids == sorted(ids, reverse=True)
    words = run("messages", "cancel", "--status", "queued", "--yes").splitlines()
    assert words == [f"{id}: cancelled" for id in ids]
    assert statuses() == {Status.CANCELLED: 2_500}


def test_statements_grow_with_batches_and_not_with_messages(run, monkeypatch):
    store_many(2 * PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON)
    executed, execute = [], db.obj.execute_sql
    monkeypatch.setattr(db.obj, "execute_sql", lambda *a, **k: executed.append(a) or execute(*a))
    run("messages", "retry", "--status", "failed", "--yes")
    assert statuses() == {Status.SCHEDULED: 2 * PAGE}
    assert len(executed) < 30


# As one after the other

TRANSITIONS = {
    "approve": lambda these: these.approve("shell", TUESDAY_NOON),
    "refuse": lambda these: these.decide(False, "shell", TUESDAY_NOON),
    "cancel": lambda these: these.cancel("shell", TUESDAY_NOON),
    "retry": lambda these: these.retry(TUESDAY_NOON, 3 * DAY),
}


def store_any_mix():
    """Messages in every status, approved or not, in doubt or not, with and without a send_date."""
    EventAddress.set(store().key, "https://example.com/events", TUESDAY_NOON)
    dates = (None, TUESDAY_NOON - HOUR, TUESDAY_NOON, TUESDAY_NOON + HOUR)
    for status, approved, doubt, send_date in product(Status, (True, False), (0, 1), dates):
        ended = status not in (Status.SCHEDULED, Status.QUEUED, Status.SENDING)
        store(
            status=status,
            approved=approved,
            in_doubt=doubt,
            in_doubt_since=TUESDAY_NOON - HOUR if doubt else None,
            send_date=send_date,
            attempts=2,
            finished_at=TUESDAY_NOON - HOUR if ended else None,
            claim_number=3,
        )
    store(status=Status.QUEUED, in_doubt=1, cancelled_by="shell")
    store(status=Status.FAILED, to=None, message=None, finished_at=TUESDAY_NOON)


def everything():
    """All messages, and what was noted and is to be told of them."""
    rows = [message.__data__ for message in Message.select().order_by(Message.id)]
    noted = sorted((str(each.message_id), each.what, each.at) for each in Audit.select())
    events = sorted((str(each.message_id), each.body, each.at) for each in Event.select())
    return rows, noted, events


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSITIONS)
def test_many_at_once_are_as_one_after_the_other(name):
    transition = TRANSITIONS[name]
    store_any_mix()
    messages = [*Message.select()]
    with db.atomic() as first:
        moved = {message.id for message in messages if transition(decide_on(message))}
        one_by_one = everything()
        first.rollback()
    assert {*transition(decide_on(*messages))} == moved
    assert 0 < len(moved) < len(messages)
    assert everything() == one_by_one


@pytest.mark.parametrize(
    ("command", "status", "done"),
    [
        ("approve", Status.QUEUED, "approved"),
        ("cancel", Status.SCHEDULED, "cancelled"),
        ("retry", Status.FAILED, "queued again"),
    ],
)
def test_each_message_is_reported_in_its_order(session, monkeypatch, at, command, status, done):
    """On several pages, of which only the first has a refusal."""
    monkeypatch.setattr(messages, "PAGE", 2)
    at(TUESDAY_NOON)
    ended = {"finished_at": TUESDAY_NOON}
    sent = store(status=Status.SENT, **ended)
    good = [store(status=status, manual_mode=True, **ended) for _ in range(3)]
    unknown = "019cb4b5-0000-7000-8000-000000000000"
    session(f"""
        $ flask messages {command} {sent.id} {unknown} {" ".join(str(each.id) for each in good)}
        {sent.id}: not {done}: sent at 2026-03-03T17:00:00.000Z
        {unknown}: there is no such message
        {good[0].id}: {done}
        {good[1].id}: {done}
        {good[2].id}: {done}
        [1]
    """)


def test_a_text_in_doubt_is_cancelled_unless_the_carrier_has_it(session):
    message = store(in_doubt=1)
    session(f"""
        $ flask messages cancel {message.id}
        {message.id}: cancelled, unless the carrier has it already
    """)
    assert (again(message).status, again(message).cancelled_by) == (Status.QUEUED, "shell")


# An end midway


@pytest.fixture
def fails_at():
    """Make the database fail where a message is changed: `fails_at(message)`."""

    def begin(message):
        if db.product == "Postgres":
            db.execute_sql(
                "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE 'broken'; END $$"
            )
            db.execute_sql(
                "CREATE TRIGGER fails BEFORE UPDATE OR DELETE ON message FOR EACH ROW "
                f"WHEN (OLD.id = '{message.id}') EXECUTE FUNCTION fails()"
            )
            return
        for change in ("UPDATE", "DELETE"):
            db.execute_sql(
                f"CREATE TRIGGER fails_at_{change} BEFORE {change} ON message "
                f"WHEN OLD.id = '{message.id.hex}' BEGIN SELECT RAISE(ABORT, 'broken'); END"
            )

    yield begin
    if db.product == "Postgres":
        db.execute_sql("DROP FUNCTION fails CASCADE")


def test_what_was_done_before_an_error_stays_done_and_is_said(flask, fails_at):
    store_many(3 * PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON)
    newest = Message.select().order_by(Message.id.desc())
    fails_at(newest[PAGE + 10])
    result = flask("messages", "retry", "--status", "failed", "--yes")
    assert result.exit_code == 2
    said, error = result.stderr.splitlines()
    assert said == f"retry: {PAGE} of {3 * PAGE} done before it ended"
    assert error.startswith("Error: the database failed")
    assert len(result.stdout.splitlines()) == PAGE
    assert statuses() == {Status.SCHEDULED: PAGE, Status.FAILED: 2 * PAGE}
    assert Audit.select().count() == PAGE


@pytest.mark.parametrize("command", ["redact", "purge"])
def test_what_was_forgotten_before_an_error_is_said(flask, fails_at, command):
    last = store(status=Status.FAILED, finished_at=TUESDAY_NOON + HOUR)
    store_many(3 * PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON)
    fails_at(last)
    result = flask("messages", command, "--older-than", "1", "--yes")
    assert result.exit_code == 2
    said, _ = result.stderr.splitlines()
    done = int(said.removeprefix(f"{command}: ").removesuffix(" done before it ended"))
    column = Message.select().where(Message.message.is_null(False))
    assert column.count() == 3 * PAGE + 1 - done


@pytest.fixture
def press_ctrl_c(monkeypatch):
    """Press Ctrl-C where something is called the second time, before or after that."""

    def begin(place, name, when):
        call, calls = getattr(place, name), []

        def pressing(*arguments, **named):
            calls.append(name)
            if len(calls) == 2 and when == "before":
                os.kill(os.getpid(), signal.SIGINT)
            result = call(*arguments, **named)
            if len(calls) == 2 and when == "after":
                os.kill(os.getpid(), signal.SIGINT)
            return result

        monkeypatch.setattr(place, name, pressing)

    return begin


COMMANDS = {
    "retry": ("--status", "failed", "--yes"),
    "purge": ("--older-than", "1", "--yes"),
    "redact": ("--older-than", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("call", "batches"), [("audit", 1), ("commit", 2)])
def test_ctrl_c_says_exactly_what_was_done(flask, press_ctrl_c, command, call, when, batches):
    store_many(3 * PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON)
    if call == "commit":
        press_ctrl_c(db.obj, "commit", when)
    else:
        press_ctrl_c(Audit, "note_each" if command == "retry" else "note", when)
    result = flask("messages", command, *COMMANDS[command])
    assert result.exit_code == 1
    done, of = batches * PAGE, f" of {3 * PAGE}" if command == "retry" else ""
    said = [line for line in result.stderr.splitlines() if line]
    assert said == [f"{command}: {done}{of} done before it ended", "Aborted!"]
    assert len(result.stdout.splitlines()) == (done if command == "retry" else 0)
    unchanged = Message.select().where(
        Message.status == Status.FAILED, Message.message.is_null(False)
    )
    assert unchanged.count() == 3 * PAGE - done


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_says_how_many_numbers_an_import_has_added(flask, press_ctrl_c, monkeypatch, when):
    monkeypatch.setattr(dnc, "BATCH", 10)
    Path("numbers.txt").write_text("\n".join(f"+121255501{n:02}" for n in range(30)))
    press_ctrl_c(db.obj, "commit", when)
    result = flask("dnc", "import", "numbers.txt")
    assert result.exit_code == 1
    assert "adding: 20 of 30 done before it ended" in result.stderr
    assert DoNotCall.size() == 20
