"""What tells an operator how the service is: stats, /healthz, /metrics."""

import json
import re
import urllib.request
from datetime import timedelta

import pytest

from app import create_app
from models import Status
from samples import TUESDAY_NOON
from stored_messages import store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def history(database_url, at):
    """Messages in several states, some of them ended lately."""
    at(TUESDAY_NOON)
    store(status=Status.SENT, finished_at=TUESDAY_NOON - HOUR / 2)
    store(status=Status.SENT, finished_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 2 * DAY)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - DAY, manual_mode=True, approved=False)


def test_stats_count_messages_by_state_and_what_ended_lately(history, flask):
    numbers = json.loads(flask("stats", "--json").stdout)
    assert numbers["messages"] == {
        "scheduled": 2,
        "queued": 2,
        "sending": 0,
        "sent": 2,
        "failed": 1,
        "blocked": 0,
        "cancelled": 0,
    }
    assert numbers["last_hour"] == {"sent": 1, "failed": 0, "blocked": 0, "cancelled": 0}
    assert numbers["last_day"] == {"sent": 2, "failed": 0, "blocked": 0, "cancelled": 0}
    assert numbers["awaiting_approval"] == 1
    assert numbers["oldest_due"] == "2026-03-03T15:00:00.000Z"  # what awaits approval is not due


def test_stats_are_drawn_as_a_table_with_bars(history, flask):
    lines = flask("stats").stdout.splitlines()
    assert lines[1].split() == ["scheduled", "2", "█" * 20]
    assert lines[5].split() == ["failed", "1", "█" * 10, "0", "0"]
    assert lines[-1] == "the oldest due message waits: since 2026-03-03T15:00:00.000Z (2:00:00)"


def test_stats_of_an_empty_table_are_all_zero(flask):
    assert set(json.loads(flask("stats", "--json").stdout)["messages"].values()) == {0}
    assert flask("stats").exit_code == 0


def test_health_says_how_long_the_oldest_due_message_has_waited(history, client):
    assert client.get("/healthz").json == {"status": "ok", "oldest_due_seconds": 7200}


def test_health_of_an_empty_table_is_no_wait(client):
    assert client.get("/healthz").json == {"status": "ok", "oldest_due_seconds": 0}


def test_metrics_are_off_by_default(client):
    assert client.get("/metrics").status_code == 404


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "t"}])
def test_metrics_need_their_token(settings, headers):
    client = create_app(settings._replace(metrics_token="token")).test_client()
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_metrics_are_summed_over_the_workers_and_read_from_the_database(
    database_url, serve, key, history, tmp_path
):
    folder = tmp_path / "metrics"
    folder.mkdir()
    web = serve(database_url, METRICS_TOKEN="token", PROMETHEUS_MULTIPROC_DIR=str(folder))
    for _ in range(40):  # each on a connection of its own, so that both workers get some
        body = json.dumps({"to": "+12125550123", "message": "Hello"}).encode()
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{web.url}/v1/text-messages", body, headers)
        with urllib.request.urlopen(request) as response:
            assert response.status == 201
    for _ in range(4):
        request = urllib.request.Request(
            f"{web.url}/metrics", headers={"Authorization": "Bearer token"}
        )
        with urllib.request.urlopen(request) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            values = dict(re.findall(r"^([^#\s]+) (\S+)$", response.read().decode(), re.M))
        assert values['http_request_duration_seconds_count{status="201"}'] == "40.0"
        assert values['text_messages{status="sent"}'] == "2.0"
        assert values["text_messages_awaiting_approval"] == "1.0"
        assert float(values["text_messages_oldest_due_seconds"]) > 7200
