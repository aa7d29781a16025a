"""What tells an operator how the service is doing: /healthz, /metrics and `flask stats`."""

import contextlib
import json
import re
import shutil
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import peewee
import pytest
import yaml

from answers import refusal, sender
from app import create_app
from databases import on_both
from fake_carrier import ACCOUNT, FOR_NOW, TOO_FAST
from running import ROOT
from samples import HOUR, MINUTE, NEW_YORK, SECOND, SUNDAY_NIGHT, TUESDAY_NOON
from stored_messages import again, connection_of, decide_on, held, key_named, store, store_history
from texting import database
from texting.access.keys import ApiKey
from texting.access.limits import parse, parse_recipient_limit
from texting.database import clock
from texting.events.outbox import EventAddress
from texting.messages.model import Status
from texting.monitoring import health, metrics
from texting.monitoring.abuse import Abuse
from texting.reports import queue
from texting.sending.carrier_state import CarrierState
from texting.settings import VERSION


def refused(response):
    """Return the problems in the `details` of a 503, which must have the one body of errors."""
    assert response.status_code == 503, response.text
    error = response.json
    assert list(error) == ["error", "message", "statusCode", "details", "timestamp"]
    assert (error["error"], error["statusCode"]) == (True, 503)
    assert response.headers["Content-Type"] == "application/json"
    return error["details"]["problems"]


def test_the_root_lists_the_addresses(settings):
    app = create_app(settings._replace(secret_key="x" * 32))
    answer = app.test_client().get("/", base_url="http://localhost/staging")
    assert answer.json == {
        "text_messages": "/staging/v1/text-messages",
        "docs": "/staging/docs",
        "openapi": "/staging/openapi.json",
        "health": "/staging/healthz",
        "desk": "/staging/desk/",
    }


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "mimetype"),
    [
        *((None, "application/json"), ("", "application/json"), ("*/*", "application/json")),
        *(("application/json", "application/json"), ("nonsense", "application/json")),
        ("application/json, text/plain, */*", "application/json"),
        ("application/json, text/html;q=0.9", "application/json"),
        *((BROWSER, "text/html"), ("text/html", "text/html"), ("TEXT/HTML", "text/html")),
        ("text/html, application/json;q=0.9", "text/html"),
    ],
)
def test_the_root_is_a_page_for_a_browser_alone(client, accept, mimetype):
    answer = client.get("/", headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer.mimetype) == (200, mimetype)
    assert answer.headers["Vary"] == "Accept"
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.options
@pytest.mark.parametrize("prefix", ["", "/staging"])
def test_the_page_at_the_root_leads_to_all_that_the_body_names(client, optional_settings, prefix):
    below = {"base_url": f"http://localhost{prefix}"}
    page = client.get("/", headers={"Accept": BROWSER}, **below)
    named = client.get("/", **below).json
    links = re.findall(r'<a href="([^"]+)"', page.text)
    assert {*links} == {*named.values()} - {f"{prefix}/v1/text-messages"}
    assert f"POST {prefix}/v1/text-messages" in page.text
    assert any(link.endswith("/desk/") for link in links) == ("SECRET_KEY" in optional_settings)
    for link in [*links, *re.findall(r'<link [^>]*href="([^"]+)"', page.text)]:
        assert client.get(link.removeprefix(prefix), **below).status_code == 200
    assert "//" not in page.text
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; img-src 'self'; ")
    assert "frame-ancestors 'none'" in policy


def test_without_a_desk_the_root_does_not_list_it(client):
    assert "desk" not in client.get("/").json
    assert client.post("/").status_code == 405


@pytest.fixture
def healthz(client, at):
    """Request /healthz at an instant: `healthz(TUESDAY_NOON, "?strict")`."""

    def ask(now, query=""):
        at(now)
        return client.get(f"/healthz{query}")

    return ask


@pytest.fixture
def stats(flask, at):
    """Return the output of `flask stats --json` at an instant."""

    def ask(now):
        at(now)
        return json.loads(flask("stats", "--json").stdout)

    return ask


@pytest.fixture
def history(database_url, at):
    """Messages in several states, at noon."""
    at(TUESDAY_NOON)
    store_history()


def test_health_reports_how_long_the_oldest_due_message_has_waited(history, client):
    told = client.get("/healthz").json
    assert (told["status"], told["oldest_due_seconds"]) == ("ok", 7200)


def test_health_of_an_empty_table_is_no_wait(client):
    assert client.get("/healthz").json == {
        "status": "ok",
        "version": VERSION,
        "oldest_due_seconds": 0,
        "retrying": 0,
        "last_sent_seconds": None,
        "last_pass_seconds": None,
        "problems": [],
    }


@pytest.fixture
def measured(settings):
    """An application with metrics."""
    url = "twilio://AC1:token@+15005550006"
    settings = settings._replace(carrier_url=url, public_url="https://sms.example.com")
    return create_app(settings._replace(metrics_token="token"))


def metrics_of(app):
    return app.test_client().get("/metrics", headers={"Authorization": "Bearer token"}).text


def test_metrics_are_off_by_default(client):
    assert client.get("/metrics").status_code == 404


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "t"}])
def test_metrics_need_their_token(measured, headers):
    response = measured.test_client().get("/metrics", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_the_metrics_count_what_has_not_ended_by_status(history, measured):
    text = metrics_of(measured)
    counted = [line for line in text.splitlines() if line.startswith("text_messages{")]
    assert counted == [
        'text_messages{status="scheduled"} 2.0',
        'text_messages{status="queued"} 2.0',
        'text_messages{status="sending"} 0.0',
    ]
    assert 'text_messages_ended_last_hour{status="sent"} 1.0' in text
    assert "# HELP text_messages Messages that have not ended, by status." in text


OF_TAKEN, OF_ENDED = ["delivered", "undelivered", "unheard"], ["ended", "failed"]


def test_every_gauge_has_a_value_before_the_first_message(measured, at):
    metrics.REFUSALS.clear()  # those of other tests, which this process counts as well
    at(TUESDAY_NOON)
    lines = [each for each in metrics_of(measured).splitlines() if "text_messages_" in each[:14]]
    assert [line for line in lines if "ended_last_hour" not in line] == [
        "text_messages_awaiting_approval 0.0",
        "text_messages_oldest_due_seconds 0.0",
        "text_messages_retrying 0.0",
        "text_messages_last_sent_timestamp_seconds 0.0",
        "text_messages_last_pass_timestamp_seconds 0.0",
        'text_messages_carrier_trouble{carrier=""} 0.0',
        *(f'text_messages_carrier_{name}{{carrier="twilio"}} 0.0' for name in OF_TAKEN + OF_ENDED),
        *(f'text_messages_problems{{kind="{kind}"}} 0.0' for kind in health.KINDS),
        "text_messages_receipts_unmatched_last_day 0.0",
        "text_messages_opt_outs_ignored_last_day 0.0",
    ]


# Three kinds of outage: each is reported within a minute and ends by itself


@pytest.mark.parametrize("no", [FOR_NOW, TOO_FAST])
def test_a_carrier_that_is_down_is_reported_until_it_is_back(no, healthz, stats, run_pass, carrier):
    message = store(max_retries=9)
    carrier.answers[message.to] = no
    run_pass(TUESDAY_NOON + SECOND)
    now = TUESDAY_NOON + MINUTE
    told = healthz(now).json
    assert (told["status"], told["retrying"], told["oldest_due_seconds"]) == ("ok", 1, 60)
    assert (told["last_sent_seconds"], told["last_pass_seconds"]) == (None, 59)
    told = stats(now)
    assert (told["retrying"], told["oldest_due"]) == (1, "2026-03-03T17:00:00.000Z")
    CarrierState.record_pass(TUESDAY_NOON + 3 * MINUTE, {"fake": []})
    due = "although some have been due since 2026-03-03T17:00:00.000Z"
    problem = f"No text has gone through fake for 2 minutes, {due}"
    assert stats(TUESDAY_NOON + 3 * MINUTE)["problems"] == [problem]
    assert refused(healthz(TUESDAY_NOON + 3 * MINUTE, "?strict")) == ["stalled"]

    carrier.answers.clear()
    mended = max(again(message).send_at, TUESDAY_NOON + 3 * SECOND)
    run_pass(mended)
    told = healthz(mended, "?strict").json
    assert (told["status"], told["problems"]) == ("ok", [])
    assert (told["retrying"], told["last_sent_seconds"]) == (0, 0)


@on_both
def test_texts_that_a_carrier_does_not_answer_are_due_and_the_problem_names_it(
    healthz, stats, problems
):
    CarrierState.record_pass(TUESDAY_NOON, {"us": [], "eu": []})
    held(Status.SENDING, claimed_for="us", send_at=TUESDAY_NOON, first_send_at=TUESDAY_NOON)
    told = healthz(TUESDAY_NOON + MINUTE).json
    assert told["oldest_due_seconds"] == 60
    assert problems(TUESDAY_NOON + 2 * MINUTE) == []
    later = TUESDAY_NOON + 2 * MINUTE + SECOND
    CarrierState.record_pass(later, {"us": [], "eu": []})
    due = "for 2 minutes, although some have been due since 2026-03-03T17:00:00.000Z"
    why = "1 text has no answer yet"
    assert problems(later) == [f"No text has gone through us {due}: {why}"]
    held(Status.SENDING, claimed_for="us", due_since=TUESDAY_NOON - HOUR, send_at=TUESDAY_NOON)
    assert stats(later)["oldest_due"] == "2026-03-03T16:00:00.000Z"
    held(Status.SENDING, claimed_for="eu", send_at=TUESDAY_NOON)
    (told,) = problems(later)
    assert told.startswith("No text has gone through eu, us for")
    assert told.endswith("3 texts have no answer yet")


def test_texts_under_way_of_a_paused_key_are_not_due(problems, healthz):
    CarrierState.record_pass(TUESDAY_NOON, {"us": []})
    key = key_named("shop")
    held(Status.SENDING, key=key, claimed_for="us")
    key.pause(TUESDAY_NOON)
    assert healthz(TUESDAY_NOON + MINUTE).json["oldest_due_seconds"] == 0


def test_a_wrong_token_is_reported_at_once_until_it_is_mended(
    healthz, stats, flask, run_pass, carrier
):
    messages = [store() for _ in range(3)]
    carrier.answers[NEW_YORK] = ACCOUNT
    run_pass(TUESDAY_NOON)
    problem = "fake has refused the account since 2026-03-03T17:00:00.000Z: the token is wrong"
    told = healthz(TUESDAY_NOON).json
    assert (told["status"], told["problems"]) == ("ok", ["refused"])
    assert refused(healthz(TUESDAY_NOON, "?strict")) == ["refused"]
    told = stats(TUESDAY_NOON)
    assert told["problems"] == [problem]
    assert (told["carrier"], told["trouble"]) == ("fake", "the token is wrong")
    assert told["trouble_since"] == "2026-03-03T17:00:00.000Z"
    assert flask("stats").stdout.splitlines()[-1] == f"PROBLEM: {problem}"

    carrier.answers.clear()
    run_pass(TUESDAY_NOON + MINUTE)
    assert {again(message).status for message in messages} == {Status.SENT}
    assert healthz(TUESDAY_NOON + MINUTE, "?strict").json["problems"] == []
    assert stats(TUESDAY_NOON + MINUTE)["trouble"] is None


# A database that answers and stores nothing


def test_a_web_that_cannot_store_says_it_until_it_can(post, healthz, at):
    at(TUESDAY_NOON)
    database.db.execute_sql("ALTER TABLE message RENAME TO hidden")
    refusal(post(), 503)
    database.db.execute_sql("ALTER TABLE hidden RENAME TO message")
    assert refused(healthz(TUESDAY_NOON + MINUTE, "?strict")) == ["web"]
    assert healthz(TUESDAY_NOON + 3 * MINUTE, "?strict").json["problems"] == []
    assert refused(healthz(TUESDAY_NOON + MINUTE, "?strict"))
    assert post().status_code == 201
    assert healthz(TUESDAY_NOON + MINUTE, "?strict").json["problems"] == []


def test_the_health_is_read_while_somebody_else_writes_for_long(settings, database_url, at):
    store()
    at(TUESDAY_NOON + MINUTE)
    client = create_app(settings._replace(carrier_url="simulator:")).test_client()
    with contextlib.closing(connection_of(database_url)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert client.get("/healthz").json["oldest_due_seconds"] == 60


# Situations without a problem


def test_a_night_without_messages_is_no_problem(healthz, run_pass):
    run_pass(TUESDAY_NOON)
    store(manual_mode=True)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 24 * HOUR)
    run_pass(TUESDAY_NOON + 12 * HOUR - SECOND)
    assert healthz(TUESDAY_NOON + 12 * HOUR, "?strict").json["problems"] == []


def test_a_message_that_failed_and_waits_for_the_morning_is_not_due(healthz, run_pass, carrier):
    evening = SUNDAY_NIGHT.replace(hour=21, minute=59)  # New York closes at 22:00 UTC
    carrier.answers[store(now=evening).to] = FOR_NOW
    assert run_pass(evening)["retrying"] == 1
    assert run_pass(evening + 2 * MINUTE)["rescheduled"] == 1
    run_pass(evening + 3 * HOUR)
    told = healthz(evening + 3 * HOUR, "?strict").json
    assert (told["retrying"], told["oldest_due_seconds"]) == (0, 0)
    morning = evening + 16 * HOUR + MINUTE
    run_pass(morning)
    assert healthz(morning + MINUTE).json["oldest_due_seconds"] == 60


def test_a_late_approval_is_due_from_then_on(healthz):
    message = store()
    store(manual_mode=True, now=TUESDAY_NOON - 5 * HOUR)
    assert healthz(TUESDAY_NOON).json["oldest_due_seconds"] == 0
    late = store(manual_mode=True, now=TUESDAY_NOON - 9 * HOUR)
    decide_on(late).approve("shell", TUESDAY_NOON)
    assert healthz(TUESDAY_NOON + SECOND).json["oldest_due_seconds"] == 1
    assert message.status == Status.QUEUED


def test_health_needs_no_key_and_shows_nothing_private(healthz, run_pass, carrier):
    carrier.answers[store(message="attack at dawn").to] = FOR_NOW
    run_pass(TUESDAY_NOON)
    carrier.answers[store(message="attack at dawn").to] = ACCOUNT
    run_pass(TUESDAY_NOON + MINUTE)
    answer = healthz(TUESDAY_NOON + 4 * MINUTE, "?strict")
    assert refused(answer) == ["refused", "scheduler"]
    private = ("5550123", "attack", "app", "tms_", "fake", "token")
    assert not any(each in answer.text for each in private)


def test_a_carrier_that_is_no_longer_used_is_not_reported(healthz):
    CarrierState.record_pass(SUNDAY_NIGHT, {"old": []})
    CarrierState.begin_pause("old", SUNDAY_NIGHT, SUNDAY_NIGHT, trouble="wrong token")
    CarrierState.record_pass(TUESDAY_NOON, {"new": []})
    assert healthz(TUESDAY_NOON).json["problems"] == []


@on_both
def test_what_awaits_approval_again_is_not_due(healthz, problems):
    """A refusal, an approval and a cancel that are undone leave a text to a person."""
    CarrierState.record_pass(TUESDAY_NOON, {"fake": []})
    key = key_named("Ann")
    refused = store(manual_mode=True, approved=False)
    decide_on(refused).decide(False, key.name, TUESDAY_NOON)
    decide_on(refused).undo_cancel(key.name, TUESDAY_NOON)
    store(approved=False, due_since=TUESDAY_NOON, status=Status.SCHEDULED)
    later = TUESDAY_NOON + 3 * MINUTE
    CarrierState.record_pass(later, {"fake": []})
    assert healthz(later, "?strict").json["oldest_due_seconds"] == 0
    assert problems(later) == []
    assert queue.to_be_sent(later) == 0


@on_both
def test_no_text_is_due_before_its_time_and_no_figure_is_negative(healthz, stats):
    """Another machine's clock may be ahead, and what was approved waits for ten seconds."""
    ahead = TUESDAY_NOON + 5 * SECOND
    for status in (Status.QUEUED, Status.SCHEDULED, Status.SENDING):
        claimed = {"claimed_for": "fake"} if status == Status.SENDING else {}
        held(status, send_at=ahead, approved_at=ahead, **claimed)
    store(due_since=ahead, send_at=ahead)
    CarrierState.record_pass(ahead, {"fake": []})
    store(status=Status.SENT, finished_at=ahead, carrier="fake")
    told = healthz(TUESDAY_NOON).json
    figures = [told[f"{name}_seconds"] for name in ("oldest_due", "last_sent", "last_pass")]
    assert figures == [0, 0, 0]
    assert stats(TUESDAY_NOON)["oldest_due"] is None
    assert healthz(ahead + SECOND).json["oldest_due_seconds"] == 1


# Read once a second at most


def test_the_health_is_read_once_a_second_whoever_asks(measured, monkeypatch):
    measured.extensions["health"].lasts = 1
    reads, read, seconds = [], health.read, [100.0]
    monkeypatch.setattr(health, "read", lambda now, of: reads.append(now) or read(now, of))
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def ask_all():
        paths = ["/healthz", "/healthz?strict", "/metrics"] * 4
        headers = {"Authorization": "Bearer token"}
        with ThreadPoolExecutor(4) as pool:
            ask = measured.test_client().get
            return [*pool.map(lambda path: ask(path, headers=headers), paths)]

    assert {response.status_code for response in ask_all()} == {200}
    seconds[0] += 0.99
    ask_all()
    assert len(reads) == 1
    seconds[0] += 0.01
    store(send_at=clock.now() - HOUR)
    assert ask_all()[0].json["oldest_due_seconds"] >= 3600
    assert len(reads) == 2


def test_a_failure_is_kept_as_long_and_no_longer(app, client, monkeypatch):
    app.extensions["health"].lasts = 1
    reads, clock = [], [100.0]
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with monkeypatch.context() as outage:

        def fail(now, _):
            reads.append(now)
            clock[0] += 5  # it has waited in vain
            raise peewee.OperationalError("no connection")

        outage.setattr(health, "read", fail)
        for _ in range(3):
            refusal(client.get("/healthz"), 503)
        assert len(reads) == 1
    refusal(client.get("/healthz"), 503)
    clock[0] += 1
    assert client.get("/healthz").status_code == 200


def refusals(caplog):
    return [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]


def test_a_flood_of_refusals_is_one_line_a_minute_by_the_name_of_the_key(post, monkeypatch, caplog):
    seconds = 1000
    monkeypatch.setattr("texting.monitoring.abuse.time.monotonic", lambda: seconds)
    for _ in range(30):
        assert post(to="+19002345678").status_code == 403
    (line,) = refusals(caplog)
    assert "key app" in line
    assert "premium-rate" in line
    assert "1900" not in caplog.text
    seconds += 59
    post(to="+19002345678")
    assert len(refusals(caplog)) == 1
    seconds += 1
    post(to="+19002345678")
    assert "31 " in refusals(caplog)[1]


def test_each_key_and_each_reason_has_its_own_line(caplog):
    abuse = Abuse()
    for _ in range(3):
        for key in ("a", "b"):
            for reason in ("key_limit", "recipient_limit"):
                abuse.note(key, reason)
    assert len({*refusals(caplog)}) == len(refusals(caplog)) == 4
    assert [record.key for record in caplog.records] == ["a", "a", "b", "b"]


def test_the_metrics_count_refusals_by_key_and_reason(settings, database_url):
    settings = settings._replace(
        metrics_token="token", recipient_limit=parse_recipient_limit("2/1h")
    )
    app, name = create_app(settings), uuid.uuid4().hex  # others count here, too
    secret = ApiKey.issue(name, None, clock.now(), limits=parse("1/d"))
    other = ApiKey.issue("other", None, clock.now())
    numbers = [(secret, NEW_YORK)] * 3 + [(other, NEW_YORK)] * 2 + [(secret, "+19002345678")]
    for key, to in numbers:
        sender(app.test_client(), key)(to=to)
    text = metrics_of(app)
    assert f'text_messages_refused_total{{key="{name}",reason="key_limit"}} 2.0' in text
    assert f'text_messages_refused_total{{key="{name}",reason="premium_rate"}} 1.0' in text
    assert 'text_messages_refused_total{key="other",reason="recipient_limit"}' in text


# What monitoring/ has for Prometheus and Grafana

RULES = yaml.safe_load((ROOT / "texting/monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = json.loads((ROOT / "texting/monitoring/dashboard.json").read_text())["panels"]
QUERIES = [rule["expr"] for rule in RULES]
QUERIES += [target["expr"] for panel in PANELS for target in panel["targets"]]


def named(query):
    """The metrics that a query names: what is no label, no operator and no function."""
    bare = re.sub(r"{.*?}|\[.*?\]|\b(by|without) \(.*?\)", " ", query)
    words = re.findall(r"\b[a-z]\w*\b(?! *\()", bare)
    return {*words} - {"and", "or", "unless"}


@pytest.fixture
def served(measured):
    """The metrics of which /metrics serves a value, where there is something to tell."""
    key, ago = key_named("app"), clock.now() - HOUR / 2
    held(Status.DELIVERED, carrier="twilio", finished_at=ago, receipt_at=ago)
    EventAddress.set(key, "http://127.0.0.1:9/", clock.now())
    decide_on(store(key=key)).cancel("shell", clock.now())
    measured.extensions["abuse"].note("app", "key_limit")
    measured.test_client().get("/")
    return {*re.findall(r"^(\w+)(?:{| )", metrics_of(measured), re.M)}


def test_alerts_and_panels_name_metrics_that_are_served(served):
    assert all(map(named, QUERIES))
    assert {query: named(query) - served for query in QUERIES if named(query) - served} == {}


def test_the_dashboard_has_ten_panels_that_do_not_overlap():
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS]
    assert len({*places}) == len({panel["id"] for panel in PANELS}) == len(PANELS) == 10


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_alerts_fire_when_they_should():
    words = ["promtool", "test", "rules", ROOT / "tests/monitoring/alerts_test.yaml"]
    subprocess.run(words, check=True)
