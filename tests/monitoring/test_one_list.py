"""What is wrong is one list, which every place shows."""

import re

import pytest

from app import create_app
from desk_visitor import signed_in
from samples import HOUR, MINUTE, TUESDAY_NOON
from stored_messages import decide_on, held, key_named, store
from texting.access.keys import Role
from texting.events.outbox import EventAddress
from texting.messages.model import Status
from texting.monitoring import health, notices
from texting.sending.carrier_state import CarrierState

CARRIERS = (
    "twilio://AC1:token@+15005550006#name=us&countries=US "
    "twilio://AC2:other@+15005550006#name=eu&countries=US"
)
NO_CREDIT = "<no credit> since 2026-01-01T00:00:00.000Z"  # the carrier's words


@pytest.fixture
def app(settings):
    changes = {"carrier_url": CARRIERS, "public_url": "https://sms.example.com"}
    return create_app(settings._replace(**changes, secret_key="x" * 32, metrics_token="t" * 16))


@pytest.fixture
def troubled(app, at):
    """Six problems at once, some of one kind, and the list of them."""
    at(TUESDAY_NOON)
    CarrierState.record_pass(TUESDAY_NOON, {"us": [], "eu": []})
    for name in ("us", "eu"):
        CarrierState.begin_pause(name, TUESDAY_NOON - HOUR, TUESDAY_NOON, trouble=NO_CREDIT)
    for name in ("shop", "app"):
        EventAddress.set(key := key_named(name), "http://localhost/", TUESDAY_NOON)
        decide_on(store(key=key)).cancel("shell", TUESDAY_NOON)
        for _ in range(3):
            EventAddress.record_failure(key.id, "http://localhost/", TUESDAY_NOON - 6 * MINUTE)
    store(status=Status.QUEUED, country="GB", to="+442071234567")
    for _ in range(10):
        held(Status.SENT, carrier="us", finished_at=TUESDAY_NOON - HOUR / 2)
    found = health.read(TUESDAY_NOON, app.config["SETTINGS"]).problems()
    return app, found


def test_each_place_shows_the_whole_list(troubled):
    app, found = troubled
    kinds = [each.kind for each in found]
    assert len({*kinds}) >= 4
    assert len(found) > len({*kinds})
    stats = app.test_cli_runner(env={"COLUMNS": "10000"}).invoke(args=["stats"])
    assert re.findall("PROBLEM: (.*)", stats.stdout) == [each.sentence for each in found]
    client = app.test_client()
    told = client.get("/healthz?strict").json["details"]["problems"]
    assert told == [*dict.fromkeys(kinds)]
    metrics = client.get("/metrics", headers={"Authorization": "Bearer " + "t" * 16}).text
    counts = dict(re.findall(r'text_messages_problems\{kind="(\w+)"\} (\d+)\.0', metrics))
    assert counts == {kind: str(kinds.count(kind)) for kind in health.KINDS}
    sent = [*notices.pending(app.config["SETTINGS"], TUESDAY_NOON)]
    assert [each.title for each in sent if each.kind == "failure"] == [each.title for each in found]
    visitor = signed_in(app, "Olga", role=Role.OPERATOR)
    visitor.read()
    alerts = [attrs for _, attrs in visitor.page.elements if attrs.get("role") == "alert"]
    assert len(alerts) == len(found)
    for each in found:
        # Instants are written otherwise there
        begin = re.split(r"\d{4}-", each.sentence)[0].strip().rstrip(":")
        assert begin.lower() in visitor.page.text.lower()
        assert each.what_to_do in visitor.page.text
    assert "<no credit>" in visitor.page.text


def test_an_approver_sees_only_what_keeps_texts_from_going(troubled):
    app, found = troubled
    visitor = signed_in(app, "Ann", "front")
    visitor.read()
    alerts = [attrs for _, attrs in visitor.page.elements if attrs.get("role") == "alert"]
    assert len(alerts) == sum(each.stops for each in found) == 3
    assert "webhooks for" not in visitor.page.text
    assert "flask" not in visitor.page.text
