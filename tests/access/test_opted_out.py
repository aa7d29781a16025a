"""Who opted out by themselves stay so, whoever lists their number besides; people see why."""

import json

import pytest

from access.do_not_call import DoNotCall
from access.keys import Role
from app import create_app
from carriers import OptOut
from database import clock
from databases import on_both
from desk_visitor import Visitor, issue
from models import Status
from samples import DAY, HOUR, NEW_YORK, TUESDAY_NOON
from sending import receipts, waiting
from stored_messages import again, store

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

STOP, START = (OptOut(NEW_YORK, stop, "reply") for stop in (True, False))
BY_CARRIER = OptOut(NEW_YORK, True, "carrier")
LISTED, REMOVED = "an operator lists it", "an operator removes it"
LONG_AGO = "it is on the list since before that had sources"

ORDERS = [
    # What happens, whether the number is listed then, and whether it has opted out
    ([], False, False),
    ([STOP], True, True),
    ([BY_CARRIER], True, True),
    ([LISTED], True, False),
    ([LISTED, STOP], True, True),
    ([STOP, LISTED], True, True),
    ([BY_CARRIER, LISTED], True, True),
    ([STOP, START], False, False),
    ([BY_CARRIER, START], False, False),
    ([LISTED, START], True, False),
    ([LISTED, STOP, START], True, False),
    ([STOP, LISTED, START], True, False),
    ([STOP, LISTED, START, STOP], True, True),
    ([STOP, LISTED, REMOVED], False, False),
    ([STOP, REMOVED, LISTED], True, False),
    ([STOP, LISTED, LISTED], True, True),
    ([LONG_AGO, STOP], True, True),
    ([LONG_AGO, STOP, START], True, False),
]


def happen(events):
    """Have something happen to a number, an hour after another."""
    for hours, event in enumerate(events):
        now = TUESDAY_NOON + hours * HOUR
        if isinstance(event, OptOut):
            receipts.record_opt_out(event, now, "opted-out")
        elif event == LONG_AGO:
            DoNotCall.create(number=NEW_YORK, added_at=now)
        else:
            change = DoNotCall.add if event == LISTED else DoNotCall.remove
            change([NEW_YORK], now, "operator", "Olga")


@pytest.mark.parametrize(("events", "is_listed", "has_opted_out"), ORDERS)
def test_an_opt_out_holds_until_a_start_or_until_people_remove_it(events, is_listed, has_opted_out):
    happen(events)
    expected = {NEW_YORK: has_opted_out} if is_listed else {}
    assert DoNotCall.listed([NEW_YORK]) == expected
    message = store(send_at=TUESDAY_NOON, status=Status.SCHEDULED)
    waiting.promote(TUESDAY_NOON + DAY, check_dnc="opted-out")
    assert again(message).status == (Status.BLOCKED if has_opted_out else Status.QUEUED)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([STOP], "the recipient opted out on 2026-03-03"),
        ([BY_CARRIER, LISTED], "the recipient opted out on 2026-03-03"),
        ([LISTED, STOP], "the recipient opted out on 2026-03-03"),
        ([LISTED], "the number has been on the Do Not Call list since 2026-03-03"),
    ],
)
def test_people_see_why_a_text_was_blocked(settings, run, at, events, why):
    at(TUESDAY_NOON + DAY)
    happen(events)
    message = store(send_at=TUESDAY_NOON, status=Status.SCHEDULED, check_dnc=True)
    waiting.promote(clock.now())
    assert again(message).status == Status.BLOCKED
    visitor = Visitor(create_app(settings._replace(secret_key="k" * 32)))
    visitor.sign_in(issue("olga", role=Role.OPERATOR))
    visitor.open(f"/desk/messages/{message.id}")
    assert f"This text was not sent: {why}." in visitor.page.text
    DoNotCall.remove([NEW_YORK], clock.now() + HOUR, "operator", "Olga")
    assert json.loads(run("messages", "show", str(message.id)))["blocked_because"] == why


def test_a_text_that_was_not_blocked_says_nothing_of_the_list(run):
    happen([STOP])
    shown = json.loads(run("messages", "show", str(store().id)))
    assert shown["blocked_because"] is None
