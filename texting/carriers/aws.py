"""AWS End User Messaging: its API `pinpoint-sms-voice-v2`, and what SNS tells of its texts.

AWS keeps no ids and lists no texts, but each of its events repeats our `Context`: within seconds,
one shows that AWS has a text in doubt.
"""

import base64
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from texting.carriers import (
    Callback,
    CannotVerify,
    CarrierError,
    Codes,
    NotGenuine,
    Outgoing,
    Report,
    opt_outs,
    urls,
)
from texting.carriers.http import (
    HttpCarrier,
    Response,
    as_object,
    check_age,
    instant,
    objects,
    reference,
)

# Reasons of refusals, fields of the request that are not valid, and types of errors
# (https://docs.aws.amazon.com/pinpoint/latest/apireference_smsvoicev2/API_SendTextMessage.html)
NO_ROUTE = {
    "COUNTRY_NOT_ENABLED": "the recipient's country is not enabled",
    "DESTINATION_COUNTRY_BLOCKED": "the recipient's country is blocked",
    "DESTINATION_COUNTRY_BLOCKED_BY_PROTECT_CONFIGURATION": "the recipient's country is blocked",
    "INTERNATIONAL_SENDING_NOT_SUPPORTED": "the sender reaches only its own country",
    "INVALID_IDENTITY_FOR_DESTINATION_COUNTRY": "the sender does not reach this country",
    "NO_ORIGINATION_IDENTITIES_FOUND": "no sender reaches this country",
    "NUMBER_CAPABILITIES_MISMATCH": "the sender cannot send texts",
    "SENDER_ID_NOT_REGISTERED": "the sender is not registered in this country",
    "SENDER_ID_NOT_SUPPORTED": "this country allows no names",
    "SENDER_ID_REQUIRES_REGISTRATION": "the sender is not registered in this country",
}
FOR_GOOD = NO_ROUTE | {
    "DESTINATION_PHONE_NUMBER_OPTED_OUT": "the recipient has opted out",
    "DESTINATION_PHONE_NUMBER_BLOCKED_BY_PROTECT_NUMBER_OVERRIDE": "the number is blocked",
    "DESTINATION_PHONE_NUMBER_NOT_VERIFIED": "a sandbox only reaches verified numbers",
    "PRICE_OVER_THRESHOLD": "the text is too expensive",
    "DestinationPhoneNumber": "the number is not valid",
    "MessageBody": "the text is not valid",
}
ACCOUNT = {
    "AccessDeniedException": "the key may not send texts",
    "ACCOUNT_DISABLED": "the account is disabled",
    "INSUFFICIENT_ACCOUNT_REPUTATION": "the account has a bad reputation",
    "MONTHLY_SPEND_LIMIT_REACHED_FOR_TEXT": "the account's spend limit is reached",
    "ServiceQuotaExceededException": "a limit of the account is reached",
    "ResourceNotFoundException": "there is no such sender or configuration set",
    "RESOURCE_NOT_ACTIVE": "the sender is not active",
    "KEYWORD_MISMATCH": "the sender's keyword is another",
    "MESSAGE_TYPE_MISMATCH": "the sender is not for transactional texts",
    "OriginationIdentity": "the sender is not valid",
    "ConfigurationSetName": "the configuration set is not valid",
    "UnrecognizedClientException": "there is no such key",
    "InvalidSignatureException": "the secret key is wrong, or this machine's clock",
    "IncompleteSignature": "the key is wrong",
    "ExpiredTokenException": "the key has expired",
}
TOO_FAST = {"ThrottlingException": "too many requests"}
UNKNOWN = {"InternalServerException": "an error of AWS's"}  # AWS itself does not know
REASONS = FOR_GOOD | ACCOUNT | TOO_FAST | UNKNOWN
FIELDS = ("DestinationPhoneNumber", "MessageBody", "OriginationIdentity", "ConfigurationSetName")

SHORTEST_VALIDITY, LONGEST_VALIDITY = 5, 259_200  # seconds
# AWS's simulator number in the United States, for a dry run
# (https://docs.aws.amazon.com/sms-voice/latest/userguide/test-phone-numbers.html)
TESTED = "+14254147755"
OLDEST_CALLBACK = 24 * 3600  # seconds
LONGEST_FETCH = 10  # seconds that a certificate, or the answer to a confirmation, is waited for
MOST_CERTIFICATES = 10
ARN = re.compile(r"arn:aws[a-z-]*:sns:(?P<region>[a-z0-9-]+):\d{12}:[\w-]{1,256}", re.ASCII)
CERTIFICATE = re.compile(r"(/[\w-]+)+\.pem", re.ASCII)
CONFIRMATION = re.compile(r"/[!-~]*", re.ASCII)
ENVELOPE = {  # what SNS signs, by the type of its message
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    **dict.fromkeys(
        ("SubscriptionConfirmation", "UnsubscribeConfirmation"),
        ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    ),
}


class Aws(HttpCarrier):
    """Send through `aws://KEY_ID:SECRET@FROM?region=…`, each part percent-encoded or not.

    FROM is a number with its plus sign, a short code, a name, or the id or ARN of a number or a
    pool. `set` is the configuration set whose events are receipts, `topics` are the ARNs of the SNS
    topics that may call back. `base_url` is for a test server, which plays SNS as well.
    """

    name, title = "aws", "AWS"
    shows_within = timedelta(minutes=5)
    callback_methods = ("POST",)
    delivered = ("TEXT_DELIVERED", "TEXT_SUCCESSFUL")
    failed = (
        *("TEXT_INVALID", "TEXT_INVALID_MESSAGE", "TEXT_UNREACHABLE", "TEXT_CARRIER_UNREACHABLE"),
        *("TEXT_BLOCKED", "TEXT_CARRIER_BLOCKED", "TEXT_SPAM", "TEXT_TTL_EXPIRED"),
        "TEXT_PROTECT_BLOCKED",
    )
    codes = Codes(FOR_GOOD, ACCOUNT, TOO_FAST, NO_ROUTE, {"DESTINATION_PHONE_NUMBER_OPTED_OUT"})
    options: ClassVar = {"region": None, "set": None, "topics": None, "base_url": None}

    def __init__(self, url: str, concurrency: int, timeout: float, callbacks: str | None):
        self._login, from_, options = urls.account(url, self.options, "KEY_ID:SECRET")
        self._region, topics = options["region"] or "", options["topics"]
        if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", self._region):
            raise ValueError("aws://… needs its region, like region=us-east-1")
        if not re.fullmatch(
            r"\+[1-9]\d{6,14}|\d{3,8}|(?=.*[A-Za-z])[\w:/-]{1,256}", from_, re.ASCII
        ):
            raise ValueError("FROM in aws://…@FROM must be +number, short code, name, id or ARN")
        self._from, self._fields = from_, {"OriginationIdentity": from_}
        if name := options["set"]:
            if not re.fullmatch(r"[\w:/-]{1,256}", name, re.ASCII):
                raise ValueError("set in aws://… must be the name of a configuration set")
            self._fields["ConfigurationSetName"] = name
        self._topics = topics.split(",") if topics else []
        arns = [ARN.fullmatch(each) for each in self._topics]
        if not all(arn and arn["region"] == self._region for arn in arns):
            raise ValueError("topics in aws://… must be ARNs of SNS topics in its region")
        name = from_.rpartition(":sender-id/")[2].partition("/")[0]
        is_name = re.fullmatch(r"[\w-]{1,11}", name, re.ASCII)
        self._receipts("", callbacks, topics, "topics", name if is_name else "")
        if self.tells_receipts and not options["set"]:
            self.tells_receipts = False
            self.warn("aws://… has no ?set=, so no receipts come")
        own = options["base_url"]
        base = urls.base(own or f"https://sms-voice.{self._region}.amazonaws.com")
        super().__init__(base, {}, concurrency, timeout)
        sns = urls.base(own or f"https://sns.{self._region}.amazonaws.com")._replace(path="")
        self._sns = Sns(sns, {}, 1, min(timeout, LONGEST_FETCH))

    def send(self, outgoing: Outgoing) -> str | None:
        lasts = min(max(int(outgoing.valid_for), SHORTEST_VALIDITY), LONGEST_VALIDITY)
        answer = self._send_text(
            DestinationPhoneNumber=outgoing.to,
            MessageBody=outgoing.text,
            TimeToLive=lasts,
            Context={"m": outgoing.message_id},
        )
        ref = reference(answer.json().get("MessageId"))
        if ref and answer.success:
            return ref
        raise self.error_of(answer)

    def check(self) -> None:
        """Have AWS check a text that it does not send.

        A refusal of that text alone is none of the account.
        """
        try:
            answer = self._send_text(DestinationPhoneNumber=TESTED, MessageBody="?", DryRun=True)
            if answer.status == 200 and answer.body.lstrip()[:1] == b"{":
                return
            raise self.error_of(answer)
        except CarrierError as error:
            error.in_doubt = False
            if not error.permanent:
                raise

    def _send_text(self, **fields):
        body = json.dumps(self._fields | {"MessageType": "TRANSACTIONAL"} | fields)
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "host": self._base.netloc,
            "x-amz-target": "PinpointSMSVoiceV2.SendTextMessage",
        }
        path = f"{self._base.path.rstrip('/')}/"
        signed = signature(self._login, self._region, path, headers, body, datetime.now(UTC))
        return self.ask("POST", "/", body, self.headers | headers | signed)

    def callback(self, request: Callback) -> list[Report]:
        told = self._genuine(request)
        if told["Type"] == "SubscriptionConfirmation":
            self._sns.confirm(told["SubscribeURL"])
        content = _content(told)
        if "eventType" in content:
            return self._event(content)
        number, text = str(content.get("originationNumber")), content.get("messageBody")
        id = reference(content.get("inboundMessageId")) or reference(told["MessageId"])
        if not isinstance(text, str):
            return []
        word = "STOP" if text.strip().casefold() == "td" else None  # one of AWS's own
        ids = (f"aws {id}",) if id else ()
        return opt_outs.replies(number, text, instant(told["Timestamp"]), ids, word)

    def _event(self, content):
        """Return what an event says of a text; most are not the last."""
        kind, context = content["eventType"], content.get("context")
        if kind == "TEXT_SUCCESSFUL" and content.get("isFinal") is not True:
            kind = "TEXT_PENDING"
        given = as_object(context).get("m")
        given = given if isinstance(given, str) else None
        kind = kind if reference(kind) else None
        return self._report(content.get("messageId"), kind, "", "", given=given)

    def is_named_in(self, request: Callback) -> bool:
        content = _content(self._genuine(request))
        return self._from in (
            content.get("originationPhoneNumber"),
            content.get("destinationNumber"),
        )

    def _genuine(self, request):
        """Return SNS's message in a callback, or raise NotGenuine.

        Nothing is fetched before everything else is as it must be. See
        https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html.
        """
        try:
            told = as_object(json.loads(request.body))
        except (ValueError, RecursionError):
            raise NotGenuine from None
        if told.get("TopicArn") not in self._topics or told.get("SignatureVersion") != "2":
            raise NotGenuine
        names = ENVELOPE.get(str(told.get("Type")), ())
        names = [name for name in names if name != "Subject" or told.get(name) is not None]
        needed = {*names, "Signature", "SigningCertURL"}
        if not names or not all(isinstance(told.get(name), str) for name in needed):
            raise NotGenuine
        # Names and values are signed as lines: other values could have the same signature
        lines = [told[name] for name in names if name != "Message"]
        if any("\n" in each for each in lines) or "\nMessageId\n" in told["Message"]:
            raise NotGenuine
        at = instant(told["Timestamp"])
        check_age(str(int(at.timestamp())) if at else "", OLDEST_CALLBACK)
        if "SubscribeURL" in names:
            self._sns.path_of(told["SubscribeURL"], CONFIRMATION)
        try:
            given = base64.b64decode(told["Signature"], validate=True)
            signed = "".join(f"{name}\n{told[name]}\n" for name in names).encode()
        except ValueError:
            raise NotGenuine from None
        self._sns.verify(told["SigningCertURL"], given, signed)
        return told

    def error_of(self, answer: Response) -> CarrierError:
        """Return the CarrierError that an answer means."""
        content = answer.json()
        kind = str(content.get("__type", "")).rpartition("#")[2]
        if not re.fullmatch("[A-Za-z]{1,64}", kind):
            return self.refusal(answer)
        said = [*_said(content), kind]
        is_word = re.fullmatch("[A-Z_]{1,64}", said[0])
        code = next((each for each in said if each in REASONS), said[0] if is_word else kind)
        reason = f"AWS: {REASONS.get(code, 'refused')} (HTTP {answer.status}, {code})"
        meant = "ThrottlingException" if answer.status in (429, 503) else code
        return self.refusal(answer, meant, reason, in_doubt=meant in UNKNOWN)

    def close(self) -> None:
        super().close()
        self._sns.close()


class Sns(HttpCarrier):
    """SNS of one region: it gives its certificates, and is told that a subscription is wanted."""

    title = "SNS"

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._lock, self._certificates, self._confirmed = threading.Lock(), {}, set()

    def path_of(self, url: str, pattern: re.Pattern) -> str:
        """Return the path and query of an address of SNS; raise NotGenuine for any other."""
        host = f"{self._base.scheme}://{self._base.netloc}"
        rest = url.removeprefix(host)
        if rest == url or not pattern.fullmatch(rest):
            raise NotGenuine
        return rest

    def confirm(self, url: str) -> None:
        """Confirm a subscription, once; raise CannotVerify if that does not work now."""
        path = self.path_of(url, CONFIRMATION)
        with self._lock:
            if path not in self._confirmed:
                if not self._fetch(path).success:
                    raise CannotVerify
                self._confirmed.add(path)

    def verify(self, url: str, given: bytes, signed: bytes) -> None:
        """Raise NotGenuine unless the key of the certificate at an address signed these bytes."""
        from cryptography.exceptions import InvalidSignature  # here: others need not pay for it
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
        from cryptography.hazmat.primitives.hashes import SHA256

        certificate = self._certificate(self.path_of(url, CERTIFICATE))
        now = datetime.fromtimestamp(time.time(), UTC)
        is_valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
        key = certificate.public_key()
        if not (is_valid and isinstance(key, rsa.RSAPublicKey)):
            raise NotGenuine
        try:
            key.verify(given, signed, padding.PKCS1v15(), SHA256())
        except InvalidSignature:
            raise NotGenuine from None

    def _certificate(self, path):
        """Return the certificate at a path; each is fetched once, and holds up no other."""
        from cryptography.x509 import load_pem_x509_certificate

        if known := self._certificates.get(path):
            return known
        with self._lock:
            if path not in self._certificates:
                answer = self._fetch(path)
                if answer.status != 200:
                    raise NotGenuine
                try:
                    certificate = load_pem_x509_certificate(answer.body)
                except ValueError:
                    raise NotGenuine from None
                if len(self._certificates) >= MOST_CERTIFICATES:
                    self._certificates.clear()
                self._certificates[path] = certificate
            return self._certificates[path]

    def _fetch(self, path):
        try:
            answer = self.ask("GET", path)
        except CarrierError:
            raise CannotVerify from None
        if answer.status >= 500:
            raise CannotVerify
        return answer


def signature(
    login: tuple[str, ...],
    region: str,
    path: str,
    headers: Mapping[str, str],
    body: str,
    at: datetime,
) -> dict[str, str]:
    """Return the headers that sign a POST (Signature Version 4).

    The names of `headers` are in lower case.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
    """
    key_id, secret = login
    date = f"{at:%Y%m%dT%H%M%SZ}"
    headers = {**headers, "x-amz-date": date}
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    hashed = hashlib.sha256(body.encode()).hexdigest()
    asked = f"POST\n{path}\n\n{lines}\n{names}\n{hashed}"
    scope = f"{date[:8]}/{region}/sms-voice/aws4_request"
    key = f"AWS4{secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    hashed = hashlib.sha256(asked.encode()).hexdigest()
    signed = hmac.digest(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}".encode(), "sha256")
    words = f"Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signed.hex()}"
    return {"x-amz-date": date, "Authorization": f"AWS4-HMAC-SHA256 {words}"}


def _said(content):
    """Return a refusal's reason, and the fields of the request that it calls invalid."""
    named = [str(each.get("Name")) for each in objects(content.get("Fields"))]
    found = [each for each in FIELDS if any(each.lower() in name.lower() for name in named)]
    return [str(content.get("Reason")), *found]


def _content(told):
    """Return the JSON object in a message of SNS's, or an empty one."""
    try:
        return as_object(json.loads(told["Message"]))
    except (ValueError, RecursionError):
        return {}
