"""Carriers that keep ids, while answers are lost and schedulers are killed: all arrive once."""

import random
import threading
import time
from collections import Counter

import pytest

from carrier_servers import HANG_UP, playing
from kits import CLASSES, KITS, WITH_SERVER
from running import wait_until
from stored_messages import statuses, store_many
from texting.database import clock
from texting.messages.model import Message, Status

COUNT, SEED = 60, 1
QUICK = {"CLAIM_TIMEOUT": "4", "CARRIER_TIMEOUT": "5", "MAX_RETRIES": "0"}


class Losing:
    """Keep ids, and lose every third text or answer, until `calm`; `ids` counts all that came."""

    keeps_ids = True

    def __init__(self):
        self.chance, self.guard, self.calm = random.Random(SEED), threading.Lock(), False
        self.ids = Counter()
        super().__init__()

    def take(self, request):
        if request.method == "GET" or request.path.endswith("/webhooks"):
            return super().take(request)
        with self.guard:
            self.ids[self.read(request)] += 1
            fate = "answered" if self.calm else self.chance.choice(["lost", *["answered"] * 4, ""])
            answer = super().take(request) if fate else HANG_UP
        return answer if fate == "answered" else HANG_UP


@pytest.fixture(params=[name for name in WITH_SERVER if CLASSES[name].keeps_ids])
def losing(request):
    yield from playing(type("LosingServer", (Losing, KITS[request.param].server), {}))


def test_each_text_arrives_once_though_answers_are_lost_and_schedulers_are_killed(schedule, losing):
    numbers = store_many(COUNT, clock.now())
    environ = {"CARRIER_URL": losing.url, "SEND_CONCURRENCY": "4"} | QUICK
    schedulers = [schedule("--every", "0.1", **environ) for _ in range(2)]
    losing.delay = 0.1
    for _ in range(3):
        time.sleep(random.uniform(0.8, 1.6))
        schedulers.pop(0).kill()
        schedulers.append(schedule("--every", "0.1", **environ))
    time.sleep(20)
    losing.calm = True
    wait_until(lambda: statuses() == {Status.SENT: COUNT}, 240)
    assert sorted(number for number, _ in losing.texts) == numbers
    assert max(losing.ids.values()) > 1, "some were given again"
    assert {message.attempts for message in Message.select()} == {1}
