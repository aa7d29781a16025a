"""What each answer of an SMPP peer means for the text."""

import time

import pytest
from smpp_peer import HANG_UP, SILENCE
from smpp_texts import (
    BIND_FAILED,
    INVALID_NUMBER,
    INVALID_SENDER,
    QUEUE_FULL,
    SYSTEM_ERROR,
    THROTTLED,
    kind,
    outcomes,
    refused,
    send,
)

from carriers import CarrierError, smpp_session
from running import wait_until


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (0x01, "for good"),
        (INVALID_NUMBER, "for good"),
        (0x43, "for good"),
        (THROTTLED, "too fast"),
        (QUEUE_FULL, "too fast"),
        (INVALID_SENDER, "the account"),
        (0x0E, "the account"),
        (0x0F, "the account"),
        (0x48, "the account"),
        (0x51, "the account"),
        (0x04, "for now"),
        (SYSTEM_ERROR, "for now"),
        (0x45, "for now"),
        (0xFF, "for now"),
        (0x400, "for now"),
        (0xFFFFFFFF, "for now"),
    ],
)
def test_every_status_is_sorted(peer, carrier, status, meaning):
    peer.answer = lambda part: status
    error = refused(carrier)
    assert kind(error) == meaning
    assert f"command_status 0x{status:02X}" in str(error)
    peer.answer = lambda part: 0
    assert send(carrier)
    assert len(peer.logins) == 1


def test_a_yes_with_optional_parameters_or_without_an_id_is_a_yes(peer, carrier):
    peer.message_id = lambda count: "an id\0\0\x1d\0\3ok"
    assert send(carrier) == "an id"
    peer.message_id = lambda count: ""
    assert send(carrier) is None


@pytest.mark.slow
@pytest.mark.parametrize("status", [0x05, BIND_FAILED, 0x0E, 0x0F, 0x53, SYSTEM_ERROR, 0x400])
def test_a_bind_that_is_refused_is_the_accounts_until_it_is_mended(peer, carrier, status):
    peer.bind_status = status
    for outcome in outcomes(carrier, 8):
        assert kind(outcome) == "the account"
        assert "bind" in str(outcome)
    assert len(peer.logins) < 8, "one try is shared by the texts that wait for it"
    with pytest.raises(CarrierError) as caught:
        carrier.check()
    assert caught.value.account
    peer.bind_status = 0
    carrier.check()
    assert send(carrier)


def test_a_peer_that_allows_no_further_bind_refuses_the_account(peer, connect):
    peer.most_binds = 1
    first, second = connect(peer.url), connect(peer.url)
    assert send(first)
    assert kind(refused(second)) == "the account"
    first.close()
    wait_until(lambda: not peer.bound)
    assert send(second)


@pytest.mark.slow
def test_tries_to_bind_have_pauses_between_them_that_grow(peer, connect, monkeypatch):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 0.2)
    peer.bind_status, carrier = BIND_FAILED, connect(peer.url)
    began, instants = time.monotonic(), []
    for _ in range(4):
        refused(carrier)
        instants.append(time.monotonic() - began)
    assert instants[1] >= 0.2
    assert instants[2] >= 0.6
    assert instants[3] >= 1.4


def test_a_peer_that_is_not_there_is_for_now(connect):
    assert kind(refused(connect("smpp://user:s3cret@127.0.0.1:9/15005550006"))) == "for now"


@pytest.mark.slow
def test_a_peer_that_does_not_answer_the_bind_is_for_now(peer, impatient):
    peer.bind_status = SILENCE
    assert kind(refused(impatient)) == "for now"


# Long texts of which only some parts are taken


def test_what_is_refused_with_the_first_part_is_refused_before_more_is_sent(peer, carrier):
    peer.answer = lambda part: THROTTLED
    assert kind(refused(carrier, "x" * 1000)) == "too fast"
    assert len(peer.parts) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (INVALID_NUMBER, "for good"),
        (SYSTEM_ERROR, "in doubt"),
        (INVALID_SENDER, "in doubt"),
        (HANG_UP, "in doubt"),
        (SILENCE, "in doubt"),
    ],
)
def test_what_is_refused_after_a_part_was_taken_is_never_for_now(peer, impatient, status, meaning):
    peer.answer = lambda part: status if part.octets[5] == 2 else 0
    error = refused(impatient, "x" * 400)
    assert kind(error) == meaning
    assert len(peer.parts) == 2
    if status not in (HANG_UP, SILENCE):
        assert "after 1 of 3 parts were taken" in str(error)


def test_too_fast_between_parts_is_waited_for(peer, carrier):
    answers = iter([0, THROTTLED, QUEUE_FULL, 0, 0])
    peer.answer = lambda part: next(answers)
    assert send(carrier, "x" * 400) == "id-5"
    assert [part.octets[5] for part in peer.parts] == [1, 2, 2, 2, 3]


@pytest.mark.slow
def test_too_fast_between_parts_is_not_waited_for_for_ever(peer, impatient):
    peer.answer = lambda part: THROTTLED if part.octets[5] == 2 else 0
    assert kind(refused(impatient, "x" * 400)) == "in doubt"
