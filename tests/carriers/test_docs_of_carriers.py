"""docs/carriers.md, and a page of each carrier: their tables say what the classes say."""

import contextlib
import re

import pytest

from carrier_errors import connect, send
from carrier_servers import playing
from kits import CLASSES, KITS, codes_of
from running import ROOT
from texting import carriers

DOCS = ROOT / "docs"
COMMON = (DOCS / "carriers.md").read_text()
OWN = {page.stem: page.read_text() for page in sorted(DOCS.glob("carriers/*.md"))}
TEXT = "\n\n".join([COMMON, *OWN.values()])
DESCRIBED = [name for name in CLASSES if name not in ("console", "simulator")]
by_all = pytest.mark.parametrize("name", DESCRIBED)


def title(name):
    return CLASSES[name].title.removeprefix("the ")


def section(name):
    """Return the page of a carrier, and what is under its name in the common one."""
    parts = re.split(r"^## (.+)$", COMMON, flags=re.MULTILINE)[1:]
    named = zip(parts[::2], parts[1::2], strict=True)
    return OWN.get(name, "") + "".join(text for head, text in named if title(name) in head)


def unlinked(words):
    """Return what is shown of links."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", words)


def row(name, head):
    """Return a carrier's cells in the table with this head."""
    (table,) = re.findall(rf"^\| {re.escape(head)}.*\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in table.splitlines()[2:]]
    (cells,) = [cells[1:] for cells in rows if title(name) in unlinked(cells[0]).split(", ")]
    return cells


@by_all
def test_a_carrier_has_a_section_with_all_its_options_and_their_defaults(name):
    assert section(name)
    described = {}
    for options, defaults in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", section(name), re.MULTILINE):
        options = re.findall(r"`(\w+)`", options)
        words = defaults.split(", ") if ", " in defaults else [defaults] * len(options)
        described |= zip(options, map(default, words), strict=True)
    assert described == CLASSES[name].options


def default(words):
    """Return the default that a cell means: a value in backticks, or words for none."""
    return words.strip("`") if words.startswith("`") else "" if words == "empty" else None


@by_all
def test_a_carrier_does_what_the_table_says_at_a_glance(name):
    come, doubt, *_ = row(name, "Carrier | Receipts and replies come")
    kind = CLASSES[name]
    if kind.callback_methods:
        assert come == f"as callbacks: {', '.join(kind.callback_methods)}"
    else:
        assert come == ("over its session" if kind.listens else "never")
    without_asking = "given again" if kind.keeps_ids else "sent once more"
    assert doubt == ("asked about" if kind.can_be_asked else without_asking)


@by_all
def test_the_docs_say_which_carriers_cannot_be_told_until_when_a_text_may_go(name):
    for server in playing(KITS[name].server):
        with contextlib.closing(connect(server.url)) as carrier:
            for seconds in (90, 3600):
                send(carrier, valid_for=seconds)
        soon, later = (getattr(request, "body", request) for request in server.requests)
    (said,) = re.findall(r"([^.]+) cannot be told so\.", COMMON)
    assert (title(name) in said) == (soon == later)


@by_all
def test_where_replies_go_is_said_on_the_page_of_each_carrier_that_calls_back(name):
    is_said = f"PUBLIC_URL/carriers/{name}/inbound" in OWN[name]
    assert is_said == bool(CLASSES[name].callback_methods)


@by_all
def test_the_docs_sort_a_carriers_answers_as_it_does(name):
    permanent, too_fast, account = (
        codes_of(name, group) for group in ("permanent", "too_fast", "account")
    )
    cells = row(name, "Carrier | Permanent")[:3]
    described = [codes_in(cell) for cell in cells]
    if "and the like" in cells[0]:  # Twilio has hundreds
        assert described[0] <= permanent
        assert described[2] <= account
        permanent, account = described[0], described[2]
    for number, group in enumerate(("permanent", "too fast", "the account")):
        for cell in re.findall(rf"^\| {group}(?:,[^|]*)? \| (.+) \|$", OWN[name], re.MULTILINE):
            described[number] |= codes_in(cell)  # many words are on its own page
    assert described == [permanent, too_fast, account]


def codes_in(cell):
    """Return the codes in a cell: numbers, and names in backticks."""
    cell = re.sub("401 to 404", "401, 402, 403, 404", unlinked(cell))
    named = {word for word in re.findall(r"`(\w+)`", cell) if word[0].isupper()}
    return named | {int(code, 0) for code in re.findall(r"\b0x\w+|\b\d+\b", cell)}


@by_all
def test_the_code_of_an_opt_out_is_said_where_a_refusal_is_explained(name):
    (explained,) = re.findall(r"^\| \*\*permanent\*\*.*$", COMMON, re.MULTILINE)
    said = re.findall(rf"{title(name)}'s `?(\w+)", explained)
    assert said == [str(code) for code in CLASSES[name].codes.opted_out]


@by_all
def test_a_text_in_doubt_is_what_a_carriers_section_says(name):
    doubt = row(name, "Carrier | Permanent")[3]
    assert "no answer" in doubt
    for code in KITS[name].in_doubt:
        assert str(code) in doubt


@pytest.mark.parametrize("scheme", sorted(carriers.OWN))
def test_every_scheme_is_described(scheme):
    assert f"`{scheme}:" in TEXT
