"""A key's own limit of each recipient, the settings in force, and clocks that are wrong."""

from peewee import SqliteDatabase

STATEMENTS = """
ALTER TABLE api_key ADD COLUMN recipient_limit TEXT;
CREATE TABLE setting_in_force (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
CREATE TABLE wrong_clock (
    process UUID NOT NULL PRIMARY KEY,
    who TEXT NOT NULL,
    against TEXT NOT NULL,
    ahead BIGINT NOT NULL,
    stops BOOLEAN NOT NULL DEFAULT false,
    until BIGINT NOT NULL
)
"""
OF_SQLITE = {"BIGINT": "INTEGER", "BOOLEAN": "INTEGER", "UUID": "TEXT"}


def up(migrator, db):
    for statement in STATEMENTS.split(";"):
        for postgres, sqlite in OF_SQLITE.items() if isinstance(db, SqliteDatabase) else ():
            statement = statement.replace(postgres, sqlite)
        db.execute_sql(statement)
