"""Several carriers, with real schedulers and servers: one takes over from another, and back."""

import functools
import os
import random
import time
from collections import Counter

import pytest
from smpp_peer import HANG_UP, SILENCE, SmppPeer

import database
from carrier_servers import Answer, TwilioServer, WebhookServer
from models import Message, Status
from running import ALWAYS, wait_until
from sending.carrier_state import CarrierState
from sending.outcomes import MAY_HAVE_TAKEN_IT
from stored_messages import key_named, store, store_many

PAGE = Answer(503, b"<html>")
QUEUE = 2_000


class Timed(WebhookServer):
    """A webhook that remembers when each text came, and when it began to answer with a page."""

    def __init__(self):
        super().__init__()
        self.times, self.silent_after = [], None

    def take(self, request):
        self.times.append(time.monotonic())
        if self.silent_after is not None and len(self.texts) >= self.silent_after:
            self.requests.append(request)
            return PAGE
        return super().take(request)


@pytest.fixture
def two():
    servers = Timed(), Timed()
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def schedule(start, database_url):
    def run(url, *words, **environ):
        environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": url} | environ
        return start("scheduler.py", *words, **environ)

    return run


def both(us, eu, more=""):
    return f"{us.url}#name=us{more} {eu.url}#name=eu"


@pytest.mark.timed
def test_a_queue_goes_through_another_within_two_seconds_of_the_fifth_silence(schedule, two):
    us, eu = two
    us.silent_after = 100
    store_many(QUEUE)
    schedule(both(us, eu), "--every", "5")
    asked = 5 + 2 * 8  # the five, what was under way, and what begins until they are recorded
    wait_until(lambda: len(eu.texts) >= QUEUE - 100 - asked)
    fifth, first = us.times[104], eu.times[0]
    assert first - fifth < 2
    found = Counter((m.carrier, m.status) for m in Message.select())
    assert found["us", Status.SENT] == 100
    assert CarrierState.get_by_id("us").is_down
    assert len(us.times) <= 100 + asked + 5, "one text a pause"


def test_it_goes_back_once_the_carrier_is_well(schedule, two):
    us, eu = two
    us.silent_after = 0
    store_many(100)
    schedule(both(us, eu), "--every", "0.5", RETRY_DELAY="1")
    wait_until(lambda: CarrierState.get_or_none(CarrierState.is_down), 30)
    wait_until(lambda: len(eu.texts) >= 90, 30)
    us.silent_after = None
    wait_until(lambda: store() and CarrierState.get_by_id("us").trouble is None, 40)
    before = len(eu.texts)
    wait_until(lambda: Message.select().where(Message.status != Status.SENT).count() == 0, 30)
    store_many(20)
    wait_until(lambda: Message.select().where(Message.status != Status.SENT).count() == 0, 30)
    assert len(eu.texts) <= before + 40
    assert {m.status for m in Message.select()} == {Status.SENT}


def test_a_single_pass_sends_through_both_and_ends(schedule, two):
    us, eu = two
    us.close()  # it cannot be reached
    store_many(200)
    process = schedule(both(us, eu))
    assert process.popen.wait(60) == 0, process.output
    assert len(eu.texts) == 200
    assert {(m.carrier, m.attempts) for m in Message.select()} == {("eu", 1)}
    assert "eu takes its place" in process.output


@pytest.mark.timed
def test_texts_that_nobody_may_take_hold_up_no_others(schedule, two):
    us, eu = two
    us.close()
    store_many(3_000, country="US", key=key_named("a"))
    schedule(f"{us.url}#name=us&countries=US {eu.url}#name=eu&countries=GB", "--every", "1")
    wait_until(lambda: CarrierState.get_or_none(CarrierState.is_down), 30)
    wait_until(lambda: not Message.select().where(Message.status == Status.SENDING).exists(), 30)
    began = time.monotonic()
    store(country="GB", key=key_named("b"))
    wait_until(lambda: eu.texts, 10)
    assert time.monotonic() - began < 1.5
    assert us.texts == []


def test_twilio_is_asked_about_its_doubts_and_the_webhook_gets_none_of_them(schedule, database_url):
    twilio, webhook = TwilioServer(), WebhookServer()
    try:
        twilio.answer = Answer(502, b"<html>")  # in doubt: it may have taken it
        store_many(40)
        environ = {"RETRY_DELAY": "1", "CARRIER_TIMEOUT": "2"}
        schedule(both(twilio, webhook), "--every", "0.5", **environ)
        wait_until(lambda: len(webhook.texts) >= 25, 30)
        doubtful = {m.to for m in Message.select().where(Message.in_doubt > 0)}
        assert doubtful
        twilio.answer = None
        wait_until(lambda: not Message.select().where(Message.status != Status.SENT).exists(), 60)
        given = Counter(number for number, _ in webhook.texts)
        assert not {number for number in doubtful if given[number] and twilio_has(twilio, number)}
        assert max(given.values()) == 1
    finally:
        twilio.close()
        webhook.close()
        database.disconnect()


def twilio_has(twilio, number):
    return any(message["to"] == number for message in twilio.messages)


class FaultySmpp(SmppPeer):
    """An SMSC that says no, nothing or that it is too much, hangs up, and is away for a while."""

    def __init__(self):
        super().__init__()
        self.chance, self.calm = random.Random(SEED), False
        self.noes = Counter()

    def answer(self, part):
        fate = "yes" if self.calm else self.chance.choices((*FATES, "yes"), (3, 3, 2, 4, 40))[0]
        if fate in ("full", "no"):
            self.noes[part.octets.decode()] += 1
        return FATES.get(fate, 0)

    def taken(self):
        """The copies of each text that it took, or may have."""
        return Counter(part.octets.decode() for part in self.parts) - self.noes


FATES = {"silence": SILENCE, "end": HANG_UP, "full": 0x58, "no": 0x08}
SEED, SECONDS = int(os.environ.get("CHAOS_SEED", "1")), int(os.environ.get("CHAOS_SECONDS", "300"))


@pytest.mark.soak
def test_an_smsc_that_fails_in_every_way_and_a_webhook_never_make_three(schedule):
    smsc, webhook, chance = FaultySmpp(), WebhookServer(), random.Random(SEED)
    environ = {"RETRY_DELAY": "1", "CARRIER_TIMEOUT": "2", "CLAIM_TIMEOUT": "3", "MAX_RETRIES": "9"}
    run = functools.partial(schedule, both(smsc, webhook), "--every", "0.5", **environ)
    try:
        schedulers, began, count = [run(), run()], time.monotonic(), 0
        while time.monotonic() < began + SECONDS:
            for _ in range(20):
                count += 1
                store(message=f"text {count}", to=f"+1212555{count % 10_000:04}")
            smsc.bind_status = chance.choice((0, 0, 0, 0x0D))
            if smsc.bind_status:
                for session in smsc.bound:
                    session.hang_up()
            if chance.random() < 0.2:
                schedulers[0].kill()
                schedulers = [schedulers[1], run()]
            time.sleep(1)
        smsc.calm, smsc.bind_status = True, 0
        wait_until(lambda: not Message.select().where(Message.finished_at.is_null()).exists(), 180)
        texts = Counter(text for _, text in webhook.texts)
        copies = {"us": smsc.taken(), "eu": texts}
        for message in Message.select():
            each = [copies[name][message.message] for name in ("us", "eu")]
            about = message.message, message.status, message.carrier, each, message.last_error
            assert sum(each) <= 2, about
            if message.status == Status.SENT:
                assert copies[message.carrier][message.message], about
            else:
                # A session that ended may have lost either
                assert message.in_doubt == 2, about
                assert MAY_HAVE_TAKEN_IT in message.last_error, about
        assert texts, "it took over, now and then"
        assert (smsc.taken() + texts).total() > count, "some were in doubt"
    finally:
        smsc.close()
        webhook.close()
