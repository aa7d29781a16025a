"""What carriers report of texts before their receipts; indexes of all that pages look at."""

from peewee import SqliteDatabase

STATEMENTS = """
ALTER TABLE message ADD COLUMN heard_of BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE early_receipt ADD COLUMN is_final BOOLEAN NOT NULL DEFAULT true;
DROP INDEX message_finished;
CREATE INDEX message_finished ON message (status, finished_at, carrier, receipt_at, heard_of)
    WHERE finished_at IS NOT NULL;
DROP INDEX reply_waiting;
CREATE INDEX reply_waiting ON reply (may_be_no, at, id, number, due_at)
    WHERE read_at IS NULL AND NOT opted_out;
CREATE INDEX reply_done ON reply (at, id, number, due_at)
    WHERE (read_at IS NOT NULL OR opted_out);
"""


def up(migrator, db):
    of_sqlite = isinstance(db, SqliteDatabase)
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            db.execute_sql(statement.replace("BOOLEAN", "INTEGER") if of_sqlite else statement)
