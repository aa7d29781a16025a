"""Pauses that all schedulers share, and claims that are told apart."""

from peewee import SqliteDatabase


def up(migrator, db):
    on_sqlite = isinstance(db, SqliteDatabase)
    instant, boolean = ("INTEGER", "INTEGER") if on_sqlite else ("BIGINT", "BOOLEAN")
    # Not by add_column, which would rebuild SQLite's tables
    for table, column in (
        ("message", "claim_number INTEGER NOT NULL DEFAULT 0"),
        ("carrier_state", f"settled_at {instant}"),
        ("carrier_state", f"paused_at {instant}"),
        ("carrier_state", f"tried_at {instant}"),
        ("carrier_state", f"is_down {boolean} NOT NULL DEFAULT false"),
        ("carrier_state", "silences INTEGER NOT NULL DEFAULT 0"),
    ):
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN {column}")
