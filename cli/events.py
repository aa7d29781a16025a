"""`flask events`: webhook events that are waiting or were given up."""

from itertools import islice

import click

from access.keys import ApiKey
from cli import base
from database import Refused, clock
from events.outbox import Event, EventAddress

events = base.Commands("events", help="Webhook events: list, retry.")
key_option = base.key_option("Only events of this key.")


@events.command("list")
@key_option
@click.option("--limit", type=base.LIMIT, metavar="N", help="Only the oldest N; 0 for all.")
@base.json_option
def list_events(key: str | None, limit: int | None, as_json: bool) -> None:
    """List events that are waiting or were given up, oldest first."""
    found = islice(Event.listing(key and ApiKey.named(key)), limit or None)
    if as_json:
        base.print_array(map(as_object, found))
        return
    header = ("webhook id", "key", "type", "message_id", "tries", "next try", "last answer")
    base.table(header, map(row, found), "No events")


def as_object(event: Event) -> dict:
    """Return an event as a JSON object."""
    return {
        "webhook_id": event.webhook_id,
        "key": event.key.name,
        "type": event.type,
        "message_id": event.message_id,
        "tries": event.tries,
        "next_try_at": event.next_try_at,
        "last_answer": event.last_answer,
    }


def row(event: Event) -> tuple[str, ...]:
    """Return an event as a row for people."""
    shown = as_object(event) | {"next_try_at": base.moment(event.next_try_at)}
    if event.given_up_at:
        shown["next_try_at"] = "given up"
    return tuple(str(value) if value is not None else "-" for value in shown.values())


@events.command()
@key_option
def retry(key: str | None) -> None:
    """Resend events that were given up, unless the address is switched off."""
    found = key and ApiKey.named(key)
    if found and (off := EventAddress.of(found).off):
        raise Refused(f"the address of {key} is switched off: {off}")
    count = Event.retry(found, clock.now())
    base.say(f"{base.count(count, 'event')} to be sent again")
