"""With many keys, a page asks the database no more often."""

import pytest

from databases import on_both
from desk_visitor import ask, reply, walk
from samples import DAY, HOUR, MILLISECOND, MINUTE, TUESDAY_NOON
from stored_messages import key_named, store
from texting.access.keys import ApiKey
from texting.access.limits import KeyUse, parse
from texting.database import EPOCH, db
from texting.messages.model import Status

pytestmark = on_both

PAGES = ("/desk/", "/desk/new-texts?since=0", "/desk/replies")
OF_OPERATORS = ("/desk/messages", "/desk/messages?status=queued", "/desk/keys")


@pytest.fixture
def have_keys(database_url):
    """Have so many keys of one group, each with a limit and something on every page."""

    def have(count):
        for n in range(count):
            key = key_named(f"key {n}", "front")
            ApiKey.update(limits="5/s,1/mo").where(ApiKey.id == key.id).execute()
            store(key=key, status=Status.QUEUED)
            ask(key=key.name)
            reply(n, key=key.id)
            month = parse("1/mo")[0].window_of(key.id, int(TUESDAY_NOON.timestamp()))
            with db.atomic():
                KeyUse.add({month: 1})

    return have


@pytest.mark.parametrize(
    ("who", "path"),
    [("approver", path) for path in PAGES] + [("operator", path) for path in PAGES + OF_OPERATORS],
)
def test_a_page_asks_as_often_of_forty_keys_as_of_four(request, have_keys, who, path):
    visitor = request.getfixturevalue(who)
    asked, hooks = [], db.query_hooks
    for count in (4, 40):
        have_keys(count)
        visitor.open(path)
        statements = []
        hooks.append(lambda event, statements=statements: statements.append(event.sql))
        assert visitor.open(path).status_code == 200
        hooks.clear()
        # Whether any place is known is asked once a second
        asked.append(sum("known_place" not in sql for sql in statements))
    few, many = asked
    assert few == many


def queued(name, **columns):
    """Store a text that waits for the carrier, with a key of its own."""
    return store(message=f"text {name}", key=key_named(f"key {name}", "front"), **columns)


def test_texts_of_many_keys_that_are_due_at_one_instant_are_all_on_some_page(operator, approver):
    for n in range(120):
        queued(n)
        ask(f"text {n}", key=f"key {n}")
    expected = [*range(120)]
    for visitor, path in ((approver, "/desk/"), (operator, "/desk/messages?status=queued")):
        seen = [text for page in walk(visitor, path) for text in page]
        times = 1 if visitor is approver else 2  # one waits for the carrier, one for approval
        assert sorted(int(each.split()[1]) for each in seen) == sorted(expected * times)


@pytest.mark.parametrize("asked", ["key=key+500", "day=2026-03-03", "key=key+500&day=2026-03-03"])
def test_what_is_asked_for_is_found_behind_what_leaves_before_it(operator, asked):
    """The others are of another key or day, or of both."""
    for n in range(60):
        queued(n, now=TUESDAY_NOON + DAY, send_at=TUESDAY_NOON - MINUTE)
    queued(500)
    for n in range(60):
        queued(500 + n % 2, now=TUESDAY_NOON - DAY, send_at=TUESDAY_NOON - 2 * MINUTE)
    seen = [
        text for page in walk(operator, f"/desk/messages?status=queued&{asked}") for text in page
    ]
    assert len(seen) == (31 if asked == "key=key+500" else 1)
    assert {*seen} == {"text 500"}


def test_an_approver_learns_of_the_texts_alone_that_came_since(approver):
    now = TUESDAY_NOON
    for n, at in enumerate((now - MINUTE, now, now + MINUTE)):
        ask(key=f"key {n}", now=at)
    asked = [(at - EPOCH) // MILLISECOND for at in (now - HOUR, now, now + MINUTE, now + HOUR)]
    told = [approver.open(f"/desk/new-texts?since={at}").json["texts"] for at in asked]
    assert told == [3, 2, 1, 0]
