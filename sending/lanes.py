"""Write the routes of messages that wait into their lanes, for senders of several carriers."""

from collections import defaultdict

import recipients
from access.keys import ApiKey
from database import db
from models import Message
from sending import claims
from sending.routes import OF_TESTERS, Routes

AT_ONCE = 500
"""Messages whose lanes are written in one transaction."""

FROM_THE_LOWEST = {True: 0, False: 0}


def assign(routes: Routes, first: dict[bool, int] = FROM_THE_LOWEST) -> list[str | None]:
    """Give some messages that have no lane, or an old one, theirs; return the lanes there are.

    Keys take turns, from the `first` ones on, urgent ones before the others: a million messages of
    one key do not hold up another's.
    """
    found = claims.lanes()
    old = [lane for lane in found if routes.is_old(lane)]
    for lane in old:
        with db.atomic():
            _write(routes, claims.without_route(AT_ONCE, first, False, lane))
            testers = claims.without_route(AT_ONCE, first, True, lane)
            _set(OF_TESTERS, [message.id for message in testers])
    return claims.lanes() if old else found


def _write(routes, messages):
    """Write the lanes of these messages."""
    names, by_lane = ApiKey.names({message.key_id for message in messages}), defaultdict(list)
    for message in messages:
        doubts = message.doubts(routes.first, routes.called)
        route = routes.route(_country(message), names.get(message.key_id, ""), doubts)
        by_lane[routes.lane(route)].append(message.id)
    for lane, ids in by_lane.items():
        _set(lane, ids)


def _set(lane, ids):
    if ids:
        Message.update(lane=lane).where(Message.id.in_(ids), Message.claimed_by.is_null()).execute()


def _country(message):
    """Return the country of a message; a version before migration 0014 stored none."""
    if message.country or message.to is None:
        return message.country
    try:
        return recipients.find(message.to).country
    except recipients.InvalidNumber:
        return None
