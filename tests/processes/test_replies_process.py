"""Replies over real carriers' libraries, while processes are killed and Postgres is away."""

import contextlib
import http.client
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from smpp_peer import DELIVER_SM, RESPONSE, SmppPeer, delivery
from test_smpp_foreign_peers import HERE, ForeignPeer

import database
from access.do_not_call import DoNotCall
from database import clock
from models import Message, Status
from running import wait_until
from samples import LONDON, NEW_YORK
from sending.replies import Filter, Reply
from signed_callbacks import SECRET, TOKEN, TWILIO, VONAGE, of_twilio, of_vonage
from stored_messages import statuses, store

PUBLIC_URL = "https://sms.example.com"


def kept():
    return [each.text for each in Reply.listing(Filter(), None, clock.now())]


class Gateway:
    """A carrier that delivers each callback until it is acknowledged."""

    def __init__(self, path):
        self.path, self.web = path, None
        self.statuses = set()

    def deliver(self, signed):
        """Deliver a callback once; say whether it was acknowledged."""
        path = f"{self.path}?{signed['query_string']}" if "query_string" in signed else self.path
        web = self.web
        try:
            connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
            with contextlib.closing(connection):
                connection.request(
                    signed["method"], path, signed.get("data"), signed.get("headers", {})
                )
                status = connection.getresponse().status
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
    """Half of a text in two parts."""
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


def test_while_postgres_is_away_nothing_is_acknowledged_and_nothing_lost(serve, stoppable_postgres):
    stoppable_postgres.start()
    url = stoppable_postgres.url
    database.connect(url)
    database.upgrade()
    database.disconnect()
    gateway = Gateway("/carriers/twilio/inbound")
    gateway.web = serve(url, workers=1, CARRIER_URL=TWILIO, PUBLIC_URL=PUBLIC_URL)
    assert gateway.deliver(twilios(1))
    stoppable_postgres.stop()
    for number in (2, 3, 2):
        assert not gateway.deliver(twilios(number))
    assert gateway.statuses == {204, 503}
    stoppable_postgres.start()
    for number in (1, 2, 3, 2):
        gateway.insist(twilios(number))
    database.connect(url)
    assert sorted(kept()) == [f"reply {n} 🎉" for n in (1, 2, 3)]
    database.disconnect()


# SMPP


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


def test_a_stop_over_npms_smpp_is_answered_at_once_by_the_same_way(npm_peer, schedule):
    store(clock.now(), message="stop me")
    schedule("--every", "0.1", CARRIER_URL=npm_peer.url, STOP_REPLY="You get no more texts.")
    first, answer = npm_peer.parts(2)
    assert (first["text"], answer["text"]) == ("stop me", "You get no more texts.")
    assert answer["to"] == NEW_YORK[1:]
    wait_until(lambda: statuses() in ({Status.DELIVERED: 2}, {Status.SENT: 1, Status.DELIVERED: 1}))
    assert DoNotCall.lists(NEW_YORK)
    assert Reply.get().opted_out


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


def test_parts_that_come_again_after_a_scheduler_was_killed_are_kept_once(schedule):
    """Its peer delivers what was not acknowledged to the next one, each part twice."""
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
