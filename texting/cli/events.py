"""`flask events`: webhook events that are waiting or were given up."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from texting.access.keys import ApiKey
from texting.cli import base
from texting.database import Refused, clock
from texting.events.outbox import Event, EventAddress

events = base.Commands(
    "events", help="List webhook events that wait or were given up, and send them again."
)
key_option = base.key_option("Only events of this key.")


@events.command("list")
@key_option
@click.option("--limit", type=base.LIMIT, metavar="N", help="Only the oldest N; 0 for all.")
@base.json_option
def list_events(key: str | None, limit: int | None, as_json: bool) -> None:
    """List events that are waiting or were given up, oldest first."""
    found = islice(Event.listing(key and ApiKey.named(key)), limit or None)
    header = ("webhook id", "key", "type", "message_id", "tries", "next try", "last answer")
    base.print_list(as_json, map(as_object, found), header, map(row, found), "No events")


def as_object(event: Event) -> dict:
    """Return an event as a JSON object."""
    names = ("type", "message_id", "tries", "next_try_at", "last_answer")
    return {"webhook_id": event.webhook_id, "key": event.key.name} | base.fields(event, *names)


def row(event: Event) -> Iterable[Any]:
    """Return an event as a row for people."""
    next_try = "given up" if event.given_up_at else event.next_try_at
    return (as_object(event) | {"next_try_at": next_try}).values()


@events.command()
@key_option
def retry(key: str | None) -> None:
    """Resend events that were given up, unless the address is switched off."""
    found = key and ApiKey.named(key)
    now, count = clock.now(), 0
    while batch := Event.retry(found, now):
        count += batch
    if found and not count and (off := EventAddress.of(found).off):
        raise Refused(f"the address of {key} is switched off: {off}")
    base.say(f"{base.count(count, 'event')} to be sent again")
