"""When schedulers make passes, and whether one is missing, over all schedulers of a database.

The state of each carrier has the time of the latest pass, which a long one renews every few
seconds. This table has the distance of the last two: cron may start them every ten minutes.
"""

import json
from datetime import datetime, timedelta
from typing import NamedTuple

from peewee import SQL, IntegerField, TextField

from database import InstantField, Table, db
from sending.carrier_state import CarrierState


class Passes(Table):
    """How passes have followed one another: a table of one row."""

    id = IntegerField(primary_key=True)
    expected_since = InstantField(null=True)  # when the tables were made
    single_at = InstantField(null=True)  # when the latest pass began, if it was a single one
    # A list of one: the seconds between the last two, or those of `--every`
    distances = TextField(default="[]", constraints=[SQL("DEFAULT '[]'")])

    @classmethod
    def begin(cls, now: datetime, every: float | None) -> None:
        """Note that a pass begins, a single one or one every so many seconds.

        Only two single passes in a row tell their distance, from beginning to beginning; a clock
        that was set back tells nothing.
        """
        with db.atomic():
            cls.insert(id=1).on_conflict_ignore().execute()
            before = cls.get_by_id(1).single_at
            distance = every or (before and (now - before).total_seconds())
            changes = {"single_at": None if every else now}
            if distance and distance > 0:
                changes["distances"] = json.dumps([distance])
            cls.update(changes).execute()


class PassTimes(NamedTuple):
    """When the last pass was made, and the distance of the last two."""

    last_at: datetime | None
    expected_since: datetime | None
    distance: timedelta

    def is_missing(self, now: datetime, patience: timedelta) -> bool:
        """Return whether there was no pass for so long, or for three times the distance."""
        since = self.last_at or self.expected_since
        return since is not None and now - since > max(patience, 3 * self.distance)


def correct(now: datetime) -> None:
    """Date the last pass now if the clock was set back since, or none would be missed."""
    CarrierState.count_as_now(CarrierState.last_pass_at, now)
    Passes.count_as_now(Passes.expected_since, now)


def pass_times() -> PassTimes:
    """Return when the last pass was, and the distance of the last two."""
    last, row = CarrierState.latest(), Passes.get_or_none()
    latest = json.loads(row.distances) if row else []
    distance = timedelta(seconds=sum(latest))
    return PassTimes(last and last.last_pass_at, row and row.expected_since, distance)
