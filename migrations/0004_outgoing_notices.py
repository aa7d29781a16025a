"""Notices are kept until their addresses accept them."""

from peewee import SqliteDatabase

OUTGOING_NOTICE = """
CREATE TABLE outgoing_notice (
    subject TEXT NOT NULL,
    address INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    kind TEXT NOT NULL,
    place INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_try_at {bigint} NOT NULL,
    PRIMARY KEY (subject, address)
)
"""


def up(migrator, db):
    bigint = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql(OUTGOING_NOTICE.format(bigint=bigint))
