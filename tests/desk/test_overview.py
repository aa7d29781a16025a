"""The figures and the trouble that operators see on the first page."""

from datetime import timedelta

import pytest

from access.keys import Role
from access.limits import parse
from carriers.ways import Way
from desk_visitor import ask, issue
from models import Status
from samples import NEW_YORK, TUESDAY_NOON
from sending.carrier_state import CarrierState
from several_carriers import STAND_INS, UNREACHED
from stored_messages import HOUR, held, store


def test_an_operator_sees_what_goes_out_and_what_became_of_the_last_day(operator):
    for number in range(3):
        store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR + number * HOUR / 60)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON - HOUR)
    ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 25 * HOUR)
    store(status=Status.DELIVERED, finished_at=TUESDAY_NOON - HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 25 * HOUR)
    operator.open()
    text = operator.page.text
    assert "Next 24 hours: 6 texts ( 1 not approved). Busiest hour: 22:00 UTC, 4 texts." in text
    assert "Last 24 hours: 1 delivered, 1 failed" in text
    images = [attrs for tag, attrs in operator.page.elements if tag == "svg"]
    assert [image["role"] for image in images] == ["img", "img"]
    heights = [float(a["height"]) for t, a in operator.page.elements if a.get("class") == "bar"]
    assert max(heights) == 66.0


def test_an_approver_sees_no_figures_of_others(approver):
    approver.open()
    assert "24 hours" not in approver.page.text


@pytest.mark.parametrize(
    ("name", "trouble", "passed", "words"),
    [
        (None, None, None, "no scheduler has run yet"),
        ("twilio", None, TUESDAY_NOON - HOUR, "the last scheduler pass was 1 hour ago"),
        ("twilio", None, TUESDAY_NOON - 3 * HOUR / 60, "the last scheduler pass was 3 minutes ago"),
        ("", None, TUESDAY_NOON - 2 * HOUR / 60, "No carrier is set"),
        (
            "twilio",
            "20003: wrong",
            TUESDAY_NOON,
            "The carrier has refused the account for 1 hour : 20003",
        ),
    ],
)
def test_an_operator_sees_the_carriers_trouble(operator, name, trouble, passed, words):
    if name is not None:
        CarrierState.passed(passed, {name: []})
    if trouble:
        CarrierState.begin_pause(name, TUESDAY_NOON - HOUR, TUESDAY_NOON - HOUR, trouble=trouble)
    operator.open()
    assert words in operator.page.text


def test_an_operator_sees_why_most_texts_end_badly(operator):
    for _ in range(5):
        held(Status.FAILED, finished_at=TUESDAY_NOON, last_error="<b>no credit")
    operator.open()
    words = "5 of the latest 5 texts failed for one reason: <b>no credit"
    assert words in operator.page.text
    for _ in range(5):
        held(Status.SENT, finished_at=TUESDAY_NOON + timedelta(seconds=1))
    operator.open()
    assert "for one reason" not in operator.page.text


def test_an_operator_sees_which_keys_are_at_a_limit_on_the_first_page(operator, app, at):
    secret = issue("shop <1>", role=Role.SENDER, limits=parse("1/min,9/d"))
    issue("idle", role=Role.SENDER, limits=parse("1/min"))
    client, body = app.test_client(), {"to": NEW_YORK, "message": "Hello"}
    operator.open()
    assert "limit" not in operator.page.text
    client.post("/v1/text-messages", json=body, headers={"X-Api-Key": secret})
    operator.open()
    assert "Keys at their limit: shop <1> (1/min)." in operator.page.text
    at(TUESDAY_NOON + timedelta(minutes=1))
    operator.open()
    assert "at their limit" not in operator.page.text


def test_an_approver_does_not_see_which_keys_are_at_a_limit(approver, monkeypatch):
    monkeypatch.setattr("reports.at_limit", lambda *_: [("shop", "1/d")])
    approver.open()
    assert "limit" not in approver.page.text


def test_of_many_keys_at_a_limit_ten_are_named(operator, monkeypatch):
    names = [(f"key {n}", "1/d") for n in range(12)]
    monkeypatch.setattr("reports.at_limit", lambda *_: names)
    operator.open()
    assert "key 9 (1/d) and 2 more." in operator.page.text
    assert "key 10" not in operator.page.text


def test_a_carrier_that_takes_texts_is_not_reported(operator):
    CarrierState.passed(TUESDAY_NOON, {"twilio": []})
    operator.open()
    assert "refused the account" not in operator.page.text
    assert "Nothing is being sent" not in operator.page.text


@pytest.mark.parametrize(("of_us", "of_eu", "stand_in"), STAND_INS)
def test_an_operator_sees_who_takes_a_carriers_place(
    operator, run_both, us, of_us, of_eu, stand_in
):
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON, [Way("us", **of_us), Way("eu", **of_eu)])
    operator.open()
    assert "The carrier us has been down for" in operator.page.text
    told = f"{stand_in} is used instead." if stand_in else "No fallback is available."
    assert told in operator.page.text
