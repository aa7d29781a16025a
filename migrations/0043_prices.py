"""What carriers say that texts cost."""

from peewee import SqliteDatabase


def up(migrator, db):
    amount = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    for table in ("attempt", "early_receipt"):
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN price {amount}")
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN currency TEXT")
