"""Fill the tables of DATABASE_URL with finished messages: `python benchmarks/fill.py 1000000`."""

import itertools
import sys
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import database
import models
import settings
from keys import ApiKey
from models import Message, Status, clock

BATCH = 1_000


def fill(count, status=Status.SENT):
    """Store so many messages, one a second into the past, in batches."""
    now = clock()
    key = ApiKey.get_or_none() or ApiKey.create(name="fill", digest="-", created_at=now)
    rows = (row(number, key, now - timedelta(seconds=number), status) for number in range(count))
    fields = Message._meta.sorted_fields
    sql = Message.insert(dict.fromkeys(fields)).sql()[0]
    started = time.monotonic()
    for done, batch in enumerate(iter(lambda: list(itertools.islice(rows, BATCH)), [])):
        with database.db.atomic():
            cursor = database.db.connection().cursor()
            cursor.executemany(
                sql, [[f.db_value(r.get(f.name, f.default)) for f in fields] for r in batch]
            )
        if done % 50 == 0:
            print(f"\r{done * BATCH} of {count}", end="", file=sys.stderr)
    print(f"\r{count} in {time.monotonic() - started:.0f} s", file=sys.stderr)


def row(number, key, instant, status):
    return {
        "id": models.new_id(instant),
        "key": key,
        "to": f"+1212{2000000 + number % 7_000_000}",
        "message": "Your parcel is here.",
        "first_send_at": instant,
        "send_at": instant,
        "status": status,
        "manual_mode": False,
        "available_to_group": False,
        "check_dnc": False,
        "approved": True,
        "attempts": 1,
        "max_retries": 3,
        "finished_at": instant if status in models.FINISHED else None,
        "created_at": instant,
    }


if __name__ == "__main__":
    database.connect(settings.load().database_url)
    database.upgrade()
    fill(int(sys.argv[1]))
