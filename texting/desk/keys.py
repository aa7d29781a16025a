"""The page of the keys: what each may send, has sent lately, and the button that pauses it."""

import logging
import re
from datetime import datetime, timedelta

from flask import Response, abort, current_app, flash, render_template, request

from texting.access.keys import MAY_SEND, ApiKey
from texting.access.rules import NO_RULES
from texting.database import Refused, clock
from texting.desk.auth import blueprint, operator, see
from texting.desk.lists import MANY, PAGE, pressed
from texting.reports import usage

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
    are_more = len(found) > PAGE
    del found[PAGE:]
    limits = usage.use_of_limits(found, now, current_app.config["SETTINGS"].key_limits)
    sent = {hours: sent_within(found, hours, now) for hours in HOURS}
    cards = [
        {
            "key": key,
            "rules": key.rules.differences(NO_RULES),
            "limits": ", ".join(f"{use.used} of {use.limit}" for use in limits[key.id]),
            "sent": [(hours, *sent[hours].get(key.id, (0, 0))) for hours in HOURS],
        }
        for key in found
    ]
    return render_template("keys.html", cards=cards, are_more=are_more, many=MANY, now=now)


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


def sent_within(keys: list[ApiKey], hours: int, now: datetime) -> dict[int, tuple[int, int]]:
    """Return the messages and the parts of keys that were accepted within some hours."""
    since, until = now - timedelta(hours=hours), now + timedelta(seconds=1)
    return usage.accepted_between(keys, since, until, MANY)
