"""Create or migrate the tables; see the folder migrations/."""

from datetime import UTC, datetime
from pathlib import Path

from texting.database.connections import db, disconnect
from texting.database.errors import ERRORS, Refused
from texting.database.postgres import patience
from texting.database.tables import Table

MIGRATIONS = Path(__file__).parents[2] / "migrations"

DRAFT = (
    "this database was made by a draft of before 1.0.0; export what you need and begin with an "
    "empty one"
)


def upgrade() -> list[str]:
    """Create or migrate the tables in one transaction; return the names of those applied.

    Upgrades that start together wait for one another; all but the first find nothing to do. Raise
    Refused if a draft made the tables.
    """
    db.make()
    try:
        with patience(), db.atomic():  # to index ten million rows takes minutes
            db.begin_upgrade()
            refuse_draft()
            return _runner().up()
    finally:
        disconnect()


def refuse_draft() -> None:
    """Raise Refused if a draft of before 1.0.0 made the tables: its migrations are gone."""
    migrations = _runner().status()
    first = next(each for each in migrations if each.path)
    if not first.applied and any(each.applied for each in migrations):
        raise Refused(DRAFT)


def is_migrated() -> bool:
    """Return whether the tables are up to date with this version."""
    try:
        migrations = _runner().status()
        applied = all(each.applied for each in migrations if each.path)
        needed = {table._meta.table_name for table in Table.__subclasses__()}
        return applied and needed <= {*db.get_tables()}
    except ERRORS:
        return False


def made_at() -> datetime | None:
    """Return when the tables were made, if they are."""
    applied = _runner().applied().values()
    return min(applied).astimezone(UTC) if applied else None  # it has the machine's local time


def _runner():
    from playhouse.migrations import Runner  # here, as few commands need it

    return Runner(db.obj, str(MIGRATIONS))
