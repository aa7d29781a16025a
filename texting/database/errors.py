"""What the errors of the database mean, and the refusal of an action."""

import sqlite3

from peewee import DatabaseError, InterfaceError
from playhouse.pool import MaxConnectionsExceeded

ERRORS = (DatabaseError, InterfaceError, MaxConnectionsExceeded, sqlite3.Error, MemoryError)
"""Errors of the database, and of its pool: outages and our own bugs; see `is_outage`.

SQLite's own come while rows are fetched: it commits an `UPDATE … RETURNING` with the last one.
Python raises MemoryError when SQLite runs out of memory.
"""


class Refused(Exception):
    """Something cannot be done in the present state; the words are for an operator."""


def cause(error):
    """Return the driver's own error, which peewee may have wrapped twice."""
    while hasattr(error, "orig"):
        error = error.orig
    return error


def sqlstate(error):
    """Return Postgres' SQLSTATE, or None."""
    return getattr(cause(error), "sqlstate", None)


def sqlite_code(error):
    """Return SQLite's primary result code, or None."""
    code = getattr(cause(error), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
