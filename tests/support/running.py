"""Real processes: start them, wait for their effects and talk to their web server."""

import contextlib
import functools
import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter, namedtuple
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from answers import PATH
from carrier_servers import served
from databases import deletions
from kits.twilio import TwilioServer
from samples import NEW_YORK
from texting import database, settings
from texting.access import keys
from texting.carriers.alphabets import count_parts
from texting.database import clock

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable
TOOLS = Path(PYTHON).parent
SECRET_KEY = "not so secret, but long enough for this"
PUBLIC_URL = "http://texts.test"  # of the browser's HOST
ALWAYS = {"BUSINESS_HOURS": "00:00-24:00", "BUSINESS_DAYS": "mon-sun"}


def free_port():
    """Return a free port that no client's connection takes before a process listens on it."""
    while True:
        port = random.randrange(11_000, 32_000)  # Linux gives clients ports from 32,768
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("", port))
            return port


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def wait_until(condition, seconds=60):
    """Wait until a condition is true; return its result."""
    deadline, pause = time.monotonic() + seconds, 0.01
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)  # many look at a database: others want the cores, too
    return result


class Process:
    """A process in its own folder and process group; its output goes to a file."""

    def __init__(self, words, folder, **environ):
        folder.mkdir(exist_ok=True)
        self.output_file = folder / f"{uuid.uuid4().hex}.log"
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in settings.Settings._fields
        }
        with self.output_file.open("wb") as output:
            self.popen = subprocess.Popen(
                [str(word) for word in words],
                cwd=folder,
                env=inherited
                | {"PYTHONPATH": str(ROOT), "FLASK_APP": str(ROOT / "app.py")}
                | environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self):
        return self.output_file.read_text(errors="replace")

    def wait(self, seconds=60):
        return self.popen.wait(seconds)

    def terminate(self, seconds=60):
        """Send SIGTERM, wait for the end and return the exit status."""
        self.popen.terminate()
        return self.wait(seconds)

    def kill(self):
        """Send SIGKILL to the process and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(60)


@contextlib.contextmanager
def started_in(folder):
    """Start processes in a folder; kill them at the end, when none has printed a traceback."""
    processes = []

    def start(program, *words, **environ):
        tool = [PYTHON, ROOT / program] if program.endswith(".py") else [TOOLS / program]
        processes.append(Process([*tool, *words], folder, **environ))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
    assert not [each.output for each in processes if "\nTraceback" in f"\n{each.output}"]


@pytest.fixture
def start(tmp_path):
    """Start a process: `start("flask", "db", "upgrade", DATABASE_URL=…)`."""
    with started_in(tmp_path / "cwd") as begin:
        yield begin


def begin_web(start, database_url, port, workers=2, **environ):
    """Start gunicorn with our configuration; it may not answer yet."""
    words = ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()")
    own = {"DATABASE_URL": database_url, "PORT": str(port), "WEB_CONCURRENCY": str(workers)}
    web = start(*words, **own, **environ)
    web.port, web.url = port, f"http://127.0.0.1:{port}{environ.get('SCRIPT_NAME', '')}"
    return web


def start_web(start, database_url, workers=2, **environ):
    """Start gunicorn and wait until it answers; `.url` is its address."""
    web = begin_web(start, database_url, free_port(), workers, **environ)
    wait_until(lambda: answers(f"{web.url}/healthz") or web.popen.poll() is not None)
    assert web.popen.poll() is None, web.output
    return web


@pytest.fixture
def serve(start):
    """Start gunicorn for one test: `serve(database_url, workers=1, LOG_FORMAT="json")`."""
    return functools.partial(start_web, start)


@pytest.fixture(scope="session")
def lasting_web(tmp_path_factory, migrated_sqlite):
    """A gunicorn of one worker with a desk, always open; `.database_url` is on SQLite."""
    folder = tmp_path_factory.mktemp("web")
    url = f"sqlite:///{shutil.copy(migrated_sqlite, folder)}"
    with started_in(folder) as start:
        web = start_web(
            start, url, workers=1, SECRET_KEY=SECRET_KEY, PUBLIC_URL=PUBLIC_URL, **ALWAYS
        )
        web.database_url = url
        yield web


@pytest.fixture
def shared_web(lasting_web):
    """A gunicorn for tests that leave it as it is, and a key: to start one takes a second.

    Its database is empty but for the key.
    """
    database.connect(lasting_web.database_url)
    for deletion in deletions():
        database.db.execute_sql(deletion)
    yield lasting_web, keys.ApiKey.issue("app", None, clock.now())
    database.db.close_all()


class PatientTwilio(TwilioServer):
    """A Twilio that answers only while `go_on` is set, as it is until `wait` clears it."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def wait(self):
        """Delay the answers to all further texts until `go_on` is set."""
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


twilio = served(PatientTwilio)


@pytest.fixture
def schedule(start, database_url):
    """Start `python scheduler.py …` on the test's database, with business hours always."""
    return lambda *words, **environ: start(
        "scheduler.py", *words, **{"DATABASE_URL": database_url} | ALWAYS | environ
    )


Response = namedtuple("Response", "status headers text")


def ask(web, method, path, body=None, headers=None):
    """Send a request over a new connection; raise OSError or HTTPException if that breaks."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read().decode())


def read_all(connection):
    """Return everything received over a socket until it is closed."""
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    return received


def post(web, secret, body, path=PATH, **headers):
    """Post a body as JSON."""
    headers = {"X-Api-Key": secret, "Content-Type": "application/json"} | headers
    return ask(web, "POST", path, json.dumps(body), headers)


def send(web, secret, body, **headers):
    """Post a text message; return the status and the JSON of the answer."""
    response = post(web, secret, body, **headers)
    return response.status, json.loads(response.text)


def assert_holds_nobody_up(web, secret):
    """Texts are taken while something is going on, and long before a time-out would end it.

    How long they take is for `make bench ONLY=silent`; here, other tests keep the machine busy.
    """
    times = []
    for _ in range(10):
        began = time.monotonic()
        assert send(web, secret, {"to": NEW_YORK, "message": "Hello"})[0] == 201
        times.append(time.monotonic() - began)
    assert statistics.median(times) < 4


def health(web):
    """Return the status and the JSON of /healthz."""
    response = ask(web, "GET", "/healthz")
    return response.status, json.loads(response.text)


def request_number(number, with_send_date=True):
    """The body of one of many requests: each optional field is there or not, in every mix."""
    texts = ("", " with Ünïcödé and 🎉", " in several parts" + " and more" * 30)
    body = {"to": f"+1212555{number % 10_000:04}", "message": f"text {number}{texts[number % 3]}"}
    if with_send_date and number % 2:
        send_date = datetime(2099, 7, 20, tzinfo=UTC) + timedelta(seconds=number)
        body["send_date"] = send_date.isoformat()
    if number % 5 < 3:
        body["check_dnc"] = number % 5 == 1
    if number % 7 < 5:
        body["available_to_group"] = number % 7 < 2
    return body


def assert_as_asked(clients, messages):
    """Each message holds what its request asked for, and each answer is its own message's."""
    by_id = {str(message.id): message for message in messages}
    for number, answer in clients.answers.items():
        asked, message = clients.body(number), by_id.pop(answer["message_id"])
        send_date = asked.get("send_date")
        options = {name: asked.get(name, False) for name in ("available_to_group", "check_dnc")}
        assert (message.to, message.message) == (asked["to"], asked["message"])
        assert message.send_date == (send_date and datetime.fromisoformat(send_date))
        assert {name: getattr(message, name) for name in options} == options
        assert {name: answer[name] for name in options} == options
        assert answer["to_phone_normalized"] == asked["to"]
        assert answer["message_length"] == len(asked["message"])
        assert message.parts == count_parts(asked["message"])
        if send_date:
            assert answer["scheduled_send_date"] == send_date.replace("+00:00", ".000Z")
        assert message.response is None or json.loads(message.response) == answer
    assert not by_id


class Clients:
    """Concurrent clients that post; each repeats a request until it is answered 201.

    `answers[n]` is the answer to `body(n)`. `statuses` counts all answers, and failed
    requests as None.
    """

    def __init__(self, web, secret, side_by_side, with_send_date=True):
        self.web, self.secret = web, secret
        self.body = functools.partial(request_number, with_send_date=with_send_date)
        self.answers, self.statuses, self.stopping = {}, Counter(), False
        self._numbers, self._guard = itertools.count(), threading.Lock()
        self._threads = [threading.Thread(target=self._post) for _ in range(side_by_side)]
        for thread in self._threads:
            thread.start()

    def _post(self):
        while not self.stopping:
            with self._guard:
                number = next(self._numbers)
            self._repeat(number, self.body(number))

    def _repeat(self, number, body):
        headers = {"Idempotency-Key": f"request-{number}"}
        while True:
            try:
                status, answer = send(self.web, self.secret, body, **headers)
            except (OSError, http.client.HTTPException, ValueError):
                status = None
            with self._guard:
                self.statuses[status] += 1
            if status == 201:
                self.answers[number] = answer
                return
            time.sleep(0.05)

    def wait_for_answers(self, count):
        """Wait for so many more answers of 201."""
        enough = len(self.answers) + count
        wait_until(lambda: len(self.answers) >= enough)

    def join(self):
        """Begin no more requests and wait until each one begun is answered 201."""
        self.stopping = True
        for thread in self._threads:
            thread.join()
