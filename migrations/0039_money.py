"""Limits in parts and by the month; keys that are paused."""

from peewee import SqliteDatabase

COUNTS = ("used_mo", "parts_s", "parts_min", "parts_h", "parts_d", "parts_mo")


def up(migrator, db):
    uuid, instant = ("TEXT", "INTEGER") if isinstance(db, SqliteDatabase) else ("UUID", "BIGINT")
    for name in COUNTS:
        db.execute_sql(f"ALTER TABLE key_use ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0")
    db.execute_sql(f"ALTER TABLE key_use ADD COLUMN parts_id {uuid}")
    db.execute_sql(f"ALTER TABLE api_key ADD COLUMN paused_at {instant}")
    db.execute_sql("CREATE INDEX api_key_paused ON api_key (id) WHERE paused_at IS NOT NULL")
