"""`flask messages`: list, approve, cancel, retry, and forget old messages."""

import textwrap
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import timedelta
from typing import Any

import click
from flask import current_app
from peewee import Expression, chunked

from texting import database, recipients
from texting.access import places
from texting.access.do_not_call import LastReply
from texting.access.places import KnownPlace
from texting.access.sign_ins import SignIn
from texting.cli import base
from texting.database import PAGE, clock
from texting.messages import receipts_by_number
from texting.messages.attempts import Attempt
from texting.messages.decisions import IS_CANCELLABLE, IS_RETRYABLE, Selection, read_note
from texting.messages.model import WAITING, WITHDRAWN, Message, Status, has_status
from texting.recipients import Residence
from texting.replies.model import Reply
from texting.replies.opt_outs import OptOutMessage
from texting.reports import listings, queue
from texting.reports.listings import Filter
from texting.sending import outcomes, retention

UNSHOWN = {  # columns
    *("id", "key", "lane", "due_since", "idempotency_key", "request_digest", "response"),
    *("idempotency_digest", "auto_reply_to", "claim_number", "claims_before_retry", "heard_of"),
}
SHOWN_OF_ATTEMPTS = ("carrier", "ended_at", "result", "reference", "words", "allowed")
LONGEST_ERROR = 80  # characters of it in a list
MANY = 100  # messages; to delete more has to be confirmed

messages = base.Commands(
    "messages",
    help="List and read text messages; approve, cancel, retry, delete or redact them.",
)


# Listing


choices = base.options(
    click.option(
        "--status",
        type=click.Choice([*map(str, Status)]),
        help="Only this status. Slow on large tables for scheduled, queued and sending.",
    ),
    click.option("--awaiting-approval", is_flag=True, help="Only messages that wait for approval."),
    base.to_options(),
    base.key_option("Only messages of this key."),
    click.option(
        "--country", type=base.region, metavar="COUNTRY", help="Only to this country, as in EG."
    ),
    click.option("--group", type=base.name, help="Only messages of this group's keys."),
    click.option(
        "--visible-to", type=base.name, metavar="KEY_NAME", help="Only what this key may see."
    ),
    base.since_option,
    base.until_option,
)
"""The options that choose messages: the fields of a Filter."""


@messages.command("list")
@choices
@base.list_options
@click.option("--ids", "only_ids", is_flag=True, help="Print only ids, a line each.")
@click.option("--count", "only_count", is_flag=True, help="Print only how many there are.")
def list_messages(
    limit: int | None, as_json: bool, only_ids: bool, only_count: bool, **chosen: Any
) -> None:
    """List messages, newest first, with masked numbers.

    Options can be combined; some combinations (--key with --status) are slow on large tables.
    --json prints what `show` prints.
    """
    if only_count + as_json + only_ids > 1 or (only_count and limit is not None):
        raise click.UsageError(
            "Give one of --json, --ids and --count, and --count without --limit."
        )
    if only_count:
        base.say(str(listings.count(Filter(**chosen))))
        return
    most = base.newest(limit, as_json or only_ids)
    found = listings.listing(Filter(**chosen), most)
    if only_ids:
        for message in found:
            base.say(str(message.id))
        return
    rows = ((*row(message), last_error(message)) for message in found)
    header = (*HEADER, "last error")
    base.print_list(as_json, as_objects(found), header, rows, "No messages", most)


@messages.command()
@click.argument("message_id", type=click.UUID)
def show(message_id: uuid.UUID) -> None:
    """Print one message as a JSON object."""
    base.print_json(*as_objects([Message.find(message_id)]))


def as_objects(messages: Iterable[Message]) -> Iterator[dict]:
    """Return messages as the JSON objects that `show` prints, reading attempts page by page."""
    for page in chunked(messages, PAGE):
        attempts = Attempt.of_messages([message.id for message in page])
        homes = places.residences({message.to for message in page} - {None})
        for message in page:
            history = [
                {"at": attempt.begun_at} | base.fields(attempt, *SHOWN_OF_ATTEMPTS)
                for attempt in attempts[message.id]
            ]
            yield as_object(message, homes.get(message.to)) | {"history": history}


def as_object(message: Message, home: Residence | None) -> dict:
    """Return a message as a JSON object, without its history; `home` is its recipient's."""
    shown = {name: value for name, value in message.__data__.items() if name not in UNSHOWN}
    of_key = {"key": message.key.name, "group": message.key.group}
    rules = current_app.extensions["rules"].of(message.key.rules)
    waits_for = {"waits_for": outcomes.waits_for(message, rules, clock.now(), home)}
    because = {"blocked_because": message.blocked_because}
    return {"message_id": message.id} | of_key | shown | waits_for | because


HEADER = ("message_id", "status", "to", "send at (UTC)", "local time", "attempts", "key")


def row(message: Message) -> tuple[Any, ...]:
    """Return a message as a row for people."""
    awaiting = message.status in WAITING and not message.approved
    status = message.status + (" (awaiting approval)" if awaiting else "")
    start = message.id, status, base.mask(message.to), message.send_at, local_time(message)
    return *start, message.attempts, message.key.name


def last_error(message: Message) -> str | None:
    """Return the beginning of a message's last error, if it has one; `show` prints the whole."""
    return message.last_error and textwrap.shorten(
        message.last_error, LONGEST_ERROR, placeholder="…"
    )


def local_time(message: Message) -> str | None:
    """Return the recipient's local time of sending."""
    try:
        return message.to and recipients.local_time(places.find(message.to), message.send_at)
    except (OverflowError, recipients.InvalidNumber):
        # Already in the year 10000, or no longer valid to a newer libphonenumber
        return None


# Deciding


def choose(
    ids: Collection[uuid.UUID], chosen: dict[str, Any], among: Expression, verb: str, yes: bool
) -> Collection[uuid.UUID]:
    """Return ids that were given, or those of messages that options choose, if a person agrees.

    What comes while the person is asked is not among them.
    """
    if bool(ids) == any(chosen.values()):
        raise click.UsageError("Name messages by id, or choose them with --key or --to.")
    if ids:
        return ids
    found = {each.id: each.status for each in listings.listing(Filter(**chosen), among=among)}
    if found:
        counts = Counter(found.values())
        told = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
        base.say(f"{base.count(len(found))}: {told}")
        base.confirm(f"{verb} {'it' if len(found) == 1 else 'them'}?", yes)
    return found


def decide(
    transition: Callable[[Selection], Any], past: str, ids: Collection[uuid.UUID], total: bool
) -> None:
    """Change messages, print what became of each, and with `total` how many changed.

    The exit status is 1 if one could not be changed.
    """
    left = 0
    for page in chunked(ids, PAGE):  # a short transaction each
        these = Selection(page)
        transition(these)
        left += len(these.unchanged)
        found = {message.id: message for message in Message.select().where(Message.id.in_(page))}
        for id in page:
            message = found.get(id)
            if id not in these.unchanged:
                base.say(f"{id}: {WITHDRAWN if message and message.is_withdrawn else past}")
            else:
                why = f"not {past}: {message.state()}" if message else "there is no such message"
                base.say(f"{id}: {why}", err=True)
    if total:
        base.say(f"{len(ids) - left} {past}")
    click.get_current_context().exit(left > 0)


@messages.command()
@click.argument("message_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
def approve(message_ids: tuple[uuid.UUID, ...]) -> None:
    """Approve messages that wait for a person. They are sent when their time comes."""
    decide(lambda these: these.approve(base.SHELL, clock.now()), "approved", message_ids, False)


ids_or_choices = base.options(
    click.argument("message_ids", metavar="[ID...]", type=click.UUID, nargs=-1),
    choices,
    base.yes_option,
)


@messages.command()
@ids_or_choices
@click.option(
    "--note", type=read_note, metavar="TEXT", help="Why, for the sender and for people: a line."
)
def cancel(message_ids: tuple[uuid.UUID, ...], yes: bool, note: str | None, **chosen: Any) -> None:
    """Cancel messages that wait; this refuses approval.

    Name them by id, or choose them as `list` does: then they are counted, and it asks.
    """
    ids, total = choose(message_ids, chosen, IS_CANCELLABLE, "Cancel", yes), not message_ids
    decide(lambda these: these.cancel(base.SHELL, clock.now(), note), "cancelled", ids, total)


@messages.command()
@ids_or_choices
def retry(message_ids: tuple[uuid.UUID, ...], yes: bool, **chosen: Any) -> None:
    """Resend failed, blocked, undelivered or expired messages.

    Name them by id, or choose them as `list` does: then they are counted, and it asks.
    """
    ids = choose(message_ids, chosen, IS_RETRYABLE, "Resend", yes)
    lasts, total = current_app.config["SETTINGS"].expire_after, not message_ids
    decide(lambda these: these.retry(clock.now(), lasts), "queued again", ids, total)


# Forgetting


DAYS = click.IntRange(0, 36_500)


@messages.command()
@click.option("--older-than", "days", metavar="DAYS", type=DAYS, required=True)
@base.yes_option
def purge(days: int, yes: bool) -> None:
    """Delete messages that ended (sent, failed and others) and replies at least DAYS days ago.

    It asks before it deletes more than 100 messages.
    """
    now = clock.now()
    before = now - timedelta(days=days)
    if not days:
        base.confirm("Purge every message that has ended?", yes)
    elif (number := queue.count_ended(before)) > MANY:
        base.confirm(f"Purge {base.count(number)}?", yes)
    base.say(f"{counted(retention.purge, before, now)} deleted")
    say_replies(counted(Reply.purge, before, now))
    counted(OptOutMessage.forget, before)


@messages.command()
@base.to_options()
@click.option("--older-than", "days", metavar="DAYS", type=DAYS)
def redact(to: str | None, days: int | None) -> None:
    """Erase number and text of messages that have ended, and delete replies.

    Give a number, or --older-than for messages that ended at least DAYS days ago. Messages that
    are still waiting are not changed, and their ids are printed: run `cancel --to` first. SQLite's
    files are rewritten; the exit status is 1 if they may still hold a copy.
    """
    if (to is None) == (days is None):
        raise click.UsageError("Give --to or --older-than.")
    now = clock.now()
    if to is None:
        before = now - timedelta(days=days)
        total = counted(retention.redact, before, now)
        replies = counted(Reply.purge, before, now)
        counted(OptOutMessage.forget, before)
    else:
        total = counted(retention.redact_number, to, now)
        replies = counted(Reply.forget_number, to, now)
        receipts_by_number.forget_number(to)
        LastReply.forget([to])
        KnownPlace.forget(to)
    SignIn.forget_searches()
    base.say(f"{total} redacted")
    say_replies(replies)
    if to:
        for message in listings.listing(Filter(to=to), among=has_status(*WAITING, Status.SENDING)):
            base.say(f"{message.id}: not redacted: {message.state()}", err=True)
    database.db.scrub()


def say_replies(number: int) -> None:
    """Print how many replies were deleted, if any were."""
    if number:
        base.say(f"{base.count(number, 'reply', 'replies')} deleted")


def counted(change: Callable[..., int], *arguments: Any) -> int:
    """Repeat a change of a batch of rows until none is left, and return how many there were."""
    total = 0
    while batch := change(*arguments):
        total += batch
    return total
