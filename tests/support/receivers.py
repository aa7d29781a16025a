"""Receivers of events for tests: the systems of keys, which verify as Standard Webhooks asks."""

import json
import threading

import pytest
from standardwebhooks import Webhook

from carrier_servers import Answer, CarrierServer
from samples import TUESDAY_NOON
from stored_messages import decide_on, key_named, store, store_many
from texting.database import clock
from texting.events.delivery import Deliveries
from texting.events.outbox import EventAddress
from texting.messages import waiting
from texting.messages.model import Message


class ReceiverServer(CarrierServer):
    """Take events; answer with `answer`, or else 204.

    `events` lists what was understood and `ids` every `webhook-id`, in the order of arrival. With
    a `secret`, the signature of each is verified; `forged` lists what is wrong with them. `most` is
    how many requests were under way at once. While `open` is cleared, answers wait.
    """

    def __init__(self):
        super().__init__()
        self.secret, self.events, self.ids, self.forged = None, [], [], []
        self.under_way = self.most = 0
        self.open = threading.Event()
        self.open.set()
        self._guard = threading.Lock()

    @property
    def url(self):
        return f"http://{self.address}/events?of=app"

    def take(self, request):
        with self._guard:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.requests.append(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.ids.append(headers["webhook-id"])
        event = json.loads(request.body)
        if self.secret:
            try:
                Webhook(self.secret).verify(request.body, headers)
            except Exception as error:
                self.forged.append(error)
        self.closing.wait(self.delay)
        self.open.wait(60)
        answer = self.answers.get(event["data"].get("status")) or self.answer or Answer(204)
        if isinstance(answer, Answer) and 200 <= answer.status < 300:
            self.events.append(event)
        with self._guard:
            self.under_way -= 1
        return answer

    def close(self):
        self.open.set()
        super().close()

    @property
    def types(self):
        return [event["type"].removeprefix("text_message.") for event in self.events]


def cancelled(key="app", **columns):
    """A message that was cancelled just now, so an event waits."""
    message = store(key=key_named(key), **columns)
    assert decide_on(message).cancel("shell", clock.now())
    return message


def many(count, key="app"):
    """As many events, in one statement."""
    store_many(count, key=key_named(key), expires_at=TUESDAY_NOON)
    waiting.expire(clock.now())


@pytest.fixture
def receivers():
    """Start a receiver: `receivers()`."""
    servers = []

    def start():
        servers.append(ReceiverServer())
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def receiver(receivers):
    return receivers()


@pytest.fixture
def app_key(database_url, receiver):
    """The key of stored messages, whose address is the receiver's."""
    key = key_named("app")
    EventAddress.set(key, receiver.url, clock.now())
    receiver.secret = EventAddress.of(key).secret
    return key


@pytest.fixture
def deliver(database_url):
    """Deliver what is due, each event once, as a single pass does."""

    def once():
        single = Deliveries(300, Message.record_notified, once=True)
        single.start()
        single.finish()

    return once


@pytest.fixture
def deliveries(database_url):
    """Deliveries that last, each until the end of the test: `deliveries()` starts some."""
    begun = []

    def start(claim_timeout=300):
        begun.append(Deliveries(claim_timeout, Message.record_notified))
        begun[-1].start()
        return begun[-1]

    yield start
    for lasting in begun:
        lasting.stop()
        lasting.finish()
        assert not lasting.thread.is_alive()


@pytest.fixture
def delivering(deliveries):
    """A thread that delivers until the end of the test."""
    return deliveries()
