"""carriers/smpp.py: requests to an SMPP peer, its answers, its receipts and incoming texts."""

import json
import logging
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import carriers
import smpp_peer
from carrier_servers import self_signed
from carriers import CarrierError, LateAnswer, OptOut, Receipt, pdus, smpp, smpp_session
from phone import show
from running import ROOT, wait_until
from smpp_peer import BIND_TRANSCEIVER, BIND_TRANSMITTER, HANG_UP, SILENCE, SmppPeer, delivery, pdu

NUMBER = "+12125550123"
TEXT = "attack at dawn, 🚀 héllo"
SECRETS = ("2125550123", "5005550006", "attack", "user", "s3cret", "127.0.0.1", "localhost")
SUPPORT = ROOT / "tests" / "support"

THROTTLED, QUEUE_FULL, INVALID_NUMBER, SYSTEM_ERROR = 0x58, 0x14, 0x0B, 0x08
BIND_FAILED, INVALID_SENDER = 0x0D, 0x0A


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(smpp_session, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(smpp, "PAUSE", 0.05)


@pytest.fixture
def peer():
    server = SmppPeer()
    yield server
    server.close()


@pytest.fixture
def connect():
    """Connect to a URL with options, `connect(peer.url, binds=2)`; close everything at the end."""
    connected = []

    def begin(url, concurrency=8, timeout=20, **options):
        query = "&".join(f"{name}={value}" for name, value in options.items())
        connected.append(carriers.connect(f"{url}?{query}", concurrency, timeout))
        return connected[-1]

    yield begin
    for carrier in connected:
        carrier.close()


@pytest.fixture
def carrier(connect, peer):
    return connect(peer.url)


@pytest.fixture
def impatient(connect, peer):
    """A carrier that waits two seconds for an answer."""
    return connect(peer.url, timeout=2)


def send(carrier, text=TEXT, to=NUMBER, valid_for=259_200):
    return carrier.send(to, text, message_id="a message", valid_for=valid_for)


def refused(carrier, text=TEXT):
    """Send and return the CarrierError, which must be raised."""
    with pytest.raises(CarrierError) as caught:
        send(carrier, text)
    words = str(caught.value)
    assert words.isprintable()
    assert not [secret for secret in SECRETS if secret in words], words
    return caught.value


def kind(error):
    """Return the one meaning of an error."""
    flags = {
        "for good": error.permanent,
        "too fast": error.too_fast,
        "the account": error.account,
        "in doubt": error.in_doubt,
    }
    assert sum(flags.values()) <= 1
    return next((name for name, flag in flags.items() if flag), "for now")


def outcomes(carrier, count):
    """Send texts at once, a thread each; return references and errors."""

    def outcome(number):
        try:
            return send(carrier, f"text {number}")
        except CarrierError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(outcome, range(count)))


def received(carrier, count):
    """Wait for a number of receipts and opt-outs from the peer; return them."""
    words = []
    wait_until(lambda: words.extend(carrier.received()) or len(words) >= count)
    return words


# Requests


def test_a_text_goes_out_as_a_submit_sm_with_all_its_fields(peer, carrier):
    assert send(carrier, "héllo [€]\n") == "id-1"
    (part,) = peer.parts
    assert part._asdict() == {
        "source_ton": 1,
        "source_npi": 1,
        "source": "15005550006",
        "dest_ton": 1,
        "dest_npi": 1,
        "to": "12125550123",
        "esm_class": 0,
        "validity": "000003000000000R",
        "receipt": 1,
        "coding": 0,
        "octets": b"h\x05llo \x1b<\x1be\x1b>\n",
    }


@pytest.mark.parametrize(
    ("options", "coding", "octets"),
    [
        ({"alphabet": "gsm"}, 0, b"h\x05llo"),
        ({"alphabet": "latin1"}, 3, b"h\xe9llo"),
        ({"alphabet": "ucs2"}, 8, "héllo".encode("utf-16-be")),
    ],
)
def test_the_alphabet_is_the_one_asked_for(peer, connect, options, coding, octets):
    send(connect(peer.url, **options), "héllo")
    assert [(part.coding, part.octets) for part in peer.parts] == [(coding, octets)]


@pytest.mark.parametrize(
    ("seconds", "validity"),
    [
        (1, "000000000001000R"),
        (0.4, "000000000001000R"),
        (86_399, "000000235959000R"),
        (3 * 86_400, "000003000000000R"),
        (400 * 86_400, "000030000000000R"),
    ],
)
def test_a_text_has_a_validity_period(peer, carrier, seconds, validity):
    send(carrier, valid_for=seconds)
    assert peer.parts[0].validity == validity


@pytest.mark.parametrize(
    ("sender", "fields"),
    [
        ("15005550006", (1, 1, "15005550006")),
        ("+15005550006", (1, 1, "15005550006")),
        ("%2B15005550006", (1, 1, "15005550006")),
        ("15005550006/{to}", (1, 1, "15005550006")),
        ("12345", (3, 0, "12345")),
        ("ACME", (5, 0, "ACME")),
        ("ACME%20Shop", (5, 0, "ACME Shop")),
        ("12345?source_ton=0&source_npi=9", (0, 9, "12345")),
    ],
)
def test_a_sender_is_a_number_a_short_code_or_a_name(peer, connect, sender, fields):
    path, _, query = sender.partition("?")
    options = dict(option.split("=") for option in query.split("&") if option)
    send(connect(peer.url.replace("15005550006", path), **options))
    assert peer.parts[0][:3] == fields


def test_the_recipients_type_of_number_can_be_set(peer, connect):
    send(connect(peer.url, dest_ton=2, dest_npi=8))
    assert peer.parts[0][3:6] == (2, 8, "12125550123")


def test_a_long_text_goes_in_numbered_parts_and_asks_for_one_receipt(peer, carrier):
    assert send(carrier, "x" * 153 + "y" * 153 + "z") == "id-3"
    assert [part.esm_class for part in peer.parts] == [0x40] * 3
    assert [part.receipt for part in peer.parts] == [0, 0, 1]
    headers = [part.octets[:6] for part in peer.parts]
    assert {header[:4] for header in headers} == {headers[0][:4]}
    assert [header[4:] for header in headers] == [b"\3\1", b"\3\2", b"\3\3"]
    assert "".join(show(part.octets[6:], 0) for part in peer.parts) == "x" * 153 + "y" * 153 + "z"


def test_a_text_of_too_many_parts_is_refused_for_good_before_it_is_sent(peer, carrier):
    assert kind(refused(carrier, "я" * 67 * 256)) == "for good"
    assert not peer.logins


# One bind


def test_all_texts_of_all_threads_go_over_one_bind_within_the_window(peer, connect):
    peer.delay = 0.02
    carrier = connect(peer.url, concurrency=4)
    assert not peer.logins, "nothing is sent before it is needed"
    assert {*outcomes(carrier, 40)} == {f"id-{n}" for n in range(1, 41)}
    carrier.close()
    assert peer.logins == [(BIND_TRANSCEIVER, "user", "s3cret", "", 0x34)]
    assert peer.most == 4
    assert peer.unbinds == 1


def test_answers_in_another_order_find_their_texts(peer, connect):
    """The peer answers after all have arrived, the last one first."""
    waiting, all_came = [], threading.Event()

    def answer(part):
        waiting.append(part)
        if len(waiting) == 8:
            all_came.set()
        all_came.wait(60)
        time.sleep(0.01 * (8 - waiting.index(part)))
        return 0

    peer.answer, peer.delay = answer, 0.01
    references = outcomes(connect(peer.url), 8)
    for number, reference in enumerate(references):
        assert peer.parts[int(reference.removeprefix("id-")) - 1].octets == b"text %d" % number


def test_several_binds_share_the_texts(peer, connect):
    peer.delay = 0.5
    carrier = connect(peer.url, binds=3)
    send(carrier)
    wait_until(lambda: len(peer.bound) == 3)
    outcomes(carrier, 8)
    assert len({session for session in peer.bound if session.parts}) == 3
    carrier.close()
    assert peer.unbinds == 3


def test_a_peer_that_allows_fewer_binds_gets_all_texts_over_those(peer, connect):
    peer.most_binds, peer.delay = 2, 0.02
    carrier = connect(peer.url, binds=3)
    assert all(isinstance(outcome, str) for outcome in outcomes(carrier, 8) + outcomes(carrier, 8))


def test_a_transmitter_asks_for_no_receipt_and_does_not_listen(peer, connect):
    carrier = connect(peer.url, bind="transmitter", system_type="VMA")
    assert carrier.received() == []
    send(carrier)
    assert peer.logins == [(BIND_TRANSMITTER, "user", "s3cret", "VMA", 0x34)]
    assert peer.parts[0].receipt == 0
    assert carrier.received() == []


def test_a_long_password_is_sent_whole(peer, connect):
    """SMPP 3.4 limits it to 8 characters; many carriers give out longer ones."""
    password = "0123456789abcdef/@:"
    send(connect(peer.url.replace("s3cret", password.replace("/", "%2F"))))
    assert peer.logins[0].password == password


def test_a_peer_that_does_not_answer_unbind_is_left_all_the_same(peer, carrier, monkeypatch):
    monkeypatch.setattr(smpp_session, "UNBIND_TIMEOUT", 0.2)
    peer.accepts = False
    send(carrier)
    carrier.close()
    assert peer.unbinds == 1
    wait_until(lambda: not peer.bound)


def test_a_carrier_that_was_never_used_is_closed_at_once(peer, connect):
    connect(peer.url).close()
    assert not peer.sessions


# Answers


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


def test_a_peer_that_does_not_answer_the_bind_is_for_now(peer, impatient):
    peer.bind_status = SILENCE
    assert kind(refused(impatient)) == "for now"


# Long texts of which only some parts are taken


def test_what_is_refused_with_the_first_part_is_refused_before_more_is_sent(peer, carrier):
    peer.answer = lambda part: THROTTLED
    assert kind(refused(carrier, "x" * 1000)) == "too fast"
    assert len(peer.parts) == 1


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


def test_too_fast_between_parts_is_not_waited_for_for_ever(peer, impatient):
    peer.answer = lambda part: THROTTLED if part.octets[5] == 2 else 0
    assert kind(refused(impatient, "x" * 400)) == "in doubt"


# Faults


def test_a_peer_that_enquires_and_never_answers_does_not_hold_a_send_up(peer, impatient):
    send(impatient)
    peer.answer = lambda part: SILENCE
    peer.enquire()
    began = time.monotonic()
    assert {kind(outcome) for outcome in outcomes(impatient, 8)} == {"in doubt"}
    assert time.monotonic() - began < 10
    assert (smpp_peer.ENQUIRE_LINK | smpp_peer.RESPONSE, 0, 77, b"") in peer.pdus
    peer.answer = lambda part: 0
    assert send(impatient)
    assert len(peer.logins) == 1, "the connection is alive"


def test_an_answer_after_six_seconds_is_a_yes_to_one_copy(peer, carrier):
    peer.delay = 6
    assert send(carrier) == "id-1"
    assert len(peer.parts) == 1


def test_an_answer_that_comes_too_late_is_not_taken_for_another_texts(peer, impatient):
    peer.delay = 3
    assert kind(refused(impatient)) == "in doubt"
    peer.delay = 0
    wait_until(lambda: not peer.waiting)
    assert send(impatient) == "id-2"


def test_a_yes_that_comes_after_the_timeout_is_handed_over_with_its_message(peer, impatient):
    peer.delay = 3
    peer.enquire()
    assert kind(refused(impatient, "x" * 160)) == "in doubt"
    assert received(impatient, 1) == [LateAnswer("a message", "id-1")]
    assert impatient.received() == []


def test_a_transmitter_hands_late_answers_over_too(peer, connect):
    peer.delay = 2
    peer.enquire()
    carrier = connect(peer.url, timeout=1, bind="transmitter")
    assert kind(refused(carrier)) == "in doubt"
    assert received(carrier, 1) == [LateAnswer("a message", "id-1")]


@pytest.mark.parametrize(
    ("text", "status"), [(TEXT, INVALID_NUMBER), (TEXT, SYSTEM_ERROR), ("x" * 161, 0)]
)
def test_a_late_no_or_a_late_yes_to_a_first_part_says_nothing_of_the_text(
    peer, connect, text, status
):
    peer.answer, peer.delay = (lambda part: status), 2
    peer.enquire()
    carrier = connect(peer.url, timeout=1)
    assert kind(refused(carrier, text)) == "in doubt"
    wait_until(lambda: not peer.waiting)
    carrier.check()
    assert carrier.received() == []


@pytest.mark.parametrize("sequence", [0, 999_999, 0xFFFFFFFF])
def test_an_answer_with_a_wrong_sequence_number_is_none(peer, impatient, sequence):
    def answer(part):
        peer.sessions[0].write(pdu(SUBMITTED, 0, sequence, b"wrong\0"))
        return SILENCE

    peer.answer = answer
    assert kind(refused(impatient)) == "in doubt"
    peer.answer = lambda part: 0
    assert send(impatient) == "id-2"


SUBMITTED = smpp_peer.SUBMIT_SM | smpp_peer.RESPONSE


def test_another_commands_answer_with_the_same_number_is_none(peer, impatient):
    def answer(part):
        sequence = next(p[2] for p in peer.pdus if p[0] == smpp_peer.SUBMIT_SM)
        peer.sessions[0].write(pdu(smpp_peer.ENQUIRE_LINK | smpp_peer.RESPONSE, 0, sequence))
        return SILENCE

    peer.answer = answer
    assert kind(refused(impatient)) == "in doubt"


@pytest.mark.parametrize(
    ("status", "meaning"), [(0x03, "for now"), (0, "for now"), (0x58, "too fast")]
)
def test_a_generic_nack_is_a_no(peer, carrier, status, meaning):
    def answer(part):
        sequence = next(p[2] for p in peer.pdus if p[0] == smpp_peer.SUBMIT_SM)
        peer.sessions[0].write(pdu(smpp_peer.GENERIC_NACK, status, sequence))
        return SILENCE

    peer.answer = answer
    assert kind(refused(carrier)) == meaning


GARBAGE = {
    "shorter than a header": struct.pack(">4I", 15, 4, 0, 1),
    "of no length": bytes(16),
    "longer than any": struct.pack(">4I", 0xFFFFFFFF, SUBMITTED, 0, 1),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "noise": bytes(range(255, 0, -1)),
}


@pytest.mark.parametrize("octets", [*GARBAGE.values()], ids=[*GARBAGE])
def test_after_garbage_the_text_is_in_doubt_and_the_next_goes_over_a_new_bind(
    peer, carrier, octets
):
    send(carrier)

    def answer(part):
        peer.sessions[0].write(octets)
        return SILENCE

    peer.answer = answer
    assert kind(refused(carrier)) == "in doubt"
    peer.answer = lambda part: 0
    assert send(carrier)
    assert len(peer.logins) == 2


def test_what_is_no_command_of_ours_is_refused_and_disturbs_nothing(peer, carrier):
    send(carrier)
    for command in (0x0B, 0x21, 0x07, 0x7777, SUBMITTED, 0x80007777, 0x102):
        peer.sessions[0].write(pdu(command, 0, 55, b"junk"))
    send(carrier)
    nack = (smpp_peer.GENERIC_NACK, 0x03, 55, b"")
    wait_until(lambda: [p for p in peer.pdus if p[2] == 55] == [nack] * 4)
    assert len(peer.logins) == 1


def test_what_was_under_way_when_the_connection_was_lost_is_in_doubt(peer, carrier):
    peer.answer, peer.delay = (lambda part: HANG_UP), 0.2
    assert {kind(outcome) for outcome in outcomes(carrier, 8)} == {"in doubt"}
    peer.answer, peer.delay = (lambda part: 0), 0
    assert send(carrier)
    assert len(peer.parts) == 9
    assert len(peer.logins) == 2


def test_a_peer_that_hangs_up_between_two_texts_is_bound_to_again(peer, carrier):
    send(carrier)
    peer.sessions[0].hang_up()

    def bound_again():
        with suppress(CarrierError):
            carrier.check()
        return len(peer.logins) == 2

    wait_until(bound_again)
    assert send(carrier)
    assert len(peer.logins) == 2


def test_a_peer_that_unbinds_is_answered_and_bound_to_again(peer, carrier):
    send(carrier)
    peer.sessions[0].write(pdu(smpp_peer.UNBIND, 0, 9))
    wait_until(lambda: not peer.bound)
    assert (smpp_peer.UNBIND | smpp_peer.RESPONSE, 0, 9, b"") in peer.pdus
    assert send(carrier)
    assert len(peer.logins) == 2


def test_a_peer_that_unbinds_may_answer_what_is_under_way(peer, carrier):
    peer.delay = 0.3
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(outcomes, carrier, 4)
        wait_until(lambda: len(peer.parts) == 4)
        peer.sessions[0].write(pdu(smpp_peer.UNBIND, 0, 9))
        assert {*sending.result(30)} == {"id-1", "id-2", "id-3", "id-4"}
    wait_until(lambda: (smpp_peer.UNBIND | smpp_peer.RESPONSE, 0, 9, b"") in peer.pdus)
    assert send(carrier)
    assert len(peer.logins) == 2


def test_a_peer_that_unbinds_and_answers_nothing_is_not_waited_for(peer, carrier, monkeypatch):
    monkeypatch.setattr(smpp_session, "UNBIND_TIMEOUT", 0.2)
    peer.answer = lambda part: SILENCE
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(outcomes, carrier, 4)
        wait_until(lambda: len(peer.parts) == 4)
        peer.sessions[0].write(pdu(smpp_peer.UNBIND, 0, 9))
        assert {kind(outcome) for outcome in sending.result(30)} == {"in doubt"}
    peer.answer = lambda part: 0
    assert send(carrier)


def test_a_half_open_connection_is_given_up(peer, impatient):
    """The peer's machine is gone: the connection neither answers nor ends."""
    send(impatient)
    peer.answer = lambda part: SILENCE
    assert {kind(outcome) for outcome in outcomes(impatient, 8)} == {"in doubt"}
    peer.answer = lambda part: 0
    assert send(impatient)
    assert len(peer.logins) == 2


def test_an_idle_connection_is_probed_and_given_up_without_an_answer(peer, impatient, monkeypatch):
    monkeypatch.setattr(smpp_session, "IDLE", 0.05)
    send(impatient)
    wait_until(lambda: [p[0] for p in peer.pdus].count(smpp_peer.ENQUIRE_LINK) > 3)
    assert len(peer.bound) == 1
    peer.enquiries = False
    wait_until(lambda: not peer.bound)
    peer.enquiries = True
    assert send(impatient)


def test_check_asks_over_the_bind(peer, impatient):
    impatient.check()
    impatient.check()
    assert len(peer.logins) == 1
    assert not peer.parts
    peer.enquiries = False
    with pytest.raises(CarrierError):
        impatient.check()


@contextmanager
def tls_peer(folder):
    """A peer over TLS with a self-signed certificate, and the certificate."""
    context, certificate = self_signed(folder)
    server = SmppPeer(context)
    try:
        yield server, certificate
    finally:
        server.close()


def test_smpps_trusts_only_what_is_vouched_for(tmp_path, monkeypatch, connect):
    with tls_peer(tmp_path) as (server, certificate):
        error = refused(connect(server.url))
        assert kind(error) == "for now"
        assert "unknown authority" in str(error)
        assert not server.logins, "no password for a stranger"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert kind(refused(connect(server.url.replace("localhost", "127.0.0.1")))) == "for now"
        assert not server.logins
        carrier = connect(server.url)
        server.delay = 0.01
        assert {*outcomes(carrier, 40)} == {f"id-{n}" for n in range(1, 41)}
        carrier.close()
        assert len(server.logins) == server.unbinds == 1


def test_smpps_to_a_peer_without_tls_is_for_now_and_sends_no_password(peer, connect, monkeypatch):
    monkeypatch.setattr(smpp_session, "CONNECT_TIMEOUT", 1)
    assert kind(refused(connect(peer.url.replace("smpp:", "smpps:")))) == "for now"
    assert not peer.logins


# Receipts


RECEIPT = (
    b"id:%s sub:001 dlvrd:001 submit date:2611211200 done date:2611211201 stat:%s err:%s text:x"
)
MESSAGE_ID, STATE = 0x001E, 0x0427


@pytest.mark.parametrize(
    ("text", "tlvs", "receipt"),
    [
        (RECEIPT % (b"7a", b"DELIVRD", b"000"), (), Receipt("7a", True, None, NUMBER)),
        (
            RECEIPT % (b"7a", b"UNDELIV", b"001"),
            (),
            Receipt("7a", False, "SMPP: UNDELIV, error 001", NUMBER),
        ),
        (RECEIPT % (b"7a", b"EXPIRED", b"000"), (), Receipt("7a", False, "SMPP: EXPIRED", NUMBER)),
        (RECEIPT % (b"7a", b"REJECTD", b"?"), (), Receipt("7a", False, "SMPP: REJECTD", NUMBER)),
        (b"ID:7a STAT:DELIVRD text: id:8 stat:EXPIRED", (), Receipt("7a", True, None, NUMBER)),
        (b"", [(MESSAGE_ID, b"7a\0"), (STATE, b"\2")], Receipt("7a", True, None, NUMBER)),
        (b"", [(MESSAGE_ID, b"7a"), (STATE, b"\5")], Receipt("7a", False, "SMPP: UNDELIV", NUMBER)),
        (
            RECEIPT % (b"122", b"UNDELIV", b"69"),
            [(MESSAGE_ID, b"7a\0"), (STATE, b"\2"), (0x1400, b"?")],
            Receipt("7a", True, None, NUMBER),
        ),
        (
            RECEIPT % (b"7a", b"DELIVRD", b"000"),
            [(0x1400, b"??")],
            Receipt("7a", True, None, NUMBER),
        ),
    ],
)
def test_a_receipt_is_read_from_its_parameters_or_its_text(peer, carrier, text, tlvs, receipt):
    carrier.check()
    peer.sessions[0].deliver(delivery(text, esm_class=4, tlvs=tlvs))
    assert received(carrier, 1) == [receipt]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"DELIVERED", None),
        (b"Delivered", None),
        (b"UNDELIVERABLE", "SMPP: UNDELIV"),
        (b"UNDELIVERED", "SMPP: UNDELIV"),
        (b"FAILED", "SMPP: UNDELIV"),
        (b"EXPIRED", "SMPP: EXPIRED"),
        (b"REJECTED", "SMPP: REJECTD"),
        (b"DELETED", "SMPP: DELETED"),
    ],
)
@pytest.mark.parametrize("esm_class", [0, 4])
@pytest.mark.parametrize("coding", [0, 3, 8])
def test_a_receipt_is_read_in_the_forms_of_real_peers(
    peer, carrier, word, reason, esm_class, coding
):
    text = RECEIPT % (b"7a", word, b"000")
    text = text.decode().encode("utf-16-be")[:254] if coding == 8 else text
    carrier.check()
    peer.sessions[0].deliver(delivery(text, esm_class=esm_class, coding=coding))
    assert received(carrier, 1) == [Receipt("7a", reason is None, reason, NUMBER)]


@pytest.mark.parametrize(
    ("tlvs", "event"),
    [
        ([(MESSAGE_ID, b"7a\0"), (STATE, b"\2")], Receipt("7a", True, None, NUMBER)),
        ([(0x0424, b"STOP")], OptOut(NUMBER, True, "reply")),
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
    ("receipt_ids", "answered", "text", "tlvs"),
    [
        ("dec", "001A2B", b"6699", ()),
        ("dec", "1a2b", b"0006699", ()),
        ("dec", "16", b"22", ()),
        ("dec", "1A2B", b"6699", [(MESSAGE_ID, b"1a2b\0")]),
        ("hex", "6699", b"00001A2B", ()),
        ("hex", "0006699", b"1a2b", ()),
        ("hex", "no-number", b"no-number", ()),
    ],
)
def test_receipt_ids_says_in_what_digits_receipts_name_a_text(
    peer, connect, receipt_ids, answered, text, tlvs
):
    peer.message_id = lambda count: answered
    carrier = connect(peer.url, receipt_ids=receipt_ids)
    reference = send(carrier)
    text = RECEIPT % (text, b"DELIVRD", b"000")
    peer.sessions[0].deliver(delivery(text, esm_class=4, tlvs=tlvs))
    assert received(carrier, 1) == [Receipt(reference, True, None, NUMBER)]


@pytest.mark.parametrize(
    ("text", "esm_class", "tlvs"),
    [
        (RECEIPT % (b"7a", b"ENROUTE", b"000"), 4, ()),
        (RECEIPT % (b"7a", b"ACCEPTD", b"000"), 4, ()),
        (RECEIPT % (b"7a", b"UNKNOWN", b"000"), 4, ()),
        (RECEIPT % (b"7a", b"DELIVRD", b"000"), 0x20, ()),
        (b"", 4, [(MESSAGE_ID, b"7a\0"), (STATE, b"\1")]),
        (b"stat:DELIVRD", 4, ()),
        (b"\xff\xfe", 4, ()),
        (b"", 4, [(MESSAGE_ID, b""), (STATE, b"")]),
        (b"", 0, ()),
        (RECEIPT % (b"7a", b"ENROUTE", b"000"), 0, ()),
        (b"my id: 7a stat:DELIVRD", 0, ()),
    ],
)
def test_what_is_not_the_last_word_is_acknowledged_and_no_more(
    peer, carrier, text, esm_class, tlvs
):
    carrier.check()
    peer.sessions[0].deliver(delivery(text, esm_class=esm_class, tlvs=tlvs), 5)
    wait_until(lambda: (smpp_peer.DELIVER_SM | smpp_peer.RESPONSE, 0, 5, b"\0") in peer.pdus)
    assert carrier.received() == []


def answers_to(peer, sequence):
    return [p[1] for p in peer.pdus if p[0] == DELIVERED and p[2] == sequence]


DELIVERED = smpp_peer.DELIVER_SM | smpp_peer.RESPONSE


def test_the_first_look_for_receipts_binds_and_does_not_wait(peer, connect):
    carrier = connect(peer.url)
    assert carrier.received() == []
    wait_until(lambda: peer.bound)
    peer.sessions[0].deliver(delivery(RECEIPT % (b"1", b"DELIVRD", b"000"), esm_class=4))
    assert received(carrier, 1) == [Receipt("1", True, None, NUMBER)]


def test_to_listen_at_a_peer_that_refuses_the_bind_is_not_tried_without_end(peer, connect):
    peer.bind_status = 0x0E
    carrier = connect(peer.url)
    for _ in range(50):
        assert carrier.received() == []
        time.sleep(0.01)
    assert len(peer.logins) == 1
    carrier.close()


def test_a_deliver_sm_that_cannot_be_read_is_refused_for_good(peer, carrier):
    carrier.check()
    for body in (b"", b"\0", b"\0\1\1no end", delivery(b"STOP")[:-2]):
        peer.sessions[0].deliver(body, 5)
    wait_until(lambda: answers_to(peer, 5) == [0x65] * 4)
    assert carrier.received() == []
    assert send(carrier)


def test_more_than_can_be_held_stays_with_the_peer(peer, carrier, monkeypatch):
    monkeypatch.setattr(smpp, "MOST_HELD", 2)
    carrier.check()
    for sequence in range(1, 5):
        receipt = delivery(RECEIPT % (b"%d" % sequence, b"DELIVRD", b"000"), esm_class=4)
        peer.sessions[0].deliver(receipt, sequence)
    wait_until(lambda: answers_to(peer, 4))
    assert [answers_to(peer, n) for n in range(1, 5)] == [[0], [0], [0x64], [0x64]]
    assert [word.reference for word in carrier.received()] == ["1", "2"]


def test_after_close_the_rest_is_handed_over(peer, carrier):
    carrier.check()
    peer.sessions[0].deliver(delivery(RECEIPT % (b"1", b"DELIVRD", b"000"), esm_class=4), 5)
    wait_until(lambda: answers_to(peer, 5))
    carrier.close()
    assert carrier.received() == [Receipt("1", True, None, NUMBER)]
    assert carrier.received() == []


def test_ten_thousand_receipts_are_returned_once_each(peer, carrier):
    carrier.check()
    for number in range(10_000):
        receipt = delivery(RECEIPT % (b"%d" % number, b"DELIVRD", b"000"), esm_class=4)
        peer.sessions[0].deliver(receipt, number)
    words = received(carrier, 10_000)
    assert [word.reference for word in words] == [str(number) for number in range(10_000)]


# Incoming texts


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


# URLs


@pytest.mark.parametrize(
    "url",
    [
        "smpp://user:s3cret@127.0.0.1/15005550006",
        "smpps://user:s3cret@127.0.0.1/15005550006/{to}",
        "SMPP://user:s3cret@127.0.0.1:2775/12345?binds=2&bind=transmitter&alphabet=latin1",
        "smpp://us%40er:s3%2F?@127.0.0.1/ACME".replace("?", "%3F"),
        "smpp://user:s3/c@r:et@[::1]:2775/ACME",
    ],
)
def test_a_url_is_taken(connect, url):
    carrier = carriers.connect(url)
    assert carrier.name == url.partition(":")[0].lower()
    carrier.close()


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"smpp://{rest}"
            for rest in (
                "",
                "127.0.0.1/15005550006",
                "user@127.0.0.1/15005550006",
                "user:@127.0.0.1/15005550006",
                ":s3cret@127.0.0.1/15005550006",
                "user:s3cret@/15005550006",
                "user:s3cret@127.0.0.1",
                "user:s3cret@127.0.0.1/",
                "user:s3cret@127.0.0.1/{to}",
                "user:s3cret@127.0.0.1/12/3",
                "user:s3cret@127.0.0.1/ACME-Corporation",
                "user:s3cret@127.0.0.1/Jürgen",
                "user:s3cret@127.0.0.1:0/15005550006",
                "user:s3cret@127.0.0.1:99999/15005550006",
                "user:s3cret@127.0.0.1:port/15005550006",
                "user:s3cret@[::1/15005550006",
                "user:s3cr%00et@127.0.0.1/15005550006",
                "user:s3cr%C3%A9t@127.0.0.1/15005550006",
                f"user:{'s3cret' * 11}@127.0.0.1/15005550006",
            )
        ),
        *(
            f"smpp://user:s3cret@127.0.0.1/15005550006?{option}"
            for option in (
                "s3cret=1",
                "binds=0",
                "binds=101",
                "binds=two",
                "binds=",
                "bind=receiver",
                "source_ton=256",
                "dest_npi=-1",
                "alphabet=utf8",
                "system_type=%00",
                "receipt_ids=octal",
                "receipt_ids=",
                "region=XX",
                "region=us",
            )
        ),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_in_one_line_without_credentials(url):
    with pytest.raises(ValueError, match=r"\S") as caught:
        carriers.connect(url)
    words = str(caught.value)
    assert words.isprintable()
    assert len(words) < 200
    assert not [secret for secret in SECRETS[:-3] if secret in words and secret != "user"], words


def test_nothing_of_a_text_gets_into_logs_or_output(peer, impatient, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    send(impatient)
    peer.answer = lambda part: HANG_UP
    refused(impatient)
    impatient.close()
    output = "".join([caplog.text, *capfd.readouterr()])
    assert not [secret for secret in SECRETS[:5] if secret in output], output


# Foreign peers


class ForeignPeer:
    """A peer in its own process, which writes what it receives as lines of JSON."""

    def __init__(self, words, **environ):
        self.popen = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | environ,
        )
        port = next(self.lines())
        self.url = f"smpp://user:secret@127.0.0.1:{port}/15005550006"

    def lines(self):
        for line in self.popen.stdout:
            with suppress(ValueError):  # a library's own words
                yield json.loads(line)

    def parts(self, count):
        """Return the next parts that the peer received."""
        found = (line for line in self.lines() if isinstance(line, dict) and "to" in line)
        return [next(found) for _ in range(count)]

    def close(self):
        self.popen.stdin.close()
        self.popen.terminate()
        self.popen.stdout.close()
        self.popen.wait(60)


@pytest.fixture(params=["npm smpp", "smpp.twisted3", "Net::SMPP"])
def foreign_peer(request):
    if request.param == "npm smpp":
        modules = request.getfixturevalue("npm_package")("smpp", "0.5.1")
        peer = ForeignPeer(["node", SUPPORT / "smpp_npm.js"], NODE_PATH=str(modules))
    elif request.param == "smpp.twisted3":
        peer = ForeignPeer([sys.executable, SUPPORT / "smpp_twisted.py"])
    else:
        perl = shutil.which("perl")
        if not perl or subprocess.run([perl, "-MNet::SMPP", "-e", ""], stderr=-3).returncode:
            pytest.skip("there is no Perl with Net::SMPP (Debian: libnet-smpp-perl)")
        peer = ForeignPeer([perl, SUPPORT / "smpp_perl.pl"])
    yield peer
    peer.close()


def test_a_foreign_peer_gets_each_text_whole(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    texts = {
        "hello": 1,
        "  héllo\n[€] ^{}\\~| `not§ ": 1,
        "  héllo\n[€] ^{}\\~| not§ ": 1,
        "Привет, 🚀": 1,
        "x" * 160: 1,
        "x" * 152 + "€" * 4 + "y" * 1400: 11,
        "й" * 66 + "🚀" * 3: 2,
        "日本語" * 200: 9,
    }
    references = [send(carrier, text) for text in texts]
    assert len({*references}) == len(texts)
    for text, count in texts.items():
        parts = foreign_peer.parts(count)
        assert [part["part"] for part in parts] == [[n, count] for n in range(1, count + 1)]
        assert {(part["to"], part["from"]) for part in parts} == {("12125550123", "15005550006")}
        seen = [
            part.get("text") or show(bytes.fromhex(part["octets"]), part["coding"])
            for part in parts
        ]
        assert "".join(seen) == text


def test_a_foreign_peers_receipts_and_opt_outs_are_read(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    reference = send(carrier, "stop me")
    words = received(carrier, 2)
    (receipt,) = (word for word in words if isinstance(word, Receipt))
    assert receipt[:3] == (reference, True, None)
    assert OptOut(NUMBER, True, "reply") in words


def test_a_foreign_peer_refuses_a_wrong_password(foreign_peer, connect):
    carrier = connect(foreign_peer.url.replace("secret", "s3cret"))
    error = refused(carrier)
    assert kind(error) == "the account"
    assert "password" in str(error)
