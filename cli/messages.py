"""`flask messages`: look, approve, cancel, try again, and let go of what is old."""

import json
import sys
import textwrap
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import click
from flask import current_app

import models
import recipients
import reports
from cli.base import (
    LIMIT,
    Commands,
    Instant,
    Name,
    Number,
    confirm,
    count,
    mask,
    moment,
    table,
    yes_option,
)
from database import Refused
from keys import ApiKey
from models import RETRYABLE, WAITING, Message, Status

SHELL = "shell"  # the name under which approvals and cancellations here are kept
SHOWN = 50  # messages, without --limit

messages = Commands("messages", help="Text messages: look, approve, cancel, try again.")

FILTERS = [
    click.Option(["--status"], type=click.Choice([*map(str, Status)])),
    click.Option(["--awaiting-approval"], is_flag=True, help="Only those that wait for approval."),
    click.Option(["--to"], type=Number(), help="Only those to this number."),
    click.Option(["--key"], type=Name(), metavar="KEY_NAME", help="Only those that this key sent."),
    click.Option(["--group"], type=Name(), help="Only those that keys of this group sent."),
    click.Option(
        ["--visible-to"], type=Name(), metavar="KEY_NAME", help="Only those that this key may see."
    ),
    click.Option(
        ["--since"],
        type=Instant(),
        help="Only those created since then: 2h (ago), 3d, 2026-03-01, 2026-03-01T09:00Z.",
    ),
]


def select(
    status: str | None,
    visible_to: str | None,
    limit: int | None,
    among: Collection[str] = (),
    **others: Any,
) -> Iterator[Message]:
    """Read the messages that these filters mean, those of the statuses `among` alone."""
    if among and status not in (None, *among):
        return iter(())
    return reports.listing(
        statuses=[status] if status else among,
        visible_to=ApiKey.named(visible_to) if visible_to else None,
        limit=limit or None,
        **others,
    )


# Looking


@messages.command("list", params=[*FILTERS])
@click.option(
    "--limit",
    type=LIMIT,
    help=f"At most so many, 0 for all: the default with --json; {SHOWN} without.",
)
@click.option("--json", "as_json", is_flag=True, help="One array of what `show` prints.")
def list_messages(limit: int | None, as_json: bool, **chosen: Any) -> None:
    """List messages, the newest first; numbers are masked."""
    if as_json:
        print_array(map(record, select(limit=limit, **chosen)))
        return
    limit = SHOWN if limit is None else limit
    shown = table(HEADER, map(row, select(limit=limit, **chosen)))
    if shown == limit and limit:
        click.echo(f"the newest {limit}; --limit 0 shows all", err=True)


@messages.command()
@click.argument("message_id", type=click.UUID)
def show(message_id: uuid.UUID) -> None:
    """Print one message as a JSON object."""
    click.echo(json.dumps(record(Message.find(message_id)), indent=2))


def record(message: Message) -> dict:
    """Return what `show` prints."""
    same = (
        *("status", "to", "message", "attempts", "max_retries", "approved", "approved_by"),
        *("cancelled_by", "manual_mode", "available_to_group", "check_dnc", "last_error"),
        *("carrier_reference", "in_doubt", "take_overs"),
    )
    instants = (
        *("send_date", "first_send_at", "send_at", "created_at", "approved_at"),
        *("in_doubt_since", "last_error_at", "finished_at", "receipt_at", "claimed_at"),
    )
    lasts = timedelta(seconds=current_app.config["SETTINGS"].claim_timeout)
    return (
        {"message_id": str(message.id), "key": message.key.name, "group": message.key.group}
        | {name: getattr(message, name) for name in same}
        | {name: moment(getattr(message, name), None) for name in instants}
        | {
            "claimed_by": message.claimed_by and str(message.claimed_by),
            "claim_ends_at": moment(message.claimed_at and message.claimed_at + lasts, None),
        }
    )


def print_array(objects: Iterable[dict]) -> None:
    """Print a JSON array, an object at a time so that there may be any number."""
    before = "[\n"
    for each in objects:
        click.echo(before + textwrap.indent(json.dumps(each, indent=2), "  "), nl=False)
        before = ",\n"
    click.echo("[]" if before == "[\n" else "\n]")


HEADER = ("message_id", "status", "to", "send at (UTC)", "local time", "attempts", "key")


def row(message: Message) -> tuple[str, ...]:
    """Return a message as a row for people."""
    return (
        str(message.id),
        message.status if message.approved else f"{message.status} (awaiting approval)",
        mask(message.to),
        moment(message.send_at),
        local_time(message),
        str(message.attempts),
        message.key.name,
    )


def local_time(message: Message) -> str:
    """Return the recipient's local time of sending; a dash where there is none."""
    try:
        at = message.send_at
        return recipients.local_time(recipients.find(message.to), at) if message.to else "-"
    except (OverflowError, recipients.InvalidNumber):
        # in the year 10000 already, or no longer valid for a newer libphonenumber
        return "-"


# Deciding


def command_for_each(
    name: str,
    past: str,
    transition: Callable[[Message], bool],
    help: str,
    *,
    statuses: Collection[Status] = (),
    awaiting_approval: bool = False,
) -> None:
    """Add a command that makes one transition for each id, and refuses what cannot make it.

    Instead of ids it takes the filters: then it shows what it would do, the texts too, and asks.
    """

    @messages.command(name, help=help, params=[*FILTERS])
    @click.argument("message_ids", metavar="[ID]...", type=click.UUID, nargs=-1)
    @click.option("--limit", type=LIMIT, help="At most so many, the newest.")
    @yes_option
    @click.pass_context
    def command(ctx, message_ids, limit, yes, **chosen):
        if bool(message_ids) == any(chosen.values()):
            raise click.UsageError("Give ids, or options that say which messages.", ctx)
        if not message_ids:
            chosen["awaiting_approval"] |= awaiting_approval
            found = select(limit=limit, among=statuses, **chosen)
            message_ids = look_at(found, silent=yes)
            if not message_ids:
                click.echo(f"there is no such message to {name}")
                return
            confirm(f"{name.capitalize()} {count(len(message_ids))}?", yes)
        refused = False
        for message_id in message_ids:
            try:
                message = Message.find(message_id)
                if not transition(message):
                    raise Refused(f"not {past}: {Message.find(message_id).state()}")
                click.echo(f"{message_id}: {past}")
            except Refused as error:
                refused = True
                click.echo(f"{message_id}: {error}", err=True)
        ctx.exit(refused)


def look_at(found: Iterable[Message], silent: bool) -> list[uuid.UUID]:
    """Return the ids of messages; print the first of them, with their texts, unless silent."""
    ids, rows = [], []
    for message in found:
        ids.append(message.id)
        if len(rows) < SHOWN and not silent:  # escaped: a text must not steer the terminal
            rows.append((*row(message), repr(message.message) if message.message else "-"))
    if rows:
        table((*HEADER, "text"), rows)
        if len(ids) > len(rows):
            click.echo(f"and {len(ids) - len(rows)} more; --limit {SHOWN} takes them in portions")
    return ids


command_for_each(
    "approve",
    "approved",
    lambda message: message.approve(SHELL, models.clock()),
    "Let messages be sent when their time comes: by ids, or what the options mean.",
    awaiting_approval=True,
)
command_for_each(
    "cancel",
    "cancelled",
    lambda message: message.cancel(SHELL, models.clock()),
    "Keep waiting messages from ever being sent; also how an approver says no.",
    statuses=WAITING,
)
command_for_each(
    "retry",
    "queued again",
    lambda message: message.retry(models.clock()),
    "Send failed, blocked, undelivered or expired messages again.",
    statuses=RETRYABLE,
)


# Letting go


older_than_option = click.option(
    "--older-than", "days", metavar="DAYS", type=click.IntRange(0, 36_500), required=True
)


@messages.command()
@older_than_option
@yes_option
def purge(days: int, yes: bool) -> None:
    """Delete messages that ended (sent, failed, blocked, cancelled, …) so many days ago."""
    if not days:
        confirm("Purge every message that has ended?", yes)
    click.echo(f"{change_old(Message.purge, days)} deleted")


@messages.command()
@older_than_option
def redact(days: int) -> None:
    """Keep the record of messages that ended so many days ago, but clear number and text."""
    click.echo(f"{change_old(Message.redact, days)} redacted")


def change_old(change: Callable[[datetime], int], days: int) -> int:
    """Change what ended so many days ago, batch by batch; show progress, return how many."""
    before, total = models.clock() - timedelta(days=days), 0
    with click.progressbar(
        iter(lambda: change(before), 0),
        label=change.__name__,
        item_show_func=lambda _: f"{total} messages",
        file=sys.stderr,
    ) as bar:
        for number in bar:
            total += number
    return total
