"""Twilio's Messages API."""

import base64
import hashlib
import hmac
import re
import unicodedata
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from operator import itemgetter
from typing import ClassVar
from urllib.parse import quote, urlencode, urlsplit

from texting.carriers import (
    Callback,
    CarrierError,
    Codes,
    Fault,
    Listed,
    NotGenuine,
    Outgoing,
    Report,
    opt_outs,
    urls,
)
from texting.carriers.http import HttpCarrier, Response, balance, basic, named, parsed, reference

# Twilio's error codes, grouped by what to do about them. All others are temporary.
ERRORS = "https://www.twilio.com/docs/errors/"  # a page for each code
FOR_GOOD = {
    *(21211, 21214, 21217, 21265, 21266, 21268, 21612, 21614, 21635),  # the number
    *(21602, 21605, 21617, 21618, 21619),  # the text
    *(21408, 21608, 21610),  # the recipient's country, a trial account, an opt-out
}
ACCOUNT = {
    *(10001, 20003, 20005, 20006, 20008, 20010, 20403, 20404, 90010),  # the account, its token
    *(21212, 21267, 21601, 21606, 21607, 21616, 21657, 21659, 21660, 21661),  # the sender
    *(21701, 21702, 21703, 21704, 21705, 21708, 21709),  # the messaging service
    21609,  # PUBLIC_URL
}
TOO_FAST = {429, 14107, 20429, 21611, 30022, 63038}  # 429 is the HTTP status, whatever the code
REASONS = {
    20003: "the account SID or the token is wrong",
    21211: "the number is not valid",
    21408: "texts to the recipient's country are not enabled for the account",
    21608: "a trial account only reaches verified numbers",
    21610: "the recipient has opted out",
    21614: "the number takes no texts",
    30003: "the phone was not reachable",
    30004: "the recipient blocks texts",
    30005: "the number is not in service",
    30006: "the number is a landline, or its network is not reachable",
    30007: "filtered as unwanted",
    30034: "the sender is not registered",
}
NO_ROUTE = {21408, 21606, 21612, 21703}

SHORTEST_VALIDITY, LONGEST_VALIDITY = 1, 36_000  # seconds; error 21624 otherwise
NEVER_SENT = {"failed", "canceled"}  # Twilio gave these to no network
TRIAL = "Sent from your Twilio trial account - "  # prefix of a trial account's texts
PAGE, PAGES = 100, 20  # messages, pages that are read at once, in Twilio's list
KEPT_BY_ENCODING = ("Lu", "Ll", "Lt", "Lo", "Nd", "So")  # categories of characters
OF_SENDER = ("From", "FromCity", "FromState", "FromZip", "FromCountry")  # fields of a reply
SIGNATURES = {"HMAC_SHA1": hashlib.sha1, "HMAC_SHA256": hashlib.sha256}


class Twilio(HttpCarrier):
    """Send through `twilio://ACCOUNT_SID:AUTH_TOKEN@FROM`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, an alphanumeric sender or the SID of a
    messaging service. The options are `base_url`, for a region or a test server, `account`,
    `auth_token`, and `smart_encoding`, which lets Twilio replace characters. With an API key,
    `twilio://SK…:SECRET@FROM?account=AC…`, callbacks can only be verified with `auth_token`,
    because Twilio signs them with it.
    """

    name, title = "twilio", "Twilio"
    can_be_asked = lists_incoming = True
    callback_methods = ("POST",)
    longest_answer = 4 * 1024 * 1024  # a page of messages
    codes, reasons = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, NO_ROUTE, {21610}), REASONS
    delivered, failed = ("delivered", "read"), ("undelivered", "failed", "canceled")
    options: ClassVar = {
        "base_url": "https://api.twilio.com",
        "account": None,
        "auth_token": None,
        "smart_encoding": "false",
    }

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        (user, password), from_, options = urls.account(url, self.options)
        if options["smart_encoding"] not in ("true", "false"):
            raise ValueError("smart_encoding in twilio://… must be true or false")
        self._smart_encoding = options["smart_encoding"] == "true"
        if re.fullmatch(r"MG[0-9a-fA-F]{32}", from_):
            self._fields = {"MessagingServiceSid": from_, "SmartEncoded": "false"}
        elif re.fullmatch(rf"\+[1-9]\d{{6,14}}|{urls.SHORT}", from_, re.ASCII):
            self._fields = {"From": from_}
        else:
            raise ValueError("FROM in twilio://…@FROM must be +number, short code, name or MG… SID")
        if self._smart_encoding:
            self._fields["SmartEncoded"] = "true"
        self._is_key = user.startswith("SK")
        if self._is_key and not options["account"]:
            raise ValueError("twilio://SK… is an API key, which needs its account: ?account=AC…")
        self._account_sid = self.list_of = options["account"] or user
        self._account = f"/2010-04-01/Accounts/{quote(self._account_sid, safe='')}"
        self._auth_token = options["auth_token"] or (None if self._is_key else password)
        secret, name = self._auth_token, self._fields.get("From", "")
        self._fields |= self._receipts("StatusCallback", callbacks, secret, "auth_token", name)
        base = urls.base(options["base_url"])
        super().__init__(base, basic(user, password), concurrency, timeout)

    def send(self, outgoing: Outgoing) -> str | None:
        validity = min(max(int(outgoing.valid_for), SHORTEST_VALIDITY), LONGEST_VALIDITY)
        form = {
            "To": outgoing.to,
            **self._fields,
            "Body": outgoing.text,
            "ValidityPeriod": validity,
        }
        if "StatusCallback" in form:
            form["StatusCallback"] += f"?m={outgoing.message_id}"
        answer = self.post(f"{self._account}/Messages.json", form)
        sid, code = reference(answer.json().get("sid")), _code(answer)
        # A 201 without a SID is a success, too: sending again would make a second text.
        if (sid and answer.success) or (answer.status == 201 and code is None):
            self.record_served()
            return sid
        raise self.error_of(answer)

    def find(self, to: str, text: str, since: datetime) -> list[str]:
        """Return the SIDs of all equal texts that Twilio took since an instant, the oldest first.

        Texts that Twilio itself failed to send do not count. White space is not compared: Twilio
        does not document how it stores it.
        """
        found = []
        for messages, _ in self._pages(since, To=to):
            ours = ((at, each) for at, each in messages if at and self._is_ours(each, to, text))
            found += [(at, each["sid"]) for at, each in ours]
        found.reverse()
        return list(dict.fromkeys(sid for _, sid in sorted(found, key=itemgetter(0))))

    def incoming(self, since: datetime, rest: str | None = None) -> Listed:
        """Return the texts to FROM that Twilio lists since an instant, oldest first."""
        from_, service = self._fields.get("From"), self._fields.get("MessagingServiceSid")
        if from_ and not from_.removeprefix("+").isdigit():
            return Listed([])  # nobody can answer a name
        found, only = [], {"To": from_} if from_ else {}
        for messages, following in self._pages(since, rest, **only):
            rest = following
            for at, message in messages:
                sid, number, text = (message.get(name) for name in ("sid", "from", "body"))
                is_ours = message.get("direction") == "inbound" and reference(sid)
                is_ours = is_ours and (from_ or message.get("messaging_service_sid") == service)
                if is_ours and isinstance(number, str) and isinstance(text, str):
                    found += opt_outs.replies(number, text, at, self._ids(sid))
        return Listed(found[::-1], rest)

    def _pages(self, since, path=None, **only):
        """Yield pages of messages that Twilio created since an instant, and where each continues.

        Each message comes after its date, which is None if it cannot be read: the message may be as
        new as its neighbours. Only one page is kept at a time: it may have four megabytes.
        """
        since = since.replace(microsecond=0)  # Twilio lists whole seconds
        # Filtering by DateSent would miss queued messages, for which it is null.
        path = path or f"{self._account}/Messages.json?{urlencode(only | {'PageSize': PAGE})}"
        for _ in range(PAGES):
            messages = (page := self.get_json(path)).get("messages")
            if not isinstance(messages, list):
                raise CarrierError("Twilio's list of messages cannot be read", silent=True)
            dated = [(_created(each), each) for each in messages if isinstance(each, dict)]
            recent = [(at, message) for at, message in dated if at is None or at >= since]
            path = page.get("next_page_uri")
            # Twilio lists the newest messages first.
            if not recent or not isinstance(path, str) or not re.match(r"/(?!/)", path):
                path = None
            yield recent, path
            if path is None:
                break

    def check(self) -> None:
        """Ask for the account, or for the latest message if an API key may not see the account."""
        if self._is_key:
            self.get_json(f"{self._account}/Messages.json?PageSize=1")
            return
        status = self.get_json(f"{self._account}.json").get("status")
        if status not in ("active", None):
            words = status if status in ("suspended", "closed") else "not active"
            raise CarrierError(f"Twilio: the account is {words}", Fault.ACCOUNT)

    def balance(self) -> str | None:
        self.check()
        with suppress(CarrierError):  # not every key may see it, and a subaccount has none
            told = self.get_json(f"{self._account}/Balance.json")
            return balance(told.get("balance"), told.get("currency"))

    def callback(self, request: Callback) -> list[Report]:
        form = self._genuine(request)
        ids = self._message_ids(request, form)
        if request.kind == "inbound":
            if _may_be_split_anew(form):
                raise NotGenuine
            word = form.get("OptOutType", "").upper()
            word = word if word in ("STOP", "START", "HELP") else None
            number, text = form.get("From", ""), form.get("Body")
            return opt_outs.replies(number, text, message_ids=ids, word=word)
        sid = form.get("MessageSid") or form.get("SmsSid")
        status = form.get("MessageStatus") or form.get("SmsStatus")
        code, to, given = form.get("ErrorCode", ""), form.get("To", ""), named(request.url)
        return self._report(sid, status, code, to, given=given, ids=ids)

    def is_named_in(self, request: Callback) -> bool:
        form = dict(parsed(request.body.decode()))
        number = form.get("To" if request.kind == "inbound" else "From")
        service = self._fields.get("MessagingServiceSid")
        return (
            form.get("MessagingServiceSid") == service
            if service
            else number == self._fields["From"]
        )

    def explained(self, code: int, otherwise: str) -> str:
        return super().explained(code, f"{otherwise}, see {ERRORS}{code}")

    def _message_ids(self, request, form):
        """Return what identifies a callback: the SID, and the signature.

        The signature is the same however the fields are divided.
        """
        if "MessageSid" not in "".join(f"{name}{form[name]}" for name in sorted(form)):
            return ()  # nor hidden in another field
        return self._ids(form.get("MessageSid"), request.headers["x-twilio-signature"])

    def _ids(self, *own):
        """Return what identifies an incoming text; several carriers may use the same account."""
        return tuple(f"{self._account_sid} {each}" for each in own if each)

    def _is_ours(self, message, to, text):
        """Return whether a listed message is this text, from our sender, and has not failed."""
        from_us = message.get("from") in (self._fields.get("From"), None)
        if service := self._fields.get("MessagingServiceSid"):
            from_us = message.get("messaging_service_sid") == service
        sent = from_us and message.get("to") == to and message.get("status") not in NEVER_SENT
        body = message.get("body")
        body = body.removeprefix(TRIAL) if isinstance(body, str) else ""
        return sent and self._is_same(body, text) and reference(message.get("sid"))

    def _is_same(self, body, text):
        """Return whether a body can be this text, as Twilio may have stored it."""
        if self._smart_encoding:
            return _letters(body) == _letters(text)
        return body.split() == text.split()

    def _genuine(self, request):
        """Return the fields of a callback, or raise NotGenuine.

        See https://www.twilio.com/docs/usage/security. Twilio signs the address sometimes with its
        port, sometimes without. Like Twilio's own libraries, accept both.
        """
        settings = request.headers.get("x-twilio-webhooks-signature-settings", "")
        named = re.search(r"\balgorithm=(\w+)", settings)
        algorithm = SIGNATURES.get(named[1].upper() if named else "HMAC_SHA1")
        if not (self._auth_token and algorithm):
            raise NotGenuine
        try:
            form = set(parsed(request.body.decode()))
        except ValueError:
            raise NotGenuine from None
        # Twilio signs a repeated field with the same value once. Other repeated fields and other
        # names could be forged from a captured callback: names and values are signed as one string.
        are_names = all(name.isascii() and name.isalnum() for name, _ in form)
        if len(dict(form)) < len(form) or not are_names:
            raise NotGenuine
        signed = "".join(f"{name}{value}" for name, value in sorted(form))
        given = request.headers.get("x-twilio-signature", "").encode(errors="replace")
        for url in _without_port_and_with(request.url):
            mac = hmac.new(self._auth_token.encode(), (url + signed).encode(), algorithm)
            if hmac.compare_digest(base64.b64encode(mac.digest()), given):
                return dict(form)
        raise NotGenuine

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer means."""
        code = _code(answer)
        if code is None:
            return self.refusal(answer)
        words = self.explained(code, "refused")
        reason = f"Twilio: {words} (HTTP {answer.status}, error {code})"
        meant = 429 if answer.status == 429 else code
        return self.refusal(answer, meant, reason)


def _code(answer):
    """Return Twilio's error code in an answer, or None."""
    code = answer.json().get("code")
    return code if type(code) is int and 0 < code < 1_000_000 else None


def _may_be_split_anew(form):
    """Return whether a reply could be forged from another one by splitting its fields elsewhere.

    A text can contain `STARTFrom+1…`: split after START, it would be a reply from that number. The
    sender's own `From` is then part of another field, since people choose nothing but the text.
    """
    others = "".join(f"{name}{form[name]}" for name in sorted(form) if name != "Body")
    return others.count("From") > sum(name in form for name in OF_SENDER)


def _letters(text):
    """Return what smart encoding leaves unchanged: letters without accents, digits and emoji."""
    plain = unicodedata.normalize("NFKD", text)
    return [each for each in plain if unicodedata.category(each) in KEPT_BY_ENCODING]


def _created(message):
    """Return when Twilio created a message, or None if that cannot be read."""
    try:
        created = parsedate_to_datetime(message["date_created"])
        return (created if created.tzinfo else created.replace(tzinfo=UTC)).astimezone(UTC)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _without_port_and_with(url):
    """Return an address without and with its port."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return [parts._replace(netloc=netloc).geturl() for netloc in (host, f"{host}:{port}")]
