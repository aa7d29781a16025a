"""The whole way: a scheduler hands texts to a carrier, which says later what became of them."""

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from smpp_peer import DELIVER_SM, RESPONSE, SILENCE, SmppPeer, delivery

from access.do_not_call import DoNotCall
from access.keys import ApiKey
from app import create_app
from carrier_servers import TwilioServer, playing
from database import clock
from databases import on_sqlite
from models import Message, Status
from running import ALWAYS, send, wait_until
from samples import NEW_YORK
from sending.receipts import EarlyReceipt
from signed_callbacks import of_twilio
from stored_messages import statuses, store, store_many

PUBLIC_URL = "https://sms.example.com"
ACKNOWLEDGED = DELIVER_SM | RESPONSE


# Twilio, a proxy that changes host and path, gunicorn, a scheduler, and `flask messages show`


class Proxy(ThreadingHTTPServer):
    """Serve a web process below /outside, as a reverse proxy: with another host and path."""

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Forward)
        self.port = port
        self.address = f"127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Forward(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = dict(self.headers) | {"Host": "10.1.2.3:8000", "Connection": "close"}
        inner = HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        inner.request("POST", self.path.removeprefix("/outside"), body, headers)
        response = inner.getresponse()
        self.send_response(response.status)
        self.end_headers()
        self.wfile.write(response.read())
        inner.close()

    def log_message(self, *args):
        """Keep quiet."""


def call_back(url, signed):
    """Make a callback to an address; the status of the answer."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=60)
    connection.request(signed["method"], parts.path, signed["data"], signed["headers"])
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.fixture
def proxied(serve, database_url, twilio, request):
    """A web process with a stage's prefix behind a proxy; `.public_url` is what Twilio is told."""
    proxies = []

    def begin(prefix):
        # The proxy's port is in PUBLIC_URL, which gunicorn needs at its start
        proxy = Proxy(None)
        proxies.append(proxy)
        public_url = f"http://{proxy.address}/outside{prefix}"
        environ = {"CARRIER_URL": twilio.url, "PUBLIC_URL": public_url} | ALWAYS
        web = serve(database_url, workers=1, SCRIPT_NAME=prefix, **environ)
        proxy.port, web.environ, web.public_url = web.port, environ, public_url
        return web

    yield begin
    for proxy in proxies:
        proxy.close()


@on_sqlite
@pytest.mark.parametrize("prefix", [pytest.param("", marks=pytest.mark.soak), "/staging"])
def test_twilio_says_through_a_proxy_that_a_text_was_delivered(
    proxied, schedule, run, twilio, prefix
):
    web = proxied(prefix)
    secret = ApiKey.issue("shop", None, clock.now())
    order = {"to": NEW_YORK, "message": "Hello"}
    status, answer = send(web, secret, order, path=f"{prefix}/v1/text-messages")
    assert status == 201
    schedule("--every", "0.1", **web.environ)
    wait_until(lambda: statuses() == {Status.SENT: 1})

    (request,) = twilio.requests
    ((url,),) = [parse_qs(request.body.decode())["StatusCallback"]]
    assert url == f"{web.public_url}/carriers/twilio/status"
    fields = {"MessageSid": f"SM{1:032x}", "MessageStatus": "delivered", "To": NEW_YORK}
    assert call_back(url, of_twilio(url, fields, "another token")) == 403
    assert call_back(url, of_twilio(url, fields, twilio.token)) == 204
    inbound = url.replace("status", "inbound")
    text = {"From": NEW_YORK, "Body": "Stop"}
    assert call_back(inbound, of_twilio(inbound, text, twilio.token)) == 204

    shown = json.loads(run("messages", "show", answer["message_id"]))
    assert (shown["status"], shown["carrier_reference"]) == ("delivered", f"SM{1:032x}")
    run("dnc", "check", NEW_YORK)


# Many receipts, in any order, beside several schedulers


class TalkativeTwilio(TwilioServer):
    """Say of each text what became of it: nothing, once, twice, also before the yes is given.

    `words` is what was said of each SID; `say(sid, word)` makes the callback.
    """

    SCRIPTS = (
        *([], ["delivered"], ["undelivered"], ["undelivered", "delivered"]),
        *(["delivered", "delivered", "undelivered"], ["sent", "undelivered", "undelivered"]),
    )

    def __init__(self, say):
        super().__init__()
        self.say, self.unsaid, self.words = say, [], {}
        self.guard = threading.Lock()

    def yes(self, count):
        with self.guard:
            sid = f"SM{len(self.words) + 1:032x}"
            script = random.choice(self.SCRIPTS)
            self.words[sid] = script
            at_once, later = (script, []) if random.random() < 0.2 else ([], script)
            self.unsaid += [(sid, word) for word in later]
            random.shuffle(self.unsaid)
        for word in at_once:
            self.say(sid, word)
        answer = super().yes(0)
        return answer._replace(body=answer.body | {"sid": sid})

    def say_some(self):
        """Say some of what is left, in any order."""
        with self.guard:
            some = [self.unsaid.pop() for _ in range(min(20, len(self.unsaid)))]
        for word in some:
            self.say(*word)
        return some

    def last_words(self):
        """How many texts end in each status."""
        return Counter(map(last_word, self.words.values()))


def last_word(script):
    """The status in which a text ends of which all this was said."""
    for status in (Status.DELIVERED, Status.UNDELIVERED):
        if status in script:
            return status
    return Status.SENT


@pytest.mark.parametrize("count", [60, pytest.param(6_000, marks=pytest.mark.soak)])
def test_beside_four_schedulers_each_message_ends_where_its_last_word_says(
    settings, schedule, count
):
    refused = []

    def say(sid, word):
        fields = {"MessageSid": sid, "MessageStatus": word}
        url = f"{PUBLIC_URL}/carriers/twilio/status"
        signed = of_twilio(url, fields, server.token)
        with connections:
            response = client.open("/carriers/twilio/status", **signed)
        if response.status_code != 204:
            refused.append(response.text)

    def keep_saying():
        while not silent.is_set() or server.unsaid:
            if not server.say_some():
                silent.wait(0.05)

    connections = threading.Semaphore(3)  # of the application's own; the test looks over another
    server, silent = TalkativeTwilio(say), threading.Event()
    try:
        changed = settings._replace(carrier_url=server.url, public_url=PUBLIC_URL)
        client = create_app(changed).test_client()
        store_many(count)
        environ = {"CARRIER_URL": server.url, "PUBLIC_URL": PUBLIC_URL, "LOG_LEVEL": "WARNING"}
        schedulers = [schedule("--every", "0.1", **environ) for _ in range(4)]
        with ThreadPoolExecutor(2) as pool:
            saying = [pool.submit(keep_saying) for _ in range(2)]
            try:
                wait_until(lambda: not unsent() and len(server.words) == count, seconds=900)
            finally:
                silent.set()
            for each in saying:
                each.result()
        assert [scheduler.terminate() for scheduler in schedulers] == [0] * 4
    finally:
        server.close()
    assert refused == []
    assert statuses() == server.last_words()
    for message in Message.select():
        script = server.words[message.carrier_reference]
        assert message.status == last_word(script), script
    assert not EarlyReceipt.select().exists()


def unsent():
    left = statuses()
    return any(left.get(status) for status in (Status.SCHEDULED, Status.QUEUED, Status.SENDING))


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
def peer():
    yield from playing(TalkativePeer)


LAST_WORDS = {Status.DELIVERED: 20, Status.UNDELIVERED: 20, Status.SENT: 20}


def test_an_smscs_receipts_and_texts_come_while_the_scheduler_sends_and_rests(schedule, peer):
    waiting = store(to=NEW_YORK, check_dnc=True, approved=False)
    store_many(60)
    scheduler = schedule("--every", "600", CARRIER_URL=peer.url)
    wait_until(lambda: len(peer.parts) == 60)
    for count in range(1, 61):
        peer.say(count, early=False)
    wait_until(lambda: statuses() == LAST_WORDS | {Status.QUEUED: 1})
    peer.bound[0].deliver(delivery(b"Stop."), sequence=61)
    wait_until(lambda: DoNotCall.lists(NEW_YORK))
    wait_until(lambda: Message.get_by_id(waiting.id).status == Status.BLOCKED)
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in peer.pdus)
    peer.bound[0].deliver(delivery(b"START"), sequence=62)
    wait_until(lambda: not DoNotCall.lists(NEW_YORK))
    assert scheduler.terminate() == 0
    assert not EarlyReceipt.select().exists()


@on_sqlite
def test_a_stop_does_not_wait_for_an_smsc_that_answers_no_text(schedule, peer):
    peer.answer = lambda part: SILENCE
    store_many(8)
    schedule("--every", "600", CARRIER_URL=peer.url, CARRIER_TIMEOUT="600")
    wait_until(lambda: len(peer.parts) == 8)
    peer.bound[0].deliver(delivery(b"STOP"), sequence=61)
    wait_until(lambda: DoNotCall.lists(NEW_YORK))
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in peer.pdus)


def test_a_single_pass_hears_what_an_smsc_says(schedule, peer):
    peer.promptly = True
    store_many(60)
    assert schedule(CARRIER_URL=peer.url).wait() == 0
    assert statuses() == LAST_WORDS


def test_a_single_pass_that_sends_nothing_hears_what_an_smsc_has_kept(schedule, peer):
    for n in range(3):
        store(status=Status.SENT, carrier_reference=f"id-{n}", finished_at=clock.now())
    receipts = [delivery(b"id:id-%d stat:DELIVRD" % n, esm_class=4) for n in range(3)]
    peer.kept = [*receipts, delivery(b"STOP")]
    assert schedule(CARRIER_URL=peer.url).wait() == 0
    assert statuses() == {Status.DELIVERED: 3}
    assert DoNotCall.lists(NEW_YORK)
    wait_until(lambda: [pdu[1] for pdu in peer.pdus if pdu[0] == ACKNOWLEDGED] == [0] * 4)
