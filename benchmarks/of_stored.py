"""What a million stored messages cost, or BENCH_MESSAGES, and a long list of numbers."""

import random
import re
import statistics
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import fill
from machinery import (
    ROUNDS,
    SCRATCH,
    STORED,
    bodies,
    databases,
    get,
    new_key,
    post,
    run_command,
    run_scheduler,
    show,
    timer,
    web,
    wrk,
)

from texting import database
from texting.access.keys import Role
from texting.database import clock
from texting.messages.model import Message, Status

COMMANDS = {
    "stats": ("stats",),
    "list by number": ("messages", "list", "--to", "+12122000001"),
    "list by status": ("messages", "list", "--status", "queued"),
    "list by time": ("messages", "list", "--since", "1h"),
}


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
            rates.append(100_000 / run_command(url, "dnc", "import", file))
        show(
            f"Do Not Call import, {name}",
            f"{statistics.median(rates):.0f} numbers/s",
            ">= 15000",
            "start of the process included",
        )


def growth(server):
    """What is done with many stored messages, against the same with none."""
    file = bodies()
    for name, fresh in databases(server):
        full = fresh()
        fill.fill(STORED)
        full_key = new_key()
        empty = fresh()
        empty_key = new_key()

        settings = {"METRICS_TOKEN": "token" * 4}
        with web(url=full, **settings) as (old, _), web(url=empty, **settings) as (young, _):
            wrk(old, file, full_key, 2)
            wrk(young, file, empty_key, 2)
            rounds = [
                (wrk(old, file, full_key)[0], wrk(young, file, empty_key)[0]) for _ in range(ROUNDS)
            ]
            share = statistics.median(a / b for a, b in rounds)
            show(f"{STORED:,} messages, {name}: create", f"{share:.2f} of empty", ">= 0.90", "rate")
            bearer = {"Authorization": f"Bearer {'token' * 4}"}
            for path in ("/healthz", "/metrics"):
                compare(f"{name}: {path}", (old, young), get, path, **bearer)
        compare(f"{name}: idle pass", (full, empty), run_scheduler)
        for what, words in COMMANDS.items():
            compare(f"{name}: {what}", (full, empty), run_command, *words)


def compare(what, both, seconds, *arguments, **more):
    """Show by how much longer something takes with many messages, the median of turns."""
    pairs = [[seconds(each, *arguments, **more) for each in both] for _ in range(ROUNDS)]
    share = statistics.median(full / empty for full, empty in pairs)
    added = statistics.median(full - empty for full, empty in pairs) * 1000
    words = f"{share:.2f} of empty, {added:+.0f} ms"
    show(f"{STORED:,} messages, {what}", words, "<= 1.10, +100 ms", "time")


def desk(server):
    """The desk's pages where many texts wait for approval, one a second, and as many have ended."""
    for name, fresh in databases(server):
        url = fresh()
        fill.fill(STORED)
        fill.fill(STORED, Status.SCHEDULED)
        twice = 2 * Message.send_at.db_value(clock.now())
        Message.update(approved=False, send_at=twice - Message.send_at).where(
            Message.status == Status.SCHEDULED
        ).execute()
        fill.vacuum()
        key = new_key(role=Role.OPERATOR)
        with web(url=url, workers=1, SECRET_KEY="a" * 32) as (address, _):
            base, browser = sign_in(address, key)
            for path in ("", "messages", *(f"messages?status={status}" for status in Status)):
                first, *others = (timer(fetch, browser, base + path) for _ in range(1 + ROUNDS))
                show(
                    f"{name}: /desk/{path}",
                    f"{statistics.median(others) * 1000:.0f} ms, first {first * 1000:.0f} ms",
                    "<= 50 ms",
                    f"{STORED:,} waiting, as many ended",
                )


def usage(server):
    """`flask usage` of the last whole month."""
    for name, fresh in databases(server):
        url = fresh()
        fill.fill(3 * STORED, keys=10)
        month = ("usage", "--month", f"{clock.now() - timedelta(days=31):%Y-%m}")
        seconds = statistics.median(run_command(url, *month) for _ in range(3))
        show(
            f"usage of a month, {name}",
            f"{seconds:.1f} s",
            "<= 5 s",
            "2.6 million of 3 million messages",
        )


def sign_in(address, key):
    """The address of the desk, and a browser that is signed in there."""
    base = address.removesuffix("v1/text-messages") + "desk/"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    token = re.search(r'name="csrf_token" value="([^"]+)', fetch(browser, base))[1]
    form = urllib.parse.urlencode({"csrf_token": token, "key": key})
    fetch(browser, base + "sign-in", form.encode())
    return base, browser


def fetch(browser, address, form=None):
    with browser.open(address, form, timeout=60) as response:
        return response.read().decode()


def purge(server):
    """The longest that a 201 takes while all that is stored is purged."""
    for name, fresh in databases(server):
        url = fresh()
        fill.fill(STORED)
        key, waits = new_key(), []
        words = ("messages", "purge", "--older-than", "1", "--yes")
        with web(url=url) as (address, _), ThreadPoolExecutor(1) as pool:
            purged = pool.submit(run_command, url, *words)
            while not purged.done():
                waits.append(timer(post, address, key))
        show(
            f"purge of {STORED:,}, {name}: a 201 takes at most",
            f"{max(waits) * 1000:.0f} ms",
            "<= 1000 ms",
            f"{len(waits)} texts in the {purged.result():.0f} s that it takes",
        )
