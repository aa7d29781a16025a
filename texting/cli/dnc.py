"""`flask dnc`: the Do Not Call list, and files to import it from or export it to."""

import csv
import heapq
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import TextIO

import click
from flask import current_app
from peewee import chunked

from texting import recipients
from texting.access import do_not_call
from texting.access.audit import Action, Audit
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, OptedOut
from texting.cli import base
from texting.database import BATCH, clock
from texting.replies.model import put_on_list

dnc = base.Commands(
    "dnc",
    help="Keep the Do Not Call list: opt-outs (people who want no texts) and your own entries.",
)
number_argument = base.options(click.argument("number", callback=base.number), base.region_option)
numbers_argument = base.options(
    click.argument("numbers", nargs=-1, required=True, callback=base.number), base.region_option
)


def opted_out_option(help: str) -> Callable:
    """Add --opted-out, which chooses one of the two lists."""

    def choose(ctx, parameter, opted_out):
        return OptedOut if opted_out else DoNotCall

    return click.option("--opted-out", "which", is_flag=True, callback=choose, help=help)


def say_what_stops(which: type[OptedOut] | type[DoNotCall]) -> None:
    """Print which texts a number on one of the two lists does not get."""
    setting = current_app.config["SETTINGS"].check_dnc
    who = "a recipient who opted out" if which is OptedOut else "a number that you listed"
    base.say(f"{who} {do_not_call.gets(which, setting)}")


@dnc.command()
@numbers_argument
@opted_out_option("The recipients want no texts.")
def add(numbers: set[str], which: type[OptedOut] | type[DoNotCall]) -> None:
    """Add entries to the list, or with --opted-out opt-outs, and say which texts that stops."""
    new = put_on_list(which, numbers, clock.now(), "operator", base.SHELL)
    base.say(f"{new} added, {len(numbers) - new} already listed")
    say_what_stops(which)


@dnc.command()
@numbers_argument
@click.option("--opted-out", is_flag=True, help="Also end opt-outs, if the recipients want texts.")
@click.pass_context
def remove(ctx: click.Context, numbers: set[str], opted_out: bool) -> None:
    """Remove your own entries from the list; --opted-out ends an opt-out, too.

    Without --opted-out, a number that opted out is left and printed; then the exit status is 1.
    """
    now, listed, gone, left = clock.now(), 0, 0, []
    for batch in chunked(sorted(numbers), BATCH):
        listed += len(do_not_call.listed(batch))
        gone += do_not_call.remove(batch, now, base.SHELL, opted_out=opted_out)
        still = OptedOut.select().where(OptedOut.number.in_(batch))
        left.extend(still.order_by(OptedOut.number))
    for each in left:
        since = f"opted out on {each.added_at:%Y-%m-%d}, by {each.source}"
        base.say(f"{each.number}: {since}; --opted-out ends that", err=True)
    base.say(f"{gone} removed, {len(numbers) - listed} not listed")
    ctx.exit(bool(left))


@dnc.command()
@number_argument
@click.pass_context
def check(ctx: click.Context, number: str) -> None:
    """Show whether a number is listed, how, since when and why, and which texts that stops.

    Exit status: 0 if listed, 1 if not.
    """
    setting = current_app.config["SETTINGS"].check_dnc
    found = [entry for each in do_not_call.LISTS if (entry := each.entry(number))]
    base.say("listed" if found else "not listed")
    for entry in found:
        since = f"{entry.kind} since {base.shown(entry.added_at)}, by {entry.source}"
        base.say(f"{since}: {do_not_call.gets(type(entry), setting)}")
    ctx.exit(not found)


@dnc.command()
@number_argument
@base.json_option
def history(number: str, as_json: bool) -> None:
    """Print everything that ever happened to a number on the list, oldest first."""
    names = ("at", "kind", "what", "why", "who")
    events = [base.fields(event, *names) for event in DoNotCallHistory.of(number)]
    base.print_list(as_json, events, names, map(dict.values, events), "never listed")


@dnc.command("list")
@click.option(
    "--limit", type=base.LIMIT, default=50, metavar="N", help="Only N; 0 for all. Default: 50."
)
def list_numbers(limit: int) -> None:
    """List opt-outs and entries with their source and time, and count them."""
    every = heapq.merge(*(each.entries() for each in do_not_call.LISTS), key=attrgetter("number"))
    rows = ((e.number, e.kind, e.source, e.added_at) for e in islice(every, limit or None))
    shown = base.table(("number", "kind", "source", "since"), rows)
    sizes = OptedOut.size(), DoNotCall.size()
    opted_out, entered = base.count(sizes[0], "opt-out"), base.count(sizes[1], "entry", "entries")
    base.say(f"{shown} of {sum(sizes):,}: {opted_out}, {entered}")


@dnc.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@opted_out_option("The opt-outs.")
def export(file: str, which: type[OptedOut] | type[DoNotCall]) -> None:
    """Write all entries, or all opt-outs, to a CSV file that `import` can read.

    To import opt-outs, give --opted-out there, too.
    """
    with base.new_file(file) as out:
        Audit.note(Action.EXPORTED, clock.now(), count=which.size(), details=which.kind)
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("number", "source", "since"))
        for entry in which.entries():
            writer.writerow((entry.number, entry.source, base.shown(entry.added_at)))


@dnc.command("import")
@click.argument("file", type=click.File(encoding="utf-8-sig"))
@base.region_option
@opted_out_option("The recipients want no texts.")
@click.pass_context
def import_numbers(
    ctx: click.Context, file: TextIO, region: str | None, which: type[OptedOut] | type[DoNotCall]
) -> None:
    """Add the numbers in a file to the list: a number per line, or the first column of a CSV.

    They become entries, or with --opted-out opt-outs, as with `add`.

    The file is UTF-8. Lines that do not begin with a number are skipped, and printed with the
    reason; then the exit status is 1, unless it is only the first line, without a digit: a heading.
    You can import a file again: listed numbers stay listed.
    """
    imported, now, seen, new = base.Import(file), clock.now(), set(), 0

    def first_number(cells):
        return recipients.national(cells[0], region)

    for batch in chunked(imported.read(first_number), BATCH):
        numbers = {*batch} - seen
        new += put_on_list(which, numbers, now, "import", base.SHELL)
        seen |= numbers
    skipped = imported.say_skipped()
    base.say(f"{new} added, {len(seen) - new} already listed, {skipped} skipped")
    say_what_stops(which)
    ctx.exit(imported.lost)
