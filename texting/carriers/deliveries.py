"""Receipts and replies in the deliver_sm and data_sm of SMPP 3.4."""

import re
from contextlib import suppress

from texting.carriers import IncomingText, Receipt, Shown, opt_outs, pdus
from texting.carriers.alphabets import decode

# message_state (5.2.28) and its name in a receipt's text (appendix B). The other states are not
# final (ENROUTE, ACCEPTED) or say nothing about the phone (UNKNOWN).
STATES = {2: "DELIVRD", 3: "EXPIRED", 4: "DELETED", 5: "UNDELIV", 8: "REJECTD"}
NAMED = {state: state for state in STATES.values()} | {
    "DELIVERED": "DELIVRD",
    "UNDELIVERABLE": "UNDELIV",
    "UNDELIVERED": "UNDELIV",
    "FAILED": "UNDELIV",
    "REJECTED": "REJECTD",
}
BASES = {"hex": 16, "dec": 10}
"""The bases of message ids, by their names in `msg_id_type`."""


def report_in(
    delivery: pdus.Delivery, base: int | None = None, region: str | None = None
) -> Receipt | Shown | IncomingText | None:
    """Return the receipt, report or reply in a deliver_sm or data_sm, or None.

    `base` is the base of the message ids in receipts, if they are numbers.
    """
    number = delivery.source
    if delivery.ton == pdus.INTERNATIONAL:
        number = opt_outs.international(number)
    elif region and delivery.ton in (pdus.UNKNOWN, pdus.NATIONAL):
        number = opt_outs.national(number, region) or number
    message_type = delivery.esm_class & pdus.MESSAGE_TYPE
    if message_type == pdus.RECEIPT or pdus.RECEIPTED_MESSAGE_ID in delivery.optional:
        # Without NULs, UCS-2 reads like any other alphabet: what counts is ASCII
        plain = delivery.message.replace(b"\0", b"").decode("latin-1")
        return _receipt(plain, delivery.optional, base, number)
    if message_type:
        return None
    header, text = pdus.header_and_text(delivery)
    part, words = pdus.part(header, delivery.optional), decode(text, delivery.coding)
    return next(iter(opt_outs.replies(number, words or None, part=part)), None)


def _receipt(text, optional, base, number):
    """Return what the optional parameters or the text (appendix B) report, or None."""
    found = re.findall(r"\b(id|stat|err):\s*(\S+)", text, re.IGNORECASE)
    fields = {name.lower(): value for name, value in reversed(found)}  # the first of each counts
    told = optional.get(pdus.RECEIPTED_MESSAGE_ID, b""), fields.get("id", "").encode("latin-1")
    reference = as_number(next(filter(None, map(pdus.message_id, told)), None), base)
    state = optional.get(pdus.MESSAGE_STATE)
    state = STATES.get(state[-1]) if state else NAMED.get(fields.get("stat", "").upper())
    if reference is None:
        return None
    if state is None:
        return Shown(reference)
    digits = re.fullmatch(r"\+?([1-9]\d{6,14})", number, re.ASCII)
    number = f"+{digits[1]}" if digits else None
    if state == "DELIVRD":
        return Receipt(reference, True, number=number)
    error = re.fullmatch(r"0*([0-9A-Za-z]{1,8})", fields.get("err", "0"))
    more = f", error {error[0]}" if error and error[1] != "0" else ""
    return Receipt(reference, False, f"SMPP: {state}{more}", number)


def as_number(id: str | None, base: int | None) -> str | None:
    """Return an id in decimal if it is a number in this base, otherwise unchanged."""
    if base and re.fullmatch("[0-9A-Fa-f]+", id or ""):
        with suppress(ValueError):
            return str(int(id, base))
    return id
