"""Notices: each has a title that says what, and a type by which a pager can tell."""

import json

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

    def now(instant=TUESDAY_NOON, **changes):
        at(instant)
        before = len(people.requests)
        scheduler = Notices(settings._replace(notify_url=people.url, **changes))
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
    assert title == "Text messages: carrier twilio refuses the account"
    CarrierState.update(trouble=None, trouble_since=None).execute()
    assert look() == [("Text messages: over: carrier twilio refuses the account", "success")]


def test_the_title_names_the_host_at_which_the_service_is_reached(look):
    store(key=key_named("app"), manual_mode=True, approved=False)
    url = "https://texts.example.com:8443/staging"
    service = "Text messages (texts.example.com)"
    assert look(public_url=url) == [(f"{service}: 1 text waits for approval", "warning")]


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
