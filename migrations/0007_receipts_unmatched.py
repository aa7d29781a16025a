"""Receipts by their recipients, and traces of what was not understood."""

from peewee import BigIntegerField, Model, SqliteDatabase


def up(migrator, db):
    class IgnoredOptOut(Model):
        at = BigIntegerField(index=True)

        class Meta:
            table_name = "ignored_opt_out"

    db.bind([IgnoredOptOut])
    db.create_tables([IgnoredOptOut])
    # Not by add_column, which would rebuild SQLite's tables
    db.execute_sql("ALTER TABLE early_receipt ADD COLUMN number TEXT")
    db.execute_sql('CREATE INDEX "early_receipt_number" ON "early_receipt" ("number")')
    instant = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN unmatched_told_at {instant}")
