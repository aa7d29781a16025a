"""The latest message that was counted for a key's limits: if there is a newer one, count anew."""

from peewee import SqliteDatabase


def up(migrator, db):
    uuid = "TEXT" if isinstance(db, SqliteDatabase) else "UUID"
    # Not by add_column, which would rebuild SQLite's table
    db.execute_sql(f"ALTER TABLE key_use ADD COLUMN last_id {uuid}")
