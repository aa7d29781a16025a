"""Late, wrong and missing answers, garbage, lost connections: no text is doubled or lost."""

import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import smpp_peer
from carrier_errors import TEXT, error_of, meaning, refused, send
from running import wait_until
from smpp_peer import HANG_UP, SILENCE, pdu
from smpp_texts import INVALID_NUMBER, SYSTEM_ERROR, outcomes
from texting.carriers import smpp_session

SUBMITTED = smpp_peer.SUBMIT_SM | smpp_peer.RESPONSE


@pytest.mark.slow
def test_a_peer_that_enquires_and_never_answers_does_not_hold_a_send_up(peer, impatient):
    send(impatient)
    peer.answer = SILENCE
    peer.enquire()
    began = time.monotonic()
    assert {meaning(outcome) for outcome in outcomes(impatient, 8)} == {"in doubt"}
    assert time.monotonic() - began < 10
    assert (smpp_peer.ENQUIRE_LINK | smpp_peer.RESPONSE, 0, 77, b"") in peer.pdus
    peer.answer = 0
    assert send(impatient)
    assert len(peer.logins) == 1, "the connection is alive"


@pytest.mark.slow
def test_an_answer_after_six_seconds_is_a_yes_to_one_copy(peer, carrier):
    peer.delay = 6
    assert send(carrier) == "id-1"
    assert len(peer.parts) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"), [(TEXT, INVALID_NUMBER), (TEXT, SYSTEM_ERROR), ("x" * 161, 0)]
)
def test_a_late_no_or_a_late_yes_to_a_first_part_says_nothing_of_the_text(
    peer, connect, text, status
):
    peer.answer, peer.delay = status, 2
    peer.enquire()
    carrier = connect(peer.url, timeout=1)
    assert meaning(refused(carrier, text=text)) == "in doubt"
    wait_until(lambda: not peer.waiting)
    carrier.check()
    assert carrier.received() == []


GARBAGE = {
    "shorter than a header": struct.pack(">4I", 15, 4, 0, 1),
    "of no length": bytes(16),
    "longer than any": struct.pack(">4I", 0xFFFFFFFF, SUBMITTED, 0, 1),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "noise": bytes(range(255, 0, -1)),
}


def own(command, status=0):
    """Return what answers with the sequence number of the text."""
    return lambda sequence: pdu(command, status, sequence, b"wrong\0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "means", "binds"),
    [
        *((pdu(SUBMITTED, 0, n, b"wrong\0"), "in doubt", 1) for n in (0, 999_999, 0xFFFFFFFF)),
        (own(smpp_peer.ENQUIRE_LINK | smpp_peer.RESPONSE), "in doubt", 1),
        (own(smpp_peer.GENERIC_NACK, 0x03), "for now", 1),
        (own(smpp_peer.GENERIC_NACK), "for now", 1),
        (own(smpp_peer.GENERIC_NACK, 0x58), "too fast", 1),
        *((octets, "in doubt", 2) for octets in GARBAGE.values()),
    ],
)
def test_only_its_own_answer_or_a_nack_ends_a_text_and_garbage_the_bind(
    peer, impatient, wrong, means, binds
):
    def answer(part):
        (sequence,) = (p[2] for p in peer.pdus if p[0] == smpp_peer.SUBMIT_SM)
        peer.sessions[0].write(wrong(sequence) if callable(wrong) else wrong)
        return SILENCE

    peer.answer = answer
    assert meaning(refused(impatient)) == means
    peer.answer = 0
    assert send(impatient) == "id-2"
    assert len(peer.logins) == binds


def test_what_is_no_command_of_ours_is_refused_and_disturbs_nothing(peer, carrier):
    send(carrier)
    for command in (0x0B, 0x21, 0x07, 0x7777, SUBMITTED, 0x80007777, 0x102):
        peer.sessions[0].write(pdu(command, 0, 55, b"junk"))
    send(carrier)
    nack = (smpp_peer.GENERIC_NACK, 0x03, 55, b"")
    wait_until(lambda: [p for p in peer.pdus if p[2] == 55] == [nack] * 4)
    assert len(peer.logins) == 1


def test_what_was_under_way_when_the_connection_was_lost_is_in_doubt(peer, carrier):
    peer.answer, peer.delay = HANG_UP, 0.2
    assert {meaning(outcome) for outcome in outcomes(carrier, 8)} == {"in doubt"}
    peer.answer, peer.delay = 0, 0
    assert send(carrier)
    assert len(peer.parts) == 9
    assert len(peer.logins) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "told"), [(0, "yes"), (SILENCE, "in doubt")])
def test_a_peer_that_unbinds_may_answer_what_is_under_way_and_is_not_waited_for(
    peer, carrier, monkeypatch, answer, told
):
    monkeypatch.setattr(smpp_session, "UNBIND_TIMEOUT", 2)
    peer.answer, peer.delay = answer, 0.3
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(outcomes, carrier, 4)
        wait_until(lambda: len(peer.parts) == 4)
        peer.sessions[0].write(pdu(smpp_peer.UNBIND, 0, 9))
        for outcome in sending.result(15):
            assert (meaning(outcome) if answer else "yes") == told
    wait_until(lambda: (smpp_peer.UNBIND | smpp_peer.RESPONSE, 0, 9, b"") in peer.pdus)
    peer.answer = 0
    assert send(carrier)
    assert len(peer.logins) == 2


@pytest.mark.slow
def test_check_asks_over_the_bind(peer, impatient):
    impatient.check()
    impatient.check()
    assert len(peer.logins) == 1
    assert not peer.parts
    peer.enquiries = False
    error_of(impatient.check)


def test_where_no_thread_can_be_started_it_is_unreached_and_works_later(peer, carrier, monkeypatch):
    start = threading.Thread.start

    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert carrier.received() == []
    error = refused(carrier)
    assert "can't start new thread" in str(error)
    assert error.unreached
    assert not error.in_doubt
    monkeypatch.setattr(threading.Thread, "start", start)
    assert carrier.received() == []
    assert send(carrier) == "id-1"
