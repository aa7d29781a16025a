"""The web process: how much it takes, how fast it starts, and whom it keeps waiting."""

import contextlib
import resource
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from machinery import (
    ROUNDS,
    SCRATCH,
    backends,
    bodies,
    cpu,
    databases,
    family,
    new_key,
    post,
    prepare,
    pss,
    show,
    timer,
    web,
    wrk,
)

from access.limits import parse


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
