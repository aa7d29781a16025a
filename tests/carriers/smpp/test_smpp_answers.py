"""What each answer of an SMPP peer means for the text."""

import pytest

from carrier_errors import error_of, meaning, refused, send
from smpp_peer import HANG_UP, SILENCE
from smpp_texts import (
    BIND_FAILED,
    INVALID_NUMBER,
    INVALID_SENDER,
    QUEUE_FULL,
    SYSTEM_ERROR,
    THROTTLED,
    outcomes,
)
from texting.carriers import TooFast


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
        assert meaning(outcome) == "the account"
        assert "bind" in str(outcome)
    assert len(peer.logins) < 8, "one try is shared by the texts that wait for it"
    assert meaning(error_of(carrier.check)) == "the account"
    peer.bind_status = 0
    carrier.check()
    assert send(carrier)


@pytest.mark.slow
def test_a_peer_that_does_not_answer_the_bind_is_for_now(peer, impatient):
    peer.bind_status = SILENCE
    assert meaning(refused(impatient)) == "for now"


# Long texts of which only some parts are taken


def test_what_is_refused_with_the_first_part_is_refused_before_more_is_sent(peer, carrier):
    peer.answer = THROTTLED
    assert meaning(refused(carrier, text="x" * 1000)) == "too fast"
    assert len(peer.parts) == 1
    assert carrier.received() == [], "the error tells it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "means"),
    [
        (INVALID_NUMBER, "for good"),
        (SYSTEM_ERROR, "in doubt"),
        (INVALID_SENDER, "in doubt"),
        (HANG_UP, "in doubt"),
        (SILENCE, "in doubt"),
        (THROTTLED, "in doubt"),  # it is waited out, but not for ever
    ],
)
def test_what_is_refused_after_a_part_was_taken_is_never_for_now(peer, impatient, status, means):
    peer.answer = lambda part: status if part.octets[5] == 2 else 0
    error = refused(impatient, text="x" * 400)
    assert meaning(error) == means
    assert len(peer.parts) == 2 or status == THROTTLED
    if status in (INVALID_NUMBER, SYSTEM_ERROR, INVALID_SENDER):
        assert "after 1 of 3 parts were taken" in str(error)
        assert impatient.received() == []


@pytest.mark.parametrize("part", [2, 3])
def test_too_fast_to_a_later_part_is_waited_out_and_told_each_time(peer, carrier, part):
    answers = iter([0] * (part - 1) + [THROTTLED, QUEUE_FULL] + [0] * 3)
    peer.answer = lambda _: next(answers)
    assert send(carrier, text="x" * 400) == "id-5"
    assert sorted(each.octets[5] for each in peer.parts) == sorted([1, 2, 3, part, part])
    assert [type(event) for event in carrier.received()] == [TooFast] * 2
    assert carrier.received() == []
