"""Vonage's SMS API."""

import hmac
import json
import re
from datetime import UTC, datetime
from typing import ClassVar
from urllib.parse import urlsplit

from texting.carriers import (
    Callback,
    CarrierError,
    Codes,
    NotGenuine,
    Outgoing,
    Part,
    Report,
    opt_outs,
    urls,
)
from texting.carriers.alphabets import SEPTETS
from texting.carriers.http import (
    MOST_FIELDS,
    HttpCarrier,
    balance,
    basic,
    check_age,
    parsed,
    reference,
)

# The status of each part of a text, grouped by what to do about it
# (https://developer.vonage.com/en/messaging/sms/guides/troubleshooting-sms).
FOR_GOOD = {
    "3": "a parameter is not valid",
    "6": "the number cannot be reached",
    "7": "the number is barred",
    "12": "the text is too long",
    "22": "the recipient's network is not known",
    "29": "a demo account only reaches numbers on its own list",
    "33": "the number is not in service",
}
ACCOUNT = {
    "4": "the key or the secret is wrong",
    "8": "the account is suspended",
    "9": "the account has no credit",
    "11": "the account may not use this API",
    "14": "the account wants signed requests",
    "15": "the sender is not allowed",
    "23": "PUBLIC_URL is no address that Vonage calls",
    "32": "the account wants signed requests",
}
TOO_FAST = {"1": "too many requests"}
FOR_NOW = {"5": "an error of Vonage's"}
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | FOR_NOW
# err-code (https://developer.vonage.com/en/messaging/sms/guides/delivery-receipts)
UNDELIVERED = {
    2: "the phone was not reachable",
    3: "the number is not in service",
    4: "the recipient blocks texts",
    5: "the number is being ported",
    6: "filtered as unwanted",
    7: "the phone was busy",
    8: "an error of the network",
    9: "the recipient has opted out",
    10: "a parameter is not valid",
    11: "no route to the number",
    12: "the number cannot be reached",
    13: "the recipient is too young",
    14: "the recipient's network blocks it",
    15: "the recipient has no credit",
}

SHORTEST_TTL, LONGEST_TTL = 20_000, 604_800_000  # milliseconds
LONGEST_CLIENT_REFERENCE = 40  # characters
# Vonage repeats an unanswered callback for 24 hours, and does not document that it re-signs it.
OLDEST_CALLBACK = 24 * 3600  # seconds
METHODS = ("sha1", "sha256", "sha512")  # of an HMAC


class Vonage(HttpCarrier):
    """Send through `vonage://KEY:SECRET@FROM`, each part percent-encoded or not.

    FROM is a number, with or without its plus sign, or a name. The options are `base_url`, for a
    test server, `signature_secret`, with which Vonage signs callbacks, and `signature_method`, an
    HMAC: `sha1`, `sha256` or `sha512`. Without a method each of them is accepted.

    Vonage counts a long text as several. Its reference and its receipt are those of the last part;
    the receipts of the others name the message by its `client-ref`.
    """

    name, title = "vonage", "Vonage"
    codes, reasons = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, {"15"}, opted_out={9}), UNDELIVERED
    callback_methods = ("GET", "POST")
    delivered, failed = ("delivered",), ("expired", "failed", "rejected")
    options: ClassVar = {
        "base_url": "https://rest.nexmo.com",
        "signature_secret": None,
        "signature_method": None,
    }

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        (key, secret), from_, options = urls.account(url, self.options)
        if not re.fullmatch(rf"\+?[1-9]\d{{6,14}}|{urls.SHORT}", from_, re.ASCII):
            raise ValueError("FROM in vonage://…@FROM must be a number or a name")
        method = options["signature_method"]
        if method and method not in METHODS:
            raise ValueError(f"signature_method in vonage://… must be one of {', '.join(METHODS)}")
        self._methods = (method,) if method else METHODS
        self._signature_secret = signing = options["signature_secret"]
        self._login = basic(key, secret)
        self._fields = {"api_key": key, "api_secret": secret, "from": from_.removeprefix("+")}
        if callbacks and signing and not method:
            self.warn(
                "vonage://… has no ?signature_method=: name the one of the account, best sha256; "
                "callbacks signed by MD5, the default of accounts, are refused"
            )
        self._fields |= self._receipts("callback", callbacks, signing, "signature_secret", from_)
        super().__init__(urls.base(options["base_url"]), {}, concurrency, timeout)

    def send(self, outgoing: Outgoing) -> str | None:
        form = self._fields | {
            "to": outgoing.to.removeprefix("+"),
            "text": outgoing.text,
            "type": "text" if SEPTETS.keys() >= {*outgoing.text} else "unicode",
            "ttl": min(max(int(outgoing.valid_for * 1000), SHORTEST_TTL), LONGEST_TTL),
            "client-ref": outgoing.message_id[:LONGEST_CLIENT_REFERENCE],
        }
        answer = self.post("/sms/json", form)
        parts = answer.json().get("messages")
        if not (isinstance(parts, list) and parts and all(map(_has_status, parts))):
            raise self.refusal(answer)
        noes = [status for part in parts if (status := str(part["status"])) != "0"]
        if not noes:
            self.record_served()
            return reference(parts[-1].get("message-id"))
        if len(noes) < len(parts):
            reason = f"Vonage: took {len(parts) - len(noes)} of {len(parts)} parts"
            raise CarrierError(reason, in_doubt=True)
        status = noes[0] if re.fullmatch(r"\d{1,3}", noes[0], re.ASCII) else "unknown"
        reason = f"Vonage: {REASONS.get(status, 'refused')} (status {status})"
        raise self.refusal(answer, status, reason)

    def check(self) -> str | None:
        """Ask for the balance, and return it."""
        answer = self.ask("GET", "/account/get-balance", headers=self.headers | self._login)
        content = answer.json()
        if answer.status != 200 or not content:
            # Vonage's own errors have a code, or a title (RFC 7807).
            raise self.refusal(answer, silent=not content.keys() & {"error-code", "title"})
        return balance(content.get("value"), "EUR")

    def callback(self, request: Callback) -> list[Report]:
        fields = self._genuine(request)
        if not self._is_for(fields, request.kind):
            return []
        recipient = opt_outs.international(fields.get("msisdn", ""))  # as Vonage documents it
        at = _instant(fields.get("message-timestamp", ""))
        message_id = fields.get("messageId") or fields.get("message-id")
        # By account: its other carriers may be handed the same callbacks
        account = fields.get("api-key") or self._fields["api_key"]
        ids = (f"vonage {account} {message_id}",) if message_id else ()
        if request.kind == "inbound":
            text, part = fields.get("text"), _part(fields)
            return opt_outs.replies(recipient, text, at, ids, part=part)
        code = fields.get("err-code", "")
        # Vonage counts a long text as several, and does not say which one is the last
        of = {"given": fields.get("client-ref"), "of_part": True}
        return self._report(message_id, fields.get("status"), code, recipient, **of, at=at, ids=ids)

    def is_named_in(self, request: Callback) -> bool:
        given = _fields(request).get("to", "").removeprefix("+")
        return given.lower() == self._fields["from"].lower()

    def _is_for(self, fields, kind):
        """Return whether a callback is about this FROM: carriers may share a signature secret.

        Nobody can reply to a name: replies come to another number then.
        """
        from_, given = self._fields["from"], fields.get("to", "").removeprefix("+")
        is_name = re.search("[A-Za-z]", from_)
        return not given or (is_name and kind == "inbound") or given.lower() == from_.lower()

    def _genuine(self, request):
        """Return the fields of a callback, or raise NotGenuine.

        `sig` covers all other fields, including the timestamp
        (https://developer.vonage.com/en/getting-started/concepts/signing-messages).
        """
        if not self._signature_secret:
            raise NotGenuine
        try:
            fields = _fields(request)
        except (ValueError, RecursionError):
            raise NotGenuine from None
        # Other fields could have the same signature: it joins names and values by these two.
        if any("&" in name or "=" in name for name in fields):
            raise NotGenuine
        given = fields.pop("sig", "").lower().encode(errors="replace")
        check_age(fields.get("timestamp", ""), OLDEST_CALLBACK)
        clean = str.maketrans("&=", "__")
        signed = "".join(f"&{name}={fields[name].translate(clean)}" for name in sorted(fields))
        if any(hmac.compare_digest(self._signature(each, signed), given) for each in self._methods):
            return fields
        raise NotGenuine

    def _signature(self, method, signed):
        # JSON can hold a lone surrogate, which has no bytes; Vonage never signs one.
        secret, signed = self._signature_secret.encode(), signed.encode(errors="replace")
        return hmac.new(secret, signed, method).hexdigest().encode()


def _fields(request):
    """Return the fields of a callback as strings, from a query, a form or JSON."""
    if request.method == "GET":
        return dict(parsed(urlsplit(request.url).query))
    if "json" not in request.headers.get("content-type", ""):
        return dict(parsed(request.body.decode()))
    fields = json.loads(request.body)
    if not isinstance(fields, dict) or len(fields) > MOST_FIELDS:
        raise ValueError("not an object, or too large a one")
    return {name: v if isinstance(v, str) else json.dumps(v) for name, v in fields.items()}


def _part(fields):
    """Return which part of a longer text an incoming one is; None for a whole one."""
    if fields.get("concat") != "true":
        return None
    numbers = (fields.get(f"concat-{name}", "") for name in ("total", "part"))
    total, number = (int(n) if re.fullmatch(r"\d{1,3}", n, re.ASCII) else 0 for n in numbers)
    return Part(fields.get("concat-ref", ""), total, number)


def _instant(timestamp):
    """Return the instant in a `message-timestamp`; None if there is none.

    In receipts it is in UTC; in replies an offset follows: ` +0000`.
    """
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)( [+-]\d{4})?", timestamp, re.ASCII)
    if not found:
        return None
    try:
        at = datetime.strptime(found[1] + (found[2] or " +0000"), "%Y-%m-%d %H:%M:%S %z")
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _has_status(part):
    """Return whether an entry in an answer has a status."""
    return isinstance(part, dict) and part.get("status") is not None
