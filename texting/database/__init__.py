"""The database: connections, tables, what errors mean, migrations, and the clock.

Everything that is stored is a Table of `db`, which is SQLite or Postgres, as its URL says.
"""

from database.connections import connect, db, disconnect
from database.errors import ERRORS, Refused
from database.migrations import is_migrated, made_at, refuse_draft, upgrade
from database.outages import all_but_broken, is_outage, passed_over, reason, survived
from database.postgres import patience
from database.tables import (
    BATCH,
    EPOCH,
    FEW,
    MILLISECOND,
    PAGE,
    PAST,
    CarrierTextField,
    InstantField,
    Table,
    in_pages,
    isoformat,
    lock_texts,
    locked,
)
