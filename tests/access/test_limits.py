"""Limits of keys and recipients, in texts and parts: never one more, and when one is accepted."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from answers import accepted, refusal, sender
from app import create_app
from databases import on_both, on_sqlite
from query_plans import reads_whole
from samples import DAY, HOUR, LONDON, MILLISECOND, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import create, key_named, store_many
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey, Role
from texting.access.limits import WINDOWS_KEPT, KeyUse, parse, parse_recipient_limit
from texting.access.rules import KeyRules
from texting.database import clock
from texting.messages.model import Message, Status

pytestmark = on_both

MIDNIGHT = TUESDAY_NOON.replace(hour=0)
ONE, TWO_PARTS, THREE_PARTS = "Hello", "x" * 161, "x" * 307
LAST_OF_MARCH = datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def limited(client):
    """Create a key with limits; return how it posts a text: `send(to=…)`, `send("order-1")`."""

    def issue(text, name="shop"):
        secret = ApiKey.issue(name, None, clock.now(), limits=parse(text))
        return sender(client, secret)

    return issue


@pytest.fixture
def service(settings, key):
    """Return how a key without limits posts to a service with these settings."""

    def begin(**changes):
        return sender(create_app(settings._replace(**changes)).test_client(), key)

    return begin


def retry_after(response):
    """Return the seconds of a 429, which must have the one body of errors."""
    refusal(response, 429)
    return int(response.headers["Retry-After"])


def used():
    """Return what is stored as used by all keys: the seconds of each window, and how many."""
    columns = KeyUse.seconds, KeyUse.in_parts, KeyUse.used
    return sorted((seconds, used) for seconds, _, used in KeyUse.select(*columns).tuples())


# How they are written


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", []),
        (" ", []),
        ("5/s", [("5/s", 5, 1)]),
        ("1000/d,5/s", [("5/s", 5, 1), ("1000/d", 1000, 86_400)]),
        (" 2/min , 3/h ", [("2/min", 2, 60), ("3/h", 3, 3600)]),
        ("999999999/d", [("999999999/d", 999_999_999, 86_400)]),
        ("20000p/mo,5/s", [("5/s", 5, 1), ("20000p/mo", 20_000, 31 * 86_400)]),
        ("2p/d,1/d", [("1/d", 1, 86_400), ("2p/d", 2, 86_400)]),
        ("3/mo", [("3/mo", 3, 31 * 86_400)]),
    ],
)
def test_limits_are_read_the_shortest_window_first(text, read):
    assert list(parse(text)) == read


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (text, "whole number from 1")
            for text in ("0/s", "-1/s", "1e9/s", "1.5/s", "/s", "05/s")
        ),
        *((text, "whole number from 1") for text in ("1000000000/d", "٥/s", "５/s", "5 /s", "x/s")),
        *((text, "(s, min, h, d or mo)") for text in ("5", "5/year", "5/", "5/S", "5/2s", "5/s/s")),
        *((text, "(s, min, h, d or mo)") for text in (",", "5/s,", "5/s;6/d", "5/m", "5/s\n6/d")),
        *((text, "whole number from 1") for text in ("p/d", "0p/d", "2 p/d", "2pp/d", "2P/d")),
        *((text, "each unit") for text in ("5/s,5/s", "5/s,6/d,7/s", "2p/d,3p/d", "1/mo,2/mo")),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_in_one_line(text, problem):
    with pytest.raises(ValueError, match=problem) as error:
        parse(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "number", "window"),
    [("3/24h", 3, DAY), ("1/90min", 1, 90 * MINUTE), ("10/7d", 10, 7 * DAY)],
)
def test_the_limit_of_a_recipient_has_a_window_of_any_length(text, number, window):
    limit = parse_recipient_limit(text)
    assert (str(limit), limit.number, limit.window) == (text, number, window)


@pytest.mark.parametrize("text", ["3", "3/h", "3/24s", "0/24h", "3/0h", "-3/24h", "3/24h,1/1h"])
def test_a_limit_of_recipients_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match="3/24h"):
        parse_recipient_limit(text)


# A key's limits


def both_edges(limit, start, window):
    """Return what one of two in a window does at its edges, to the millisecond."""
    last, wait = start + window - MILLISECOND, window // SECOND
    late = (start, ONE, wait), (start + MILLISECOND, ONE, wait)  # by the clock of another machine
    first = (start - MILLISECOND, ONE, None), (start, ONE, None), (last, ONE, None)
    return limit, limit, [*first, (last, ONE, 1), *late, (start + window, ONE, None)]


def seconds(*steps):
    """Return when a text of one part is sent, in seconds after noon, and how long it must wait."""
    return [(TUESDAY_NOON + second * SECOND, ONE, wait) for second, wait in steps]


@pytest.mark.parametrize(
    ("limits", "named", "steps"),
    [
        both_edges("2/s", TUESDAY_NOON, SECOND),
        both_edges("2/min", TUESDAY_NOON, MINUTE),
        both_edges("2/h", TUESDAY_NOON, HOUR),
        both_edges("2/d", MIDNIGHT, DAY),
        # The longest wait counts
        ("1/s,4/h", "1/s", seconds((0, None), (0, 1), (1, None), (1, 1))),
        ("1/s,3/min,3/h", "3/h", seconds((0, None), (1, None), (2, None), (2, 3598), (3, 3597))),
        # A late request, whose process was slow, counts in its own second
        ("2/s,3/min", "2/s", seconds((0, None), (60, None), (0, None), (0, 1))),
        ("2/s,3/min", "3/min", seconds((0, None), (60, None), (0, None), (1, None), (1, 59))),
        ("2/s,3/min", "2/s", seconds((0, None), (60, None), (1, None), (60, None), (60, 1))),
        # A text is refused whole, and what does not fit uses nothing up
        (
            "4p/min,10/d",
            "4p/min",
            [
                *((TUESDAY_NOON, THREE_PARTS, None), (TUESDAY_NOON, TWO_PARTS, 60)),
                *((TUESDAY_NOON, ONE, None), (TUESDAY_NOON, ONE, 60)),
                (TUESDAY_NOON + MINUTE, TWO_PARTS, None),
            ],
        ),
        # A month ends with the month
        (
            "3p/mo",
            "3p/mo",
            [
                (LAST_OF_MARCH - DAY, TWO_PARTS, None),
                (LAST_OF_MARCH - DAY, TWO_PARTS, 24 * 3600 + 1),
                (LAST_OF_MARCH, ONE, None),
                (LAST_OF_MARCH, ONE, 1),
                (LAST_OF_MARCH + SECOND, TWO_PARTS, None),
            ],
        ),
    ],
)
def test_a_text_is_accepted_or_told_how_long_to_wait_and_for_which_limit(
    limited, at, limits, named, steps
):
    send = limited(limits)
    for instant, text, wait in steps:
        at(instant)
        response = send(message=text)
        if wait is None:
            accepted(response)
        else:
            assert retry_after(response) == wait
            assert f" {named} " in response.json["message"]


def test_what_is_refused_is_not_stored_and_uses_nothing_up(limited, at):
    send = limited("1/s,2/min")
    accepted(send("a"))
    refusal(send("b"), 429)
    refusal(send("b"), 429)
    assert Message.select().count() == 1
    assert used() == [(1, 1), (60, 1)]
    at(TUESDAY_NOON + SECOND)
    first = send("b")
    accepted(first)
    assert send("b").data == first.data
    assert Message.select().count() == 2


def test_what_is_refused_for_another_reason_uses_nothing_up(limited):
    send = limited("1/d")
    DoNotCall.add([LONDON], TUESDAY_NOON, "operator")
    refusal(send(to=LONDON, check_dnc=True), 403)
    refusal(send(to="+1"), 400)
    accepted(send())
    refusal(send(to=LONDON, check_dnc=True), 403)  # the limit is looked at last
    refusal(send(to="+1"), 400)


@pytest.mark.parametrize(
    "limits",
    [
        {"key_limits": parse("2/d")},
        {"key_limits": parse("2p/d")},
        {"recipient_limit": parse_recipient_limit("2/1h")},
    ],
    ids=["of a key", "in parts", "of a number"],
)
def test_a_repeat_gets_its_first_answer_and_uses_nothing_up(service, limits):
    send = service(**limits)
    first = send("a")
    assert {send("a").data for _ in range(5)} == {first.data}
    accepted(send("b"))
    refusal(send("c"), 429)
    assert send("a").data == first.data


def test_a_key_without_its_own_limits_has_those_of_the_settings(service, settings):
    send = service(key_limits=parse("1/d"))
    accepted(send())
    refusal(send(), 429)
    client = create_app(settings._replace(key_limits=parse("1/d"))).test_client()
    own = sender(client, ApiKey.issue("own", None, TUESDAY_NOON, limits=parse("2/d")))
    accepted(own())
    accepted(own())
    refusal(own(), 429)


def test_what_was_accepted_before_a_key_had_a_limit_of_that_unit_does_not_count(limited, run):
    send = limited("9/h")
    accepted(send(message=THREE_PARTS))
    accepted(send())
    run("keys", "limit", "shop", "2/d", "3p/d")
    accepted(send(message=TWO_PARTS))
    accepted(send())
    refusal(send(), 429)


def test_a_new_number_for_a_unit_keeps_its_count(limited, run):
    send = limited("2/d")
    accepted(send())
    accepted(send())
    refusal(send(), 429)
    for limits in (["3/d"], ["4/d", "4/h"]):
        run("keys", "limit", "shop", *limits)
        accepted(send())
        refusal(send(), 429)
    run("keys", "limit", "shop")
    accepted(send())  # and counts for nothing
    for limits in (["4/d"], ["2/d"], ["1/h", "9/d"]):
        run("keys", "limit", "shop", *limits)
        refusal(send(), 429)
    run("keys", "limit", "shop", "5/d")
    (listed,) = json.loads(run("keys", "list", "--json"))
    assert [(each["limit"], each["used"]) for each in listed["limits"]] == [("5/d", 4)]
    accepted(send())
    assert retry_after(send()) == 7 * HOUR // SECOND


def test_what_is_purged_still_counts(limited, run, at):
    send = limited("5/mo,7p/mo")
    for text in (ONE, ONE, THREE_PARTS):
        accepted(send(message=text))
    run("messages", "cancel", "--key", "shop", "--yes")
    at(TUESDAY_NOON + SECOND)
    run("messages", "purge", "--older-than", "0", "--yes")
    assert not Message.select().exists()
    refusal(send(message=THREE_PARTS), 429)
    accepted(send())
    accepted(send())
    refusal(send(), 429)


def test_the_latest_windows_are_kept_for_requests_that_come_late(limited, at):
    send = limited("1/s")
    for n in range(WINDOWS_KEPT + 3):
        at(TUESDAY_NOON + n * SECOND)
        accepted(send())
    assert KeyUse.select().count() == WINDOWS_KEPT + 1
    for n in (2, WINDOWS_KEPT, WINDOWS_KEPT + 2):
        at(TUESDAY_NOON + n * SECOND)
        assert retry_after(send()) == 1


def test_windows_that_a_clock_ahead_began_are_forgotten(limited, at):
    send = limited("1/h,2/d")
    accepted(send())
    at(TUESDAY_NOON + DAY)
    accepted(send())
    KeyUse.date_back(TUESDAY_NOON)
    assert used() == [(3600, 1), (86_400, 1)]
    accepted(send())
    at(TUESDAY_NOON)
    refusal(send(), 429)


def test_a_rotated_key_keeps_its_limits_and_its_use(limited, run, client):
    old = limited("2/d")
    accepted(old())
    new = sender(client, run("keys", "rotate", "shop").strip())
    accepted(new())
    refusal(new(), 429)
    refusal(old(), 429)


def test_a_key_with_the_name_of_a_revoked_one_begins_anew(limited, run):
    accepted(limited("1/d")())
    run("keys", "revoke", "shop")
    send = limited("1/d")
    accepted(send())
    refusal(send(), 429)


# In parts and by the month


@pytest.mark.parametrize(
    ("instant", "begins", "ends"),
    [
        (LAST_OF_MARCH, (2026, 3, 1), (2026, 4, 1)),
        (LAST_OF_MARCH + SECOND, (2026, 4, 1), (2026, 5, 1)),
        (datetime(2026, 12, 31, tzinfo=UTC), (2026, 12, 1), (2027, 1, 1)),
        (datetime(2028, 2, 29, tzinfo=UTC), (2028, 2, 1), (2028, 3, 1)),
    ],
)
def test_a_month_is_one_of_utc(instant, begins, ends):
    seconds = [int(datetime(*day, tzinfo=UTC).timestamp()) for day in (begins, ends)]
    (limit,) = parse("1/mo")
    assert limit.span(int(instant.timestamp())) == tuple(seconds)


def test_a_text_that_never_fits_is_refused_for_good(limited):
    send = limited("2p/d")
    response = send(message=THREE_PARTS)
    refusal(response, 403)
    assert "3 parts" in response.json["message"]
    assert "2p/d" in response.json["message"]
    assert Message.select().count() == 0
    accepted(send(message=TWO_PARTS))


# Many at once


def at_once(sends):
    """Call these at once; return the sorted statuses."""
    with ThreadPoolExecutor(len(sends)) as pool:
        return sorted(answer.status_code for answer in pool.map(lambda send: send(), sends))


def test_several_keys_at_once_each_have_their_own_limits(limited):
    sends = [limited(text, text or "none") for text in ("3/d", "5/h", "7/s", "")] * 9
    random.Random(1).shuffle(sends)
    assert at_once(sends) == [201] * (3 + 5 + 7 + 9) + [429] * (6 + 4 + 2)


def test_repeats_at_once_are_all_answered_and_use_one_up(limited):
    send = limited("2/d")
    assert at_once([lambda: send("a")] * 20) == [201] * 20
    assert Message.select().count() == 1
    assert at_once([lambda: send("a")] * 9 + [lambda: send("b")] * 9) == [201] * 18
    assert at_once([send, lambda: send("c"), lambda: send("b")]) == [201, 429, 429]


# A recipient's limit


@pytest.fixture
def to_one(service):
    """Post texts to numbers that get no more than two in an hour."""
    return service(recipient_limit=parse_recipient_limit("2/1h"))


def test_a_number_gets_no_more_within_a_window_that_slides(to_one, at):
    accepted(to_one())
    at(TUESDAY_NOON + MINUTE)
    accepted(to_one())
    assert retry_after(to_one()) == 59 * 60
    accepted(to_one(to=LONDON))
    at(TUESDAY_NOON + HOUR - MILLISECOND)
    response = to_one()
    assert retry_after(response) == 1
    assert "2/1h" in response.json["message"]
    assert NEW_YORK not in response.text
    at(TUESDAY_NOON + HOUR)
    accepted(to_one())
    assert retry_after(to_one()) == 60


def test_the_limit_of_a_number_is_over_all_keys(to_one, settings):
    client = create_app(settings._replace(recipient_limit=parse_recipient_limit("2/1h")))
    other = sender(client.test_client(), ApiKey.issue("other", None, TUESDAY_NOON))
    accepted(to_one())
    accepted(other())
    refusal(to_one(), 429)
    refusal(other(), 429)


@pytest.mark.parametrize("status", Status)
def test_only_what_a_person_kept_back_counts_no_more(to_one, status):
    accepted(to_one())
    accepted(to_one())
    Message.update(status=status).where(Message.id == Message.select(Message.id).limit(1)).execute()
    assert to_one().status_code == (201 if status == Status.CANCELLED else 429)


def test_of_many_to_one_number_at_once_exactly_as_many_are_accepted(to_one):
    numbers = [NEW_YORK, LONDON, "+12125550188"]
    sends = [lambda to=to: to_one(to=to) for to in numbers * 9]
    assert at_once(sends) == [201] * 6 + [429] * 21
    assert at_once([lambda: to_one("a", to="+12125550199")] * 9) == [201] * 9


def test_of_a_keys_and_a_numbers_limit_the_longest_wait_counts(settings):
    app = create_app(settings._replace(recipient_limit=parse_recipient_limit("1/2h")))
    secret = ApiKey.issue("shop", None, TUESDAY_NOON, limits=parse("2/h"))
    send = sender(app.test_client(), secret)
    accepted(send())
    response = send()
    assert retry_after(response) == 7200
    assert "1/2h" in response.json["message"]
    assert used() == [(3600, 1)]
    accepted(send(to=LONDON))
    assert retry_after(send(to="+12125550188")) == 3600
    assert retry_after(send()) == 7200


# A key's own limit of its recipients


@pytest.fixture
def ruled(settings):
    """Create a key with rules; return how it posts to a service with RECIPIENT_LIMIT=2/1h."""
    app = create_app(settings._replace(recipient_limit=parse_recipient_limit("2/1h")))

    def issue(name, recipient_limit=None, **options):
        rules = KeyRules(recipient_limit=recipient_limit)
        return sender(
            app.test_client(), ApiKey.issue(name, None, clock.now(), rules=rules, **options)
        )

    return issue


def test_a_keys_own_limit_counts_its_own_texts_alone(ruled, at):
    adverts, others, more = ruled("adverts", "1/24h"), ruled("shop"), ruled("more", "1/24h")
    accepted(others())
    accepted(others())
    refusal(others(), 429)
    accepted(adverts())
    response = adverts()
    assert retry_after(response) == 24 * 3600
    assert "1/24h" in response.json["message"]
    accepted(more())
    accepted(adverts(to=LONDON))
    at(TUESDAY_NOON + HOUR)
    accepted(others())
    refusal(adverts(), 429)
    at(TUESDAY_NOON + DAY)
    accepted(adverts())


@pytest.mark.parametrize("own", ["none", "9/24h"])
def test_texts_of_a_key_with_its_own_limit_count_for_no_others(ruled, own):
    codes, shop = ruled("codes", own), ruled("shop")
    for _ in range(5):
        accepted(codes())
    accepted(shop())
    accepted(shop())
    refusal(shop(), 429)
    accepted(codes())


def test_a_changed_limit_of_a_key_holds_in_the_next_create(ruled):
    shop, other = ruled("shop"), ruled("other")
    refused = {None: 2, "1/24h": 1, "3/24h": 3, "none": 9}
    for rule in (None, "1/24h", "3/24h", "1/24h", "none", "3/24h", None):
        ApiKey.named("shop").rule({"recipient_limit": rule}, TUESDAY_NOON)
        before = Message.select().count()
        assert shop().status_code == (201 if before < refused[rule] else 429), rule
    refusal(other(), 429)  # for whose limit the shop's count again


def test_a_rotated_keys_limit_goes_on_and_a_new_one_begins_anew(ruled, settings):
    accepted(ruled("shop", "1/24h")())
    shop = ApiKey.named("shop")
    rotated = sender(create_app(settings).test_client(), shop.rotate(TUESDAY_NOON, TUESDAY_NOON))
    refusal(rotated(), 429)
    shop.revoke(TUESDAY_NOON)
    accepted(ruled("shop", "1/24h")())


def test_a_testers_texts_count_for_its_own_limit(ruled):
    tester, shop = ruled("tester", "1/24h", role=Role.TESTER), ruled("shop")
    accepted(tester())
    refusal(tester(), 429)
    accepted(shop())
    accepted(shop())


def test_of_many_texts_of_two_keys_at_once_each_key_has_its_own_number(ruled):
    adverts, shop = ruled("adverts", "3/24h"), ruled("shop")
    answers = at_once([adverts, shop] * 9)
    assert answers == [201] * 5 + [429] * 13
    assert Message.select().where(Message.key == key_named("adverts")).count() == 3


def test_a_number_that_uses_one_keys_limit_up_stays_out_of_its_log(ruled, caplog):
    adverts = ruled("adverts", "1/24h")
    accepted(adverts())
    refusal(adverts(), 429)
    assert "refused: key adverts, the limit of a recipient is reached" in caplog.text
    assert NEW_YORK not in caplog.text


def test_an_index_serves_what_limits_count(database_url):
    store_many(30)
    key = key_named("shop").id
    both = {"limits": parse("9/d,9p/mo"), "recipient_limit": parse_recipient_limit("9/1h")}
    assert reads_whole(lambda: create("first", key=key, **both)) == []
    named = {"idempotency_key": "a", "idempotency_digest": "b"}
    assert reads_whole(lambda: create("second", key=key, **named, **both)) == []
    ApiKey.named("shop").rule({"recipient_limit": "9/1h"}, TUESDAY_NOON)
    assert reads_whole(lambda: create("third", key=key)) == []


# What people see


def test_the_list_of_keys_shows_limits_and_their_use(limited, run, service, app, at):
    send = limited("5/s,9/d")
    accepted(send())
    accepted(send())
    at(TUESDAY_NOON + SECOND)
    accepted(send())
    assert "1 of 5/s, 3 of 9/d" in run("keys", "list")
    app.config["SETTINGS"] = app.config["SETTINGS"]._replace(key_limits=parse("7/d"))
    run("keys", "create", "other")
    run("keys", "create", "Ann", "--role", "approver")
    assert "(0 of 7/d)" in run("keys", "list")
    listed = {key["name"]: key for key in json.loads(run("keys", "list", "--json"))}
    assert listed["shop"]["limits"] == [
        {"limit": "5/s", "used": 1, "default": False},
        {"limit": "9/d", "used": 3, "default": False},
    ]
    assert listed["other"]["limits"] == [{"limit": "7/d", "used": 0, "default": True}]
    assert listed["Ann"]["limits"] == []


@on_sqlite
@pytest.mark.parametrize("text", ["0/s", "5", "5/year", "-1/s", "1e9/s", "5/s,5/s"])
def test_a_command_refuses_a_limit_that_makes_no_sense(run, refused, text):
    run("keys", "create", "shop", "--limit", "5/s", "--limit", "6/d")
    assert ApiKey.named("shop").limits == "5/s,6/d"
    for words in (("limit", "shop", text), ("create", "new", "--limit", text)):
        line = refused("keys", *words, status=2)
        assert "s, min, h" in line
    refused("keys", "limit", "shop", "5/s", "6/s", status=2)
    assert ApiKey.named("shop").limits == "5/s,6/d"


def test_the_limits_of_an_unknown_or_revoked_key_are_not_set(run, refused):
    assert refused("keys", "limit", "shop", "5/s") == "Error: there is no key named 'shop'"
    run("keys", "create", "shop")
    run("keys", "revoke", "shop")
    assert refused("keys", "limit", "shop", "5/s") == "Error: the key 'shop' is revoked"
