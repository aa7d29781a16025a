"""`flask dnc`: the Do Not Call list, and files to import it from or export it to."""

import csv
import sys
from itertools import islice
from typing import TextIO

import click
from peewee import chunked

import recipients
from access.audit import Action, Audit
from access.do_not_call import DoNotCall, DoNotCallHistory
from cli import base
from database import BATCH, Refused, clock
from recipients import InvalidNumber
from sending.replies import put_on_list

dnc = base.Commands(
    "dnc", help="The Do Not Call list. Texts that check it are never sent to its numbers."
)
number_argument = base.options(click.argument("number", callback=base.number), base.region_option)
numbers_argument = base.options(
    click.argument("numbers", nargs=-1, required=True, callback=base.number), base.region_option
)


@dnc.command()
@numbers_argument
def add(numbers: set[str]) -> None:
    """Add numbers to the list."""
    new = put_on_list(numbers, clock.now(), "operator", base.SHELL)
    base.say(f"{new} added, {len(numbers) - new} already listed")


@dnc.command()
@numbers_argument
def remove(numbers: set[str]) -> None:
    """Remove numbers from the list."""
    now, batches = clock.now(), chunked(sorted(numbers), BATCH)
    gone = sum(DoNotCall.remove(batch, now, "operator", base.SHELL) for batch in batches)
    base.say(f"{gone} removed, {len(numbers) - gone} not listed")


@dnc.command()
@number_argument
@click.pass_context
def check(ctx: click.Context, number: str) -> None:
    """Show whether a number is listed, since when and why; exit status 0 if listed, 1 if not."""
    entry = DoNotCall.entry(number)
    base.say("listed" if entry else "not listed")
    if entry:
        base.say(f"since {base.shown(entry.added_at)}, by {entry.source or 'an unknown source'}")
    ctx.exit(not entry)


@dnc.command()
@number_argument
@base.json_option
def history(number: str, as_json: bool) -> None:
    """Print everything that ever happened to a number on the list, oldest first."""
    names = ("at", "what", "why", "who")
    events = [base.fields(event, *names) for event in DoNotCallHistory.of(number)]
    base.print_list(as_json, events, names, map(dict.values, events), "never listed")


@dnc.command("list")
@click.option(
    "--limit", type=base.LIMIT, default=50, metavar="N", help="Only N; 0 for all. Default: 50."
)
def list_numbers(limit: int) -> None:
    """List the numbers with their source and time, and count them."""
    entries = islice(DoNotCall.entries(), limit or None)
    rows = ((entry.number, entry.source, entry.added_at) for entry in entries)
    shown = base.table(("number", "source", "since"), rows)
    base.say(f"{shown} of {base.count(DoNotCall.size(), 'number')}")


@dnc.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(file: str) -> None:
    """Write the whole list to a CSV file that `import` can read."""
    with base.new_file(file) as out:
        Audit.note(Action.EXPORTED, clock.now(), count=DoNotCall.size())
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("number", "source", "since"))
        for entry in DoNotCall.entries():
            writer.writerow((entry.number, entry.source or "", base.shown(entry.added_at)))


@dnc.command("import")
@click.argument("file", type=click.File(encoding="utf-8-sig"))
@base.region_option
def import_numbers(file: TextIO, region: str | None) -> None:
    """Add the numbers in a file to the list: a number per line, or the first column of a CSV.

    The file is UTF-8. Lines that do not begin with a number are skipped, and printed with the
    reason. You can import a file again: listed numbers stay listed.
    """
    try:
        lines = file.readlines()
    except UnicodeDecodeError:
        raise Refused("the file is not UTF-8, so nothing was imported") from None
    now, seen, new, skipped = clock.now(), set(), 0, []
    with click.progressbar(lines, label="importing", file=sys.stderr) as bar:
        for batch in chunked(enumerate(bar, 1), BATCH):
            numbers = set()
            for line_number, line in batch:
                if line.strip():
                    try:
                        numbers.add(first_number(line, region))
                    except InvalidNumber as error:
                        skipped.append(f"line {line_number}: {error}")
            numbers -= seen
            new += put_on_list(numbers, now, "import", base.SHELL)
            seen |= numbers
    for line in skipped:
        base.say(line, err=True)
    base.say(f"{new} added, {len(seen) - new} already listed, {len(skipped)} skipped")


def first_number(line: str, region: str | None) -> str:
    """Return the number in the first column of a line, in E.164; raise InvalidNumber if none."""
    try:
        first = next(csv.reader([line]))[0]
    except csv.Error:
        raise InvalidNumber("is too long") from None
    return recipients.national(first, region)
