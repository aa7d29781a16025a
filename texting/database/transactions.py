"""Transactions that the database ends by itself, which peewee does not notice."""

import sys
from typing import Any

from peewee import OperationalError

from texting.database.errors import ERRORS

ENDED = "the transaction has ended by itself: nothing of it is kept"


class Transactions:
    """A mix-in for peewee's databases: no block goes on after its transaction has ended by itself.

    SQLite rolls back by itself if its disk is full or fails, and Postgres if the connection is
    lost. What came next would be kept without what came before it, or hide the cause. `has_ended`
    of each database says whether the transaction that a block has begun has ended by itself.
    """

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        if self.in_transaction() and self.has_ended():
            raise _cause()
        return super().execute_sql(sql, params)

    def commit(self) -> None:
        if self.has_ended():
            raise _cause()
        super().commit()

    def rollback(self) -> None:
        if not self.has_ended():
            super().rollback()


def _cause():
    """Return the error that is passing through the blocks, or one that means an outage."""
    error = sys.exception()
    return error if isinstance(error, ERRORS) else OperationalError(ENDED)
