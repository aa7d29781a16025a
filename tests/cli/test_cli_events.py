"""`flask keys events` and `flask events`: where a key's events go, and how they stand."""

import json

import pytest

from access.keys import ApiKey
from database import clock
from events.outbox import Event, EventAddress
from samples import HOUR, NEW_YORK, TUESDAY_NOON
from stored_messages import store

URL = "https://shop.example.com:8443/events?of=app"
SHOWN = "https://shop.example.com:8443/events?of=***"


@pytest.fixture
def app_key(key):
    return ApiKey.named("app")


def given_up(key):
    """An event that was tried in vain and given up."""
    store(key=key).cancel("shell", TUESDAY_NOON)
    (event,) = Event.claim(key.id, 1, TUESDAY_NOON, TUESDAY_NOON + HOUR, None)
    event.failed("HTTP 500", None, TUESDAY_NOON)
    return event


def test_an_address_is_set_shown_switched_off_and_set_again(run, app_key):
    assert run("keys", "events", "app", URL) == f"app: {SHOWN} (on)\n0 waiting, 0 given up\n"
    store(key=app_key).cancel("shell", TUESDAY_NOON)
    assert run("keys", "events", "app") == f"app: {SHOWN} (on)\n1 waiting, 0 given up\n"
    off = f"app: {SHOWN} (switched off: by an operator)\n0 waiting, 1 given up\n"
    assert run("keys", "events", "app", "--off") == off
    assert run("keys", "events", "app", URL) == f"app: {SHOWN} (on)\n0 waiting, 1 given up\n"


def test_the_secret_is_printed_alone_and_changed_by_rotate(run, app_key):
    run("keys", "events", "app", URL)
    secret = run("keys", "events", "app", "--secret")
    assert secret == f"{EventAddress.get().secret}\n"
    assert secret.startswith("whsec_")
    assert "also signed with the old secret until" in run("keys", "events", "app", "--rotate")
    assert run("keys", "events", "app", "--secret") not in (secret, "\n")
    assert secret.strip() == EventAddress.get().old_secret


def test_a_key_is_created_with_an_address(run):
    secret = run("keys", "create", "shop", "--events", URL)
    assert ApiKey.authenticate(secret.strip(), clock.now()).name == "shop"
    assert EventAddress.of(ApiKey.named("shop")).url == URL


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


@pytest.mark.parametrize(
    "address",
    [
        *("http://localhost", "https://[::1]:8443/x", "http://10.0.0.1:1/?a=b&c=%20", URL),
        *("https://me:pass@shop.example.com/events", "HTTPS://Shop.Example.com/"),
    ],
)
def test_any_other_address_is_taken(run, app_key, address):
    run("keys", "events", "app", address)
    assert EventAddress.get().url == address


def test_what_cannot_be_done_gets_one_line(refused, run, app_key):
    assert "no key named" in refused("keys", "events", "nobody", URL)
    for option in ((), ("--off",), ("--secret",), ("--rotate",)):
        assert refused("keys", "events", "app", *option) == ("Error: app has no address for events")
    assert "one option" in refused("keys", "events", "app", "--off", "--rotate", status=2)
    assert "one option" in refused("keys", "events", "app", URL, "--off", status=2)
    assert "no key named" in refused("events", "list", "--key", "nobody")
    run("keys", "events", "app", URL)
    run("keys", "events", "app", "--off")
    assert "switched off: by an operator" in refused("events", "retry", "--key", "app")


def test_keys_are_listed_with_their_events(run, app_key):
    ApiKey.issue("other", "sales", clock.now())
    run("keys", "events", "app", URL)
    given_up(app_key)
    store(key=app_key).cancel("shell", TUESDAY_NOON)
    app, other = json.loads(run("keys", "list", "--json"))
    assert app["name"] == "app"
    assert app["events"] == {"url": SHOWN, "off": None, "waiting": 1, "given_up": 1}
    assert (other["name"], other["group"]) == ("other", "sales")
    assert other["events"] == {"url": None, "off": None, "waiting": 0, "given_up": 0}
    run("keys", "events", "app", "--off")
    assert json.loads(run("keys", "list", "--json"))[0]["events"] == {
        **{"url": SHOWN, "off": "by an operator", "waiting": 0, "given_up": 2}
    }


def test_what_waits_and_what_was_given_up_is_listed_and_retried(run, app_key):
    EventAddress.set(app_key, URL, TUESDAY_NOON)
    event = given_up(app_key)
    message = store(key=app_key)
    message.cancel("shell", TUESDAY_NOON)
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
    assert waits["message_id"] == str(message.id)
    assert (waits["tries"], waits["last_answer"]) == (0, None)
    assert waits["next_try_at"] == "2026-03-03T17:00:00.000Z"
    table = run("events", "list", "--key", "app")
    assert "given up" in table
    assert "HTTP 500" in table
    assert NEW_YORK not in table
    assert run("events", "retry", "--key", "app") == "1 event to be sent again\n"
    assert run("events", "retry") == "0 events to be sent again\n"
    again = json.loads(run("events", "list", "--json"))[0]
    assert (again["webhook_id"], again["tries"]) == (event.webhook_id, 0)
    assert again["next_try_at"] is not None


def test_without_events_there_is_an_empty_array(run, app_key):
    assert json.loads(run("events", "list", "--json")) == []


def test_stats_and_metrics_count_events_by_key(run, flask, app_key, settings):
    from app import create_app

    EventAddress.set(app_key, URL, TUESDAY_NOON)
    given_up(app_key)
    store(key=app_key).cancel("shell", TUESDAY_NOON)
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
