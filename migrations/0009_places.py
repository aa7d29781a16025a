"""Where the owners of numbers live, and why each copy of a text was allowed."""

from peewee import SqliteDatabase

KNOWN_PLACE = """
CREATE TABLE known_place (
    number TEXT NOT NULL PRIMARY KEY,
    place TEXT NOT NULL,
    until DATE,
    imported_at {bigint} NOT NULL
)
"""


def up(migrator, db):
    bigint = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql(KNOWN_PLACE.format(bigint=bigint))
    db.execute_sql("ALTER TABLE attempt ADD COLUMN allowed TEXT")
