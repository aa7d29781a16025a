"""Receipts and replies in the deliver_sm and data_sm of SMPP 3.4."""

import re

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

# The digits of message ids by `receipt_ids`: a pattern, the base, how format() writes them. The
# answers have the other ones.
DIGITS = {"hex": ("[0-9A-Fa-f]{1,64}", 16, "x"), "dec": ("[0-9]{1,64}", 10, "d")}
OTHER = {"hex": "dec", "dec": "hex"}


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
        reference = answered_id(reference, receipt_ids)
    else:
        reference = pdus.message_id(fields.get("id", "").encode("latin-1"))
        reference = _rewritten(reference, receipt_ids, receipt_ids)
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


def answered_id(reference: str | None, receipt_ids: str | None) -> str | None:
    """Return the id that an answer gave, in the digits that receipts have."""
    return _rewritten(reference, OTHER.get(receipt_ids), receipt_ids)


def _rewritten(reference, given, wanted):
    """Return an id in other digits, without zeros before it; any other id unchanged."""
    if given is None or reference is None or not re.fullmatch(DIGITS[given][0], reference):
        return reference
    return format(int(reference, DIGITS[given][1]), DIGITS[wanted][2])
