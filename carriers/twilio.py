"""Twilio's API, spoken directly."""

import base64
import hashlib
import hmac
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from carriers import Callback, Carrier, CarrierError, NotGenuine, OptOut, Receipt, opt_outs
from carriers.http import Client, account_url, base_url, basic, reference

# Twilio's codes, https://www.twilio.com/docs/api/errors, by what they ask of the sender. A code
# that is listed nowhere is for now: it costs a retry, and no text is given up for it at once.
FOR_GOOD = {
    21211: "the number is not valid",
    21214: "the number cannot be reached",
    21217: "the number is not valid",
    21265: "the number is a short code",
    21266: "the number is the sender's own",
    21268: "the number is a premium-rate one",
    21408: "texts to the recipient's country are not enabled for the account",
    21602: "the text is empty",
    21605: "the text is too long",
    21608: "a trial account only reaches verified numbers",
    21610: "the recipient has opted out",
    21612: "the number cannot be reached from this sender",
    21614: "the number takes no texts",
    21617: "the text is too long",
    21618: "the text cannot be sent",
    21635: "the number is a landline",
}
ACCOUNT = {
    10001: "the account is not active",
    20003: "the account SID or the token is wrong",
    20005: "the account is not active",
    20006: "access is denied",
    20008: "these are test credentials",
    20010: "the account may not do this",
    20403: "the account may not do this",
    20404: "the account is not known",
    21212: "the sender is not valid",
    21267: "a trial account has no alphanumeric sender",
    21601: "the sender is not a number of Twilio's",
    21606: "the sender cannot send texts",
    21607: "a trial account has only its trial number as sender",
    21609: "PUBLIC_URL is no address that Twilio calls",
    21616: "the sender is ambiguous",
    21657: "the sender is not valid",
    21659: "the sender is not a number of Twilio's",
    21660: "the sender is not a number of the account",
    21661: "the sender cannot send texts",
    21701: "the messaging service does not exist",
    21702: "the messaging service is not available",
    21703: "the messaging service has no sender",
    21704: "the messaging service has no sender",
    21705: "the messaging service is not valid",
    90010: "the account is not active",
}
# These may be about the recipient's country alone, which this sender does not reach. While others
# are texted from it, they say nothing against the account.
BY_COUNTRY = {21606, 21703}
RECENTLY = 600  # seconds
TOO_FAST = {
    14107: "the sender's rate is exceeded",
    20429: "too many requests",
    21611: "the sender's queue is full",
    30022: "the sender's rate is exceeded",
    63038: "the account's daily limit is reached",
}
# Codes that come later, in a status.
UNDELIVERED = {
    30001: "Twilio's queue was full",
    30002: "the account was suspended",
    30003: "the phone was not reachable",
    30004: "the recipient blocks texts",
    30005: "the number is not in service",
    30006: "the number is a landline, or its network is not reachable",
    30007: "filtered as unwanted",
    30008: "for a reason that is not known",
    30034: "the sender is not registered",
    30036: "it was too old before its turn came",
}
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | UNDELIVERED
OPTED_OUT = 21610

SHORTEST_VALIDITY, LONGEST_VALIDITY = 1, 36_000  # seconds; error 21624 otherwise
NEVER_SENT = {"failed", "canceled"}  # Twilio had it, and gave it to no network
TRIAL = "Sent from your Twilio trial account - "  # stands before a trial account's texts
PAGE, PAGES, LONGEST_PAGE = 100, 20, 4 * 1024 * 1024  # of Twilio's list; the last in bytes
SKEW = timedelta(minutes=1)  # between Twilio's clock and this machine's
MOST_FIELDS = 200  # in a callback; Twilio's have some twenty
SIGNATURES = {"HMAC_SHA1": hashlib.sha1, "HMAC_SHA256": hashlib.sha256}


class Twilio(Carrier):
    """Twilio's API: `twilio://ACCOUNT_SID:AUTH_TOKEN@FROM`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, an alphanumeric sender or the SID of a
    messaging service. Options, `?base_url=&account=&auth_token=`: `base_url` names a region or a
    test server. With an API key, `twilio://SK…:SECRET@FROM?account=AC…`, `auth_token` is needed
    to tell genuine callbacks, because it is what Twilio signs them with.
    """

    name = "twilio"
    can_be_asked = True

    def __init__(self, url: str, concurrency: int, timeout: float, public_url: str | None = None):
        user, password, sender, options = account_url(url, {"base_url", "account", "auth_token"})
        if re.fullmatch(r"MG[0-9a-fA-F]{32}", sender):
            # A service's own "smart encoding" would send other characters than those it was given
            self._sender = {"MessagingServiceSid": sender, "SmartEncoded": "false"}
        elif re.fullmatch(r"\+[1-9]\d{6,14}|\d{3,8}|(?=.*[A-Za-z])[\w &+-]{1,11}", sender, re.A):
            self._sender = {"From": sender}
        else:
            raise ValueError("FROM in twilio://…@FROM is no +number, short code, name or MG… SID")
        is_key = user.startswith("SK")
        if is_key and "account" not in options:
            raise ValueError("twilio://SK… is an API key, which needs its account: ?account=AC…")
        account = options.get("account", user)
        base = base_url(options.get("base_url", "https://api.twilio.com"))
        self._account = f"/2010-04-01/Accounts/{quote(account, safe='')}"
        self._is_key = is_key
        self._login = {**basic(user, password), "Accept": "application/json"}
        self._auth_token = options.get("auth_token", None if is_key else password)
        self._status = {}
        if public_url and self._auth_token:
            self._status = {"StatusCallback": f"{public_url}/carriers/twilio/status"}
        elif public_url:
            self.warning = (
                "twilio://SK… has no ?auth_token=, without which callbacks cannot be told genuine: "
                "no receipts are asked for, and replies are refused"
            )
        self._client = Client("Twilio", base, concurrency, timeout)
        self._served_until = 0.0  # by time.monotonic(): the sender is known to serve

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        validity = min(max(int(valid_for), SHORTEST_VALIDITY), LONGEST_VALIDITY)
        form = {"To": to, **self._sender, "Body": text, "ValidityPeriod": validity, **self._status}
        headers = {**self._login, "Content-Type": "application/x-www-form-urlencoded"}
        answer = self._client.ask(
            "POST", f"{self._account}/Messages.json", urlencode(form), headers
        )
        # 201 means taken, unless there is an error in it: sending again would be a second text.
        sid = reference(answer.json().get("sid"))
        if (sid and 200 <= answer.status < 300) or (answer.status == 201 and _code(answer) is None):
            self._served_until = time.monotonic() + RECENTLY
            return sid
        # In doubt is what says neither yes nor no, or a gateway that itself got no answer.
        unclear = 200 <= answer.status < 300 or answer.status in (502, 504)
        raise self._refusal(answer, in_doubt=unclear and _code(answer) is None)

    def find(self, to: str, text: str, since: datetime) -> list[str]:
        """Return the SIDs of all texts like this that Twilio took since an instant.

        The oldest first. Those count that Twilio created up to a minute before, because clocks
        differ, and that it has not itself failed to send. White space does not count: Twilio does
        not document how it keeps it.
        """
        found, since = {}, (since - SKEW).replace(microsecond=0)  # Twilio's are whole seconds
        # DateSent is no filter to use: it is null for what is queued.
        path = f"{self._account}/Messages.json?{urlencode({'To': to, 'PageSize': PAGE})}"
        for _ in range(PAGES):
            page = self._get(path)
            messages = page.get("messages")
            if not isinstance(messages, list):
                raise CarrierError("Twilio's list of messages cannot be read")
            young = False
            for message in messages:
                created = _instant(message)
                if created is None or created < since:
                    continue
                young = True
                if self._is_ours(message, to, text) and (sid := reference(message.get("sid"))):
                    found[sid] = created
            path = page.get("next_page_uri")
            if not young or not isinstance(path, str) or not re.match(r"/(?!/)", path):
                break  # the newest come first
        return sorted(found, key=found.get, reverse=True)[::-1]

    def check(self) -> None:
        """Ask for the account; with an API key, which may not, for the latest message."""
        if self._is_key:
            self._get(f"{self._account}/Messages.json?PageSize=1")
        elif (status := self._get(f"{self._account}.json").get("status")) not in ("active", None):
            words = status if status in ("suspended", "closed") else "not active"
            raise CarrierError(f"Twilio: the account is {words}", account=True)

    def callback(self, request: Callback) -> list[Receipt | OptOut]:
        form = self._genuine(request)
        if request.kind == "inbound":
            return _reply(form)
        code = form.get("ErrorCode", "")
        code = int(code) if re.fullmatch(r"[1-9]\d{0,6}", code, re.ASCII) else None
        events = []
        if sid := reference(form.get("MessageSid") or form.get("SmsSid")):
            match form.get("MessageStatus") or form.get("SmsStatus"):
                case "delivered" | "read":
                    events.append(Receipt(sid, True))
                case "undelivered" | "failed" | "canceled" as status:
                    events.append(Receipt(sid, False, _words(status, code)))
        number = opt_outs.e164(form.get("To", ""))
        if code == OPTED_OUT and number:
            events.append(OptOut(number, stop=True, source="carrier"))
        return events

    def close(self) -> None:
        self._client.close()

    def _get(self, path):
        """Return the JSON object at a path, or raise what the answer means."""
        answer = self._client.ask("GET", path, None, self._login, LONGEST_PAGE)
        if answer.status != 200:
            raise self._refusal(answer)
        return answer.json()

    def _is_ours(self, message, to, text):
        """Say whether a message in Twilio's list is this text, taken from us and not failed."""
        if message.get("to") != to or message.get("status") in NEVER_SENT:
            return False
        if service := self._sender.get("MessagingServiceSid"):
            if message.get("messaging_service_sid") != service:
                return False
        elif message.get("from") not in (self._sender["From"], None):
            return False
        body = message.get("body")
        body = body.removeprefix(TRIAL) if isinstance(body, str) else ""
        return body.split() == text.split()

    def _genuine(self, request):
        """Return the fields of a callback, or raise NotGenuine.

        https://www.twilio.com/docs/usage/security. Like Twilio's own libraries, take the address
        with its port and without: what Twilio signs differs.
        """
        algorithm = SIGNATURES.get(_algorithm(request.headers))
        if not (self._auth_token and algorithm):
            raise NotGenuine
        try:
            form = parse_qsl(
                request.body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS
            )
        except ValueError:
            raise NotGenuine from None
        # A field that comes twice with one value is signed once.
        signed = "".join(f"{name}{value}" for name, value in sorted(set(form)))
        given = request.headers.get("x-twilio-signature", "").encode(errors="replace")
        for url in _with_port_and_without(request.url):
            mac = hmac.new(self._auth_token.encode(), (url + signed).encode(), algorithm)
            if hmac.compare_digest(base64.b64encode(mac.digest()), given):
                return dict(form) | dict(parse_qsl(urlsplit(request.url).query))
        raise NotGenuine

    def _refusal(self, answer, in_doubt=False):
        """Return the CarrierError that an answer means."""
        code = _code(answer)
        account = code in ACCOUNT or (code is None and answer.status in (401, 403, 404))
        if code in BY_COUNTRY and time.monotonic() < self._served_until:
            account = False
        words = f"{REASONS.get(code, 'refused')} (HTTP {answer.status}, error {code})"
        if code is None:
            words = f"no usable answer (HTTP {answer.status})"
        return CarrierError(
            f"Twilio: {words}",
            permanent=code in FOR_GOOD,
            opted_out=code == OPTED_OUT,
            too_fast=code in TOO_FAST or (code not in REASONS and answer.status == 429),
            retry_after=answer.retry_after,
            account=account,
            in_doubt=in_doubt,
        )


def _code(answer):
    """Return Twilio's code in an answer, or None."""
    code = answer.json().get("code")
    return code if type(code) is int and 0 < code < 1_000_000 else None


def _words(status, code):
    """Return why a text was not delivered."""
    if code is None:
        return f"Twilio: {status}"
    return f"Twilio: {UNDELIVERED.get(code) or REASONS.get(code, status)} (error {code})"


def _reply(form):
    """Return what an incoming text says of texts; OptOutType is Twilio's own reading of it."""
    stop = {"STOP": True, "START": False, "HELP": None}.get(
        form.get("OptOutType", "").upper(), opt_outs.read(form.get("Body", ""))
    )
    number = opt_outs.e164(form.get("From", ""))
    return [OptOut(number, stop, "reply")] if number and stop is not None else []


def _instant(message):
    """Return when Twilio created a message, or None."""
    try:
        created = parsedate_to_datetime(message["date_created"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return created if created.tzinfo else created.replace(tzinfo=UTC)


def _algorithm(headers):
    """Return the algorithm of a callback's signature, which is HMAC_SHA1 unless one is named."""
    named = re.search(r"\balgorithm=(\w+)", headers.get("x-twilio-webhooks-signature-settings", ""))
    return named[1].upper() if named else "HMAC_SHA1"


def _with_port_and_without(url):
    """Return both forms of an address."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return [parts._replace(netloc=netloc).geturl() for netloc in (host, f"{host}:{port}")]
