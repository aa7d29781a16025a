"""What went first after a pause, what ends a trouble, which texts were refused as the account."""

from peewee import SqliteDatabase


def up(migrator, db):
    on_sqlite = isinstance(db, SqliteDatabase)
    uuid, instant, flag = (
        ("TEXT", "INTEGER", "INTEGER") if on_sqlite else ("UUID", "BIGINT", "BOOLEAN")
    )
    # Not by add_column, which would rebuild SQLite's tables
    for column in (
        f"probed {uuid}",
        f"taken_at {instant}",
        f"by_texts {flag} NOT NULL DEFAULT false",
        f"serves {flag} NOT NULL DEFAULT false",
    ):
        db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN {column}")
    db.execute_sql(f"ALTER TABLE message ADD COLUMN refused_at {instant}")
