"""Transactions that the database ends by itself: nothing of them is kept, and the cause is told."""

import contextlib
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from databases import on_both, on_postgres, on_sqlite
from stored_messages import connection_of, store_many
from texting import database
from texting.access.do_not_call import DoNotCall
from texting.database import clock, db
from texting.messages.model import Message

pytestmark = on_both

NUMBERS = [f"+1212555{number:04}" for number in range(9)]


def add(number=NUMBERS[0]):
    DoNotCall.create(number=number, added_at=clock.now(), source="operator")


def add_plainly(value):
    """Add a number by a statement that is not undone alone: peewee's asks for the row."""
    db.execute_sql(f"INSERT INTO do_not_call (number, added_at, source) VALUES ({value}, 0, '')")


def listed():
    """Return the numbers on the list, as another connection sees them."""
    database.disconnect()
    return sorted(entry.number for entry in DoNotCall.select())


# What ends a transaction


@contextlib.contextmanager
def full_disk(url):
    """A database that may not grow."""
    connection = db.connection()
    connection.execute("PRAGMA max_page_count = 1")  # the least is its present size
    try:
        yield (
            lambda: add_plainly("hex(zeroblob(300000))"),
            f"database or disk is full: {db.database}",
        )
    finally:
        connection.execute("PRAGMA max_page_count = 4294967294")


@contextlib.contextmanager
def failing_disk(url):
    """A log that cannot grow, and a cache so small that changes are written before the commit."""
    db.execute_sql("PRAGMA cache_size = 1")
    size = Path(f"{db.database}-wal").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield lambda: add_plainly("hex(zeroblob(300000))"), f"disk I/O error: {db.database}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def interrupt(url):
    """A statement that is interrupted while it writes."""

    def interrupted():
        connection = db.connection()
        connection.set_progress_handler(lambda: 1, 1)
        try:
            add(NUMBERS[-1])
        finally:
            connection.set_progress_handler(None, 1)

    yield interrupted, "interrupted"


@contextlib.contextmanager
def no_memory(url):
    """A statement for which there is no memory: Python has an error of its own for that."""

    def exhausted():
        raise MemoryError

    def write():
        db.connection().create_function("exhausted", 0, exhausted)
        add_plainly("exhausted()")

    yield write, "out of memory"


@contextlib.contextmanager
def lost_connection(url):
    """A connection that the server ends."""

    def lose():
        ((pid,),) = db.execute_sql("SELECT pg_backend_pid()").fetchall()
        with contextlib.closing(connection_of(url)) as operator:
            operator.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
        add(NUMBERS[-1])

    yield lose, "terminating connection due to administrator command"


@contextlib.contextmanager
def long_pause(url):
    """A process that stood still for longer than the server waits within a transaction."""

    def stand_still():
        db.execute_sql("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
        time.sleep(0.5)
        add(NUMBERS[-1])

    yield stand_still, "terminating connection due to idle-in-transaction timeout"


@contextlib.contextmanager
def long_transaction(url):
    """An operator may let no transaction take long."""
    if db.connection().info.server_version < 170_000:
        pytest.skip("Postgres knows no such limit before 17")

    def take_long():
        db.execute_sql("SET LOCAL transaction_timeout = '50ms'")
        db.execute_sql("SELECT pg_sleep(10)")

    yield take_long, "terminating connection due to transaction timeout"


KINDS = [
    *(("sqlite", end) for end in (full_disk, failing_disk, interrupt, no_memory)),
    *(
        pytest.param("postgres", end, marks=pytest.mark.postgres)
        for end in (lost_connection, long_pause, long_transaction)
    ),
]
every_end = pytest.mark.parametrize(("kind", "end"), KINDS)


@pytest.fixture(autouse=True)
def a_row(database_url):
    """A row to be changed; so the database's log has begun."""
    add("+1")


def in_depth(depth, write):
    """Write in so many transactions within one another, each of which has written itself."""
    with db.atomic():
        add(NUMBERS[depth])
        if depth:
            in_depth(depth - 1, write)
        else:
            write()


@every_end
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_ended_a_transaction_is_told_from_any_depth_and_nothing_is_kept(
    database_url, end, depth
):
    for _ in "12":
        with end(database_url) as (write, words), pytest.raises(database.ERRORS) as told:
            in_depth(depth, write)
        assert database.is_outage(told.value)
        assert database.reason(told.value) == words
        assert listed() == ["+1"]
    in_depth(depth, int)
    assert listed() == ["+1", *NUMBERS[: depth + 1]]


@every_end
@pytest.mark.parametrize("block", [db.atomic, db.transaction])
@pytest.mark.parametrize("goes_on", [int, lambda: add(NUMBERS[2]), lambda: in_depth(1, int)])
def test_a_block_whose_transaction_has_ended_cannot_go_on_and_keeps_nothing(
    database_url, end, block, goes_on
):
    def deaf():
        with db.atomic():
            add(NUMBERS[3])
            with contextlib.suppress(*database.ERRORS), end(database_url) as (write, _), block():
                write()
            goes_on()

    for _ in "12":
        with pytest.raises(database.ERRORS) as told:
            deaf()
        assert database.is_outage(told.value)
        assert listed() == ["+1"]
    in_depth(0, int)
    assert listed() == ["+1", NUMBERS[0]]


@pytest.mark.parametrize(("kind", "end"), [("sqlite", full_disk), ("sqlite", interrupt)])
def test_a_transaction_that_has_ended_may_be_rolled_back_and_begun_anew(database_url, end):
    """As peewee documents it; on Postgres there is no connection left to begin it on."""
    with db.atomic() as transaction:
        add(NUMBERS[0])
        with contextlib.suppress(*database.ERRORS), end(database_url) as (write, _):
            write()
        transaction.rollback()
        add(NUMBERS[1])
    assert listed() == ["+1", NUMBERS[1]]


def test_an_error_that_ends_no_transaction_undoes_its_own_block_alone(database_url):
    with db.atomic():
        add(NUMBERS[0])
        with contextlib.suppress(*database.ERRORS), db.atomic():
            add(NUMBERS[1])
            add(NUMBERS[1])  # is on the list already
        add(NUMBERS[2])
    assert listed() == ["+1", NUMBERS[0], NUMBERS[2]]


@on_postgres
def test_a_failed_transaction_that_postgres_rolls_back_at_its_commit_is_told(database_url):
    """Postgres says ROLLBACK to the COMMIT, and nothing else."""

    def deaf():
        with db.atomic():
            add(NUMBERS[0])
            with contextlib.suppress(*database.ERRORS), db.transaction():  # without a savepoint
                add("+1")

    with pytest.raises(database.ERRORS) as told:
        deaf()
    assert database.is_outage(told.value)
    assert listed() == ["+1"]


@on_sqlite
def test_a_commit_that_others_hold_up_is_an_outage_and_keeps_nothing(database_url):
    """As on a file system on which SQLite keeps no log: readers hold up its writers."""
    with contextlib.closing(connection_of(database_url)) as reader:
        for _ in "12":
            assert db.execute_sql("PRAGMA journal_mode = delete").fetchall() == [("delete",)]
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM do_not_call").fetchall()
            with pytest.raises(database.ERRORS) as told:
                in_depth(1, int)
            assert database.is_outage(told.value)
            assert database.reason(told.value) == "database is locked"
            reader.execute("COMMIT")
            assert listed() == ["+1"]
    in_depth(1, int)
    assert listed() == ["+1", *NUMBERS[:2]]


# Reading


@on_both
def test_rows_are_written_while_others_are_read_and_written(database_url, monkeypatch):
    """Two schedulers that take over from a dead one ask about its texts at the same time."""
    monkeypatch.setattr("texting.database.pool.PATIENCE", 1)
    store_many(3)
    with ThreadPoolExecutor(1) as another:
        for number, message in enumerate(Message.select()):
            another.submit(note, message, "by another").result()
            message.record_error(f"row {number}", clock.now())
    notes = Message.select(Message.last_error).order_by(Message.last_error).tuples()
    assert [*notes] == [("row 0",), ("row 1",), ("row 2",)]


def note(message, error):
    with contextlib.closing(db):
        message.record_error(error, clock.now())
