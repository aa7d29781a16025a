"""Who opted out stays so, whoever lists the number besides; no STOP is lost in an outage."""

from peewee import SqliteDatabase

BY_ITSELF = "why IN ('reply', 'carrier')"
OPTED_OUT = f"""
UPDATE do_not_call SET opted_out_at = CASE
    WHEN source IN ('reply', 'carrier') THEN added_at
    ELSE (
        SELECT MAX(at) FROM do_not_call_history AS joined
        WHERE joined.number = do_not_call.number AND what = 'joined' AND {BY_ITSELF}
            AND NOT EXISTS (
                SELECT 1 FROM do_not_call_history AS later
                WHERE later.number = joined.number AND later.what = 'left' AND later.id > joined.id
            )
    )
END
"""


def up(migrator, db):
    instant = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql(f"ALTER TABLE do_not_call ADD COLUMN opted_out_at {instant}")
    db.execute_sql(f"ALTER TABLE do_not_call_history ADD COLUMN opted_out_at {instant}")
    db.execute_sql(OPTED_OUT)
    db.execute_sql(f"ALTER TABLE carrier_state ADD COLUMN heard_until {instant}")
