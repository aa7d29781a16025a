"""Receipts and replies in the deliver_sm and data_sm of SMPP 3.4."""

import re
from contextlib import suppress

from carriers import Receipt, Reply, opt_outs, pdus
from carriers.alphabets import decode

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
NOT_FINAL = ("ENROUTE", "ACCEPTD", "UNKNOWN")
RECEIPT_TEXT = re.compile(r"\s*id:\s*\S+\s.*?\bstat:\s*([A-Z]+)", re.IGNORECASE | re.DOTALL)

# By `receipt_ids`: the bases of message ids in receipts and in answers, and how format() writes
# those in receipts.
DIGITS = {"hex": (16, 10, "x"), "dec": (10, 16, "d")}


def read(
    delivery: pdus.Delivery, receipt_ids: str | None = None, region: str | None = None
) -> Receipt | Reply | None:
    """Return the receipt or reply in a deliver_sm or data_sm, or None."""
    number = delivery.source
    if delivery.ton == pdus.INTERNATIONAL:
        number = opt_outs.international(number)
    elif region and delivery.ton in (pdus.UNKNOWN, pdus.NATIONAL):
        number = opt_outs.national(number, region) or number
    message_type = delivery.esm_class & pdus.MESSAGE_TYPE
    # Without its NULs UCS-2 reads like any other alphabet: what counts is ASCII
    plain = delivery.message.replace(b"\0", b"").decode("latin-1")
    receipt = _receipt(plain, delivery.optional, receipt_ids, number)
    if message_type == pdus.RECEIPT or pdus.RECEIPTED_MESSAGE_ID in delivery.optional:
        return receipt
    looks_like_one = RECEIPT_TEXT.match(plain)
    if message_type or (looks_like_one and looks_like_one[1].upper() in NOT_FINAL):
        return None
    header, text = pdus.header_and_text(delivery)
    part, words = pdus.part(header, delivery.optional), decode(text, delivery.coding)
    receipt = receipt if looks_like_one and not part else None
    said = opt_outs.replies(number, words or None, part=part)
    return next((each._replace(receipt=receipt) for each in said), None)


def _receipt(text, optional, receipt_ids, number):
    """Return a Receipt from the optional parameters or from the text (appendix B), or None."""
    found = re.findall(r"\b(id|stat|err):\s*(\S+)", text, re.IGNORECASE)
    fields = {name.lower(): value for name, value in reversed(found)}  # the first of each counts
    reference = pdus.message_id(optional.get(pdus.RECEIPTED_MESSAGE_ID, b""))
    if reference:
        reference = in_digits(reference, receipt_ids)
    else:
        reference = pdus.message_id(fields.get("id", "").encode("latin-1"))
        reference = in_digits(reference, receipt_ids, of_receipt=True)
    state = optional.get(pdus.MESSAGE_STATE)
    state = STATES.get(state[-1]) if state else NAMED.get(fields.get("stat", "").upper())
    if reference is None or state is None:
        return None
    digits = re.fullmatch(r"\+?([1-9]\d{6,14})", number, re.ASCII)
    number = f"+{digits[1]}" if digits else None
    if state == "DELIVRD":
        return Receipt(reference, True, number=number)
    error = re.fullmatch(r"0*([0-9A-Za-z]{1,8})", fields.get("err", "0"))
    more = f", error {error[0]}" if error and error[1] != "0" else ""
    return Receipt(reference, False, f"SMPP: {state}{more}", number)


def in_digits(given: str | None, receipt_ids: str | None, of_receipt: bool = False) -> str | None:
    """Return an id from an answer, or from a receipt's text, in the digits of receipts.

    Leading zeros are dropped. An id that is not a number in its digits is unchanged.
    """
    if receipt_ids and re.fullmatch("[0-9A-Fa-f]+", given or ""):
        in_receipts, in_answers, written = DIGITS[receipt_ids]
        with suppress(ValueError):
            return format(int(given, in_receipts if of_receipt else in_answers), written)
    return given
