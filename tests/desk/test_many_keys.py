"""With many keys, a page asks the database no more often."""

import pytest

from access.keys import ApiKey
from access.limits import KeyUse, parse
from database import db
from databases import on_both
from desk_visitor import ask, reply
from models import Status
from samples import TUESDAY_NOON
from stored_messages import key_named, store

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
        asked.append(len(statements))
    few, many = asked
    assert few == many
