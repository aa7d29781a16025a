"""Postgres: connections that give up on a silent server, and notice those that died idle."""

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from peewee import OperationalError, Psycopg3Adapter
from playhouse.pool import PooledPostgresqlDatabase
from psycopg.pq import TransactionStatus

from texting.database import pool
from texting.database.dialects import PostgresDialect
from texting.database.transactions import ENDED, Transactions

ANSWER_TIMEOUT = 15  # seconds until a silent Postgres is given up

_patient = ContextVar("patient", default=False)


@contextmanager
def patience() -> Iterator[None]:
    """Wait for each answer of Postgres as long as it takes: for a person, who can press Ctrl-C."""
    before = _patient.set(True)
    try:
        yield
    finally:
        _patient.reset(before)


class Connection(psycopg.Connection):
    """A connection that gives up on a server that is silent for ANSWER_TIMEOUT seconds.

    TCP's own keepalive notices a dead host, but not a proxy that swallows what it gets. With
    `patience`, it does not give up.
    """

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        answer_timeout = None if _patient.get() else ANSWER_TIMEOUT
        give_up_at = answer_timeout and time.monotonic() + answer_timeout
        try:
            return super().wait(gen, interval=interval, timeout=timeout or answer_timeout)
        except psycopg.OperationalError:
            if give_up_at and time.monotonic() >= give_up_at:
                self.pgconn.finish()  # later answers could not be told apart
            raise


class Adapter(Psycopg3Adapter):
    """Make connections that give up a lock after PATIENCE, and notice those that died idle."""

    session = {  # noqa: RUF012
        "lock_timeout": f"{pool.PATIENCE}s",
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
        """Return whether an idle connection has died: it reads the server's error, then the end.

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


class Postgres(Transactions, PostgresDialect, PooledPostgresqlDatabase):
    psycopg3_adapter = Adapter

    def has_ended(self) -> bool:
        return self.connection().closed

    def commit(self) -> None:
        """Commit, unless a statement has failed: Postgres would roll back, and say nothing."""
        if self.connection().info.transaction_status is TransactionStatus.INERROR:
            raise OperationalError(ENDED)
        super().commit()

    def bytes_left(self) -> int | None:
        """Return None: of its disk, only Postgres knows."""

    def make(self) -> None:
        """Do nothing: only Postgres' own tools make one."""

    def is_at(self, path: str) -> bool:
        """Return False: a server's database is in no file of ours."""
        return False

    def dump_line(self, path: str) -> str | None:
        """Return the line that has Postgres' own tool write a copy, without the password."""
        address, mark, query = self.url.partition("?")
        scheme, _, rest = address.partition("://")
        login, at, place = rest.rpartition("@")
        options = [each for each in query.split("&") if "password=" not in each]
        url = f"{scheme}://{login.partition(':')[0]}{at}{place}{mark}{'&'.join(options)}"
        words = ["pg_dump", "--format=custom", f"--file={path}", url.removesuffix("?")]
        return f"umask 077; {shlex.join(words)}"  # or others could read it

    def scrub(self) -> None:
        """Do nothing: Postgres' own vacuum removes what was redacted in the background."""


def open_postgres(url: str) -> Postgres:
    """Return the database of a URL; what its query says of time-outs counts."""
    limits = {
        "connect_timeout": pool.PATIENCE,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": ANSWER_TIMEOUT * 1000,
    }
    limits = {name: limit for name, limit in limits.items() if f"{name}=" not in url}
    return Postgres(url, prefer_psycopg3=True, **limits, **pool.POOL)
