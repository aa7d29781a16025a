"""STOP and START over SMPP reach the list with the right number."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smpp_peer import delivery
from smpp_texts import NUMBER, answers_to, received

from carriers import OptOut, pdus, smpp
from running import wait_until


@pytest.mark.parametrize(
    ("octets", "options", "stop"),
    [
        (b"STOP", {}, True),
        (b" stop.\r\n", {"coding": 1}, True),
        ("Stop".encode("utf-16-be"), {"coding": 8}, True),
        (b"STOP", {"source": "+12125550123"}, True),
        (b"\2\x24\0STOP", {"esm_class": 0x40}, True),
        (b"", {"tlvs": [(0x0424, b"STOP")]}, True),
        (b"START", {"coding": 3}, False),
        (b"\5\0\3\7\1\1STOP", {"esm_class": 0x40}, True),  # of one part
        (b"STOP", {"tlvs": [(0x020E, b"\1")]}, True),
    ],
)
def test_a_word_for_stop_or_start_is_returned_with_its_number(peer, carrier, octets, options, stop):
    carrier.check()
    peer.sessions[0].deliver(delivery(octets, **options))
    assert received(carrier, 1) == [OptOut(NUMBER, stop, "reply")]


@pytest.mark.parametrize(
    ("source", "ton", "number", "certain"),
    [
        ("12125550123", 1, NUMBER, True),
        ("+12125550123", 1, NUMBER, True),
        ("+12125550123", 0, NUMBER, True),
        ("12125550123", 0, NUMBER, False),
        ("12125550123", 2, NUMBER, False),
        ("2125550123", 0, "+2125550123", False),
        ("02125550123", 1, "+02125550123", False),
        ("02125550123", 2, "+02125550123", False),
    ],
)
def test_a_number_is_certain_only_where_it_is_called_international(
    peer, carrier, source, ton, number, certain
):
    carrier.check()
    peer.sessions[0].deliver(delivery(b"STOP", source, ton=ton))
    assert received(carrier, 1) == [OptOut(number, True, "reply", certain=certain)]


@pytest.mark.parametrize(
    ("source", "ton", "number", "certain"),
    [
        ("6172091009", 0, "+16172091009", True),
        ("6172091009", 2, "+16172091009", True),
        ("16172091009", 0, "+16172091009", True),
        ("442083661177", 0, "+442083661177", False),
        ("+442083661177", 0, "+442083661177", True),
        ("442083661177", 1, "+442083661177", True),
        ("1172091009", 0, "+1172091009", False),
    ],
)
def test_with_a_region_national_numbers_are_read(peer, connect, source, ton, number, certain):
    carrier = connect(peer.url, region="US")
    carrier.check()
    peer.sessions[0].deliver(delivery(b"STOP", source, ton=ton))
    assert received(carrier, 1) == [OptOut(number, True, "reply", certain=certain)]


@pytest.mark.parametrize(
    ("octets", "options"),
    [
        (b"Please stop by tomorrow", {}),
        (b"", {}),
        (b"STOP", {"source": "12345"}),
        (b"STOP", {"source": "ACME", "ton": 5}),
        (b"STOP", {"source": "+0123", "ton": 0}),
        (b"STOP", {"source": "1234567890123456", "ton": 0}),
        (b"\xffSTOP", {"esm_class": 0x40}),
        (b"\5\0\3\7\2\2STOP", {"esm_class": 0x40}),  # the last word of a longer text
        (b"\x08\x24\0\x08\4\0\7\2\2STOP", {"esm_class": 0x40}),
        (b"STOP", {"tlvs": [(0x020E, b"\2"), (0x020F, b"\2")]}),
    ],
)
def test_any_other_text_is_acknowledged_and_no_more(peer, carrier, octets, options):
    carrier.check()
    peer.sessions[0].deliver(delivery(octets, **options), 5)
    wait_until(lambda: answers_to(peer, 5) == [0])
    assert carrier.received() == []


def test_a_stop_is_the_peers_until_it_was_dealt_with(peer, carrier):
    """The call after the one that returned it acknowledges it."""
    carrier.check()
    peer.sessions[0].deliver(delivery(b"STOP"), 5)
    assert received(carrier, 1) == [OptOut(NUMBER, True, "reply")]
    carrier.check()
    assert not answers_to(peer, 5)
    assert carrier.received() == []
    wait_until(lambda: answers_to(peer, 5) == [0])


def test_close_acknowledges_what_was_returned_and_nothing_else(peer, carrier):
    carrier.check()
    peer.sessions[0].deliver(delivery(b"STOP"), 5)
    received(carrier, 1)
    peer.sessions[0].deliver(delivery(b"STOP"), 6)
    carrier.check()
    carrier.close()
    assert answers_to(peer, 5) == [0]
    assert not answers_to(peer, 6)


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=80).map(delivery)))
def test_no_delivery_whatever_is_in_it_raises_more_than_a_value_error(body):
    for parse in (pdus.deliver_sm, pdus.data_sm):
        with suppress(ValueError):
            smpp.read(parse(body), "dec", "US")
