"""Files of phone numbers as people have them: lines, CSVs of any program, with or without a header.

Pure: from bytes to rows, from rows to the columns that hold numbers, from a cell to a number.
"""

import codecs
import csv
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, starmap

import recipients
from recipients import InvalidNumber

DELIMITERS = ",;\t|"
COLUMNS = 1_000  # of a file; a line of delimiters alone has more
LONGEST = 100_000  # characters of a line; csv refuses longer cells
SHORTEST = 7  # digits of a number; an amount has fewer
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


@dataclass
class Column:
    """A column of a file: its place, counted from 1, its name and its cells."""

    place: int
    name: str
    cells: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"column {self.place}" + (f" {self.name[:40]!r}" if self.name else "")

    def may_hold_numbers(self, digits: int) -> bool:
        """Return whether a cell may be a number of at least this many digits."""
        return any(_may_be_number(cell, digits) for cell in self.cells)

    def has_area_codes(self) -> bool:
        """Return whether all cells are area codes."""
        cells = [*filter(None, self.cells)]
        return bool(cells) and all(map(AREA_CODE.fullmatch, cells))

    def tells_who_wants_texts(self) -> bool:
        """Return whether this is a column of consent, or of yes and no."""
        says = WANTS_TEXTS.search(self.name) or any(map(WANTS_TEXTS.fullmatch, self.cells))
        return bool(says) or {*map(str.casefold, filter(None, self.cells))} in YES_AND_NO


class NumberFile:
    """The rows of a file, each with the number of its first line, and its columns."""

    def __init__(self, body: bytes):
        text = _text(body)
        if text.lstrip().startswith(("[", "{")):
            raise Unclear("this is JSON, not a CSV or a number per line")
        lines = [line[:LONGEST] for line in text.splitlines(keepends=True)]
        if text.startswith("sep="):  # a hint for Excel
            lines[0] = ""
        self.rows = [*_records(lines, _delimiter(lines))]
        header = self.rows.pop(0)[1] if self.rows and _is_header(self.rows[0][1]) else []
        if header and not self.rows:
            raise Unclear("the file has only a header")
        width = max(1, len(header), *(len(row) for _, row in self.rows))
        names = header + [""] * (width - len(header))
        self.columns = [*starmap(Column, enumerate(names[:COLUMNS], 1))]
        for _, row in self.rows:
            for column, cell in zip(self.columns, row, strict=False):
                column.cells.append(cell)

    def chosen(self, names: Collection[str]) -> list[Column]:
        """Return the columns with these names or places; raise Unclear if there is none."""
        columns = {}
        for name in names:
            wanted = name.strip().casefold()
            found = [each for each in self.columns if wanted and each.name.casefold() == wanted]
            found = found or [each for each in self.columns if str(each.place) == wanted]
            if not found:
                raise Unclear(f"there is no column {name!r}, only {_list(self.columns)}")
            columns |= {each.place: each for each in found}
        return [columns[place] for place in sorted(columns)]

    def column_of_numbers(self) -> Column:
        """Return the column that is named as one of numbers, or else the only one that has some.

        Raise Unclear if that is not certain: the wrong one would list strangers.
        """
        found = [c for c in self.columns if c.may_hold_numbers(SHORTEST)]
        named = [c for c in self.columns if PHONE.search(c.name) and c.may_hold_numbers(5)]
        column, *others = named or found or self.columns[:1]
        if problem := self._problem(column, others, guessed=bool(found and not named)):
            raise Unclear(f"{problem}; choose with --column")
        return column

    def _problem(self, column, others, guessed):
        """Return why these may not be the numbers of those who want no texts, or None."""
        if others:
            return f"several columns may hold the numbers: {_list([column, *others])}"
        others = [each for each in self.columns if each is not column]
        if not any("+" in cell for cell in column.cells):
            if guessed and others and any(each.name for each in self.columns):
                return f"no column has a name for phone numbers, but {column} may hold some"
            for each in others:
                is_beside = each.place == column.place - 1 or AREA.search(each.name)
                if is_beside and each.has_area_codes():
                    return f"{each} may be the area codes of the numbers"
        for each in others:
            if each.tells_who_wants_texts():
                return f"{each} may say who wants texts and who does not"
        return None


def _list(columns):
    return ", ".join(map(str, columns))


def read(cell: str, region: str | None) -> str:
    """Return the E.164 form of a cell's number, even if a spreadsheet has reformatted it.

    Quotation marks may stay: libphonenumber finds where a number begins and ends.
    """
    text = cell.strip(' "=')
    if DATE.fullmatch(text):
        raise InvalidNumber("is a date")
    if REFORMATTED.fullmatch(text):
        number = Decimal(text)
        if number.as_tuple().exponent > 0:
            raise InvalidNumber("was rounded by a spreadsheet")
        text = str(int(number))
    return recipients.national(text, region)


def numbers(row: list[str], columns: Collection[Column], region: str | None) -> list[str]:
    """Return the numbers in these columns of a row; raise InvalidNumber if one is none.

    Google Contacts writes several into one cell. What follows another delimiter than the file's is
    another cell, which may hold one more, or something else.
    """
    cells = [cell for each in columns for cell in row[each.place - 1 : each.place]]
    found = []
    for part in filter(str.strip, chain.from_iterable(cell.split(":::") for cell in cells)):
        first, *others = re.split(f"[{DELIMITERS}]", part)
        more = (each for each in others if _may_be_number(each, SHORTEST))
        found += [read(each, region) for each in (first, *more)]
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
    """Return the delimiter that most lines have outside quotation marks; of equals, the commonest.

    csv.Sniffer is wrong twice as often, and takes 29 s for 10,000 stray quotation marks.
    """
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
        cells = [*map(str.strip, row)]
        if any(cells):
            yield at + 1, cells
        at += length


def _record(lines, delimiter):
    """Return the cells of the record that begins with the first line, and how many lines it has."""
    strict = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    with suppress(csv.Error):
        return next(strict, []), strict.line_num
    return next(csv.reader(lines[:1], delimiter=delimiter, skipinitialspace=True), []), 1


def _is_header(row):
    """Return whether a row names columns: it has a letter, and no cell has several digits."""
    return any(map(str.isalpha, "".join(row))) and not any(_digits(cell) > 4 for cell in row)


# Cells


def _digits(cell):
    return sum(map(str.isdigit, cell))


def _may_be_number(cell, fewest):
    """Return whether a cell has a number's digits, and no letters after them, as a street has."""
    _, *after = re.split(r"\d", cell, maxsplit=1)
    return (
        _digits(cell) >= fewest
        and not any(map(str.isalpha, "".join(after)))
        and not DATE.fullmatch(cell.strip(' "='))
    )
