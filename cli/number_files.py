"""Files of phone numbers as people have them: lines, CSVs of any program, with or without a header.

Pure: from bytes to rows, from rows to the columns that hold numbers, from a cell to a number.
"""

import codecs
import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from decimal import Decimal

import recipients
from recipients import InvalidNumber

DELIMITERS = ",;\t|"
SAMPLE, COLUMNS = 1_000, 100  # rows and columns that are searched for the numbers
LONGEST = 100_000  # characters of a line; csv refuses longer cells
RECORD = 50  # lines of a record at most: a stray quotation mark must not swallow the file
FEWEST_DIGITS = 5  # of a cell that may be a number: fewer are a country code or an extension

# In names without accents and in lower case
PHONE = re.compile(
    r"phone|telefo|tele?movel|\bmobi(l|el)|\bmovil|\bcelul|\bcellul|\bhandy|\brufn|\bportable"
    r"|\bkomork|\bpuhelin|msisdn|\b(tel|telf|tlf|cell|cep|gsm|sms|mob|fon|whatsapp)\b"
    r"|телефон|мобил|電話|携帯|电话|手机|전화|휴대|هاتف|جوال"
)
FAX = re.compile(r"(tele?|fac)?fax")
NUMBER = re.compile(r"n(umber|ummer|umero|umer)s?|номер")

DATE = re.compile(r"(\d{4}|\d\d?)([./-])\d\d?\2(\d{4}|\d\d?)([T ,].*)?", re.DOTALL)
COMPACT_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
REFORMATTED = re.compile(r"\d{1,20}\.0+|\d(\.\d{1,20})?[eE]\+?\d\d?", re.ASCII)


class UnclearColumn(ValueError):
    """Several columns may be the one that is meant, or none; the message names them."""


class NumberFile:
    """The rows of a file, each with the number of its first line, and its header if it has one."""

    def __init__(self, body: bytes):
        lines = [line[:LONGEST] for line in _text(body).splitlines()]
        separator = re.fullmatch("sep=(.)", lines[0]) if lines else None  # a hint to Excel
        if separator:
            lines[0] = ""
        self.rows = [*_records(lines, separator[1] if separator else _delimiter(lines))]
        self.header = []
        if self.rows and _is_header(self.rows[0][1]):
            self.header = self.rows.pop(0)[1]
        widths = [len(row) for row in (self.header, *(row for _, row in self.rows[:SAMPLE]))]
        self.width = min(max(widths), COLUMNS)

    def named(self, column: int) -> str:
        """Return what to call a column: its place, counted from 1, and its name."""
        name = self.header[column].strip() if column < len(self.header) else ""
        return f"column {column + 1}" + (f" {name[:40]!r}" if name else "")

    def chosen(self, names: Collection[str]) -> list[int]:
        """Return the columns with these names or places; raise UnclearColumn if one is none."""
        header = [_plain(name) for name in self.header]
        columns = set()
        for name in names:
            found = {at for at, each in enumerate(header) if each == _plain(name)}
            if not found and re.fullmatch(r"\d{1,3}", name) and 0 < int(name) <= self.width:
                found = {int(name) - 1}
            if not found:
                raise UnclearColumn(f"there is no column {name!r}, only {self._list(self._all())}")
            columns |= found
        return sorted(columns)

    def columns_of_numbers(self, region: str | None) -> list[int]:
        """Return the column that holds the numbers, by its name or else by its cells.

        Raise UnclearColumn if that is not certain: a wrong one lists strangers.
        """
        if self.width < 2:
            return [0]
        columns = self._named_as_numbers() or self._that_read_as_numbers(region)
        if len(columns) > 1:
            raise UnclearColumn(f"several columns may hold the numbers: {self._list(columns)}")
        return columns or [0]

    def _named_as_numbers(self):
        names = [_plain(name) for name in self.header[:COLUMNS]]
        for pattern in (PHONE.search, NUMBER.fullmatch):
            named = [at for at, name in enumerate(names) if pattern(FAX.sub("", name))]
            if columns := [at for at in named if any(map(_may_be_number, self._cells(at)))]:
                return columns
        return []

    def _that_read_as_numbers(self, region):
        international, found = Counter(), Counter()
        for column in self._all():
            cells = [cell for _, row in self.rows[:SAMPLE] for cell in row[column : column + 1]]
            cells = [cell for cell in cells if _may_be_number(cell)]
            if cells and all(map(COMPACT_DATE.fullmatch, cells)):
                continue
            for cell in cells:
                # A street or a vanity number: libphonenumber reads letters as digits
                if not re.search(r"\d.*[^\W\d_]", cell):
                    with suppress(InvalidNumber):
                        read(cell, region)
                        found[column] += 1
                        international[column] += cell.strip(" \"='").startswith(("+", "00"))
        counts = +international or found
        most = max(counts.values(), default=0)
        columns = sorted(column for column, count in counts.items() if count >= most / 2)
        if self.header and counts is found and columns:
            raise UnclearColumn(
                f"no column is named as one of phone numbers, but {self._list(columns)} "
                "may hold some"
            )
        return columns

    def _all(self):
        return range(self.width)

    def _cells(self, column):
        return (row[column] for _, row in self.rows if column < len(row))

    def _list(self, columns):
        return ", ".join(map(self.named, columns))


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
    """Return the delimiter that splits the most lines into equally many cells."""

    def score(delimiter):
        widths = (len(row) for _, row in _records(lines[:SAMPLE], delimiter, mixed=False))
        counted = Counter(width for width in widths if width > 1)
        return max(((times, width) for width, times in counted.items()), default=(0, 0))

    return max(DELIMITERS, key=score)


def _records(lines, delimiter, mixed=True) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not blank; `mixed`: a line without the delimiter may have another."""
    at = 0
    while at < len(lines):
        row, length = _record(lines, at, delimiter)
        if mixed and len(row) == length == 1 and any(each in lines[at] for each in DELIMITERS):
            row = max((_record([lines[at]], 0, each)[0] for each in DELIMITERS), key=len)
        if any(map(str.strip, row)):
            yield at + 1, row
        at += length


def _record(lines, at, delimiter):
    """Return the cells of the record that begins at a line, and how many lines it has."""
    line = lines[at]
    if '"' in line:
        several = (f"{each}\n" for each in lines[at : at + RECORD])
        reader = csv.reader(several, delimiter=delimiter, skipinitialspace=True, strict=True)
        with suppress(csv.Error):
            return next(reader, []), reader.line_num
    reader = csv.reader([line], delimiter=delimiter, skipinitialspace=True)
    return next(reader, []), 1


def _is_header(row):
    """Say whether a row names columns: one names numbers, or none has a digit."""
    if any(_digits(cell) > 6 and not re.search(r"[^\W\d_]", cell) for cell in row):
        return False
    return any(PHONE.search(_plain(cell)) for cell in row) or not any(map(_digits, row))


# Cells


def _digits(cell):
    return sum(map(str.isdigit, cell))


def _may_be_number(cell):
    return _digits(cell) >= FEWEST_DIGITS and not DATE.fullmatch(cell.strip(' "='))


def _plain(name):
    """Return a name without accents, case and punctuation; `homeTel` are two words."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    letters = unicodedata.normalize("NFKD", words.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub(r"[\W_]+", " ", bare).strip()
