"""Files of numbers as programs and people write them: the column that is meant, or none."""

import codecs
import contextlib
import time

import pytest

from cli import number_files
from cli.number_files import NumberFile, Unclear
from recipients import InvalidNumber

ANNA, BERND = "+4915123456789", "+493012345678"
CHLOE, DAVID = "+33612345678", "+33142685300"
ELENA, FELIPE = "+34612345678", "+34911234567"
GIULIA, HUGO = "+393123456789", "+390612345678"
IGOR, JULIA = "+79161234567", "+74951234567"
KASIA, LECH = "+48512345678", "+48221234567"
MARY, NED = "+12125550123", "+13105550199"

OUTLOOK = "First Name,Last Name,Birthday,Business Fax,Home Phone,Mobile Phone,Notes\r\n"
GOOGLE = "First Name,Birthday,Phone 1 - Label,Phone 1 - Value,Phone 2 - Label,Phone 2 - Value\n"

FILES = {
    "the birth dates that parse": (
        "DE",
        "Name;Geburtsdatum;Telefon\nAnna;03.04.1975;0151 23456789\nBernd;05.06.1990;030 12345678\n",
        "column 3 'Telefon'",
        [ANNA, BERND],
    ),
    "Excel, German, with a BOM and decimal commas": (
        "DE",
        b"\xef\xbb\xbf"
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
        "sep=;\r\nN° client;Né(e) le;Portable\r\n0612345679;12/03/1980;06.12.34.56.78\r\n".encode(
            "cp1252"
        ),
        "column 3 'Portable'",
        [CHLOE],
    ),
    "a list in French without a header": (
        "FR",
        "Chloé;1980-03-12;06 12 34 56 78\nDavid;1981-04-13;01 42 68 53 00\n",
        "column 3",
        [CHLOE, DAVID],
    ),
    "a CRM in Spanish": (
        "ES",
        'id,nombre,"teléfono móvil",creado\n612345679,Elena,612 34 56 78,2024-01-05 10:00:00\n'
        "612345670,Felipe,911 23 45 67,2024-01-06 10:00:00\n",
        "column 3 'teléfono móvil'",
        [ELENA, FELIPE],
    ),
    "a CRM in Italian, with days before all": (
        "IT",
        "Data di nascita;Nome;Cellulare\n19750403;Giulia;312 345 6789\n19760403;Hugo;06 12345678\n",
        "column 3 'Cellulare'",
        [GIULIA, HUGO],
    ),
    "a list in Russian": (
        "RU",
        "ФИО;Дата рождения;Мобильный телефон\nИгорь;03.04.1975;8 (916) 123-45-67\n"
        "Юлия;05.06.1990;8 (495) 123-45-67\n",
        "column 3 'Мобильный телефон'",
        [IGOR, JULIA],
    ),
    "a list in Polish": (
        "PL",
        "Imię|PESEL|Komórka\nKasia|75040312345|512 345 678\nLech|90060512345|22 123 45 67\n",
        "column 3 'Komórka'",
        [KASIA, LECH],
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
    "vCards as a CSV": (
        None,
        '"FN","TEL;CELL","ADR","REV"\n"Mary Doe","+1 212 555 0123","1 High St;\nLondon",'
        '"20240105"\n'
        '"Ned Roe","tel:+1-310-555-0199","",""\n',
        "column 2 'TEL;CELL'",
        [MARY, NED],
    ),
    "Salesforce": (
        None,
        '"Account ID","MobilePhone","Annual Revenue"\n"0012125550199","+12125550123",'
        '"2125550199"\n',
        "column 2 'MobilePhone'",
        [MARY],
    ),
    "HubSpot, sorted by a score": (
        "US",
        "Record ID,Phone Number,Number of sessions\n2125550199,212-555-0123,12\n",
        "column 2 'Phone Number'",
        [MARY],
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
    "a list with dates, without a header": (
        "DE",
        "03.04.1975\t0151 23456789\n05.06.1990\t030 12345678\n",
        "column 2",
        [ANNA, BERND],
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
    "one number per line, below a word": (
        "US",
        "Téléphone\n(212) 555-0123\n",
        "column 1 'Téléphone'",
        [MARY],
    ),
}


def as_file(body):
    return NumberFile(body if isinstance(body, bytes) else body.encode())


def numbers_of(file, columns, region):
    return [number for _, row in file.rows for number in number_files.numbers(row, columns, region)]


@pytest.mark.parametrize(("region", "body", "named", "expected"), FILES.values(), ids=FILES)
def test_the_column_that_is_meant_is_found_and_read(region, body, named, expected):
    file = as_file(body)
    columns = file.columns_of_numbers()
    assert [*map(file.named, columns)] == [named]
    assert numbers_of(file, columns, region) == expected


UNCLEAR = {
    "two named columns": (
        GOOGLE + "Mary,,Mobile,(212) 555-0123,Home,(310) 555-0199\n",
        "several columns may hold the numbers: "
        "column 4 'Phone 1 - Value', column 6 'Phone 2 - Value'; choose with --column",
    ),
    "a second column that is filled at the end": (
        "Handy;Telefon\n" + "212-555-0123;\n" * 2_000 + ";310-555-0199\n",
        "several columns may hold the numbers: column 1 'Handy', column 2 'Telefon'; "
        "choose with --column",
    ),
    "two columns of numbers without a header": (
        "Mary;212-555-0123;310-555-0199\n",
        "several columns may hold the numbers: column 2, column 3; choose with --column",
    ),
    "international numbers beside a customer's": (
        "015123456780;Anna;+49 151 23456789\n015123456781;Bernd;0049 30 12345678\n",
        "several columns may hold the numbers: column 1, column 3; choose with --column",
    ),
    "a name in a language that is not known": (
        "nimi;yhteys\nMary;212-555-0123\n",
        "no column is named as one of phone numbers, but column 2 'yhteys' may hold some; "
        "choose with --column",
    ),
    "states": (
        "phone,status\n+12125550123,subscribed\n+13105550199,unsubscribed\n",
        "column 2 'status' may tell who wants texts, and who does not; choose with --column",
    ),
    "states as numbers": (
        "phone,Subscribed\n+12125550123,1\n+13105550199,0\n",
        "column 2 'Subscribed' may tell who wants texts, and who does not; choose with --column",
    ),
    "an area code beside the number": (
        "Area;Phone\n(212);555-0123\n(310);555-0199\n",
        "column 1 'Area' may be the area code, to be joined; choose with --column",
    ),
    "an area code, without a header": (
        "212,5550123\n",
        "column 1 may be the area code, to be joined; choose with --column",
    ),
    "an area code behind the number": (
        "Phone;Area code\n555-0123;212\n555-0199;310\n",
        "column 2 'Area code' may be the area code, to be joined; choose with --column",
    ),
    "an area code in German, with a name between": (
        "Vorwahl;Name;Rufnummer\n030;Anna;1234567\n",
        "column 1 'Vorwahl' may be the area code, to be joined; choose with --column",
    ),
    "yes and no in letters": (
        "phone,texts\n+12125550123,Y\n+13105550199,n\n+13105550198,\n",
        "column 2 'texts' may tell who wants texts, and who does not; choose with --column",
    ),
    "yes and no in digits": (
        "phone,state\n+12125550123,1\n+13105550199,0\n",
        "column 2 'state' may tell who wants texts, and who does not; choose with --column",
    ),
    "those who agreed": (
        "phone,Consent\n+12125550123,2024-01-05\n",
        "column 2 'Consent' may tell who wants texts, and who does not; choose with --column",
    ),
    "a customer's number, and nothing named": (
        "Customer,Id\nMary,2125550199\n",
        "no column is named as one of phone numbers, but column 2 'Id' may hold some; "
        "choose with --column",
    ),
}


@pytest.mark.parametrize(("body", "words"), UNCLEAR.values(), ids=UNCLEAR)
def test_a_column_that_is_not_certain_is_not_taken(body, words):
    with pytest.raises(Unclear) as unclear:
        as_file(body).columns_of_numbers()
    assert str(unclear.value) == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('[{"phone":"+12125550123"}]', "this is JSON, not a CSV or a number per line"),
        ('\n{"phone":"+12125550123"}\n{"phone":"+13105550199"}', "this is JSON"),
        ("phone number\n", "there is nothing but a header"),
        ("name;phone\n;\n", "there is nothing but a header"),
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
        "phone,state\n+12125550123,N\n+13105550199,N\n",
        "phone,sex\n+12125550123,m\n+13105550199,f\n",
        "phone,ZIP\n(212) 555-0123,10001\n(310) 555-0199,90001\n",
        "phone,Area\n(212) 555-0123,North\n(310) 555-0199,South\n",
        "phone,area code\n+12125550123,212\n+13105550199,310\n",
    ],
)
def test_other_columns_raise_no_question(body):
    assert as_file(body).columns_of_numbers() == [0]


def test_columns_are_chosen_by_name_or_place():
    file = as_file(GOOGLE + "Mary,,Mobile,(212) 555-0123,Home,(310) 555-0199\nNed,,,,,\n")
    assert file.chosen(["phone 1 - value", "6"]) == [3, 5]
    assert number_files.numbers(file.rows[0][1], [3, 5], "US") == [MARY, NED]
    with pytest.raises(InvalidNumber, match="has no number"):
        number_files.numbers(file.rows[1][1], [3, 5], "US")
    for name in ("Fax", "0", "7", ""):
        with pytest.raises(Unclear, match=r"there is no column .*, only column 1 'First"):
            file.chosen([name])


def test_a_column_of_fax_numbers_is_none():
    file = as_file("Telefax;Fax-Nr.;Tel.\n212-555-0123;212-555-0123;310-555-0199\n")
    assert file.columns_of_numbers() == [2]


@pytest.mark.parametrize("cell", ["03.04.1975", "1975-04-03", "4/3/75", "1975-04-03T10:00:00Z"])
def test_a_date_is_no_number(cell):
    with pytest.raises(InvalidNumber, match="is a date"):
        number_files.read(cell, "DE")


def test_a_stray_quotation_mark_costs_only_its_own_line():
    file = as_file('name,phone\n"Mary,+12125550123\nNed,+13105550199\n"Ann,+12125550124\n')
    assert [line for line, _ in file.rows] == [2, 3, 4]


def test_line_numbers_count_lines_not_records():
    file = as_file('name,phone\n"Mary\nDoe",1\n\nNed,2\n')
    assert file.rows == [(2, ["Mary\nDoe", "1"]), (5, ["Ned", "2"])]


@pytest.mark.parametrize("cell", ["1" * 20_000, "1a" * 10_000, '"' + "1 " * 10_000, "1." * 10_000])
def test_a_cell_of_20000_characters_takes_no_time(cell):
    began = time.process_time()
    file = as_file(f"name,phone\n{cell},{cell}\nMary,+12125550123\n")
    columns = file.columns_of_numbers()
    for _, row in file.rows:
        with contextlib.suppress(InvalidNumber):
            number_files.numbers(row, columns, "US")
    assert time.process_time() - began < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("line", ["+12125550123\n", '"a"\n', '"\n', "a;b\n", ",\n"])
def test_a_large_file_takes_time_in_proportion_to_its_lines(line):
    began = time.process_time()
    NumberFile((line * 100_000).encode())
    assert time.process_time() - began < 6  # were it to grow with their square: minutes
