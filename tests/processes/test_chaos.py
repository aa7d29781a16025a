"""Everything fails at once: carrier, database, network and processes, by chance and with a seed.

CHAOS_SECONDS and CHAOS_SEED choose another run than the usual one: `make soak`. Run no more at once
than there are cores: an answer that comes late because the carrier was starved is one more doubt.
"""

import contextlib
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

import database
from access.keys import ApiKey
from carrier_servers import (
    DRIP,
    HANG,
    HANG_UP,
    Answer,
    TwilioServer,
    VonageServer,
    WebhookServer,
    refusal,
    verdict,
)
from database import clock
from models import Message, Status
from proxy import Proxy
from running import ALWAYS, ROOT, Clients, assert_as_asked, free_port, wait_until
from sending.attempts import Attempt
from sending.outcomes import MAY_HAVE_TAKEN_IT

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
"""How often a carrier does what: weight, whether it takes the text, what it answers."""


class Faulty:
    """Make a carrier's server fail in every way, until `calm` is set.

    It refuses for good what goes to a number that ends in 7. While `away` is set, only a gateway
    answers. `taken[text]` lists the references of the copies that it took. `unanswered[text]`
    counts the requests that it left in doubt, and `again[text]` those that a gateway left unclear
    although the receiver recognizes a copy.
    """

    can_be_asked = False
    gateways_leave_doubt = True

    def __init__(self, chance):
        self.chance, self.guard = chance, threading.Lock()
        self.calm, self.away = threading.Event(), threading.Event()
        self.kinds, self.taken = Counter(), defaultdict(list)
        self.unanswered, self.again = Counter(), Counter()
        super().__init__()

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
            return self.never
        if takes:
            yes = self.accept(request)
            self.taken[text].append(self.reference(yes.body))
            answer = yes if answer == YES else answer
        unclear = answer in (HANG, HANG_UP, DRIP)
        gateway = not unclear and answer.status in (502, 504)
        if unclear or (gateway and self.gateways_leave_doubt):
            self.unanswered[text] += 1
        self.again[text] += gateway and not self.gateways_leave_doubt
        return answer

    def accept(self, request):
        return super().take(request)


class FaultyTwilio(Faulty, TwilioServer):
    can_be_asked = True
    page_size = 50
    noes = (
        (1, refusal(20429, 429, {"Retry-After": "1"})),
        (5, refusal(20500, 500)),
        (0.3, refusal(20003, 401)),
    )
    never = refusal(21211)

    def reference(self, yes):
        return yes["sid"]


class FaultyVonage(Faulty, VonageServer):
    noes = (
        (1, verdict({"status": "1"})),
        (5, verdict({"status": "5"})),
        (0.3, verdict({"status": "4"})),
    )
    never = verdict({"status": "6"})

    def reference(self, yes):
        return yes["messages"][-1]["message-id"]


class FaultyWebhook(Faulty, WebhookServer):
    """A receiver that answers a text that comes again as it did the first time."""

    gateways_leave_doubt = False
    noes = ((1, Answer(429, b"", {"Retry-After": "1"})), (5, Answer(500)), (0.3, Answer(401)))
    never = Answer(422)

    def __init__(self, chance):
        self.first_answers = {}
        super().__init__(chance)

    def accept(self, request):
        return self.first_answers.setdefault(request.headers["webhook-id"], super().accept(request))

    def reference(self, yes):
        return yes["reference"]


class FaultyTwins:
    """Twilio and a webhook, which fail independently, and now and then both are away.

    A third carrier must get nothing: it is for another country.
    """

    def __init__(self, chance):
        self.chance = chance
        self.us, self.hook = FaultyTwilio(chance), FaultyWebhook(chance)
        self.forbidden = FaultyWebhook(chance)
        urls = (self.us.url, "name=us"), (self.hook.url, "name=hook")
        urls = [*urls, (self.forbidden.url, "name=forbidden&countries=GB")]
        self.url = " ".join(f"{url}#{options}" for url, options in urls)
        self.calm, self.away = self, AnyAway(chance, (self.us.away, self.hook.away))

    def set(self):
        """Let all be calm."""
        for each in (self.us, self.hook, self.forbidden):
            each.calm.set()

    @property
    def kinds(self):
        return self.us.kinds + self.hook.kinds

    @property
    def taken(self):
        taken = defaultdict(list)
        for each in (self.us, self.hook):
            for text, copies in each.taken.copy().items():
                taken[text] += copies
        return taken

    def close(self):
        for each in (self.us, self.hook, self.forbidden):
            each.close()


class AnyAway:
    """What makes one of two carriers away, or both."""

    def __init__(self, chance, events):
        self.chance, self.events = chance, events

    def set(self):
        for event in self.chance.choice([self.events[:1], self.events[1:], self.events]):
            event.set()

    def clear(self):
        for event in self.events:
            event.clear()


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

    def __init__(self, chance, store, carrier, webs, schedulers, begin_pass, schedulers_live):
        super().__init__()
        self.chance, self.carrier = chance, carrier
        self.webs, self.schedulers = webs, schedulers
        self.stopping, self.done, self.error = threading.Event(), Counter(), None
        self.faults = [partial(fault, chance) for fault in store.faults]
        self.faults += [self.kill_worker, self.kill_web, self.stop_worker, self.lose_carrier]
        self.faults += [begin_pass]  # as from cron; not broken, but it may find others' claims old
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

    def lose_carrier(self):
        self.carrier.away.set()
        self.stopping.wait(self.chance.uniform(0, 2))
        self.carrier.away.clear()

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
        self._begin = begin
        self.outputs, self.process = [], begin()

    def restart(self):
        self.process.kill()
        self.outputs.append(self.process.output)
        self.process = self._begin()

    @property
    def output(self):
        return "".join((*self.outputs, self.process.output))

    @property
    def workers(self):
        """The workers of gunicorn's: none while it starts, or after one was killed."""
        return psutil.Process(self.process.popen.pid).children()


class Webs:
    """Both web servers, in turn: what the clients post to."""

    def __init__(self, ports):
        self._ports = ports

    @property
    def port(self):
        return random.choice(self._ports)


@pytest.fixture
def carrier(request):
    server = request.param(random.Random(SEED))
    yield server
    server.close()


@pytest.fixture
def store(kind, request, tmp_path):
    if kind == "sqlite":
        store = StoredInSqlite(tmp_path / "messages.db", PROCESSES)
    else:
        store = StoredInPostgres(request.getfixturevalue("stoppable_postgres"), PROCESSES)
    yield store
    store.close()


@pytest.fixture
def run_chaos(start, store, carrier):
    """Let everything fail for a while; return all messages once each has ended."""
    database.connect(store.url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock.now())
    database.disconnect()
    environ = ALWAYS | {"CARRIER_URL": carrier.url, "CLAIM_TIMEOUT": str(CLAIM_TIMEOUT)}
    environ |= {"CARRIER_TIMEOUT": str(CARRIER_TIMEOUT), "RETRY_DELAY": "1", "MAX_RETRIES": "20"}
    gunicorn = ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()")

    def web(url, port):
        return start(*gunicorn, **environ, DATABASE_URL=url, PORT=str(port), WEB_CONCURRENCY="2")

    def scheduler(url, *words):
        return start("scheduler.py", *words, **environ, DATABASE_URL=url)

    def endless(url):
        return scheduler(url, "--every", "0.2")

    passes = []

    def begin_pass():
        passes.append(scheduler(store.urls[WEBS]))

    def run(schedulers_live):
        ports = [free_port() for _ in range(WEBS)]
        webs = [Restartable(partial(web, *each)) for each in zip(store.urls, ports, strict=False)]
        schedulers = [Restartable(partial(endless, url)) for url in store.urls[WEBS:]]
        clients = Clients(Webs(ports), secret, side_by_side=6)
        clients.wait_for_answers(5)
        chance = random.Random(SEED)
        faults = Faults(chance, store, carrier, webs, schedulers, begin_pass, schedulers_live)
        faults.start()
        time.sleep(SECONDS)
        faults.stopping.set()
        faults.join()
        carrier.calm.set()
        clients.join()
        wait_until(settled, SETTLED)
        messages = list(Message.select())
        print(
            f"seed {SEED}, {SECONDS} s: {len(clients.answers)} answers of 201, {clients.statuses}"
        )
        print(f"faults: {dict(faults.done)}; the carrier: {dict(carrier.kinds)}")
        taken = carrier.taken
        print(f"texts by copies: {Counter(len(taken[m.message]) for m in messages)}")
        print(f"texts by status: {Counter(str(m.status) for m in messages)}")
        assert faults.error is None
        assert set(clients.statuses) <= {201, 503, None}
        assert_as_asked(clients, messages)
        for each in (*webs, *schedulers, *passes):
            assert "Traceback" not in each.output
        return messages

    yield run
    database.disconnect()


def settled():
    """Return whether all messages have ended; what waits for its next try need not wait longer."""
    time.sleep(1)
    with contextlib.suppress(*database.ERRORS):
        unfinished = Message.select().where(Message.status.not_in(ENDED)).exists()
        Message.update(send_at=clock.now()).where(Message.status == Status.SCHEDULED).execute()
        database.db.close()
        return not unfinished
    return False


def doubts(message):
    """The carriers that may have taken a text without an answer, one for each time."""
    was_unclear = (Attempt.result == "unclear") | Attempt.ask_at.is_null(False)
    copies = Attempt.select().where(Attempt.message == message.id, was_unclear)
    return [copy.carrier for copy in copies]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("carrier", "schedulers_live"),
    [
        pytest.param(FaultyTwilio, False, id="twilio"),
        pytest.param(FaultyVonage, False, id="vonage"),
        pytest.param(FaultyVonage, True, id="vonage, schedulers live"),
        pytest.param(FaultyWebhook, False, id="webhook"),
        pytest.param(FaultyWebhook, True, id="webhook, schedulers live"),
    ],
    indirect=["carrier"],
)
def test_whatever_fails_all_is_stored_once_and_sent_once(run_chaos, carrier, schedulers_live):
    """A second copy goes out only after a doubt, and never a third.

    A scheduler that dies or stands still leaves texts in doubt; if all live, only the carrier does.
    """
    messages = run_chaos(schedulers_live)
    taken = carrier.taken
    copies = {message.id: taken[message.message] for message in messages}

    def most(message):
        if carrier.can_be_asked:
            return 1
        unanswered = carrier.unanswered[message.message]
        in_doubt = unanswered if schedulers_live else doubts(message)
        return 1 + bool(in_doubt) + carrier.again[message.message]

    def may_have_failed(message):
        if message.to.endswith("7"):
            return not copies[message.id]
        words = MAY_HAVE_TAKEN_IT in message.last_error
        return not carrier.can_be_asked and message.in_doubt > 1 and words

    def is_true(message):
        if message.status == Status.FAILED:
            return may_have_failed(message) and message.carrier_reference is None
        return message.carrier_reference in copies[message.id]

    too_many = [m for m in messages if len(copies[m.id]) > most(m)]
    assert [(m.message, m.status, m.in_doubt, copies[m.id]) for m in too_many] == []
    wrong = [m for m in messages if not is_true(m)]
    assert [(m.message, m.status, m.last_error, copies[m.id]) for m in wrong] == []
    if isinstance(carrier, FaultyWebhook):
        assert len(carrier.first_answers) == sum(map(bool, copies.values()))
    if schedulers_live:
        baseless = [m for m in messages if m.in_doubt > carrier.unanswered[m.message]]
        assert [(m.message, m.status, m.in_doubt) for m in baseless] == []


@pytest.mark.soak
@pytest.mark.parametrize("schedulers_live", [False, True], ids=["", "schedulers live"])
@pytest.mark.parametrize("carrier", [FaultyTwins], ids=["twilio and webhook"], indirect=True)
def test_two_carriers_never_make_two_texts_of_one(run_chaos, carrier, schedulers_live):
    """A doubt of Twilio's stays with it; only after one of the webhook's is there a second copy."""
    messages = run_chaos(schedulers_live)
    copies = carrier.taken
    of = {"us": carrier.us.taken, "hook": carrier.hook.taken}

    def most(message):
        return 1 + ("hook" in doubts(message)) + carrier.hook.again[message.message]

    def is_true(message):
        if message.to.endswith("7"):
            return message.status == Status.FAILED and not copies[message.message]
        if message.status == Status.FAILED:
            words = MAY_HAVE_TAKEN_IT in message.last_error
            return words and doubts(message).count("hook") > 1
        return message.carrier_reference in of[message.carrier][message.message]

    told = [(m.message, m.status, doubts(m), m.carrier, copies[m.message]) for m in messages]
    too_many = [t for t, m in zip(told, messages, strict=True) if len(t[-1]) > most(m)]
    assert too_many == []
    assert [t for t, m in zip(told, messages, strict=True) if not is_true(m)] == []
    assert [t for t in told if len(carrier.us.taken[t[0]]) > 1] == [], "it is asked"
    assert not carrier.forbidden.kinds, "it may not be used"
    by = Counter(m.carrier for m in messages)
    print(f"texts by carrier: {by}")
    assert min(by["us"], by["hook"]) > 0
