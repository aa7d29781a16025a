"""Twilio's Messages API."""

import base64
import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from carriers import Callback, Carrier, CarrierError, NotGenuine, OptOut, Receipt, opt_outs
from carriers.http import MOST_FIELDS, SENDER, Client, account_url, base_url, basic, reference

# Twilio's error codes (https://www.twilio.com/docs/api/errors), grouped by what to do about them.
# A code that is not listed is temporary: it costs a retry, but the text is not given up at once.
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
# These may mean that the sender does not reach the recipient's country. While the sender serves
# other recipients, they are not about the account.
BY_COUNTRY = {21606, 21703}
TOO_FAST = {
    14107: "the sender's rate is exceeded",
    20429: "too many requests",
    21611: "the sender's queue is full",
    30022: "the sender's rate is exceeded",
    63038: "the account's daily limit is reached",
}
# Codes in status callbacks.
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
NEVER_SENT = {"failed", "canceled"}  # Twilio gave these to no network
TRIAL = "Sent from your Twilio trial account - "  # prefix of a trial account's texts
PAGE, PAGES, LONGEST_PAGE = 100, 20, 4 * 1024 * 1024  # messages, pages, bytes in Twilio's list
SKEW = timedelta(minutes=1)  # between Twilio's clock and this machine's
SIGNATURES = {"HMAC_SHA1": hashlib.sha1, "HMAC_SHA256": hashlib.sha256}


class Twilio(Carrier):
    """Send through `twilio://ACCOUNT_SID:AUTH_TOKEN@FROM`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, an alphanumeric sender or the SID of a
    messaging service. The options are `base_url`, for a region or a test server, `account` and
    `auth_token`. With an API key, `twilio://SK…:SECRET@FROM?account=AC…`, callbacks can only be
    verified with `auth_token`, because Twilio signs them with it.
    """

    name = "twilio"
    can_be_asked = True

    def __init__(self, url: str, concurrency: int, timeout: float, public_url: str | None = None):
        user, password, sender, options = account_url(url, {"base_url", "account", "auth_token"})
        if re.fullmatch(r"MG[0-9a-fA-F]{32}", sender):
            # The service's "smart encoding" would replace characters.
            self._sender = {"MessagingServiceSid": sender, "SmartEncoded": "false"}
        elif re.fullmatch(rf"\+[1-9]\d{{6,14}}|{SENDER}", sender, re.ASCII):
            self._sender = {"From": sender}
        else:
            raise ValueError("FROM in twilio://…@FROM must be +number, short code, name or MG… SID")
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
                "twilio://SK… has no ?auth_token=, so callbacks cannot be verified: "
                "no receipts are asked for, and replies are refused"
            )
        self._client = Client("Twilio", base, concurrency, timeout)

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        validity = min(max(int(valid_for), SHORTEST_VALIDITY), LONGEST_VALIDITY)
        form = {"To": to, **self._sender, "Body": text, "ValidityPeriod": validity, **self._status}
        headers = {**self._login, "Content-Type": "application/x-www-form-urlencoded"}
        answer = self._client.ask(
            "POST", f"{self._account}/Messages.json", urlencode(form), headers
        )
        sid, code = reference(answer.json().get("sid")), _code(answer)
        success = 200 <= answer.status < 300
        # A 201 without a SID is a yes, too: sending again would make a second text.
        if (sid and success) or (answer.status == 201 and code is None):
            self._client.note_served()
            return sid
        # A gateway answers 502 or 504 if it got no answer from Twilio.
        unclear = success or answer.status in (502, 504)
        raise self._refusal(answer, in_doubt=unclear and code is None)

    def find(self, to: str, text: str, since: datetime) -> list[str]:
        """Return the SIDs of all equal texts that Twilio took since an instant, the oldest first.

        Clocks differ, so texts that Twilio created up to a minute earlier count as well. Texts that
        Twilio itself failed to send do not count. White space is not compared: Twilio does not
        document how it stores it.
        """
        found, since = {}, (since - SKEW).replace(microsecond=0)  # Twilio lists whole seconds
        # Filtering by DateSent would miss queued messages, for which it is null.
        path = f"{self._account}/Messages.json?{urlencode({'To': to, 'PageSize': PAGE})}"
        for _ in range(PAGES):
            page = self._get(path)
            messages = page.get("messages")
            if not isinstance(messages, list):
                raise CarrierError("Twilio's list of messages cannot be read")
            any_recent = False
            for message in messages:
                created = _instant(message)
                if created is None or created < since:
                    continue
                any_recent = True
                if self._is_ours(message, to, text) and (sid := reference(message.get("sid"))):
                    found[sid] = created
            path = page.get("next_page_uri")
            # Twilio lists the newest messages first.
            if not any_recent or not isinstance(path, str) or not re.match(r"/(?!/)", path):
                break
        newest_first = sorted(found, key=found.get, reverse=True)
        return newest_first[::-1]

    def check(self) -> None:
        """Ask for the account, or for the latest message if an API key may not see the account."""
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
                    events.append(Receipt(sid, False, _reason(status, code)))
        number = opt_outs.e164(form.get("To", ""))
        if code == OPTED_OUT and number:
            events.append(OptOut(number, stop=True, source="carrier"))
        return events

    def close(self) -> None:
        self._client.close()

    def _get(self, path):
        """Return the JSON object at a path; raise CarrierError if the answer is not 200."""
        answer = self._client.ask("GET", path, None, self._login, LONGEST_PAGE)
        if answer.status != 200:
            raise self._refusal(answer)
        return answer.json()

    def _is_ours(self, message, to, text):
        """Return whether a listed message is this text, from our sender and not failed."""
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

        See https://www.twilio.com/docs/usage/security. Twilio signs the address sometimes with its
        port, sometimes without. Like Twilio's own libraries, accept both.
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
        # Twilio signs a repeated field with the same value once.
        signed = "".join(f"{name}{value}" for name, value in sorted(set(form)))
        given = request.headers.get("x-twilio-signature", "").encode(errors="replace")
        for url in _without_port_and_with(request.url):
            mac = hmac.new(self._auth_token.encode(), (url + signed).encode(), algorithm)
            if hmac.compare_digest(base64.b64encode(mac.digest()), given):
                return dict(form) | dict(parse_qsl(urlsplit(request.url).query))
        raise NotGenuine

    def _refusal(self, answer, in_doubt=False):
        """Return the CarrierError that an answer means."""
        code = _code(answer)
        account = code in ACCOUNT or (code is None and answer.status in (401, 403, 404))
        if code in BY_COUNTRY and self._client.served_recently():
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
    """Return Twilio's error code in an answer, or None."""
    code = answer.json().get("code")
    return code if type(code) is int and 0 < code < 1_000_000 else None


def _reason(status, code):
    """Return why a text was not delivered."""
    if code is None:
        return f"Twilio: {status}"
    return f"Twilio: {UNDELIVERED.get(code) or REASONS.get(code, status)} (error {code})"


def _reply(form):
    """Return the opt-out in an incoming text; Twilio's own reading, OptOutType, comes first."""
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
    """Return the name of a callback's signature algorithm; the default is HMAC_SHA1."""
    named = re.search(r"\balgorithm=(\w+)", headers.get("x-twilio-webhooks-signature-settings", ""))
    return named[1].upper() if named else "HMAC_SHA1"


def _without_port_and_with(url):
    """Return an address without its port and with it."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return [parts._replace(netloc=netloc).geturl() for netloc in (host, f"{host}:{port}")]
