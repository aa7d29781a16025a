"""The top of the page of approvals: whether texts go, and the operator's figures."""

from datetime import datetime, timedelta

from flask import current_app, g

from texting.access.keys import Role
from texting.carriers.lanes import Lane, Routes
from texting.database import clock
from texting.desk.auth import blueprint
from texting.desk.lists import MANY
from texting.messages.model import Message
from texting.monitoring.health import Health, Problem
from texting.reports import queue, usage

HOUR, HOURS_OF_DAY = timedelta(hours=1), 24


@blueprint.app_template_global()
def health() -> Health:
    """Return the health of the service, read once in a request."""
    if "health" not in g:
        g.health = current_app.extensions["health"].read()
    return g.health


@blueprint.app_template_global()
def problems() -> list[Problem]:
    """Return the problems: to an approver, those because of which texts wait."""
    found = current_app.extensions["health"].problems(health(), clock.now())
    return found if g.person.role == Role.OPERATOR else [each for each in found if each.stops]


@blueprint.app_template_global()
def is_stuck(message: Message) -> bool:
    """Return whether a due text would not go now, since nothing sends or no carrier takes it."""
    lane, routes = Lane.read(message.lane), Routes(current_app.config["SETTINGS"].carrier_configs)
    return health().holds(routes.order(lane, message.key.name))


def look_over(now: datetime) -> dict:
    """Return the operator's overview: texts going out and recent outcomes."""
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    going_out = enumerate(queue.going_out(this_hour, HOURS_OF_DAY, MANY))
    at_limit = usage.limits_used_up(now, current_app.config["SETTINGS"].key_limits)
    return {
        "hours": [(this_hour + after * HOUR, *counts) for after, counts in going_out],
        "most_an_hour": MANY,
        "once_approved": queue.due_once_approved(MANY),
        "ended": queue.ended_since(now - HOURS_OF_DAY * HOUR, HOURS_OF_DAY * MANY),
        "most_a_day": HOURS_OF_DAY * MANY,
        "at_limit": [*{key.name: limit for key, limit in at_limit}.items()],
    }
