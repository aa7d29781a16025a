"""Nothing lost and nothing doubled: processes killed, databases gone, disks full, clients slow."""

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import sqlite3
import statistics
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psutil
import psycopg
import pytest
from playhouse.migrations import Runner
from smpp_peer import SILENCE, delivery

import database
from access.do_not_call import DoNotCall
from access.keys import ApiKey
from answers import PATH
from database import clock, db, pool
from databases import on_sqlite
from models import Message, Status
from running import (
    ALWAYS,
    ROOT,
    Clients,
    ask,
    assert_as_asked,
    assert_holds_nobody_up,
    free_port,
    health,
    read_all,
    send,
    wait_until,
)
from samples import NEIGHBOUR, NEW_YORK, TUESDAY_NOON, VALID
from sending.carrier_state import CarrierState
from signed_callbacks import TOKEN, TWILIO, of_twilio
from stored_messages import again, connection_of, look, statuses, store, store_many


def assert_is_an_error(answered, status):
    got, body = answered
    assert got == status
    assert (body["error"], body["statusCode"]) == (True, status)


# Crashes of the web


def test_killed_workers_and_a_killed_master_lose_nothing_and_double_nothing(
    serve, start, database_url, key
):
    """Clients repeat what was not answered with the same idempotency key, as they should."""
    web = serve(database_url, workers=2)
    clients = Clients(web, key, side_by_side=6)
    for _ in range(2):
        clients.wait_for_answers(5)
        workers = psutil.Process(web.popen.pid).children()
        with contextlib.suppress(psutil.NoSuchProcess):
            workers[0].kill()
    clients.wait_for_answers(5)
    workers = psutil.Process(web.popen.pid).children()
    os.kill(web.popen.pid, signal.SIGKILL)
    time.sleep(0.2)
    web.kill()  # and what it left behind
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.wait(60)
    clients.stopping = True  # what was begun is repeated until it is answered
    start(
        *("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
        DATABASE_URL=database_url,
        PORT=str(web.port),
        WEB_CONCURRENCY="2",
    )
    clients.join()
    assert set(clients.statuses) == {201, None}
    assert_as_asked(clients, Message.select())
    if database_url.startswith("sqlite"):
        assert look(database_url, "PRAGMA integrity_check") == [("ok",)]


# Crashes of the scheduler

DIE = """
import os, signal, sys
import concurrent.futures
import carriers.twilio, scheduler
from sending import claims, receipts

point, held = sys.argv.pop(), []

def die():
    print(f"died with {held[0]}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

def kill_at(the_point, owner, name, when):
    original = getattr(owner, name)
    def method(*args, **more):
        if when == "before":
            die()
        original(*args, **more)
        die()
    if the_point == point:
        setattr(owner, name, method)

claim, sent = claims.Claims.claim, receipts.sent

def remember(self, *args):
    messages = claim(self, *args)
    held.extend(message.to for message in messages)
    if messages and point == "before the claim is committed":
        die()
    return messages

def record(references, *args):
    if references and point == "before the record":
        die()
    sent(references, *args)
    if references and point == "before the record is committed":
        die()

claims.Claims.claim, receipts.sent = remember, record
kill_at("after the claim is committed", concurrent.futures.ThreadPoolExecutor, "submit", "before")
kill_at("after the carrier's yes", carriers.twilio.Twilio, "send", "after")
scheduler.main()
"""
POINTS = (
    "before the claim is committed",
    "after the claim is committed",
    "during the carrier's call",
    "after the carrier's yes",
    "before the record",
    "before the record is committed",
)


def test_a_scheduler_killed_at_any_point_of_a_send_loses_and_doubles_nothing(
    start, database_url, twilio
):
    """Twilio is asked for what is in doubt: with it, there are never two copies."""
    numbers = store_many(20)
    environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": twilio.url}
    held = {}
    for point in POINTS:
        before = len(twilio.texts)
        victim = start("python", "-c", DIE, point, **environ, SEND_CONCURRENCY="1")
        if point == "during the carrier's call":
            twilio.wait()
            wait_until(lambda before=before: len(twilio.texts) > before)
            victim.kill()
            twilio.go_on.set()
            held[point] = twilio.numbers[-1]
        else:
            assert victim.wait() == -signal.SIGKILL, victim.output
            held[point] = victim.output.split()[-1]
    start("scheduler.py", "--every", "0.1", **environ, CLAIM_TIMEOUT="1")
    wait_until(lambda: statuses() == {Status.SENT: 20})
    assert sorted(twilio.numbers) == sorted(numbers)


# A database that goes away


def health_of(web, status):
    """Return the health once it has a status."""
    answer = health(web)
    return answer if answer[0] == status else None


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_web_and_scheduler_survive_a_postgres_that_is_stopped_and_started(
    serve, start, stoppable_postgres, twilio, times
):
    url = stoppable_postgres.url
    database.connect(url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock.now())
    web = serve(url, workers=2, **ALWAYS)
    scheduler = start(
        *("scheduler.py", "--every", "0.1"),
        **ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": "3"},
    )
    wait_until(lambda: "waiting for a carrier" in scheduler.output)
    texts = set()

    def create():
        text = f"text {len(texts)}"
        status, _ = send(web, secret, VALID | {"message": text})
        assert status == 201, web.output
        texts.add(text)

    for round_ in range(times):
        for _ in range(4):
            create()
        database.disconnect()
        (stoppable_postgres.kill if round_ % 2 else stoppable_postgres.stop)()
        for _ in range(4):  # both workers
            assert_is_an_error(send(web, secret, VALID), 503)
            # A worker reads the health once a second
            assert_is_an_error(wait_until(lambda: health_of(web, 503)), 503)
        stoppable_postgres.start()
        for _ in range(4):  # both workers, and the first request of each
            create()
            wait_until(lambda: health_of(web, 200))
    wait_until(lambda: statuses() == {Status.SENT: len(texts)}, 60)
    assert Counter(text for _, text in twilio.texts) == Counter(texts)
    with psycopg.connect(url) as connection:
        query = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        (connected,) = connection.execute(query).fetchone()
    database.disconnect()
    assert connected <= 7  # two for each of two workers, a scheduler, this test twice
    for process in (web, scheduler):
        assert "Traceback" not in process.output
        assert process.popen.poll() is None


@pytest.fixture
def lock(database_url):
    """Keep everybody else from writing: `with lock(): …`."""

    @contextlib.contextmanager
    def hold():
        begin = (
            ("BEGIN IMMEDIATE",)
            if database_url.startswith("sqlite")
            else ("BEGIN", "LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
        )
        with contextlib.closing(connection_of(database_url)) as connection:
            for statement in begin:
                connection.execute(statement)
            yield
            connection.execute("ROLLBACK")

    return hold


def test_a_request_waits_its_turn_while_another_writes(serve, database_url, key, lock):
    web = serve(database_url, workers=2)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        with lock():
            answers = [pool.submit(send, web, key, VALID) for _ in range(8)]
            time.sleep(2)
            early = [answer.done() for answer in answers]
        answered = [answer.result()[0] for answer in answers]
    if time.monotonic() - began < 4:  # the machine did not sleep meanwhile
        assert not any(early)
        assert answered == [201] * 8
    assert Message.select().count() == answered.count(201)


@pytest.mark.timed
def test_others_are_answered_while_requests_wait_for_the_database(serve, database_url, key, lock):
    """Also on a connection whose last request came together with one that waits."""
    web = serve(database_url, workers=1)
    (worker,) = psutil.Process(web.popen.pid).children()
    clients = [http.client.HTTPConnection("127.0.0.1", web.port, timeout=60) for _ in "12"]

    def request(client, body):
        headers = {"X-Api-Key": key, "Content-Type": "application/json"}
        client.request("POST", PATH, json.dumps(body), headers)

    def answer(client):
        with client.getresponse() as response:
            return response.status, json.load(response)

    for client in clients:
        request(client, VALID)
        assert answer(client)[0] == 201
    with lock():
        began = time.monotonic()
        worker.suspend()
        for client, body in zip(clients, (VALID, {}), strict=True):
            request(client, body)
        worker.resume()
        for _ in range(5):
            assert_is_an_error(answer(clients[1]), 400)
            assert ask(web, "GET", "/").status == 200
            request(clients[1], {})
        assert time.monotonic() - began < pool.PATIENCE
    assert answer(clients[0])[0] == 201
    for client in clients:
        client.close()


@pytest.mark.slow
def test_no_request_waits_for_ever_while_another_writes(serve, database_url, key, lock):
    """Not even a crowd of them, each of which could wait for all before it."""
    web = serve(database_url, workers=1)
    assert send(web, key, VALID)[0] == 201
    with lock(), ThreadPoolExecutor(30) as pool:
        began = time.monotonic()
        for answer in [pool.submit(send, web, key, VALID) for _ in range(30)]:
            assert_is_an_error(answer.result(), 503)
        assert time.monotonic() - began < 60, "they waited for one another"
    assert send(web, key, VALID)[0] == 201
    assert Message.select().count() == 2


@pytest.mark.parametrize("clean", [Message.purge, Message.redact])
def test_what_an_operator_tries_again_is_not_cleaned_away_at_that_moment(database_url, clean):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON)

    def clean_up():
        with db.connection_context():
            tomorrow = TUESDAY_NOON + timedelta(days=1)
            return clean(tomorrow, tomorrow)

    db.close()
    with (
        contextlib.closing(connection_of(database_url)) as operator,
        ThreadPoolExecutor(1) as pool,
    ):
        operator.execute("BEGIN")
        operator.execute("UPDATE message SET status = 'scheduled', finished_at = NULL")
        cleaned = pool.submit(clean_up)
        time.sleep(0.5)
        assert not cleaned.done()
        operator.execute("COMMIT")
        assert cleaned.result() == 0
    assert again(message).message == "Hello"


# A disk that is full or cannot be written to


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of eight megabytes: twice what the log of SQLite may grow to."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def disk_key(small_disk):
    """The secret of a key in a database on the small disk."""
    database.connect(f"sqlite:///{small_disk}/messages.db")
    database.upgrade()
    yield ApiKey.issue("app", None, clock.now())
    database.disconnect()


def test_a_full_disk_is_503_and_a_problem_until_there_is_room_again(
    serve, start, small_disk, disk_key
):
    url = f"sqlite:///{small_disk}/messages.db"
    web = serve(url, workers=2)
    assert send(web, disk_key, VALID)[0] == 201
    stored, filler = 1, small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    status = 201
    while status == 201:  # what SQLite has allocated already can still be used
        status, body = send(web, disk_key, VALID | {"message": "x" * 1600})
        stored += status == 201
        assert stored < 5000
    assert_is_an_error((status, body), 503)
    for _ in range(6):
        stored += send(web, disk_key, VALID | {"message": "x" * 1600})[0] == 201
    wait_until(lambda: "could not store" in ask(web, "GET", "/healthz?strict").text)
    told = start("flask", "stats", DATABASE_URL=url)
    assert told.wait() == 1
    assert "PROBLEM: the database disk is almost full (0 MB left)" in told.output
    filler.unlink()
    told = start("flask", "stats", DATABASE_URL=url)
    assert told.wait() == 0
    assert "PROBLEM" not in told.output
    for _ in range(6):
        assert send(web, disk_key, VALID)[0] == 201
        stored += 1
    assert health(web)[0] == 200
    assert Message.select().count() == stored
    assert look(url, "PRAGMA integrity_check") == [("ok",)]
    assert "Traceback" not in web.output


def test_what_was_sent_while_the_disk_was_full_is_recorded_and_not_sent_again(
    start, small_disk, disk_key, twilio
):
    url = f"sqlite:///{small_disk}/messages.db"
    numbers = store_many(100)
    database.disconnect()
    twilio.wait()
    environ = ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url}
    scheduler = start("scheduler.py", "--every", "0.1", **environ)
    wait_until(lambda: len(twilio.texts) == 8)
    filler = fill(small_disk)
    twilio.go_on.set()
    wait_until(lambda: "database or disk is full" in scheduler.output)
    filler.unlink()
    wait_until(lambda: statuses() == {Status.SENT: 100})
    assert sorted(twilio.numbers) == numbers
    assert scheduler.terminate() == 0


NUMBERS = [NEW_YORK, NEIGHBOUR]
PAGE = 4096  # bytes
ROOM = 80_000  # bytes: enough for a pass to begin, too few for what it promotes


def fill(small_disk):
    """Leave no room on the disk and none in the database's log; return the file to delete."""
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    connection = connection_of(f"sqlite:///{small_disk}/messages.db")
    with contextlib.closing(connection), contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # or the log would begin anew
        row = "INSERT INTO do_not_call (number, added_at) VALUES (hex(randomblob(20)), 0)"
        while True:
            connection.execute(row)
    return filler


@pytest.fixture
def small_cache(small_disk, disk_key):
    """A database whose changes leave memory before they are committed.

    So the disk is full in the midst of a transaction, and SQLite rolls back by itself.
    """
    db.execute_sql("PRAGMA default_cache_size = 1")  # SQLite keeps it in the file
    database.disconnect()
    return f"sqlite:///{small_disk}/messages.db"


def test_a_reply_that_comes_to_a_full_disk_is_503_until_there_is_room(
    serve, small_disk, small_cache
):
    public, path = "https://sms.example.com", "/carriers/twilio/inbound"
    web = serve(small_cache, workers=1, CARRIER_URL=TWILIO, PUBLIC_URL=public)
    for number in NUMBERS:  # the same twice
        said = {"From": number, "Body": "STOP", "MessageSid": f"SM{number}"}
        signed = of_twilio(public + path, said, TOKEN)

        def call(signed=signed):
            answered = ask(web, "POST", path, signed["data"], signed["headers"])
            return answered.status, answered.text and json.loads(answered.text)

        filler = fill(small_disk)
        while (answered := call()) != (204, ""):  # a page more lets it come further
            assert_is_an_error(answered, 503)
            assert not DoNotCall.lists(number)
            os.truncate(filler, filler.stat().st_size - PAGE)
        filler.unlink()
        assert DoNotCall.lists(number)
        database.disconnect()
    assert "database or disk is full" in web.output
    assert "savepoint" not in web.output
    assert "Traceback" not in web.output


@pytest.mark.parametrize("claim_timeout", ["300", "1"])
def test_a_stop_that_comes_to_a_full_disk_costs_no_text_in_hand_its_yes(
    start, small_disk, small_cache, peer, claim_timeout
):
    """The disk may be full for longer than a claim lasts, and once more."""
    go_on = threading.Event()
    peer.answer = lambda part: 0 if go_on.wait(60) else SILENCE
    environ = ALWAYS | {"DATABASE_URL": small_cache, "CLAIM_TIMEOUT": claim_timeout}
    scheduler = start("scheduler.py", "--every", "0.1", CARRIER_URL=peer.url, **environ)
    for turn, number in enumerate(NUMBERS, start=1):
        told = scheduler.output.count("database or disk is full")
        given = len(peer.parts)
        store_many(8)
        database.disconnect()
        wait_until(lambda given=given: len(peer.parts) > given)
        filler = fill(small_disk)
        peer.bound[0].deliver(delivery(b"STOP", number[1:]), turn)
        wait_until(lambda told=told: scheduler.output.count("disk is full") > told)
        go_on.set()
        time.sleep(2)  # longer than the shorter claim
        filler.unlink()
        wait_until(lambda turn=turn: statuses() == {Status.SENT: 8 * turn})
        wait_until(lambda number=number: DoNotCall.lists(number))
        go_on.clear()
    assert {*Counter(part.to for part in peer.parts).values()} == {2}
    assert Message.select().where(Message.in_doubt > 0).count() == 0
    assert scheduler.terminate() == 0
    assert "savepoint" not in scheduler.output
    assert "Traceback" not in scheduler.output


def test_a_scheduler_that_starts_on_a_full_disk_waits_for_room_and_says_so(
    start, small_disk, disk_key, twilio
):
    """SQLite says that the disk is full when it commits: here after it has returned the rows."""
    url = f"sqlite:///{small_disk}/messages.db"
    numbers = store_many(100)
    Message.update(status=Status.SCHEDULED, message="x" * 1600).execute()
    CarrierState.passed(clock.now(), {"twilio": []})
    database.disconnect()
    filler = fill(small_disk)
    os.truncate(filler, filler.stat().st_size - ROOM)
    environ = ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url}
    once = start("scheduler.py", **environ)
    assert once.wait() == 1
    assert "the pass failed: the database: database or disk is full" in once.output
    scheduler = start("scheduler.py", "--every", "0.1", **environ)
    wait_until(lambda: scheduler.output.count("database or disk is full") > 2)
    assert "Traceback" not in once.output + scheduler.output
    assert scheduler.popen.poll() is None
    filler.unlink()
    wait_until(lambda: statuses() == {Status.SENT: 100})
    assert sorted(twilio.numbers) == numbers
    assert scheduler.terminate() == 0


def test_a_disk_that_cannot_be_written_to_is_503_or_a_clear_line(
    serve, start, small_disk, disk_key
):
    url = f"sqlite:///{small_disk}/messages.db"
    database.disconnect()
    web = serve(url, workers=1)
    assert send(web, disk_key, VALID)[0] == 201

    def remount(how):
        mount = ["mount", "-o", f"remount,{how}", small_disk]
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0

    web.kill()
    wait_until(lambda: remount("ro"))  # when nobody has a file open for writing any more
    web = serve_unhealthy(start, url)
    assert_is_an_error(send(web, disk_key, VALID), 503)
    for words in (("scheduler.py",), ("flask", "keys", "create", "new")):
        failed = start(*words, DATABASE_URL=url)
        assert failed.wait() != 0
        assert len(failed.output.splitlines()) == 1
        assert "database" in failed.output
    assert remount("rw")
    wait_until(lambda: send(web, disk_key, VALID)[0] == 201)  # SQLite may keep an old file open
    assert health(web)[0] == 200


def serve_unhealthy(start, url):
    """Start gunicorn and wait until it answers, whatever it says."""
    web = start(
        *("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
        **{"DATABASE_URL": url, "PORT": str(port := free_port()), "WEB_CONCURRENCY": "1"},
    )
    web.port = port

    def listens():
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 5).close() is None

    wait_until(listens)
    return web


# Slow clients

HEAD = (
    b"POST /v1/text-messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 60000\r\n\r\n"
)


LONG = "/docs/swagger-ui-bundle.js"


@pytest.fixture
def crowd():
    """Open connections that send something and stay open: `crowd(web, 1000, lambda n: b"GET")`.

    They announce that they take little at once.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    clients = []

    def gather(web, count, begin):
        for n in range(count):
            clients.append(socket.socket())
            clients[-1].settimeout(60)
            clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients[-1].connect(("127.0.0.1", web.port))
            clients[-1].sendall(begin(n))
        return clients

    yield gather
    for client in clients:
        client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@on_sqlite
def test_clients_that_do_not_take_their_answer_hold_nobody_up(serve, database_url, key, crowd):
    web = serve(database_url, workers=1)
    whole = ask(web, "GET", LONG).text.encode()
    request = f"GET {LONG} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    clients = crowd(web, 200, lambda n: request * 4)  # the system keeps an answer or two for each
    began = time.monotonic()
    assert health(web)[0] == 200
    assert time.monotonic() - began < 15
    assert_holds_nobody_up(web, key)
    (worker,) = psutil.Process(web.popen.pid).children()
    assert worker.memory_info().rss < 150 * 1024**2
    web.popen.terminate()
    assert read_all(clients[-1]).endswith(whole), "what is under way comes to its end"


@pytest.mark.slow
@on_sqlite
def test_more_clients_than_a_worker_may_have_open_files_hold_nobody_up(
    serve, database_url, key, crowd
):
    """A head that does not end makes room for the next."""
    web = serve(database_url, workers=1)
    master = psutil.Process(web.popen.pid)
    (worker,) = master.children()
    master.rlimit(psutil.RLIMIT_NOFILE, (256, 256))
    master.send_signal(signal.SIGHUP)
    wait_until(lambda: worker not in master.children() and health(web)[0] == 200)
    (worker,) = master.children()
    clients = crowd(web, 1000, lambda n: HEAD[: n * 7 % len(HEAD)])
    assert [send(web, key, VALID)[0] for _ in range(20)] == [201] * 20
    assert clients[0].recv(1) == b"", "the first was closed"
    assert worker.is_running()
    assert "Traceback" not in web.output


def test_a_request_that_is_not_finished_in_time_is_told_what_is_missing(shared_web, crowd):
    web, key = shared_web
    head = HEAD.replace(b"Host: x", b"Host: x\r\nX-Api-Key: " + key.encode())
    (client,) = crowd(web, 1, lambda n: head + b"{")
    answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in answer
    assert b"shorter than announced" in answer


def test_what_follows_a_body_that_was_not_read_is_never_taken_for_a_request(shared_web, crowd):
    web, _ = shared_web
    hidden = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    head = HEAD.replace(b"60000", b"600000")
    (client,) = crowd(web, 1, lambda n: head)
    answer = client.recv(65_536)
    with contextlib.suppress(OSError):
        client.sendall(hidden * 10)
        while piece := client.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert answer.count(b"HTTP/1.1") == 1


# Upgrades


def test_an_upgrade_from_the_first_tables_keeps_every_row(start, empty_database_url):
    """And a scheduler works on as before."""
    database.connect(empty_database_url)
    folder = str(ROOT / "migrations")
    with database.db.atomic():
        assert Runner(database.db.obj, folder).up("0001_initial") == ["0001_initial"]
    digest, yesterday = ApiKey.digest_of("tms_old"), clock.now() - timedelta(days=1)
    statements = [
        f"INSERT INTO api_key (id, name, digest, created_at) VALUES (1, 'old', '{digest}', 5)",
        "INSERT INTO do_not_call VALUES ('+12125550188', 5)",
    ]
    columns = (
        'INSERT INTO message (id, key_id, "to", message, send_at, status, manual_mode, '
        "available_to_group, check_dnc, approved, attempts, max_retries, created_at) VALUES "
    )
    for n, number in enumerate(("+12125550123", "+12125550188")):
        message_id = f"019cb4a4-6a80-7000-8000-00000000000{n}"
        if empty_database_url.startswith("sqlite"):
            message_id = message_id.replace("-", "")
        due = Message.send_at.db_value(yesterday)
        values = f"('{message_id}', 1, '{number}', 'old', {due}, 'scheduled', "
        statements.append(f"{columns} {values} false, true, true, true, 0, 3, 5)")
    for statement in statements:
        database.db.execute_sql(statement)
    newer = {path.stem for path in (ROOT / "migrations").glob("0*.py")} - {"0001_initial"}
    assert database.upgrade() == sorted(newer)
    assert ApiKey.authenticate("tms_old", clock.now())
    assert {(m.to, m.message, m.send_at, m.first_send_at) for m in Message.select()} == {
        (number, "old", yesterday, yesterday) for number in ("+12125550123", "+12125550188")
    }
    environ = ALWAYS | {"DATABASE_URL": empty_database_url, "CARRIER_URL": "simulator:"}
    assert start("scheduler.py", **environ).wait() == 0
    assert statuses() == {Status.SENT: 1, Status.BLOCKED: 1}
    database.disconnect()


# Load


def keep_posting(web, secret, until, times, answered):
    """Post over one kept connection until told to stop, noting each answer's status and time."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    headers = {"X-Api-Key": secret, "Content-Type": "application/json"}
    body = json.dumps(VALID | {"message": "x" * 100})
    with contextlib.closing(connection):
        while not until():
            began = time.monotonic()
            connection.request("POST", "/v1/text-messages", body, headers)
            response = connection.getresponse()
            response.read()
            answered.append(response.status)
            times.append(time.monotonic() - began)


def resident(process):
    """Megabytes of memory of a process and its children, each by itself."""
    processes = [psutil.Process(process.popen.pid)]
    processes += processes[0].children(recursive=True)
    return [round(p.memory_full_info().uss / 1e6) for p in processes]


@pytest.mark.soak
def test_64_connections_for_a_minute_get_nothing_but_201(serve, database_url, key):
    web = serve(database_url, workers=2)
    times, answered, end = [], [], time.monotonic() + 60
    with ThreadPoolExecutor(64) as pool:
        for client in [
            pool.submit(keep_posting, web, key, lambda: time.monotonic() > end, times, answered)
            for _ in range(64)
        ]:
            client.result()
    quantiles = statistics.quantiles(times, n=100)
    print(
        f"64 connections, a minute: {len(times)} answers, median {quantiles[49] * 1000:.0f} ms, "
        f"99th percentile {quantiles[98] * 1000:.0f} ms, most {max(times) * 1000:.0f} ms"
    )
    assert set(answered) == {201}
    assert Message.select().count() == len(answered)
    assert max(times) < 5


@pytest.mark.soak
def test_memory_is_flat_over_100_000_requests(serve, start, database_url, key):
    web = serve(database_url, workers=2, **ALWAYS)
    environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": "simulator:"}
    scheduler = start("scheduler.py", "--every", "0.5", **environ, LOG_LEVEL="WARNING")
    times, answered, most = [], [], 10_000

    def post_all():
        with ThreadPoolExecutor(16) as pool:
            for client in [
                pool.submit(keep_posting, web, key, lambda: len(answered) >= most, times, answered)
                for _ in range(16)
            ]:
                client.result()

    def all_sent():
        return set(statuses()) == {Status.SENT}

    post_all()
    wait_until(all_sent, 600)
    before = resident(web) + resident(scheduler)
    most = 100_000
    post_all()
    wait_until(all_sent, 3600)
    after = resident(web) + resident(scheduler)
    print(
        f"megabytes of master, workers and scheduler after 10,000: {before}, after 100,000: {after}"
    )
    assert set(answered) == {201}
    for early, late in zip(before, after, strict=True):
        assert late < early + 15
