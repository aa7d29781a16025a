"""Whether the texts that a carrier takes arrive: a statistic, and two problems."""

import json

import pytest

from app import create_app
from databases import on_both
from desk_visitor import signed_in
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import held
from texting.access.keys import Role
from texting.carriers import configs
from texting.messages.model import Message, Status
from texting.monitoring import health, notices
from texting.reports.arrivals import Arrivals, arrivals

PUBLIC_URL = "https://sms.example.com"
CARRIERS = (
    "twilio://AC1:token@+15005550006#name=us twilio://AC2:other@+15005550006#name=eu "
    "webhook+https://gateway.example.com/#name=ours"
)
TAKEN_AT = TUESDAY_NOON - HOUR / 2


@pytest.fixture
def settings(settings):
    return settings._replace(
        carrier_url=CARRIERS, public_url=PUBLIC_URL, secret_key="x" * 32, metrics_token="t" * 16
    )


@pytest.fixture
def problems(settings):
    """The problems of carriers at an instant, as (kind, carrier)."""

    def look(now=TUESDAY_NOON):
        found = health.read(now, settings).problems()
        return [(each.kind, each.name) for each in found if each.kind in ("receipts", "failing")]

    return look


def end(count, status, at=TAKEN_AT, carrier="us", after=None, **columns):
    """Store messages that ended, with a receipt so many seconds after the carrier's yes."""
    receipt_at = None if after is None else at + after * SECOND
    for _ in range(count):
        held(status, carrier=carrier, finished_at=at, receipt_at=receipt_at, **columns)


def of(carrier, now=TUESDAY_NOON):
    (found,) = arrivals(now, [carrier])
    return found


NOTHING = Arrivals("us", 0, 0, 0, None, 0, 0, 0, 0)


@on_both
def test_what_became_of_a_carriers_texts_is_counted(database_url):
    end(3, Status.DELIVERED, after=4)
    end(2, Status.DELIVERED, after=90)
    end(4, Status.UNDELIVERED, after=1, last_error="a landline")
    end(5, Status.SENT)
    end(3, Status.FAILED, last_error="no such number")
    end(2, Status.FAILED, last_error="a landline")
    end(9, Status.CANCELLED)
    end(1, Status.DELIVERED, carrier="eu", after=7)
    assert of("us") == Arrivals("us", 5, 4, 5, 4, 14, 5, 4, 0, "a landline")
    assert of("eu") == NOTHING._replace(carrier="eu", delivered=1, median_seconds=7, ended=1)
    assert of("nobody's") == NOTHING._replace(carrier="nobody's")


@on_both
def test_texts_count_from_ten_minutes_after_the_carriers_yes_until_an_hour_after_it(database_url):
    end(1, Status.DELIVERED, after=2)
    young = NOTHING._replace(ended=1)
    heard = young._replace(delivered=1, median_seconds=2)
    assert of("us", TAKEN_AT + 10 * MINUTE - SECOND) == young
    assert of("us", TAKEN_AT + 10 * MINUTE) == of("us", TAKEN_AT + HOUR) == heard
    assert of("us", TAKEN_AT + HOUR + SECOND) == NOTHING


@pytest.mark.parametrize(
    ("seconds", "median"), [([5], 5), ([1, 9], 1), ([3, 1, 8], 3), ([2, 2, 2, 60], 2), ([-1], 0)]
)
def test_the_median_is_that_of_the_delivered_ones(database_url, seconds, median):
    """A receipt may come before the carrier's yes is recorded."""
    for each in seconds:
        end(1, Status.DELIVERED, after=each)
    end(9, Status.UNDELIVERED, after=3000)
    assert of("us").median_seconds == median


@on_both
def test_a_text_of_which_something_was_heard_is_not_unheard_of(database_url):
    end(3, Status.SENT)
    end(2, Status.SENT, heard_of=True)
    end(4, Status.SENT, heard_of=True, at=TUESDAY_NOON)
    end(5, Status.SENT, heard_of=True, carrier="eu")
    assert of("us") == NOTHING._replace(unheard=3, pending=2, awaited=4)
    assert of("us").of_taken.endswith("0 not delivered, 2 pending, 3 without a receipt")
    assert of("eu") == NOTHING._replace(carrier="eu", pending=5)


# Receipts do not come


def test_ten_texts_of_which_nothing_was_heard_are_a_problem(problems):
    end(9, Status.SENT)
    end(30, Status.SENT, at=TUESDAY_NOON - 9 * MINUTE)
    assert problems() == []
    end(1, Status.SENT)
    assert problems() == [("receipts", "us")]
    assert problems(TAKEN_AT + HOUR) == [("receipts", "us")]


def test_ten_texts_of_which_all_are_pending_are_no_problem(problems):
    end(10, Status.SENT, heard_of=True)
    assert problems() == []


@pytest.mark.parametrize("status", [Status.DELIVERED, Status.UNDELIVERED])
def test_it_is_over_once_a_receipt_comes(problems, status):
    end(50, Status.SENT)
    assert problems() == [("receipts", "us")]
    Message.update(status=status, receipt_at=TUESDAY_NOON).where(
        Message.id == Message.select(Message.id).limit(1)
    ).execute()
    assert problems() == []


def test_each_carrier_has_its_problems_by_itself(problems):
    end(20, Status.SENT)
    end(20, Status.FAILED, carrier="eu")
    assert problems() == [("failing", "eu"), ("receipts", "us")]


@pytest.mark.parametrize(
    ("url", "public_url", "tells"),
    [
        ("twilio://AC1:token@+15005550006", PUBLIC_URL, True),
        ("twilio://AC1:token@+15005550006", None, False),
        ("twilio://SK1:secret@+15005550006?account=AC1", PUBLIC_URL, False),
        ("vonage://key:secret@Shop?signature_secret=abc&signature_method=sha256", PUBLIC_URL, True),
        ("vonage://key:secret@Shop", PUBLIC_URL, False),
        ("smpp://user:secret@smsc.example.com/Shop", None, True),
        ("smpp://user:secret@smsc.example.com/Shop?bind=transmitter", None, False),
        *((url, PUBLIC_URL, False) for url in ("console:", "simulator:")),
        ("webhook+https://gateway.example.com/", PUBLIC_URL, False),
        ("d7sms://token@{to}", PUBLIC_URL, False),
    ],
)
def test_only_carriers_that_are_asked_for_receipts_are_judged(url, public_url, tells):
    assert configs.telling_receipts(f"{url}#name=a", public_url) == {"a"} & (
        {"a"} if tells else set()
    )


def test_texts_of_other_carriers_are_no_problem(problems):
    for carrier in ("ours", "testers", None):
        end(30, Status.SENT, carrier=carrier)
        end(30, Status.FAILED, carrier=carrier)
    assert problems() == []


def test_it_is_told_what_to_look_at(settings):
    end(10, Status.SENT)
    (told,) = notices.pending(settings, TUESDAY_NOON)
    assert told.title == "receipts of carrier us do not come"
    assert "See that the carrier can reach PUBLIC_URL (flask check asks it)" in told.text
    assert "in the carrier's own console whether its callbacks fail" in told.text


# Most texts fail, or do not arrive


def test_twenty_texts_of_which_most_failed_or_did_not_arrive_are_a_problem(problems):
    end(5, Status.FAILED, at=TUESDAY_NOON)
    end(5, Status.UNDELIVERED, after=1)
    end(9, Status.DELIVERED, after=1)
    assert problems() == []  # nineteen
    end(1, Status.DELIVERED, after=1)
    assert problems() == []  # half of them
    end(1, Status.FAILED, at=TUESDAY_NOON)
    assert problems() == [("failing", "us")]
    end(1, Status.DELIVERED, at=TUESDAY_NOON, after=1)
    assert problems() == []


def test_it_is_over_an_hour_later(problems):
    end(20, Status.FAILED)
    assert problems(TAKEN_AT + HOUR) == [("failing", "us")]
    assert problems(TAKEN_AT + HOUR + SECOND) == []


def test_texts_that_may_yet_arrive_count_as_if_they_did_though_reported_on(problems):
    end(20, Status.FAILED, at=TUESDAY_NOON)
    end(20, Status.SENT, at=TUESDAY_NOON, heard_of=True)
    assert problems() == []


def test_quick_bad_receipts_do_not_outrun_slow_good_ones(problems):
    end(30, Status.UNDELIVERED, at=TUESDAY_NOON, after=1)
    end(30, Status.SENT, at=TUESDAY_NOON)
    assert problems(TUESDAY_NOON + 5 * MINUTE) == []
    assert problems(TUESDAY_NOON + 11 * MINUTE) == [("failing", "us")]


# Where it is told


@on_both
def test_it_is_told_everywhere_alike(settings, at):
    end(7, Status.DELIVERED, after=4)
    end(2, Status.UNDELIVERED, after=1)
    end(1, Status.SENT)
    end(20, Status.FAILED, at=TUESDAY_NOON, last_error="<b>\x1b[2J</b>")
    at(TUESDAY_NOON)
    app = create_app(settings)
    taken = "10 to 60 minutes ago: 10 accepted, 7 delivered (median 4 s), 2 not delivered, "
    taken += "1 without a receipt"
    ended = "in the last hour: 29 ended, 7 delivered, 20 failed, 2 not delivered (most often: <b>"
    runner = app.test_cli_runner(env={"COLUMNS": "10000"})
    lines = runner.invoke(args=["stats"]).stdout.splitlines()
    assert lines[-3:] == [
        f"us, {taken}",
        rf"us, {ended}\x1b[2J</b>)",
        rf"PROBLEM: most texts of us fail or do not arrive; {ended}\x1b[2J</b>)",
    ]
    stats = json.loads(runner.invoke(args=["stats", "--json"]).stdout)
    assert stats["arrivals"][1] == of("us")._asdict()
    metrics = app.test_client().get("/metrics", headers={"Authorization": "Bearer " + "t" * 16})
    figures = {"delivered": 7, "undelivered": 2, "unheard": 1, "median_seconds": 4}
    for name, figure in (figures | {"ended": 29, "failed": 20}).items():
        assert f'text_messages_carrier_{name}{{carrier="us"}} {figure}.0' in metrics.text
    assert 'carrier_median_seconds{carrier="eu"}' not in metrics.text
    assert 'text_messages_problems{kind="failing"} 1.0' in metrics.text
    page = signed_in(app, "Olga", role=Role.OPERATOR).read()
    assert f"us, {taken}; {ended}" in page
    assert f"Most texts of us fail or do not arrive; {ended}" in page
    assert "Fix the cause, then" in page
    strict = app.test_client().get("/healthz?strict")
    assert strict.json["details"]["problems"] == ["failing"]
    (told,) = notices.pending(settings, TUESDAY_NOON)
    assert told.title == "most texts of carrier us fail or do not arrive"
    assert ended in told.text
