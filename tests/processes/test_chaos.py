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
from kits import aws, infobip, smsgate
from kits.aws import AwsServer
from kits.infobip import InfobipServer
from kits.smsgate import SmsgateServer
from kits.twilio import TwilioServer, refusal
from kits.vonage import VonageServer, verdict
from kits.webhook import WebhookServer
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


class Faulty:
    """Make a carrier's server fail in every way, until `calm` is set.

    It refuses for good what goes to a number that ends in 7. While `away` is set, only a gateway
    answers. `taken[text]` lists the references of the copies that it took. `unanswered[text]`
    counts the requests that it left in doubt.
    """

    can_be_asked = False

    def __init__(self, chance):
        self.chance, self.guard = chance, threading.Lock()
        self.calm, self.away = threading.Event(), threading.Event()
        self.kinds, self.taken = Counter(), defaultdict(list)
        self.unanswered = Counter()
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
        if answer in (HANG, HANG_UP, DRIP) or answer.status in (502, 504):
            self.unanswered[text] += 1
        return answer

    def accept(self, request):
        return super().take(request)


class FaultyTwilio(Faulty, TwilioServer):
    name, can_be_asked = "twilio", True
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
    name = "vonage"
    noes = (
        (1, verdict({"status": "1"})),
        (5, verdict({"status": "5"})),
        (0.3, verdict({"status": "4"})),
    )
    never = verdict({"status": "6"})

    def reference(self, yes):
        return yes["messages"][-1]["message-id"]


class FaultyWebhook(Faulty, WebhookServer):
    """A receiver that gives a repeated text its first answer again, which settles a doubt."""

    name, can_be_asked = "webhook", True
    noes = ((1, Answer(429, b"", {"Retry-After": "1"})), (5, Answer(500)), (0.3, Answer(401)))
    never = Answer(422)

    def __init__(self, chance):
        self.first_answers = {}
        super().__init__(chance)

    def accept(self, request):
        return self.first_answers.setdefault(request.headers["webhook-id"], super().accept(request))

    def reference(self, yes):
        return yes["reference"]


class FaultySmsgate(Faulty, SmsgateServer):
    """A phone that knows a text by its id, and says so."""

    name, can_be_asked, keeps_ids = "smsgate", True, True
    noes = ((1, smsgate.refusal(429)), (5, smsgate.refusal(422)), (0.3, smsgate.refusal(401)))
    never = smsgate.refusal(400)

    def accept(self, request):
        yes = super().accept(request)
        return yes._replace(body=yes.body | {"id": json.loads(request.body)["id"]})

    def reference(self, yes):
        return yes["id"]


class FaultyInfobip(Faulty, InfobipServer):
    """It knows the id of a text that it has, which settles a doubt."""

    name, can_be_asked, keeps_ids = "infobip", True, True
    noes = (
        (1, infobip.refusal(429)),
        (5, infobip.verdict(21)),
        (0.3, infobip.verdict(12)),
    )
    never = infobip.verdict(52)

    def answer_to(self, request, takes, answer):
        return self.about(request, super().answer_to(request, takes, answer))

    def reference(self, yes):
        return yes["messages"][0]["messageId"]


class FaultyAws(Faulty, AwsServer):
    name = "aws"
    noes = (
        (1, aws.refusal("ThrottlingException")),
        (5, aws.refusal("LAST_PHONE_NUMBER")),
        (0.3, aws.refusal("RESOURCE_NOT_ACTIVE")),
    )
    never = aws.refusal("DestinationPhoneNumber")

    def reference(self, yes):
        return yes["MessageId"]


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
    """Carriers that may be used, of the classes that the parameter names."""
    servers = [kind(random.Random(SEED)) for kind in request.param]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def forbidden():
    """A carrier that must get nothing: it is for another country."""
    yield from playing(partial(FaultyWebhook, random.Random(SEED)))


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
            copies = Counter(len(carrier.taken[m.message]) for m in messages)
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
@pytest.mark.parametrize(
    "carriers",
    [
        *([FaultyTwilio], [FaultyVonage], [FaultyWebhook]),
        [FaultyTwilio, FaultyWebhook, FaultySmsgate],
        [FaultyInfobip, FaultyAws],
    ],
    ids=lambda kinds: " and ".join(kind.name for kind in kinds),
    indirect=True,
)
def test_whatever_fails_all_is_stored_once_sent_once_and_told(
    run_chaos, carriers, forbidden, receiver, schedulers_live
):
    """A second copy goes out only after a doubt of a carrier that cannot be asked; never a third.

    A scheduler that dies or stands still leaves texts in doubt; if all live, only a carrier does.
    """
    messages = run_chaos(schedulers_live)
    named = {carrier.name: carrier for carrier in carriers}
    copies = {m.id: {r for each in carriers for r in each.taken[m.message]} for m in messages}
    unanswered = sum((carrier.unanswered for carrier in carriers), Counter())

    def unasked(message):
        return [name for name in doubts(message) if not named[name].can_be_asked]

    def most(message):
        is_doubtful = unasked(message) and (unanswered[message.message] or not schedulers_live)
        return 1 + bool(is_doubtful)

    def is_true(message):
        if message.status == Status.SENT:
            return message.carrier_reference in named[message.carrier].taken[message.message]
        if message.to.endswith("7"):
            return not copies[message.id]
        return MAY_HAVE_TAKEN_IT in message.last_error and len(unasked(message)) > 1

    def told_of(wrong):
        return [(m.message, m.status, m.last_error, doubts(m), copies[m.id]) for m in wrong]

    assert told_of(m for m in messages if len(copies[m.id]) > most(m)) == []
    assert told_of(m for m in messages if not is_true(m)) == []
    if schedulers_live:
        assert told_of(m for m in messages if m.in_doubt > unanswered[m.message]) == []
    for carrier in carriers:
        assert any(m.carrier == carrier.name for m in messages)
        if carrier.can_be_asked:
            assert {text for text, taken in carrier.taken.items() if len({*taken}) > 1} == set()
    assert not forbidden.kinds
    events = {(event["data"]["message_id"], event["data"]["status"]) for event in receiver.events}
    assert {(str(m.id), m.status) for m in messages} <= events
    assert {id for id, _ in events} == {str(m.id) for m in messages}
    assert receiver.forged == []
