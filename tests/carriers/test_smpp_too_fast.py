"""SMPP's "too fast" in the middle of a text is told to all, and waited out by the text itself."""

import contextlib

import pytest

import carriers
import carriers.smpp as smpp
from carriers import CarrierError, TooFast

QUEUE_FULL, THROTTLED = 0x14, 0x58
LONG = "x" * 400  # three parts


@pytest.fixture
def carrier(peer, monkeypatch):
    monkeypatch.setattr(smpp, "PAUSE", 0.05)
    with contextlib.closing(carriers.connect(f"{peer.url}?bind=transmitter", 8, 2)) as connected:
        yield connected


def send(carrier, text):
    return carrier.send("+12125550123", text, message_id="a message", valid_for=60)


def too_fast(carrier):
    return [event for event in carrier.received() if isinstance(event, TooFast)]


@pytest.mark.parametrize("status", [QUEUE_FULL, THROTTLED])
@pytest.mark.parametrize("part", [2, 3])
def test_too_fast_to_a_later_part_is_told(peer, carrier, status, part):
    answers = iter([0] * (part - 1) + [status, status] + [0] * 3)
    peer.answer = lambda _: next(answers)
    assert send(carrier, LONG) == "id-5"
    assert len(too_fast(carrier)) == 2
    assert too_fast(carrier) == [], "each is told once"


def test_too_fast_to_the_first_part_is_the_answer_to_the_text(peer, carrier):
    peer.answer = lambda _: THROTTLED
    with pytest.raises(CarrierError) as caught:
        send(carrier, LONG)
    assert caught.value.too_fast
    assert too_fast(carrier) == []


def test_any_other_no_to_a_later_part_is_not_told_as_too_fast(peer, carrier):
    answers = iter([0, 0x08])
    peer.answer = lambda _: next(answers)
    with pytest.raises(CarrierError):
        send(carrier, LONG)
    assert too_fast(carrier) == []
