"""Which errors are outages, and which are bugs."""

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from peewee import DataError, IntegrityError, InterfaceError, OperationalError

from texting.database.connections import db, disconnect
from texting.database.errors import ERRORS, cause, sqlite_code, sqlstate
from texting.database.migrations import is_migrated
from texting.database.sqlite import owners

Row = TypeVar("Row")
Result = TypeVar("Result")

# https://sqlite.org/rescode.html: locked, read-only, interrupted, unreadable, full, damaged
_SQLITE_OUTAGES = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
_OF_THE_FILE = _SQLITE_OUTAGES - {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_INTERRUPT,
}
_FORBIDDEN = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
# https://www.postgresql.org/docs/current/errcodes-appendix.html: no connection, no such database,
# no permission to connect, rolled back in favour of another, no resources, not in this state,
# stopped by an operator, a system error, damaged; read-only, a transaction that took too long
_POSTGRES_OUTAGES = (
    *("08", "28", "3D", "40", "53", "55", "57", "58", "XX"),
    *("25006", "25P03", "25P04"),
)


def is_outage(error: Exception) -> bool:
    """Return whether an error means "later": a database that is away, locked, full or old.

    Anything else is a bug: of our own code, broken SQL, a value that the database cannot keep, a
    violated constraint.
    """
    if not isinstance(error, ERRORS):
        return False
    if isinstance(cause(error), sqlite3.Error):
        return sqlite_code(error) in _SQLITE_OUTAGES or _tables_are_old(error)
    if not hasattr(error, "orig"):  # raised by us, peewee, its pool or Python, not by a driver
        return True
    state = sqlstate(error)
    if state is None:  # libpq's own: the connection was refused or is lost
        return isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_POSTGRES_OUTAGES) or _tables_are_old(error)


def reason(error: Exception) -> str:
    """Return what the database said, in one line, unless that could repeat a value."""
    if isinstance(error, DataError | IntegrityError | sqlite3.DataError | sqlite3.IntegrityError):
        return type(error).__name__
    said = str(error).partition("\n")[0] or "out of memory"
    if sqlite_code(error) in _OF_THE_FILE:
        path = Path(db.database).absolute()
        said += f": {path}"
        if sqlite_code(error) in _FORBIDDEN:
            said += f"; {owners(path)}"
        elif sqlite_code(error) == sqlite3.SQLITE_IOERR and db.bytes_left() is not None:
            said += "; its disk is almost full"  # SQLite does not tell that from a broken one
    return f"{said}; flask db upgrade makes the tables" if _tables_are_old(error) else said


@contextmanager
def log_errors(log: logging.Logger, what: str) -> Iterator[None]:
    """Log an error that ends the block, which a thread repeats, and give its connection back.

    An outage is not logged: the scheduler's pass does that.
    """
    try:
        yield
    except ERRORS as error:
        disconnect()
        if not is_outage(error):
            log.error("%s: the database failed: %s", what, reason(error))
    except Exception as error:  # its words may hold a number
        log.error("%s: unexpected %s", what, type(error).__name__)
    finally:
        db.close()


@contextmanager
def skip_on_error(log: logging.Logger, what: str) -> Iterator[None]:
    """Log an error that ends the block, by its kind alone; raise it if it is an outage."""
    try:
        yield
    except Exception as error:  # its words may hold a number
        if is_outage(error):
            raise
        log.error("%s: unexpected %s", what, type(error).__name__)


def skip_broken(
    action: Callable[[Sequence[Row]], Result],
    rows: Sequence[Row],
    log: logging.Logger,
    what: Callable[[Row], str],
    move_on: Callable[[Row], Any] | None = None,
) -> list[Result]:
    """Call an action with rows, which changes all of them or none; return its results.

    If that breaks, each row is done by itself. A row that breaks it alone is logged as `what` says,
    by its id, moved on, so that it is not the next again, and passed over. An outage is raised:
    then no row is at fault.
    """
    if len(rows) > 1:
        try:
            return [action(rows)]
        except Exception as error:
            if is_outage(error):
                raise
    results = []
    for row in rows:
        with skip_on_error(log, what(row)):
            results.append(action([row]))
            continue
        if move_on:
            with skip_on_error(log, f"{what(row)}, and stays due"):
                move_on(row)
    return results


def _tables_are_old(error):
    """Return whether a statement failed because the tables are not up to date."""
    wrong = sqlite_code(error) == sqlite3.SQLITE_ERROR or (sqlstate(error) or "").startswith("42")
    return wrong and not is_migrated()
