"""When it is too late to send a message; the next pass decides it for those that wait."""

from peewee import SqliteDatabase


def up(migrator, db):
    instant = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql(f"ALTER TABLE message ADD COLUMN expires_at {instant}")
    db.execute_sql(
        "CREATE INDEX message_expires ON message (expires_at)"
        " WHERE status IN ('scheduled', 'queued')"
    )
