"""Quiet hours that end at 24:00 end at local midnight, in settings, answers and passes."""

from datetime import UTC, datetime

import pytest

import recipients
import settings as environment
from answers import problems
from app import create_app
from databases import on_sqlite
from models import Message, Status
from recipients.hours import BusinessHours
from samples import MINUTE, NEW_YORK

EVENING = datetime(2026, 3, 4, 2, 30, tzinfo=UTC)  # Tuesday, 21:30 in New York
MIDNIGHT = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


@pytest.fixture(params=["21:00-24:00", "21:00-00:00"])
def evenings_quiet(request, database_url, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUIET_HOURS", request.param)
    monkeypatch.setenv("BUSINESS_HOURS", "00:00-24:00")
    return environment.load()._replace(database_url=database_url)


@on_sqlite
def test_they_end_at_midnight(evenings_quiet):
    hours, clocks = BusinessHours.from_settings(evenings_quiet), recipients.find(NEW_YORK).clocks
    for at in (EVENING - 30 * MINUTE, EVENING, MIDNIGHT - MINUTE):
        assert hours.silence(clocks, at)
        assert hours.quiet_until(clocks, at) == MIDNIGHT
        assert hours.next_opening(clocks, at) == MIDNIGHT
    for at in (EVENING - 31 * MINUTE, MIDNIGHT):
        assert hours.quiet_until(clocks, at) is None
        assert hours.is_open(clocks, at)


@on_sqlite
def test_a_text_waits_for_midnight_and_a_send_date_before_it_is_refused(evenings_quiet, key, at):
    at(EVENING)
    client = create_app(evenings_quiet).test_client()

    def post(**fields):
        body = {"to": NEW_YORK, "message": "Hello"} | fields
        return client.post("/v1/text-messages", json=body, headers={"X-Api-Key": key})

    answer = post().json
    assert (answer["status"], answer["scheduled_send_date"]) == (
        "scheduled",
        "2026-03-04T05:00:00.000Z",
    )
    refused = post(send_date="2026-03-04T04:59:00Z")
    assert refused.status_code == 400
    (problem,) = problems(refused)
    assert "2026-03-04T05:00:00.000Z" in problem
    assert post(send_date="2026-03-04T05:00:00Z").json["status"] == "scheduled"
    assert Message.select().where(Message.status == Status.SCHEDULED).count() == 2
