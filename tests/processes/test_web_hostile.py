"""Clients without a key, or without manners, beside good ones; with a real gunicorn and sockets."""

import contextlib
import itertools
import json
import resource
import select
import signal
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from answers import PATH, error_in
from running import assert_holds_nobody_up, health, read_all, send, wait_until
from samples import VALID
from texting.database import pool

LINES = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
BIG_ANSWER = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: x\r\n\r\n"
BIG_FIELD = b"X-A: " + b"a" * 8_000 + b"\r\n"
MOST_FIELDS = b"".join(b"X-%d: %s\r\n" % (n, b"a" * 4_000) for n in range(38))
MAX_HEAD = 16 * 1024  # bytes
BAD_HOSTS = b"".join(
    b"GET /desk/ HTTP/1.1\r\nHost: %s\r\n\r\n" % host for host in (b"a..b", b"a" * 64 + b".b")
)
SLOWLY = "read a kilobyte"
MOST_MEMORY = 150 * 1024**2  # bytes, of one worker


def connect(web):
    client = socket.create_connection(("127.0.0.1", web.port), timeout=60)
    client.setblocking(True)
    return client


def key_line(key):
    return f"X-Api-Key: {key}\r\n".encode()


def worker_of(web):
    (worker,) = psutil.Process(web.popen.pid).children()
    return worker


@pytest.fixture
def crowd():
    """Open connections that stay open until the test ends: `crowd(web, 200)`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    clients = []

    def gather(web, count):
        clients.extend(connect(web) for _ in range(count))
        return clients

    yield gather
    for client in clients:
        client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def meanwhile(crowd):
    """Repeat something in threads until the test ends: `meanwhile(flood, 20)`."""
    stop, threads = threading.Event(), []

    def begin(action, count=1):
        def repeat():
            while not stop.is_set():
                action()

        threads.extend(threading.Thread(target=repeat) for _ in range(count))
        for thread in threads[-count:]:
            thread.start()

    yield begin
    stop.set()
    for thread in threads:
        thread.join()


KINDS = {  # what a client sends at once, and then each second
    "silent": (b"", None),
    "half-head": (LINES[:30], None),
    "dripping-head": (LINES + b"X-A: ", b"a"),
    "big-half-head": (LINES + MOST_FIELDS, None),
    "half-body": (LINES + b"KEY" + b"Content-Length: 500\r\n\r\n{", None),
    "dripping-body": (LINES + b"KEY" + b"Content-Length: 500\r\n\r\n", b" "),
    "chunks": (LINES + b"KEY" + CHUNKED, b"1\r\n \r\n"),
    "130-KB": (LINES + b"Content-Length: 130000\r\n\r\n" + b"x" * 60_000, b"x"),
    "half-chunk": (LINES + CHUNKED + b"9\r\n\r\n\r\n", None),
    "no-reader": (BIG_ANSWER, None),
    "not-closed": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", None),
    "slow-reader": (BIG_ANSWER, SLOWLY),
    "bad-host": (BAD_HOSTS, None),
}


def begin_all(web, key, kinds, clients):
    """Connect clients of each kind in turn; return each with what it sends each second."""
    begun = []
    for _, (begin, piece) in zip(range(clients), itertools.cycle(kinds), strict=False):
        client = connect(web)
        client.settimeout(0.1)
        begun.append((client, piece))
        with contextlib.suppress(OSError):  # it was refused before it had sent everything
            client.sendall(begin.replace(b"KEY", key_line(key)))
    return begun


def go_on(begun):
    """Have each client do once more what it does each second."""
    for client, piece in begun:
        with contextlib.suppress(OSError):
            if piece is SLOWLY:
                client.recv(1200)
            elif piece:
                client.sendall(piece)
    time.sleep(1)


@pytest.mark.parametrize("kind", [*KINDS, "all kinds"])
def test_1500_clients_that_do_not_finish_hold_nobody_up(shared_web, meanwhile, kind):
    web, key = shared_web
    kinds = [KINDS[kind]] if kind in KINDS else [*KINDS.values()]
    begun = begin_all(web, key, kinds, 1500)
    if any(piece for _, piece in kinds):
        meanwhile(lambda: go_on(begun))
    assert_holds_nobody_up(web, key)
    assert worker_of(web).memory_info().rss < MOST_MEMORY
    for client, _ in begun:
        client.close()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux says what it holds")
def test_the_system_holds_little_of_the_answers_that_nobody_reads(shared_web, crowd):
    web, key = shared_web
    for client in crowd(web, 50):
        client.sendall(BIG_ANSWER)
    assert send(web, key, VALID)[0] == 201  # it came after them

    def held():
        """Return the bytes that wait to be sent, over all connections to the web."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ours = [row[4] for row in rows if row[1].endswith(f":{web.port:04X}")]
        return sum(int(queues.partition(":")[0], 16) for queues in ours)

    wait_until(held)
    assert 0 < held() < 50 * 200 * 1024


def send_big_head(web):
    """Send a head of 768 KB, as far as it is taken, and read the answer."""
    with connect(web) as client, contextlib.suppress(OSError):
        client.sendall(b"GET /desk/ HTTP/1.1\r\nHost: x\r\n")
        client.sendall(b"Cookie: " + b"a" * 8_000 + b"\r\n" + b"X-A: 1\r\n" * 1_000)
        client.sendall(BIG_FIELD * 96 + b"\r\n")
        read_all(client)
    time.sleep(1)


def test_a_hundred_clients_with_big_heads_hold_nobody_up(shared_web, meanwhile):
    web, key = shared_web
    meanwhile(lambda: send_big_head(web), 100)
    assert_holds_nobody_up(web, key)
    assert worker_of(web).memory_info().rss < MOST_MEMORY


def test_a_head_that_is_refused_is_not_kept_while_its_client_reads_the_answer(shared_web, crowd):
    web, _ = shared_web
    clients, before = crowd(web, 400), worker_of(web).memory_info().rss
    for client in clients:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + BIG_FIELD * 21)
    assert all(client.recv(20).startswith(b"HTTP/1.1 4") for client in clients)
    assert worker_of(web).memory_info().rss - before < 30 * 1024**2


def head_of(length, line=b"GET / HTTP/1.1", name=b"X-A", value=b"a"):
    """A head of so many bytes, most of them in fields of one name."""
    head = line + b"\r\nHost: x\r\nConnection: close\r\n"
    while (left := length - len(head) - 2) > 0:
        size = left if left < 4_000 else min(left - 1_000, 4_000)
        head += name + b": " + (value * size)[: size - len(name) - 4] + b"\r\n"
    return head + b"\r\n"


@pytest.mark.parametrize("piece", [MAX_HEAD * 9, 1_000])
@pytest.mark.parametrize(
    "line", [b"GET / HTTP/1.1", b"GET /?%s HTTP/1.1" % (b"a" * 4_000), b"\r\nGET / HTTP/1.1"]
)
@pytest.mark.parametrize(
    ("more", "status"), [(0, b"200"), (1, b"431"), (20_000, b"431"), (130_000, b"431")]
)
def test_a_head_has_16_kib_at_most_in_all(shared_web, line, more, status, piece):
    web, _ = shared_web
    head = head_of(MAX_HEAD + more + len(line) - len(line.lstrip()), line)
    with connect(web) as client:
        with contextlib.suppress(OSError):  # it was refused before it had sent everything
            for at in range(0, len(head), piece):
                client.sendall(head[at : at + piece])
                time.sleep(0.01)
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %s " % status)
    if more:
        error_in(431, "application/json", body.decode())


def test_a_body_that_comes_with_its_head_is_no_part_of_it(shared_web):
    web, key = shared_web
    body = json.dumps(VALID).encode().ljust(60_000)
    line = f"POST {PATH} HTTP/1.1\r\nX-Api-Key: {key}\r\nContent-Type: application/json".encode()
    head = head_of(MAX_HEAD, line + b"\r\nContent-Length: %d" % len(body))
    with connect(web) as client:
        client.sendall(head[:500])
        time.sleep(0.2)
        client.sendall(head[500:] + body)  # the end of one is read with the beginning of the other
        assert read_all(client).startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("value", [b"a/b;q=0.1,", b"text/html;a=b,", b"a,"])
def test_what_a_client_accepts_costs_no_more_than_any_other_field(shared_web, value):
    web, _ = shared_web
    worker, costs = worker_of(web), []
    for name in (b"X-A", b"Accept"):
        before = worker.cpu_times().user
        for _ in range(100):
            with connect(web) as client:
                client.sendall(head_of(MAX_HEAD, name=name, value=value))
                assert read_all(client).startswith(b"HTTP/1.1 200 ")
        costs.append(worker.cpu_times().user - before)
    assert costs[1] < costs[0] * 2 + 0.2


def test_a_new_connection_waits_for_few_requests_of_a_crowd(serve, database_url, key, crowd):
    """gunicorn would have each of several workers accept one connection a turn of its loop."""
    web, request = serve(database_url, workers=2), LINES + b"Content-Length: 2\r\n\r\n{}"
    workers = psutil.Process(web.popen.pid).children()
    for worker in workers:
        worker.suspend()
    clients = crowd(web, 300)
    for client in clients:
        client.sendall(request * 200)
    for worker in workers:
        worker.resume()
    assert send(web, key, VALID)[0] == 201
    answered = 0
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while piece := client.recv(65_536):
                answered += piece.count(b'"timestamp"')
    assert answered < 300 * 30, "of 200 of each"


def test_a_body_of_one_byte_chunks_is_refused_at_its_limit_and_costs_no_more_than_its_bytes(
    shared_web,
):
    web, key = shared_web
    worker, costs = worker_of(web), []
    for length in (8_000, 64_000):
        before = worker.cpu_times().user
        for _ in range(4):
            with connect(web) as client:
                body = b"1\r\n \r\n" * length + b"0\r\n\r\n"
                client.sendall(LINES + key_line(key) + b"Connection: close\r\n" + CHUNKED + body)
                assert read_all(client).startswith(b"HTTP/1.1 400 ")
        costs.append(worker.cpu_times().user - before)
    assert costs[1] < 8 * costs[0] * 2.5 + 0.1, "in proportion to its length"
    with connect(web) as client:
        client.sendall(LINES + key_line(key) + CHUNKED)
        endless = itertools.repeat(b"1\r\n \r\n" * 5_000, 2_000)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            any(map(client.sendall, endless))
    assert send(web, key, VALID)[0] == 201
    assert worker.memory_info().rss < MOST_MEMORY


@pytest.mark.parametrize(
    "refused",
    [
        LINES + key_line("wrong") + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000,
        LINES + key_line("wrong") + CHUNKED + b"5\r\nhello\r\n" * 9,
        LINES + b"KEY" + CHUNKED + b"zz\r\n",
        LINES + b"KEY" + b"Content-Length: 99\r\n\r\n{",
        LINES + b"no colon\r\n\r\n",
        LINES + BIG_FIELD * 60 + b"\r\n",
    ],
)
def test_an_answer_after_which_the_connection_closes_says_so_and_arrives(shared_web, refused):
    """So that a proxy shares the connection with no other user."""
    web, key = shared_web
    with connect(web) as client:
        client.sendall(refused.replace(b"KEY", key_line(key)))
        answer = read_all(client)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    assert b"connection: close" in head.lower()
    assert b"HTTP/1.1" not in rest


def test_a_chunked_body_that_was_read_keeps_its_connection(shared_web):
    web, key = shared_web
    body = json.dumps(VALID).encode()
    request = LINES + key_line(key) + CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with connect(web) as client:
        for _ in range(3):
            client.sendall(request)
            answer = b""
            while not answer.endswith(b"}\n"):
                answer += client.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 201 ")
            assert b"Connection: keep-alive" in answer


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_body_that_is_under_way_at_a_reload_or_at_the_end_is_answered(
    serve, database_url, key, number
):
    web = serve(database_url, workers=1)
    worker, body = worker_of(web), json.dumps(VALID).encode()
    head = LINES + key_line(key) + b"Content-Length: %d\r\n\r\n" % len(body)
    with connect(web) as client:
        client.sendall(head + body[:5])
        assert send(web, key, VALID)[0] == 201  # the worker has read the head before
        web.popen.send_signal(number)
        for byte in body[5:15]:
            time.sleep(0.2)
            client.sendall(bytes([byte]))
        client.sendall(body[15:])
        assert read_all(client).startswith(b"HTTP/1.1 201 ")
    wait_until(lambda: not worker.is_running())


def test_slow_bodies_hold_no_connection_of_the_database(serve, database_url, key):
    """The key of each is looked up anew, once the body of the one before is awaited."""
    web, clients = serve(database_url, workers=1), []
    for _ in range(pool.POOL["max_connections"] + 1):
        clients.append(connect(web))
        clients[-1].sendall(LINES + key_line(key) + b"Content-Length: 500\r\n\r\n{")
        time.sleep(0.1)
    assert_holds_nobody_up(web, key)
    for client in clients:
        client.close()


@pytest.mark.slow
def test_more_clients_than_a_worker_may_have_open_files_hold_nobody_up(
    serve, database_url, key, crowd
):
    """A head that does not end makes room for the next."""
    web = serve(database_url, workers=1)
    worker, master = worker_of(web), psutil.Process(web.popen.pid)
    master.rlimit(psutil.RLIMIT_NOFILE, (256, 256))
    master.send_signal(signal.SIGHUP)
    wait_until(lambda: worker not in master.children() and health(web)[0] == 200)
    worker = worker_of(web)
    clients = crowd(web, 1000)
    for n, client in enumerate(clients):
        client.sendall(LINES[: n % len(LINES)])
    assert [send(web, key, VALID)[0] for _ in range(20)] == [201] * 20
    assert clients[0].recv(1) == b"", "the first was closed"
    assert worker.is_running()


@pytest.mark.parametrize("piece", [b"", b" "], ids=["silent", "dripping"])
def test_a_request_that_is_not_finished_in_time_is_told_what_is_missing(shared_web, crowd, piece):
    web, key = shared_web
    (client,) = crowd(web, 1)
    client.sendall(LINES + key_line(key) + b"Content-Length: 60000\r\n\r\n{")
    for _ in range(60):
        if select.select([client], [], [], 0.5)[0]:
            break
        client.sendall(piece)
    else:
        pytest.fail("it is waited for as long as it drips")
    answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in answer
    assert b"shorter than announced" in answer
