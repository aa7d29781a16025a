"""`flask usage`: texts and parts by month, key and country."""

import csv
import re
import sys
from datetime import UTC, datetime, timedelta

import click
from flask.cli import with_appcontext

import reports
from cli import base
from database import clock

# A spreadsheet runs a cell that begins so; in many countries it cuts lines at semicolons
FORMULA = re.compile(r"(^|;)(\s*[=+\-@＝＋－＠])")


def month(value: str) -> datetime:
    """Read a month, 2026-11, and return its first instant in UTC."""
    if not re.fullmatch(r"[12]\d{3}-(0[1-9]|1[0-2])", value, re.ASCII):
        raise click.BadParameter("must be a year and a month, like 2026-11")
    return datetime.fromisoformat(f"{value}-01").replace(tzinfo=UTC)


@click.command(cls=base.Command)
@click.option(
    "--month",
    "first",
    type=month,
    metavar="MONTH",
    help="The month, such as 2026-11. Default: this month.",
)
@click.option("--key", "name", type=base.name, metavar="KEY_NAME", help="Only texts of this key.")
@click.option(
    "--by", type=click.Choice(["carrier"]), help="Also by the carrier that each was given to last."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a CSV for a spreadsheet.")
@with_appcontext
def usage(
    first: datetime | None, name: str | None, by: str | None, as_json: bool, as_csv: bool
) -> None:
    """Count the texts and parts that were accepted in a month (UTC), by key and country.

    Only messages that are sent, delivered, undelivered or failed count.
    """
    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    first = (first or clock.now()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    until = (first + timedelta(days=31)).replace(day=1)
    used = reports.count_usage(first, until, name, by_carrier=by is not None)
    rows = [{"month": f"{first:%Y-%m}"} | each._asdict() for each in used]
    header = ["month", *reports.Usage._fields]
    if not by:
        header.remove("carrier")
        for row in rows:
            del row["carrier"]
    if as_json:
        base.print_json(rows)
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(map(harmless_row, rows))
    elif rows:
        shown = (["-" if each is None else str(each) for each in row.values()] for row in rows)
        base.table(header, shown)
    else:
        base.say(f"no texts to count in {first:%Y-%m}")


def harmless_row(row: dict) -> list:
    """Return a row's values, what people have named made harmless."""
    named = {name: harmless(row[name]) for name in ("key", "carrier") if row.get(name)}
    return [*(row | named).values()]


def harmless(cell: str) -> str:
    """Return a cell's text with an apostrophe before what a spreadsheet would run as a formula."""
    return FORMULA.sub(r"\1'\2", cell)
