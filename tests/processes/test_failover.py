"""A Postgres whose standby takes over, and one behind PgBouncer, as docs/deploying.md has them."""

import os
import shutil
import subprocess
import time
from collections import Counter

import psycopg
import pytest

import database
from access.keys import ApiKey
from database import clock
from models import Message, Status
from postgres_server import PostgresServer
from proxy import Proxy
from running import ALWAYS, Clients, assert_as_asked, free_port, wait_until
from stored_messages import look, statuses

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH')}:/usr/sbin")


def migrate(url):
    """Create the tables and a key; the secret of the key."""
    database.connect(url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock.now())
    database.disconnect()
    return secret


def assert_all_are_stored_and_sent_once(url, clients, twilio):
    """Every text that was answered 201 is stored once, and sent once."""
    database.connect(url)
    wait_until(lambda: statuses() == {Status.SENT: len(clients.answers)})
    assert_as_asked(clients, Message.select())
    texts = Counter(message.message for message in Message.select())
    assert Counter(text for _, text in twilio.texts) == texts
    database.disconnect()


# Failover


@pytest.fixture
def primary(stoppable_postgres):
    return stoppable_postgres


@pytest.fixture
def standby(primary):
    """A synchronous standby: what is committed is in both."""
    server = PostgresServer(primary)
    primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.run("SELECT pg_reload_conf()")
    wait_until(lambda: primary.run("SELECT max(sync_state) FROM pg_stat_replication") == "sync")
    yield server
    server.close()


@pytest.fixture
def both(primary, standby):
    """The URL that names both servers."""
    proxies = [Proxy(server.folder / ".s.PGSQL.5432") for server in (primary, standby)]
    hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
    yield f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    for proxy in proxies:
        proxy.close()


def test_a_standby_takes_over_without_a_restart_and_nothing_that_was_answered_is_lost(
    primary, standby, both, serve, start, twilio
):
    secret = migrate(both)
    web = serve(both, workers=2, **ALWAYS)
    environ = ALWAYS | {"DATABASE_URL": both, "CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": "5"}
    scheduler = start("scheduler.py", "--every", "0.2", **environ)
    clients = Clients(web, secret, side_by_side=4, with_send_date=False)
    clients.wait_for_answers(20)
    began = time.monotonic()
    primary.kill()
    standby.run("SELECT pg_promote()")
    clients.wait_for_answers(1)
    print(f"no answer for {time.monotonic() - began:.1f} s")
    clients.wait_for_answers(20)
    clients.join()
    assert set(clients.statuses) <= {201, 503, None}
    assert_all_are_stored_and_sent_once(standby.url, clients, twilio)
    assert scheduler.terminate() == 0
    assert web.terminate() == 0
    assert "Traceback" not in web.output + scheduler.output


# PgBouncer


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
    stoppable_postgres, pgbouncer, serve, start, twilio
):
    secret = migrate(pgbouncer)
    web = serve(pgbouncer, workers=2, **ALWAYS)
    environ = ALWAYS | {"DATABASE_URL": pgbouncer, "CARRIER_URL": twilio.url}
    schedulers = [start("scheduler.py", "--every", "0.2", **environ) for _ in range(2)]
    clients = Clients(web, secret, side_by_side=16, with_send_date=False)
    clients.wait_for_answers(100)
    clients.join()
    assert set(clients.statuses) == {201}
    assert_all_are_stored_and_sent_once(stoppable_postgres.url, clients, twilio)
    assert [scheduler.terminate() for scheduler in schedulers] == [0, 0]
    assert web.terminate() == 0
    for process in (web, *schedulers):
        assert "Traceback" not in process.output
        assert "prepared statement" not in process.output
