"""API keys: permission to send, and visibility of messages."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from answers import PATH, accepted, refusal, sender
from query_plans import plans
from samples import HOUR, TUESDAY_NOON, VALID
from stored_messages import look
from texting.access.keys import ApiKey, Role, digest_of
from texting.access.sign_ins import SignIn
from texting.database import Refused, clock, db
from texting.messages.model import Message


@pytest.fixture
def knock(client):
    """Send a valid request with these headers, named as in WSGI's environment."""
    return lambda **headers: client.post(
        PATH, json=VALID, environ_overrides={f"HTTP_{name}": text for name, text in headers.items()}
    )


@pytest.fixture
def create(flask):
    """Create a key by the command; return its secret."""
    return lambda *words: flask("keys", "create", *words).stdout.strip()


@pytest.fixture
def visible_to(flask):
    """List the texts that a key may see, by the command."""

    def names(key):
        listed = json.loads(flask("messages", "list", "--visible-to", key, "--json").stdout)
        return sorted(message["message"] for message in listed)

    return names


@pytest.mark.parametrize(
    "headers",
    [
        {"X_API_KEY": "{}"},
        {"AUTHORIZATION": "Bearer {}"},
        {"AUTHORIZATION": "bearer {}"},
        {"AUTHORIZATION": "BEARER   {}  "},
        {"X_API_KEY": "{}", "AUTHORIZATION": "Bearer wrong"},
        {"X_API_KEY": "{}", "AUTHORIZATION": "Basic dXNlcjpwYXNz"},
        {"X_API_KEY": "{}", "AUTHORIZATION": ""},
    ],
    ids=str,
)
def test_a_key_is_taken_from_either_header(headers, knock, key):
    accepted(knock(**{name: text.format(key) for name, text in headers.items()}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_API_KEY": ""},
        {"X_API_KEY": " "},
        {"X_API_KEY": "wrong"},
        {"X_API_KEY": "Bearer {}"},
        {"X_API_KEY": "{},{}"},
        {"X_API_KEY": "{}x"},
        {"X_API_KEY": "x" * 60_000},
        {"X_API_KEY": "\xff\xfe\x80"},
        {"X_API_KEY": "{}\xa0"},
        {"X_API_KEY": "\0"},
        {"X_API_KEY": "' OR 1=1 --"},
        {"X_API_KEY": "", "AUTHORIZATION": "Bearer {}"},
        {"X_API_KEY": "wrong", "AUTHORIZATION": "Bearer {}"},
        {"AUTHORIZATION": ""},
        {"AUTHORIZATION": "Bearer"},
        {"AUTHORIZATION": "Bearer "},
        {"AUTHORIZATION": "Bearer: {}"},
        {"AUTHORIZATION": "Bearer\xff {}"},
        {"AUTHORIZATION": "Bearer \xff\xfe"},
        {"AUTHORIZATION": "Token {}"},
        {"AUTHORIZATION": "{}"},
        {"AUTHORIZATION": "Bearer,{}"},
        {"AUTHORIZATION": "Bearer " + "x" * 60_000},
        {"API_KEY": "{}"},
        {"COOKIE": "X-Api-Key={}"},
    ],
    ids=lambda headers: str(headers)[:50],
)
def test_without_a_valid_key_a_request_is_401(headers, knock, key):
    response = knock(**{name: text.replace("{}", key) for name, text in headers.items()})
    refusal(response, 401)
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert key not in response.text
    assert Message.select().count() == 0


def test_the_key_is_checked_before_the_body_is_read(client):
    class Body:
        def read(self, *_):
            raise AssertionError("the body was read")

        readinto = readline = read

    environ = {"wsgi.input": Body(), "CONTENT_LENGTH": "10", "HTTP_X_API_KEY": "wrong"}
    response = client.post(PATH, environ_overrides=environ | {"wsgi.input_terminated": True})
    refusal(response, 401)


def test_what_is_stored_of_a_key_is_no_key_nor_is_a_key_in_the_address(client, knock, key):
    for guess in (key.swapcase(), ApiKey.get().digest):
        refusal(knock(X_API_KEY=guess), 401)
    refusal(client.post(f"{PATH}?api_key={key}&X-Api-Key={key}", json=VALID), 401)


def test_one_statement_that_an_index_serves_finds_a_key(key):
    (plan,) = plans(lambda: ApiKey.authenticate("tms_guess", clock.now()), of_keys=True)
    assert not any(re.search("SCAN|Seq Scan", line) for line in plan)


def test_options_needs_no_key(client):
    response = client.options(PATH)
    assert response.status_code == 200
    assert response.allow == {"OPTIONS", "POST"}
    assert response.data == b""


def test_a_key_is_shown_once_and_only_its_digest_is_kept(create, flask, database_url, knock):
    secret = create("app", "--group", "sales")
    assert re.fullmatch(r"tms_[\w-]{43}", secret)
    accepted(knock(X_API_KEY=secret))
    assert secret not in flask("keys", "list").stdout
    rows = [look(database_url, f'SELECT * FROM "{table}"') for table in db.get_tables()]
    assert digest_of(secret) in str(rows)
    assert secret not in str(rows)
    assert secret.removeprefix("tms_") not in str(rows)


@pytest.fixture
def rotated(create, flask, knock):
    """Rotate a key; `good` returns which of its secrets are good, by their numbers from 0."""
    secrets = [create("app")]

    class Key:
        def rotate(self, overlap):
            result = flask("keys", "rotate", "app", "--overlap", overlap)
            if result.exit_code == 0:
                secrets.append(result.stdout.strip())
            return result

        def good(self):
            return [n for n, each in enumerate(secrets) if knock(X_API_KEY=each).status_code == 201]

    return Key()


@pytest.mark.parametrize("overlap", ["2h", "10m"])
def test_while_an_old_secret_is_good_a_key_is_not_rotated_again(rotated, at, overlap):
    at(TUESDAY_NOON)
    rotated.rotate("1h")
    at(TUESDAY_NOON + HOUR - timedelta(milliseconds=1))
    refused = rotated.rotate(overlap)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert refused.stderr == (
        "Error: the key 'app' was rotated before, and its old secret is valid until "
        "2026-03-03T18:00:00.000Z; --overlap 0 ends all its secrets at once\n"
    )
    assert rotated.good() == [0, 1]
    at(TUESDAY_NOON + HOUR)
    assert rotated.good() == [1]
    assert rotated.rotate(overlap).exit_code == 0
    assert rotated.good() == [1, 2]


def test_without_an_overlap_a_rotation_ends_all_older_secrets_at_once(rotated, flask, at):
    at(TUESDAY_NOON)
    rotated.rotate("1h")
    assert rotated.rotate("0").exit_code == 0
    assert rotated.good() == [2]
    rotated.rotate("1h")
    assert rotated.good() == [2, 3]
    flask("keys", "revoke", "app")
    assert rotated.good() == []


@pytest.mark.parametrize("overlap", [HOUR, timedelta(0)])
def test_of_two_rotations_at_once_one_succeeds(database_url, overlap):
    secret = ApiKey.issue("app", None, TUESDAY_NOON)
    both, together = [ApiKey.named("app")] * 2, threading.Barrier(2)

    def rotate(key):
        together.wait(60)
        try:
            return key.rotate(TUESDAY_NOON + overlap, TUESDAY_NOON)
        except Refused:
            return None
        finally:
            db.close()

    with ThreadPoolExecutor(2) as pool:
        (made,) = filter(None, pool.map(rotate, both))
    assert ApiKey.authenticate(made, TUESDAY_NOON)
    assert bool(ApiKey.authenticate(secret, TUESDAY_NOON)) == bool(overlap)


def test_a_message_is_visible_to_its_key_and_if_marked_to_the_keys_group(
    client, create, visible_to
):
    groups = {"ann": "sales", "bob": "sales", "eve": "support", "sales": "", "alone": ""}
    for name, group in groups.items():
        send = sender(client, create(name, *(["--group", group] if group else [])))
        for marked in (True, False):
            accepted(send(message=f"{name} {marked}", available_to_group=marked))
    assert visible_to("ann") == ["ann False", "ann True", "bob True"]
    assert visible_to("bob") == ["ann True", "bob False", "bob True"]
    assert visible_to("eve") == ["eve False", "eve True"]
    assert visible_to("sales") == ["sales False", "sales True"]
    assert visible_to("alone") == ["alone False", "alone True"]


def test_a_testers_request_is_answered_like_a_senders_and_the_desk_is_closed_to_it(client, post):
    secret = ApiKey.issue("tester", None, clock.now(), role=Role.TESTER)
    answer = post(headers={"X-Api-Key": secret})
    assert answer.status_code == 201
    assert answer.json.keys() == post().json.keys()
    with pytest.raises(Refused, match="tester's key"):
        SignIn.begin(secret, clock.now())
