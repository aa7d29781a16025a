"""Several carriers: which one has a message, which may be used for it, who stands in for whom."""


def up(migrator, db):
    # Not by add_column, which would rebuild SQLite's tables
    for column in ("carrier", "claimed_for", "in_doubt_with", "lane"):
        db.execute_sql(f"ALTER TABLE message ADD COLUMN {column} TEXT")
    db.execute_sql(
        "CREATE INDEX message_lane ON message (lane, key_id, send_at, id) "
        "WHERE status IN ('queued') AND approved"
    )
    db.execute_sql("ALTER TABLE early_receipt ADD COLUMN carrier TEXT")
    db.execute_sql("ALTER TABLE carrier_state ADD COLUMN place INTEGER")
    db.execute_sql("ALTER TABLE carrier_state ADD COLUMN stand_ins TEXT")
