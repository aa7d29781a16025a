"""Commands for many messages: each as if it were alone, some hundred in a transaction."""

from itertools import product

import pytest
from peewee import OperationalError

from databases import on_both
from samples import DAY, HOUR, TUESDAY_NOON
from stored_messages import again, decide_on, statuses, store, store_many
from texting.access.audit import Audit
from texting.cli import messages
from texting.database import PAGE, db, tables
from texting.events.outbox import Event, EventAddress
from texting.messages.model import Message, Status

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

# Many


@pytest.mark.slow
def test_any_number_of_pages_is_listed_and_decided_on(run, monkeypatch):
    monkeypatch.setattr(tables, "PAGE", 10)
    store_many(2_500)
    ids = run("messages", "list", "--ids").splitlines()
    assert len(ids) == len({*ids}) == 2_500
    assert ids == sorted(ids, reverse=True)
    words = run("messages", "cancel", *ids).splitlines()
    assert words == [f"{id}: cancelled" for id in ids]
    assert statuses() == {Status.CANCELLED: 2_500}


def test_statements_grow_with_batches_and_not_with_messages(run, monkeypatch):
    store_many(2 * PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON)
    executed, execute = [], db.obj.execute_sql
    monkeypatch.setattr(db.obj, "execute_sql", lambda *a, **k: executed.append(a) or execute(*a))
    run("messages", "retry", "--key", "app", "--yes")
    assert statuses() == {Status.SCHEDULED: 2 * PAGE}
    assert len(executed) < 30


def test_each_page_is_a_transaction_of_its_own(flask, monkeypatch):
    """So that creates and senders need not wait for the sixty thousand texts of a leaked key."""
    store_many(2 * PAGE)
    commit, commits = db.obj.commit, []

    def fail_second():
        commits.append(commit)
        if len(commits) == 2:
            raise OperationalError("broken")
        commit()

    monkeypatch.setattr(db.obj, "commit", fail_second)
    result = flask("messages", "cancel", "--key", "app", "--yes")
    assert (result.exit_code, result.stderr) == (2, "Error: the database failed: broken\n")
    counted, *changed = result.stdout.splitlines()
    assert (counted, len(changed)) == (f"{2 * PAGE} messages: {2 * PAGE} queued", PAGE)
    assert statuses() == {Status.CANCELLED: PAGE, Status.QUEUED: PAGE}


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
