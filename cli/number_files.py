"""Files of phone numbers as people have them: lines, CSVs of any program, with or without a header.

Pure: from bytes to rows, from rows to the columns that hold numbers, from a cell to a number.
"""

import codecs
import csv
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from decimal import Decimal

import recipients
from recipients import InvalidNumber

DELIMITERS = ",;\t|"
COLUMNS = 100  # that are searched for the numbers
LONGEST = 100_000  # characters of a line; csv refuses longer cells
LONGEST_NUMBER = 250  # characters; libphonenumber reads no more
RECORD = 50  # lines of a record at most: a stray quotation mark must not swallow the file

PHONE = re.compile(  # names of columns; those in other languages are asked about
    r"phone|mobil|tel.fon|cellu|handy|rufnummer|portable|kom.rka|телефон|\b(tel|cell)\b",
    re.IGNORECASE,
)
DATE = re.compile(r"(\d{4}|\d\d?)([./-])\d\d?\2(\d{4}|\d\d?)([T ,].*)?", re.DOTALL)
REFORMATTED = re.compile(r"\d{1,20}\.0+|\d(\.\d{1,20})?[eE]\+?\d\d?", re.ASCII)
AREA_CODE = re.compile(r"\(?\+?\d{2,5}\)?")
AREA = re.compile(r"area|vorwahl|prefi|indicatif|\bddd\b", re.IGNORECASE)  # names of columns
WANTS_TEXTS = re.compile(r"subscribed|opt(ed)?[ _-]?in|active|consent|yes|true", re.IGNORECASE)
YES_AND_NO = ({"y", "n"}, {"t", "f"}, {"1", "0"}, {"j", "n"}, {"s", "n"}, {"o", "n"})


class Unclear(ValueError):
    """It is not certain which numbers are meant; the message says why."""


class NumberFile:
    """The rows of a file, each with the number of its first line, and its header if it has one."""

    def __init__(self, body: bytes):
        text = _text(body)
        if text.lstrip().startswith(("[", "{")):
            raise Unclear("this is JSON, not a CSV or a number per line")
        lines = [line[:LONGEST] for line in text.splitlines()]
        hint = re.fullmatch("sep=(.)", lines[0]) if lines else None  # for Excel
        if hint:
            lines[0] = ""
        self.rows = [*_records(lines, hint[1] if hint else _delimiter(lines))]
        self.header = self.rows.pop(0)[1] if self.rows and _is_header(self.rows[0][1]) else []
        if self.header and not self.rows:
            raise Unclear("there is nothing but a header")
        widths = [len(row) for row in (self.header, *(row for _, row in self.rows))]
        self.width = min(max(widths), COLUMNS)

    def named(self, column: int) -> str:
        """Return what to call a column: its place, counted from 1, and its name."""
        name = self._name(column)
        return f"column {column + 1}" + (f" {name[:40]!r}" if name else "")

    def chosen(self, names: Collection[str]) -> list[int]:
        """Return the columns with these names or places; raise Unclear if one is none."""
        header = [name.strip().casefold() for name in self.header]
        places = {str(column + 1): [column] for column in range(self.width)}
        columns = set()
        for name in names:
            wanted = name.strip().casefold()
            found = [column for column, each in enumerate(header) if each == wanted]
            if not (found or wanted in places):
                raise Unclear(f"there is no column {name!r}, only {self._list(range(self.width))}")
            columns.update(found or places[wanted])
        return sorted(columns)

    def columns_of_numbers(self) -> list[int]:
        """Return the column that is named as one of numbers, or else the only one that has some.

        Raise Unclear if that is not certain: a wrong one lists strangers.
        """
        found = self._with_digits(range(self.width), 7)  # an amount or a postal code has fewer
        named = self._with_digits([c for c in range(self.width) if PHONE.search(self._name(c))], 5)
        columns = named or found or [0]
        if problem := self._problem(columns, guessed=bool(found and not named)):
            raise Unclear(f"{problem}; choose with --column")
        return columns

    def _with_digits(self, columns, fewest):
        """Return the columns in which a cell may be a number of so many digits."""
        return [c for c in columns if any(_may_be_number(cell, fewest) for cell in self._cells(c))]

    def _problem(self, columns, guessed):
        """Return why these may not be the numbers of those who want no texts, or None."""
        column, *others = columns
        name, plus = self.named(column), any("+" in cell for cell in self._cells(column))
        if others:
            return f"several columns may hold the numbers: {self._list(columns)}"
        if guessed and self.header and self.width > 1 and not plus:
            return f"no column is named as one of phone numbers, but {name} may hold some"
        others = [other for other in range(self.width) if other != column]
        areas = [c for c in others if c == column - 1 or AREA.search(self._name(c))]
        for area in [] if plus else filter(self._has_area_codes, areas):
            return f"{self.named(area)} may be the area code, to be joined"
        for other in others:
            if self._tells_who_wants_texts(other):
                return f"{self.named(other)} may tell who wants texts, and who does not"
        return None

    def _has_area_codes(self, column):
        cells = [*filter(None, map(str.strip, self._cells(column)))]
        return bool(cells) and all(map(AREA_CODE.fullmatch, cells))

    def _tells_who_wants_texts(self, column):
        cells = [cell.strip() for cell in self._cells(column)]
        says = WANTS_TEXTS.search(self._name(column)) or any(map(WANTS_TEXTS.fullmatch, cells))
        return says or {*map(str.casefold, filter(None, cells))} in YES_AND_NO

    def _name(self, column):
        return "".join(self.header[column : column + 1]).strip()

    def _cells(self, column):
        return (row[column] for _, row in self.rows if column < len(row))

    def _list(self, columns):
        return ", ".join(map(self.named, columns))


def read(cell: str, region: str | None) -> str:
    """Return the E.164 form of a cell's number, even if a spreadsheet has reformatted it.

    Quotation marks may stay: libphonenumber finds where a number begins and ends. What follows
    another delimiter than the file's is another cell.
    """
    text = re.split(f"[{DELIMITERS}]", cell[:LONGEST_NUMBER])[0].strip(' "=')
    if DATE.fullmatch(text):
        raise InvalidNumber("is a date")
    if REFORMATTED.fullmatch(text):
        number = Decimal(text)
        if number.as_tuple().exponent > 0:
            raise InvalidNumber("was rounded by a spreadsheet")
        text = str(int(number))
    return recipients.national(text, region)


def numbers(row: list[str], columns: Collection[int], region: str | None) -> list[str]:
    """Return the numbers in these columns of a row; raise InvalidNumber if one is none.

    Google Contacts writes several into one cell.
    """
    cells = [cell for at in columns if at < len(row) for cell in row[at].split(":::")]
    found = [read(cell, region) for cell in cells if cell.strip()]
    if not found:
        raise InvalidNumber("has no number")
    return found


# Rows


def _text(body):
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")  # Excel's, in the West


def _delimiter(lines):
    """Return the delimiter that most lines have outside of quotation marks, and most often."""
    bare = [re.sub('"[^"]*"', "", line) for line in lines]

    def uses(delimiter):
        counts = [line.count(delimiter) for line in bare]
        return sum(map(bool, counts)), sum(counts)

    return max(DELIMITERS, key=uses)


def _records(lines, delimiter) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not blank, each with the number of its first line."""
    at = 0
    while at < len(lines):
        row, length = _record(lines[at : at + RECORD], delimiter)
        if any(map(str.strip, row)):
            yield at + 1, row
        at += length


def _record(lines, delimiter):
    """Return the cells of the record that begins with the first line, and how many lines it has."""
    if '"' in lines[0]:
        several = (f"{each}\n" for each in lines)
        reader = csv.reader(several, delimiter=delimiter, skipinitialspace=True, strict=True)
        with suppress(csv.Error):
            return next(reader, []), reader.line_num
    reader = csv.reader(lines[:1], delimiter=delimiter, skipinitialspace=True)
    return next(reader, []), 1


def _is_header(row):
    """Say whether a row names columns: it has a letter, and no cell has several digits."""
    return any(map(str.isalpha, "".join(row))) and not any(_digits(cell) > 4 for cell in row)


# Cells


def _digits(cell):
    return sum(map(str.isdigit, cell))


def _may_be_number(cell, fewest):
    """Say whether a cell has a number's digits; letters behind them make it a street or a word."""
    _, *behind = re.split(r"\d", cell, maxsplit=1)
    return (
        _digits(cell) >= fewest
        and not any(map(str.isalpha, "".join(behind)))
        and not DATE.fullmatch(cell.strip(' "='))
    )
