"""`flask keys events` and `flask events`: where a key's events go, and how they stand."""

import json
import re

import pytest

from app import create_app
from databases import on_both
from samples import HOUR, TUESDAY_NOON
from stored_messages import decide_on, look, new_id, store
from texting import database
from texting.access.audit import Action, Audit
from texting.access.keys import ApiKey
from texting.database import clock, db
from texting.events.outbox import Event, EventAddress

URL = "https://shop.example.com:8443/events?of=app"
SHOWN = "https://shop.example.com:8443/events?of=***"


@pytest.fixture
def app_key(key):
    return ApiKey.named("app")


def given_up(key):
    """An event that was tried in vain and given up."""
    decide_on(store(key=key)).cancel("shell", TUESDAY_NOON)
    (event,) = Event.claim(key.id, 1, TUESDAY_NOON, TUESDAY_NOON + HOUR, None)
    event.failed("HTTP 500", None, TUESDAY_NOON)
    return event


def test_an_address_is_set_shown_switched_off_and_set_again(session, app_key, at):
    at(TUESDAY_NOON)
    session(f"""
        $ flask keys events app
        Error: app has no address for events
        [1]
        $ flask keys events app {URL}
        app: {SHOWN} (on)
        0 waiting, 0 given up
    """)
    decide_on(store(key=app_key)).cancel("shell", TUESDAY_NOON)
    session(f"""
        $ flask keys events app
        app: {SHOWN} (on)
        1 waiting, 0 given up
        $ flask keys events app --off
        app: {SHOWN} (switched off: by an operator)
        0 waiting, 1 given up
        $ flask events retry --key app
        Error: the address of app is switched off: by an operator
        [1]
        $ flask keys events app {URL}
        app: {SHOWN} (on)
        0 waiting, 1 given up
        $ flask keys events app --rotate
        app: {SHOWN} (on)
        0 waiting, 1 given up
        also signed with the old secret until 2026-03-04T17:00:00.000Z
        $ flask events retry --key app
        1 event to be sent again
        $ flask events retry
        0 events to be sent again
    """)


def test_the_secret_is_printed_alone_and_changed_by_rotate(run, app_key):
    run("keys", "events", "app", URL)
    secret = run("keys", "events", "app", "--secret")
    assert secret == f"{EventAddress.get().secret}\n"
    assert secret.startswith("whsec_")
    run("keys", "events", "app", "--rotate")
    assert run("keys", "events", "app", "--secret") not in (secret, "\n")
    assert secret.strip() == EventAddress.get().old_secret


def test_a_key_is_created_with_an_address(run):
    secret = run("keys", "create", "shop", "--events", URL)
    assert ApiKey.authenticate(secret.strip(), clock.now()).name == "shop"
    assert EventAddress.of(ApiKey.named("shop")).url == URL
    assert [each.what for each in Audit.select()] == ["key created", "events address set"]


def test_a_password_in_an_address_is_kept_and_not_shown(run, app_key):
    shown = run("keys", "events", "app", "https://me:s3cret@shop.example.com/")
    assert "https://***@shop.example.com/" in shown
    assert EventAddress.get().url == "https://me:s3cret@shop.example.com/"
    assert "s3cret" not in run("keys", "list", "--json")


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://shop.example.com", "shop.example.com", "https://", "http:///events", "https:shop"),
        *("https://shop.example.com/a b", "https://shop.example.com:99999", "http://s3cret@:80"),
        *("https://shop\n.example.com/", "http://[::1", "http://shop.example.com:0", "", " "),
        "javascript:alert(1)",
    ],
)
def test_what_is_no_address_gets_one_line(refused, app_key, address):
    for words in (("keys", "events", "app", address), ("keys", "create", "b", "--events", address)):
        line = refused(*words, status=2)
        assert "must be an http:// or https:// address" in line
        assert "s3cret" not in line
    assert EventAddress.select().count() == 0


def test_what_cannot_be_done_gets_one_line(refused, app_key):
    for option in ("--off", "--secret", "--rotate"):
        assert refused("keys", "events", "app", option) == "Error: app has no address for events"


def test_keys_are_listed_with_their_events(run, app_key):
    ApiKey.issue("other", "sales", clock.now())
    run("keys", "events", "app", URL)
    given_up(app_key)
    decide_on(store(key=app_key)).cancel("shell", TUESDAY_NOON)
    app, other = json.loads(run("keys", "list", "--json"))
    assert app["name"] == "app"
    assert app["events"] == {"url": SHOWN, "off": None, "waiting": 1, "given_up": 1}
    assert (other["name"], other["group"]) == ("other", "sales")
    assert other["events"] == {"url": None, "off": None, "waiting": 0, "given_up": 0}
    run("keys", "events", "app", "--off")
    assert json.loads(run("keys", "list", "--json"))[0]["events"] == {
        **{"url": SHOWN, "off": "by an operator", "waiting": 0, "given_up": 2}
    }


def test_what_waits_and_what_was_given_up_is_listed_and_retried(session, run, app_key):
    EventAddress.set(app_key, URL, TUESDAY_NOON)
    event = given_up(app_key)
    message = store(key=app_key)
    decide_on(message).cancel("shell", TUESDAY_NOON)
    gone, waits = json.loads(run("events", "list", "--json"))
    assert gone == {
        "webhook_id": event.webhook_id,
        "key": "app",
        "type": "text_message.cancelled",
        "message_id": str(event.message_id),
        "tries": 1,
        "next_try_at": None,
        "last_answer": "HTTP 500",
    }
    assert waits == gone | {
        "webhook_id": waits["webhook_id"],
        "message_id": str(message.id),
        "tries": 0,
        "next_try_at": "2026-03-03T17:00:00.000Z",
        "last_answer": None,
    }
    for limit, found in (("1", [gone]), ("2", [gone, waits]), ("0", [gone, waits])):
        assert json.loads(run("events", "list", "--json", "--limit", limit)) == found
    _, *rows = run("events", "list", "--key", "app").splitlines()
    assert [re.split("  +", row)[-2:] for row in rows] == [
        ["given up", "HTTP 500"],
        ["2026-03-03T17:00:00.000Z", "-"],
    ]
    assert run("events", "retry", "--key", "app") == "1 event to be sent again\n"
    again = json.loads(run("events", "list", "--json"))[0]
    assert (again["webhook_id"], again["tries"]) == (event.webhook_id, 0)
    assert again["next_try_at"] is not None


def test_events_of_a_revoked_key_are_listed_and_retried_by_its_name(run, app_key):
    """As stats counts them, whatever key has the name now."""
    EventAddress.set(app_key, URL, TUESDAY_NOON)
    event = given_up(app_key)
    run("keys", "revoke", "app")
    run("keys", "create", "app")
    (listed,) = json.loads(run("events", "list", "--key", "app", "--json"))
    assert listed["webhook_id"] == event.webhook_id
    assert run("events", "retry", "--key", "app") == "1 event to be sent again\n"
    assert Event.backlogs()[app_key.id].waiting == 1


# Many


@pytest.fixture
def many(app_key, monkeypatch):
    """Store 45 events, which wait or were given up, and are changed 10 at a time."""
    monkeypatch.setattr(database, "FEW", 10)
    EventAddress.set(app_key, URL, TUESDAY_NOON)

    def store_events(**state):
        row = {"webhook_id": "evt", "key": app_key, "message_id": new_id(TUESDAY_NOON)}
        Event.insert_many([row | {"at": TUESDAY_NOON, "body": "{}"} | state] * 45).execute()

    return store_events


@pytest.fixture
def interrupted(flask, database_url):
    """Interrupt a command after its third change of events.

    Return how many events others saw waiting after each of these, and in the end.
    """
    seen = []

    def waiting():
        return look(database_url, "SELECT COUNT(*) FROM event WHERE next_try_at IS NOT NULL")[0][0]

    def interrupt(statement):
        if statement.sql.startswith('UPDATE "event" '):
            seen.append(waiting())
            if len(seen) == 3:
                raise KeyboardInterrupt

    def run_in_part(*words):
        db.query_hooks.append(interrupt)
        assert flask(*words).exit_code == 1
        db.query_hooks.clear()
        return [*seen, waiting()]

    yield run_in_part
    db.query_hooks.clear()


@on_both
def test_many_are_given_up_in_batches_and_the_rest_if_the_command_is_run_again(
    run, many, interrupted, app_key
):
    """Others write between them."""
    many(next_try_at=TUESDAY_NOON)
    words = "keys", "events", "app", "--off"
    assert interrupted(*words) == [45, 25, 15, 15]
    assert "30 given up" in run("keys", "events", "app")
    assert "0 waiting, 45 given up" in run(*words)
    assert [each.what for each in Audit.select()].count(Action.STOPPED_EVENTS) == 1


@on_both
def test_many_are_retried_in_batches_and_the_rest_if_the_command_is_run_again(
    run, many, interrupted, app_key
):
    many(given_up_at=TUESDAY_NOON)
    assert interrupted("events", "retry") == [0, 10, 20, 20]
    assert run("events", "retry") == "25 events to be sent again\n"
    assert Event.backlogs()[app_key.id][:2] == (45, 0)
    retried = Audit.select().where(Audit.what == Action.RETRIED_EVENTS)
    assert [each.count for each in retried] == [10, 10, 10, 10, 5]
    assert run("audit").count("events retried") == 2, "a row for each time"


@on_both
def test_what_a_receiver_has_switched_off_is_given_up_a_batch_in_each_pass(many, app_key):
    many(next_try_at=TUESDAY_NOON)
    assert EventAddress.switch_off(app_key.id, "410", TUESDAY_NOON, URL)
    assert Event.backlogs()[app_key.id][:2] == (35, 10)
    assert [Event.give_up(TUESDAY_NOON) for _ in range(5)] == [10, 10, 10, 5, 0]


def test_stats_and_metrics_count_events_by_key(run, flask, app_key, settings):
    EventAddress.set(app_key, URL, TUESDAY_NOON)
    given_up(app_key)
    decide_on(store(key=app_key)).cancel("shell", TUESDAY_NOON)
    line = "events of app: 1 waiting since 2026-03-03T17:00:00.000Z, 1 given up\n"
    assert line in flask("stats").stdout
    assert json.loads(run("stats", "--json"))["events"] == {
        "app": {"waiting": 1, "given_up": 1, "oldest": "2026-03-03T17:00:00.000Z"}
    }
    client = create_app(settings._replace(metrics_token="a token")).test_client()
    metrics = client.get("/metrics", headers={"Authorization": "Bearer a token"}).text
    assert 'text_messages_events_waiting{key="app"} 1.0' in metrics
    assert 'text_messages_events_given_up{key="app"} 1.0' in metrics
    assert 'text_messages_events_oldest_seconds{key="app"}' in metrics
