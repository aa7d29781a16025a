"""What a receipt that names its recipient is looked for by; which receipts have no mark."""

from peewee import SqliteDatabase


def up(migrator, db):
    boolean = "INTEGER" if isinstance(db, SqliteDatabase) else "BOOLEAN"
    db.execute_sql(
        f"ALTER TABLE early_receipt ADD COLUMN unmarked {boolean} DEFAULT false NOT NULL"
    )
    db.execute_sql(
        "CREATE INDEX message_reference_form ON message "
        "(\"to\", ltrim(lower(carrier_reference), '0')) WHERE carrier_reference IS NOT NULL"
    )
    db.execute_sql('CREATE INDEX message_in_doubt ON message ("to") WHERE in_doubt > 0')
