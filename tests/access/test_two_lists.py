"""Two lists: opt-outs, which START ends, whoever noted them, and entries of ours."""

import json
from contextlib import contextmanager
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from app import create_app
from databases import on_both
from desk_visitor import Visitor, issue
from samples import DAY, HOUR, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import again, key_named, store
from texting import database
from texting.access import do_not_call
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, OptedOut
from texting.access.keys import ApiKey, Role
from texting.access.rules import CHECKS
from texting.carriers import OptOut
from texting.database import clock
from texting.messages import waiting
from texting.messages.model import Status
from texting.replies import opt_outs

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

SKEW = timedelta(seconds=5)
WORDS = st.tuples(
    st.sampled_from(["STOP", "START", "the carrier's STOP"]),
    st.sampled_from([None, -0.4, -1, -1, -2, -40, -600, 3, 4000]),  # seconds; the last is wrong
)
CHANGES = st.tuples(
    st.sampled_from(["operator", "import"]), st.sampled_from([OptedOut, DoNotCall, None])
)
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0.3, 1, 30]), WORDS | WORDS | CHANGES), min_size=1, max_size=9
)


class Lists:
    """What is promised of a number: two flags, and when its recipient spoke last."""

    def __init__(self):
        self.opted_out = self.entered = False
        self.last = None
        self.changes = []

    def hear(self, stop, at, now):
        """Obey a word, unless it is older than the last: within a second, arrival counts."""
        if at is None or at > now + SKEW:
            at = now
        elif self.last and self.last >= at.replace(microsecond=0) + SECOND:
            return
        self.last = at
        self.change("opt-out", self.opted_out, stop)
        self.opted_out = stop

    def add(self, which, now):
        if which is OptedOut:
            self.hear(True, None, now)
        else:
            self.change("entry", self.entered, True)
            self.entered = True

    def remove(self, now):
        self.last = now if self.opted_out else self.last
        self.change("opt-out", self.opted_out, False)
        self.change("entry", self.entered, False)
        self.opted_out = self.entered = False

    def change(self, kind, before, after):
        if before != after:
            self.changes.append((kind, "joined" if after else "left"))

    def keep_off(self, check_dnc, asked):
        """Return whether a text is kept off by a rule, if its request asked for the list or not."""
        if asked or check_dnc == "always":
            return self.opted_out or self.entered
        return self.opted_out and check_dnc == "opted-out"


def happen(step, lists, now):
    """Have a recipient, its carrier or people say something of a number."""
    what, how = step
    if what in ("operator", "import"):
        if how:
            how.add([NEW_YORK], now, what, "Olga")
            lists.add(how, now)
        else:
            was_listed = lists.opted_out or lists.entered
            assert do_not_call.remove([NEW_YORK], now, "Olga", opted_out=True) == was_listed
            lists.remove(now)
    else:
        at = None if how is None else now + how * SECOND
        source = "carrier" if what.startswith("the") else "reply"
        opt_outs.record_opt_out(OptOut(NEW_YORK, what != "START", source, at), now, "asked")
        lists.hear(what != "START", at, now)


@contextmanager
def undone():
    """Undo what happens within it."""
    with database.db.atomic() as transaction:
        yield
        transaction.rollback()


@hypothesis_settings(max_examples=80)
@given(steps=STEPS)
@example([(0, ("operator", DoNotCall)), (1, ("STOP", None)), (1, ("START", None))])
@example([(0, ("operator", OptedOut)), (30, ("START", -40)), (1, ("START", -1))])
@example([(0, ("STOP", None)), (30, ("operator", None)), (1, ("the carrier's STOP", -2))])
def test_the_lists_are_as_two_flags_would_be(steps):
    with undone():
        lists, now = Lists(), TUESDAY_NOON
        for seconds, step in steps:
            now += seconds * SECOND
            happen(step, lists, now)
            assert OptedOut.lists(NEW_YORK) == lists.opted_out
            assert DoNotCall.lists(NEW_YORK) == lists.entered
            expected = {NEW_YORK: lists.opted_out} if lists.opted_out or lists.entered else {}
            assert do_not_call.listed([NEW_YORK]) == expected
        history = [(each.kind, each.what) for each in DoNotCallHistory.of(NEW_YORK)]
        assert history == lists.changes
        assert kept_off() == {each for each in KINDS if lists.keep_off(*each)}


KINDS = [*product(CHECKS, [True, False])]
"""Of texts: the rule, and whether the request asked for the list."""


def kept_off():
    """Return the kinds of texts that are blocked when they are due."""
    texts = {}
    for check_dnc, asked in KINDS:
        key = key_named(check_dnc)
        ApiKey.update(check_dnc=check_dnc).where(ApiKey.id == key.id).execute()
        due = {"send_at": TUESDAY_NOON, "status": Status.SCHEDULED, "check_dnc": asked}
        texts[check_dnc, asked] = store(key=key, **due)
    waiting.promote(TUESDAY_NOON + DAY)
    statuses = {kind: again(text).status for kind, text in texts.items()}
    assert {*statuses.values()} <= {Status.BLOCKED, Status.QUEUED}
    return {kind for kind, status in statuses.items() if status == Status.BLOCKED}


STOP, BY_CARRIER = ("STOP", None), ("the carrier's STOP", None)
NOTED, ENTERED = ("operator", OptedOut), ("import", DoNotCall)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([STOP], "the recipient opted out on 2026-03-03"),
        ([BY_CARRIER, ENTERED], "the recipient opted out on 2026-03-03"),
        ([ENTERED, NOTED], "the recipient opted out on 2026-03-03"),
        ([ENTERED], "the number has been on the Do Not Call list since 2026-03-03"),
        (
            [NOTED, ENTERED, ("START", None)],
            "the number has been on the Do Not Call list since 2026-03-03",
        ),
    ],
)
def test_people_see_why_a_text_was_blocked(settings, run, at, steps, why):
    at(TUESDAY_NOON + DAY)
    for hours, step in enumerate(steps):
        happen(step, Lists(), TUESDAY_NOON + hours * HOUR)
    message = store(send_at=TUESDAY_NOON, status=Status.SCHEDULED, check_dnc=True)
    waiting.promote(clock.now())
    assert again(message).status == Status.BLOCKED
    visitor = Visitor(create_app(settings._replace(secret_key="k" * 32)))
    visitor.sign_in(issue("olga", role=Role.OPERATOR))
    visitor.open(f"/desk/messages/{message.id}")
    assert f"This text was not sent: {why}." in visitor.page.text
    do_not_call.remove([NEW_YORK], clock.now() + HOUR, "Olga", opted_out=True)
    assert json.loads(run("messages", "show", str(message.id)))["blocked_because"] == why


def test_a_listing_that_was_over_is_not_why_a_text_was_blocked():
    for step in (ENTERED, NOTED):
        happen(step, Lists(), TUESDAY_NOON)
    do_not_call.remove([NEW_YORK], TUESDAY_NOON + HOUR, "Olga", opted_out=True)
    blocked = store(status=Status.BLOCKED, finished_at=TUESDAY_NOON + 2 * HOUR)
    assert blocked.blocked_because is None


def test_a_text_that_was_not_blocked_says_nothing_of_the_list(run):
    happen(STOP, Lists(), TUESDAY_NOON)
    shown = json.loads(run("messages", "show", str(store().id)))
    assert shown["blocked_because"] is None
