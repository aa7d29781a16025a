"""Notices: each has a title that says what, and a type by which a pager can tell."""

import json
from datetime import timedelta

import pytest

from access import limits
from access.keys import ApiKey
from access.limits import KeyUse
from monitoring.notices import Notices
from samples import TUESDAY_NOON
from sending.carrier_state import CarrierState
from stored_messages import key_named, store


@pytest.fixture
def look(settings, people, at):
    """Look at an instant; return title and type of each new notice."""

    def now(instant=TUESDAY_NOON):
        at(instant)
        before = len(people.requests)
        scheduler = Notices(settings._replace(notify_url=people.url))
        scheduler.start()
        scheduler.finish(look=True)
        told = (json.loads(request.body) for request in people.requests[before:])
        return [(each["title"], each["type"]) for each in told]

    return now


def test_a_problem_is_a_failure_named_in_the_title_and_its_end_a_success(look):
    CarrierState.passed(TUESDAY_NOON, {"twilio": []})
    CarrierState.update(trouble="no credit", trouble_since=TUESDAY_NOON).execute()
    ((title, kind),) = look()
    assert kind == "failure"
    assert title.startswith("Text messages: twilio has refused the account since 2026-03-03T17:00")
    CarrierState.update(trouble=None, trouble_since=None).execute()
    assert look() == [("Text messages: well again", "success")]


def test_of_several_problems_the_title_names_the_first_and_counts_the_others(look):
    CarrierState.passed(TUESDAY_NOON, {"twilio": []})
    CarrierState.update(trouble="no credit", trouble_since=TUESDAY_NOON).execute()
    store(send_at=TUESDAY_NOON - timedelta(hours=2))
    ((title, kind),) = look()
    assert title.endswith(" (and 1 more)")
    assert kind == "failure"


def test_what_waits_for_approval_is_a_warning(look):
    store(key=key_named("app"), manual_mode=True, approved=False)
    assert look() == [("Text messages: 1 text waits for approval", "warning")]


def test_a_limit_that_is_used_up_is_a_warning_with_the_keys_name(look):
    ApiKey.issue("shop", None, TUESDAY_NOON, limits=limits.parse("10/d"))
    key, second = ApiKey.named("shop"), int(TUESDAY_NOON.timestamp())
    KeyUse.delete().where(KeyUse.key_id == key.id).execute()
    row = {"key_id": key.id, "second": second, "used_s": 0, "used_min": 0, "used_h": 0}
    KeyUse.insert(**row, used_d=10).execute()
    assert look() == [("Text messages: shop has used up all of its limit", "warning")]
