"""What the commands share: one-line errors, argument types, tables and confirmation."""

import csv
import json
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, TextIO

import click
from click.exceptions import NoArgsIsHelpError
from flask.cli import AppGroup, with_appcontext
from peewee import chunked

from texting import database, recipients
from texting.access.rules import UNITS
from texting.carriers import urls
from texting.cli import write_commands
from texting.database import PAGE, Refused, clock, isoformat
from texting.logs import printable
from texting.replies.model import read_number

SHELL = "shell"  # recorded as the person who approved, cancelled, or changed the list


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Report a failure in one line on standard error, with an exit status other than 0."""
    try:
        yield
        return
    except (BrokenPipeError, NoArgsIsHelpError):  # click handles both; a help has many lines
        raise
    except click.ClickException as error:
        failure = error
    except Refused as error:
        failure = click.ClickException(str(error))
    except OSError as error:
        failure = click.ClickException(error.strerror or str(error))
    except database.ERRORS as error:
        failure = click.ClickException(f"the database failed: {database.reason(error)}")
        failure.exit_code = 2  # in `dnc check`, 1 means "not listed"
    failure.message = printable(failure.message)  # a carrier's words, or a file's
    raise failure from None


class Import:
    """A CSV that is imported line by line; what is read of it, and what is not.

    `lost` says whether a line was not read, except a first one without a digit: a heading. Raise
    Refused if the file is not UTF-8.
    """

    def __init__(self, file: TextIO):
        try:
            self.lines = file.readlines()
        except UnicodeDecodeError:
            raise Refused("the file is not UTF-8, so nothing was imported") from None
        self.skipped, self.lost = [], False

    def read(self, row_of: Callable[[list[str]], Any]) -> Iterator[Any]:
        """Yield what `row_of` makes of the cells of each line, and show the progress.

        Where it raises ValueError, the line is skipped.
        """
        with click.progressbar(self.lines, label="importing", file=sys.stderr) as bar:
            for number, line in enumerate(bar, 1):
                if not line.strip():
                    continue
                try:
                    row = row_of(next(csv.reader([line])))
                except (csv.Error, ValueError) as error:
                    why = "is too long" if isinstance(error, csv.Error) else error
                    is_heading = number == 1 and not re.search(r"\d", line)
                    words = f"line {number}: {why}"
                    self.skipped.append(f"{words}; taken for a heading" if is_heading else words)
                    self.lost |= not is_heading
                else:
                    yield row

    def say_skipped(self) -> int:
        """Print which lines were skipped, and why; return how many."""
        for line in self.skipped:
            say(line, err=True)
        return len(self.skipped)


class Command(click.Command):
    """A command that fails in one line, and waits for the database as long as it takes."""

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        with one_line_errors():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with one_line_errors(), database.patience():
            return super().invoke(ctx)


class Commands(Command, AppGroup):
    """A group of commands, whose descriptions are not cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_commands(formatter, "Commands", dict(sorted(self.commands.items())))


def command(function: Callable) -> click.Command:
    """Make a command that belongs to no group."""
    return click.command(cls=Command)(with_appcontext(function))


def options(*several: Callable) -> Callable:
    """Make one decorator of the decorators of several options."""

    def decorate(function):
        for option in reversed(several):
            function = option(function)
        return function

    return decorate


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """Write a file as `replacing` does, or for `-` standard output."""
    if path == "-":
        with click.open_file(path, "w", encoding="utf-8") as file:
            yield file
    else:
        with replacing(path) as written, open(written, "w", encoding="utf-8") as file:
            yield file


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """Return the path of a new file that nobody else may read.

    Once it is complete it takes the place of what has the other path, also of a link. If anything
    fails, it is gone. click's atomic files would keep the rights of an older file, and replace it
    even then.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a device, or a pipe of anybody's
        raise click.FileError(path, "not a file")
    if database.db.is_at(path):  # the service would go on with a file that nobody else finds
        raise Refused(f"{path} is the database itself; name another file")
    try:
        number, written = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".new-")
    except OSError as error:
        raise click.FileError(path, error.strerror) from None
    os.close(number)
    try:
        yield written
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


# Argument types, as click makes them of functions


def name(value: str) -> str:
    """Accept a name for a key or group."""
    if not value.strip() or len(value) > 100 or not value.isprintable():
        raise click.BadParameter("must be 1 to 100 printable characters, not only spaces")
    return value


def duration(value: str) -> timedelta:
    """Read a length of time: 90d, 12h or 30m, or 0."""
    if value == "0":
        return timedelta(0)
    match = re.fullmatch(r"(\d{1,5})([dhm])", value, re.ASCII)
    if not match:
        raise click.BadParameter("must be days, hours or minutes, like 90d, 12h or 30m")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def instant(value: str) -> datetime:
    """Read an instant: an ISO 8601 date or date-time, in UTC by default, or 2h for 2 hours ago."""
    if re.fullmatch(r"\d+[dhm]", value, re.ASCII):
        return clock.now() - duration(value)
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter("must be like 2h, 3d, 2026-03-01 or 2026-03-01T09:00Z") from None


def address(value: str) -> str:
    """Read the address of a receiver; the error does not repeat it, as it may hold a password."""
    if not urls.is_address(value):
        raise click.BadParameter("must be an http:// or https:// address, without spaces")
    return value


def region(value: str) -> str:
    """Read the code of a country."""
    if value.upper() not in recipients.REGIONS:
        raise click.BadParameter(
            f"{value.upper()} is not a country code{recipients.hint(value.upper())}"
        )
    return value.upper()


def number(
    ctx: click.Context,
    parameter: click.Parameter,
    value: Any,
    read: Callable[[str, str | None], str] = read_number,
) -> Any:
    """Read a phone number, or several, as people write it in --region or with a plus sign."""
    region = ctx.params.pop("region", None)  # eager, so it was read before

    def read_one(text):
        try:
            return read(text, region)
        except recipients.InvalidNumber as error:
            hint = "; put a plus sign before its country code, or --region accepts national numbers"
            known = region or text.startswith("+")
            raise click.BadParameter(f"{text!r}: {error}{'' if known else hint}") from None

    if isinstance(value, tuple):
        return {*map(read_one, value)}
    return value if value is None else read_one(value)


region_option = click.option(
    "--region", type=region, is_eager=True, help="Also accept national numbers of this country: US."
)


def to_options(help: str = "Only messages to this number.") -> Callable:
    """Return --to and --region, which make one parameter, `to`."""
    return options(
        click.option("--to", metavar="NUMBER", callback=number, help=help), region_option
    )


def key_option(help: str) -> Callable:
    """Return --key, which takes the name of a key."""
    return click.option("--key", type=name, metavar="KEY_NAME", help=help)


since_option = click.option(
    "--since", type=instant, help="Only since then: 2h (ago), 3d, 2026-03-01 or 2026-03-01T09:00Z."
)
until_option = click.option("--until", type=instant, help="Only before then, in the same forms.")
LIMIT = click.IntRange(0, 10**9)  # databases reject larger numbers


# Output

Rows = Iterable[Iterable[Any]]


def say(line: str = "", err: bool = False) -> None:
    """Print a line, on standard error with `err`; escape what could control the terminal."""
    click.echo(printable(line), err=err)


def shown(value: Any) -> str:
    """Return a value for people: an instant in the API's format, a dash for None."""
    if value is None:
        return "-"
    return isoformat(value) if isinstance(value, datetime) else printable(str(value))


def fields(row: Any, *names: str) -> dict[str, Any]:
    """Return some attributes of a row, for a JSON object."""
    return {name: getattr(row, name) for name in names}


def to_json(value: Any) -> str:
    """Return a value as indented JSON; instants are in the API's format."""
    return json.dumps(value, indent=2, default=shown)


def print_json(value: Any) -> None:
    """Print a value as JSON, which escapes what could control the terminal."""
    click.echo(to_json(value))


def print_array(objects: Iterable[dict]) -> None:
    """Print a JSON array, one object at a time, so it may have any length."""
    before = "[\n"
    for each in objects:
        click.echo(before + textwrap.indent(to_json(each), "  "), nl=False)
        before = ",\n"
    click.echo("[]" if before == "[\n" else "\n]")


def mask(number: str | None) -> str:
    """Return a number with its middle hidden, to recognise it but not to call it."""
    return f"{number[:3]}{'•' * (len(number) - 5)}{number[-2:]}" if number else "-"


def table(header: Iterable[str], rows: Rows, none: str | None = None) -> int:
    """Print any number of rows in columns, a part at a time; return how many.

    Without rows, print `none` instead of the header.
    """
    printed, widths = 0, [0 for _ in header]
    for page in chunked(chain([header], rows), PAGE):
        if none and not printed and len(page) == 1:
            say(none)
            return 0
        page = [[*map(shown, row)] for row in page]
        widths = [max(width, *map(len, cells)) for width, *cells in zip(widths, *page, strict=True)]
        for row in page:
            cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())
        printed += len(page)
    return printed - 1


# Lists

SHOWN = 50  # rows, without --limit

newest_option = click.option(
    "--limit",
    type=LIMIT,
    metavar="N",
    help=f"Only the newest N; 0 for all. Default: {SHOWN} in a table, otherwise all.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
list_options = options(newest_option, json_option)


def newest(limit: int | None, as_json: bool) -> int | None:
    """Return how many rows --limit, or its default, lets a list have; None for all."""
    return SHOWN if limit is None and not as_json else limit or None


def print_list(
    as_json: bool,
    objects: Iterable[dict],
    header: Iterable[str],
    rows: Rows,
    none: str,
    most: int | None = None,
) -> None:
    """Print a list, as objects or as rows; say if only the newest are shown.

    The other of the two is not read, so both may share an iterator.
    """
    if as_json:
        print_array(objects)
    elif table(header, rows, none) == most:
        say(f"these are the newest {most}; --limit 0 shows all", err=True)


# Confirmation


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal whether to go on; end the command if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.ClickException(
            f"{question} There is no terminal to ask on; --yes skips the question."
        )
    click.confirm(question, abort=True, err=True)


def count(number: int, noun: str = "message", plural: str | None = None) -> str:
    """Return a number with its noun: 1 message, 2 messages."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
