"""The operator's commands: `flask db`, `keys`, `dnc` and `messages`."""

import codecs
import json
import re
import sys
from datetime import timedelta

import click
from flask.cli import AppGroup

import database
import models
import recipients
from models import ApiKey, DoNotCall, Message, Refused, Role, Status
from schemas import isoformat

BATCH = 5_000
SHELL = "shell"  # who approves and cancels here


class OneLineErrors:
    """Report a failure in one line on standard error, with a status other than 0."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except Refused as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:  # click ends quietly where nobody reads on
            raise
        except OSError as error:
            raise click.ClickException(error.strerror or str(error)) from None
        except database.ERRORS as error:
            failure = click.ClickException(f"the database failed: {database.reason(error)}")
            failure.exit_code = 2  # `dnc check` means "not listed" by 1
            raise failure from None


class Command(OneLineErrors, click.Command):
    pass


class Commands(OneLineErrors, AppGroup):
    pass


class Name(click.ParamType):
    name = "name"

    def convert(self, value, param, ctx):
        if not value.strip() or len(value) > 100 or not value.isprintable():
            self.fail("must be 1 to 100 printable characters, not only spaces", param, ctx)
        return value


class Duration(click.ParamType):
    """A length of time: 90d, 12h or 30m."""

    name = "duration"

    def convert(self, value, param, ctx):
        match = re.fullmatch(r"(\d{1,5})([dhm])", value, re.ASCII)
        if not match:
            self.fail("must be days, hours or minutes: 90d, 12h or 30m", param, ctx)
        unit = {"d": "days", "h": "hours", "m": "minutes"}[match[2]]
        return timedelta(**{unit: int(match[1])})


class Number(click.ParamType):
    """A phone number with its plus sign; spaces and punctuation are forgiven."""

    name = "number"

    def convert(self, value, param, ctx):
        try:
            return recipients.national(value, None)
        except recipients.InvalidNumber as error:
            self.fail(f"{value!r}: {error}", param, ctx)


db = Commands("db", help="The database's tables.")
keys = Commands("keys", help="API keys: who may send.")
dnc = Commands("dnc", help="The Do Not Call list: numbers that get no text with check_dnc.")
messages = Commands("messages", help="Text messages: look, approve, cancel, try again.")


def register(app):
    """Give the `flask` command these groups."""
    for group in (db, keys, dnc, messages, stats, describe):
        app.cli.add_command(group)


@db.command()
def upgrade():
    """Create or migrate the tables; does nothing where they are up to date."""
    applied = database.upgrade()
    click.echo("\n".join(f"applied {name}" for name in applied) or "the tables are up to date")


@keys.command()
@click.argument("name", type=Name())
@click.option("--group", type=Name(), help="Keys of one group share messages marked for it.")
@click.option("--expires", type=Duration(), help="Refuse the key after this time, like 90d.")
@click.option(
    "--role",
    type=click.Choice([*map(str, Role)]),
    default=str(Role.SENDER),
    show_default=True,
    help="A sender calls the API; the others sign in to the desk.",
)
def create(name, group, expires, role):
    """Create an API key and print it: the only time it can be seen."""
    now = models.clock()
    click.echo(ApiKey.issue(name, group, now, expires and now + expires, Role(role)))


@keys.command()
@click.argument("name", type=Name())
@click.option(
    "--overlap",
    type=Duration(),
    default="1d",
    show_default=True,
    help="How long the old one lasts.",
)
def rotate(name, overlap):
    """Give a key a new secret and print it; the old one is good for the overlap."""
    click.echo(ApiKey.named(name).rotate(models.clock() + overlap))


@keys.command("list")
def list_keys():
    """List the keys: name, group, and when created, last used (to the hour), expired, revoked."""
    rows = [
        (
            key.name,
            key.group or "-",
            key.role,
            *map(moment, (key.created_at, key.last_used_at, key.expires_at, key.revoked_at)),
        )
        for key in ApiKey.select().order_by(ApiKey.name)
    ]
    table(("name", "group", "role", "created", "last used", "expires", "revoked"), rows)


@keys.command()
@click.argument("name", type=Name())
def revoke(name):
    """Refuse a key from now on, in every process."""
    done = ApiKey.named(name).revoke(models.clock())
    click.echo(f"{name}: {'revoked' if done else 'was revoked before'}")


@dnc.command("add")
@click.argument("numbers", type=Number(), nargs=-1, required=True)
def add_numbers(numbers):
    """Put numbers on the list."""
    new = DoNotCall.add(dict.fromkeys(numbers), models.clock(), "operator")
    click.echo(f"{new} added, {len(set(numbers)) - new} listed before")


@dnc.command("remove")
@click.argument("numbers", type=Number(), nargs=-1, required=True)
def remove_numbers(numbers):
    """Take numbers off the list."""
    gone = DoNotCall.remove(set(numbers))
    click.echo(f"{gone} removed, {len(set(numbers)) - gone} not listed")


@dnc.command()
@click.argument("number", type=Number())
@click.pass_context
def check(ctx, number):
    """Say whether a number is listed: status 0 where it is, 1 where not."""
    listed = DoNotCall.lists(number)
    click.echo("listed" if listed else "not listed")
    ctx.exit(not listed)


@dnc.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--region", help="Read national numbers too, as dialled in this country, like US.")
def import_numbers(file, region):
    """Put a file's numbers on the list: a number a line, or the first column of a CSV.

    Can be run again: numbers that are listed stay listed. Lines without a usable number are
    skipped and reported with the reason.
    """
    if region and (region := region.upper()) not in recipients.REGIONS:
        raise click.BadParameter(f"{region} is no country's code", param_hint="--region")
    body = file.read()
    utf16 = body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    lines = body.decode("utf-16" if utf16 else "utf-8-sig", "replace").splitlines()
    now, new, seen, skipped = models.clock(), 0, set(), []
    batch = []
    with click.progressbar(lines, label="importing", file=sys.stderr) as bar:
        for line_number, line in enumerate(bar, 1):
            try:
                number = first_number(line, region)
            except recipients.InvalidNumber as error:
                if line_number > 1 or re.search(r"\d", line):  # a header is no loss
                    skipped.append(f"line {line_number}: {error}")
                continue
            if number is None or number in seen:
                continue
            seen.add(number)
            batch.append(number)
            if len(batch) == BATCH:
                new += DoNotCall.add(batch, now, "import")
                batch.clear()
    if batch:
        new += DoNotCall.add(batch, now, "import")
    for line in skipped:
        click.echo(line, err=True)
    click.echo(f"{new} added, {len(seen) - new} listed before, {len(skipped)} skipped")


def first_number(line, region):
    """The number in the first column of a line, in E.164 form; None where the line is blank.

    Quotation marks need no care: libphonenumber looks for where a number begins and ends.
    """
    cell = re.split("[,;\t]", line, maxsplit=1)[0]
    return recipients.national(cell, region) if cell.strip() else None


@messages.command("list")
@click.option("--status", type=click.Choice([*map(str, Status)]))
@click.option("--awaiting-approval", is_flag=True, help="Only those that wait for a yes.")
@click.option(
    "--visible-to", type=Name(), metavar="KEY_NAME", help="Only those that this key may see."
)
@click.option("--json", "as_json", is_flag=True, help="One array of what `show` prints.")
def list_messages(status, awaiting_approval, visible_to, as_json):
    """List messages, the oldest first; numbers are masked."""
    key = ApiKey.named(visible_to) if visible_to else None
    found = Message.listing(status, awaiting_approval, key)
    if as_json:
        click.echo(json.dumps([record(message) for message in found], indent=2))
        return
    rows = [
        (
            str(message.id),
            message.status if message.approved else f"{message.status} (awaiting approval)",
            mask(message.to),
            moment(message.send_at),
            local_time(message),
            str(message.attempts),
            message.key.name,
        )
        for message in found
    ]
    table(("message_id", "status", "to", "send at (UTC)", "local time", "attempts", "key"), rows)


@messages.command()
@click.argument("message_id", type=click.UUID)
def show(message_id):
    """Print one message as a JSON object."""
    click.echo(json.dumps(record(Message.find(message_id)), indent=2))


def command_for_each(name, past, transition, help):
    """Add a command that makes one transition for each id, and refuses what cannot make it."""

    @messages.command(name, help=help)
    @click.argument("message_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
    @click.pass_context
    def command(ctx, message_ids):
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


command_for_each(
    "approve",
    "approved",
    lambda m: m.approve(SHELL, models.clock()),
    "Let messages be sent when their time comes.",
)
command_for_each(
    "cancel",
    "cancelled",
    lambda m: m.cancel(SHELL, models.clock()),
    "Keep waiting messages from ever being sent; also how an approver says no.",
)
command_for_each(
    "retry",
    "queued again",
    lambda m: m.retry(models.clock()),
    "Send failed or blocked messages again.",
)


def command_for_old(name, past, batch, help):
    """Add a command that does something to all old finished messages, batch by batch."""

    @messages.command(name, help=help)
    @click.option("--older-than", metavar="DAYS", type=click.IntRange(0, 36_500), required=True)
    def command(older_than):
        before, total = models.clock() - timedelta(days=older_than), 0
        with click.progressbar(
            iter(lambda: batch(before), 0),
            label=name,
            item_show_func=lambda _: f"{total} messages",
            file=sys.stderr,
        ) as bar:
            for number in bar:
                total += number
        click.echo(f"{total} {past}")


command_for_old(
    "purge",
    "deleted",
    Message.purge,
    "Delete messages that were sent, failed, blocked or cancelled so many days ago.",
)
command_for_old(
    "redact",
    "redacted",
    Message.redact,
    "Keep the record of such messages, but clear number and text.",
)


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stats(as_json):
    """Show how many messages are in each state, what waits, and what ended lately."""
    now = models.clock()
    oldest = Message.oldest_due(now)
    numbers = {
        "messages": Message.by_status(),
        "last_hour": Message.ended_since(now - timedelta(hours=1)),
        "last_day": Message.ended_since(now - timedelta(days=1)),
    }
    numbers["awaiting_approval"] = Message.awaiting_approval()
    numbers["oldest_due"] = moment(oldest, None)
    if as_json:
        click.echo(json.dumps(numbers, indent=2))
        return
    most = max(numbers["messages"].values()) or 1
    table(
        ("status", "messages", "", "last hour", "last day"),
        [
            (
                status,
                str(number),
                "█" * -(-number * 20 // most),
                *(str(numbers[span].get(status, "")) for span in ("last_hour", "last_day")),
            )
            for status, number in numbers["messages"].items()
        ],
    )
    click.echo(f"\nawaiting approval: {numbers['awaiting_approval']}")
    waited = f"since {moment(oldest)} ({now - oldest})" if oldest else "none"
    click.echo(f"the oldest due message waits: {waited}")


@click.command("openapi")
def describe():
    """Print the interface in OpenAPI, out of the schemas that validate: what openapi.json holds."""
    try:
        import openapi
    except ModuleNotFoundError as error:  # what only developers install
        raise click.ClickException(
            f"needs {error.name}: pip install -r requirements-dev.txt"
        ) from None
    click.echo(json.dumps(openapi.document(), indent=2))


def record(message):
    """What `show` prints."""
    instants = (
        *("send_date", "first_send_at", "send_at", "created_at", "approved_at"),
        *("claimed_at", "in_doubt_since", "last_error_at", "finished_at", "receipt_at"),
    )
    same = (
        *("status", "to", "message", "attempts", "max_retries", "approved", "approved_by"),
        *("cancelled_by", "manual_mode", "available_to_group", "check_dnc", "last_error"),
        *("carrier_reference", "in_doubt", "take_overs"),
    )
    return (
        {"message_id": str(message.id), "key": message.key.name, "group": message.key.group}
        | {name: getattr(message, name) for name in same}
        | {name: moment(getattr(message, name), None) for name in instants}
    )


def moment(instant, missing="-"):
    """Return an instant as the interface writes it."""
    return isoformat(instant) if instant else missing


def local_time(message):
    """The recipient's local time when the message is to be sent; a dash where there is none."""
    try:
        at = message.send_at
        return recipients.local_time(recipients.find(message.to), at) if message.to else "-"
    except (OverflowError, recipients.InvalidNumber):
        # in the year 10000 already, or no longer valid for a newer libphonenumber
        return "-"


def mask(number):
    """Enough of a number to recognise it by, not enough to call it."""
    return f"{number[:3]}{'•' * (len(number) - 5)}{number[-2:]}" if number else "-"


def table(header, rows):
    """Print rows in columns."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
