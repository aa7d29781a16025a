"""SMSGate: your own Android phone as a carrier, through its cloud or your own server.

https://docs.sms-gate.app. A text has its message's id there; if it is given again, the answer is
409, and it is not sent again.
"""

import hmac
import json
import re
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from texting.carriers import (
    Callback,
    CarrierError,
    Codes,
    NotGenuine,
    Outgoing,
    Report,
    message_of,
    opt_outs,
    urls,
)
from texting.carriers.http import HttpCarrier, Response, basic, check_age, instant, reference

SHORTEST_VALIDITY = 5  # seconds that a text may wait
OLDEST_CALLBACK = 3600  # seconds; the phone signs every try again, and its clock may differ
WRONG_LOGIN = "the user or the password is wrong"
EVENTS = ("sms:sent", "sms:delivered", "sms:failed", "sms:received")


class SmsGate(HttpCarrier):
    """Send through `smsgate://USER:PASSWORD@HOST/PATH?key=…`, or `smsgate+http://…`.

    `key` is the signing key of the app, which verifies callbacks; `sim` is the number of a SIM
    card, from 1; `region` is the country in whose form the phone shows numbers.
    """

    name, title = "smsgate", "SMSGate"
    keeps_ids, calls_all_names = timedelta.max, True
    callback_methods = ("POST",)
    delivered, failed = ("sms:delivered",), ("sms:failed",)
    codes = Codes(permanent={400, 413}, account={401, 402, 403, 404}, too_fast={429, 503})  # HTTP
    options: ClassVar = {"key": None, "sim": None, "region": None}

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        login, place, options = urls.account(url, self.options)
        self._region, sim = options["region"], options["sim"]
        if self._region and self._region not in opt_outs.REGIONS:
            raise ValueError("region in smsgate://… must be a country in capitals, like DE")
        if sim and not re.fullmatch("[1-3]", sim):
            raise ValueError("sim in smsgate://… must be 1, 2 or 3")
        self._key, self._sim = options["key"], {"simNumber": int(sim)} if sim else {}
        if callbacks and not callbacks.startswith("https:"):
            self.warn("SMSGate calls back over https alone, and PUBLIC_URL is not https")
            callbacks = None
        self._receipts("url", callbacks, self._key, "key", "")
        self._callbacks, self.registers = callbacks, self.tells_receipts
        scheme = "http" if url.lower().startswith("smsgate+http:") else "https"
        try:
            base = urls.base(f"{scheme}://{place}")
        except ValueError:
            raise ValueError("smsgate://USER:PASSWORD@HOST/PATH has no usable HOST/PATH") from None
        super().__init__(base, basic(*login), concurrency, timeout)

    def register(self) -> None:
        """Have the phone call back, with fixed ids, so that a second time changes nothing."""
        with self.session():
            for event in EVENTS:
                kind = "inbound" if event == "sms:received" else "status"
                hook = {"id": self._hook(event), "event": event, "url": f"{self._callbacks}/{kind}"}
                answer = self.post_json("/webhooks", hook)
                if not answer.success:
                    raise self.error_of(answer)

    def send(self, outgoing: Outgoing) -> str | None:
        key = outgoing.key
        until = datetime.now(UTC) + timedelta(seconds=max(outgoing.valid_for, SHORTEST_VALIDITY))
        body = {
            "id": key,
            "textMessage": {"text": outgoing.text},
            "phoneNumbers": [outgoing.to],
            "withDeliveryReport": True,
            "validUntil": until.isoformat(timespec="seconds"),
        }
        answer = self.post_json("/messages?skipPhoneValidation=true", body | self._sim)
        content = answer.json()
        taken_before = answer.status == 409 and content.get("message")
        if taken_before or (answer.success and content.get("id") == key):
            return key
        raise self.error_of(answer)

    def look_up(self, key: str) -> str | None:
        """Return the reference of a message that SMSGate has, or None."""
        answer = self.ask("GET", f"/messages/{key}")
        content = answer.json()
        if answer.status == 404 and content.get("message"):
            return None
        if answer.status != 200 or content.get("id") != key:
            raise self.error_of(answer)
        return key

    def check(self) -> None:
        """Ask for a message."""
        answer = self.ask("GET", "/messages?limit=1")
        if answer.status != 200:
            raise self.error_of(answer)

    def callback(self, request: Callback) -> list[Report]:
        event, payload, ids = self._genuine(request)
        if event == "sms:received":
            number, text = (
                payload.get("sender") or payload.get("phoneNumber"),
                payload.get("message"),
            )
            if self._region:
                number = opt_outs.national(str(number), self._region) or number
            at = instant(payload.get("receivedAt"))
            return opt_outs.replies(str(number), text, at, ids) if isinstance(text, str) else []
        key = reference(payload.get("messageId")) or ""
        return self._report(key, str(event), "", "", given=message_of(key))

    def is_named_in(self, request: Callback) -> bool:
        event, payload, _ = self._genuine(request)
        sim = payload.get("simNumber")
        if self._sim and type(sim) is int:
            return self._sim["simNumber"] == sim
        return bool(event) and json.loads(request.body).get("webhookId") == self._hook(str(event))

    def _hook(self, event):
        """Return the id of a webhook of ours: 36 characters at most."""
        return f"texts-{self.name}"[:26] + f"-{event.removeprefix('sms:')}"

    def _genuine(self, request):
        """Return a callback's event, its payload and what identifies it, or raise NotGenuine.

        See https://docs.sms-gate.app/features/webhooks.
        """
        timestamp, given = (
            request.headers.get(f"x-{each}", "") for each in ("timestamp", "signature")
        )
        if not self._key:
            raise NotGenuine
        check_age(timestamp, OLDEST_CALLBACK)
        mac = hmac.new(self._key.encode(), request.body + timestamp.encode(), "sha256").hexdigest()
        if not hmac.compare_digest(mac.encode(), given.lower().encode(errors="replace")):
            raise NotGenuine
        try:
            told = json.loads(request.body)
        except (ValueError, RecursionError):
            raise NotGenuine from None
        if not (isinstance(told, dict) and isinstance(told.get("payload"), dict)):
            return None, {}, ()
        return told.get("event"), told["payload"], self._ids(told)

    def _ids(self, told):
        """Return what identifies an incoming text, whichever webhook tells of it.

        Each webhook has ids of its own, and an account has webhooks for each of its names. The
        phone makes `messageId` from the text, so what is kept must not let anybody guess that.
        """
        payload = told["payload"]
        id, at = reference(payload.get("messageId")), reference(payload.get("receivedAt"))
        if not (id and at):
            return (f"smsgate {told['id']}",) if reference(told.get("id")) else ()
        text = f"{id} {at} {payload.get('sender') or payload.get('phoneNumber')}".encode()
        return (f"smsgate {hmac.new(self._key.encode(), text, 'sha256').hexdigest()}",)

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer means."""
        words, status = str(answer.json().get("message", "")), answer.status
        facts = {
            "in_doubt": answer.leaves_doubt or (answer.method == "POST" and status == 500),
            "silent": status in (502, 503, 504) and not words,
        }
        is_of_phone = status == 400 and "device" in words.lower()
        said = {400: "no phone is registered"} if is_of_phone else {401: WRONG_LOGIN}
        reason = f"SMSGate: {said.get(status, 'refused')} (HTTP {status})"
        return self.refusal(answer, 404 if is_of_phone else status, reason, **facts)
