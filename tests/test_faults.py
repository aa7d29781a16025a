"""Nothing lost and nothing doubled: processes killed, databases gone, disks full, clients slow."""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psutil
import psycopg
import pytest

import models
from conftest import NEW_YORK, ROOT, wait_until
from models import ApiKey, Message, Status, clock
from running import ALWAYS, Clients, health, send
from stored_messages import connection_of, look, statuses, store_many

pytest_plugins = ["running"]

HELLO = {"to": NEW_YORK, "message": "Hello"}


def stored_texts():
    return Counter(message.message for message in Message.select())


def assert_each_is_stored_once_and_whole(answers):
    """Every text that was answered 201 is in the database as the answer says; nothing else is."""
    assert stored_texts() == Counter(f"text {number}" for number in answers)
    for message in Message.select():
        answer = answers[int(message.message.removeprefix("text "))]
        assert str(message.id) == answer["message_id"]
        assert (message.to, message.status) == (answer["to_phone_normalized"], answer["status"])
        assert json.loads(message.answer) == answer


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
    for _ in range(4):
        time.sleep(0.3)
        workers = psutil.Process(web.popen.pid).children()
        with contextlib.suppress(psutil.NoSuchProcess):
            workers[0].kill()
    time.sleep(0.3)
    answered = len(clients.answers)
    workers = psutil.Process(web.popen.pid).children()
    os.kill(web.popen.pid, signal.SIGKILL)
    time.sleep(0.2)
    web.kill()  # and what it left behind
    for worker in workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.wait(10)
    clients.stopping = True  # what was begun is repeated until it is answered
    start(
        *("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
        DATABASE_URL=database_url,
        PORT=str(web.port),
        WEB_CONCURRENCY="2",
    )
    clients.join()
    assert answered > 20
    assert set(clients.statuses) == {201, None}
    assert_each_is_stored_once_and_whole(clients.answers)
    if database_url.startswith("sqlite"):
        assert look(database_url, "PRAGMA integrity_check") == [("ok",)]


# Crashes of the scheduler

DIE = """
import os, signal, sys
import carriers, models, scheduler

point, held = sys.argv.pop(), []

def die():
    print(f"died with {held[0]}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

def kill_at(the_point, owner, name, when):
    original = getattr(owner, name)
    def method(*args):
        if when == "before":
            die()
        original(*args)
        die()
    if the_point == point:
        setattr(owner, name, method)

claim = models.Message.claim

def remember(*args):
    messages = claim(*args)
    held.extend(message.to for message in messages)
    if messages and point == "before the claim is committed":
        die()
    return messages

models.Message.claim = remember
kill_at("after the claim is committed", scheduler.ThreadPoolExecutor, "submit", "before")
kill_at("after the carrier's yes", carriers.Twilio, "send", "after")
kill_at("before the record", scheduler.Scheduler, "record", "before")
kill_at("before the record is committed", models.Message, "sent", "after")
scheduler.main()
"""
POINTS = {  # how often a text is sent if the scheduler dies there, and another takes over
    "before the claim is committed": 1,
    "after the claim is committed": 1,
    "during the carrier's call": 2,
    "after the carrier's yes": 2,
    "before the record": 2,
    "before the record is committed": 2,
}


def test_a_scheduler_killed_at_any_point_of_a_send_loses_nothing(start, database_url, twilio):
    """Sent twice is only what the carrier had before the scheduler had recorded it."""
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
    expected = dict.fromkeys(numbers, 1) | {held[point]: times for point, times in POINTS.items()}
    assert Counter(twilio.numbers) == expected


# A database that goes away


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_web_and_scheduler_survive_a_postgres_that_is_stopped_and_started(
    serve, start, stoppable_postgres, twilio, times
):
    url = stoppable_postgres.url
    models.connect(url)
    models.upgrade()
    secret = ApiKey.issue("app", None, clock())
    web = serve(url, workers=2, **ALWAYS)
    scheduler = start(
        *("scheduler.py", "--every", "0.1"),
        **ALWAYS | {"DATABASE_URL": url, "CARRIER_URL": twilio.url},
    )
    wait_until(lambda: "waiting for a carrier" in scheduler.output)
    texts = set()

    def create():
        text = f"text {len(texts)}"
        status, _ = send(web, secret, HELLO | {"message": text})
        assert status == 201, web.output
        texts.add(text)

    for round_ in range(times):
        for _ in range(4):
            create()
        models.disconnect()
        (stoppable_postgres.kill if round_ % 2 else stoppable_postgres.stop)()
        for _ in range(4):  # both workers
            assert_is_an_error(send(web, secret, HELLO), 503)
            assert_is_an_error(health(web), 503)
        stoppable_postgres.start()
        for _ in range(4):  # both workers, and the first request of each
            create()
            assert health(web)[0] == 200
    wait_until(lambda: statuses() == {Status.SENT: len(texts)}, 60)
    assert Counter(text for _, text in twilio.texts) == Counter(texts)
    with psycopg.connect(url) as connection:
        query = "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        (connected,) = connection.execute(query).fetchone()
    models.disconnect()
    assert connected <= 5  # two workers, a scheduler, this test twice
    for process in (web, scheduler):
        assert "Traceback" not in process.output
        assert process.popen.poll() is None


def test_a_request_while_another_writes_to_sqlite_waits_its_turn(serve, tmp_path):
    url = f"sqlite:///{tmp_path}/messages.db"
    models.connect(url)
    models.upgrade()
    secret = ApiKey.issue("app", None, clock())
    models.disconnect()
    web = serve(url, workers=2)
    with contextlib.closing(connection_of(url)) as writer, ThreadPoolExecutor(8) as pool:
        writer.execute("BEGIN IMMEDIATE")
        answers = [pool.submit(send, web, secret, HELLO) for _ in range(8)]
        time.sleep(2)
        assert not any(answer.done() for answer in answers)
        assert health(web)[0] == 200
        writer.execute("ROLLBACK")
        assert [answer.result()[0] for answer in answers] == [201] * 8
