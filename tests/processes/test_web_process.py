"""The web server as it really runs: gunicorn with two workers, spoken to over sockets."""

import json
import re
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from answers import FIELDS, PATH, error_in
from databases import on_both
from running import ALWAYS, ask, post, read_all
from samples import NEW_YORK
from stored_messages import look, store_history
from texting.access.keys import ApiKey
from texting.access.limits import parse
from texting.database import clock
from texting.messages.model import Message

TEXT = "the-text-of-a-message"
VALID = {"to": NEW_YORK, "message": TEXT}
BODY = json.dumps(VALID).encode()
CHUNKED = b"Transfer-Encoding: chunked"


@pytest.fixture
def web(serve, database_url, optional_settings):
    return serve(database_url, workers=2, LOG_LEVEL="DEBUG", **optional_settings)


def exchange(port, request, half_close=False):
    """Send bytes over a fresh connection; return all that is received until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def request_of(key, *headers, line=f"POST {PATH} HTTP/1.1", body=BODY, length=None, **others):
    """Return the bytes of a request, valid unless changed; None leaves a header out."""
    usual = {
        "Host": "localhost",
        "X-Api-Key": key,
        "Content-Type": "application/json",
        "Content-Length": None if CHUNKED in headers else len(body) if length is None else length,
        "Connection": "close",
    } | {name.replace("_", "-"): value for name, value in others.items()}
    lines = [
        f"{name}: {value}".encode("latin-1") for name, value in usual.items() if value is not None
    ]
    return b"\r\n".join([line.encode("latin-1"), *lines, *headers]) + b"\r\n\r\n" + body


def chunks(*parts, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


# A request's changes, and the statuses of the answers
OURS = {
    "as it should be": ({}, [], [201]),
    "HTTP/1.0": ({"line": f"POST {PATH} HTTP/1.0", "Host": None}, [], [201]),
    "an address in full": ({"line": f"POST http://evil{PATH} HTTP/1.1"}, [], [201]),
    "an odd host": ({"Host": "a b/../<x>:99999"}, [], [201]),
    "no host at all": ({"Host": ".a"}, [], [400]),
    "a host of other bytes": ({"Host": "\xff\xfe"}, [], [201]),
    "a query": ({"line": f"POST {PATH}?to=1&api_key=KEY HTTP/1.1"}, [], [201]),
    "Expect: 100-continue": ({"Expect": "100-continue"}, [], [100, 201]),
    "an upgrade": ({"Upgrade": "h2c", "HTTP2_Settings": "AAMAAABk"}, [], [201]),
    "in chunks": ({"body": chunks(BODY[:9], BODY[9:])}, [CHUNKED], [201]),
    "chunks with a trailer": ({"body": chunks(BODY, end=b"0\r\nX-A: b\r\n\r\n")}, [CHUNKED], [201]),
    "64 KiB in a chunk": ({"body": chunks(BODY.ljust(65_536))}, [CHUNKED], [201]),
    "a byte more in a chunk": ({"body": chunks(BODY.ljust(65_537))}, [CHUNKED], [413]),
    "a byte more in chunks": ({"body": chunks(*[BODY.ljust(8192)] * 8, b" ")}, [CHUNKED], [413]),
    "64 KiB": ({"body": BODY.ljust(65_536)}, [], [201]),
    "a byte more": ({"body": BODY.ljust(65_537)}, [], [413]),
    "more announced than sent": ({"length": 1000}, [], [400]),
    "too much announced, nothing sent": ({"length": 10**12, "body": b""}, [], [413]),
    "no length": ({"Content_Length": None}, [], [400]),
    "nothing": ({"body": b""}, [], [400]),
    "bad chunks": ({"body": f"{TEXT}\r\n".encode() + chunks(BODY)}, [CHUNKED], [400]),
    "chunks cut short": ({"body": chunks(BODY)[:-20]}, [CHUNKED], [400]),
    "a bad trailer": ({"body": chunks(BODY, end=b"0\r\nX A: b\r\n\r\n")}, [CHUNKED], [400]),
    "a gzipped body": ({"body": b"\x1f\x8b\x08\x00", "Content_Encoding": "gzip"}, [], [400]),
    "no key": ({"X_Api_Key": None}, [], [401]),
    "a key of other bytes": ({"X_Api_Key": "\xff\xfe"}, [], [401]),
    "two keys": ({}, [b"X-Api-Key: x"], [401]),
    "a key with underscores": ({"X_Api_Key": None}, [b"X_Api_Key: KEY"], [401]),
    "no key, and no body": ({"X_Api_Key": "x", "body": b"", "length": 9}, [], [401]),
    "another method": ({"line": f"PATCH {PATH} HTTP/1.1"}, [], [405]),
    "a method of no standard": ({"line": f"FOO {PATH} HTTP/1.1"}, [], [405]),
    "TRACE": ({"line": f"TRACE {PATH} HTTP/1.1"}, [], [405]),
    "another by a header": ({"line": f"GET {PATH} HTTP/1.1"}, [b"X-HTTP-Method: POST"], [405]),
    "another path": ({"line": "POST /v1/text-message HTTP/1.1"}, [], [404]),
    "a path with U+0000": ({"line": f"POST {PATH}%00 HTTP/1.1"}, [], [404]),
    "a path with two slashes": ({"line": "POST /v1//text-messages HTTP/1.1"}, [], [404]),
    "a path out of here": ({"line": "GET /../../etc/passwd HTTP/1.1"}, [], [404]),
    "OPTIONS *": ({"line": "OPTIONS * HTTP/1.1"}, [], [404]),
    "CONNECT": ({"line": "CONNECT evil:443 HTTP/1.1"}, [], [404]),
    "a long header": ({}, [b"X-A: " + b"x" * 4_000], [201]),
    "many headers": ({}, [b"X-%d: x" % n for n in range(30)], [201]),
    "a method for a carrier": ({"line": "FOO /carriers/x/status HTTP/1.1"}, [], [403]),
    "a name of a carrier": ({"line": "POST /carriers/x HTTP/1.1"}, [], [403]),
    "forged mounts": (
        {"line": f"POST /x{PATH} HTTP/1.1"},
        [b"SCRIPT_NAME: /x", b"Script-Name: /x", b"X-Forwarded-Prefix: /x", b"PATH_INFO: /v1"],
        [404],
    ),
    "forged origins": (
        {"X_Forwarded_Host": "evil", "X_Forwarded_Proto": "https", "Forwarded": "host=evil"},
        [b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Ssl: on", b"REMOTE_USER: root"],
        [201],
    ),
}

# What is not HTTP gets the same body, and is logged without what was sent
GUNICORNS = {
    "U+0000 in a header": ({"X_Api_Key": "KEY\0"}, [], 400),
    "a header's name with a space": ({}, [b"X A: KEY"], 400),
    "a header without a colon": ({}, [b"KEY"], 400),
    "a folded header": ({}, [b"X-A: b\r\n KEY"], 400),
    "two hosts": ({}, [b"Host: KEY"], 400),
    "a negative length": ({"length": -5}, [], 400),
    "a signed length": ({"length": "+5"}, [], 400),
    "two lengths": ({}, [b"Content-Length: 5"], 400),
    "length and chunks": ({"Content_Length": 5, "body": chunks(BODY)}, [CHUNKED], 400),
    # As RFC 9112 has it
    "an unknown coding": ({"body": chunks(BODY)}, [b"Transfer-Encoding: KEY"], 501),
    "a huge header": ({}, [b"X-A: " + b"KEY" * 100], 431),
    "too many headers": ({}, [b"X-%d: KEY" % n for n in range(40)], 431),
    "a huge line": ({"line": f"POST {PATH}?{'KEY' * 3_000} HTTP/1.1"}, [], 414),
    "HTTP/2.0": ({"line": f"POST {PATH}?KEY HTTP/2.0"}, [], 400),
    "a method in lower case": ({"line": f"post {PATH}?KEY HTTP/1.1"}, [], 400),
    "a space in the address": ({"line": f"POST {PATH}?KEY x HTTP/1.1"}, [], 400),
    "an expectation": ({"Expect": "KEY"}, [], 417),
    "a line of a proxy": ({"line": f"PROXY TCP4 KEY\r\nPOST {PATH} HTTP/1.1"}, [], 400),
}


def with_key(request, key):
    """Replace KEY by the key."""
    return request.replace(b"KEY", key.encode())


def answers_in(received):
    """Return the answers in received bytes: status, headers, body."""
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = int(headers.get("content-length", 0))
        found.append((int(line.split()[1]), headers, rest[:length].decode()))
        received = rest[length:]
    return found


@pytest.mark.options
def test_every_request_gets_the_documented_answer_and_leaves_no_secret_in_the_log(
    web, key, database_url
):
    for name, (changes, headers, statuses) in OURS.items():
        request = with_key(request_of(key, *headers, **changes), key)
        answers = answers_in(
            exchange(web.port, request, half_close="length" in changes or "cut" in name)
        )
        assert [status for status, _, _ in answers] == statuses, name
        status, received, text = answers[-1]
        assert received["content-type"] == "application/json", name
        if status == 201:
            assert list(json.loads(text)) == FIELDS
        else:
            error_in(status, received["content-type"], text)
        assert ("allow" in received) == (status == 405)
        assert ("www-authenticate" in received) == (status == 401)
    created = sum(201 in statuses for _, _, statuses in OURS.values())
    assert look(database_url, "SELECT count(*) FROM message") == [(created,)]

    for name, (changes, headers, status) in GUNICORNS.items():
        request = with_key(request_of(key, *headers, **changes), key)
        received = exchange(web.port, request)
        assert received.startswith(b"HTTP/1.1 %d " % status), name
        ((_, received, text),) = answers_in(received)
        error_in(status, received["content-type"], text)
        assert received["connection"] == "close"
        assert received["x-content-type-options"] == "nosniff"
        assert received["cache-control"] == "no-store"
        assert f" web {received['x-request-id']} answered {status} to key -" in web.output, name
        assert "KEY" not in text
        assert key[8:] not in text
    for cut in (50, 80, 120, 200):  # a client that goes away in the middle of its headers
        exchange(web.port, request_of(key)[:cut], half_close=True)
    exchange(web.port, f"\x16\x03\x01 {key}".encode(), half_close=True)
    unread = f"{TEXT}\r\n".encode()  # what is wrong in it turns up after the 401
    exchange(web.port, request_of("wrong", CHUNKED, body=unread, Connection=None), half_close=True)
    assert look(database_url, "SELECT count(*) FROM message") == [(created,)]

    assert web.terminate() == 0
    log = web.output
    assert len(re.findall(r" INFO web .*\bmessage \S+ (?:queued|scheduled)$", log, re.M)) == created
    for secret in (key, key[8:40], NEW_YORK, NEW_YORK[1:], TEXT):
        assert secret not in log


def test_two_requests_sent_at_once_get_two_answers_in_order(shared_web):
    web, key = shared_web
    first = request_of(key, Connection=None, body=b"{}")
    unknown = request_of("x", Connection=None)
    answers = answers_in(exchange(web.port, first + unknown + request_of(key)))
    assert [status for status, _, _ in answers] == [400, 401, 201]


def test_a_body_that_hides_a_request_is_never_taken_for_one(shared_web):
    web, key = shared_web
    hidden = request_of(key)
    for outer in (
        request_of(key, body=hidden),
        request_of("wrong", body=hidden),
        request_of(key, line="POST /nowhere HTTP/1.1", body=hidden),
        request_of(key, CHUNKED, body=chunks(hidden)),
    ):
        assert len(answers_in(exchange(web.port, outer))) == 1
    assert not Message.select().exists()


@pytest.mark.parametrize(("words", "status"), [(("revoke",), 401), (("limit", "1/d"), 429)])
def test_a_change_of_a_key_holds_in_every_process_within_a_second(
    serve, database_url, key, run, words, status
):
    webs = [serve(database_url, **ALWAYS) for _ in range(2)]

    def statuses():
        """The statuses of answers by both workers of both webs."""
        return {post(web, key, VALID).status for web in webs * 12}

    assert statuses() == {201}
    command, *limit = words
    run("keys", command, "app", *limit)
    post(webs[0], key, VALID)  # uses the limit up
    time.sleep(1)
    assert statuses() == {status}


def test_a_stage_is_served_below_its_prefix_and_nowhere_else(serve, database_url, key):
    web = serve(database_url, SCRIPT_NAME="/staging")
    for _ in range(4):  # of both workers
        response = post(web, key, VALID, f"/staging{PATH}")
        assert response.status == 201
        assert list(json.loads(response.text)) == FIELDS
        for path in (PATH, "/", "/staging", "/stagingx" + PATH, f"/dev{PATH}", f"/Staging{PATH}"):
            response = post(web, key, VALID, path)
            error_in(404, response.headers["Content-Type"], response.text)
    ((status, headers, text),) = answers_in(exchange(web.port, b"no HTTP\r\n\r\n"))
    error_in(status, headers["content-type"], text)
    assert status == 400


def test_a_repeat_gets_its_first_answer_from_every_process(serve, database_url, key):
    """Also from one that starts later."""

    def answers(web):
        """Post a request twenty times at once; return the distinct answers."""
        with ThreadPoolExecutor(20) as pool:
            name = {"Idempotency-Key": "order-1"}
            return {
                each.text for each in pool.map(lambda _: post(web, key, VALID, **name), "x" * 20)
            }

    first = answers(serve(database_url))
    assert len(first) == 1
    assert answers(serve(database_url)) == first
    assert Message.select().count() == 1


def test_commands_leave_no_metrics_behind(start, database_url, tmp_path):
    environ = {"DATABASE_URL": database_url, "METRICS_TOKEN": "a token of tests"}
    environ["TMPDIR"] = str(tmp_path)
    assert start("flask", "keys", "list", **environ).wait() == 0
    assert not list(tmp_path.glob("metrics-*"))


def test_metrics_are_summed_over_the_workers_and_read_from_the_database(
    database_url, serve, key, tmp_path
):
    store_history()
    folder = tmp_path / "metrics"
    web = serve(
        database_url, METRICS_TOKEN="ein tökén, lang genug", PROMETHEUS_MULTIPROC_DIR=str(folder)
    )
    token = "ein tökén, lang genug".encode().decode("latin-1")  # as http.client takes octets
    for _ in range(40):  # each on a connection of its own, so that both workers get some
        assert post(web, key, VALID).status == 201
    for _ in range(4):
        response = ask(web, "GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        assert response.headers["Content-Type"].startswith("text/plain")
        values = dict(re.findall(r"^([^#\s]+) (\S+)$", response.text, re.M))
        assert values['http_request_duration_seconds_count{status="201"}'] == "40.0"
        waiting = [float(values[f'text_messages{{status="{s}"}}']) for s in ("scheduled", "queued")]
        assert sum(waiting) == 40 + 4  # those posted here, and the history's
        assert values["text_messages_awaiting_approval"] == "1.0"


# Limits over several processes


def flood(webs, secret, seconds):
    """Post from 16 clients of each web for some seconds; return the statuses."""
    ends_at = time.monotonic() + seconds

    def run(number):
        statuses = Counter()
        while time.monotonic() < ends_at:
            answer = post(webs[number % len(webs)], secret, VALID)
            statuses[answer.status] += 1
            if answer.status == 429:
                assert int(answer.headers["Retry-After"]) >= 1
                time.sleep(0.1)  # the load is the gunicorns', not ours
        return statuses

    with ThreadPoolExecutor(16 * len(webs)) as pool:
        return sum(pool.map(run, range(16 * len(webs))), Counter())


@on_both
@pytest.mark.parametrize(
    ("names", "limits", "environ", "most"),
    [
        (["shop"], "30/d", {}, 30),
        (["shop", "bank", "club"], "", {"RECIPIENT_LIMIT": "7/1h"}, 7),
    ],
    ids=["of a key", "of a number"],
)
def test_two_gunicorns_accept_never_one_more(database_url, serve, names, limits, environ, most):
    now = clock.now()
    secrets = [ApiKey.issue(name, None, now, limits=parse(limits)) for name in names]
    webs = [serve(database_url, **environ, **ALWAYS) for _ in range(2)]
    with ThreadPoolExecutor(len(secrets)) as pool:
        floods = sum(pool.map(lambda secret: flood(webs, secret, 1), secrets), Counter())
    assert floods.keys() == {201, 429}
    assert Message.select().count() == floods[201] == most
