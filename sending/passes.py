"""When schedulers make passes, and whether one is missing, over all schedulers of a database.

The state of each carrier has the time of the latest pass, which a long one renews every few
seconds. This table has the usual distance of two: cron may start them every ten minutes.
"""

import json
from datetime import datetime, timedelta
from typing import NamedTuple

from peewee import SQL, IntegerField, TextField

from database import InstantField, Table, db
from sending.carrier_state import CarrierState

MOST_DISTANCES = 5
"""How many distances between passes are remembered."""


class Passes(Table):
    """How passes have followed one another: a table of one row."""

    id = IntegerField(primary_key=True)
    expected_since = InstantField(null=True)  # when the tables were made
    single_at = InstantField(null=True)  # when the latest pass began, if it was a single one
    distances = TextField(default="[]", constraints=[SQL("DEFAULT '[]'")])  # the latest, in seconds

    @classmethod
    def begin(cls, now: datetime, every: float | None) -> None:
        """Note that a pass begins, a single one or one every so many seconds.

        The distance of two single passes in a row is that of their beginnings; otherwise, it is
        counted from the last sign of life. A clock that was set back tells nothing.
        """
        last = CarrierState.latest()
        with db.atomic():
            cls.insert(id=1).on_conflict_ignore().execute()
            row = cls.get_by_id(1)
            before = row.single_at or (last and last.last_pass_at)
            distance = every or (before and (now - before).total_seconds())
            distances = json.loads(row.distances)
            if distance and distance > 0:
                distances = [*distances, distance][-MOST_DISTANCES:]
            single_at = None if every else now
            cls.update(single_at=single_at, distances=json.dumps(distances)).execute()


class PassTimes(NamedTuple):
    """When the last pass was made, and the usual distance of two."""

    last_at: datetime | None
    expected_since: datetime | None
    usual: timedelta

    def is_missing(self, now: datetime, patience: timedelta) -> bool:
        """Return whether there was no pass for so long, or for three times the usual distance."""
        since = self.last_at or self.expected_since
        return since is not None and now - since > max(patience, 3 * self.usual)


def correct(now: datetime) -> None:
    """Date the last pass now if the clock was set back since, or none would be missed."""
    CarrierState.count_as_now(CarrierState.last_pass_at, now)
    Passes.count_as_now(Passes.expected_since, now)


def pass_times() -> PassTimes:
    """Return when the last pass was, and the usual distance of two."""
    last, row = CarrierState.latest(), Passes.get_or_none()
    usual = timedelta(seconds=usual_distance(json.loads(row.distances)) if row else 0)
    return PassTimes(last and last.last_pass_at, row and row.expected_since, usual)


def usual_distance(latest: list[float]) -> float:
    """Return the usual distance, the second longest of the latest.

    The longest may be an outage; shorter ones are passes that somebody made by hand.
    """
    return sorted(latest)[-2 if len(latest) > 2 else -1] if latest else 0
