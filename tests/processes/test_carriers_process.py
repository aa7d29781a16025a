"""Real schedulers with an SMSC: what it takes, what it says later, and when."""

import random
import threading
import time

import pytest

from carrier_servers import served
from foreign_peers import SMPP_NPM, ForeignPeer
from running import wait_until
from samples import LONDON, NEW_YORK
from smpp_peer import DELIVER_SM, RESPONSE, SILENCE, SmppPeer, delivery
from stored_messages import statuses, store, store_many
from texting.access.do_not_call import OptedOut
from texting.database import clock
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.replies import inbox
from texting.replies.model import Reply

ACKNOWLEDGED = DELIVER_SM | RESPONSE


class TalkativePeer(SmppPeer):
    """Say of a third of the texts that they were delivered, of another that they were not.

    Half of that before the yes, the other half by `say`, or with the next text if `promptly`. What
    is `kept` is delivered once somebody binds, a second after another.
    """

    promptly, kept = False, ()

    def greet(self, session):
        threading.Thread(target=self.deliver_kept, args=(session,), daemon=True).start()

    def deliver_kept(self, session):
        for body in self.kept:
            session.deliver(body)
            time.sleep(1)

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


talkative = served(TalkativePeer)


LAST_WORDS = {Status.DELIVERED: 20, Status.UNDELIVERED: 20, Status.SENT: 20}


def test_an_smscs_receipts_and_texts_come_while_the_scheduler_sends_and_rests(schedule, talkative):
    """Over one bind, which SIGTERM ends."""
    waiting = store(to=NEW_YORK, check_dnc=True, approved=False)
    store_many(60)
    scheduler = schedule("--every", "600", CARRIER_URL=talkative.url)
    wait_until(lambda: len(talkative.parts) == 60)
    for count in range(1, 61):
        talkative.say(count, early=False)
    wait_until(lambda: statuses() == LAST_WORDS | {Status.QUEUED: 1})
    talkative.bound[0].deliver(delivery(b"Stop."), sequence=61)
    wait_until(lambda: OptedOut.lists(NEW_YORK))
    wait_until(lambda: Message.get_by_id(waiting.id).status == Status.BLOCKED)
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in talkative.pdus)
    talkative.bound[0].deliver(delivery(b"START"), sequence=62)
    wait_until(lambda: not OptedOut.lists(NEW_YORK))
    assert scheduler.terminate() == 0
    assert len(talkative.logins) == talkative.unbinds == 1
    assert not EarlyReceipt.select().exists()


def test_neither_a_stop_nor_the_end_waits_for_an_smsc_that_answers_no_text(schedule, peer):
    peer.answer = lambda part: SILENCE
    store_many(8)
    environ = {"CARRIER_TIMEOUT": "600", "SHUTDOWN_TIMEOUT": "1"}
    scheduler = schedule("--every", "600", CARRIER_URL=peer.url, **environ)
    wait_until(lambda: len(peer.parts) == 8)
    peer.bound[0].deliver(delivery(b"STOP"), sequence=61)
    wait_until(lambda: OptedOut.lists(NEW_YORK))
    wait_until(lambda: (ACKNOWLEDGED, 0, 61, b"\0") in peer.pdus)
    assert scheduler.terminate() == 0


def test_a_single_pass_hears_what_an_smsc_says(schedule, talkative):
    talkative.promptly = True
    store_many(60)
    assert schedule(CARRIER_URL=talkative.url).wait() == 0
    assert statuses() == LAST_WORDS


def test_a_single_pass_that_sends_nothing_hears_what_an_smsc_has_kept(schedule, talkative):
    for n in range(3):
        sent = {"carrier": "smpp", "carrier_reference": f"id-{n}", "finished_at": clock.now()}
        store(status=Status.SENT, **sent)
    receipts = [delivery(b"id:id-%d stat:DELIVRD" % n, esm_class=4) for n in range(3)]
    talkative.kept = [*receipts, delivery(b"STOP")]
    assert schedule(CARRIER_URL=talkative.url).wait() == 0
    assert statuses() == {Status.DELIVERED: 3}
    assert OptedOut.lists(NEW_YORK)
    wait_until(lambda: [pdu[1] for pdu in talkative.pdus if pdu[0] == ACKNOWLEDGED] == [0] * 4)


# Replies


@pytest.fixture
def npm_peer(npm_package):
    modules = npm_package("smpp", "0.5.1")
    peer = ForeignPeer(["node", SMPP_NPM], NODE_PATH=str(modules))
    yield peer
    peer.close()


def test_npms_smpp_delivers_a_text_in_parts(npm_peer, schedule):
    message = store(clock.now(), message="write to me")
    schedule("--every", "0.1", CARRIER_URL=npm_peer.url)
    wait_until(lambda: [*inbox.listing(clock.now())])
    reply = Reply.get()
    assert reply.text == "Je viendrai à 5 h, mais dites-moi où ? 🎉"
    assert (reply.message_id, reply.number, reply.carrier) == (message.id, NEW_YORK, "smpp")


class InsistentPeer(SmppPeer):
    """Deliver the parts of texts over every session until each is acknowledged."""

    def __init__(self, bodies):
        super().__init__()
        self.bodies = dict(enumerate(bodies, 1))

    def greet(self, session):
        for number in self.left():
            for _ in range(2):
                session.deliver(self.bodies[number], number)

    def left(self):
        acknowledged = {p[2] for p in self.pdus if p[0] == ACKNOWLEDGED and p[1] == 0}
        return [number for number in self.bodies if number not in acknowledged]


def parts_of(ref, source):
    whole = f"reply {ref} 🎉" * 20
    pieces = [whole[start : start + 60] for start in range(0, len(whole), 60)]
    for number, piece in enumerate(pieces, 1):
        header = bytes([5, 0, 3, ref, len(pieces), number])
        octets = piece.encode("utf-16-be")
        yield delivery(header + octets, source[1:], esm_class=0x40, coding=8)


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
            time.sleep(pause)
            scheduler.kill()
        schedule("--every", "0.1", CARRIER_URL=peer.url)
        wait_until(lambda: not peer.left())
    finally:
        peer.close()
    kept = sorted(reply.text for reply in inbox.listing(clock.now()))
    assert kept == sorted(f"reply {ref} 🎉" * 20 for ref in range(8))
