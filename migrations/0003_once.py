"""What counts once: ids of events, sign-in links, idempotency keys that redaction has erased."""

from datetime import datetime

from peewee import SqliteDatabase

STATEMENTS = """
ALTER TABLE audit ADD COLUMN link_made_at BIGINT;
ALTER TABLE message ADD COLUMN idempotency_digest TEXT;
CREATE INDEX message_forgotten ON message (key_id, idempotency_digest)
    WHERE idempotency_key IS NULL AND idempotency_digest IS NOT NULL;
UPDATE message SET idempotency_key = NULL WHERE message IS NULL AND idempotency_key IS NOT NULL;
CREATE INDEX opt_out_message_at ON opt_out_message (at);
"""

BY_LINK = "by the link of "


def up(migrator, db):
    of_sqlite = isinstance(db, SqliteDatabase)
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            db.execute_sql(statement.replace("BIGINT", "INTEGER") if of_sqlite else statement)
    note_used_links(db)
    if of_sqlite:
        never_use_ids_again(db, "event")


def note_used_links(db):
    """Note the links that were used before, in the column that says so from now on."""
    signed_in = "SELECT id, details FROM audit WHERE what = 'signed in' AND details IS NOT NULL"
    for id, details in db.execute_sql(signed_in).fetchall():
        made_at = round(datetime.fromisoformat(details.removeprefix(BY_LINK)).timestamp() * 1000)
        db.execute_sql(f"UPDATE audit SET link_made_at = {made_at} WHERE id = {id}")


def never_use_ids_again(db, table):
    """Rebuild a table with AUTOINCREMENT, whatever else its columns and indexes are by now."""
    found = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type = ? AND sql IS NOT NULL"
    ((made,),) = db.execute_sql(found, [table, "table"]).fetchall()
    indexes = db.execute_sql(found, [table, "index"]).fetchall()
    plain = "id INTEGER NOT NULL PRIMARY KEY"
    db.execute_sql(f"ALTER TABLE {table} RENAME TO {table}_before")
    db.execute_sql(made.replace(plain, f"{plain} AUTOINCREMENT"))
    db.execute_sql(f"INSERT INTO {table} SELECT * FROM {table}_before")
    db.execute_sql(f"DROP TABLE {table}_before")
    for (index,) in indexes:
        db.execute_sql(index)
