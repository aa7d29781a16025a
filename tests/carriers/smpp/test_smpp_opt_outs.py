"""STOP and START over SMPP reach the list with the right number."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrier_errors import NUMBER
from smpp_peer import delivery
from smpp_texts import answers_to, received
from texting.carriers import IncomingText, Part, deliveries, pdus


@pytest.mark.parametrize(
    ("octets", "options", "text", "part"),
    [
        (b"STOP", {}, "STOP", None),
        (b" stop.\r\n", {"coding": 1}, " stop.\r\n", None),
        ("Stóp 🛑".encode("utf-16-be"), {"coding": 8}, "Stóp 🛑", None),
        (b"STOP", {"source": "+12125550123"}, "STOP", None),
        (b"\2\x24\0STOP", {"esm_class": 0x40}, "STOP", None),
        (b"", {"tlvs": [(0x0424, b"STOP")]}, "STOP", None),
        (b"ST\xc4RT", {"coding": 3}, "STÄRT", None),
        (b"\x1be 5\0", {}, "€ 5@", None),
        (b"my id: 7a stat:DELIVRD", {}, "my id: 7a stat:DELIVRD", None),
        (b"\5\0\3\7\1\1STOP", {"esm_class": 0x40}, "STOP", None),  # of one part
        (b"STOP", {"tlvs": [(0x020E, b"\1")]}, "STOP", None),
        (b"\5\0\3\7\2\2STOP", {"esm_class": 0x40}, "STOP", Part("07", 2, 2)),
        (b"\x08\x24\0\x08\4\1\7\3\2STOP", {"esm_class": 0x40}, "STOP", Part("0107", 3, 2)),
        (
            b"STOP",
            {"tlvs": [(0x020C, b"\0\7"), (0x020E, b"\2"), (0x020F, b"\2")]},
            "STOP",
            Part("0007", 2, 2),
        ),
    ],
)
def test_a_text_is_returned_as_it_came_with_its_number(deliver, octets, options, text, part):
    assert deliver(octets, **options) == IncomingText(NUMBER, text, part=part)


def test_a_part_may_end_within_a_character(peer, carrier):
    whole = "x🚀y".encode("utf-16-be")
    carrier.check()
    for number, octets in enumerate((whole[:4], whole[4:]), 1):
        text = bytes([5, 0, 3, 7, 2, number]) + octets
        peer.sessions[0].deliver(delivery(text, esm_class=0x40, coding=8))
    assert [each.text for each in received(carrier, 2)] == ["x\ud83d", "\ude80y"]


@pytest.mark.parametrize(
    ("options", "source", "ton", "number", "certain"),
    [
        ({}, "12125550123", 1, NUMBER, True),
        ({}, "+12125550123", 1, NUMBER, True),
        ({}, "+12125550123", 0, NUMBER, True),
        ({}, "12125550123", 0, NUMBER, False),
        ({}, "12125550123", 2, NUMBER, False),
        ({}, "2125550123", 0, "+2125550123", False),
        ({}, "02125550123", 1, "+02125550123", False),
        ({}, "02125550123", 2, "+02125550123", False),
        ({"region": "US"}, "6172091009", 0, "+16172091009", True),
        ({"region": "US"}, "6172091009", 2, "+16172091009", True),
        ({"region": "US"}, "16172091009", 0, "+16172091009", True),
        ({"region": "US"}, "442083661177", 0, "+442083661177", False),
        ({"region": "US"}, "+442083661177", 0, "+442083661177", True),
        ({"region": "US"}, "442083661177", 1, "+442083661177", True),
        ({"region": "US"}, "1172091009", 0, "+1172091009", False),
    ],
)
def test_a_number_is_certain_where_it_is_called_international_or_is_one_of_the_region(
    peer, connect, options, source, ton, number, certain
):
    carrier = connect(peer.url, **options)
    carrier.check()
    peer.sessions[0].deliver(delivery(b"STOP", source, ton=ton))
    assert received(carrier, 1) == [IncomingText(number, "STOP", certain=certain)]


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
    for command in (pdus.DELIVER_SM, pdus.DATA_SM):
        with suppress(ValueError):
            deliveries.report_in(pdus.delivery(command, body), "dec", "US")
