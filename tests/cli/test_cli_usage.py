"""flask usage: texts and parts, as they were accepted and became what they are."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from samples import LONDON, MILLISECOND, NEW_YORK, TUESDAY_NOON
from stored_messages import key_named, store
from texting.access.keys import ApiKey
from texting.carriers.alphabets import count_parts
from texting.messages.model import Message, Status

pytestmark = pytest.mark.usefixtures("noon")

COUNTED = (Status.SENT, Status.DELIVERED, Status.UNDELIVERED, Status.FAILED)
MARCH, APRIL = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
LONG = "x" * 161


def ended(status=Status.SENT, at=TUESDAY_NOON, **columns):
    """Store a message that was accepted and ended at an instant, as the operation stores it."""
    measures = {"parts": count_parts(columns.get("message") or "Hello"), "country": "US"}
    return store(at, status=status, finished_at=at, **measures | columns)


@pytest.fixture
def usage(run):
    """Run `flask usage --json` in March: what it counts, by key and country."""

    def counted(*words):
        rows = json.loads(run("usage", "--json", *words))
        assert all(row["texts"] == sum(row[status] for status in COUNTED) for row in rows)
        return {(row["key"], row["country"]): (row["texts"], row["parts"]) for row in rows}

    return counted


def test_what_was_accepted_is_counted_once_sent_with_parts_and_country_of_then(
    post, usage, run, at
):
    ids = [
        post(to=to, message=text).json["message_id"] for to in (NEW_YORK, LONDON) for text in "a€"
    ]
    post(message="waits", manual_mode=True)
    ids.append(post(message="’" * 71).json["message_id"])
    assert usage() == {}
    Message.update(status=Status.SENT, finished_at=TUESDAY_NOON).where(
        Message.id.in_(ids)
    ).execute()
    assert usage() == {("app", "GB"): (2, 2), ("app", "US"): (3, 4)}
    assert json.loads(run("messages", "show", ids[-1]))["parts"] == 2


NAMES = "month,key,country,texts,parts,sent,delivered,undelivered,failed"


def test_the_output_has_these_columns_in_this_order(session, run):
    for status in Status:
        ended(status, message=LONG)
    ended(Status.FAILED)
    session(f"""
        $ flask usage
        month    key  country  texts  parts  sent  delivered  undelivered  failed
        2026-03  app  US       5      9      1     1          1            2
        $ flask usage --csv
        {NAMES}
        2026-03,app,US,5,9,1,1,1,2
        $ flask usage --month 2020-02
        no texts to count in 2020-02
        $ flask usage --month 2020-02 --csv
        {NAMES}
        $ flask usage --month 2020-02 --json
        []
    """)
    (printed,) = json.loads(run("usage", "--json"))
    row = ["2026-03", "app", "US", 5, 9, 1, 1, 1, 2]
    assert [*printed.items()] == [*zip(NAMES.split(","), row, strict=True)]


def test_a_month_begins_and_ends_at_midnight_utc(usage):
    for at in (MARCH - MILLISECOND, MARCH, APRIL - MILLISECOND, APRIL):
        ended(at=at)
    assert usage() == usage("--month", "2026-03") == {("app", "US"): (2, 2)}
    assert usage("--month", "2026-02") == usage("--month", "2026-04") == {("app", "US"): (1, 1)}
    assert usage("--month", "2025-12") == {}


def test_a_key_is_counted_alone_and_keys_of_one_name_are_one(usage):
    for name in ("app", "shop"):
        ended(key=key_named(name))
    ApiKey.update(revoked_at=TUESDAY_NOON).where(ApiKey.name == "shop").execute()
    ended(key=ApiKey.create(name="shop", digest="other", created_at=TUESDAY_NOON))
    assert usage() == {("app", "US"): (1, 1), ("shop", "US"): (2, 2)}
    assert usage("--key", "shop") == {("shop", "US"): (2, 2)}


def test_texts_of_testers_are_no_usage(usage, tester):
    ended(key=tester)
    ended()
    assert usage() == {("app", "US"): (1, 1)}
    assert usage("--key", "tester") == {}


def test_redaction_changes_no_figure(usage, run):
    ended(message=LONG)
    ended(to=LONDON, country="GB")
    Message.update(finished_at=MARCH).execute()
    run("messages", "redact", "--to", NEW_YORK)
    run("messages", "redact", "--older-than", "0")
    assert Message.select().where(Message.message.is_null(False)).count() == 0
    assert usage() == {("app", "GB"): (1, 1), ("app", "US"): (1, 2)}


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ("＝1", "'＝1"),
        ('a";=1', "a\";'=1"),
        ("a;=cmd|' /C calc'!A0", "a;'=cmd|' /C calc'!A0"),
        ("shop-1 = best", "shop-1 = best"),
        ("“Über”, ☃", "“Über”, ☃"),
    ],
)
def test_a_name_is_no_formula_for_a_spreadsheet(run, name, cell):
    ended(key=key_named(name))
    _, row = csv.reader(io.StringIO(run("usage", "--csv")))
    assert row[1] == cell
