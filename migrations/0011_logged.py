"""What keeps a carrier from working is logged once an hour, by whichever scheduler."""

from peewee import SqliteDatabase


def up(migrator, db):
    bigint = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql("ALTER TABLE carrier_state ADD COLUMN logged TEXT")
    db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN logged_at {bigint}")
