"""How fast real schedulers send: within SEND_RATE, and as fast as a carrier takes texts."""

import itertools
import threading
import time
from collections import deque

import pytest
from smpp_peer import SmppPeer

import carriers.smpp as smpp
from access.keys import ApiKey, Role
from carrier_servers import (
    Answer,
    AppriseServer,
    TwilioServer,
    VonageServer,
    WebhookServer,
    playing,
    refusal,
    verdict,
)
from database import clock
from databases import on_sqlite
from models import Message, Status
from running import wait_until
from stored_messages import key_named, statuses, store_many

RATE = 20
TEXTS = {1: "x" * 160, 2: "é€" * 100, 3: "д" * 200}
"""Texts by their parts: one in GSM 03.38, one with an escaped character, one in UCS-2."""


class Counting(WebhookServer):
    """Note when how many parts came, by the carrier's own clock."""

    def __init__(self):
        super().__init__()
        self.arrivals, self.parts = [], {text: parts for parts, text in TEXTS.items()}

    def take(self, request):
        _, text = self.read(request)
        self.arrivals.append((time.monotonic(), self.parts[text]))
        return super().take(request)


@pytest.fixture
def counting():
    yield from playing(Counting)


def most_within(seconds, arrivals):
    """Return the most parts that came within so many seconds."""
    return max(
        sum(parts for at, parts in arrivals[number:] if at < first + seconds)
        for number, (first, _) in enumerate(arrivals)
    )


@pytest.mark.timed
@pytest.mark.parametrize("seconds", [8, pytest.param(30, marks=pytest.mark.soak)])
def test_three_schedulers_keep_to_the_rate_and_use_it_though_one_is_killed(
    schedule, counting, seconds
):
    for number in range(1, 4):
        store_many(
            RATE * seconds, clock.now(), key=key_named(f"key {number}"), message=TEXTS[number]
        )
    environ = {"CARRIER_URL": counting.url, "SEND_RATE": f"{RATE}/s", "CLAIM_TIMEOUT": "10"}
    schedulers = [schedule("--every", "5", **environ) for _ in range(3)]
    wait_until(lambda: counting.arrivals)
    began = counting.arrivals[0][0]
    wait_until(lambda: time.monotonic() > began + seconds / 3)
    schedulers[0].kill()
    wait_until(lambda: time.monotonic() > began + seconds)
    assert [each.terminate() for each in schedulers[1:]] == [0, 0]
    arrivals = sorted(counting.arrivals)
    used = sum(parts for at, parts in arrivals if at <= began + seconds)
    print(f"{used / RATE / seconds:.2f} of the rate, {most_within(1, arrivals)} parts in a second")
    assert {parts for _, parts in arrivals} == {1, 2, 3}
    assert most_within(1, arrivals) <= 2 * RATE
    assert most_within(10, arrivals) <= 11 * RATE
    assert used >= 0.8 * RATE * seconds
    assert statuses().get(Status.SENDING, 0) <= 8, "only the killed one has claimed any"


@pytest.mark.timed
def test_a_single_pass_waits_for_the_rate_and_testers_need_not(schedule, counting):
    ApiKey.issue("tester", None, clock.now(), role=Role.TESTER)
    store_many(100, clock.now(), key=ApiKey.named("tester"))
    store_many(60, clock.now(), message=TEXTS[1])
    scheduler = schedule(CARRIER_URL=counting.url, SEND_RATE="1200/min")
    assert scheduler.wait() == 0
    assert "160 sent" in scheduler.output
    assert len(counting.arrivals) == 60
    lasted = counting.arrivals[-1][0] - counting.arrivals[0][0]
    assert 1.9 < lasted < 60 / RATE / 0.8
    assert statuses() == {Status.SENT: 160}


# A carrier that says "too fast"

TAKEN = 10  # texts a second


class Window:
    """Say whether one more text is taken: no more than TAKEN within any second."""

    def __init__(self):
        self.taken, self.refused, self.lock = deque(), 0, threading.Lock()

    def takes(self):
        with self.lock:
            now = time.monotonic()
            if len(self.taken) >= TAKEN and now - self.taken[-TAKEN] < 1:
                self.refused += 1
                return False
            self.taken.append(now)
            return True

    @property
    def used(self):
        """The share that was used of what could have been taken, from the first to the last."""
        return len(self.taken) / (1 + self.taken[-1] - self.taken[0]) / TAKEN


def limited(kind, no):
    """Return a server of a kind that says `no` to what comes too fast."""

    class Limited(kind):
        def __init__(self):
            super().__init__()
            self.window = Window()

        def take(self, request):
            if request.method == "POST" and not self.window.takes():
                return no
            return super().take(request)

    return Limited()


class LimitedPeer(SmppPeer):
    """A peer that answers with a command_status to what comes too fast."""

    def __init__(self, status):
        super().__init__()
        self.window, self.status = Window(), status

    def answer(self, part):
        return 0 if self.window.takes() else self.status


QUEUE_FULL, THROTTLED = 0x14, 0x58
LIMITED = {
    "Twilio": lambda: limited(TwilioServer, refusal(20429, 429)),
    "Twilio, a second": lambda: limited(TwilioServer, refusal(20429, 429, {"Retry-After": "1"})),
    "Vonage": lambda: limited(VonageServer, verdict({"status": "1", "error-text": "Throttled"})),
    "webhook": lambda: limited(WebhookServer, Answer(429)),
    "Apprise": lambda: limited(AppriseServer, Answer(429)),
    "SMPP, throttled": lambda: LimitedPeer(THROTTLED),
    "SMPP, queue full": lambda: LimitedPeer(QUEUE_FULL),
}


@pytest.fixture
def limited_carrier(request):
    yield from playing(LIMITED[request.param])


EVERY, CRON = ["--every", "5"], []
WORKDAYS = [("Twilio", EVERY), ("Vonage", CRON), ("SMPP, throttled", EVERY)]  # others take minutes


@pytest.mark.timed
@on_sqlite
@pytest.mark.parametrize(
    ("limited_carrier", "words"),
    [
        pytest.param(*case, marks=[] if case in WORKDAYS else pytest.mark.soak)
        for case in itertools.product(LIMITED, (EVERY, CRON))
    ],
    indirect=["limited_carrier"],
)
def test_of_what_a_carrier_takes_at_least_seven_tenths_are_used(schedule, limited_carrier, words):
    assert {QUEUE_FULL, THROTTLED} <= {*smpp.CODES.too_fast}
    store_many(80, clock.now(), max_retries=0)
    scheduler = schedule(*words, CARRIER_URL=limited_carrier.url)
    window = limited_carrier.window
    wait_until(lambda: statuses() == {Status.SENT: 80})
    assert scheduler.wait() == 0 if not words else scheduler.terminate() == 0
    print(f"{window.used:.2f} of what the carrier takes, {window.refused} refused")
    assert len(window.taken) == 80
    assert window.refused > 0
    assert window.used >= 0.7
    assert Message.select().where(Message.attempts == 1).count() == 80
