"""The database: connections, what errors mean, what tables share, migrations.

Any thread may use `db` and the models as peewee documents it. The first query of a thread takes a
connection from a small pool, and `db.close()` gives it back: at the end of a web request, of a
command, of a scheduler's pass.
"""

import os
import re
import sqlite3
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from peewee import (
    BigIntegerField,
    DatabaseError,
    DatabaseProxy,
    DataError,
    Expression,
    Field,
    IntegrityError,
    InterfaceError,
    Model,
    OperationalError,
    Psycopg3Adapter,
    Select,
    SqliteDatabase,
    TextField,
    fn,
)
from playhouse.migrations import Runner
from playhouse.pool import (
    MaxConnectionsExceeded,
    PooledPostgresqlDatabase,
    PooledSqliteDatabase,
)

db = DatabaseProxy()

ERRORS = (DatabaseError, InterfaceError, MaxConnectionsExceeded, sqlite3.Error)
"""Errors of the database, and of its pool: outages and our own bugs; see `is_outage`.

SQLite's own come while rows are fetched: it commits an `UPDATE … RETURNING` with the last one.
"""

PATIENCE = 5  # seconds that a thread waits for a connection, or for another's lock
POOL = {"max_connections": 4, "timeout": PATIENCE}  # a PaaS' smallest Postgres allows 20 in all
ANSWER_TIMEOUT = 15  # seconds until a silent Postgres is given up

BATCH = 5_000
"""Rows that a bulk change moves in one transaction; other writers wait for no more."""

PAGE = 500
"""Rows that a report of all rows reads at a time."""

MIGRATIONS = Path(__file__).parent / "migrations"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Refused(Exception):
    """Say, for an operator, why something cannot be done in the present state."""


# Connections


class PrivateSqlite(SqliteDatabase):
    """A SQLite whose file nobody else may read."""

    def _connect(self) -> sqlite3.Connection:
        make_private(self.database)  # its log and index get the same permissions
        return super()._connect()


class Sqlite(PooledSqliteDatabase, PrivateSqlite):
    """A SQLite that waits for other writers in short naps.

    While SQLite itself waits, no other request of a web worker would be answered.
    """

    def begin(self, lock_type: str | None = None) -> None:
        self._retry_while_locked(super().begin, lock_type)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        return self._retry_while_locked(super().execute_sql, sql, params)

    def _retry_while_locked(self, action, *arguments):
        give_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                return action(*arguments)
            except OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    if not self.in_transaction():
                        self.manual_close()  # the file may be another by now
                    raise
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(0.0005)

    def rollback(self) -> None:
        """Roll back, unless SQLite has done so already because the disk was full."""
        if self.connection().in_transaction:
            super().rollback()


class Connection(psycopg.Connection):
    """A connection that gives up on a server that is silent for ANSWER_TIMEOUT seconds.

    TCP's own keepalive notices a dead host, but not a proxy that swallows what it gets.
    """

    answer_timeout: float | None = ANSWER_TIMEOUT

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        give_up_at = self.answer_timeout and time.monotonic() + self.answer_timeout
        try:
            return super().wait(gen, interval=interval, timeout=timeout or self.answer_timeout)
        except psycopg.OperationalError:
            if give_up_at and time.monotonic() >= give_up_at:
                self.pgconn.finish()  # later answers could not be told apart
            raise


class Adapter(Psycopg3Adapter):
    """Make connections that give up a lock after PATIENCE, and notice those that died idle."""

    session = {  # noqa: RUF012
        "lock_timeout": f"{PATIENCE}s",
        # A server that lost the connection releases its locks
        "idle_in_transaction_session_timeout": "30s",
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }

    def connect(self, db: Any, **params: Any) -> Connection:
        # Whatever PGCLIENTENCODING, the URL or the database's own encoding says
        params |= {"autocommit": True, "client_encoding": "UTF8"}
        conn = Connection.connect(db.database, **params)
        pairs = ", ".join(f"set_config('{k}', '{v}', false)" for k, v in self.session.items())
        answer = conn.execute(f"SELECT pg_backend_pid(), {pairs}").fetchone()
        if answer[0] != conn.info.backend_pid:
            # A pooler such as PgBouncer changes the server's process, to which they belong
            conn.prepare_threshold = None
        return conn

    def is_connection_closed(self, conn: Connection) -> bool:
        """Say whether an idle connection has died: reading finds the server's error, then the end.

        Unlike peewee's own probe this needs no round trip. The next statement notices a connection
        that died without a word, after ANSWER_TIMEOUT.
        """
        try:
            if not conn.closed:
                conn.pgconn.consume_input()  # the error, if any
                conn.pgconn.consume_input()  # the end
        except psycopg.OperationalError:
            conn.close()
        return conn.closed


class Postgres(PooledPostgresqlDatabase):
    psycopg3_adapter = Adapter


def make_private(path: str | Path) -> None:
    """Create a file that nobody else may read, unless it exists or cannot be created."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def connect(url: str) -> None:
    """Point every model at the database of a `sqlite:///` or `postgresql://` URL; open nothing.

    Connections are kept: closing SQLite's last one checkpoints the WAL, which halves the
    throughput, and a new one to Postgres costs a round trip and a process there. The pool of the
    same URL stays.
    """
    if db.obj is not None and db.obj.url == url:
        db.close()
        return
    disconnect()
    db.initialize(_database(url))
    db.obj.url = url


def _database(url):
    if url.startswith("sqlite:"):
        return Sqlite(
            url.removeprefix("sqlite:///"),
            pragmas={
                "journal_mode": "wal",
                "synchronous": "full",  # a 201 promises that the text is kept
                "foreign_keys": 1,
                "busy_timeout": 0,  # Sqlite waits by itself
                "secure_delete": 1,  # overwrite redacted values; see scrub
            },
            lock_type="IMMEDIATE",
            returning_clause=True,
            check_same_thread=False,  # the pool hands connections across threads
            **POOL,
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
    return Postgres(conninfo, prefer_psycopg3=True, **limits, **POOL)


def on_postgres() -> bool:
    """Say whether the database is a Postgres."""
    return isinstance(db.obj, Postgres)


def disconnect() -> None:
    """Close this thread's connection and the idle ones; the next query opens another."""
    if db.obj is not None:
        db.close()
        db.close_idle()


def scrub() -> None:
    """Rewrite SQLite's file without any trace of redacted values; writers wait meanwhile.

    `secure_delete` overwrites deleted values, but not the copies that pages keep when they are
    split. Postgres' own vacuum does the same in the background.
    """
    if not on_postgres():
        db.execute_sql("VACUUM")
        db.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


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
    """Say whether an error means "later": a database that is away, locked, full or old.

    Anything else is a bug: of our own code, broken SQL, a value that the database cannot keep, a
    violated constraint.
    """
    if not isinstance(error, ERRORS):
        return False
    if isinstance(_cause(error), sqlite3.Error):
        return _code(error) in _SQLITE_OUTAGES or _tables_are_old(error)
    if not hasattr(error, "orig"):  # raised by peewee or its pool, not by a driver
        return True
    state = _state(error)
    if state is None:  # libpq's own: the connection was refused or is lost
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_POSTGRES_OUTAGES) or _tables_are_old(error)


def is_migrated() -> bool:
    """Say whether the tables are up to date with this version."""
    try:
        migrations = Runner(db.obj, str(MIGRATIONS)).status()
        applied = all(each.applied for each in migrations if each.path)
        needed = {table._meta.table_name for table in Table.__subclasses__()}
        return applied and needed <= {*db.get_tables()}
    except ERRORS:
        return False


def reason(error: Exception) -> str:
    """Return what the database said, in one line, unless that could repeat a value."""
    if isinstance(error, DataError | IntegrityError | sqlite3.DataError | sqlite3.IntegrityError):
        return type(error).__name__
    said = str(error).partition("\n")[0]
    return f"{said}; flask db upgrade makes the tables" if _tables_are_old(error) else said


def _tables_are_old(error):
    """Say whether a statement failed because the tables are not up to date."""
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

    Instants sort and compare alike on SQLite and Postgres.
    """

    def db_value(self, value: datetime | None) -> int | None:
        return value if value is None else (value - EPOCH) // MILLISECOND

    def python_value(self, value: int | None) -> datetime | None:
        return value if value is None else EPOCH + value * MILLISECOND


def isoformat(instant: datetime) -> str:
    """Return an aware UTC datetime as text, like `2026-03-02T14:00:00.000Z`."""
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


class CarrierTextField(TextField):
    """A carrier's words; characters that no database can hold are replaced.

    An odd word must not keep the outcome from being recorded.
    """

    def db_value(self, value: str | None) -> str | None:
        return value and re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


def locked(key: Field, batch: Select) -> Expression:
    """Return the condition that a row's key is in a batch, and lock the batch.

    On Postgres, rows that others have locked are left out.
    """
    if on_postgres():
        # An array, or the planner may run the query twice and lock two batches
        return key == fn.ANY(fn.ARRAY(batch.for_update("FOR UPDATE SKIP LOCKED")))
    return key.in_(batch)


# Migrations


def upgrade() -> list[str]:
    """Create or migrate the tables in one transaction; return the names of those applied.

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
    """Raise Refused if the Postgres database cannot hold every text."""
    ((encoding,),) = db.execute_sql("SHOW server_encoding").fetchall()
    if encoding != "UTF8":
        raise Refused(f"the database's encoding is {encoding}: create one with ENCODING 'UTF8'")
