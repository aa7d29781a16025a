"""A Postgres that vanishes without a word: packets are swallowed, connections stay open."""

import time

import psycopg
import pytest

import database
from databases import on_postgres
from models import Message, Status
from proxy import Proxy
from running import ALWAYS, send, wait_until
from samples import VALID
from stored_messages import again, store

BACK_AFTER = 30  # seconds


@pytest.fixture
def proxy(database_url):
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
def test_the_web_serves_again_half_a_minute_after_its_connections_fell_silent(
    database_url, key, serve, proxy
):
    web = serve(proxy.url, workers=1)
    assert send(web, key, VALID)[0] == 201
    proxy.silence()
    began = time.monotonic()
    statuses = []
    while 201 not in statuses:
        statuses.append(send(web, key, VALID)[0])
        assert time.monotonic() - began < BACK_AFTER
    assert set(statuses) <= {503, 201}
    assert Message.select().count() == 2


@pytest.mark.slow
@on_postgres
def test_the_scheduler_sends_again_half_a_minute_after_its_connection_fell_silent(
    database_url, start, twilio, proxy
):
    first = store()
    environ = ALWAYS | {"DATABASE_URL": proxy.url, "CARRIER_URL": twilio.url}
    scheduler = start("scheduler.py", "--every", "0.2", **environ)
    wait_until(lambda: again(first).status == Status.SENT)
    twilio.wait()
    held = store(to="+12125550188")
    wait_until(lambda: len(twilio.texts) == 2)
    proxy.silence()  # with a text under way, whose yes is still to be recorded
    twilio.go_on.set()
    began = time.monotonic()
    wait_until(lambda: again(held).status == Status.SENT)
    later = store(to="+12125550199")
    wait_until(lambda: again(later).status == Status.SENT)
    assert time.monotonic() - began < BACK_AFTER
    assert [number for number, _ in twilio.texts].count("+12125550188") == 1
    assert scheduler.terminate() == 0
    database.disconnect()
