"""`flask places`: where the owners of numbers live, imported from a file."""

import re
from datetime import date
from functools import partial
from typing import TextIO

import click
from peewee import chunked

from texting import recipients
from texting.access.places import KnownPlace
from texting.cli import base
from texting.cli.dnc import number_argument, numbers_argument
from texting.database import BATCH, clock
from texting.recipients import Residence

places = base.Commands(
    "places", help="Keep where people live, if that is not where their numbers are from."
)


@places.command("import")
@click.argument("file", type=click.File(encoding="utf-8-sig"))
@base.region_option
@click.pass_context
def import_places(ctx: click.Context, file: TextIO, region: str | None) -> None:
    """Note where people live, from a CSV: number, place and perhaps the last day there.

    A place is a country (DE), a state or province of the United States or Canada (US-TX), or an
    IANA time zone (America/Chicago). The last line for a number counts, also against earlier files.

    The file is UTF-8. Lines that cannot be read are skipped, and printed with the reason; then the
    exit status is 1, unless it is only the first line, without a digit: a heading.
    """
    imported, now = base.Import(file), clock.now()
    found = dict(imported.read(partial(read_cells, region=region)))
    for batch in chunked(found.items(), BATCH):
        KnownPlace.put(dict(batch), now)
    base.say(f"{len(found)} imported, {imported.say_skipped()} skipped")
    ctx.exit(imported.lost)


@places.command()
@number_argument
@click.pass_context
def check(ctx: click.Context, number: str) -> None:
    """Show where the owner of a number lives. The exit status is 1 if that is not known."""
    entry = KnownPlace.entry(number)
    if not entry:
        base.say("not known")
        ctx.exit(1)
    until = f" until {entry.until}" if entry.until else ""
    base.say(f"{named(entry.place)}{until}, imported {base.shown(entry.imported_at)}")


@places.command()
@numbers_argument
def remove(numbers: set[str]) -> None:
    """Forget where the owners of numbers live, so that their numbers tell it again."""
    now, batches = clock.now(), chunked(sorted(numbers), BATCH)
    gone = sum(len(KnownPlace.remove(batch, now)) for batch in batches)
    base.say(f"{gone} removed, {len(numbers) - gone} not known")


def named(place: str) -> str:
    """Return the code of a place with its name, or the name of a zone."""
    name = recipients.place_name(place)
    return place if name == place else f"{place} ({name})"


def read_cells(cells: list[str], region: str | None) -> tuple[str, Residence]:
    """Return the number in a line of a CSV, in E.164, and where its owner lives.

    Raise ValueError if it cannot be read.
    """
    first, *others = (cell.strip() for cell in cells)
    number = recipients.national(first, region)
    place, until, *more = (*others, "", "")
    if any(more):
        raise ValueError("has more than a number, a place and a day")
    return number, Residence(recipients.place_code(place), read_day(until) if until else None)


def read_day(text: str) -> date:
    """Return the day of a text like 2026-12-31; raise ValueError if it is none."""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise ValueError("the last day must be like 2026-12-31")
