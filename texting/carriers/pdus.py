"""Encode and decode the PDUs of SMPP 3.4 that sending texts needs.

Section numbers and field names are from the "Short Message Peer to Peer Protocol Specification
v3.4". The maintained library, smpplib, does not fit: it raises KeyError for a submit_sm_resp with
an optional parameter, which would lose an accepted text, raises for unknown optional parameters,
and silently cuts passwords.
"""

import re
import struct
import time
from typing import NamedTuple

from texting.carriers import Codes, Part

HEADER = struct.Struct(">4I")  # command_length, command_id, command_status, sequence_number
LONGEST_PDU = 64 * 1024  # octets; far more than any peer needs

RESPONSE = GENERIC_NACK = 0x80000000
BIND_TRANSMITTER, BIND_TRANSCEIVER, UNBIND, ENQUIRE_LINK = 0x02, 0x09, 0x06, 0x15
SUBMIT_SM, DELIVER_SM, ALERT_NOTIFICATION, DATA_SM = 0x04, 0x05, 0x102, 0x103

HAS_HEADER = 0x40  # esm_class (5.2.12): the text starts with a header (UDHI)
MESSAGE_TYPE, RECEIPT = 0x3C, 0x04
INTERNATIONAL, NATIONAL, NETWORK_SPECIFIC, ALPHANUMERIC = 1, 2, 3, 5  # type of number (5.2.5)
UNKNOWN, E164 = 0, 1  # numbering plan (5.2.6)
MESSAGE_PAYLOAD, RECEIPTED_MESSAGE_ID, MESSAGE_STATE = 0x0424, 0x001E, 0x0427  # tags (5.3.2)
SAR_REFERENCE, SAR_TOTAL, SAR_NUMBER = 0x020C, 0x020E, 0x020F
CONCATENATED = {0x00: 3, 0x08: 4}  # header elements and their lengths: reference, total, number
LONGEST_VALIDITY = 30 * 86_400  # seconds

# The meaning of each command_status (5.1.3, and codes of SMPP 5.0 that 3.4 peers also use).
# A status is permanent only if this text or this recipient is at fault. If every text would be
# refused, because of the sender or an option of the URL, it is about the account.
OK, UNKNOWN_COMMAND, TEMPORARY_ERROR, PERMANENT_ERROR = 0x00, 0x03, 0x64, 0x65
FOR_GOOD = {
    0x01: "the text is too long",
    0x0B: "the number is not valid",
    0x43: "parts of a text are not taken",
    0x104: "the alphabet is not taken",
}
TOO_FAST = {0x14: "the queue is full", 0x58: "too many texts"}
ACCOUNT = {
    0x05: "already bound",
    0x0A: "the sender is not valid",
    0x0D: "the bind failed",
    0x0E: "the password is wrong",
    0x0F: "the system_id is not known",
    0x15: "the service type is not valid",
    0x48: "the sender's type of number is not valid",
    0x49: "the sender's numbering plan is not valid",
    0x50: "the recipient's type of number is not valid",
    0x51: "the recipient's numbering plan is not valid",
    0x53: "the system_type is not valid",
    0x100: "the service type is not allowed",
    0x101: "the account may not send",
}
FOR_NOW = {
    0x04: "the bind is not one that sends",
    0x08: "an error of the carrier's system",
    0x45: "the text was not taken",
    0x62: "the validity period is not taken",
    0x64: "a passing error of the receiver",
    0xFF: "an unknown error",
}
REASONS = FOR_GOOD | TOO_FAST | ACCOUNT | FOR_NOW
CODES = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, no_route={0x0A})


def reason(status: int) -> str:
    """Return the meaning of a command_status in words for an operator."""
    return f"{REASONS.get(status, 'refused')} (command_status 0x{status:02X})"


def bind(system_id: str, password: str, system_type: str) -> bytes:
    """Return the body of a bind (4.1.1)."""
    words = b"".join(word.encode() + b"\0" for word in (system_id, password, system_type))
    return words + b"\x34\0\0\0"  # interface_version, addr_ton, addr_npi, address_range


def address(ton: int, npi: int, number: str) -> bytes:
    """Return the fields of an address: type of number, numbering plan, the number or name."""
    return bytes([ton, npi]) + number.encode() + b"\0"


def submit_sm(
    addresses: bytes, part: bytes, *, coding: int, has_header: bool, receipt: bool, valid_for: float
) -> bytes:
    """Return the body of a submit_sm (4.4.1); `addresses` are the sender's and the recipient's."""
    seconds = max(1, min(int(valid_for), LONGEST_VALIDITY))
    of_the_day = time.strftime("%H%M%S", time.gmtime(seconds))
    return (
        b"\0"  # service_type
        + addresses
        + bytes([HAS_HEADER if has_header else 0, 0, 0])  # esm_class, protocol_id, priority_flag
        + b"\0"  # schedule_delivery_time
        + f"0000{seconds // 86_400:02}{of_the_day}000R\0".encode()  # validity_period (7.1.1)
        # registered_delivery, replace_if_present_flag, data_coding, sm_default_msg_id, sm_length
        + bytes([receipt, 0, coding, 0, len(part)])
        + part
    )


def message_id(octets: bytes) -> str | None:
    """Return a message_id of up to 64 characters, or None if it is empty."""
    return octets.partition(b"\0")[0][:64].decode("latin-1") or None


ADDRESSES = (
    rb"[^\0]*\0"  # service_type
    rb"(.).([^\0]*)\0"  # source_addr_ton, source_addr_npi, source_addr
    rb"..[^\0]*\0"  # dest_addr_ton, dest_addr_npi, destination_addr
)
DELIVERIES = {  # both carry receipts and incoming texts, after these fields
    DELIVER_SM: re.compile(  # 4.6.1
        ADDRESSES + rb"(.).."  # esm_class, protocol_id, priority_flag
        rb"[^\0]*\0[^\0]*\0"  # schedule_delivery_time, validity_period
        rb"..(.).(.)",  # registered_delivery, replace_if_present_flag, data_coding, …, sm_length
        re.DOTALL,
    ),
    DATA_SM: re.compile(  # 4.7.1
        ADDRESSES + rb"(.).(.)()",  # esm_class, registered_delivery, data_coding; no sm_length
        re.DOTALL,
    ),
}
OPTIONAL = struct.Struct(">HH")  # parameter_tag, length


class Delivery(NamedTuple):
    """A deliver_sm or data_sm: a receipt or an incoming text."""

    ton: int
    source: str
    esm_class: int
    coding: int
    message: bytes
    optional: dict[int, bytes]  # by tag


def delivery(command: int, body: bytes) -> Delivery:
    """Parse the body of a deliver_sm or data_sm; raise ValueError if it is malformed."""
    fields = DELIVERIES[command].match(body)
    if not fields:
        raise ValueError("the PDU ends too soon")
    (ton,), source, (esm_class,), (coding,), length = fields.groups()
    end = fields.end() + int.from_bytes(length)
    if end > len(body):
        raise ValueError("the PDU ends too soon")
    optional = _optional(body[end:])
    message = body[fields.end() : end] or optional.get(MESSAGE_PAYLOAD, b"")
    return Delivery(ton, source.decode("latin-1"), esm_class, coding, message, optional)


def _optional(rest):
    """Return the optional parameters at the end of a body (5.3), by their tags."""
    optional = {}
    while len(rest) >= OPTIONAL.size:
        tag, length = OPTIONAL.unpack_from(rest)
        value, rest = rest[OPTIONAL.size :][:length], rest[OPTIONAL.size + length :]
        if len(value) == length:
            optional[tag] = value
    return optional


def header_and_text(delivery: Delivery) -> tuple[bytes, bytes]:
    """Return the user data header of a deliver_sm, which may be empty, and its text."""
    message = delivery.message
    end = 1 + message[0] if delivery.esm_class & HAS_HEADER and message else 0
    return message[1:end], message[end:]


def part(header: bytes, optional: dict[int, bytes]) -> Part | None:
    """Return which part of a longer text a deliver_sm carries; None for a whole text.

    Either the header says so (3GPP TS 23.040, 9.2.3.24.1 and 9.2.3.24.8) or optional parameters
    (SMPP 3.4, 5.3.2.22 to 5.3.2.24).
    """
    reference = optional.get(SAR_REFERENCE, b"")
    total, number = optional.get(SAR_TOTAL, b"")[-1:], optional.get(SAR_NUMBER, b"")[-1:]
    while len(header) > 2:
        element, length, value = header[0], header[1], header[2:]
        if CONCATENATED.get(element) == length <= len(value):
            own = value[:length]
            reference, total, number = own[:-2], own[-2:-1], own[-1:]
        header = value[length:]
    if not total or total[0] == 1:
        return None
    return Part(reference.hex(), total[0], int.from_bytes(number))
