"""Fill the tables of DATABASE_URL with finished messages: `python benchmarks/fill.py 1000000`."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from texting import database, settings
from texting.access.keys import ApiKey
from texting.database import clock, db
from texting.messages import model
from texting.messages.model import Message, Status

BATCH = 2_000
NUMBERS = """
    WITH RECURSIVE numbers(number) AS (
        SELECT CAST({first} AS bigint)
        UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < {end}
    )
"""
ROWS = """
    INSERT INTO message (
        id, key_id, "to", message, first_send_at, send_at, expires_at, status, manual_mode,
        available_to_group, check_dnc, approved, attempts, max_retries, finished_at, created_at,
        parts, country, lane
    )
    SELECT {id}, {key}, '+1212' || (2000000 + number), 'Your parcel is here.',
        {instant}, {instant}, {instant} + 259200000, '{status}', false, false, false, true, 1, 3,
        {finished_at}, {instant}, 1, 'US', 'US'
    FROM numbers
"""


@database.patience()
def fill(count: int, status: Status = Status.SENT, keys: int = 1) -> None:
    """Store so many messages, one a second into the past, written by the database itself.

    They are of so many keys in turn.
    """
    now, started = clock.now(), time.monotonic()
    key = ApiKey.get_or_none() or ApiKey.create(name="fill", digest="-", created_at=now)
    for number in range(1, keys):
        ApiKey.create(name=f"fill {number}", digest=f"-{number}", created_at=now)
    instant = f"({Message.created_at.db_value(now)} - number * 1000)"
    if db.product == "Postgres":  # an id of version 7, of this instant and this number
        id = f"(lpad(to_hex({instant}), 12, '0') || '70008' || lpad(to_hex(number), 15, '0'))::uuid"
    else:
        id = f"printf('%012x70008%015x', {instant}, number)"
        db.execute_sql("PRAGMA cache_size = -500000")
    rows = ROWS.format(
        id=id,
        key=f"{key.id} + number - number / {keys} * {keys}",
        instant=instant,
        status=status,
        finished_at=instant if status in model.FINISHED else "NULL",
    )
    for first in range(0, count, BATCH):
        db.execute_sql(NUMBERS.format(first=first, end=min(first + BATCH, count)) + rows)
        print(f"\r{first} of {count}", end="", file=sys.stderr)
    vacuum()
    print(f"\r{count} in {time.monotonic() - started:.0f} s", file=sys.stderr)


def vacuum() -> None:
    """Do what autovacuum does by itself within minutes, but not beside what is measured."""
    if db.product == "Postgres":
        db.execute_sql("VACUUM ANALYZE message")


if __name__ == "__main__":
    database.connect(settings.load().database_url)
    database.upgrade()
    fill(int(sys.argv[1]))
