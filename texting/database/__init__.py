"""The database: connections, tables, what errors mean, migrations, and the clock.

Everything that is stored is a Table of `db`, which is SQLite or Postgres, as its URL says.
"""

from texting.database.clock import isoformat
from texting.database.connections import connect, db, disconnect
from texting.database.errors import ERRORS, Refused
from texting.database.migrations import is_migrated, made_at, refuse_draft, upgrade
from texting.database.outages import is_outage, log_errors, reason, skip_broken, skip_on_error
from texting.database.pauses import pause, with_pauses
from texting.database.postgres import patience
from texting.database.tables import (
    BATCH,
    EPOCH,
    FEW,
    LAST,
    MILLISECOND,
    PAGE,
    PAST,
    CarrierTextField,
    InstantField,
    JSONField,
    Table,
    in_pages,
    lock_texts,
    locked,
)
