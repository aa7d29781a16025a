"""What happens to a session of SMPP may happen again: the second time as the first."""

import time
from contextlib import suppress

import pytest

import smpp_peer
from carrier_errors import MESSAGE_ID, NUMBER, meaning, refused, send
from running import wait_until
from smpp_peer import SILENCE, delivery, pdu
from smpp_texts import BIND_FAILED, SYSTEM_ERROR, answers_to, received
from texting.carriers import CarrierError, IncomingText, LateAnswer, Receipt, smpp, smpp_session

RECEIPT = b"id:%d stat:DELIVRD"


def serve_a_text(peer, carrier):
    send(carrier)


def serve_a_receipt(peer, carrier):
    """Nothing is sent over the session."""
    carrier.check()
    peer.sessions[-1].deliver(delivery(RECEIPT % 7, esm_class=4))
    assert received(carrier, 1) == [Receipt("7", True, None, NUMBER)]


def serve_a_no(peer, carrier):
    peer.answer = SYSTEM_ERROR
    assert meaning(refused(carrier)) == "for now"
    peer.answer = 0


def hang_up(peer, carrier):
    """End the last session; return once the carrier has noticed."""
    peer.sessions[-1].hang_up()
    await_loss(peer, carrier)


def unbind(peer, carrier):
    peer.sessions[-1].write(pdu(smpp_peer.UNBIND, 0, 9))
    await_loss(peer, carrier)
    assert (smpp_peer.UNBIND | smpp_peer.RESPONSE, 0, 9, b"") in peer.pdus


def await_loss(peer, carrier):
    logins = len(peer.logins)
    wait_until(lambda: not peer.bound)

    def is_noticed():
        if len(peer.logins) > logins:
            return True
        with suppress(CarrierError):
            carrier.check()
            return len(peer.logins) > logins
        return True

    wait_until(is_noticed)


def bind_to_listen(peer, carrier, count):
    """Listen until the carrier has bound so many times; return when it did."""
    wait_until(lambda: carrier.received() == [] and len(peer.bound) == 1)
    assert len(peer.logins) == count
    return time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("serve", [serve_a_text, serve_a_receipt, serve_a_no])
@pytest.mark.parametrize("leave", [hang_up, unbind])
def test_a_peer_that_serves_and_soon_leaves_is_bound_to_again_at_once_each_time(
    peer, carrier, monkeypatch, serve, leave
):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 30)
    began = time.monotonic()
    for number in range(1, 5):
        serve(peer, carrier)
        assert len(peer.logins) == number
        leave(peer, carrier)
    assert time.monotonic() - began < 15


@pytest.mark.slow
def test_a_peer_that_serves_nothing_has_pauses_that_grow_until_it_serves_again(
    peer, carrier, monkeypatch
):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 1)
    instants = []
    for count in range(1, 4):  # after a pause of 1 second, then of 2
        instants.append(bind_to_listen(peer, carrier, count))
        peer.sessions[-1].hang_up()
        wait_until(lambda: not peer.bound)
    instants.append(bind_to_listen(peer, carrier, 4))  # of 4
    send(carrier)
    for count in (5, 6):  # none, then of 1 again
        peer.sessions[-1].hang_up()
        wait_until(lambda: not peer.bound)
        instants.append(bind_to_listen(peer, carrier, count))
    first, second, third, fourth, fifth, sixth = instants
    assert second - first > 0.8
    assert third - second > 1.8
    assert fourth - third > 3.8
    assert 0.8 < sixth - fifth < 3.8


@pytest.mark.slow
def test_pauses_between_tries_to_bind_do_not_grow_for_ever(peer, connect, monkeypatch):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(smpp_session, "LONGEST_PAUSE", 0.2)
    peer.bind_status, carrier = BIND_FAILED, connect(peer.url)
    began = time.monotonic()
    for _ in range(9):
        refused(carrier)
    assert 1.4 < time.monotonic() - began < 12


@pytest.mark.slow
def test_to_listen_at_a_peer_that_refuses_the_bind_is_tried_after_each_pause(
    peer, connect, monkeypatch
):
    monkeypatch.setattr(smpp, "ACCOUNT_PAUSE", 0.5)
    peer.bind_status, carrier = BIND_FAILED, connect(peer.url)
    began = time.monotonic()
    wait_until(lambda: carrier.received() == [] and len(peer.logins) == 4)
    assert time.monotonic() - began > 1.4
    peer.bind_status = 0
    bind_to_listen(peer, carrier, 5)


@pytest.mark.slow
def test_of_two_binds_one_may_be_lost_again_and_again(peer, connect):
    carrier = connect(peer.url, binds=2)
    for count in (2, 3, 4, 5):
        wait_until(lambda: send(carrier) and len(peer.bound) == 2)
        assert len(peer.logins) == count
        lost = peer.bound[0]  # the one and the other in turn
        lost.hang_up()
        wait_until(lambda lost=lost: not lost.bound)
        with suppress(CarrierError):  # the carrier may not know yet
            send(carrier)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "references"),
    [({"msg_id_type": "hex,dec"}, ["26", "27"]), ({"bind": "transmitter"}, ["001A", "001B"])],
)
def test_each_yes_that_comes_after_the_timeout_is_handed_over_once(
    peer, connect, options, references
):
    peer.message_id = lambda count: f"{25 + count:04X}"
    peer.delay = 2
    peer.enquire()
    carrier = connect(peer.url, timeout=1, **options)
    for reference in references:
        assert meaning(refused(carrier)) == "in doubt"
        assert received(carrier, 1) == [LateAnswer(MESSAGE_ID, reference)]
        sequence = [p[2] for p in peer.pdus if p[0] == smpp_peer.SUBMIT_SM][-1]
        again = pdu(smpp_peer.SUBMIT_SM | smpp_peer.RESPONSE, 0, sequence, b"again\0")
        peer.sessions[0].write(again)
        carrier.check()
        assert carrier.received() == []


def test_what_was_held_makes_room_for_more_each_time(peer, carrier, monkeypatch):
    monkeypatch.setattr(smpp, "MOST_HELD", 2)
    carrier.check()
    for first in (1, 11, 21):
        for sequence in range(first, first + 3):
            receipt = delivery(RECEIPT % sequence, esm_class=4)
            peer.sessions[0].deliver(receipt, sequence)
        wait_until(lambda last=first + 2: answers_to(peer, last))
        assert [answers_to(peer, n) for n in range(first, first + 3)] == [[0], [0], [0x64]]
        assert [each.reference for each in carrier.received()] == [str(first), str(first + 1)]


def test_the_replies_of_each_call_are_acknowledged_by_the_next(peer, carrier):
    carrier.check()
    for first in (1, 11, 21):
        for sequence in (first, first + 1):
            peer.sessions[0].deliver(delivery(b"text %d" % sequence), sequence)
        carrier.check()  # whose answer comes after them
        texts = [IncomingText(NUMBER, f"text {sequence}") for sequence in (first, first + 1)]
        assert carrier.received() == texts
        carrier.check()
        assert not answers_to(peer, first)
        assert carrier.received() == []
        wait_until(lambda last=first + 1: answers_to(peer, last))
    carrier.check()
    assert [answers_to(peer, n) for n in (1, 2, 11, 12, 21, 22)] == [[0]] * 6


def test_a_reply_of_a_session_that_was_lost_comes_again_and_is_acknowledged_there(peer, carrier):
    """The acknowledgement of the first delivery has no session to go over."""
    carrier.check()
    for count in (1, 2, 3):
        session = peer.sessions[-1]
        session.deliver(delivery(b"STOP"), 5)
        assert received(carrier, 1) == [IncomingText(NUMBER, "STOP")]
        hang_up(peer, carrier)
        bind_to_listen(peer, carrier, count + 1)
    peer.sessions[-1].deliver(delivery(b"STOP"), 5)
    received(carrier, 1)
    assert not answers_to(peer, 5)
    carrier.received()
    wait_until(lambda: answers_to(peer, 5) == [0])


@pytest.mark.slow
def test_a_peer_that_falls_silent_is_given_up_each_time(peer, connect, monkeypatch):
    monkeypatch.setattr(smpp_session, "IDLE", 0.2)
    carrier = connect(peer.url, timeout=1)

    def probed():
        return [pdu[0] for pdu in peer.pdus].count(smpp_peer.ENQUIRE_LINK)

    for count in (1, 2, 3):
        send(carrier)
        assert len(peer.logins) == count
        probes = probed()
        wait_until(lambda most=probes + 2: probed() > most)
        assert len(peer.bound) == 1
        peer.enquiries = False
        wait_until(lambda: not peer.bound)
        peer.enquiries = True


@pytest.mark.slow
def test_a_text_without_an_answer_ends_a_silent_session_each_time(peer, connect):
    carrier = connect(peer.url, timeout=1)
    for count in (1, 2, 3):
        peer.answer = 0
        send(carrier)
        assert len(peer.logins) == count
        peer.answer = SILENCE
        assert meaning(refused(carrier)) == "in doubt"
