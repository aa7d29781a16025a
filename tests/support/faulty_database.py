"""A database of which statements fail."""

from functools import partial

import peewee

from texting import database


class FaultyDatabase:
    """Stand before the database and let statements fail, before or after they have been done."""

    def __init__(self, monkeypatch):
        self.statements, self.fails, self.after = 0, lambda number: False, False
        self.statement = None  # the words of the last one
        cursor = database.db.obj.cursor
        monkeypatch.setattr(database.db.obj, "cursor", partial(self.open, cursor))

    def open(self, cursor, *name):
        return FaultyCursor(self, cursor(*name))

    def done(self):
        """A statement is done, and nobody has heard so."""

    def fail_at(self, failing):
        """Let one statement from now on fail: the first, the second, ..., or none for 0."""
        self.statements, self.fails = 0, lambda number: number == failing


class FaultyCursor:
    def __init__(self, database, cursor):
        self.database, self.cursor = database, cursor

    def __getattr__(self, name):
        return getattr(self.cursor, name)

    def execute(self, *statement):
        self.database.statements += 1
        self.database.statement = statement[0]
        fails = self.database.fails(self.database.statements)
        if not fails or self.database.after:
            self.cursor.execute(*statement)
            if not self.cursor.description:  # SQLite has not done it before its rows are read
                self.database.done()
        if fails:
            self.cursor.close()  # or SQLite commits nothing until Python forgets the cursor
            raise peewee.OperationalError("the server closed the connection unexpectedly")
