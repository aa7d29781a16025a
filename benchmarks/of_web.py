"""The web process: how much it takes, how fast it starts, and whom it keeps waiting."""

import contextlib
import http.client
import resource
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import fill
from machinery import (
    ALWAYS,
    ROUNDS,
    SCRATCH,
    backends,
    bodies,
    cpu,
    databases,
    family,
    new_key,
    peer,
    post,
    prepare,
    pss,
    show,
    start_scheduler,
    timer,
    web,
    wrk,
)
from twilio.request_validator import RequestValidator

from texting import database
from texting.access.limits import parse
from texting.messages import model


def create(server):
    """Throughput as a share of a no-op's, and the tail, on both databases."""
    file, targets = bodies(), {"SQLite": 0.45, "Postgres": 0.45}
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
        show(f"create, {name}: p99 / p50", f"{tail:.1f} (p50 {p50:.1f} ms)", "<= 4")


def limited(server):
    """What a limit costs a create: CPU of all processes, the database's too, with and without."""
    file, limits = bodies(), parse("1000000/d")
    for name, fresh in databases(server):
        url = fresh()
        free, bound = new_key(), new_key(limits=limits)
        with web(url=url) as (ours, pid):
            for key in (free, bound):
                wrk(ours, file, key, 2)
            rounds = [  # many and short, because the speed of a machine drifts more than this
                [cost(url, ours, pid, file, key) for key in (free, bound)]
                for _ in range(3 * ROUNDS)
            ]
        without, more = (
            statistics.median(values) * 1e6
            for values in zip(*((a, b - a) for a, b in rounds), strict=True)
        )
        show(
            f"create with a limit, {name}: CPU more than without",
            f"{more:.0f} µs ({without:.0f} µs without)",
            "<= 40 µs",
        )


def cost(url, address, pid, file, key):
    """The seconds of CPU that a create takes, in the web processes and in the database's."""
    pids = [*family(pid), *backends(url)]
    before = sum(map(cpu, pids))
    rate, *_ = wrk(address, file, key, seconds=1)
    return (sum(map(cpu, pids)) - before) / rate


def silent(server):
    """How long others wait beside 1,000 clients that begin a request and never end it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    url = prepare(f"sqlite:///{SCRATCH}/silent.db")
    key = new_key()
    with web(url=url) as (address, _), contextlib.ExitStack() as clients:
        post(address, key)
        port = int(address.split(":")[2].split("/")[0])
        head = b"POST /v1/text-messages HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n"
        for n in range(1000):
            client = socket.create_connection(("127.0.0.1", port))
            clients.enter_context(client).send(head[: n % len(head)])
        times = waits(address, key)
    show("1,000 silent clients: another waits at most", f"{max(times) * 1000:.0f} ms", "<= 1000 ms")


def flooded(server):
    """How long others wait beside 200 connections that ask with a wrong key without a pause."""
    file, url = bodies(5000), prepare(f"sqlite:///{SCRATCH}/flooded.db")
    key = new_key()
    with web(url=url) as (address, _), ThreadPoolExecutor(1) as pool:
        post(address, key)
        flood = pool.submit(wrk, address, file, "wrong", 30, 200)
        times = waits(address, key)
        assert not flood.done(), "it lasts longer than these"
        rate, *_ = flood.result()
    show(
        "200 connections with a wrong key: another waits",
        f"{statistics.median(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms",
        "<= 1000 ms",
        f"{rate:.0f} refusals/s meanwhile",
    )


def waits(address, key):
    """The seconds that each of 40 creates takes."""
    times = []
    for _ in range(40):
        times.append(timer(post, address, key))
        time.sleep(0.2)
    return times


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
    show("start to the first 201", f"{statistics.median(times):.2f} s", "<= 1.2 s")
    show(
        "memory, master and two workers (PSS)",
        f"{statistics.median(memories) / 1024:.0f} MiB",
        "<= 150 MiB",
        "after 2 s of load",
    )


def replies(server):
    """Creates and sends beside 2,000 replies a minute, as a share of those without."""
    file, outside = bodies(), "https://texts.example.com"
    with peer("twilio") as port:
        carrier = f"twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:{port}"
        for name, fresh in databases(server):
            url = fresh()
            key = new_key()
            fill.fill(100_000, model.Status.QUEUED)
            database.disconnect()
            settings = ALWAYS | {"CARRIER_URL": carrier, "PUBLIC_URL": outside}
            with web(url=url, **settings) as (ours, _), start_scheduler(url, **settings) as pass_:
                wrk(ours, file, key, 5)
                database.connect(url)
                pairs = []
                try:
                    for number in range(ROUNDS):
                        alone = created_and_sent(ours, file, key)
                        with replying(ours, outside, number):
                            pairs.append((alone, created_and_sent(ours, file, key)))
                    assert pass_.poll() is None, "it has texts until the end"
                finally:
                    pass_.terminate()
                database.disconnect()
            for at, what in enumerate(("creates", "sends")):
                shares = [beside[at] / alone[at] for alone, beside in pairs]
                alone = statistics.median(each[at] for each, _ in pairs)
                show(
                    f"{what} beside 2,000 replies a minute, {name}",
                    f"{statistics.median(shares):.2f} (of {alone:.0f}/s)",
                    ">= 0.90",
                )


def created_and_sent(address, file, key, seconds=3):
    """The creates and the sends a second."""
    before = sent()
    rate, *_ = wrk(address, file, key, seconds)
    return rate, (sent() - before) / seconds


def sent():
    return model.Message.select().where(model.Message.status == model.Status.SENT).count()


REPLYING = 4  # connections
PAUSE = REPLYING * 60 / 2000  # seconds between the replies of one


@contextlib.contextmanager
def replying(address, outside, number):
    """Have 2,000 replies a minute come until the end."""
    clients = [Replies(address, outside, f"{number:02}{one}") for one in range(REPLYING)]
    try:
        yield
    finally:
        for client in clients:
            client.stopped.set()
    for client in clients:
        client.join()
        assert client.rate > 0.9 / PAUSE, "as many as it is to send"


class Replies(threading.Thread):
    """Replies signed by Twilio's library over one connection, until it is stopped."""

    def __init__(self, address, outside, series):
        super().__init__()
        self.address, self.outside, self.series = urlsplit(address).netloc, outside, series
        self.stopped = threading.Event()
        self.start()

    def run(self):
        began, self.number = time.monotonic(), 0
        client = http.client.HTTPConnection(self.address)
        validator, path = RequestValidator("token"), "/carriers/twilio/inbound"
        while not self.stopped.wait(max(0, began + self.number * PAUSE - time.monotonic())):
            self.number = number = self.number + 1
            sid = f"SM{self.series}{number:029}"
            caller = f"+1212{5550000 + number % 9999}"
            fields = {"MessageSid": sid, "From": caller, "To": "+15005550006"}
            fields |= {"Body": f"Yes, I will come at {number}", "AccountSid": "AC1"}
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            headers["X-Twilio-Signature"] = validator.compute_signature(self.outside + path, fields)
            client.request("POST", path, urlencode(fields), headers)
            answer = client.getresponse()
            answer.read()
            assert answer.status < 300, answer.status
        self.rate = self.number / (time.monotonic() - began)
