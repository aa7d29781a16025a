"""`flask usage`: texts and parts by month, key and country."""

import csv
import re
import sys
from datetime import UTC, datetime, timedelta

import click

from texting.cli import base
from texting.database import clock
from texting.reports.usage import Usage, count_usage

# Spreadsheets run a cell that begins like this; in many countries they split lines at semicolons
FORMULA = re.compile(r"(^|;)(\s*[=+\-@＝＋－＠])")


def month(value: str) -> datetime:
    """Read a month, 2026-11, and return its first instant in UTC."""
    if not re.fullmatch(r"[12]\d{3}-(0[1-9]|1[0-2])", value, re.ASCII):
        raise click.BadParameter("must be a year and a month, like 2026-11")
    return datetime.fromisoformat(f"{value}-01").replace(tzinfo=UTC)


@base.command
@click.option(
    "--month", "first", type=month, metavar="MONTH", help="As in 2026-11. Default: this month."
)
@base.key_option("Only texts of this key.")
@base.json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a CSV for a spreadsheet.")
def usage(first: datetime | None, key: str | None, as_json: bool, as_csv: bool) -> None:
    """Count the texts and parts that were accepted in a month (UTC), by key and country.

    Only messages that are sent, delivered, undelivered or failed count.
    """
    if as_json and as_csv:
        raise click.UsageError("Give --json or --csv, not both.")
    first = (first or clock.now()).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    until = (first + timedelta(days=31)).replace(day=1)
    header = ["month", *Usage._fields]
    rows = [[f"{first:%Y-%m}", *each] for each in count_usage(first, until, key)]
    if as_json:
        base.print_json([dict(zip(header, row, strict=True)) for row in rows])
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(map(harmless, row) for row in rows)
    else:
        base.table(header, rows, f"no texts to count in {first:%Y-%m}")


def harmless(cell: object) -> object:
    """Return a cell with an apostrophe before what a spreadsheet would run as a formula."""
    return FORMULA.sub(r"\1'\2", cell) if isinstance(cell, str) else cell
