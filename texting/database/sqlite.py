"""SQLite: a private file, short naps while others write, and values that leave no trace."""

import os
import pwd
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from peewee import OperationalError
from playhouse.pool import PooledSqliteDatabase

from texting.database import pool
from texting.database.dialects import SqliteDialect
from texting.database.errors import Refused, sqlite_code
from texting.database.transactions import Transactions

SCRUB_TRIES, SCRUB_WAIT, SCRUB_PAUSE = 20, 1, 0.2  # seconds; so writers wait in short spells
COPIED = 1_000  # pages at a time; there are Ctrl-C and progress between them
FULL = 16_000_000  # bytes, or a fiftieth of a small disk: SQLite's log may take some megabytes


class Rows:
    """The rows of a statement, fetched at once.

    While a cursor is open, its connection reads as of then, and cannot write once others have.
    """

    def __init__(self, cursor: sqlite3.Cursor):
        self._left = iter(cursor.fetchall())
        self.description, self.rowcount = cursor.description, cursor.rowcount
        self.lastrowid = cursor.lastrowid

    def __iter__(self) -> Iterator[tuple]:
        return self._left

    def fetchone(self) -> tuple | None:
        return next(self._left, None)

    def fetchall(self) -> list[tuple]:
        return [*self._left]

    def close(self) -> None:
        """Do nothing: the cursor has ended."""


class Sqlite(Transactions, SqliteDialect, PooledSqliteDatabase):
    """A SQLite whose file nobody else may read, and that waits for other writers in short naps.

    While SQLite itself waits, no other request of a web worker would be answered.
    """

    def _connect(self) -> sqlite3.Connection:
        if is_missing(self.database):  # SQLite would make one without tables
            path = Path(self.database).absolute()
            raise OperationalError(f"there is no database at {path}; flask db upgrade makes it")
        return super()._connect()

    def make(self) -> None:
        """Make the file, which nobody else may read, unless it exists; so are its log and index.

        Raise Refused if it cannot be made.
        """
        try:
            os.close(os.open(self.database, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            path = Path(self.database).absolute()
            raise Refused(
                f"{path} cannot be made: {error.strerror.lower()}; {owners(path)}"
            ) from None

    def dump_line(self, path: str) -> str | None:
        """Return None: `copy` writes a copy."""

    def is_at(self, path: str) -> bool:
        """Return whether this is the file at a path, by whatever name."""
        with suppress(FileNotFoundError):
            return os.path.samefile(path, self.database)
        return False

    def copy(self, path: str, progress: Callable[[int, int], None]) -> int:
        """Write a copy, as of now, to an empty file; return how many messages it has.

        Others read and write meanwhile. `progress` is told how many pages are left, and of how
        many.
        """
        ours = f"{Path(self.database).absolute().as_uri()}?mode=rw"
        with (
            closing(sqlite3.connect(ours, uri=True, isolation_level=None)) as source,
            closing(sqlite3.connect(path)) as target,
        ):
            source.execute("BEGIN")  # without it, each write would begin the copy anew
            messages = source.execute("SELECT COUNT(*) FROM message").fetchone()[0]
            target.execute("PRAGMA journal_mode = off")
            source.backup(
                target, pages=COPIED, progress=lambda status, left, all: progress(left, all)
            )
        return messages

    def begin(self, lock_type: str | None = None) -> None:
        self._retry_while_locked(super().begin, lock_type)

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        if self.in_transaction():  # it holds the lock, or has ended
            return self._fetched(sql, params)
        return self._retry_while_locked(self._fetched, sql, params)

    def _fetched(self, sql, params):
        cursor = super().execute_sql(sql, params)
        return Rows(cursor) if cursor.description else cursor

    def _retry_while_locked(self, action, *arguments):
        give_up_at = time.monotonic() + pool.PATIENCE
        while True:
            try:
                return action(*arguments)
            except (OperationalError, sqlite3.OperationalError) as error:
                if sqlite_code(error) != sqlite3.SQLITE_BUSY:
                    if not self.in_transaction():
                        self.manual_close()  # the file may be another by now
                    raise
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(0.0005)

    def scrub(self) -> None:
        """Rewrite the file and empty the log, so that no trace of redacted values is left.

        Raise Refused if traces may be left. `secure_delete` overwrites deleted values, but neither
        the copies that pages keep when they are split nor those in the log. SQLite waits by itself
        here: it keeps writers away until the last reader has gone.
        """
        self.execute_sql(f"PRAGMA busy_timeout = {SCRUB_WAIT * 1000}")
        why = "other connections are using the log"
        try:
            self.execute_sql("VACUUM")
            for _ in range(SCRUB_TRIES):
                is_busy, *_ = self.execute_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not is_busy:
                    return
                time.sleep(SCRUB_PAUSE)
        except OperationalError as error:
            why = str(error)
        finally:
            self.execute_sql("PRAGMA busy_timeout = 0")
        raise Refused(
            f"erased from the tables, but SQLite's files may still hold copies: {why}. "
            "Run the command again"
        )

    def bytes_left(self) -> int | None:
        """Return how many bytes are left on a disk that is all but full, otherwise None."""
        try:
            disk = shutil.disk_usage(Path(self.database).absolute().parent)
        except OSError:  # the next statement tells why
            return None
        return disk.free if disk.free < min(FULL, disk.total // 50) else None

    def has_ended(self) -> bool:
        return not self.connection().in_transaction


def is_missing(path: str) -> bool:
    """Return whether there is no such file, as far as this process may see."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def owners(path: Path) -> str:
    """Return who this process is, and whose a file and its folder are, as far as it may see."""
    found = []
    for each in (path, *path.parents):
        with suppress(OSError):
            found.append(f"{each} belongs to {_user(each.stat().st_uid)}")
    return f"this process runs as {_user(os.geteuid())}, {', '.join(found[:2])}"


def _user(number):
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def open_sqlite(path: str) -> Sqlite:
    """Return the database in a file."""
    return Sqlite(
        path,
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
        **pool.POOL,
    )
