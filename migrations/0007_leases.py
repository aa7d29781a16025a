"""Attempts alone say what is in doubt, and a lease lives as long as its owner's heartbeat."""

from collections import defaultdict

from peewee import SqliteDatabase

LEASES = {"attempt": "sender", "carrier_state": "probe_claimed_by"}

ORPHANED = """
CREATE INDEX attempt_orphaned ON attempt (message_id) WHERE sender IS NULL AND result IS NULL
"""

UNCLEAR = """
SELECT message_id, claim_number, carrier, ask_at FROM attempt WHERE result = 'unclear'
ORDER BY message_id, claim_number
"""


def up(migrator, db):
    for table, column in LEASES.items():
        gone = f"{column} NOT IN (SELECT sender FROM heartbeat)"
        db.execute_sql(f"UPDATE {table} SET {column} = NULL WHERE {gone}")
        key = f"FOREIGN KEY ({column}) REFERENCES heartbeat (sender) ON DELETE SET NULL"
        if isinstance(db, SqliteDatabase):
            rebuild(db, table, key)
        else:
            db.execute_sql(f"ALTER TABLE {table} ADD {key}")
    db.execute_sql(ORPHANED)
    recount(db)


def rebuild(db, table, key):
    """Rebuild a table with a foreign key, whatever else its columns and indexes are by now."""
    found = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type = ? AND sql IS NOT NULL"
    ((made,),) = db.execute_sql(found, [table, "table"]).fetchall()
    indexes = db.execute_sql(found, [table, "index"]).fetchall()
    db.execute_sql(f"ALTER TABLE {table} RENAME TO {table}_before")
    db.execute_sql(f"{made.rstrip().removesuffix(')')}, {key})")
    db.execute_sql(f"INSERT INTO {table} SELECT * FROM {table}_before")
    db.execute_sql(f"DROP TABLE {table}_before")
    for (index,) in indexes:
        db.execute_sql(index)


def recount(db):
    """Have messages repeat what attempts say: a doubt is noted once for each carrier to ask."""
    unclear = defaultdict(list)
    for id, *copy in db.execute_sql(UNCLEAR).fetchall():
        unclear[id].append(copy)
    columns = "SELECT id, lane, in_doubt, claims_before_retry FROM message"
    found = db.execute_sql(
        f"{columns} WHERE lane <> replace(lane, '?', '') OR in_doubt > 0"
    ).fetchall()
    for id, lane, in_doubt, before in found:
        copies = unclear[id]
        doubts = dict.fromkeys(carrier or "" if ask_at else "" for _, carrier, ask_at in copies)
        after = lane.partition("?")[0] + "".join(f"?{each}" for each in doubts)
        count = sum(claim > before for claim, *_ in copies)
        if (after, count) != (lane, in_doubt):
            change = "UPDATE message SET lane = {0}, in_doubt = {0} WHERE id = {0}"
            db.execute_sql(change.format(db.param), (after, count, id))
