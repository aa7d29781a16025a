"""How much of SEND_RATE is used, and whose turn it is to send; an index that serves the turns."""

from peewee import SqliteDatabase


def up(migrator, db):
    on_sqlite = isinstance(db, SqliteDatabase)
    integer = "INTEGER" if on_sqlite else "BIGINT"
    # Not by add_column, which would rebuild SQLite's table
    db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN rate_used_until {integer}")
    db.execute_sql("ALTER TABLE carrier_state ADD COLUMN served_key INTEGER")
    # In place of the one on send_at alone: a create writes no more than before
    db.execute_sql("DROP INDEX message_sendable")
    db.execute_sql(
        "CREATE INDEX message_sendable_key ON message (key_id, send_at, id) "
        "WHERE status IN ('queued') AND approved"
    )
