"""Errors: one body on every path, without internal details."""

import contextlib
import logging
import shutil
from pathlib import Path

import peewee
import psycopg
import pytest
from werkzeug.exceptions import default_exceptions

from answers import PATH, accepted, problems, refusal, sender
from app import create_app
from databases import END_OTHER_CONNECTIONS, on_both, on_postgres
from samples import NEW_YORK, VALID
from stored_messages import connection_of
from texting import database
from texting.access import keys
from texting.access.limits import parse
from texting.database import clock, pool
from texting.messages.model import Message
from texting.messages.storing import queue
from texting.recipients.hours import BusinessHours
from texting.web.requests import add_request_id

pytestmark = pytest.mark.options
SECRET = "secret-2125550123"
WERKZEUGS = {kind.description for kind in default_exceptions.values()}
"""Words for people with a browser, of servers and URLs."""


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/", "/v2/text-messages", "/V1/text-messages", "/v1/Text-messages"),
        *("/v1//text-messages", f"{PATH}/", f"{PATH}/x", f"{PATH}.json"),
        *(f"{PATH}%00", f"{PATH}%2F", "/v1/../v1/text-messages", "/%ff%fe"),
        *("/static/app.py", "/app.py", "/.env", "/messages.db", "/favicon.ico", "/" + "x" * 20_000),
        *("/v1/text-messages;a=b", "/%E2%82%AC", "/<script>alert(1)</script>", "/%0d%0aX: y"),
    ],
    ids=lambda path: path[:30],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_404(path, method, client):
    response = client.open(path, method=method, json=VALID)
    refusal(response, 404)
    assert response.json["message"] not in WERKZEUGS
    assert "<" not in response.text
    assert "Location" not in response.headers


@pytest.mark.parametrize("path", [f"{PATH}/019cb4b5-1080-7d2c-9e4f-3a1f0b8d5c11", f"{PATH}/x"])
def test_who_asks_for_a_message_is_told_where_to_learn_of_it(path, client):
    told = client.get(path)
    assert told.status_code == 404
    for place in ("events", "desk", "flask messages show"):
        assert place in told.json["message"]
    assert "desk" not in client.get("/v1/messages/x").json["message"]


@pytest.mark.parametrize(
    "method", ["GET", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "FOO"]
)
def test_a_wrong_method_is_405_and_says_which_are_right(method, client, key):
    environ = {"REQUEST_METHOD": method, "HTTP_X_API_KEY": key}
    response = client.open(PATH, environ_overrides=environ)
    refusal(response, 405)
    assert response.json["message"] not in WERKZEUGS
    assert response.allow == {"OPTIONS", "POST"}


def test_head_has_the_headers_of_an_error_and_no_body(client):
    response = client.head(PATH)
    assert (response.status_code, response.data) == (405, b"")
    assert response.headers["Content-Type"] == "application/json"
    assert response.allow == {"OPTIONS", "POST"}
    assert client.head("/nowhere").status_code == 404


def test_health_answers_only_get_and_head(client):
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.json["status"] == "ok"
    head = client.head("/healthz")
    assert (head.status_code, head.data) == (200, b"")
    refused = client.post("/healthz")
    refusal(refused, 405)
    assert refused.allow == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize(
    ("status", "announced"),
    [
        *((413, length) for length in ("65537", "99999999999999999999", "0" * 100 + "65537")),
        *((400, length) for length in ("-1", "1e3", "abc", "\xb2")),
    ],
)
def test_a_content_length_is_checked_before_the_body_is_read(status, announced, client, key):
    environ = {"HTTP_X_API_KEY": key, "CONTENT_LENGTH": announced}
    refusal(client.post(PATH, environ_overrides=environ), status)


def test_a_body_shorter_than_announced_is_400(client, key):
    body = b'{"to": "+12125550123", "message": "Hello"}'
    environ = {"HTTP_X_API_KEY": key, "CONTENT_LENGTH": "100", "wsgi.input_terminated": True}
    response = client.post(
        PATH, data=body, content_type="application/json", environ_overrides=environ
    )
    assert problems(response) == ["body: is shorter than announced"]
    assert Message.select().count() == 0


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, RecursionError, OSError])
def test_an_unexpected_error_is_500_without_details(error, post, monkeypatch, caplog):
    def fail(*_):
        raise error(SECRET)

    caplog.set_level(logging.DEBUG)
    with monkeypatch.context() as patch:
        patch.setattr(BusinessHours, "facts", fail)
        response = post(message=SECRET)
    refusal(response, 500)
    assert SECRET not in response.text
    assert error.__name__ not in response.text
    assert SECRET not in caplog.text
    assert error.__name__ in caplog.text
    assert "create_text_message" in caplog.text  # where it happened
    accepted(post())


@pytest.mark.parametrize(
    ("error", "status", "logged"),
    [
        (peewee.OperationalError, 503, True),
        (peewee.InterfaceError, 503, True),
        (peewee.DatabaseError, 503, True),
        (peewee.DataError, 503, False),  # it may quote a message's text
        (RuntimeError, 500, False),
    ],
)
@on_both
def test_a_database_error_fails_one_request_and_the_next_is_served(
    error, status, logged, post, monkeypatch, caplog
):
    def refuse(*_):
        raise error(SECRET)

    with monkeypatch.context() as patch:
        patch.setattr(queue, "insert_all", refuse)
        response = post()
    refusal(response, status)
    assert SECRET not in response.text
    assert (SECRET in caplog.text) == logged
    accepted(post())
    assert Message.select().count() == 1


@pytest.fixture
def settings_of(loaded):
    """The default settings with another database."""
    yield lambda url: loaded()._replace(database_url=url)
    database.disconnect()


@pytest.fixture
def unmigrated(empty_database_url, settings_of):
    return create_app(settings_of(empty_database_url)).test_client()


@on_both
def test_requests_that_need_missing_tables_are_503(unmigrated):
    refusal(unmigrated.get("/healthz"), 503)
    refusal(sender(unmigrated, "any")(), 503)
    refusal(unmigrated.post(PATH, json=VALID), 401)
    refusal(unmigrated.get(PATH), 405)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////nowhere/at/all/messages.db",
        "sqlite:////proc/messages.db",
        "sqlite:////tmp",
        "sqlite:///damaged.db",
        "postgresql://user:password@127.0.0.1:1/nothing",
        "postgresql:///nothing?host=/nowhere",
    ],
)
def test_a_database_that_cannot_be_reached_is_503(url, settings_of, caplog, tmp_path):
    (tmp_path / "damaged.db").write_bytes(b"this is no database" * 100)
    client = create_app(settings_of(url)).test_client()
    for _ in range(2):
        refusal(client.get("/healthz"), 503)
        refusal(sender(client, "any")(), 503)
    assert caplog.text.count("the database failed") == 4
    assert "password" not in caplog.text


@pytest.mark.parametrize("limits", ["", "100/d"])
@on_both
def test_a_missing_table_is_503_until_it_is_back(database_url, client, limits):
    post = sender(client, keys.ApiKey.issue("app", None, clock.now(), limits=parse(limits)))
    accepted(post())
    with contextlib.closing(connection_of(database_url)) as connection:
        connection.execute("ALTER TABLE message RENAME TO hidden")
        refusal(post(), 503)
        refusal(client.get("/healthz"), 503)
        connection.execute("ALTER TABLE hidden RENAME TO message")
    accepted(post())
    assert client.get("/healthz").status_code == 200


@on_postgres
def test_a_dead_pooled_connection_is_replaced_unnoticed(database_url, post):
    accepted(post())
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(END_OTHER_CONNECTIONS)
    accepted(post())


def allow_connections(server, name):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@on_both
def test_a_removed_database_is_503(empty_database_url, settings_of, postgres):
    client = create_app(settings_of(empty_database_url)).test_client()
    database.upgrade()
    post = sender(client, keys.ApiKey.issue("app", None, clock.now()))
    accepted(post())
    if empty_database_url.startswith("sqlite:"):
        database.disconnect()
        shutil.rmtree(Path(empty_database_url.removeprefix("sqlite:///")).parent)
    else:
        name = psycopg.conninfo.conninfo_to_dict(empty_database_url)["dbname"]
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60_000) FROM pg_stat_activity WHERE datname = %s",
                (name,),
            )
    refusal(client.get("/healthz"), 503)
    refusal(post(), 503)


def test_a_locked_database_is_503(database_url, post, monkeypatch):
    monkeypatch.setattr(pool, "PATIENCE", 0.1)
    accepted(post())
    with contextlib.closing(connection_of(database_url)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        refusal(post(), 503)
        connection.execute("ROLLBACK")
    accepted(post())
    assert Message.select().count() == 2


def test_every_answer_has_its_own_id(post, client):
    answers = (post(), post(), post(to=1), post({"X-Api-Key": "?"}), client.get("/x"))
    assert len({response.headers["X-Request-Id"] for response in answers}) == 5


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/x", 404), ("GET", PATH, 405), ("POST", PATH, 500)]
)
def test_an_errors_line_has_the_id_of_its_answer_and_its_connection_is_released(
    client, key, monkeypatch, caplog, method, path, status
):
    monkeypatch.setattr(BusinessHours, "facts", lambda *_: 1 / 0)
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(add_request_id)  # as the service's own has it
    headers = {"X-Api-Key": key}
    response = client.open(path, method=method, headers=headers, json=VALID)
    caplog.handler.removeFilter(add_request_id)
    assert response.status_code == status
    ids = {record.request_id for record in caplog.records if record.name == "web"}
    assert ids == {response.headers["X-Request-Id"]}
    assert database.db.is_closed()


def test_a_refused_request_is_logged_with_its_key_and_fields_only(post, caplog):
    caplog.set_level(logging.INFO)
    response = post(to="+1 212 555 0123", message="", send_dat="attack at dawn", **{"a\nb": 1})
    assert response.status_code == 400
    (line,) = [record for record in caplog.records if record.name == "web"]
    assert line.getMessage() == "answered 400 to key app about message,to"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/x+12125550123", 404), ("GET", PATH, 405), ("POST", PATH, 401)],
)
def test_a_refused_request_without_a_key_is_logged_too(client, caplog, method, path, status):
    caplog.set_level(logging.INFO)
    headers = {"X-Api-Key": SECRET}
    client.open(path, method=method, headers=headers, json={"to": NEW_YORK, "message": "Hello"})
    (line,) = [record for record in caplog.records if record.name == "web"]
    assert line.getMessage() == f"answered {status} to key -"
