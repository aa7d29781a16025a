"""Why a text was allowed to go: what its judgement rested on, kept with each copy of it."""

from datetime import datetime
from functools import lru_cache

from texting import recipients
from texting.access.rules import Rules
from texting.database import isoformat
from texting.messages.model import Message
from texting.recipients.hours import written, written_window
from texting.sending.outcomes import Terms


def why_allowed(message: Message, terms: Terms, now: datetime) -> dict | None:
    """Return why a message may be given to its carrier that was judged by these terms just now.

    An automatic reply goes at any hour, whatever the lists say. None if no hours were looked at,
    and libphonenumber knows the number no more.
    """
    try:
        recipient = recipients.find(message.to, terms.residence)
    except recipients.InvalidNumber:
        return None
    answers = bool(message.auto_reply_to)
    hours, obeys = terms.key.hours(recipient), message.obeys_send_date(now)
    minute = now.replace(second=0, microsecond=0)
    zone, local_time, window, quiet = _at_this_minute(hours, recipient.clocks, minute)
    return {
        "zone": zone,
        "zone_from": "place" if recipient.place_at(now) else "number",
        "local_time": local_time,
        "business_hours": None if obeys or answers else window,
        "send_date": isoformat(message.send_date) if obeys else None,
        "quiet_hours": [] if answers else quiet,
        "lists": None if answers else lists_looked_at(message, terms.key),
        "approved_by": message.approved_by,
    }


def lists_looked_at(message: Message, rules: Rules) -> str | None:
    """Return which numbers get no such text: all on the lists, or those that opted out."""
    if rules.keeps_off(message.check_dnc, opted_out=False):
        return "all"
    return "opted-out" if rules.keeps_off(message.check_dnc, opted_out=True) else None


@lru_cache(maxsize=2048)  # all texts of one minute to a place share it
def _at_this_minute(hours, clocks, minute):
    """Return zone, local time, and business and quiet hours of the day, as they are kept."""
    here = clocks.at(minute)
    local = minute.astimezone(here.zones[0])
    window = hours.window(here.country, local.date())
    places = [(here, hours.quiet)]
    if here.of_number:
        places = [(here, hours.quiet_there), (here.of_number, hours.quiet)]
    quiet = [
        _quiet_hours(each, there, minute.astimezone(there.zones[0]))
        for there, several in places
        for each in several
    ]
    return here.zones[0].key, written(local), window and written_window(window), quiet


def _quiet_hours(hours, clocks, local):
    windows = [written_window(each) for each in hours.beginning_on(clocks.country, local.date())]
    return {
        "window": " and ".join(windows) or None,
        "from": hours.origin,
        "zone": clocks.zones[0].key,
    }


def without_place(allowed: dict) -> dict:
    """Return why a text was allowed, without what tells where its recipient lives."""
    if allowed["zone_from"] != "place":
        return allowed
    there = allowed["zone"]
    kept = [each for each in allowed["quiet_hours"] if each["zone"] != there]
    return allowed | {"zone": None, "local_time": None, "quiet_hours": kept}
