"""python scheduler.py with an SMPP peer: one bind for all texts, and an end that is not held up."""

from smpp_peer import DELIVER_SM, RESPONSE, SILENCE, delivery

from databases import on_sqlite
from models import Message, Status
from running import wait_until
from samples import LONDON
from sending.replies import Reply
from stored_messages import statuses, store_many


def test_forty_texts_go_over_one_bind_and_sigterm_ends_it(schedule, peer):
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


@on_sqlite
def test_a_peer_that_enquires_and_never_answers_does_not_hold_up_the_end(schedule, peer):
    peer.answer = lambda part: SILENCE
    store_many(8)
    scheduler = schedule("--every", "0.1", CARRIER_URL=peer.url, CARRIER_TIMEOUT="2")
    wait_until(lambda: len(peer.parts) == 8)
    peer.enquire()
    assert scheduler.terminate(seconds=20) == 0
    assert len(peer.parts) == 8


@on_sqlite
def test_a_pass_ends_with_status_0_where_the_bind_is_refused(schedule, peer):
    peer.bind_status = 0x0E
    store_many(8)
    assert schedule(CARRIER_URL=peer.url).wait() == 0
    assert not peer.parts
    assert len(peer.logins) < 8


def receipt(reference, word=b"DELIVRD"):
    return delivery(b"id:%s sub:001 stat:%s err:000" % (reference.encode(), word), esm_class=4)


@on_sqlite
def test_what_came_between_passes_is_recorded_before_the_end(schedule, peer):
    store_many(1)
    scheduler = schedule("--every", "60", CARRIER_URL=peer.url)
    wait_until(lambda: statuses() == {Status.SENT: 1})
    wait_until(lambda: "1 sent" in scheduler.output)
    peer.bound[0].deliver(receipt(Message.get().carrier_reference), 1)
    wait_until(lambda: any(p[0] == DELIVER_SM | RESPONSE for p in peer.pdus))
    assert scheduler.terminate() == 0
    assert statuses() == {Status.DELIVERED: 1}
    assert peer.unbinds == 1


def test_a_late_answer_settles_the_doubt_and_no_second_copy_goes_out(schedule, peer):
    peer.delay = 3
    peer.enquire()
    store_many(8)
    scheduler = schedule("--every", "0.1", CARRIER_URL=peer.url, CARRIER_TIMEOUT="2")
    wait_until(lambda: statuses() == {Status.SENT: 8})
    assert "may have" not in scheduler.output
    assert scheduler.terminate() == 0
    assert len(peer.parts) == 8
    assert {message.carrier_reference for message in Message.select()} == {
        f"id-{n}" for n in range(1, 9)
    }


@on_sqlite
def test_the_receipts_of_texts_without_an_answer_settle_their_doubt(schedule, peer):
    def answer(part):
        text = b"id:%s sub:001 stat:DELIVERED err:000" % part.to.encode()
        peer.bound[0].deliver(delivery(text, part.to), 1)
        return SILENCE

    peer.answer = answer
    peer.enquire()
    store_many(8)
    schedule("--every", "0.1", CARRIER_URL=peer.url, CARRIER_TIMEOUT="2")
    wait_until(lambda: statuses() == {Status.DELIVERED: 8})
    assert len(peer.parts) == 8


@on_sqlite
def test_a_receipt_that_a_stranger_writes_is_a_reply(schedule, peer):
    (number,) = store_many(1)
    schedule("--every", "0.1", CARRIER_URL=peer.url)
    wait_until(lambda: statuses() == {Status.SENT: 1})
    text = b"id:%s sub:001 stat:%s err:099"
    reference = Message.get().carrier_reference.encode()
    peer.bound[0].deliver(delivery(text % (reference, b"DELIVRD"), LONDON[1:]), 1)
    wait_until(lambda: [reply.number for reply in Reply.select()] == [LONDON])
    assert statuses() == {Status.SENT: 1}
    peer.bound[0].deliver(delivery(text % (reference, b"UNDELIV"), number[1:]), 2)
    wait_until(lambda: statuses() == {Status.UNDELIVERED: 1})
    assert Reply.select().count() == 1
