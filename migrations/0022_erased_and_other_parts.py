"""The messages that early receipts name; no digest of what was redacted.

A digest of a request without its number and text gives the number back to anybody who tries all.
"""

from peewee import SqliteDatabase


def up(migrator, db):
    uuid = "TEXT" if isinstance(db, SqliteDatabase) else "UUID"
    db.execute_sql(f"ALTER TABLE early_receipt ADD COLUMN message_id {uuid}")
    db.execute_sql('CREATE INDEX "early_receipt_message_id" ON "early_receipt" ("message_id")')
    db.execute_sql(
        "UPDATE message SET request_digest = NULL "
        "WHERE message IS NULL AND request_digest IS NOT NULL"
    )
