"""A one-time code goes in the night and at once, whatever waits before it."""

import time
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest

from access.keys import ApiKey
from database import clock, db, isoformat
from models import Message, Status
from running import ALWAYS, send, wait_until
from samples import NEW_YORK
from stored_messages import key_named, store_many


@pytest.fixture
def night():
    """Settings by which it is the middle of the night in New York now, and the night's end."""
    now = clock.now().astimezone(ZoneInfo("America/New_York")).replace(second=0, microsecond=0)
    ends = now + timedelta(hours=3)
    quiet = f"{now - timedelta(hours=3):%H:%M}-{ends:%H:%M}"
    return {"QUIET_HOURS": quiet}, isoformat(ends.astimezone(UTC))


@pytest.mark.timed
@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_code_goes_at_once_while_a_newsletter_waits(
    count, night, serve, schedule, start, twilio, database_url
):
    settings, ends = night
    urgent = ("--urgent", "--quiet-hours", "none")
    create = start("flask", "keys", "create", "codes", *urgent, DATABASE_URL=database_url)
    assert create.wait() == 0, create.output
    secret, news = create.output.split()[-1], ApiKey.issue("news", None, clock.now())
    web = serve(database_url, workers=1, **ALWAYS, **settings)
    # Half of it waits for the carrier by day, the other half is held up into the night
    day = key_named("day")
    day.rule({"quiet_hours": "none"}, clock.now(), lambda own: None)
    for key in (day, ApiKey.get(ApiKey.name == "news")):
        for _ in range(count // 1_000):
            store_many(500, clock.now(), key=key, message="news")
    db.close()
    process = schedule("--every", "5", CARRIER_URL=twilio.url, **settings)
    wait_until(lambda: len(twilio.texts) > 20)

    status, answer = send(web, news, {"to": NEW_YORK, "message": "late news"})
    assert (status, answer["status"], answer["scheduled_send_date"]) == (201, "scheduled", ends)
    for number in range(5):
        began, text = time.monotonic(), f"code {number}"
        status, answer = send(web, secret, {"to": NEW_YORK, "message": text})
        assert (status, answer["status"]) == (201, "queued")
        wait_until(lambda: (NEW_YORK, text) in twilio.texts, 10)  # noqa: B023
        assert time.monotonic() - began < 2
    assert Message.select().where(Message.status == Status.QUEUED).count() > count / 4
    assert (NEW_YORK, "late news") not in twilio.texts
    assert "quiet hours until" in process.output
    assert process.terminate() == 0


@pytest.mark.timed
def test_between_two_passes_a_code_waits_for_no_more_than_two_seconds(
    night, serve, schedule, start, twilio, database_url
):
    settings, _ = night
    urgent = ("--urgent", "--quiet-hours", "none")
    create = start("flask", "keys", "create", "codes", *urgent, DATABASE_URL=database_url)
    assert create.wait() == 0, create.output
    web = serve(database_url, workers=1, **ALWAYS, **settings)
    process = schedule("--every", "30", CARRIER_URL=twilio.url, **settings)
    wait_until(lambda: "0 waiting for a carrier" in process.output)
    for number in range(2):
        began, text = time.monotonic(), f"code {number}"
        send(web, create.output.split()[-1], {"to": NEW_YORK, "message": text})
        wait_until(lambda: (NEW_YORK, text) in twilio.texts, 10)  # noqa: B023
        assert time.monotonic() - began < 3  # two, and what a busy machine adds
