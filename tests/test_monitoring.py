"""What tells an operator how the service is: /healthz, /metrics, and what stats says with them."""

import json
from datetime import timedelta

import pytest

import database
from answers import problems
from app import create_app
from carrier_state import CarrierState
from carriers import Carrier, CarrierError
from models import Status
from samples import SUNDAY_NIGHT, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, held, store, store_history

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def refused(response):
    """The problems that a 503 tells in its `details`, in the one body of every error."""
    assert response.status_code == 503, response.text
    error = response.json
    assert list(error) == ["error", "message", "statusCode", "details", "timestamp"]
    assert (error["error"], error["statusCode"]) == (True, 503)
    assert response.headers["Content-Type"] == "application/json"
    return error["details"]["problems"]


def test_the_root_says_where_things_are(settings):
    app = create_app(settings._replace(secret_key="x" * 32))
    answer = app.test_client().get("/", base_url="http://localhost/staging")
    assert answer.json == {
        "text_messages": "/staging/v1/text-messages",
        "docs": "/staging/docs",
        "openapi": "/staging/openapi.json",
        "health": "/staging/healthz",
        "desk": "/staging/desk/",
    }


def test_without_a_desk_the_root_does_not_name_one(client):
    assert "desk" not in client.get("/").json
    assert client.post("/").status_code == 405


class Failing(Carrier):
    """A carrier that says no as long as it has an error."""

    name = "failing"

    def __init__(self, **error):
        self.error = error

    def send(self, to, text, **_):
        if self.error:
            raise CarrierError("it says no", **self.error)


@pytest.fixture
def run_pass(settings, at):
    """Make a pass with a carrier at an instant: `run_pass(carrier, TUESDAY_NOON)`."""

    def make(carrier, now):
        at(now)
        return Scheduler(settings, carrier).run_pass()

    return make


@pytest.fixture
def healthz(client, at):
    """Ask /healthz at an instant: `healthz(TUESDAY_NOON, "?strict")`; the response."""

    def ask(now, query=""):
        at(now)
        return client.get(f"/healthz{query}")

    return ask


@pytest.fixture
def stats(flask, at):
    """What `flask stats --json` tells at an instant."""

    def ask(now):
        at(now)
        return json.loads(flask("stats", "--json").stdout)

    return ask


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


def test_the_metrics_count_what_has_not_ended_by_status(settings, at):
    at(TUESDAY_NOON)
    store_history()
    client = create_app(settings._replace(metrics_token="token")).test_client()
    text = client.get("/metrics", headers={"Authorization": "Bearer token"}).text
    counted = [line for line in text.splitlines() if line.startswith("text_messages{")]
    assert counted == [
        'text_messages{status="scheduled"} 2.0',
        'text_messages{status="queued"} 2.0',
        'text_messages{status="sending"} 0.0',
    ]
    assert 'text_messages_ended_last_hour{status="sent"} 1.0' in text
    assert "# HELP text_messages Messages that have not ended, by status." in text


# The three nights: each is told within a minute, and over by itself


@pytest.mark.parametrize("reason", [{"permanent": False}, {"too_fast": True}])
def test_a_carrier_that_is_down_is_reported_until_it_is_back(reason, healthz, stats, run_pass):
    message = store(max_retries=9)
    carrier = Failing(**reason)
    run_pass(carrier, TUESDAY_NOON + SECOND)
    now = TUESDAY_NOON + MINUTE
    told = healthz(now).json
    assert (told["status"], told["retrying"], told["oldest_due_seconds"]) == ("ok", 1, 60)
    assert (told["last_sent_seconds"], told["last_pass_seconds"]) == (None, 59)
    assert told["commonest_error"] == {"error": "it says no", "messages": 1}
    told = stats(now)
    assert (told["retrying"], told["oldest_due"]) == (1, "2026-03-03T17:00:00.000Z")
    assert told["commonest_error"] == {"error": "it says no", "messages": 1}
    assert refused(healthz(TUESDAY_NOON + 3 * MINUTE, "?strict"))

    carrier.error = {}
    mended = again(message).send_at
    run_pass(carrier, mended)
    told = healthz(mended, "?strict").json
    assert (told["status"], told["problems"]) == ("ok", [])
    assert (told["retrying"], told["last_sent_seconds"]) == (0, 0)


def test_a_wrong_token_is_reported_at_once_until_it_is_mended(healthz, stats, flask, run_pass):
    messages = [store() for _ in range(3)]
    carrier = Failing(account=True)
    run_pass(carrier, TUESDAY_NOON)
    problem = "failing has refused the account since 2026-03-03T17:00:00.000Z: it says no"
    told = healthz(TUESDAY_NOON).json
    assert (told["status"], told["problems"]) == ("ok", [problem])
    assert refused(healthz(TUESDAY_NOON, "?strict")) == [problem]
    told = stats(TUESDAY_NOON)
    assert (told["carrier"], told["trouble"]) == ("failing", "it says no")
    assert told["trouble_since"] == "2026-03-03T17:00:00.000Z"
    assert flask("stats").stdout.splitlines()[-1] == f"PROBLEM: {problem}"

    carrier.error = {}
    run_pass(carrier, TUESDAY_NOON + MINUTE)
    assert {again(message).status for message in messages} == {Status.SENT}
    assert healthz(TUESDAY_NOON + MINUTE, "?strict").json["problems"] == []
    assert stats(TUESDAY_NOON + MINUTE)["trouble"] is None


def test_a_dead_scheduler_is_reported_until_another_makes_a_pass(healthz, stats, run_pass):
    run_pass(Failing(), TUESDAY_NOON)
    store()
    now = TUESDAY_NOON + MINUTE
    assert healthz(now).json["last_pass_seconds"] == 60
    assert stats(now)["last_pass_at"] == "2026-03-03T17:00:00.000Z"
    assert healthz(now, "?strict").status_code == 200
    now += 2 * MINUTE
    (problem,) = refused(healthz(now, "?strict"))
    assert problem.endswith("no scheduler makes a pass")
    run_pass(Failing(), now)
    assert healthz(now, "?strict").status_code == 200


def test_a_scheduler_without_a_carrier_is_reported(healthz, run_pass):
    store()
    now = TUESDAY_NOON + 3 * MINUTE
    run_pass(None, now)
    (problem,) = healthz(now).json["problems"]
    assert problem.endswith("CARRIER_URL is not set")


# What is no problem


def test_a_night_without_messages_is_no_problem(healthz, run_pass):
    run_pass(Failing(), TUESDAY_NOON)
    store(manual_mode=True)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 24 * HOUR)
    assert healthz(TUESDAY_NOON + 12 * HOUR, "?strict").json["problems"] == []


def test_one_message_that_fails_while_others_go_is_no_problem_for_an_hour(healthz):
    store(
        status=Status.SCHEDULED,
        send_at=TUESDAY_NOON + 2 * HOUR,
        due_since=TUESDAY_NOON,
        last_error_at=TUESDAY_NOON,
    )
    now = TUESDAY_NOON + 59 * MINUTE
    held(Status.SENT, finished_at=now)
    assert healthz(now, "?strict").status_code == 200
    now = TUESDAY_NOON + 61 * MINUTE
    held(Status.SENT, finished_at=now)
    (problem,) = refused(healthz(now, "?strict"))
    assert problem == "a message is due since 2026-03-03T17:00:00.000Z"


def test_a_message_that_failed_and_waits_for_the_morning_is_not_due(healthz, run_pass):
    evening = SUNDAY_NIGHT.replace(hour=21, minute=59)  # New York closes at 22:00 UTC
    store(now=evening)
    carrier = Failing(permanent=False)
    assert run_pass(carrier, evening)["retrying"] == 1
    assert run_pass(carrier, evening + 2 * MINUTE)["rescheduled"] == 1
    told = healthz(evening + 3 * HOUR, "?strict").json
    assert (told["retrying"], told["oldest_due_seconds"]) == (0, 0)
    morning = evening + 16 * HOUR + MINUTE
    run_pass(carrier, morning)
    assert healthz(morning + MINUTE).json["oldest_due_seconds"] == 60


def test_a_late_approval_is_due_from_then_on(healthz):
    message = store()
    store(manual_mode=True, now=TUESDAY_NOON - 5 * HOUR)
    assert healthz(TUESDAY_NOON).json["oldest_due_seconds"] == 0
    late = store(manual_mode=True, now=TUESDAY_NOON - 9 * HOUR)
    late.approve("shell", TUESDAY_NOON)
    assert healthz(TUESDAY_NOON + SECOND).json["oldest_due_seconds"] == 1
    assert message.status == Status.QUEUED


@pytest.mark.parametrize(("query", "status"), [("?strict", 503), ("?strict=600", 200), ("", 200)])
def test_a_monitor_may_have_more_patience(query, status, healthz):
    store()
    assert healthz(TUESDAY_NOON + 5 * MINUTE, query).status_code == status


@pytest.mark.parametrize("patience", ["0", "-1", "abc", "1e3", "\u0663", "9999999", "1.5"])
def test_a_patience_that_is_none_is_a_problem(patience, client):
    answer = client.get("/healthz", query_string={"strict": patience})
    assert problems(answer) == ["strict: must be a number of seconds"]


def test_nothing_private_is_in_what_needs_no_key(healthz, run_pass):
    store(to="+12125550123", message="attack at dawn")
    run_pass(Failing(permanent=False), TUESDAY_NOON)
    text = healthz(TUESDAY_NOON + 3 * MINUTE, "?strict").text
    assert not any(private in text for private in ("5550123", "attack", "app", "tms_"))


def test_a_database_without_tables_is_no_good_health(client):
    database.db.execute_sql("ALTER TABLE carrier_state RENAME TO hidden")
    try:
        assert client.get("/healthz").status_code >= 500
    finally:
        database.db.execute_sql("ALTER TABLE hidden RENAME TO carrier_state")


def test_a_carrier_that_is_used_no_more_is_not_reported(healthz):
    CarrierState.passed("old", SUNDAY_NIGHT)
    CarrierState.begin_trouble("old", "wrong token", SUNDAY_NIGHT)
    CarrierState.passed("new", TUESDAY_NOON)
    assert healthz(TUESDAY_NOON).json["problems"] == []
