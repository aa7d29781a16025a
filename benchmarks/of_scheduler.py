"""The scheduler: an idle pass, sending, promotion, and many of them at once."""

import contextlib
import re
import statistics
import time
from collections import Counter
from functools import partial

import fill
import psycopg
from machinery import (
    ALWAYS,
    ROUNDS,
    STORED,
    databases,
    peer,
    run_scheduler,
    show,
    start_scheduler,
    web,
)
from peewee import SQL, fn

from texting import database
from texting.access import keys
from texting.carriers.configs import parse
from texting.carriers.lanes import Routes
from texting.database import clock
from texting.events.outbox import Event, EventAddress
from texting.messages import model, waiting
from texting.reports import queue
from texting.sending.claims import Turns

TEXTS, SENDINGS = 4000, 3
DELAY = 0.05  # seconds, as in peers.py
CARRIERS = (
    "console:",
    "twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:9",
    "vonage://key:secret@sender?base_url=http://127.0.0.1:9",
    "webhook+http://127.0.0.1:9/",
    "json://127.0.0.1/?:to={to}",
)


def idle(server):
    """A whole pass with nothing to do, for a cheap carrier and for one of Apprise's."""
    for name, fresh in databases(server):
        url = fresh()
        database.disconnect()
        for carrier in CARRIERS:
            times = [run_scheduler(url, CARRIER_URL=carrier) for _ in range(2 * ROUNDS)]
            show(
                f"an idle pass, {name}, {carrier.partition(':')[0]}:",
                f"{statistics.median(times):.2f} s",
                "<= 0.6 s",
            )


def send(server):
    """Texts/s from the first send of a pass to its last yes, a carrier of 50 ms."""
    with peer("twilio") as port, peer("smpp") as smpp_port:
        twilio = f"twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:{port}"
        apprise = f"json://127.0.0.1:{port}/?:to={{to}}"
        smpp = f"smpp://user:secret@127.0.0.1:{smpp_port}/15005550006"
        figures = (
            ("Twilio, 32", twilio, 32, 500),
            ("Twilio, 128", twilio, 128, 1500),
            ("Apprise, 32", apprise, 32, 200),
            ("SMPP, window 64", smpp, 64, 1000),
        )
        for name, fresh in databases(server):
            for kind, carrier_url, concurrency, target in figures:
                times = [send_all(fresh(), carrier_url, concurrency) for _ in range(SENDINGS)]
                sending, whole = map(statistics.median, zip(*times, strict=True))
                show(
                    f"sending, {name}, {kind}",
                    f"{TEXTS / sending:.0f} texts/s",
                    f">= {target}",
                    f"the limit is {concurrency / DELAY:.0f}; the whole pass took {whole:.1f} s",
                )


def send_all(url, carrier_url, concurrency):
    """The seconds for which a pass sends TEXTS texts, and which it takes as a whole."""
    fill.fill(TEXTS, model.Status.QUEUED)
    database.disconnect()
    seconds = run_scheduler(
        url, CARRIER_URL=carrier_url, SEND_CONCURRENCY=str(concurrency), **ALWAYS
    )
    assert queue.by_status()[model.Status.SENT] == TEXTS
    first, last = model.Message.select(
        fn.MIN(model.Message.finished_at), fn.MAX(model.Message.finished_at)
    ).scalar(as_tuple=True)
    database.disconnect()
    return DELAY + (last - first).total_seconds(), seconds


def events(server):
    """Texts of one key and events of another, beside four keys whose receivers are bad."""
    with contextlib.ExitStack() as peers:
        kinds = ("twilio", "quick", "failing", "hanging", "dripping")
        carrier, *ports = [peers.enter_context(peer(kind)) for kind in kinds]
        quick, *bad = [f"http://127.0.0.1:{port}/" for port in (*ports, 9)]  # nobody has port 9
        for name, fresh in databases(server):
            times = {"without": [], "beside": []}
            for _ in range(SENDINGS):
                times["without"].append(send_and_tell(fresh(), carrier, [quick]))
                times["beside"].append(send_and_tell(fresh(), carrier, [quick, *bad]))
            without, beside = (
                [statistics.median(each) for each in zip(*rounds, strict=True)]
                for rounds in times.values()
            )
            for what, alone, together in zip(("texts", "events"), without, beside, strict=True):
                show(
                    f"1,000 {what} beside four bad receivers, {name}",
                    f"{together / alone:.2f} of the time without",
                    "<= 1.10",
                    f"{1000 / together:.0f} {what}/s",
                )


def send_and_tell(url, carrier, receivers):
    """The seconds from the first of 1,000 texts and as many events of each receiver.

    Until the last text, and until the last event of the first receiver.
    """
    fill.fill(1000 * (1 + len(receivers)), model.Status.QUEUED, keys=1 + len(receivers))
    now = clock.now()
    sender, told, *others = keys.ApiKey.select().order_by(keys.ApiKey.id)
    for key, address in zip((told, *others), receivers, strict=True):
        EventAddress.set(key, address, now)
    ended = {"status": model.Status.CANCELLED, "finished_at": now}
    model.Message.change(model.Message.update(ended).where(model.Message.key != sender))
    carrier_url = f"twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:{carrier}"
    unsent = model.Message.select().where(model.Message.status != model.Status.SENT)
    left = {
        "texts": unsent.where(model.Message.key == sender),
        "events": Event.select().where(Event.key == told),
    }
    scheduler = start_scheduler(url, CARRIER_URL=carrier_url, SEND_CONCURRENCY="8", **ALWAYS)
    began_at, seconds = None, {}
    while len(seconds) < 2:
        has_ended = scheduler.poll() is not None
        counts = {name: query.count() for name, query in left.items()}
        if began_at is None and min(counts.values()) < 1000:
            began_at = time.monotonic()
        for name in [name for name, count in counts.items() if not count]:
            seconds[name] = time.monotonic() - began_at
            del left[name]
        assert not (left and has_ended), f"the pass left {counts}"
        time.sleep(0.02)
    scheduler.terminate()
    scheduler.communicate()
    database.disconnect()
    return seconds["texts"], seconds["events"]


def many(server):
    """Eight schedulers against one, beside four web processes, on one Postgres."""
    (_, (_, fresh)) = databases(server)
    with peer("twilio") as port:
        carrier_url = f"twilio://AC1:token@+15005550006?base_url=http://127.0.0.1:{port}"
        environ = {"CARRIER_URL": carrier_url, "SEND_CONCURRENCY": "16"} | ALWAYS
        seconds, spread, waits = {}, None, []
        for count in (1, 8):
            url = fresh()
            fill.fill(4 * TEXTS, model.Status.QUEUED)
            database.disconnect()
            with web(url=url, workers=4):
                started = time.monotonic()
                schedulers = [start_scheduler(url, **environ) for _ in range(count)]
                while any(each.poll() is None for each in schedulers):
                    waits += longest_waits(url)
                    time.sleep(0.02)
                seconds[count] = time.monotonic() - started
            lines = [each.stdout.read() for each in schedulers]
            sent = [int(re.search(r"(\d+) sent", line)[1]) for line in lines]
            assert sum(sent) == 4 * TEXTS, sent
            spread = min(sent) / (sum(sent) / count)
    show("8 schedulers: throughput", f"{seconds[1] / seconds[8]:.2f} of one's", ">= 1.00")
    show(
        "8 schedulers: least sent by one of them", f"{spread:.2f} of its share", "", "claims spread"
    )
    show("8 schedulers: longest wait for a lock", f"{max(waits, default=0):.0f} ms", "<= 100 ms")


def longest_waits(url):
    """The milliseconds for which statements wait for a lock just now."""
    query = (
        "SELECT extract(epoch FROM clock_timestamp() - waitstart) * 1000 FROM pg_locks "
        "WHERE NOT granted AND waitstart IS NOT NULL"
    )
    with psycopg.connect(url) as connection:
        return [float(milliseconds) for (milliseconds,) in connection.execute(query)]


def promote(server):
    """The promotion of 100,000 messages that are due."""
    for name, fresh in databases(server):
        times = []
        for _ in range(3):
            fresh()
            fill.fill(100_000, model.Status.SCHEDULED)
            started = time.monotonic()
            promoted = sum(iter(lambda: waiting.promote(clock.now()), Counter()), Counter())
            assert promoted == {model.Status.QUEUED: 100_000}
            times.append(time.monotonic() - started)
            database.disconnect()
        show(f"promotion of 100,000, {name}", f"{statistics.median(times):.2f} s", "<= 3 s")


def turns(server):
    """Claims by shares: a thousand keys, with STORED queued texts together.

    Then of texts to sixty countries, and of one text for a country of its own, with all others
    waiting for a carrier in trouble.
    """
    for name, fresh in databases(server):
        fresh()
        fill.fill(STORED, model.Status.QUEUED, keys=1000)
        claimed = claims_of("turns", name, Routes(parse("console:")), "console", ())
        assert len({message.key_id for message in claimed}) == 8
        second = SQL("'' || (send_at / 1000 - send_at / 60000 * 60)")
        change_lanes(second)
        claims_of("60 countries", name, Routes(parse("console:")), "console", (), most=25)
        change_lanes(model.Message.country)
        routes = Routes(parse("console:#name=us&countries=US simulator:#name=eu&countries=GB"))
        last = model.Message.select().order_by(model.Message.id.desc()).get()
        last.lane = last.country = "GB"
        last.save()
        claimed = claims_of("another country", name, routes, "eu", {"us"}, put_back=True)
        assert [message.id for message in claimed] == [last.id]
        database.disconnect()


@database.patience()
def change_lanes(value):
    """Put all messages into other lanes."""
    model.Message.update(lane=value).execute()
    fill.vacuum()


def claims_of(what, name, routes, carrier, trouble, put_back=False, most=10):
    """Show how long fifty claims for a carrier take; return what the last has claimed.

    Before each tenth, keys and lanes are read anew, as happens once a second while texts go.
    """
    times, looks, turns = [], [], Turns(routes)
    may_take = partial(routes.may_take, carrier, trouble=trouble)
    for number in range(50):
        began = time.perf_counter()
        if number % 10 == 0:
            turns.refresh(may_take)
            looks.append(time.perf_counter() - began)
            began = time.perf_counter()
        with database.db.atomic():
            claimed = turns.claim(8, may_take)
        times.append(time.perf_counter() - began)
        if put_back:
            model.Message.put_back(claimed)
            turns.put_back(claimed)
    show(
        f"a claim of 8, {what}, 1,000 keys, {name}",
        f"{statistics.median(times) * 1000:.1f} ms",
        f"<= {most} ms",
        f"{STORED:,} queued; {statistics.median(looks) * 1000:.1f} ms to look anew; "
        f"the longest took {max(times) * 1000:.1f} ms",
    )
    return claimed
