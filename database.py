"""The database: connections, what errors mean, what tables share, migrations, batched inserts.

Any thread may use `db` and the models as peewee documents it. Each thread has a connection of its
own, taken from a small pool with its first query; a web request gives it back at its end, any other
thread when it calls `db.close()` or ends.
"""

import re
import select
import sqlite3
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from greenlet import getcurrent, greenlet
from peewee import (
    BigIntegerField,
    DatabaseError,
    DatabaseProxy,
    DataError,
    IntegrityError,
    InterfaceError,
    Model,
    OperationalError,
    Psycopg3Adapter,
    TextField,
)
from playhouse.migrations import Runner
from playhouse.pool import PooledPostgresqlDatabase, PooledSqliteDatabase

db = DatabaseProxy()

ERRORS = (DatabaseError, InterfaceError)
"""What peewee raises for the database's own errors: outages, and bugs of ours; see `is_outage`."""

PATIENCE = 5  # seconds that a thread waits for a connection, or for another's lock
ANSWER_TIMEOUT = 15  # seconds until a Postgres that says nothing is given up

BATCH = 5_000
"""Rows that a bulk change moves in one transaction, so that others do not wait long."""

PAGE = 500
"""Rows that are read at once where all are wanted."""

MIGRATIONS = Path(__file__).parent / "migrations"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Busy(OperationalError):
    """Say that a thread has waited for PATIENCE seconds and others still hold what it needs."""


class Refused(Exception):
    """Say, for an operator, why something cannot be done in the present state."""


# Connections


class Pooled:
    """Bound how many connections there are, and how long a thread waits for one."""

    size = 4  # connections a process: a PaaS' smallest Postgres allows 20 in all

    def __init__(self, *args: Any, **kwargs: Any):
        self._places = threading.BoundedSemaphore(self.size)
        self._own = threading.local()
        super().__init__(*args, max_connections=0, **kwargs)

    def connect(self, reuse_if_open: bool = False) -> bool:
        if not self.is_closed():
            return super().connect(reuse_if_open)
        if not self._places.acquire(timeout=PATIENCE):
            raise Busy("all connections of this process are in use")
        try:
            super().connect()
        except BaseException:
            if not self.is_closed():  # what was to be its first statement failed
                super().close()
            self._places.release()
            raise
        # Where a thread ends without closing, its connection is given back, too
        thread, connection = threading.current_thread(), self.connection()
        self._own.release = weakref.finalize(thread, self._abandon, connection)
        return True

    def close(self) -> bool:
        was_open = super().close()
        if was_open:
            self._own.release.detach()
            self._places.release()
        return was_open

    def _abandon(self, connection):
        self._close(connection)
        self._places.release()


class Sqlite(Pooled, PooledSqliteDatabase):
    """A SQLite that waits for other writers in short naps.

    SQLite's own waiting sleeps up to a tenth of a second while the lock comes and goes: with 8
    threads in 2 processes the 99th percentile of a request was half a second.
    """

    def begin(self, lock_type: str | None = None) -> None:
        self._retry_while_locked(super().begin, lock_type)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        return self._retry_while_locked(super().execute_sql, sql, params)

    def rollback(self) -> None:
        """Roll back, unless SQLite has done so already because the disk was full."""
        if self.connection().in_transaction:
            super().rollback()

    def _retry_while_locked(self, action, *arguments):
        give_up_at = None
        while True:
            try:
                return action(*arguments)
            except OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    if not self.in_transaction():
                        self.manual_close()  # the file may be another by now
                    raise
                give_up_at = give_up_at or time.monotonic() + PATIENCE
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(0.0005)


class Connection(psycopg.Connection):
    """A connection that gives up on a server that says nothing for ANSWER_TIMEOUT seconds.

    TCP's own keepalive notices a dead host, but not a proxy that swallows what it gets.
    """

    answer_timeout: float | None = ANSWER_TIMEOUT
    is_new = True
    was_idle = False  # and may have died meanwhile
    gave_up = False

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        give_up_at = self.answer_timeout and time.monotonic() + self.answer_timeout
        try:
            return super().wait(gen, interval=interval, timeout=timeout or self.answer_timeout)
        except psycopg.OperationalError:
            if give_up_at and time.monotonic() >= give_up_at:
                self.gave_up = True
                self.pgconn.finish()  # later answers could not be told apart
            raise


class Adapter(Psycopg3Adapter):
    def connect(self, db: Any, **params: Any) -> Connection:
        return Connection.connect(db.database, **params)


class Postgres(Pooled, PooledPostgresqlDatabase):
    """A PostgreSQL on which no silence, lock or dead connection is waited for long."""

    psycopg3_adapter = Adapter
    session = {  # noqa: RUF012
        "lock_timeout": f"{PATIENCE}s",
        # A server that lost the connection releases its locks
        "idle_in_transaction_session_timeout": "30s",
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }

    def _initialize_connection(self, conn):
        if conn.is_new:
            pairs = ", ".join(f"set_config('{k}', '{v}', false)" for k, v in self.session.items())
            answer = conn.execute(f"SELECT pg_backend_pid(), {pairs}").fetchone()
            if answer[0] != conn.info.backend_pid:
                # A pooler such as PgBouncer changes the server's process, to which they belong
                conn.prepare_threshold = None
        conn.was_idle, conn.is_new = not conn.is_new, False

    def _is_closed(self, conn):
        """Say whether an idle connection has died: then something is there to be read.

        Without a round trip, which peewee's own probe needs. What died without a word is noticed
        by the next statement, after ANSWER_TIMEOUT.
        """
        if conn.closed:
            return True
        poll = select.poll()
        poll.register(conn.pgconn.socket, select.POLLIN)
        if dead := bool(poll.poll(0)):
            conn.close()
        return dead

    def begin(self, isolation_level: str | None = None) -> None:
        self._on_a_live_connection(super().begin, isolation_level)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        return self._on_a_live_connection(super().execute_sql, sql, params)

    def rollback(self) -> None:
        self._on_a_live_connection(super().rollback)

    def _on_a_live_connection(self, action, *arguments):
        """Do something with the connection; where it turns out to be dead, leave it.

        What finds a connection dead that has just been taken from the pool is done once more: the
        server closed it while it was idle.
        """
        try:
            result = action(*arguments)
        except (OperationalError, InterfaceError) as error:
            connection = None if self.is_closed() else self.connection()
            died_idle = bool(connection and connection.closed and connection.was_idle)
            if _state(error) is None or died_idle:
                self.close_idle()  # the others have died with it
            if not self.in_transaction():
                self.close()
            if not died_idle or connection.gave_up:
                raise
            return action(*arguments)
        self.connection().was_idle = False
        return result


def connect(url: str) -> None:
    """Point every model at the database of a `sqlite:///` or `postgresql://` URL; open nothing.

    Connections are kept: closing SQLite's last one checkpoints the WAL, which halves the
    throughput, and a new one to Postgres costs a round trip and a process there.
    """
    disconnect()
    db.initialize(_database(url))


def _database(url):
    if url.startswith("sqlite:"):
        return Sqlite(
            url.removeprefix("sqlite:///"),
            pragmas={
                "journal_mode": "wal",
                "synchronous": "full",  # what "answered 201, so it is kept" means
                "foreign_keys": 1,
                "busy_timeout": 0,  # Sqlite waits by itself
            },
            lock_type="IMMEDIATE",
            returning_clause=True,
            check_same_thread=False,  # the pool hands connections across threads
        )
    limits = {
        "connect_timeout": PATIENCE,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": ANSWER_TIMEOUT * 1000,
    }
    limits = {name: limit for name, limit in limits.items() if f"{name}=" not in url}
    conninfo = "postgresql:" + url.partition(":")[2]
    return Postgres(conninfo, prefer_psycopg3=True, **limits)


def on_postgres() -> bool:
    """Say whether the database is a Postgres."""
    return isinstance(db.obj, Postgres)


def disconnect() -> None:
    """Close this thread's connection and the idle ones; the next query opens another."""
    if db.obj is not None:
        db.close()
        db.close_idle()


# Errors

# https://sqlite.org/rescode.html: locked, read-only, interrupted, unreadable, full, damaged
_SQLITE_OUTAGES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
# https://www.postgresql.org/docs/current/errcodes-appendix.html: no connection, no such database,
# no permission to connect, rolled back for another's sake, no resources, not in this state,
# stopped by an operator, a system error, damaged
_POSTGRES_OUTAGES = ("08", "28", "3D", "40", "53", "55", "57", "58", "XX", "25006")


def is_outage(error: Exception) -> bool:
    """Say whether a database error means "later": a database that is away, locked, full or old.

    What is left is a bug: broken SQL, a value that it cannot keep, a rule that was violated.
    """
    if not hasattr(error, "orig"):  # not a driver's: Busy, or what peewee itself raises
        return True
    if isinstance(_cause(error), sqlite3.Error):
        return _code(error) in _SQLITE_OUTAGES or _tables_are_old(error)
    state = _state(error)
    if state is None:  # libpq's own: the connection was refused or is lost
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_POSTGRES_OUTAGES) or _tables_are_old(error)


def is_migrated() -> bool:
    """Say whether the tables are those that this version needs."""
    try:
        migrations = Runner(db.obj, str(MIGRATIONS)).status()
        applied = all(each.applied for each in migrations if each.path)
        needed = {table._meta.table_name for table in Table.__subclasses__()}
        return applied and needed <= {*db.get_tables()}
    except ERRORS:
        return False


def reason(error: Exception) -> str:
    """Return what the database said, in one line, unless that could repeat a value."""
    if isinstance(error, DataError | IntegrityError):
        return type(error).__name__
    said = str(error).partition("\n")[0]
    return f"{said}; flask db upgrade makes the tables" if _tables_are_old(error) else said


def _tables_are_old(error):
    """Say whether a statement failed because the tables are not those that it was written for."""
    wrong = _code(error) == sqlite3.SQLITE_ERROR or (_state(error) or "").startswith("42")
    return wrong and not is_migrated()


def _cause(error):
    """Return the driver's own error, which peewee may have wrapped twice."""
    while hasattr(error, "orig"):
        error = error.orig
    return error


def _state(error):
    """Return Postgres' SQLSTATE, or None."""
    return getattr(_cause(error), "sqlstate", None)


def _code(error):
    """Return SQLite's primary result code, or None."""
    code = getattr(_cause(error), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


# Tables


class Table(Model):
    """A table of this database; `is_migrated` looks for every one that is defined."""

    class Meta:
        database = db
        legacy_table_names = False


class InstantField(BigIntegerField):
    """An aware UTC datetime, stored as whole milliseconds since 1970.

    So instants sort and compare alike on SQLite and Postgres.
    """

    def db_value(self, value: datetime | None) -> int | None:
        return value if value is None else (value - EPOCH) // MILLISECOND

    def python_value(self, value: int | None) -> datetime | None:
        return value if value is None else EPOCH + value * MILLISECOND


class CarrierTextField(TextField):
    """What a carrier said, without what no database can hold: it must not hide the outcome."""

    def db_value(self, value: str | None) -> str | None:
        return value and re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


def json_values() -> str:
    """Return the name of the function that makes rows of the texts in a JSON array."""
    return "json_array_elements_text" if on_postgres() else "json_each"


# Migrations


def upgrade() -> list[str]:
    """Create or migrate the tables in one transaction; return the names of what was applied.

    Upgrades that start together wait for one another; all but the first find nothing to do.
    """
    try:
        with db.atomic():
            if on_postgres():  # SQLite's BEGIN IMMEDIATE has let only one of us in
                check_encoding()
                db.connection().answer_timeout = None  # to index ten million rows takes minutes
                db.execute_sql("SET LOCAL lock_timeout = 0")
                db.execute_sql("SELECT pg_advisory_xact_lock(hashtext('text-messages upgrade'))")
            return Runner(db.obj, str(MIGRATIONS)).up()
    finally:
        disconnect()


def check_encoding() -> None:
    """Raise Refused where the Postgres database cannot hold every text."""
    ((encoding,),) = db.execute_sql("SHOW server_encoding").fetchall()
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise Refused(f"the database's encoding is {encoding}: create one with ENCODING 'UTF8'")


# Inserts in batches

TOGETHER = 32  # rows: SQLite may take no more than 999 parameters in one statement


def run_together(calls: Iterable[Callable[[], Any]]) -> None:
    """Run calls on this thread, and insert in one statement the rows that they insert.

    Each call runs until it ends or has a row for `insert_together`; then their rows are inserted,
    and they go on. No thread waits for another, and the wait for the disk, which is most of an
    insert's cost, is the same for ten rows as for one. What a call raises ends the others, too.
    """
    waiting = []
    for call in map(_Call, calls):
        while len(waiting) == TOGETHER:
            waiting = _insert_for(waiting)
        call.switch()
        if not call.dead:
            waiting.append(call)
    while waiting:
        waiting = _insert_for(waiting)


def insert_together(insert_all: Callable[[list], list], row: Any) -> Any:
    """Insert a row; return its outcome, or raise what the statement raised.

    `insert_all` gets a list of rows and returns a list of outcomes. Outside `run_together`, and
    within a transaction of the caller's, which may yet be rolled back, the row is alone in it.
    """
    call = getcurrent()
    if not isinstance(call, _Call) or db.in_transaction():
        return insert_all([row])[0]
    db.close()  # others use this thread's connection meanwhile
    call.insert_all, call.row = insert_all, row
    return call.parent.switch()


class _Call(greenlet):
    """One of several calls on a thread; it pauses where it inserts a row."""

    insert_all = row = None


def _insert_for(calls):
    """Insert the rows of these calls and let them go on; return those that wait for another."""
    batches = defaultdict(list)
    for call in calls:
        batches[call.insert_all].append(call)
    for insert_all, batch in batches.items():
        try:
            outcomes = insert_all([call.row for call in batch])
        except BaseException as error:
            for call in batch:
                call.throw(error)
        else:
            for call, outcome in zip(batch, outcomes, strict=True):
                call.switch(outcome)
    return [call for call in calls if not call.dead]
