"""What tells an operator how the service is: /healthz, /metrics."""

import pytest

from app import create_app
from samples import TUESDAY_NOON
from stored_messages import store_history


@pytest.fixture
def history(database_url, at):
    """Messages in several states, at noon."""
    at(TUESDAY_NOON)
    store_history()


def test_health_says_how_long_the_oldest_due_message_has_waited(history, client):
    told = client.get("/healthz").json
    assert (told["status"], told["oldest_due_seconds"]) == ("ok", 7200)


def test_health_of_an_empty_table_is_no_wait(client):
    assert client.get("/healthz").json == {
        "status": "ok",
        "oldest_due_seconds": 0,
        "retrying": 0,
        "last_sent_seconds": None,
        "last_pass_seconds": None,
        "commonest_error": None,
        "problems": [],
    }


def test_metrics_are_off_by_default(client):
    assert client.get("/metrics").status_code == 404


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "t"}])
def test_metrics_need_their_token(settings, headers):
    client = create_app(settings._replace(metrics_token="token")).test_client()
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
