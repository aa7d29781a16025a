"""Limits of a key in parts, and by the month: never one part more, and nothing used up in vain."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from access.keys import ApiKey
from access.limits import KeyUse, parse, window
from answers import accepted, refusal
from app import create_app
from database import clock, db
from databases import on_both
from models import Message
from samples import DAY, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import create, key_named

pytestmark = on_both

TWO_PARTS, THREE_PARTS = "x" * 161, "x" * 307
LAST_OF_MARCH = datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def limited(client):
    """Create a key with limits; return how it posts a text: `send(TWO_PARTS)`."""

    def issue(text, name="shop"):
        secret = ApiKey.issue(name, None, clock.now(), limits=parse(text))

        def send(message="Hello", repeat=None):
            headers = {"X-Api-Key": secret} | ({"Idempotency-Key": repeat} if repeat else {})
            body = {"to": NEW_YORK, "message": message}
            return client.post("/v1/text-messages", json=body, headers=headers)

        return send

    return issue


def use():
    """Return the messages and the parts that are stored as used, by unit."""
    row = KeyUse.get_by_id(ApiKey.named("shop").id)
    return {unit: tuple(row.used(unit)) for unit in ("s", "min", "h", "d", "mo")}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("2000p/d", [("2000p/d", 2000, True)]),
        ("20000p/mo,5/s", [("5/s", 5, False), ("20000p/mo", 20_000, True)]),
        ("1/d,2p/d", [("1/d", 1, False), ("2p/d", 2, True)]),
        ("3/mo", [("3/mo", 3, False)]),
    ],
)
def test_limits_in_parts_and_by_the_month_are_read(text, read):
    assert [(str(each), each.number, each.in_parts) for each in parse(text)] == read


@pytest.mark.parametrize(
    "text", ["2p/d,3p/d", "1/mo,2/mo", "p/d", "0p/d", "2 p/d", "2pp/d", "2P/d"]
)
def test_a_limit_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match=r"unit twice|whole number"):
        parse(text)


@pytest.mark.parametrize(
    ("at", "begins", "ends"),
    [
        (LAST_OF_MARCH, (2026, 3, 1), (2026, 4, 1)),
        (LAST_OF_MARCH + SECOND, (2026, 4, 1), (2026, 5, 1)),
        (datetime(2026, 12, 31, tzinfo=UTC), (2026, 12, 1), (2027, 1, 1)),
        (datetime(2028, 2, 29, tzinfo=UTC), (2028, 2, 1), (2028, 3, 1)),
    ],
)
def test_a_month_is_one_of_utc(at, begins, ends):
    seconds = [int(datetime(*day, tzinfo=UTC).timestamp()) for day in (begins, ends)]
    assert window("mo", int(at.timestamp())) == tuple(seconds)


def test_a_text_whose_parts_do_not_fit_is_refused_whole_and_uses_nothing_up(limited, at):
    at(TUESDAY_NOON)
    send = limited("4p/min,10/d")
    accepted(send(THREE_PARTS))
    before = use()
    response = send(TWO_PARTS)
    refusal(response, 429)
    assert response.headers["Retry-After"] == "60"
    assert "4p/min" in response.json["message"]
    assert use() == before
    accepted(send())
    refusal(send(), 429)
    at(TUESDAY_NOON + MINUTE)
    accepted(send(TWO_PARTS))
    assert use() == {"s": (1, 2), "min": (1, 2), "h": (3, 6), "d": (3, 6), "mo": (3, 6)}


def test_a_text_that_never_fits_is_refused_for_good(limited):
    send = limited("2p/d")
    response = send(THREE_PARTS)
    refusal(response, 403)
    assert "3 parts" in response.json["message"]
    assert "2p/d" in response.json["message"]
    assert Message.select().count() == 0
    accepted(send(TWO_PARTS))


def test_a_month_ends_with_the_month(limited, at):
    at(LAST_OF_MARCH - DAY)
    send = limited("3p/mo")
    accepted(send(TWO_PARTS))
    response = send(TWO_PARTS)
    refusal(response, 429)
    assert response.headers["Retry-After"] == str(24 * 3600 + 1)
    at(LAST_OF_MARCH)
    accepted(send())
    refusal(send(), 429)
    at(LAST_OF_MARCH + SECOND)
    accepted(send(TWO_PARTS))


def test_a_repeat_uses_nothing_up(limited, at):
    at(TUESDAY_NOON)
    send = limited("2p/d")
    first = accepted(send(TWO_PARTS, "once"))
    assert accepted(send(TWO_PARTS, "once")) == first


def test_what_was_accepted_before_the_limit_was_set_counts(limited, at):
    at(TUESDAY_NOON)
    send = limited("")
    accepted(send(THREE_PARTS))
    ApiKey.named("shop").limit(parse("4p/mo"), clock.now())
    refusal(send(TWO_PARTS), 429)
    accepted(send())


def test_what_a_version_before_has_counted_is_counted_anew(limited, at):
    at(TUESDAY_NOON)
    send, key = limited("4p/mo"), key_named("shop")
    accepted(send())
    create("x", key=key.id, parts=2)
    latest = Message.select(Message.id).order_by(Message.id.desc()).first().id
    KeyUse.update(used_d=2, last_id=latest).execute()  # as it does
    refusal(send(TWO_PARTS), 429)
    accepted(send())


def test_of_thirty_clients_at_once_none_gets_one_part_more(settings, at):
    at(TUESDAY_NOON)
    secret = ApiKey.issue("shop", None, clock.now(), limits=parse("50p/d"))
    app = create_app(settings)

    def post(number):
        body = {"to": NEW_YORK, "message": (TWO_PARTS, THREE_PARTS, "Hello")[number % 3]}
        with app.test_client() as client:
            answer = client.post("/v1/text-messages", json=body, headers={"X-Api-Key": secret})
        db.close()
        return answer.status_code

    with ThreadPoolExecutor(30) as pool:
        statuses = Counter(pool.map(post, range(60)))
    assert statuses.keys() == {201, 429}
    parts = [message.parts for message in Message.select()]
    assert len(parts) == statuses[201]
    assert 48 <= sum(parts) <= 50
    assert use()["d"] == (len(parts), sum(parts))
