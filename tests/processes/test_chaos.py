"""Everything fails at once: carrier, database, network and processes, by chance and with a seed.

CHAOS_SECONDS and CHAOS_SEED choose another run than the usual one: `make soak`. Run no more at once
than there are cores: an answer that comes late because the carrier was starved is one more doubt.
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from functools import partial

import psutil
import pytest

from carrier_servers import (
    DRIP,
    HANG,
    HANG_UP,
    Answer,
    playing,
)
from databases import on_both
from kits import CLASSES, KITS, OURS, codes_of
from proxy import Proxy
from running import ALWAYS, Clients, assert_as_asked, begin_web, free_port, wait_until
from texting import database
from texting.access.keys import ApiKey
from texting.database import clock
from texting.events.outbox import Event, EventAddress
from texting.messages.attempts import Attempt
from texting.messages.model import Message, Status
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT

pytestmark = on_both

SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECONDS = int(os.environ.get("CHAOS_SECONDS", "120"))
CLAIM_TIMEOUT, CARRIER_TIMEOUT = 4, 2
WEBS, PROCESSES = 2, 5
ENDED = (Status.SENT, Status.FAILED)
SETTLED = 600  # seconds after which all must be done once nothing fails any more

YES = "the carrier's own yes"
PAGE = b"<html>"
ANSWERS = [
    (300, True, YES),
    (6, True, HANG_UP),
    (4, True, HANG),
    (2, True, Answer(502, PAGE)),
    (3, False, HANG),
    (6, False, HANG_UP),
    (2, False, DRIP),
    (2, False, Answer(504, PAGE)),
    (5, False, Answer(503, PAGE)),
]
"""What a carrier does: the weight, whether it takes the text, and its answer."""

ALONE = [["twilio"], ["vonage"], ["webhook"]]
"""A carrier that is asked about a doubt, one that gets another copy, one that knows it again."""
TOGETHER = [OURS[number::3] for number in range(3)]


class Faulty:
    """Make a carrier's server fail in every way, until `calm` is set.

    It refuses for good what goes to a number that ends in 7. While `away` is set, only a gateway
    answers. `yeses[text]` lists the answers to the copies that it took. `unanswered[text]` counts
    the requests that it left in doubt.
    """

    page_size = 50

    def __init__(self, chance):
        self.chance, self.guard = chance, threading.Lock()
        self.calm, self.away = threading.Event(), threading.Event()
        self.kinds, self.yeses = Counter(), defaultdict(list)
        self.unanswered = Counter()
        super().__init__()

    @property
    def copies(self):
        """How many copies it took, by texts: one that it knows by its id is none."""
        return Counter(text for _, text in self.texts)

    def take(self, request):
        with self.guard:
            takes, answer = (True, YES) if self.calm.is_set() else self.choose()
            self.kinds[takes, answer if isinstance(answer, str) else answer.status] += 1
            if request.method == "POST":
                answer = self.answer_to(request, takes, answer)
            elif answer == YES:
                answer = super().take(request)
        if answer == HANG:  # for longer than is waited for
            self.closing.wait(CARRIER_TIMEOUT + 1)
            return HANG_UP
        return answer

    def choose(self):
        if self.away.is_set():
            return False, Answer(503, PAGE)
        known = [*ANSWERS, *((weight, False, no) for weight, no in self.noes)]
        ((_, takes, answer),) = self.chance.choices(known, [weight for weight, *_ in known])
        return takes, answer

    def answer_to(self, request, takes, answer):
        number, text = self.read(request)
        if takes and number.endswith("7"):
            return self.about(request, self.never)
        if takes:
            yes = super().take(request)
            self.yeses[text].append(yes.body)
            answer = yes if answer == YES else answer
        if answer in (HANG, HANG_UP, DRIP) or answer.status in (502, 504):
            self.unanswered[text] += 1
        return self.about(request, answer)


def faulty(name):
    """Return the class of a carrier's server that fails in every way."""
    kit, kind = KITS[name], CLASSES[name]
    others = codes_of(name, "no_route") | codes_of(name, "opted_out")

    def no(group):
        return kit.answer(min(codes_of(name, group) - others, key=str))

    own = {
        "name": name,
        "keeps_ids": bool(kind.keeps_ids),
        "settles_doubts": bool(kind.keeps_ids or kind.can_be_asked),
        "noes": ((1, no("too_fast")), (5, kit.answer(kit.for_now[0])), (0.3, no("account"))),
        "never": no("permanent"),
    }
    return type(f"Faulty{kit.server.__name__}", (Faulty, kit.server), own)


class StoredInPostgres:
    """A PostgreSQL that is killed, and proxies in front of it that lose connections."""

    def __init__(self, server, processes):
        self.server, self.url = server, server.url
        self.proxies = [Proxy(server.folder / ".s.PGSQL.5432") for _ in range(processes)]
        local = "postgresql://postgres@127.0.0.1:{}/postgres"
        self.urls = [local.format(proxy.port) for proxy in self.proxies]
        self.faults = (self.reset, self.slow_down, self.restart)
        self.deaf = (self.silence,)

    def reset(self, chance):
        chance.choice(self.proxies).reset()

    def silence(self, chance):
        chance.choice(self.proxies).silence()

    def slow_down(self, chance):
        proxy = chance.choice(self.proxies)
        proxy.delay = chance.uniform(0.01, 0.3)
        time.sleep(2)
        proxy.delay = 0

    def restart(self, chance):
        chance.choice((self.server.kill, self.server.stop))()
        time.sleep(chance.uniform(0, 2))
        self.server.start()

    def close(self):
        for proxy in self.proxies:
            proxy.close()


class StoredInSqlite:
    """A file that another program locks, for longer than anybody waits for it."""

    deaf = ()

    def __init__(self, path, processes):
        self.path, self.url = path, f"sqlite:///{path}"
        self.urls, self.faults = [self.url] * processes, (self.lock,)

    def lock(self, chance):
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout = 60000")
            other.execute("BEGIN IMMEDIATE")
            time.sleep(chance.choice((1, CLAIM_TIMEOUT * 2)))

    def close(self):
        """Nothing is open."""


class Faults(threading.Thread):
    """Break something, and mend it, again and again until `stopping` is set.

    With `schedulers_live`, no scheduler dies, stands still or loses sight of the database alone.
    """

    def __init__(self, chance, store, carriers, webs, schedulers, one_pass, schedulers_live):
        super().__init__()
        self.chance, self.carriers = chance, carriers
        self.webs, self.schedulers = webs, schedulers
        self.stopping, self.done, self.error = threading.Event(), Counter(), None
        self.faults = [partial(fault, chance) for fault in store.faults]
        self.faults += [self.kill_worker, self.kill_web, self.stop_worker, self.lose_carriers]
        self.faults += [one_pass]  # as from cron; not broken, but it may find others' claims old
        if not schedulers_live:
            self.faults += [partial(fault, chance) for fault in store.deaf]
            self.faults += [self.kill_scheduler, self.end_scheduler, self.stop_scheduler]

    def run(self):
        try:
            while not self.stopping.wait(self.chance.uniform(0.2, 2)):
                fault = self.chance.choice(self.faults)
                self.done[getattr(fault, "func", fault).__name__] += 1
                fault()
        except Exception as error:
            self.error = error

    def lose_carriers(self):
        """Have one of the carriers, or several, be away."""
        lost = self.chance.sample(self.carriers, self.chance.randint(1, len(self.carriers)))
        for carrier in lost:
            carrier.away.set()
        self.stopping.wait(self.chance.uniform(0, 2))
        for carrier in lost:
            carrier.away.clear()

    def kill_worker(self):
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            self.chance.choice(self.webs).workers[0].kill()

    def kill_web(self):
        self.chance.choice(self.webs).restart()

    def kill_scheduler(self):
        self.chance.choice(self.schedulers).restart()

    def end_scheduler(self):
        scheduler = self.chance.choice(self.schedulers)
        scheduler.process.popen.terminate()
        self.stopping.wait(self.chance.uniform(0, 3))
        scheduler.restart()

    def stop_scheduler(self):
        """Stop it for so long that others take its messages over, then let it work on."""
        pid = self.chance.choice(self.schedulers).process.popen.pid
        os.kill(pid, signal.SIGSTOP)
        self.stopping.wait(self.chance.choice((1, CLAIM_TIMEOUT * 2)))
        os.kill(pid, signal.SIGCONT)

    def stop_worker(self):
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            worker = self.chance.choice(self.webs).workers[0]
            worker.suspend()
            self.stopping.wait(2)
            worker.resume()


class Restartable:
    """A process that can be killed and started anew."""

    def __init__(self, begin):
        self._begin, self.process = begin, begin()

    def restart(self):
        self.process.kill()
        self.process = self._begin()

    @property
    def workers(self):
        """The workers of gunicorn: none while it starts, or after they were killed."""
        return psutil.Process(self.process.popen.pid).children()


class Webs:
    """Both web servers, in turn: what the clients post to."""

    def __init__(self, ports):
        self._ports = ports

    @property
    def port(self):
        return random.choice(self._ports)


@pytest.fixture
def carriers(request):
    """Carriers that may be used, those that the parameter names."""
    servers = [faulty(name)(random.Random(SEED)) for name in request.param]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def forbidden():
    """A carrier that must get nothing: it is for another country."""
    yield from playing(partial(faulty("webhook"), random.Random(SEED)))


@pytest.fixture
def store(kind, request, tmp_path):
    if kind == "sqlite":
        store = StoredInSqlite(tmp_path / "messages.db", PROCESSES)
    else:
        store = StoredInPostgres(request.getfixturevalue("stoppable_postgres"), PROCESSES)
    yield store
    store.close()


@pytest.fixture
def run_chaos(start, store, carriers, forbidden, receiver):
    """Let everything fail for a while; return all messages once each has ended."""
    database.connect(store.url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock.now())
    EventAddress.set(ApiKey.named("app"), receiver.url, clock.now())
    receiver.secret = EventAddress.of(ApiKey.named("app")).secret
    database.disconnect()
    urls = [f"{each.url}#name={each.name}" for each in carriers]
    if len(carriers) > 1:
        urls.append(f"{forbidden.url}#name=forbidden&countries=GB")
    environ = ALWAYS | {"CARRIER_URL": " ".join(urls), "CLAIM_TIMEOUT": str(CLAIM_TIMEOUT)}
    environ |= {"CARRIER_TIMEOUT": str(CARRIER_TIMEOUT), "RETRY_DELAY": "1", "MAX_RETRIES": "20"}

    def scheduler(url, *words):
        return start("scheduler.py", *words, **environ, DATABASE_URL=url)

    def run(schedulers_live):
        ports = [free_port() for _ in range(WEBS)]
        webs = [
            Restartable(partial(begin_web, start, url, port, **environ))
            for url, port in zip(store.urls, ports, strict=False)
        ]
        schedulers = [
            Restartable(partial(scheduler, url, "--every", "0.2")) for url in store.urls[WEBS:]
        ]
        clients = Clients(Webs(ports), secret, side_by_side=6)
        clients.wait_for_answers(5)
        chance = random.Random(SEED)
        one_pass = partial(scheduler, store.urls[WEBS])
        faults = Faults(chance, store, carriers, webs, schedulers, one_pass, schedulers_live)
        faults.start()
        time.sleep(SECONDS)
        faults.stopping.set()
        faults.join()
        for carrier in carriers:
            carrier.calm.set()
        clients.join()
        wait_until(settled, SETTLED)
        messages = list(Message.select())
        print(f"seed {SEED}, {SECONDS} s: answers {clients.statuses}, faults {dict(faults.done)}")
        for carrier in carriers:
            copies = Counter(carrier.copies[m.message] for m in messages)
            print(f"{carrier.name}: {dict(carrier.kinds)}; texts by copies: {copies}")
        print(f"texts: {Counter((str(m.status), m.carrier) for m in messages)}")
        assert faults.error is None
        assert set(clients.statuses) <= {201, 503, None}
        assert_as_asked(clients, messages)
        return messages

    yield run
    database.disconnect()


def settled():
    """Return whether all messages have ended and each was told of.

    What waits for its next try need not wait longer.
    """
    time.sleep(1)
    with contextlib.suppress(*database.ERRORS):
        unfinished = Message.select().where(Message.status.not_in(ENDED)).exists()
        Message.update(send_at=clock.now()).where(Message.status == Status.SCHEDULED).execute()
        Event.update(next_try_at=clock.now()).where(Event.tries > 0).execute()
        untold = Event.select().exists()
        database.db.close()
        return not unfinished and not untold
    return False


def doubts(message):
    """Return the carriers that may have taken a text without an answer, one for each time."""
    was_unclear = (Attempt.result == "unclear") | Attempt.ask_at.is_null(False)
    copies = Attempt.select().where(Attempt.message == message.id, was_unclear)
    return [copy.carrier for copy in copies]


@pytest.mark.soak
@pytest.mark.parametrize("schedulers_live", [False, True], ids=["", "schedulers live"])
@pytest.mark.parametrize("carriers", [*ALONE, *TOGETHER], ids=" and ".join, indirect=True)
def test_whatever_fails_all_is_stored_once_sent_once_and_told(
    run_chaos, carriers, forbidden, receiver, schedulers_live
):
    """A second copy goes out only after a doubt of a carrier that cannot be asked; never a third.

    A scheduler that dies or stands still leaves texts in doubt; if all live, only a carrier does.
    """
    messages = run_chaos(schedulers_live)
    named = {carrier.name: carrier for carrier in carriers}
    taken = sum((carrier.copies for carrier in carriers), Counter())
    copies = {m.id: taken[m.message] for m in messages}
    unanswered = sum((carrier.unanswered for carrier in carriers), Counter())

    def unasked(message):
        return [name for name in doubts(message) if not named[name].settles_doubts]

    def most(message):
        is_doubtful = unasked(message) and (unanswered[message.message] or not schedulers_live)
        return 1 + bool(is_doubtful)

    def is_true(message):
        if message.status == Status.SENT:
            yeses, ref = named[message.carrier].yeses[message.message], message.carrier_reference
            return any(f'"{ref}"' in json.dumps(yes) if yes else ref is None for yes in yeses)
        if message.to.endswith("7"):
            return not copies[message.id]
        return MAY_HAVE_TAKEN_IT in message.last_error and len(unasked(message)) > 1

    def told_of(wrong):
        return [(m.message, m.status, m.last_error, doubts(m), copies[m.id]) for m in wrong]

    assert told_of(m for m in messages if copies[m.id] > most(m)) == []
    assert told_of(m for m in messages if not is_true(m)) == []
    if schedulers_live:
        assert told_of(m for m in messages if m.in_doubt > unanswered[m.message]) == []
    assert {each.name for each in carriers[:2]} <= {
        m.carrier for m in messages
    }  # a third by chance
    for carrier in carriers:
        if carrier.settles_doubts:
            assert {text for text, count in carrier.copies.items() if count > 1} == set()
    assert not forbidden.kinds
    events = {(event["data"]["message_id"], event["data"]["status"]) for event in receiver.events}
    assert {(str(m.id), m.status) for m in messages} <= events
    assert {id for id, _ in events} == {str(m.id) for m in messages}
    assert receiver.forged == []
