"""Everything fails at once: carrier, database, network and processes, by chance and with a seed.

CHAOS_SECONDS and CHAOS_SEED choose another run than the usual one: `make soak`.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter

import psutil
import pytest

import database
from carrier_servers import DRIP, HANG, HANG_UP, Answer, TwilioServer, refusal
from keys import ApiKey
from models import TAKEN, Message, Status, clock
from proxy import Proxy
from running import ALWAYS, ROOT, Clients, free_port, wait_until

SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECONDS = int(os.environ.get("CHAOS_SECONDS", "120"))
CLAIM_TIMEOUT, CARRIER_TIMEOUT = 4, 2
ENDED = (Status.SENT, Status.FAILED)
SETTLED = 600  # seconds after which all must be done once nothing fails any more

YES, TAKE_AND_HANG_UP, TAKE_AND_HANG = "yes", "take and hang up", "take and hang"
ANSWERS = [
    (60, YES),
    (6, TAKE_AND_HANG_UP),
    (4, TAKE_AND_HANG),
    (3, HANG),
    (6, HANG_UP),
    (2, DRIP),
    (3, refusal(20429, 429, {"Retry-After": "1"})),
    (5, refusal(20500, 500)),
    (5, Answer(503, b"<html>")),
    (1, refusal(20003, 401)),
]
"""How often the carrier gives which answer."""


class FaultyTwilio(TwilioServer):
    """Play a Twilio that fails in every way, until `calm` is set.

    It refuses for good what goes to a number that ends in 7.
    """

    page_size = 50

    def __init__(self, chance):
        self.chance, self.calm, self.guard = chance, threading.Event(), threading.Lock()
        self.kinds = Counter()
        super().__init__()

    def take(self, request):
        with self.guard:
            weights, kinds = zip(*ANSWERS, strict=True)
            kind = YES if self.calm.is_set() else self.chance.choices(kinds, weights)[0]
            if request.method == "GET" and kind in (TAKE_AND_HANG, TAKE_AND_HANG_UP):
                kind = HANG_UP
            self.kinds[kind if isinstance(kind, str) else kind.status] += 1
            if kind in (YES, TAKE_AND_HANG, TAKE_AND_HANG_UP):
                answer = self.really_take(request)
                if kind != YES and answer.status == 201:
                    kind = HANG if kind == TAKE_AND_HANG else HANG_UP
                else:
                    kind = answer
        if kind == HANG:  # for longer than is waited for
            self.closing.wait(CARRIER_TIMEOUT + 1)
            return HANG_UP
        return kind

    def really_take(self, request):
        if request.method == "POST" and self.read(request)[0].endswith("7"):
            return refusal(21211)
        return super().take(request)


class Faults(threading.Thread):
    """Break something, and mend it, again and again until `stopping` is set."""

    def __init__(self, chance, postgres, proxies, webs, schedulers):
        super().__init__()
        self.chance, self.postgres, self.proxies = chance, postgres, proxies
        self.webs, self.schedulers = webs, schedulers
        self.stopping, self.done, self.error = threading.Event(), Counter(), None

    def run(self):
        faults = (
            *(self.reset, self.silence, self.slow_down, self.restart_postgres),
            *(self.kill_worker, self.kill_web, self.kill_scheduler, self.end_scheduler),
            *(self.stop_scheduler, self.stop_worker),
        )
        try:
            while not self.stopping.wait(self.chance.uniform(0.2, 2)):
                fault = self.chance.choice(faults)
                self.done[fault.__name__] += 1
                fault()
        except Exception as error:
            self.error = error

    def reset(self):
        self.chance.choice(self.proxies).reset()

    def silence(self):
        self.chance.choice(self.proxies).silence()

    def slow_down(self):
        proxy = self.chance.choice(self.proxies)
        proxy.delay = self.chance.uniform(0.01, 0.3)
        self.stopping.wait(2)
        proxy.delay = 0

    def restart_postgres(self):
        self.chance.choice((self.postgres.kill, self.postgres.stop))()
        self.stopping.wait(self.chance.uniform(0, 2))
        self.postgres.start()

    def kill_worker(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            self.chance.choice(self.webs).worker.kill()

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
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = self.chance.choice(self.webs).worker
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
    def worker(self):
        """A worker of gunicorn's."""
        workers = psutil.Process(self.process.popen.pid).children()
        return workers[0] if workers else psutil.Process(self.process.popen.pid)


class Webs:
    """Both web servers, in turn: what the clients post to."""

    def __init__(self, ports):
        self._ports = ports

    @property
    def port(self):
        return random.choice(self._ports)


@pytest.fixture
def twilio():
    server = FaultyTwilio(random.Random(SEED))
    yield server
    server.close()


@pytest.mark.soak
def test_whatever_fails_all_is_stored_once_and_sent_once(start, stoppable_postgres, twilio):
    database.connect(stoppable_postgres.url)
    database.upgrade()
    secret = ApiKey.issue("app", None, clock())
    database.disconnect()
    proxies = [Proxy(stoppable_postgres.folder / ".s.PGSQL.5432") for _ in range(5)]
    urls = [f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres" for proxy in proxies]
    environ = ALWAYS | {"CARRIER_URL": twilio.url, "CLAIM_TIMEOUT": str(CLAIM_TIMEOUT)}
    environ |= {"CARRIER_TIMEOUT": str(CARRIER_TIMEOUT), "RETRY_DELAY": "1", "MAX_RETRIES": "20"}
    ports = [free_port(), free_port()]
    gunicorn = ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()")
    webs = [
        Restartable(
            lambda url=url, port=port: start(
                *gunicorn, **environ, DATABASE_URL=url, PORT=str(port), WEB_CONCURRENCY="2"
            )
        )
        for url, port in zip(urls, ports, strict=False)
    ]
    schedulers = [
        Restartable(
            lambda url=url: start("scheduler.py", "--every", "0.2", **environ, DATABASE_URL=url)
        )
        for url in urls[2:]
    ]
    clients = Clients(Webs(ports), secret, side_by_side=6)
    clients.wait_for_answers(5)
    faults = Faults(random.Random(SEED), stoppable_postgres, proxies, webs, schedulers)
    faults.start()
    time.sleep(SECONDS)
    faults.stopping.set()
    faults.join()
    twilio.calm.set()
    clients.join()
    with contextlib.suppress(*database.ERRORS):
        database.disconnect()
    database.connect(stoppable_postgres.url)

    def settled():
        database.db.close()
        return not Message.select().where(Message.status.not_in(ENDED)).exists()

    wait_until(settled, SETTLED)
    print(f"seed {SEED}, {SECONDS} s: {len(clients.answers)} answers of 201, {clients.statuses}")
    print(f"faults: {dict(faults.done)}; the carrier: {dict(twilio.kinds)}")
    try:
        assert faults.error is None
        assert set(clients.statuses) <= {201, 503, None}
        messages = list(Message.select())
        assert Counter(message.message for message in messages) == Counter(
            f"text {number}" for number in clients.answers
        )
        taken = Counter(each["body"] for each in twilio.messages)
        assert {text: count for text, count in taken.items() if count > 1} == {}
        wrong = [m for m in messages if (m.status in TAKEN) != (taken[m.message] == 1)]
        assert [(m.message, m.status, m.last_error) for m in wrong] == []
        failed = [m for m in messages if m.status == Status.FAILED]
        assert {m.to[-1] for m in failed} <= {"7"}
        references = {each["body"]: each["sid"] for each in twilio.messages}
        assert all(m.carrier_reference == references.get(m.message) for m in messages)
        for each in (*webs, *schedulers):
            assert "Traceback" not in each.output
    finally:
        database.disconnect()
        for proxy in proxies:
            proxy.close()
