"""Receipts of an SMPP peer are read in all their forms, and acknowledged once they are kept."""

import struct

import pytest

import smpp_peer
from carrier_errors import NUMBER, send
from running import wait_until
from smpp_peer import delivery, pdu
from smpp_texts import answers_to, received
from texting.carriers import IncomingText, Part, Receipt, Shown

RECEIPT = (
    b"id:%s sub:001 dlvrd:001 submit date:2611211200 done date:2611211201 stat:%s err:%s text:x"
)
MESSAGE_ID, STATE = 0x001E, 0x0427


@pytest.mark.parametrize(
    ("text", "tlvs", "reason"),
    [
        (RECEIPT % (b"7a", b"DELIVRD", b"000"), (), None),
        (RECEIPT % (b"7a", b"UNDELIV", b"001"), (), "UNDELIV, error 001"),
        (RECEIPT % (b"7a", b"EXPIRED", b"000"), (), "EXPIRED"),
        (RECEIPT % (b"7a", b"REJECTD", b"?"), (), "REJECTD"),
        (b"ID:7a STAT:DELIVRD text: id:8 stat:EXPIRED", (), None),
        (b"", [(MESSAGE_ID, b"7a\0"), (STATE, b"\2")], None),
        (b"", [(MESSAGE_ID, b"7a"), (STATE, b"\5")], "UNDELIV"),
        (
            RECEIPT % (b"122", b"UNDELIV", b"69"),
            [(MESSAGE_ID, b"7a\0"), (STATE, b"\2"), (0x1400, b"?")],
            None,
        ),
        (RECEIPT % (b"7a", b"DELIVRD", b"000"), [(0x1400, b"??")], None),
    ],
)
def test_a_receipt_is_read_from_its_parameters_or_its_text(deliver, text, tlvs, reason):
    assert deliver(text, esm_class=4, tlvs=tlvs) == receipt(reason)


def receipt(reason):
    """The receipt of a text that was delivered, or was not for a reason."""
    return Receipt("7a", reason is None, reason and f"SMPP: {reason}", NUMBER)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"DELIVERED", None),
        (b"Delivered", None),
        *((word, "UNDELIV") for word in (b"UNDELIVERABLE", b"UNDELIVERED", b"FAILED")),
        *((b"EXPIRED", "EXPIRED"), (b"REJECTED", "REJECTD"), (b"DELETED", "DELETED")),
    ],
)
@pytest.mark.parametrize("coding", [0, 3, 8])
def test_a_receipt_is_read_in_the_forms_of_real_peers(deliver, word, reason, coding):
    text = RECEIPT % (b"7a", word, b"000")
    text = text.decode().encode("utf-16-be")[:254] if coding == 8 else text
    assert deliver(text, esm_class=4, coding=coding) == receipt(reason)


FORGED = "id:7a stat:UNDELIV err:099"


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        (FORGED, {}, None),
        (f"\5\0\3\7\2\1{FORGED}", {"esm_class": 0x40}, Part("07", 2, 1)),
    ],
)
def test_without_the_mark_of_a_receipt_it_is_a_reply(deliver, text, options, part):
    assert deliver(text.encode(), **options) == IncomingText(NUMBER, FORGED, part=part)


@pytest.mark.parametrize(
    ("tlvs", "event"),
    [
        ([(MESSAGE_ID, b"7a\0"), (STATE, b"\2")], receipt(None)),
        ([(0x0424, b"STOP")], IncomingText(NUMBER, "STOP")),
    ],
)
def test_a_data_sm_is_answered_and_read_like_a_deliver_sm(peer, carrier, tlvs, event):
    carrier.check()
    body = b"\0" + b"\1\1" + NUMBER[1:].encode() + b"\0" + b"\1\00115005550006\0" + b"\0\0\0"
    body += b"".join(struct.pack(">HH", tag, len(value)) + value for tag, value in tlvs)
    peer.sessions[0].write(pdu(0x103, 0, 5, body))
    assert received(carrier, 1) == [event]
    carrier.received()
    wait_until(lambda: (0x103 | smpp_peer.RESPONSE, 0, 5, b"\0") in peer.pdus)


@pytest.mark.parametrize(
    ("msg_id_type", "answered", "told", "reference"),
    [
        (None, "001A2B", b"001A2B", "001A2B"),
        ("hex,dec", "001A2B", b"6699", "6699"),
        ("hex,dec", "1a2b", b"0006699", "6699"),
        ("hex,dec", "16", b"22", "22"),
        ("dec,hex", "6699", b"00001A2B", "6699"),
        ("dec,hex", "0006699", b"1a2b", "6699"),
        ("dec,hex", "no-number", b"no-number", "no-number"),
        ("hex,hex", "1A2B", b"001a2b", "6699"),
        ("dec,dec", "16", b"0016", "16"),
        ("dec,dec", "1a2b", b"1a2b", "1a2b"),
    ],
)
@pytest.mark.parametrize("is_parameter", [True, False])
def test_msg_id_type_says_in_what_digits_answers_and_receipts_name_a_text(
    peer, connect, msg_id_type, answered, told, reference, is_parameter
):
    peer.message_id = lambda count: answered
    carrier = connect(peer.url, **{"msg_id_type": msg_id_type} if msg_id_type else {})
    assert send(carrier) == reference
    text = RECEIPT % (b"1" if is_parameter else told, b"DELIVRD", b"000")
    tlvs = [(MESSAGE_ID, told + b"\0")] if is_parameter else ()
    peer.sessions[0].deliver(delivery(text, esm_class=4, tlvs=tlvs))
    assert received(carrier, 1) == [Receipt(reference, True, None, NUMBER)]


@pytest.mark.parametrize(
    ("text", "tlvs"),
    [
        *((RECEIPT % (b"7a", s, b"000"), ()) for s in (b"ENROUTE", b"ACCEPTD", b"UNKNOWN")),
        (b"", [(MESSAGE_ID, b"7a\0"), (STATE, b"\1")]),
    ],
)
def test_a_receipt_that_is_not_final_shows_that_the_peer_has_the_text(deliver, text, tlvs):
    assert deliver(text, esm_class=4, tlvs=tlvs) == Shown("7a")


@pytest.mark.parametrize(
    ("octets", "options"),
    [
        (RECEIPT % (b"7a", b"DELIVRD", b"000"), {"esm_class": 0x20}),
        (b"", {"esm_class": 4, "tlvs": [(MESSAGE_ID, b""), (STATE, b"")]}),
        (b"stat:DELIVRD", {"esm_class": 4}),
        (b"\xff\xfe", {"esm_class": 4}),
        # What no number wrote
        (b"", {}),
        (b"\xffSTOP", {"esm_class": 0x40}),
        *((b"STOP", {"source": source, "ton": 0}) for source in ("12345", "+0123", "1" * 16)),
        (b"STOP", {"source": "ACME", "ton": 5}),
        (FORGED.encode(), {"source": "12345"}),
    ],
)
def test_what_says_nothing_is_acknowledged_and_no_more(peer, carrier, octets, options):
    carrier.check()
    peer.sessions[0].deliver(delivery(octets, **options), 5)
    wait_until(lambda: answers_to(peer, 5) == [0])
    assert carrier.received() == []


def test_a_deliver_sm_that_cannot_be_read_is_refused_for_good(peer, carrier):
    carrier.check()
    for body in (b"", b"\0", b"\0\1\1no end", delivery(b"STOP")[:-1]):
        peer.sessions[0].deliver(body, 5)
    wait_until(lambda: answers_to(peer, 5) == [0x65] * 4)
    assert carrier.received() == []
    assert send(carrier)


def test_after_close_the_rest_is_handed_over(peer, carrier):
    carrier.check()
    peer.sessions[0].deliver(delivery(RECEIPT % (b"1", b"DELIVRD", b"000"), esm_class=4), 5)
    wait_until(lambda: answers_to(peer, 5))
    carrier.close()
    assert carrier.received() == [Receipt("1", True, None, NUMBER)]
    assert carrier.received() == []
