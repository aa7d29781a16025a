"""A row that breaks what a pass does with all that are due is set aside, and the others go on."""

import json
import logging

import pytest
from peewee import OperationalError

from carriers import Reply as Said
from carriers.ways import Way
from database import db
from databases import on_both
from events.outbox import Event, EventAddress
from fake_carrier import FakeCarrier
from messages.model import Message, Status
from replies import inbound
from replies.inbound import ReplyRules
from replies.model import Reply
from samples import ALWAYS_OPEN, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, key_named, statuses, store, store_many

pytestmark = on_both

BAD, TEXT = "+12125559999", "a secret of 12 words"


def breaks(table, row, when):
    """Have the database refuse a change of a row, in words that repeat its number."""
    id = type(row).id.db_value(row.id)
    id = id if isinstance(id, str) else str(id)
    name = f"broken_{table}"
    condition = f"OLD.id = '{id}' AND ({when})"
    if db.product != "Postgres":
        db.execute_sql(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, 'broken: {BAD} {TEXT}'); END"
        )
        return lambda: db.execute_sql(f"DROP TRIGGER {name}")
    db.execute_sql(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'broken: {BAD} {TEXT}' USING ERRCODE = '22000'; END $$"
    )
    db.execute_sql(
        f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({condition}) "
        f"EXECUTE FUNCTION {name}()"
    )
    return lambda: db.execute_sql(f"DROP TRIGGER {name} ON {table}")


@pytest.fixture
def broken(database_url):
    """Break rows until the test ends: the tables are emptied, and not made anew."""
    mended = []

    def break_row(*arguments):
        mended.append(breaks(*arguments))

    yield break_row
    for mend in mended:
        mend()


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


def due(count=20, **columns):
    columns = {"status": Status.SCHEDULED, "send_at": TUESDAY_NOON - MINUTE} | columns
    return store_many(count, **columns), store(to=BAD, message=TEXT, **columns)


NEW = {True: "NEW.status <> OLD.status", False: "TRUE"}


@pytest.mark.parametrize("may_move", [True, False], ids=["may be moved on", "may not change"])
def test_a_text_that_breaks_promotion_is_set_aside_and_all_others_go(
    run_pass, carrier, broken, caplog, may_move
):
    numbers, bad = due()
    broken("message", bad, NEW[may_move])
    assert run_pass(TUESDAY_NOON)["sent"] == 20
    assert sorted(carrier.numbers) == numbers
    assert again(bad).status == Status.SCHEDULED
    assert str(bad.id) in caplog.text
    assert BAD not in caplog.text
    assert TEXT not in caplog.text
    store_many(3, TUESDAY_NOON, status=Status.SCHEDULED)
    assert run_pass(TUESDAY_NOON + MINUTE)["sent"] == 3


def test_what_was_set_aside_is_left_alone_for_a_while_and_goes_once_it_is_mended(
    run_pass, carrier, database_url, caplog
):
    _, bad = due(5)
    mend = breaks("message", bad, NEW[True])
    run_pass(TUESDAY_NOON)
    caplog.clear()
    run_pass(TUESDAY_NOON + SECOND)
    assert errors(caplog) == [], "not at each pass"
    mend()
    run_pass(TUESDAY_NOON + 30 * MINUTE)
    assert statuses() == {Status.SENT: 6}


def test_several_that_break_it_are_set_aside_each(run_pass, carrier, database_url, monkeypatch):
    """The event of an end cannot be written."""
    write = Event.write.__func__
    bad = {f"+1212555000{n}" for n in (0, 7, 8)}
    address(key_named("app"))
    due(10, first_send_at=TUESDAY_NOON - 80 * HOUR)

    def fail(cls, ended):
        ended = list(ended)
        if any(each.to in bad for each in ended):
            raise ValueError(BAD)
        write(cls, ended)

    monkeypatch.setattr(Event, "write", classmethod(fail))
    assert run_pass(TUESDAY_NOON)["expired"] == 8
    assert {m.to for m in Message.select().where(Message.status != Status.EXPIRED)} == bad
    assert Event.select().count() == 8


@pytest.mark.parametrize("columns", [{"approved": False, "manual_mode": True}, {}])
def test_a_text_that_breaks_expiry_is_set_aside_too(run_pass, broken, caplog, columns):
    old = TUESDAY_NOON - 80 * HOUR
    columns = {"status": Status.QUEUED, "send_at": old, "first_send_at": old} | columns
    _, bad = due(10, **columns)
    broken("message", bad, "NEW.status = 'expired'")
    assert run_pass(TUESDAY_NOON, carrier=None)["expired"] == 10
    assert again(bad).status == Status.QUEUED
    assert BAD not in caplog.text


def test_an_outage_sets_nothing_aside(settings, at, database_url, monkeypatch):
    """The pass fails, as always, and the next one does it all."""
    at(TUESDAY_NOON)
    due(5)
    scheduler = Scheduler(settings, FakeCarrier())

    def fail(cls, update):
        raise OperationalError("the connection is lost")

    with monkeypatch.context() as away:
        away.setattr(Message, "change", classmethod(fail))
        with pytest.raises(OperationalError):
            scheduler.promote(TUESDAY_NOON)
    scheduler.promote(TUESDAY_NOON)
    assert scheduler.counts["promoted"] == 6


# Replies


def address(key):
    EventAddress.set(key, "https://systems.example.com/events", TUESDAY_NOON)


@pytest.fixture
def unfinished(database_url):
    """Replies to messages of a key that is told of them; of each, a part is missing."""
    address(key_named("app"))
    rules = ReplyRules(Way("fake"), "asked", None, None)

    def write(number):
        store(to=number, status=Status.SENT, finished_at=TUESDAY_NOON - HOUR, carrier="fake")
        said = Said(number, TEXT, message_ids=(number,), part=("7", 2, 1))
        inbound.record([said], TUESDAY_NOON, rules)
        return Reply.get(Reply.number == number)

    return write


@pytest.mark.parametrize("may_show", [True, False], ids=["at its event", "at any change"])
def test_a_reply_that_breaks_its_telling_stops_neither_passes_nor_others(
    run_pass, carrier, unfinished, broken, monkeypatch, caplog, may_show
):
    bad, good = unfinished(BAD), unfinished(NEW_YORK)
    if may_show:
        write_reply = Event.write_reply.__func__

        def fail(cls, key, message_id, data, now):
            if data["reply_id"] == str(bad.id):
                raise KeyError(BAD)
            write_reply(cls, key, message_id, data, now)

        monkeypatch.setattr(Event, "write_reply", classmethod(fail))
    else:
        broken("reply", bad, "TRUE")
    waits = store(to="+12125550001")
    run_pass(TUESDAY_NOON + 6 * MINUTE, **ALWAYS_OPEN)
    assert again(waits).status == Status.SENT
    (event,) = Event.select().where(Event.reply_id.is_null(False))
    assert json.loads(event.body)["data"]["reply_id"] == str(good.id)
    shown = {each.id for each in Reply.shown(TUESDAY_NOON + 6 * MINUTE)}
    assert shown == {bad.id, good.id}
    assert str(bad.id) in caplog.text
    assert BAD not in caplog.text
    assert TEXT not in caplog.text
    caplog.clear()
    run_pass(TUESDAY_NOON + 7 * MINUTE, **ALWAYS_OPEN)
    assert (errors(caplog) == []) == may_show
