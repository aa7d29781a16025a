"""Vonage's SMS API."""

import hashlib
import hmac
import json
import re
import time
from urllib.parse import parse_qsl, urlencode, urlsplit

from carriers import Callback, Carrier, CarrierError, NotGenuine, OptOut, Receipt, opt_outs
from carriers.alphabets import SEPTETS
from carriers.http import MOST_FIELDS, SENDER, Client, account_url, base_url, basic, reference

# The status of each part of a text, grouped by what to do about it
# (https://developer.vonage.com/en/messaging/sms/guides/troubleshooting-sms). A status that is not
# listed is temporary.
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
# It may mean that the sender is not allowed in the recipient's country. While the sender serves
# other recipients, it is not about the account.
BY_COUNTRY = {"15"}
TOO_FAST = {"1": "too many requests"}
FOR_NOW = {
    "2": "a parameter is missing",
    "5": "an error of Vonage's",
    "10": "too many connections",
}
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | FOR_NOW
# err-code (https://developer.vonage.com/en/messaging/sms/guides/delivery-receipts)
UNDELIVERED = {
    "2": "the phone was not reachable",
    "3": "the number is not in service",
    "4": "the recipient blocks texts",
    "5": "the number is being ported",
    "6": "filtered as unwanted",
    "7": "the phone was busy",
    "8": "an error of the network",
    "9": "the recipient has opted out",
    "10": "a parameter is not valid",
    "11": "no route to the number",
    "12": "the number cannot be reached",
    "13": "the recipient is too young",
    "14": "the recipient's network blocks it",
    "15": "the recipient has no credit",
}
OPTED_OUT = "9"

SHORTEST_TTL, LONGEST_TTL = 20_000, 604_800_000  # milliseconds
LONGEST_CLIENT_REFERENCE = 40  # characters
# Vonage repeats an unanswered callback for 24 hours, and does not document that it signs it anew.
OLDEST, SKEW = 24 * 3600, 300  # seconds
METHODS = ("md5hash", "md5", "sha1", "sha256", "sha512")


class Vonage(Carrier):
    """Send through `vonage://KEY:SECRET@FROM`, each part percent-encoded or not.

    FROM is a number, with or without its plus sign, or a name. The options are `base_url`, for a
    test server, `signature_secret`, with which Vonage signs callbacks, and `signature_method`:
    `md5hash`, `md5`, `sha1`, `sha256` or `sha512`. Without a method each of them is accepted.

    Vonage counts a long text as several. Its reference and its receipt are those of the last part.
    """

    name = "vonage"

    def __init__(self, url: str, concurrency: int, timeout: float, public_url: str | None = None):
        self._key, self._secret, sender, options = account_url(
            url, {"base_url", "signature_secret", "signature_method"}
        )
        if not re.fullmatch(rf"\+?[1-9]\d{{6,14}}|{SENDER}", sender, re.ASCII):
            raise ValueError("FROM in vonage://…@FROM must be a number or a name")
        self._sender = sender.removeprefix("+")
        method = options.get("signature_method")
        if method and method not in METHODS:
            raise ValueError(f"signature_method in vonage://… must be one of {', '.join(METHODS)}")
        self._methods = (method,) if method else METHODS
        self._signature_secret = options.get("signature_secret")
        self._receipts = {}
        if public_url and self._signature_secret:
            self._receipts = {"callback": f"{public_url}/carriers/vonage/status"}
        elif public_url:
            self.warning = (
                "vonage://… has no ?signature_secret=, so callbacks cannot be verified: "
                "no receipts are asked for, and replies are refused"
            )
        base = base_url(options.get("base_url", "https://rest.nexmo.com"))
        self._client = Client("Vonage", base, concurrency, timeout)

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        form = {
            "api_key": self._key,
            "api_secret": self._secret,
            "from": self._sender,
            "to": to.removeprefix("+"),
            "text": text,
            "type": "text" if SEPTETS.keys() >= {*text} else "unicode",
            "ttl": min(max(int(valid_for * 1000), SHORTEST_TTL), LONGEST_TTL),
            "client-ref": message_id[:LONGEST_CLIENT_REFERENCE],
            **self._receipts,
        }
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        answer = self._client.ask("POST", "/sms/json", urlencode(form), headers)
        parts = answer.json().get("messages")
        if not (isinstance(parts, list) and parts and all(map(_has_status, parts))):
            if 200 <= answer.status < 300:
                raise CarrierError("Vonage: no usable answer", in_doubt=True)
            raise _refusal(answer)
        noes = [status for part in parts if (status := str(part["status"])) != "0"]
        if not noes:
            self._client.note_served()
            return reference(parts[-1].get("message-id"))
        if len(noes) < len(parts):
            raise CarrierError(
                f"Vonage: took {len(parts) - len(noes)} of {len(parts)} parts", in_doubt=True
            )
        status = noes[0] if noes[0].isdecimal() and len(noes[0]) < 4 else "unknown"
        serves = status in BY_COUNTRY and self._client.served_recently()
        raise CarrierError(
            f"Vonage: {REASONS.get(status, 'refused')} (status {status})",
            permanent=status in FOR_GOOD,
            account=status in ACCOUNT and not serves,
            too_fast=status in TOO_FAST,
            retry_after=answer.retry_after,
        )

    def check(self) -> None:
        """Ask for the balance."""
        headers = {"Accept": "application/json", **basic(self._key, self._secret)}
        answer = self._client.ask("GET", "/account/get-balance", None, headers)
        if answer.status != 200:
            raise _refusal(answer)

    def callback(self, request: Callback) -> list[Receipt | OptOut]:
        fields = self._genuine(request)
        number = opt_outs.e164(fields.get("msisdn", ""))
        if request.kind == "inbound":
            is_part = fields.get("concat") == "true"  # of a longer text
            stop = None if is_part else opt_outs.read(fields.get("text", ""))
            return [OptOut(number, stop, "reply")] if number and stop is not None else []
        events = []
        if message_id := reference(fields.get("messageId") or fields.get("message-id")):
            code = fields.get("err-code", "")
            match fields.get("status"):
                case "delivered":
                    events.append(Receipt(message_id, True))
                case "expired" | "failed" | "rejected" as status:
                    events.append(Receipt(message_id, False, _reason(status, code)))
                    if code == OPTED_OUT and number:
                        events.append(OptOut(number, stop=True, source="carrier"))
        return events

    def close(self) -> None:
        self._client.close()

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
        given = fields.pop("sig", "").lower().encode(errors="replace")
        timestamp = fields.get("timestamp", "")
        if not re.fullmatch(r"\d{1,12}", timestamp, re.ASCII):
            raise NotGenuine
        if not -SKEW <= time.time() - int(timestamp) <= OLDEST + SKEW:
            raise NotGenuine
        signed = "".join(
            f"&{name}={value.replace('&', '_').replace('=', '_')}"
            for name, value in sorted(fields.items())
        )
        if any(hmac.compare_digest(self._signature(each, signed), given) for each in self._methods):
            return fields
        raise NotGenuine

    def _signature(self, method, signed):
        # JSON can hold a lone surrogate, which has no bytes; Vonage never signs one.
        secret, signed = self._signature_secret.encode(), signed.encode(errors="replace")
        if method == "md5hash":
            return hashlib.md5(signed + secret).hexdigest().encode()
        return hmac.new(secret, signed, method).hexdigest().encode()


def _fields(request):
    """Return the fields of a callback as strings, from a query, a form or JSON."""
    if request.method == "GET":
        query = urlsplit(request.url).query
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    if "json" not in request.headers.get("content-type", ""):
        body = request.body.decode()
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    fields = json.loads(request.body)
    if not isinstance(fields, dict) or len(fields) > MOST_FIELDS:
        raise ValueError("not an object, or too large a one")
    return {name: v if isinstance(v, str) else json.dumps(v) for name, v in fields.items()}


def _has_status(part):
    """Return whether an entry of an answer has a status."""
    return isinstance(part, dict) and part.get("status") is not None


def _refusal(answer):
    """Return the CarrierError that an answer's HTTP status means."""
    return CarrierError(
        f"Vonage: no usable answer (HTTP {answer.status})",
        account=answer.status in (401, 402, 403, 404),
        too_fast=answer.status == 429,
        retry_after=answer.retry_after,
    )


def _reason(status, code):
    """Return why a text was not delivered."""
    if not re.fullmatch(r"[1-9]\d{0,3}", code, re.ASCII):
        return f"Vonage: {status}"
    return f"Vonage: {UNDELIVERED.get(code, status)} (error {code})"
