"""When instants in the future were noted: a clock that was set back since lengthens no wait."""

from peewee import SqliteDatabase


def up(migrator, db):
    instant = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    # Not by add_column, which would rebuild SQLite's tables
    db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN rate_used_at {instant}")
    db.execute_sql(f"ALTER TABLE event ADD COLUMN decided_at {instant}")
