"""Twilio's API, spoken directly."""

import base64
import json
import re
from urllib.parse import quote, unquote, urlencode

from carriers import CONNECT_TIMEOUT, LONGEST_ANSWER, Carrier, CarrierError, silence
from carriers.http import base_url, seconds, trusted

# Twilio's codes, https://www.twilio.com/docs/api/errors. For good is only what is wrong with this
# text or this recipient. What is wrong with the account (a token, a sender, a bill) would fail
# every queued text in one pass, so it is for now, as is every code that is not listed.
TWILIO_FOR_GOOD = {
    21211: "the number is not valid",
    21214: "the number cannot be reached",
    21217: "the number is not valid",
    21265: "the number is a short code",
    21266: "the number is the sender's own",
    21408: "texts to the recipient's country are not enabled for the account",
    21608: "a trial account only reaches verified numbers",
    21610: "the recipient has opted out",
    21612: "the number cannot be reached from this sender",
    21614: "the number takes no texts",
    21617: "the text is too long",
    21635: "the number is a landline",
}
TWILIO_FOR_NOW = {
    10001: "the account is not active",
    20003: "the account SID or the token is wrong",
    20005: "the account is not active",
    20404: "the account is not known",
    21212: "the sender is not valid",
    21606: "the sender cannot send texts",
    21659: "the sender is not a number of Twilio's",
    21660: "the sender is not a number of the account",
    21701: "the messaging service does not exist",
    21703: "the messaging service has no sender",
}
TWILIO_TOO_FAST = {
    14107: "the sender's rate is exceeded",
    20429: "too many requests",
    21611: "the sender's queue is full",
    30022: "the sender's rate is exceeded",
    63038: "the account's daily limit is reached",
}
TWILIO_REASONS = TWILIO_FOR_GOOD | TWILIO_FOR_NOW | TWILIO_TOO_FAST
TWILIO_OPTED_OUT = 21610


class Twilio(Carrier):
    """Twilio's API: `twilio://ACCOUNT_SID:AUTH_TOKEN@FROM`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, an alphanumeric sender or the SID of a
    messaging service. `?base_url=` (percent-encoded or not) names a region or a test server.
    Proxies that the environment names are not used.
    """

    def __init__(self, url, concurrency, timeout):
        import urllib3  # here and below: a scheduler with nothing to send does not pay for it

        parts, _, query = url.partition("://")[2].partition("?")
        credentials, _, sender = parts.rpartition("@")
        sid, token, sender = map(unquote, (*credentials.partition(":")[::2], sender))
        if not (sid and token):
            raise ValueError("twilio://ACCOUNT_SID:AUTH_TOKEN@FROM lacks the SID or the token")
        if re.fullmatch(r"MG[0-9a-fA-F]{32}", sender):
            self._sender = {"MessagingServiceSid": sender}
        elif re.fullmatch(r"\+[1-9]\d{6,14}|\d{3,8}|(?=.*[A-Za-z])[\w &+-]{1,11}", sender, re.A):
            self._sender = {"From": sender}
        else:
            raise ValueError("FROM in twilio://…@FROM is no +number, short code, name or MG… SID")
        base = base_url(query)
        account = f"/2010-04-01/Accounts/{quote(sid, safe='')}"
        self._path = f"{base.path.rstrip('/')}{account}/Messages.json"
        login = base64.b64encode(f"{sid}:{token}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {login}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        silence("urllib3")
        self._pool = urllib3.connection_from_url(
            f"{base.scheme}://{base.netloc}",
            maxsize=concurrency,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            retries=False,
            **({"ssl_context": trusted()} if base.scheme == "https" else {}),
        )

    def send(self, to, text, **_):
        from urllib3 import exceptions

        body = urlencode({"To": to, **self._sender, "Body": text})
        try:
            response = self._pool.urlopen(
                "POST", self._path, body, self._headers, redirect=False, preload_content=False
            )
        except (exceptions.ConnectTimeoutError, exceptions.NewConnectionError, exceptions.SSLError):
            raise CarrierError("Twilio cannot be reached") from None
        except exceptions.HTTPError:
            raise CarrierError("Twilio gave no answer; it may have taken the text") from None
        try:
            answer = response.read(LONGEST_ANSWER)
        except exceptions.HTTPError:
            answer = b""
        finally:
            response.close()  # a connection whose answer was read whole is in the pool already
        return self._judge(response.status, answer, response.headers.get("Retry-After"))

    @staticmethod
    def _judge(status, answer, retry_after):
        """Return the reference in Twilio's answer, or raise what the answer means."""
        try:
            answer = json.loads(answer)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        sid, code = answer.get("sid"), answer.get("code")
        # 201 means taken, whatever became of the rest: sending again would be a second text.
        # Any other 2xx is Twilio's only if it has a SID; a captive portal says 200, too.
        if status == 201 or (sid and 200 <= status < 300):
            return sid if isinstance(sid, str) else None
        if type(code) is not int:
            code = None
        if code is None:
            reason = f"no usable answer (HTTP {status})"
        else:
            reason = f"{TWILIO_REASONS.get(code, 'refused')} (HTTP {status}, error {code})"
        for_good = code in TWILIO_FOR_GOOD
        too_fast = not for_good and (status == 429 or code in TWILIO_TOO_FAST)
        raise CarrierError(
            f"Twilio: {reason}",
            permanent=for_good,
            too_fast=too_fast,
            retry_after=seconds(retry_after) if too_fast else None,
            opted_out=code == TWILIO_OPTED_OUT,
        )
