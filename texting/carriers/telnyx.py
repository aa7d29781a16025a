"""Telnyx's Messaging API, version 2.

Telnyx keeps the key of a request for a day: the same request with the same key sends no second
text, and gets the first answer again.
"""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from texting.carriers import (
    Callback,
    CarrierError,
    Codes,
    Listed,
    NotGenuine,
    Outgoing,
    Report,
    opt_outs,
    urls,
)
from texting.carriers.alphabets import SEPTETS
from texting.carriers.http import (
    HttpCarrier,
    Response,
    as_object,
    balance,
    check_age,
    instant,
    named,
    reference,
)

# https://developers.telnyx.com/docs/messaging/messages/error-codes
FOR_GOOD = {
    40300: "the recipient has opted out",
    10002: "the number is not valid",
    10015: "the request is not valid",
    10016: "the number is not in E.164 format",
    40001: "the number cannot receive texts",
    40009: "the text is not valid",
    40012: "the number is not valid",
    40302: "the text is too long",
    40309: "the profile does not allow this country",
    40310: "the number is not valid",
    40328: "the text is too long",
}
ACCOUNT = {
    10005: "nothing is at this address",
    10009: "the key is wrong",
    10010: "the key may not send",
    10039: "the account reaches only verified numbers",
    20002: "the key was revoked",
    20014: "the account has to be verified",
    20016: "the account has to be verified",
    20100: "the account has no credit",
    40010: "the sender is not registered (10DLC)",
    40013: "the sender is not valid",
    40100: "the sender cannot send texts",
    40305: "the sender is not one of the profile",
    40312: "the profile is switched off",
    40321: "the profile has no number to send from",
    40329: "the toll-free sender is not verified",
}
TOO_FAST = {429: "too many requests", 10011: "too many requests", 40318: "its queue is full"}
FOR_NOW = {
    40002: "filtered as unwanted",
    40006: "the recipient's network does not answer",
    40011: "too fast for the recipient's network",
}
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | FOR_NOW
UNKNOWN = {10007, 10008}  # it failed, or took too long: Telnyx itself does not know
UNCLEAR = {409, 422}  # HTTP: the key is in use, or was used with another request

OLDEST_CALLBACK = 300  # seconds; older callbacks are refused by Telnyx's own library, too
PAGE = 100  # opt-outs


class Telnyx(HttpCarrier):
    """Send through `telnyx://API_KEY@FROM?public_key=…`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, or a name, which needs the messaging profile
    in `profile`. The account's `public_key` verifies callbacks; `base_url` is for a test server.
    """

    name, title = "telnyx", "Telnyx"
    keeps_ids = timedelta(hours=24)
    lists_incoming = True  # the STOPs
    leaves_to_apprise = True
    callback_methods = ("POST",)
    codes, reasons = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, {40309}, opted_out={40300}), REASONS
    delivered, failed = ("delivered",), ("delivery_failed", "sending_failed", "expired")
    options: ClassVar = {
        "base_url": "https://api.telnyx.com/v2",
        "public_key": None,
        "profile": None,
    }

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        (key,), from_, options = urls.account(url, self.options, "API_KEY")
        if not re.fullmatch(rf"\+[1-9]\d{{6,14}}|{urls.SHORT}", from_, re.ASCII):
            raise ValueError("FROM in telnyx://…@FROM must be +number, a short code or a name")
        self._from, self._profile = from_, options["profile"]
        if re.search("[A-Za-z]", from_) and not self._profile:
            raise ValueError("telnyx://…@NAME needs the messaging profile of the name: ?profile=")
        self._public_key = _read_key(options["public_key"])
        self._fields = {"from": from_, "use_profile_webhooks": False}
        if self._profile:
            self._fields["messaging_profile_id"] = self._profile
        self._fields |= self._receipts(
            "webhook_url", callbacks, self._public_key, "public_key", from_
        )
        base = urls.base(options["base_url"])
        super().__init__(base, {"Authorization": f"Bearer {key}"}, concurrency, timeout)

    def send(self, outgoing: Outgoing) -> str | None:
        # `auto` changes characters
        encoding = "gsm7" if SEPTETS.keys() >= {*outgoing.text} else "ucs2"
        body = self._fields | {"to": outgoing.to, "text": outgoing.text, "encoding": encoding}
        if "webhook_url" in body:
            body["webhook_url"] += f"?m={outgoing.message_id}"
        answer = self.post_json("/messages", body, **{"Idempotency-Key": outgoing.key})
        ref = reference(as_object(answer.json().get("data")).get("id"))
        if ref and answer.success:
            self.record_served()
            return ref
        raise self.error_of(answer)

    def check(self) -> str | None:
        """Ask for the balance, and return it."""
        told = as_object(self.get_json("/balance").get("data"))
        return balance(told.get("balance"), told.get("currency"))

    def incoming(self, since: datetime, rest: str | None = None) -> Listed:
        """Return the STOPs and STARTs since an instant; Telnyx lists no other texts."""
        query = {"created_at[gte]": since.astimezone(UTC).isoformat(), "page[size]": PAGE}
        if self._profile:
            query["filter[messaging_profile_id]"] = self._profile
        query["page[number]"] = page = int(rest or 1)
        content = self.get_json(f"/messaging_optouts?{urlencode(query, quote_via=quote)}")
        listed = content.get("data")
        if not isinstance(listed, list):
            raise CarrierError("Telnyx's list of opt-outs cannot be read", silent=True)
        found = [said for each in listed for said in self._opt_outs(as_object(each))]
        return Listed(found, str(page + 1) if len(listed) == PAGE else None)

    def _opt_outs(self, listed):
        """Yield the STOP or START in an entry of the list; its number is the one not ours."""
        numbers = {listed.get("from"), listed.get("to")} - {self._from}
        stop, at = opt_outs.read(str(listed.get("keyword"))), instant(listed.get("created_at"))
        if stop is not None and at and len(numbers) == 1:
            for said in opt_outs.reported(str(*numbers), at, ()):
                yield said._replace(stop=stop, source="reply")

    def callback(self, request: Callback) -> list[Report]:
        event = self._genuine(request)
        payload, at = as_object(event.get("payload")), instant(event.get("occurred_at"))
        ids = (f"telnyx {payload['id']}",) if reference(payload.get("id")) else ()
        if not self._is_for(payload):
            return []
        if event.get("event_type") == "message.received":
            number, text = as_object(payload.get("from")).get("phone_number"), payload.get("text")
            word, at = payload.get("autoresponse_type"), instant(payload.get("received_at")) or at
            word = word if word in ("STOP", "START", "HELP") else None
            return opt_outs.replies(str(number), str(text), at, ids, word) if text else []
        recipient, error = _first(payload.get("to")), _first(payload.get("errors"))
        status, number = recipient.get("status"), str(recipient.get("phone_number"))
        code, given = str(error.get("code", "")), named(str(payload.get("webhook_url")))
        return self._report(payload.get("id"), status, code, number, given=given, at=at, ids=ids)

    def is_named_in(self, request: Callback) -> bool:
        return self._is_for(as_object(self._genuine(request).get("payload")))

    def _is_for(self, payload):
        """Return whether a callback is about this FROM: carriers may share a public key.

        Nobody can reply to a name: replies come to another number of its profile.
        """
        ends = as_object(payload.get("from")), _first(payload.get("to"))
        if self._from in [each.get("phone_number") for each in ends]:
            return True
        return self._profile is not None and self._profile == payload.get("messaging_profile_id")

    def _genuine(self, request):
        """Return the event of a callback, or raise NotGenuine.

        See https://developers.telnyx.com/docs/messaging/messages/receiving-webhooks.
        """
        from cryptography.exceptions import InvalidSignature  # here: others need not pay for it
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if not self._public_key:
            raise NotGenuine
        timestamp = request.headers.get("telnyx-timestamp", "")
        check_age(timestamp, OLDEST_CALLBACK)
        try:
            given = base64.b64decode(request.headers.get("telnyx-signature-ed25519", ""))
            key = Ed25519PublicKey.from_public_bytes(self._public_key)
            key.verify(given, timestamp.encode() + b"|" + request.body)
            return as_object(as_object(json.loads(request.body)).get("data"))
        except (InvalidSignature, ValueError, RecursionError):
            raise NotGenuine from None

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer means."""
        code = str(_first(answer.json().get("errors")).get("code", ""))
        is_unclear = answer.method == "POST" and answer.status in UNCLEAR
        if not re.fullmatch(r"[1-9]\d{4}", code, re.ASCII):
            return self.refusal(answer, in_doubt=answer.leaves_doubt or is_unclear)
        words = self.explained(int(code), "refused")
        reason = f"Telnyx: {words} (HTTP {answer.status}, error {code})"
        meant = 429 if answer.status == 429 else int(code)
        is_unclear = answer.status == 409 and meant not in REASONS  # the key is in use
        in_doubt = answer.method == "POST" and (is_unclear or meant in UNKNOWN)
        return self.refusal(answer, meant, reason, in_doubt=in_doubt)


def _read_key(written: str | None) -> bytes | None:
    """Return the bytes of a public key; a plus sign in a query is read as a space."""
    if written is None:
        return None
    try:
        key = base64.b64decode(written.replace(" ", "+"), validate=True)
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ValueError("public_key in telnyx://… must be 32 bytes in base64, as Telnyx shows it")
    return key


def _first(value: Any) -> dict:
    """Return the first object of an array, or an empty one."""
    return as_object(value[0]) if isinstance(value, list) and value else {}
