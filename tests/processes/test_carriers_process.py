"""Real schedulers and web servers with carriers: what they take, what they say later, and when."""

import http.client
import json
import random
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from urllib.parse import parse_qs

import pytest
from smpp_peer import DELIVER_SM, RESPONSE, SILENCE, SmppPeer, delivery
from test_smpp_foreign_peers import HERE, ForeignPeer

import database
from access.do_not_call import DoNotCall
from access.keys import ApiKey
from app import create_app
from carrier_servers import Answer, TwilioServer, playing
from database import clock
from databases import on_both
from models import TAKEN, Message, Status
from running import ALWAYS, ask, send, wait_until
from samples import LONDON, NEW_YORK, VALID
from sending import inbox
from sending.receipts import EarlyReceipt
from sending.replies import Reply
from signed_callbacks import SECRET, TOKEN, TWILIO, VONAGE, of_twilio, of_vonage
from stored_messages import statuses, store, store_many

PUBLIC_URL = "https://sms.example.com"
ACKNOWLEDGED = DELIVER_SM | RESPONSE


def test_twilio_says_through_a_proxy_that_a_text_was_delivered(
    serve, database_url, schedule, run, twilio
):
    """A proxy that changes host and path, a stage's prefix, a scheduler, and `messages show`."""
    environ = {"CARRIER_URL": twilio.url, "PUBLIC_URL": f"{PUBLIC_URL}/outside/staging"}
    web = serve(database_url, workers=1, SCRIPT_NAME="/staging", **environ, **ALWAYS)

    def call_back(url, fields, token):
        signed = of_twilio(url, fields, token)
        headers = signed["headers"] | {"Host": "10.1.2.3:8000"}
        path = url.removeprefix(f"{PUBLIC_URL}/outside")
        return ask(web, "POST", path, signed["data"], headers).status

    secret = ApiKey.issue("shop", None, clock.now())
    status, answer = send(web, secret, VALID, path="/staging/v1/text-messages")
    assert status == 201
    schedule("--every", "0.1", **environ)
    wait_until(lambda: statuses() == {Status.SENT: 1})
    (request,) = twilio.requests
    (url,) = parse_qs(request.body.decode())["StatusCallback"]
    fields = {"MessageSid": f"SM{1:032x}", "MessageStatus": "delivered", "To": NEW_YORK}
    assert call_back(url, fields, "another token") == 403
    assert call_back(url, fields, twilio.token) == 204
    text = {"From": NEW_YORK, "Body": "Stop"}
    assert call_back(url.replace("status", "inbound"), text, twilio.token) == 204
    shown = json.loads(run("messages", "show", answer["message_id"]))
    assert (shown["status"], shown["carrier_reference"]) == ("delivered", f"SM{1:032x}")
    run("dnc", "check", NEW_YORK)


# Many receipts, in any order, beside several schedulers


class TalkativeTwilio(TwilioServer):
    """Say of each text what became of it, in any order: nothing, once, twice, or before the yes.

    `words` is what was said of each SID; `say(sid, word)` makes the callback.
    """

    SCRIPTS = (
        *([], ["delivered"], ["undelivered"], ["undelivered", "delivered"]),
        *(["delivered", "delivered", "undelivered"], ["sent", "undelivered", "undelivered"]),
    )

    def __init__(self, say):
        super().__init__()
        self.say, self.words, self.said = say, {}, []
        self.saying = ThreadPoolExecutor(3)  # the test looks over a fourth connection

    def yes(self, count):
        sid = f"SM{uuid.uuid4().hex}"
        self.words[sid] = script = random.choice(self.SCRIPTS)
        said = [self.saying.submit(self.say, sid, word) for word in script]
        self.said += said
        if random.random() < 0.2:
            wait(said)
        return Answer(201, {"sid": sid, "status": "queued"})


def last_word(script):
    """Return the status in which a text ends after these words."""
    for status in (Status.DELIVERED, Status.UNDELIVERED):
        if status in script:
            return status
    return Status.SENT


@on_both
@pytest.mark.parametrize("count", [60, pytest.param(6_000, marks=pytest.mark.soak)])
def test_beside_four_schedulers_each_text_goes_once_and_ends_where_its_last_word_says(
    settings, schedule, count
):
    def say(sid, word):
        url = f"{PUBLIC_URL}/carriers/twilio/status"
        signed = of_twilio(url, {"MessageSid": sid, "MessageStatus": word}, server.token)
        return client.open("/carriers/twilio/status", **signed).status_code

    def all_are_sent():
        return statuses().keys() <= {*TAKEN} and len(server.words) == count

    with closing(TalkativeTwilio(say)) as server:
        changed = settings._replace(carrier_url=server.url, public_url=PUBLIC_URL)
        client = create_app(changed).test_client()
        numbers = store_many(count)
        environ = {"CARRIER_URL": server.url, "PUBLIC_URL": PUBLIC_URL, "LOG_LEVEL": "WARNING"}
        schedulers = [schedule("--every", "0.1", **environ) for _ in range(4)]
        wait_until(all_are_sent, seconds=900)
        assert {said.result() for said in server.said} == {204}
        assert [scheduler.terminate() for scheduler in schedulers] == [0] * 4
    assert sorted(number for number, _ in server.texts) == numbers, "each went once"
    for message in Message.select():
        script = server.words[message.carrier_reference]
        assert message.status == last_word(script), script
    assert not EarlyReceipt.select().exists()


# An SMSC


class TalkativePeer(SmppPeer):
    """Say of a third of the texts that they were delivered, of another that they were not.

    Half of that before the yes, the other half by `say`, or with the next text if `promptly`. What
    is `kept` is delivered once somebody binds.
    """

    promptly, kept = False, ()

    def greet(self, session):
        for body in self.kept:
            session.deliver(body)

    def message_id(self, count):
        if self.promptly:
            self.say(count - 1, early=False)
        self.say(count, early=True)
        return f"id-{count}"

    def say(self, count, early):
        word = {0: b"DELIVRD", 1: b"UNDELIV"}.get(count % 3)
        if word and (count % 2 == 0) == early:
            receipt = b"id:id-%d stat:%s err:000 text:" % (count, word)
            for _ in range(2):
                self.bound[0].deliver(delivery(receipt, esm_class=4), sequence=count)


@pytest.fixture
def talkative():
    yield from playing(TalkativePeer)


def test_forty_texts_go_over_one_bind_that_sigterm_ends(schedule, peer):
    peer.delay = 0.05
    numbers = store_many(40)
    scheduler = schedule("--every", "0.1", CARRIER_URL=peer.url)
    wait_until(lambda: statuses() == {Status.SENT: 40})
    assert scheduler.terminate() == 0
    assert sorted(f"+{part.to}" for part in peer.parts) == numbers
    assert len(peer.logins) == peer.unbinds == 1
    assert 1 < peer.most <= 8
    assert {message.carrier_reference for message in Message.select()} == {
        f"id-{n}" for n in range(1, 41)
    }


LAST_WORDS = {Status.DELIVERED: 20, Status.UNDELIVERED: 20, Status.SENT: 20}


def test_an_smscs_receipts_and_texts_come_while_the_scheduler_sends_and_rests(schedule, talkative):
    waiting = store(to=NEW_YORK, check_dnc=True, approved=False)
    store_many(60)
    scheduler = schedule("--every", "600", CARRIER_URL=talkative.url)
    wait_until(lambda: len(talkative.parts) == 60)
    for count in range(1, 61):
        talkative.say(count, early=False)
    wait_until(lambda: statuses() == LAST_WORDS | {Status.QUEUED: 1})
    talkative.bound[0].deliver(delivery(b"Stop."), sequence=61)
    wait_until(lambda: DoNotCall.lists(NEW_YORK))
    wait_until(lambda: Message.get_by_id(waiting.id).status == Status.BLOCKED)
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in talkative.pdus)
    talkative.bound[0].deliver(delivery(b"START"), sequence=62)
    wait_until(lambda: not DoNotCall.lists(NEW_YORK))
    assert scheduler.terminate() == 0
    assert not EarlyReceipt.select().exists()


def test_neither_a_stop_nor_the_end_waits_for_an_smsc_that_answers_no_text(schedule, peer):
    peer.answer = lambda part: SILENCE
    store_many(8)
    environ = {"CARRIER_TIMEOUT": "600", "SHUTDOWN_TIMEOUT": "1"}
    scheduler = schedule("--every", "600", CARRIER_URL=peer.url, **environ)
    wait_until(lambda: len(peer.parts) == 8)
    peer.bound[0].deliver(delivery(b"STOP"), sequence=61)
    wait_until(lambda: DoNotCall.lists(NEW_YORK))
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in peer.pdus)
    assert scheduler.terminate() == 0


def test_a_single_pass_hears_what_an_smsc_says(schedule, talkative):
    talkative.promptly = True
    store_many(60)
    assert schedule(CARRIER_URL=talkative.url).wait() == 0
    assert statuses() == LAST_WORDS


def test_a_single_pass_that_sends_nothing_hears_what_an_smsc_has_kept(schedule, talkative):
    for n in range(3):
        store(status=Status.SENT, carrier_reference=f"id-{n}", finished_at=clock.now())
    receipts = [delivery(b"id:id-%d stat:DELIVRD" % n, esm_class=4) for n in range(3)]
    talkative.kept = [*receipts, delivery(b"STOP")]
    assert schedule(CARRIER_URL=talkative.url).wait() == 0
    assert statuses() == {Status.DELIVERED: 3}
    assert DoNotCall.lists(NEW_YORK)
    wait_until(lambda: [pdu[1] for pdu in talkative.pdus if pdu[0] == ACKNOWLEDGED] == [0] * 4)


# Replies


def kept():
    return [each.text for each in inbox.listing(clock.now())]


class Gateway:
    """A carrier that delivers each callback until it is acknowledged."""

    def __init__(self, path):
        self.path, self.web = path, None
        self.statuses = set()

    def deliver(self, signed):
        """Deliver a callback once; say whether it was acknowledged."""
        path = f"{self.path}?{signed['query_string']}" if "query_string" in signed else self.path
        try:
            body, headers = signed.get("data"), signed.get("headers")
            status = ask(self.web, signed["method"], path, body, headers).status
        except (OSError, http.client.HTTPException):
            return False
        self.statuses.add(status)
        return status == 204

    def insist(self, signed):
        wait_until(lambda: self.deliver(signed))


def twilios(number):
    fields = {"From": NEW_YORK, "Body": f"reply {number} 🎉", "MessageSid": f"SM{number:032x}"}
    return of_twilio(f"{PUBLIC_URL}/carriers/twilio/inbound", fields, TOKEN)


def vonages(number):
    """Return half of a text in two parts."""
    ref, part = divmod(number, 2)
    fields = {"msisdn": NEW_YORK[1:], "to": "15005550006", "messageId": f"0A{number:014x}"}
    fields |= {"text": f"reply {ref} 🎉" if part else f"{ref}: ", "type": "unicode"}
    concat = {"concat": "true", "concat-ref": str(ref), "concat-total": "2"}
    fields |= concat | {"concat-part": str(part + 1)}
    return of_vonage(fields, SECRET, ("form", "json", "query")[number % 3])


CARRIERS = {
    "twilio": (TWILIO, twilios, [f"reply {n} 🎉" for n in range(30)]),
    "vonage": (
        f"{VONAGE}&signature_method=sha256",
        vonages,
        [f"{n}: reply {n} 🎉" for n in range(15)],
    ),
}


@on_both
@pytest.mark.parametrize("name", CARRIERS)
def test_delivered_three_times_at_once_while_gunicorn_is_killed_each_is_kept_once(
    serve, database_url, name
):
    url, callback, texts = CARRIERS[name]
    environ = {"CARRIER_URL": url, "PUBLIC_URL": PUBLIC_URL}
    store(clock.now(), status=Status.SENT, finished_at=clock.now())
    database.disconnect()
    gateway = Gateway(f"/carriers/{name}/inbound")
    gateway.web = serve(database_url, workers=2, **environ)
    work = [callback(n) for n in range(30)] * 3
    random.shuffle(work)
    with ThreadPoolExecutor(6) as pool:
        done = [pool.submit(gateway.insist, signed) for signed in work]
        for _ in range(2):
            wait_until(lambda: gateway.statuses)
            gateway.web.kill()
            gateway.web = serve(database_url, workers=2, **environ)
            gateway.statuses.clear()
        for each in done:
            each.result()
    assert sorted(kept()) == sorted(texts)
    assert {each.message_id for each in Reply.select()} == {Message.get().id}


@pytest.fixture
def npm_peer(npm_package):
    modules = npm_package("smpp", "0.5.1")
    peer = ForeignPeer(["node", HERE / "smpp_npm.js"], NODE_PATH=str(modules))
    yield peer
    peer.close()


def test_npms_smpp_delivers_a_text_in_parts(npm_peer, schedule):
    message = store(clock.now(), message="write to me")
    schedule("--every", "0.1", CARRIER_URL=npm_peer.url)
    wait_until(kept)
    assert kept() == ["Je viendrai à 5 h, mais dites-moi où ? 🎉"]
    reply = Reply.get()
    assert (reply.message_id, reply.number, reply.carrier) == (message.id, NEW_YORK, "smpp")


class InsistentPeer(SmppPeer):
    """Deliver the parts of texts over every session until each is acknowledged."""

    def __init__(self, bodies):
        super().__init__()
        self.bodies, self.stopping = dict(enumerate(bodies, 1)), threading.Event()

    def greet(self, session):
        for number in self.left():
            for _ in range(2):
                session.deliver(self.bodies[number], number)

    def left(self):
        acknowledged = {p[2] for p in self.pdus if p[0] == DELIVER_SM | RESPONSE and p[1] == 0}
        return [number for number in self.bodies if number not in acknowledged]


def parts_of(ref, source):
    whole = f"reply {ref} 🎉" * 20
    pieces = [whole[start : start + 60] for start in range(0, len(whole), 60)]
    for number, piece in enumerate(pieces, 1):
        header = bytes([5, 0, 3, ref, len(pieces), number])
        octets = piece.encode("utf-16-be")
        yield delivery(header + octets, source[1:], esm_class=0x40, coding=8)


@on_both
def test_parts_that_come_again_after_a_scheduler_was_killed_are_kept_once(schedule):
    """Its peer delivers to the next scheduler what was not acknowledged, each part twice."""
    bodies = [b for ref in range(8) for b in parts_of(ref, (NEW_YORK, LONDON)[ref % 2])]
    random.shuffle(bodies)
    peer = InsistentPeer(bodies)
    try:
        for pause in (0.02, 0.05, 0.1, 0.2, 0.4):
            scheduler = schedule("--every", "0.1", CARRIER_URL=peer.url)
            before = len(peer.logins)
            wait_until(lambda before=before: len(peer.logins) > before)
            threading.Event().wait(pause)
            scheduler.popen.send_signal(signal.SIGKILL)
            scheduler.wait()
        schedule("--every", "0.1", CARRIER_URL=peer.url)
        wait_until(lambda: not peer.left())
    finally:
        peer.close()
    assert sorted(kept()) == sorted(f"reply {ref} 🎉" * 20 for ref in range(8))
