"""Nothing lost and nothing doubled: processes killed, databases gone or silent, disks full."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import psycopg
import pytest

from answers import PATH
from databases import on_both, on_postgres
from own_threads import begin
from postgres_server import PostgresServer
from proxy import Proxy
from running import (
    ALWAYS,
    Clients,
    ask,
    assert_as_asked,
    begin_web,
    free_port,
    health,
    send,
    wait_until,
)
from samples import DAY, NEIGHBOUR, NEW_YORK, TUESDAY_NOON, VALID
from signed_callbacks import TOKEN, TWILIO, of_twilio
from smpp_peer import SILENCE, delivery
from stored_messages import again, connection_of, look, statuses, store, store_many
from texting import database
from texting.access.do_not_call import OptedOut
from texting.access.keys import ApiKey
from texting.database import clock, db, pool, postgres
from texting.messages.model import Message, Status
from texting.sending import retention

pytestmark = on_both

PUBLIC_URL = "https://sms.example.com"
CONNECTED = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def assert_is_an_error(answered, status):
    got, body = answered
    assert got == status
    assert (body["error"], body["statusCode"]) == (True, status)


def test_killed_workers_and_a_killed_master_lose_nothing_and_double_nothing(
    serve, start, database_url, key
):
    """Clients repeat unanswered requests with the same idempotency key, as they should."""
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
    begin_web(start, database_url, web.port)
    clients.join()
    assert set(clients.statuses) == {201, None}
    assert_as_asked(clients, Message.select())
    if database_url.startswith("sqlite"):
        assert look(database_url, "PRAGMA integrity_check") == [("ok",)]


# A Postgres that goes away


def migrate(url):
    """Create the tables and a key; return the secret of the key."""
    database.connect(url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock.now())
    database.disconnect()
    return secret


def health_of(web, status):
    """Return the answer of /healthz if it has this status."""
    answer = health(web)
    return answer if answer[0] == status else None


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_all_go_on_once_a_postgres_that_was_stopped_or_killed_is_back(
    serve, start, stoppable_postgres, twilio, times
):
    """It is away for longer than CLAIM_TIMEOUT; schedulers have texts under way, and idle ones not.

    What could not be stored or recorded is not acknowledged, and nothing is sent twice.
    """
    url, texts = stoppable_postgres.url, set()
    secret = migrate(url)
    web = serve(url, workers=2, CARRIER_URL=TWILIO, PUBLIC_URL=PUBLIC_URL, **ALWAYS)
    environ = ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": "2"}
    schedulers = [start("scheduler.py", "--every", "0.1", **environ) for _ in range(2)]

    def create():
        text = f"text {len(texts)}"
        assert send(web, secret, VALID | {"message": text})[0] == 201, web.output
        texts.add(text)

    def call_back(number):
        said = {"From": NEW_YORK, "Body": "Hello", "MessageSid": f"SM{number}"}
        signed = of_twilio(f"{PUBLIC_URL}/carriers/twilio/inbound", said, TOKEN)
        return ask(web, "POST", "/carriers/twilio/inbound", signed["data"], signed["headers"])

    for round_ in range(times):
        twilio.wait()
        for _ in range(4):
            create()
        wait_until(lambda: len(twilio.texts) == len(texts))
        (stoppable_postgres.kill if round_ % 2 else stoppable_postgres.stop)()
        twilio.go_on.set()
        for _ in range(4):  # both workers
            assert_is_an_error(send(web, secret, VALID), 503)
            assert call_back(round_).status == 503
            # A worker reads the health once a second
            assert_is_an_error(wait_until(lambda: health_of(web, 503)), 503)
        time.sleep(2)
        stoppable_postgres.start()
        for _ in range(4):  # both workers, and the first request of each
            create()
            assert call_back(round_).status == 204
            wait_until(lambda: health_of(web, 200))
    database.connect(url)
    wait_until(lambda: statuses() == {Status.SENT: len(texts)})
    database.disconnect()
    assert Counter(text for _, text in twilio.texts) == Counter(texts)
    # Four a process, as docs/deploying.md says, and one that asks
    assert stoppable_postgres.run(CONNECTED) <= 4 * 4 + 1
    for process in (web, *schedulers):
        assert process.terminate() == 0


@pytest.fixture
def service(serve, start, twilio):
    """Run a web, schedulers and clients on a database: `with service(url, schedulers=2): …`.

    In the end, every text that was answered 201 is stored once and sent once.
    """

    @contextlib.contextmanager
    def run(url, schedulers, side_by_side, answered, looked_at=None):
        secret = migrate(url)
        web = serve(url, workers=2, **ALWAYS)
        environ = ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": "5"}
        processes = [start("scheduler.py", "--every", "0.2", **environ) for _ in range(schedulers)]
        clients = Clients(web, secret, side_by_side, with_send_date=False)
        clients.wait_for_answers(20)
        yield
        clients.wait_for_answers(20)
        clients.join()
        assert {*clients.statuses} <= answered
        database.connect(looked_at or url)
        wait_until(lambda: statuses() == {Status.SENT: len(clients.answers)})
        assert_as_asked(clients, Message.select())
        texts = Counter(message.message for message in Message.select())
        assert Counter(text for _, text in twilio.texts) == texts
        database.disconnect()
        for process in (web, *processes):
            assert process.terminate() == 0
            assert "prepared statement" not in process.output

    return run


@pytest.fixture
def swallowing(database_url):
    """A proxy before the test's Postgres; `.url` leads through it."""
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    if not parts.get("host", "").startswith("/"):
        pytest.skip("the proxy leads to a Unix socket; TEST_DATABASE_URL has none")
    proxy = Proxy(f"{parts['host']}/.s.PGSQL.5432")
    proxy.url = f"postgresql://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}"
    yield proxy
    proxy.close()


@pytest.mark.slow
@on_postgres
def test_web_and_scheduler_go_on_though_their_connections_fell_silent(
    database_url, swallowing, service
):
    """Their packets are swallowed while the connections stay open."""
    with service(swallowing.url, 1, side_by_side=4, answered={201, 503}, looked_at=database_url):
        swallowing.silence()


@pytest.fixture
def standby(stoppable_postgres):
    """A synchronous standby: what is committed is in both."""
    server, primary = PostgresServer(stoppable_postgres), stoppable_postgres
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    wait_until(lambda: primary.run("SELECT max(sync_state) FROM pg_stat_replication") == "sync")
    yield server
    server.close()


@pytest.fixture
def both(stoppable_postgres, standby):
    """The URL that names both servers."""
    servers = stoppable_postgres, standby
    proxies = [Proxy(server.folder / ".s.PGSQL.5432") for server in servers]
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    yield f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    for proxy in proxies:
        proxy.close()


def test_a_standby_takes_over_without_a_restart_and_nothing_that_was_answered_is_lost(
    stoppable_postgres, standby, both, service
):
    with service(both, 1, side_by_side=4, answered={201, 503, None}, looked_at=standby.url):
        stoppable_postgres.kill()
        standby.run("SELECT pg_promote()")


PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH')}:/usr/sbin")


@pytest.fixture
def pgbouncer(stoppable_postgres, tmp_path):
    """The URL of a PgBouncer in transaction mode with three connections to a server."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed: apt install pgbouncer")
    port, folder = free_port(), stoppable_postgres.folder
    (folder / "users.txt").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={folder}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users.txt\npool_mode = transaction\ndefault_pool_size = 3\n"
    )
    for name in ("users.txt", "pgbouncer.ini"):
        (folder / name).chmod(0o644)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def answers():
        assert process.poll() is None, (tmp_path / "pgbouncer.log").read_text()
        try:
            return look(url, "SELECT 1")
        except psycopg.OperationalError:
            return None

    with (tmp_path / "pgbouncer.log").open("wb") as log:
        command = [PGBOUNCER, *user, folder / "pgbouncer.ini"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    wait_until(answers)
    yield url
    process.kill()
    process.wait()


def test_through_pgbouncer_in_transaction_mode_all_is_stored_once_and_sent_once(
    stoppable_postgres, pgbouncer, service
):
    with service(pgbouncer, 2, side_by_side=16, answered={201}, looked_at=stoppable_postgres.url):
        pass


# A database that others keep busy


@pytest.fixture
def lock(database_url):
    """Lock out all other writers: `with lock(): …`."""

    @contextlib.contextmanager
    def hold():
        with contextlib.closing(connection_of(database_url)) as connection:
            if database_url.startswith("sqlite"):
                connection.execute("BEGIN IMMEDIATE")
            else:
                connection.execute("BEGIN; LOCK TABLE message IN ACCESS EXCLUSIVE MODE")
            yield
            connection.execute("ROLLBACK")

    return hold


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


@pytest.mark.parametrize("clean", [retention.purge, retention.redact])
def test_what_an_operator_tries_again_is_not_cleaned_away_at_that_moment(database_url, clean):
    message, tomorrow = store(status=Status.FAILED, finished_at=TUESDAY_NOON), TUESDAY_NOON + DAY
    db.close()
    connection = contextlib.closing(connection_of(database_url))
    with connection as operator, ThreadPoolExecutor(1) as pool:
        operator.execute("BEGIN")
        operator.execute("UPDATE message SET status = 'scheduled', finished_at = NULL")
        cleaned = begin(pool, clean, tomorrow, tomorrow)
        time.sleep(0.5)
        assert not cleaned.done()
        operator.execute("COMMIT")
        assert cleaned.result() == 0
    assert again(message).message == "Hello"


SLOW = (
    # Postgres shows only the beginning of a statement
    """SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT "t1"."id"%' AND state = 'active' """
    "AND pid <> pg_backend_pid()"
)


@pytest.fixture
def slow_messages(database_url):
    """Make every query of messages take a number of seconds: `slow_messages(2)`."""

    def slow(seconds):
        store(status=Status.SENT, finished_at=TUESDAY_NOON)
        db.execute_sql("ALTER TABLE message RENAME TO stored_message")
        db.execute_sql(
            "CREATE VIEW message AS SELECT stored_message.* "
            f"FROM stored_message, (SELECT pg_sleep({seconds}) OFFSET 0) AS slept"
        )

    yield slow
    database.disconnect()  # a failed test may leave one that still waits for an answer
    db.execute_sql("DROP VIEW message")
    db.execute_sql("ALTER TABLE stored_message RENAME TO message")


@on_postgres
@pytest.mark.parametrize("words", [("stats", "--all"), ("messages", "list", "--status", "sent")])
def test_a_command_waits_for_a_slow_statement(slow_messages, flask, monkeypatch, words):
    monkeypatch.setattr(postgres, "ANSWER_TIMEOUT", 0.3)
    slow_messages(0.4)
    result = flask(*words)
    assert result.exit_code == 0, result.output
    with pytest.raises(database.ERRORS):  # the deadline holds again after the command
        Message.select().count()


@on_postgres
def test_a_command_that_waits_ends_with_ctrl_c_and_so_does_its_statement(
    slow_messages, database_url, start
):
    slow_messages(600)
    command = start("flask", "messages", "list", "--json", DATABASE_URL=database_url)
    wait_until(lambda: look(database_url, SLOW))
    os.kill(command.popen.pid, signal.SIGINT)
    assert command.wait() == 1, command.output
    assert "Aborted!" in command.output
    wait_until(lambda: not look(database_url, SLOW))


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


def fill(small_disk):
    """Leave no room on the disk and none in the database's log; return the file to delete."""
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    connection = connection_of(f"sqlite:///{small_disk}/messages.db")
    with contextlib.closing(connection), contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # or the log would begin anew
        row = "INSERT INTO opt_out_message (id, at) VALUES (hex(randomblob(20)), 0)"
        while True:
            connection.execute(row)
    return filler


def test_a_full_disk_is_503_and_a_problem_until_there_is_room_again(
    serve, start, small_disk, disk_key
):
    url = f"sqlite:///{small_disk}/messages.db"
    title = "the database disk is almost full"
    environ = {"DATABASE_URL": url, "CARRIER_URL": "simulator:"}
    web = serve(url, workers=2)
    scheduler = start("scheduler.py", "--every", "0.2", **environ)
    wait_until(lambda: "nothing to do" in scheduler.output)
    filler = fill(small_disk)
    for _ in range(6):
        assert_is_an_error(send(web, disk_key, VALID | {"message": "x" * 1600}), 503)
    wait_until(lambda: '"web"' in ask(web, "GET", "/healthz?strict").text)
    for command, name in (("stats", ""), ("check", "disk: ")):
        told = start("flask", command, **environ)
        assert told.wait() == 1
        assert f"PROBLEM: {name}{title} (0 MB left)" in told.output
    looks = scheduler.output.count("full")
    wait_until(lambda: scheduler.output.count("full") > looks)
    filler.unlink()
    assert [send(web, disk_key, VALID)[0] for _ in range(6)] == [201] * 6
    wait_until(lambda: health(web)[0] == 200)
    told = start("flask", "stats", **environ)
    assert told.wait() == 0, told.output
    assert Message.select().count() == 6
    assert look(url, "PRAGMA integrity_check") == [("ok",)]
    assert scheduler.terminate() == 0


def test_a_command_that_a_full_disk_keeps_from_opening_the_database_says_so(
    start, small_disk, disk_key
):
    """SQLite calls it an I/O error if it cannot even make its index of the log."""
    database.disconnect()
    (small_disk / "filler").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    told = start("flask", "stats", DATABASE_URL=f"sqlite:///{small_disk}/messages.db")
    assert told.wait() == 2
    says = f"Error: the database failed: disk I/O error: {small_disk}/messages.db"
    assert told.output.strip() == f"{says}; its disk is almost full"


@pytest.fixture
def small_cache(small_disk, disk_key):
    """A database whose changes leave memory before they are committed.

    So the disk is full in the midst of a transaction, and SQLite rolls back by itself.
    """
    db.execute_sql("PRAGMA default_cache_size = 1")  # SQLite keeps it in the file
    database.disconnect()
    return f"sqlite:///{small_disk}/messages.db"


@pytest.mark.parametrize("claim_timeout", ["300", "1"])
def test_a_stop_that_comes_to_a_full_disk_costs_no_text_in_hand_its_yes(
    start, small_disk, small_cache, peer, claim_timeout
):
    """The disk may be full for longer than a claim lasts, and for a second time."""
    go_on = threading.Event()
    peer.answer = lambda part: 0 if go_on.wait(60) else SILENCE
    environ = ALWAYS | {"DATABASE_URL": small_cache, "CLAIM_TIMEOUT": claim_timeout}
    scheduler = start("scheduler.py", "--every", "0.1", CARRIER_URL=peer.url, **environ)
    for turn, number in enumerate((NEW_YORK, NEIGHBOUR), start=1):
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
        wait_until(lambda number=number: OptedOut.lists(number))
        go_on.clear()
    assert {*Counter(part.to for part in peer.parts).values()} == {2}
    assert Message.select().where(Message.in_doubt > 0).count() == 0
    assert scheduler.terminate() == 0
    assert "savepoint" not in scheduler.output


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
    web = begin_web(start, url, free_port(), workers=1)
    wait_until(lambda: "Booting worker" in web.output)
    assert_is_an_error(send(web, disk_key, VALID), 503)
    for words in (("scheduler.py",), ("flask", "keys", "create", "new")):
        failed = start(*words, DATABASE_URL=url)
        assert failed.wait() != 0
        assert len(failed.output.splitlines()) == 1
        assert "database" in failed.output
    assert remount("rw")
    wait_until(lambda: send(web, disk_key, VALID)[0] == 201)  # SQLite may keep an old file open
    assert health(web)[0] == 200


# Load


def keep_posting(web, secret, until, answered):
    """Post over one kept connection until told to stop, noting each answer's status."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    headers = {"X-Api-Key": secret, "Content-Type": "application/json"}
    body = json.dumps(VALID | {"message": "x" * 100})
    with contextlib.closing(connection):
        while not until():
            connection.request("POST", PATH, body, headers)
            with connection.getresponse() as response:
                response.read()
            answered.append(response.status)


def resident(*processes):
    """Return the megabytes of memory of processes and their children, each by itself."""
    found = [psutil.Process(each.popen.pid) for each in processes]
    whole = [each for one in found for each in (one, *one.children(recursive=True))]
    return [round(each.memory_full_info().uss / 1e6) for each in whole]


@pytest.mark.soak
def test_64_connections_get_nothing_but_201_and_memory_is_flat_over_100_000_requests(
    serve, start, database_url, key
):
    web = serve(database_url, workers=2, **ALWAYS)
    environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": "simulator:"}
    scheduler = start("scheduler.py", "--every", "0.5", **environ, LOG_LEVEL="WARNING")
    answered, memory = [], []
    for most in (10_000, 100_000):
        with ThreadPoolExecutor(64) as pool:
            arguments = web, key, lambda most=most: len(answered) >= most, answered
            for client in [pool.submit(keep_posting, *arguments) for _ in range(64)]:
                client.result()
        wait_until(lambda: {*statuses()} == {Status.SENT}, 3600)
        memory.append(resident(web, scheduler))
    print(f"megabytes of master, workers and scheduler after 10,000 and 100,000: {memory}")
    assert {*answered} == {201}
    assert Message.select().count() == len(answered)
    assert all(late < early + 15 for early, late in zip(*memory, strict=True))
