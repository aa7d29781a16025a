"""Pauses that all schedulers share, and claims that are told apart."""


def up(migrator, db):
    # Not by add_column, which would rebuild SQLite's tables
    for table, column in (
        ("message", "claim_number INTEGER NOT NULL DEFAULT 0"),
        ("carrier_state", "settled_at BIGINT"),
        ("carrier_state", "paused_at BIGINT"),
        ("carrier_state", "tried_at BIGINT"),
        ("carrier_state", "is_down BOOLEAN NOT NULL DEFAULT false"),
        ("carrier_state", "silences INTEGER NOT NULL DEFAULT 0"),
    ):
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN {column}")
