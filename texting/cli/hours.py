"""`flask hours`: whose clock a text goes by, and when it may be sent."""

from datetime import datetime
from functools import partial

import click
from flask import current_app

from texting import database, recipients
from texting.access import places
from texting.access.keys import ApiKey
from texting.access.rules import NO_RULES
from texting.cli import base
from texting.cli.places import named
from texting.database import Refused, clock
from texting.recipients import Recipient, quiet
from texting.recipients.hours import BusinessHours, NeverOpens, written


def instant(value: str) -> datetime:
    """Read an instant as the API reads a send_date."""
    try:
        return clock.read_instant(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


@base.command
@click.argument("number", callback=partial(base.number, read=recipients.national))
@base.region_option
@base.key_option("By the rules of this key. Default: by the settings.")
@click.option(
    "--at", type=instant, help="At this time, as for a send_date: 2026-03-01T09:00Z. Default: now."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_context
def hours(
    ctx: click.Context, number: str, key: str | None, at: datetime | None, as_json: bool
) -> None:
    """Show whose clock a text to a number goes by, by which rules, and when it may be sent.

    It answers as the API does: for a text without a send_date. The exit status is 1 if hours and
    quiet hours leave no minute in which this number can be texted.
    """
    at, own = at or clock.now(), ApiKey.named(key).rules if key else NO_RULES
    recipient = find(number)
    open_hours = current_app.extensions["rules"].of(own).hours(recipient)
    try:
        found = as_object(recipient, open_hours, at)
    except OverflowError:
        raise Refused(
            "--at: must not be in the first or last days of the years 1 to 9999"
        ) from None
    if as_json:
        base.print_json(found)
    else:
        hours_from = "the key's" if own.hours else "BUSINESS_HOURS"
        tell(recipient, open_hours, at, found, hours_from)
    ctx.exit(0 if found["next_opening"] else 1)


def find(number: str) -> Recipient:
    """Return the recipient of a number, also if there is no database to ask where they live."""
    try:
        return places.find(number)
    except database.ERRORS:
        base.say("Where people are known to live could not be read.", err=True)
        return recipients.find(number)


def as_object(recipient: Recipient, hours: BusinessHours, at: datetime) -> dict:
    """Return what decides when a text to a recipient may be sent at an instant, for JSON.

    `quiet_hours` are those that hold, or begin next. `next_opening` is the first instant from `at`
    on at which a text may be sent; None: never.
    """
    clocks, states = recipient.clocks, recipient.states
    facts, quiet_time = hours.facts(clocks, at), hours.next_quiet_time(clocks, at)
    try:
        next_opening = hours.opens_at(clocks, at)
    except NeverOpens:
        next_opening = None
    return {
        "number": recipient.e164,
        "country": recipient.country,
        "state": states[0] if len(states) == 1 else None,
        "location": recipients.location(recipient),
        "zones": [zone.key for zone in hours.zones(clocks, at)],
        "local_time": facts.local_time,
        "within_business_hours": facts.within_business_hours,
        "business_hours": facts.business_hours,
        "quiet": hours.quiet_time(clocks, at) is not None,
        "quiet_hours": quiet_time and quiet_time.window,
        "quiet_hours_from": quiet_time and quiet_time.hours.origin,
        "place": recipient.place_at(at),
        "next_opening": next_opening,
    }


def tell(
    recipient: Recipient, hours: BusinessHours, at: datetime, found: dict, hours_from: str
) -> None:
    """Print what `as_object` has found, for people."""
    state = f" ({recipients.place_name(found['state'])})" if found["state"] else ""
    base.say(f"{recipient.international}: {found['location']}{state}")
    main, *others = found["zones"]
    if place := found["place"]:
        until = recipient.residence.until
        base.say(f"Place: {named(place)}, imported{f', until {until}' if until else ''}")
    base.say(f"Clock: {main}, where it is {found['local_time']}")
    if others:
        base.say(f"The phone may also be in {', '.join(others)}; those clocks count too")
    base.say(f"Business hours ({hours_from}): {in_words(found['business_hours'])}")
    if quiet_time := hours.next_quiet_time(recipient.clocks, at):
        whose = "the key's" if quiet_time.hours.whose == quiet.KEY else found["quiet_hours_from"]
        _, day = written(quiet_time.local).split(", ", 1)
        when = "it is quiet now" if found["quiet"] else f"next on {day}"
        base.say(f"Quiet hours ({whose}): {in_words(found['quiet_hours'])}; {when}")
    else:
        base.say("Quiet hours: none")
    if found["within_business_hours"]:
        base.say("A text can be sent now.")
    elif opening := found["next_opening"]:
        there = recipients.local_time(recipient, opening)
        why = recipients.what_decides(recipient, hours, at)
        base.say(f"A text waits until {there} there ({base.shown(opening)}): {why}.")
    else:
        base.say("No text can ever be sent: hours and quiet hours leave no minute open.")


def in_words(hours: str) -> str:
    """Return hours, given as the API writes them, as people say them: 9:00 PM – noon, all day."""
    if hours == "12:00 AM - 12:00 AM local time":
        return "all day"
    for numbers, word in (("12:00 PM", "noon"), ("12:00 AM", "midnight"), (" - ", " – ")):
        hours = hours.replace(numbers, word)
    return hours
