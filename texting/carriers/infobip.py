"""Infobip's SMS API, version 3.

A text has its message's id there. Given again with the same id it is not sent again: the answer
has status 23. What became of the first is in Infobip's logs, for 48 hours.
"""

import hmac
import json
import re
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from texting.carriers import (
    Callback,
    CarrierError,
    Codes,
    Fault,
    NotGenuine,
    Outgoing,
    Report,
    message_of,
    opt_outs,
    urls,
)
from texting.carriers.http import (
    HttpCarrier,
    Response,
    as_object,
    balance,
    basic,
    instant,
    objects,
    reference,
)

# https://www.infobip.com/docs/essentials/api-essentials/response-status-and-error-codes
FOR_GOOD = {
    6: "the account does not reach this network",
    8: "the number is not valid",
    10: "the recipient takes no texts of services",
    14: "the number is on a blocklist",
    19: "the account has no route to this number",
    24: "the text is not valid",
    25: "the text is too long",
    51: "the number is not valid",
    52: "the number is not valid",
    87: "taken for fraud",
}
ACCOUNT = {
    11: "the sender is not registered",
    12: "the account has no credit",
    13: "the sender is on a blocklist",
    17: "the account's credit has expired",
    18: "a trial account only reaches its own number",
    401: "the key is wrong",
    402: "the account has no credit",
    403: "the key may not do this",
    404: "nothing is at this address",
}
TOO_FAST = {429: "too many requests"}
FOR_NOW = {20: "too many texts to this number within an hour", 21: "an error of Infobip's"}
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | FOR_NOW
NO_ROUTE = {6, 19}
# Groups of statuses: it was taken, whatever became of it
TAKEN = ("PENDING", "ACCEPTED", "DELIVERED", "UNDELIVERABLE", "EXPIRED")
REFUSED = "REJECTED"
TAKEN_BEFORE = 23
UNKNOWN = {2, TAKEN_BEFORE, 29}  # reports that say nothing of the phone: the network has it
UNDELIVERED = {
    1: "the number is not in service",
    6: "the phone was not reachable",
    13: "the recipient's network blocks it",
    27: "the phone was not reachable",
    31: "the phone was busy",
    603: "the recipient has opted out",
}

LONGEST_VALIDITY = 48 * 3600  # seconds; Infobip shortens what is longer
USER = "infobip"  # of callbacks


class Infobip(HttpCarrier):
    """Send through `infobip://API_KEY@FROM?base=…&secret=…`, each part percent-encoded or not.

    FROM is a number, with or without its plus sign, or a name. `base` is the account's own host at
    Infobip; `secret` is the password of callbacks; `base_url` is for a test server.
    """

    name, title = "infobip", "Infobip"
    keeps_ids = timedelta(hours=48)
    callback_methods = ("POST",)
    delivered, failed = ("DELIVERED",), ("UNDELIVERABLE", "EXPIRED", REFUSED)
    codes, reasons = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, NO_ROUTE, {603}), UNDELIVERED
    options: ClassVar = {"base": "api.infobip.com", "base_url": None, "secret": None}

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        (key,), from_, options = urls.account(url, self.options, "API_KEY")
        if not re.fullmatch(rf"\+?[1-9]\d{{6,14}}|{urls.SHORT}", from_, re.ASCII):
            raise ValueError("FROM in infobip://…@FROM must be a number or a name")
        if not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", options["base"]):
            raise ValueError("base in infobip://… must be a host, like xxxxx.api.infobip.com")
        self._from = from_.removeprefix("+")
        self._login = basic(USER, options["secret"])["Authorization"] if options["secret"] else None
        receipts = self._receipts("url", callbacks, options["secret"], "secret", from_)
        if receipts:
            scheme, _, place = receipts["url"].partition("://")
            receipts["url"] = f"{scheme}://{USER}:{quote(options['secret'], safe='')}@{place}"
        self._webhooks = {"delivery": receipts, "contentType": "application/json"}
        base = urls.base(options["base_url"] or f"https://{options['base']}")
        super().__init__(base, {"Authorization": f"App {key}"}, concurrency, timeout)

    def send(self, outgoing: Outgoing) -> str | None:
        key = outgoing.key
        lasts = min(max(int(outgoing.valid_for), 1), LONGEST_VALIDITY)
        message = {
            "sender": self._from,
            "destinations": [{"to": outgoing.to.removeprefix("+"), "messageId": key}],
            "content": {"text": outgoing.text},
            "options": {"validityPeriod": {"amount": lasts, "timeUnit": "SECONDS"}},
        }
        if self._webhooks["delivery"]:
            message["webhooks"] = self._webhooks
        answer = self.post_json("/sms/3/messages", {"messages": [message]})
        told = _first(answer.json().get("messages"))
        group, code = _status(told)
        if not code or told.get("messageId") != key:
            raise self.error_of(answer)
        is_taken = answer.success and group in TAKEN
        if code == TAKEN_BEFORE:
            group, code = self._status_of_first(key)
            is_taken = group != REFUSED
        if is_taken:
            return key
        reason = f"Infobip: {REASONS.get(code, 'refused')} (status {code})"
        raise self.refusal(answer, code, reason)

    def _status_of_first(self, key):
        """Return the status of a text that is known by its key; raise if it cannot be asked for.

        A refused text may have made the key known. Where the logs do not say so, it was taken.
        """
        try:
            return self._logged(key) or (TAKEN[0], TAKEN_BEFORE)
        except CarrierError as error:
            if error.fault is Fault.ACCOUNT:  # the key of the account may not read logs
                return TAKEN[0], TAKEN_BEFORE
            raise CarrierError(error.reason, in_doubt=True, silent=error.silent) from None

    def look_up(self, key: str) -> str | None:
        """Return the reference of a text that Infobip took in the last 48 hours, or None."""
        group, _ = self._logged(key) or (REFUSED, None)
        return None if group == REFUSED else key

    def _logged(self, key):
        """Return the group and code of the text that was given with a key first, or None.

        Those that were given again may be in the logs, too.
        """
        found = [
            _status(each) for each in self._logs(messageId=key) if each.get("messageId") == key
        ]
        if any(None in each for each in found):
            raise CarrierError("Infobip's logs cannot be read", silent=True)
        firsts = [each for each in found if each[1] != TAKEN_BEFORE]
        if found and not firsts:
            return TAKEN[0], TAKEN_BEFORE
        return min(firsts, key=lambda each: each[0] == REFUSED, default=None)

    def _logs(self, **query):
        content = self.get_json(f"/sms/3/logs?{urlencode(query)}")
        if not isinstance(content.get("results"), list):
            raise CarrierError("Infobip's logs cannot be read", silent=True)
        return objects(content["results"])

    def check(self) -> None:
        """Ask for the latest text: not every key may see the balance."""
        self._logs(limit=1)

    def balance(self) -> str | None:
        self.check()
        with suppress(CarrierError):
            told = self.get_json("/account/1/balance")
            return balance(told.get("balance"), told.get("currency"))

    def callback(self, request: Callback) -> list[Report]:
        return [news for told in self._genuine(request) for news in self._news(told)]

    def _news(self, told):
        """Return what a report or a reply says; both may come to either address."""
        id = reference(told.get("messageId")) or ""
        ids = (f"infobip {id}",) if id else ()
        if "status" not in told:
            at, text = instant(told.get("receivedAt")), told.get("text")
            number = str(told.get("from"))
            return opt_outs.replies(number, text, at, ids) if isinstance(text, str) else []
        group, code = _status(told)
        if code in UNKNOWN:
            group = TAKEN[0]
        error = str(as_object(told.get("error")).get("id"))
        number = opt_outs.international(str(told.get("to")))  # as it was given
        at = instant(told.get("doneAt"))
        return self._report(id, group, error, number, given=message_of(id), at=at, ids=ids)

    def is_named_in(self, request: Callback) -> bool:
        senders = [told.get("sender", told.get("to")) for told in self._genuine(request)]
        return self._from.lower() in [str(each).removeprefix("+").lower() for each in senders]

    def _genuine(self, request):
        """Return the reports and replies in a callback, or raise NotGenuine.

        Infobip signs nothing by itself: the address that it was given has a password.
        """
        given = request.headers.get("authorization", "").encode(errors="replace")
        if not (self._login and hmac.compare_digest(given, self._login.encode())):
            raise NotGenuine
        try:
            return objects(as_object(json.loads(request.body)).get("results"))
        except (ValueError, RecursionError):
            raise NotGenuine from None

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer without a text's status means."""
        content, status = answer.json(), answer.status
        if not (content.get("errorCode") or content.get("requestError")):
            return self.refusal(answer)
        reason = f"Infobip: {REASONS.get(status, 'refused')} (HTTP {status})"
        violated = [str(each.get("property")) for each in objects(content.get("violations"))]
        if status == 400 and any(re.search("destinations|content", each) for each in violated):
            return CarrierError(reason, Fault.PERMANENT)
        in_doubt = answer.method == "POST" and status == 500
        return self.refusal(answer, status, reason, in_doubt=in_doubt)


def _status(told):
    """Return the group and the code of a text's status, None for each that cannot be read."""
    status = as_object(told.get("status"))
    group, code = status.get("groupName"), status.get("id")
    code = code if type(code) is int and 0 < code < 10_000 else None
    return group if isinstance(group, str) else None, code


def _first(value: Any) -> dict:
    return next(iter(objects(value)), {})
