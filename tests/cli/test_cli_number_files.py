"""Files of numbers as programs and people write them: the column that is meant, or none."""

import codecs

import pytest

from cli import number_files
from cli.number_files import NumberFile, Unclear
from recipients import InvalidNumber

ANNA, BERND, CHLOE = "+4915123456789", "+493012345678", "+33612345678"
MARY, NED = "+12125550123", "+13105550199"

OUTLOOK = "First Name,Last Name,Birthday,Business Fax,Home Phone,Mobile Phone,Notes\r\n"
GOOGLE = "First Name,Birthday,Phone 1 - Label,Phone 1 - Value,Phone 2 - Label,Phone 2 - Value\n"

FILES = {
    "Excel, German, with a BOM and decimal commas": (
        "DE",
        codecs.BOM_UTF8
        + "Umsatz;Kunde;Handy-Nr.\r\n1.234,50;Müller;0151 / 23456789\r\n"
        "99,00;Groß;030 12345678\r\n".encode(),
        "column 3 'Handy-Nr.'",
        [ANNA, BERND],
    ),
    "Excel, German, in Windows' alphabet": (
        "DE",
        "Straße;Rufnummer\r\nHauptstr. 5, Köln;015123456789\r\n".encode("cp1252"),
        "column 2 'Rufnummer'",
        [ANNA],
    ),
    "Excel's text in Unicode": (
        "FR",
        codecs.BOM_UTF16_LE + "Nom\tTéléphone\r\nChloé\t06 12 34 56 78\r\n".encode("utf-16-le"),
        "column 2 'Téléphone'",
        [CHLOE],
    ),
    "Excel, French, with its hint": (
        "FR",
        "sep=;\r\nN° client;Né(e) le;Portable\r\n0612345679;12/03/1980;06.12.34.56.78\r\n",
        "column 3 'Portable'",
        [CHLOE],
    ),
    "Outlook": (
        "US",
        OUTLOOK + 'Mary,Doe,4/3/1975,(212) 555-0199,,(212) 555-0123,"likes\r\nline breaks"\r\n',
        "column 6 'Mobile Phone'",
        [MARY],
    ),
    "Google Contacts": (
        "US",
        GOOGLE + "Mary,1975-04-03,Mobile,(212) 555-0123 ::: (310) 555-0199,,\n",
        "column 4 'Phone 1 - Value'",
        [MARY, NED],
    ),
    "several numbers with another delimiter": (
        "US",
        'Name,Phone\nMary,"(212) 555-0123; (310) 555-0199;"\n',
        "column 2 'Phone'",
        [MARY, NED],
    ),
    "vCards as a CSV": (
        None,
        '"FN","TEL;CELL","ADR"\n"Mary Doe","+1 212 555 0123","1 High St;\nLondon"\n'
        '"Ned Roe","tel:+1-310-555-0199",""\n',
        "column 2 'TEL;CELL'",
        [MARY, NED],
    ),
    "Shopify, its numbers as formulas": (
        None,
        'Order,Phone\n1001,\'+12125550123\n1002,="+13105550199"\n',
        "column 2 'Phone'",
        [MARY, NED],
    ),
    "a header in a language that is not known": (
        None,
        "nimi;syntynyt;yhteys\nMary;3.4.1975;+12125550123\nNed;5.6.1990;+13105550199\n",
        "column 3 'yhteys'",
        [MARY, NED],
    ),
    "streets that read as numbers": (
        "US",
        "Mary,212 555 High St,(212) 555-0123\nNed,310 555 Main St,(310) 555-0199\n",
        "column 3",
        [MARY, NED],
    ),
    "our own export": (
        None,
        "number,source,since\n+12125550123,import,2026-03-03T17:00:00.000Z\n",
        "column 1 'number'",
        [MARY],
    ),
    "short numbers": ("AD", "Name,Phone\nMaria,712345\n", "column 2 'Phone'", ["+376712345"]),
    "one number per line": ("US", "(212) 555-0123\n\n3105550199\n", "column 1", [MARY, NED]),
    "one number per line, below a word": ("US", "nimi\n2125550123\n", "column 1 'nimi'", [MARY]),
}


def as_file(body):
    return NumberFile(body if isinstance(body, bytes) else body.encode())


@pytest.mark.parametrize(("region", "body", "named", "expected"), FILES.values(), ids=FILES)
def test_the_column_that_is_meant_is_found_and_read(region, body, named, expected):
    file = as_file(body)
    column = file.column_of_numbers()
    assert str(column) == named
    read = [number_files.numbers(row, [column], region) for _, row in file.rows]
    assert [number for each in read for number in each] == expected


@pytest.mark.parametrize(
    "name",
    [
        *("Phone Number", "MOBILE", "Cell", "Tel.", "Telefon", "Handy-Nr.", "Rufnummer"),
        *("Téléphone", "Portable", "teléfono móvil", "Cellulare", "Komórka", "Мобильный телефон"),
    ],
)
def test_a_column_named_as_one_of_phone_numbers_wins_over_days_customers_and_faxes(name):
    line = "2125550199;19750403;212-555-0123;310-555-0199"
    assert as_file(f"Id;Day;{name};Telefax\n{line}\n").column_of_numbers().name == name


SEVERAL = "several columns may hold the numbers: "
MAY_TELL = "may say who wants texts and who does not"
AREA = "may be the area codes of the numbers"

TWO_PHONES = "column 4 'Phone 1 - Value', column 6 'Phone 2 - Value'"
HANDY_AND_TEL = "column 1 'Handy', column 2 'Tel'"
UNKNOWN = "no column has a name for phone numbers, but column 2 'yhteys' may hold some"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{GOOGLE}Mary,,Mobile,(212) 555-0123,Home,(310) 555-0199\n", SEVERAL + TWO_PHONES),
        ("Handy;Tel\n" + "2125550123;\n" * 2_000 + ";310-555-0199\n", SEVERAL + HANDY_AND_TEL),
        ("Mary;212-555-0123;310-555-0199\n", f"{SEVERAL}column 2, column 3"),
        ("015123456780;Anna;+49 151 23456789\n", f"{SEVERAL}column 1, column 3"),
        ("nimi;yhteys\nMary;212-555-0123\n", UNKNOWN),
        ("Town;Phone\n(212);555-0123\n(310);555-0199\n", f"column 1 'Town' {AREA}"),
        ("212,5550123\n", f"column 1 {AREA}"),
        ("Phone;Area code\n555-0123;212\n555-0199;310\n", f"column 2 'Area code' {AREA}"),
        ("Vorwahl;Name;Rufnummer\n030;Anna;1234567\n", f"column 1 'Vorwahl' {AREA}"),
        ("phone,status\n+12125550123,subscribed\n", f"column 2 'status' {MAY_TELL}"),
        ("phone,texts\n2125550123,Y\n3105550199,n\n3105550198,\n", f"column 2 'texts' {MAY_TELL}"),
        ("phone,state\n+12125550123,1\n+13105550199,0\n", f"column 2 'state' {MAY_TELL}"),
        ("phone,Consent\n+12125550123,2024-01-05\n", f"column 2 'Consent' {MAY_TELL}"),
    ],
)
def test_a_column_that_is_not_certain_is_not_taken(body, words):
    with pytest.raises(Unclear) as unclear:
        as_file(body).column_of_numbers()
    assert str(unclear.value) == f"{words}; choose with --column"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('\n{"phone":"+12125550123"}\n', "this is JSON, not a CSV or a number per line"),
        ('[{"phone":"+12125550123"}]', "this is JSON, not a CSV or a number per line"),
        ("phone number\n", "the file has only a header"),
        ("name;phone\n;\n", "the file has only a header"),
    ],
)
def test_a_file_that_has_no_rows_is_refused(body, words):
    with pytest.raises(Unclear, match=words):
        as_file(body)


@pytest.mark.parametrize(
    "body",
    [
        "phone,id\n+12125550123,1\n+13105550199,2\n",
        "phone,id\n+12125550123,0\n",
        "phone,sex\n+12125550123,m\n+13105550199,f\n",
        "phone,ZIP\n(212) 555-0123,10001\n(310) 555-0199,90001\n",
        "phone,Area\n(212) 555-0123,North\n(310) 555-0199,South\n",
        "phone,area code\n+12125550123,212\n+13105550199,310\n",
    ],
)
def test_other_columns_raise_no_question(body):
    assert as_file(body).column_of_numbers().place == 1


def test_columns_are_chosen_by_name_or_place():
    file = as_file(GOOGLE + "Mary,,Mobile,(212) 555-0123,Home,(310) 555-0199\nNed,,,,,\n")
    columns = file.chosen(["6", "phone 1 - value"])
    assert [column.place for column in columns] == [4, 6]
    assert number_files.numbers(file.rows[0][1], columns, "US") == [MARY, NED]
    with pytest.raises(InvalidNumber, match="has no number"):
        number_files.numbers(file.rows[1][1], columns, "US")
    for name in ("Fax", "0", "7", ""):
        with pytest.raises(Unclear, match=r"there is no column .*, only column 1 'First"):
            file.chosen([name])


def test_a_cell_of_which_one_number_cannot_be_read_is_skipped_whole_and_told():
    """Rather than that number alone, of which nobody would hear."""
    file = as_file('phone,name\n"+12125550123; 3105550199",Mary\n')
    with pytest.raises(InvalidNumber, match="is not a phone number"):
        number_files.numbers(file.rows[0][1], [file.column_of_numbers()], None)


@pytest.mark.parametrize("cell", ["03.04.1975", "1975-04-03", "4/3/75", "1975-04-03T10:00:00Z"])
def test_a_date_is_no_number(cell):
    with pytest.raises(InvalidNumber, match="is a date"):
        number_files.read(cell, "DE")


def test_a_stray_quotation_mark_costs_only_its_own_line():
    """Though a second one follows: a record has at most 50 lines, or it could swallow the file."""
    lines = ["name,phone", '"Mary,+12125550123', *["Ned,+13105550199"] * 50, '"Ann","+12125550124"']
    file = as_file("\n".join(lines))
    assert [line for line, _ in file.rows] == [*range(2, len(lines) + 1)]


def test_line_numbers_count_lines_not_records():
    file = as_file('name,phone\n"Mary\nDoe",1\n\nNed,2\n')
    assert file.rows == [(2, ["Mary\nDoe", "1"]), (5, ["Ned", "2"])]
