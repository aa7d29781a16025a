"""Sending beside what somebody would write in an evening, and beside an older version."""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial

import peers
from machinery import ALWAYS, ROOT, ROUNDS, SCRATCH, cpu, databases, show

TEXTS = 2000
WORKERS = {"SQLite": ("huey", 1.4), "Postgres": ("procrastinate", 2.5)}
NEEDS = """beside: needs Python packages that the service does not:
python -m venv peers
peers/bin/pip install huey requests procrastinate 'psycopg[binary]'
BENCH_PEERS=peers/bin/python make bench ONLY=beside"""
FILL = (
    "import sys, fill; fill.database.connect(sys.argv[1]); fill.database.upgrade(); "
    f"fill.fill({TEXTS}, fill.Status.QUEUED)"
)


def beside(server):
    """A pass at 32 at once, in turns with a worker of huey's or procrastinate's threads."""
    if not (python := os.environ.get("BENCH_PEERS")):
        print(NEEDS)
        return
    for name, fresh in databases(server):
        peer, target = WORKERS[name]
        words = [os.path.abspath(python), ROOT / f"benchmarks/worker_{peer}.py"]
        sides = partial(ours, ROOT, fresh, 32), partial(theirs, words, fresh)
        compare(f"{name}, 32 at once, beside {peer}", sides, target)


def before(server):
    """A pass at 128 at once, in turns with the version of the commit BENCH_BEFORE."""
    if not (commit := os.environ.get("BENCH_BEFORE")):
        print("before: needs a commit, BENCH_BEFORE=COMMIT make bench ONLY=before")
        return
    tree, git = SCRATCH / "before", ["git", "-C", ROOT, "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", tree, commit], check=True)
    try:
        for name, fresh in databases(server):
            sides = partial(ours, ROOT, fresh, 128), partial(ours, tree, fresh, 128)
            compare(f"{name}, 128 at once, beside {commit}", sides, 1.3)
    finally:
        subprocess.run([*git, "remove", "--force", tree], check=True)


def compare(what, sides, target):
    """Show texts/s and CPU as shares of the other side's: medians of turns, and the extremes."""
    turns = [[side() for side in sides] for _ in range(ROUNDS)]
    for unit, wanted, place in (("texts/s", f">= {target}", 0), ("ms of CPU", "<= 0.80", 1)):
        own, its = ([turn[side][place] for turn in turns] for side in (0, 1))
        shares = sorted(a / b for a, b in zip(own, its, strict=True))
        show(
            what,
            f"{statistics.median(shares):.2f} ({statistics.median(own):.4g} {unit})",
            wanted,
            f"{statistics.median(its):.4g}; {shares[0]:.2f} to {shares[-1]:.2f} in {ROUNDS} turns",
        )


def ours(root, fresh, at_once):
    """Texts/s of a pass of the scheduler of this or another version, and its ms of CPU a text."""
    url, python = fresh(), [sys.executable, "-W", "ignore"]
    subprocess.run([*python, "-c", FILL, url], cwd=root / "benchmarks", check=True)
    with carrier() as (address, measured):
        environ = os.environ | ALWAYS | {"DATABASE_URL": url, "LOG_LEVEL": "WARNING"}
        environ |= {"CARRIER_URL": f"webhook+{address}", "SEND_CONCURRENCY": str(at_once)}
        return measured([*python, root / "scheduler.py"], environ)


def theirs(words, fresh):
    """The same of a worker."""
    words = [*words, fresh().removeprefix("sqlite:///")]
    with carrier() as (address, measured):
        subprocess.run([*words, address, str(TEXTS)], check=True)
        return measured([*words, address, "work"], os.environ)


@contextmanager
def carrier():
    """The address of a carrier of 50 ms, and what measures a process that gives it all texts.

    That is from the first text that it is given to the last one.
    """
    marks, is_given_all = [], threading.Event()
    process = None

    def respond():
        marks.append((time.monotonic(), cpu(process.pid)))
        if len(marks) == TEXTS:
            is_given_all.set()
        return peers.twilio()

    def measured(words, environ):
        nonlocal process
        with (SCRATCH / "worker.log").open("w") as log:
            process = subprocess.Popen(words, env=environ, cwd=SCRATCH, stdout=log, stderr=log)
        assert is_given_all.wait(300), (SCRATCH / "worker.log").read_text()
        time.sleep(1)  # until it has recorded the last answers
        process.send_signal(signal.SIGINT)
        process.wait(30)
        seconds, spent = (last - first for first, last in zip(marks[0], marks[-1], strict=True))
        return TEXTS / seconds, spent / TEXTS * 1000

    loop = asyncio.new_event_loop()
    server = asyncio.start_server(peers.http(respond), "127.0.0.1", 0, backlog=1024)
    port = loop.run_until_complete(server).sockets[0].getsockname()[1]
    threading.Thread(target=loop.run_forever, daemon=True).start()
    yield f"http://127.0.0.1:{port}/", measured
    loop.call_soon_threadsafe(loop.stop)
