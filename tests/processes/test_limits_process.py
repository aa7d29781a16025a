"""Limits over several processes: never one more, whatever runs at once."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from access.keys import ApiKey
from access.limits import parse
from database import clock
from databases import on_postgres, on_sqlite
from models import Message
from running import ALWAYS, post
from samples import NEW_YORK
from stored_messages import look

A_SECOND, A_MINUTE = 50, 1000
CLIENTS = 16  # of each gunicorn


def flood(webs, secret, seconds):
    """Post from many clients for some seconds; return the statuses and how long it took."""
    ends_at, statuses, guard = time.monotonic() + seconds, Counter(), threading.Lock()

    def run(number):
        while time.monotonic() < ends_at:
            body = {"to": NEW_YORK, "message": f"from {number}"}
            answer = post(webs[number % len(webs)], secret, body)
            with guard:
                statuses[answer.status] += 1
            if answer.status == 429:
                assert int(answer.headers["Retry-After"]) >= 1
                time.sleep(0.1)  # the load is the gunicorns', not ours

    began_at = clock.now()
    with ThreadPoolExecutor(CLIENTS * len(webs)) as pool:
        assert [*pool.map(run, range(CLIENTS * len(webs)))]
    return statuses, began_at, clock.now()


def allowed(began_at: datetime, ended_at: datetime) -> int:
    """How many messages the limits allow between two instants."""
    total = 0
    minute = began_at.replace(second=0, microsecond=0)
    while minute < ended_at:
        end = min(minute + timedelta(minutes=1), ended_at)
        seconds = (end - max(minute, began_at)).total_seconds()
        total += min(A_MINUTE, A_SECOND * seconds)
        minute += timedelta(minutes=1)
    return total


def holds(database_url, seconds, serve):
    secret = ApiKey.issue("shop", None, clock.now(), limits=parse(f"{A_SECOND}/s,{A_MINUTE}/min"))
    webs = [serve(database_url, **ALWAYS) for _ in range(2)]
    statuses, began_at, ended_at = flood(webs, secret, seconds)
    created = [at for (at,) in look(database_url, "SELECT created_at FROM message")]
    assert statuses.keys() <= {201, 429}
    assert len(created) == statuses[201]
    assert max(Counter(at // 1000 for at in created).values()) <= A_SECOND
    assert max(Counter(at // 60_000 for at in created).values()) <= A_MINUTE
    assert len(created) >= 0.9 * allowed(began_at, ended_at)


@pytest.mark.timed
@on_postgres
def test_two_gunicorns_accept_never_one_more_and_nearly_as_many_as_allowed(database_url, serve):
    holds(database_url, 3, serve)


@on_postgres
@pytest.mark.soak
def test_two_gunicorns_hold_the_limits_for_more_than_a_minute(database_url, serve):
    holds(database_url, 65, serve)


@on_sqlite
def test_two_gunicorns_on_one_sqlite_accept_never_one_more(database_url, serve):
    secret = ApiKey.issue("shop", None, clock.now(), limits=parse("30/s"))
    webs = [serve(database_url, **ALWAYS) for _ in range(2)]
    statuses, _, _ = flood(webs, secret, 2)
    assert statuses.keys() <= {201, 429}
    created = [at for (at,) in look(database_url, "SELECT created_at FROM message")]
    assert len(created) == statuses[201]
    assert max(Counter(at // 1000 for at in created).values()) == 30


def test_a_new_limit_holds_in_every_process_when_the_command_returns(database_url, serve, run):
    secret = ApiKey.issue("shop", None, clock.now())
    webs = [serve(database_url, **ALWAYS) for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(flood, webs, secret, 3)
        time.sleep(1)
        run("keys", "limit", "shop", "1/d")
        time.sleep(0.2)  # for what is being stored
        created = Message.select().count()
        statuses, _, _ = busy.result()
    assert created > 1
    assert Message.select().count() == created == statuses[201]


def test_a_number_gets_never_one_more_from_several_keys_and_processes(database_url, serve):
    secrets = [ApiKey.issue(name, None, clock.now()) for name in ("shop", "bank", "club")]
    webs = [serve(database_url, RECIPIENT_LIMIT="7/1h", **ALWAYS) for _ in range(2)]
    with ThreadPoolExecutor(len(secrets)) as pool:
        floods = [*pool.map(lambda secret: flood(webs, secret, 1), secrets)]
    assert Message.select().count() == 7
    assert sum(statuses[201] for statuses, _, _ in floods) == 7
