"""Two schedulers and a carrier that says "too fast": nothing goes before the pause is over."""

import threading
import time

import pytest

from carrier_servers import Answer, WebhookServer, playing
from database import clock
from databases import on_postgres
from models import Status
from running import wait_until
from stored_messages import statuses, store_many

PAUSE, PROPAGATION = 4, 0.5  # seconds


class Pausing(WebhookServer):
    """Say "too fast" to one text in a hundred, and note when each text came."""

    def __init__(self):
        super().__init__()
        self.arrivals, self.refused_at, self.lock = [], [], threading.Lock()

    def take(self, request):
        with self.lock:
            self.arrivals.append(time.monotonic())
            if len(self.arrivals) % 100 == 0:
                self.refused_at.append(time.monotonic())
                return Answer(429, headers={"Retry-After": str(PAUSE)})
        return super().take(request)


@pytest.fixture
def pausing():
    yield from playing(Pausing)


@on_postgres
def test_while_a_carrier_pauses_no_scheduler_sends(schedule, pausing):
    store_many(250, clock.now())
    environ = {"CARRIER_URL": pausing.url}
    schedulers = [schedule("--every", "0.2", **environ) for _ in range(2)]
    wait_until(lambda: statuses() == {Status.SENT: 250})
    assert [each.terminate() for each in schedulers] == [0, 0]
    assert len(pausing.refused_at) == 2
    for refused_at in pausing.refused_at:
        begin, end = refused_at + PROPAGATION, refused_at + PAUSE - 0.1
        assert [at - refused_at for at in pausing.arrivals if begin < at < end] == []
