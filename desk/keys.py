"""The page of the keys: what each may send, has sent lately, and the button that pauses it."""

import logging
import re
from datetime import datetime, timedelta

from flask import Response, abort, current_app, flash, render_template, request

from access.keys import MAY_SEND, ApiKey
from access.limits import SECOND
from access.rules import NO_RULES
from database import EPOCH, Refused, clock
from desk.door import blueprint, operator, see
from desk.lists import PAGE, pressed
from models import accepted
from reports import usage

HOURS = (1, 24)  # in which texts are counted
PAST = {"pause": "paused", "resume": "resumed"}

log = logging.getLogger("web")


@blueprint.get("/keys")
def keys() -> str:
    """Show an operator the keys that send texts, the one that was used last first."""
    operator()
    now = clock.now()
    live = ApiKey.live(now).where(ApiKey.role.in_(MAY_SEND))
    found = [*live.order_by(ApiKey.last_used_at.desc(nulls="last"), ApiKey.id).limit(PAGE + 1)]
    limits = usage.use_of_limits(found[:PAGE], now, current_app.config["SETTINGS"].key_limits)
    cards = [
        {
            "key": key,
            "rules": key.rules.differences(NO_RULES),
            "limits": ", ".join(f"{use.used} of {use.limit}" for use in limits[key.id]),
            "sent": [(hours, *sent_within(key, hours, now)) for hours in HOURS],
        }
        for key in found[:PAGE]
    ]
    return render_template("keys.html", cards=cards, are_more=len(found) > PAGE, now=now)


@blueprint.post("/keys")
def change_key() -> Response:
    """Pause or resume a key."""
    person, action = operator(), pressed(PAST)
    id = request.form[action]
    if not re.fullmatch("[1-9][0-9]{0,8}", id):
        abort(400, "Choose what to do with a key.")
    flash(set_pause(action, int(id), person, clock.now()))
    return see(".keys")


def set_pause(action: str, id: int, person: ApiKey, now: datetime) -> str:
    """Pause or resume a key; return the result in words."""
    key = ApiKey.get_or_none(ApiKey.id == id, ApiKey.role.in_(MAY_SEND))
    if key is None:
        abort(400, "There is no such key.")
    try:
        done = key.pause(now) if action == "pause" else key.resume(now)
    except Refused as why:
        return f"{why}."
    if not done:
        return f"{key.name} was already {PAST[action]}."
    log.info("a key was %s by %s", PAST[action], person.name, extra={"key": person.name})
    return f"{key.name} is {PAST[action]}."


def sent_within(key: ApiKey, hours: int, now: datetime) -> list[int]:
    """Return the messages and the parts of a key that were accepted within some hours."""
    since, until = ((at - EPOCH) // SECOND for at in (now - timedelta(hours=hours), now + SECOND))
    return accepted(key.id, since, until)
