"""A fake carrier for the one seam where a fake is good enough: scheduler and carriers."""

from datetime import timedelta

import pytest

from own_threads import IN_ORDER
from scheduler import Scheduler
from texting.carriers import Carrier, CarrierError, Fault
from texting.sending import heartbeats
from texting.sending.runtime import THIS_MACHINE
from texting.sending.sender import Sender

FOR_NOW, FOR_GOOD = CarrierError("out of order"), CarrierError("no such number", Fault.PERMANENT)
TOO_FAST = CarrierError("slow down", Fault.TOO_FAST)
SLOWLY = CarrierError("slow down", Fault.TOO_FAST, retry_after=30)
ACCOUNT = CarrierError("the token is wrong", Fault.ACCOUNT)


class FakeCarrier(Carrier):
    """Answer a text with `answers[number]` or else `answer`: by default, take it.

    An answer is a reference, an exception, or a function that gives one of them.
    """

    name, answer = "fake", None

    def __init__(self):
        self.texts, self.answers = [], {}

    def send(self, outgoing):
        self.texts.append((outgoing.to, outgoing.text))
        answer = self.answers.get(outgoing.to, self.answer)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def numbers(self):
        return [number for number, _ in self.texts]


class AskableCarrier(FakeCarrier):
    """A carrier that lists what it has taken, like Twilio: `taken` holds (number, text) pairs."""

    can_be_asked = True

    def __init__(self):
        super().__init__()
        self.taken, self.asked, self.listing = [], [], None
        self.finding = lambda: None  # what happens meanwhile

    def find(self, to, text, since):
        self.asked.append((to, text, since))
        self.finding()
        if isinstance(self.listing, Exception):
            raise self.listing
        return [f"SM{n}" for n, each in enumerate(self.taken) if each == (to, text)]

    def take(self, to, text, answer=None):
        """Have taken a text; raise or return what is answered."""
        self.taken.append((to, text))
        if isinstance(answer, Exception):
            raise answer
        return answer or f"SM{len(self.taken) - 1}"


class KeepingCarrier(FakeCarrier):
    """A carrier that keeps ids: `kept` has a reference for each id of a text that it has taken.

    What it answers says nothing of whether it `takes` a text. `given` lists ids, numbers and texts.
    """

    keeps_ids = timedelta.max

    def __init__(self):
        super().__init__()
        self.kept, self.given, self.takes, self.looked_up = {}, [], True, []

    def send(self, outgoing):
        key = outgoing.key
        self.given.append((key, outgoing.to, outgoing.text))
        if self.takes and key not in self.kept:
            self.kept[key] = f"K{len(self.kept)}"
        return super().send(outgoing) or self.kept[key]


class TellingCarrier(KeepingCarrier):
    """A carrier that keeps ids, and tells whether it has one; `silence` is why it does not."""

    silence = None

    def look_up(self, key):
        self.looked_up.append(key)
        if self.silence:
            raise self.silence
        return self.kept.get(key)


def die_instead(action, *arguments):
    """Start a thread as a scheduler does that dies as soon as it gives the carrier a text."""
    if action.__name__ in ("find", "look_up"):
        return THIS_MACHINE.submit(action, *arguments)
    raise SystemExit


@pytest.fixture
def carrier():
    return FakeCarrier()


@pytest.fixture
def askable():
    return AskableCarrier()


@pytest.fixture
def without_waiting(monkeypatch):
    """Have schedulers wait for nothing: the clock stands still."""
    monkeypatch.setattr(heartbeats, "WATCHED", 0)
    monkeypatch.setattr(Sender, "waits", False)


@pytest.fixture
def run_on(settings, carrier, at, without_waiting):
    """Run a pass of a scheduler that lasts at an instant; its settings are those of the first."""
    made = []

    def run(instant, carrier=carrier, **changes):
        at(instant)
        if not made:
            made.append(Scheduler(settings._replace(**changes), carrier, IN_ORDER))
        return made[0].run_pass()

    return run


@pytest.fixture
def run_pass(settings, carrier, at, without_waiting):
    """Run one pass at an instant, with changed settings: `run_pass(NOON, max_retries=0)`.

    `run_pass.runtime` is what it runs on.
    """

    def run(instant, carrier=carrier, **changes):
        at(instant)
        return Scheduler(settings._replace(**changes), carrier, run.runtime).run_pass()

    run.runtime = IN_ORDER
    return run
