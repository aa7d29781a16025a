"""The figures and the trouble that operators see on the first page."""

import pytest

from answers import accepted, sender
from app import create_app
from databases import on_both
from desk_visitor import ask, issue, signed_in
from samples import HOUR, MINUTE, TUESDAY_NOON
from several_carriers import STAND_INS, UNREACHED, written
from stored_messages import decide_on, held, store
from texting.access.keys import Role
from texting.access.limits import parse
from texting.carriers.configs import CarrierConfig
from texting.messages.model import Status
from texting.sending.carrier_state import CarrierState


@on_both
def test_an_operator_sees_what_goes_out_and_what_became_of_the_last_day(operator):
    for number in range(3):
        store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR + number * MINUTE)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON - HOUR)
    ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 25 * HOUR)
    store(status=Status.DELIVERED, finished_at=TUESDAY_NOON - HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 25 * HOUR)
    text = operator.read()
    assert (
        "Next 24 hours: 6 texts ( 1 not approved ). Busiest hour: 10:00 PM UTC , 4 texts." in text
    )
    assert "Last 24 hours: 1 delivered , 1 failed" in text
    images = [attrs for tag, attrs in operator.page.elements if tag == "svg"]
    assert [image["role"] for image in images] == ["img", "img"]
    heights = [float(a["height"]) for t, a in operator.page.elements if a.get("class") == "bar"]
    assert max(heights) == 66.0


def test_a_queued_text_goes_out_this_hour_once_it_is_approved(operator):
    asked = ask(status=Status.QUEUED, send_at=TUESDAY_NOON)
    assert "Next 24 hours: 0 texts . Due once approved: 1 text ." in operator.read()
    operator.press("Approve", asked)
    assert "Next 24 hours: 1 text ." in operator.page.text
    assert "Due once approved" not in operator.page.text


@pytest.mark.parametrize(
    ("carrier", "passed_at", "trouble", "words"),
    [
        (None, None, None, "Nothing is being sent: no scheduler has run yet"),
        (
            "twilio",
            TUESDAY_NOON - HOUR,
            None,
            "No scheduler is running: one last ran at 4:00 PM, Tuesday, Mar 3 UTC",
        ),
        (
            "twilio",
            TUESDAY_NOON - 3 * MINUTE,
            None,
            "No scheduler is running: one last ran at 4:57 PM, Tuesday, Mar 3 UTC",
        ),
        ("", TUESDAY_NOON - 2 * MINUTE, None, "No carrier is set"),
        (
            "twilio",
            TUESDAY_NOON,
            "20003",
            "twilio has refused the account since 4:00 PM, Tuesday, Mar 3 UTC : 20003",
        ),
        ("twilio", TUESDAY_NOON, None, None),
    ],
)
@pytest.mark.parametrize("person", ["approver", "operator"])
def test_whoever_decides_sees_that_texts_do_not_go(
    approver, operator, person, carrier, passed_at, trouble, words
):
    """In a line on top, and in place of "Sends at once"."""
    visitor = {"approver": approver, "operator": operator}[person]
    ask()
    if carrier is not None:
        CarrierState.record_pass(passed_at, {carrier: []})
    if trouble:
        since = TUESDAY_NOON - HOUR
        CarrierState.begin_pause(carrier, since, since, trouble=trouble)
    visitor.open()
    alerts = [attrs for _, attrs in visitor.page.elements if attrs.get("role") == "alert"]
    assert len(alerts) == bool(words)
    assert (words or "") in visitor.page.text
    sends = "Waits: texts are not going out" if words else "Sends at once"
    assert f"{sends} · 12:00 PM in New York" in visitor.page.text


def test_an_operator_sees_which_keys_are_at_a_limit_ten_by_name(operator, approver, app, at):
    secrets = [issue(f"shop <{n}>", role=Role.SENDER, limits=parse("1/min,9/d")) for n in range(12)]
    issue("idle", role=Role.SENDER, limits=parse("1/min"))
    first, *others = (sender(app.test_client(), secret) for secret in secrets)
    assert "limit" not in operator.read()
    accepted(first())
    assert "Keys at their limit: shop <0> (1/min)." in operator.read()
    for send in others:
        accepted(send())
    assert operator.read().count(" (1/min)") == 10
    assert "(1/min) and 2 more." in operator.page.text
    assert "limit" not in approver.read()
    assert "24 hours" not in approver.page.text
    at(TUESDAY_NOON + MINUTE)
    assert "at their limit" not in operator.read()


@pytest.mark.parametrize(("of_us", "of_eu", "stand_in"), STAND_INS)
def test_an_operator_sees_who_takes_a_carriers_place(
    operator, approver, run_both, us, of_us, of_eu, stand_in
):
    """An approver sees that a carrier is down only if no other takes its place."""
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON, [CarrierConfig("us", **of_us), CarrierConfig("eu", **of_eu)])
    assert "us has been down since" in operator.read()
    told = f"there is no connection; {stand_in or 'no other'} takes its place. Wait, or ask the"
    assert told in operator.page.text
    assert ("us has been down since" in approver.read()) is not bool(stand_in)
    assert "Wait, or ask" not in approver.page.text


def test_of_several_carriers_only_the_texts_of_one_in_trouble_wait(desk_settings, run_both, us):
    countries = {"us": {"US", "CA"}, "eu": {"GB", "CA"}}
    configs = [CarrierConfig(name, countries=frozenset(some)) for name, some in countries.items()]
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON, configs)
    settings = desk_settings._replace(carrier_url=" ".join(map(written, configs)))
    visitor = signed_in(create_app(settings), "Ann", "front")
    for country, waits in (("US", True), ("GB", False), ("CA", False), ("FR", True)):
        message = ask(country=country)
        assert ("texts are not going out" in visitor.read()) is waits
        decide_on(message).decide(False, "Ann", TUESDAY_NOON)


def test_texts_of_testers_wait_for_no_carrier(approver):
    issue("tester", "front", Role.TESTER)
    ask(key="tester")
    CarrierState.record_pass(TUESDAY_NOON, {"": []})
    assert "No carrier is set" in approver.read()
    assert "Sends at once" in approver.page.text


def test_whoever_decides_sees_that_the_key_of_a_text_is_paused(approver, operator):
    CarrierState.record_pass(TUESDAY_NOON, {"twilio": []})
    message = ask()
    message.key.pause(TUESDAY_NOON)
    for visitor in (approver, operator):
        assert "Waits: its key is paused · 12:00 PM in New York" in visitor.read()
    message.key.resume(TUESDAY_NOON)
    assert "Sends at once" in approver.read()


def test_texts_that_are_due_and_do_not_go_are_told_whatever_the_reason(approver, at):
    ask()
    store()
    at(TUESDAY_NOON + 3 * MINUTE)
    CarrierState.record_pass(TUESDAY_NOON + 3 * MINUTE, {"twilio": []})
    assert (
        "No text has gone through twilio for 2 minutes, although some have been due since"
        in approver.read()
    )
    assert "Waits: texts are not going out" in approver.page.text
    held(Status.SENT, finished_at=TUESDAY_NOON + 3 * MINUTE, carrier="twilio")
    assert "Sends at once" in approver.read()


def test_figures_lead_to_their_lists(operator, app):
    ask()
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - HOUR)
    send = sender(app.test_client(), issue("a shop", role=Role.SENDER, limits=parse("1/min")))
    accepted(send())
    operator.open()
    for query, row in (("status=scheduled", "scheduled"), ("status=failed", "failed")):
        (link,) = (each for each in operator.page.links if each == f"/desk/messages?{query}")
        assert row in operator.read(link)
        operator.open()
    assert "#list" in operator.page.links
    assert operator.open("/desk/messages?key=a+shop").status_code == 200
    operator.open()
    assert "/desk/messages?key=a+shop" in operator.page.links
