"""The operator's overview, on top of what waits for approval."""

from datetime import datetime, timedelta

from flask import current_app

import reports
from desk.entries import Instants
from desk.lists import MANY
from monitoring import health
from sending import passes
from sending.carrier_state import CarrierState

HOUR = timedelta(hours=1)
DAY = 24  # hours


def look_over(now: datetime) -> dict:
    """Return the operator's overview: texts going out, recent outcomes, and trouble."""
    passes.correct(now)
    carrier, passed = CarrierState.latest(), passes.standing()
    several = health.of_several(CarrierState.of_latest_pass())
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    going_out = enumerate(reports.going_out(this_hour, DAY, MANY))
    return {
        "hours": [(this_hour + after * HOUR, *counts) for after, counts in going_out],
        "most_an_hour": MANY,
        "once_approved": reports.due_once_approved(MANY),
        "ended": reports.ended_since(now - DAY * HOUR, DAY * MANY),
        "most_a_day": DAY * MANY,
        "carrier": carrier,
        "in_trouble": [each for each in several if each.trouble],
        "bad_end": reports.bad_end(now),
        "at_limit": reports.at_limit(now, current_app.config["SETTINGS"].key_limits),
        "last_pass_at": passed.last_at,
        "is_silent": not passed.last_at or passed.is_missing(now, health.STALLED_AFTER),
        "now": now,
        "instants": Instants(now),
    }
