"""No triggers that count ended messages: they slowed the end of every message."""

from peewee import SqliteDatabase


def up(migrator, db):
    # The version before may still run beside this one and read the table `tally`, so it stays
    for moment in ("come", "end", "leave", "go"):
        if isinstance(db, SqliteDatabase):
            db.execute_sql(f"DROP TRIGGER IF EXISTS tally_{moment}")
        else:
            db.execute_sql(f"DROP FUNCTION IF EXISTS tally_{moment}() CASCADE")
    if db.table_exists("tally"):
        db.execute_sql("DELETE FROM tally")
