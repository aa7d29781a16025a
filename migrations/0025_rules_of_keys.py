"""Rules of a key in place of settings, null: the setting; whose turn it is among urgent keys."""

from peewee import SqliteDatabase


def up(migrator, db):
    # Not by add_column, which would rebuild SQLite's table
    for column in ("hours", "quiet_hours", "check_dnc", "expire_after"):
        db.execute_sql(f"ALTER TABLE api_key ADD COLUMN {column} TEXT")
    flag = "INTEGER" if isinstance(db, SqliteDatabase) else "BOOLEAN"
    db.execute_sql(f"ALTER TABLE api_key ADD COLUMN urgent {flag} NOT NULL DEFAULT false")
    db.execute_sql("ALTER TABLE carrier_state ADD COLUMN served_urgent_key INTEGER")
