"""AWS: its API, checked by botocore's model and signatures, and messages that SNS signs by RSA."""

import base64
import functools
import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import strategies as st

from carrier_servers import Answer, CarrierServer
from kits import NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

REGION = "us-east-1"
URL = f"aws://AKIDEXAMPLE:s3cret@+15005550006?region={REGION}"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:texts"
TOPICS = f"set=texts&topics={TOPIC},{TOPIC}-replies"
PEM = "/SimpleNotificationService-0123456789abcdef.pem"
YEAR = timedelta(days=365)
TYPES = {  # of errors, by their reasons
    "DESTINATION_PHONE_NUMBER_OPTED_OUT": "ConflictException",
    "DESTINATION_PHONE_NUMBER_NOT_VERIFIED": "ConflictException",
    "DESTINATION_PHONE_NUMBER_BLOCKED_BY_PROTECT_NUMBER_OVERRIDE": "ConflictException",
    "DESTINATION_COUNTRY_BLOCKED_BY_PROTECT_CONFIGURATION": "ConflictException",
    "NO_ORIGINATION_IDENTITIES_FOUND": "ConflictException",
    "NUMBER_CAPABILITIES_MISMATCH": "ConflictException",
    "RESOURCE_NOT_ACTIVE": "ConflictException",
    "KEYWORD_MISMATCH": "ConflictException",
    "MESSAGE_TYPE_MISMATCH": "ConflictException",
    "LAST_PHONE_NUMBER": "ConflictException",
    "ACCOUNT_DISABLED": "AccessDeniedException",
    "INSUFFICIENT_ACCOUNT_REPUTATION": "AccessDeniedException",
    "MONTHLY_SPEND_LIMIT_REACHED_FOR_TEXT": "ServiceQuotaExceededException",
}


@functools.cache
def key(which):
    """Return one of SNS's keys, or another's."""
    return rsa.generate_private_key(65537, 2048)


def certificate(signing=None, begins=-YEAR, ends=YEAR):
    """Return the certificate of a key, valid from and until these times from now."""
    signing, now = signing or key("SNS"), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    made = x509.CertificateBuilder(name, name, signing.public_key(), 7, now + begins, now + ends)
    return made.sign(key("authority"), SHA256()).public_bytes(Encoding.PEM)


@functools.cache
def sns():
    """Return the address of an SNS that has a certificate and nothing else, for this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == PEM else 404)
            self.end_headers()
            self.wfile.write(pem if self.path == PEM else b"")

        def log_message(self, *args):
            """Keep quiet."""

    pem, server = certificate(), ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


@functools.cache
def model():
    """Return botocore's model of AWS's API."""
    from botocore.loaders import Loader  # takes 0.2 s
    from botocore.model import ServiceModel

    name = "pinpoint-sms-voice-v2"
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


def check(request, body, secret):
    """Raise AssertionError if a request is not as botocore models it, or not as it signs one."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from botocore.validate import ParamValidator

    headers = {name.lower(): value for name, value in request.headers.items()}
    target, shape = headers["x-amz-target"], model().operation_model("SendTextMessage").input_shape
    assert target == f"{model().metadata['targetPrefix']}.SendTextMessage"
    assert headers["content-type"] == f"application/x-amz-json-{model().metadata['jsonVersion']}"
    report = ParamValidator().validate(body, shape)
    assert not report.has_errors(), report.generate_report()
    credentials = Credentials("AKIDEXAMPLE", secret)
    by = SigV4Auth(credentials, model().metadata["signingName"], REGION)
    authorization = headers["authorization"]
    signed = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    same = AWSRequest(
        "POST",
        f"http://{headers['host']}{request.path}",
        {name: headers[name] for name in signed},
        request.body,
    )
    same.context["timestamp"] = headers["x-amz-date"]
    words = by.string_to_sign(same, by.canonical_request(same))
    return authorization.endswith(f"Signature={by.signature(words, same)}")


class AwsServer(CarrierServer):
    """Play AWS's API, and SNS, which gives its certificates and is asked to confirm.

    `certificates` has what is at a path; `confirmed` has the tokens of confirmations.
    """

    def __init__(self):
        super().__init__()
        self.certificates, self.confirmed = {PEM: certificate()}, []

    @property
    def base_url(self):
        return f"http://{self.address}"

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"{URL}&base_url={self.base_url}"

    def read(self, request):
        body = json.loads(request.body)
        return body["DestinationPhoneNumber"], body["MessageBody"]

    def take(self, request):
        if request.method == "GET":
            return super().take(request)
        body = json.loads(request.body)
        if not check(request, body, "s3cret"):
            return refusal("InvalidSignatureException")
        if request.path != "/":
            return Answer(404)
        if body.get("DryRun"):
            self.asked.append(request)
            return self.answer or self.yes(0)
        return super().take(request)

    def yes(self, count):
        return Answer(200, {"MessageId": str(uuid.UUID(int=count))})

    def told(self, request):
        if request.path in self.certificates:
            return Answer(200, self.certificates[request.path])
        if request.path.startswith("/?Action=ConfirmSubscription&"):
            self.confirmed.append(request.path.partition("Token=")[2])
            return Answer(200, b"<ConfirmSubscriptionResponse/>")
        return Answer(404)


def refusal(code, status=400):
    """Return a refusal of AWS's, with the number and the text in its words."""
    words, fields = f"{NUMBER} said 'attack at dawn'", []
    kind = TYPES.get(code, code)
    if kind == code and ("_" in code or not code.endswith(("Exception", "Signature"))):
        kind, fields = "ValidationException", [{"Name": code, "Message": words}]
    told = {"__type": f"com.amazonaws.smsvoice#{kind}", "Message": words, "Reason": code}
    return Answer(status, told | {"Fields": fields})


def answer(code):
    """Return the answer with one of AWS's codes, or with an HTTP status without one."""
    if isinstance(code, int):
        return Answer(code)
    return refusal(code, 500 if code == "InternalServerException" else 400)


def envelope(message, kind="Notification", *, base=None, age=timedelta(0), **changes):
    """Return SNS's message about this one, unsigned; `changes` are its other fields."""
    at, base = datetime.now(UTC) - age, base or sns()
    told = {
        "Type": kind,
        "MessageId": str(uuid.uuid4()),
        "TopicArn": TOPIC,
        "Message": message if isinstance(message, str) else json.dumps(message),
        "Timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.655Z",
        "SignatureVersion": "2",
        "SigningCertURL": f"{base}{PEM}",
    }
    if kind != "Notification":
        query = f"Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t0ken"
        told |= {"Token": "t0ken", "SubscribeURL": f"{base}/?{query}"}
    return told | changes


OF_NOTIFICATIONS = "Message MessageId Subject Timestamp TopicArn Type"
OF_OTHERS = "Message MessageId SubscribeURL Timestamp Token TopicArn Type"


def signed(told, secret=None, hashed=SHA256()):  # noqa: B008
    """Return SNS's message with its signature."""
    lines, names = "", OF_NOTIFICATIONS if told["Type"] == "Notification" else OF_OTHERS
    for name in names.split():
        if name in told:
            lines += name + "\n" + told[name] + "\n"
    signature = (secret or key("SNS")).sign(lines.encode(), padding.PKCS1v15(), hashed)
    return told | {"Signature": base64.b64encode(signature).decode()}


def call(told, kind="status", address=""):
    """Return the callback with this message of SNS's."""
    headers = {"content-type": "text/plain; charset=UTF-8"}
    address = address or f"{PUBLIC_URL}/carriers/aws/{kind}"
    return Callback(kind, "POST", address, headers, json.dumps(told).encode())


def sign(fields, kind="status", *, secret=None, address="", **changes):
    """Return SNS's callback about this JSON object."""
    return call(signed(envelope(fields, **changes), secret), kind, address)


def event(kind, **fields):
    """Return an event of AWS's about a text to NUMBER."""
    told = {"eventType": kind, "eventVersion": "1.0", "isFinal": True, "messageId": REFERENCE}
    return (
        told | {"destinationPhoneNumber": NUMBER, "originationPhoneNumber": "+15005550006"} | fields
    )


class AwsCallbacks(Callbacks):
    from_ = "+15005550006"
    unverified = (URL, f"{URL}&topics={TOPIC}-of-another")
    fields = st.dictionaries(
        st.sampled_from(["eventType", "context", "messageBody"]) | st.text(),
        st.recursive(st.none() | st.text(), st.lists),
        max_size=5,
    )
    statuses = (
        ("TEXT_DELIVERED", "", "delivered"),
        ("TEXT_SUCCESSFUL", "", "delivered"),
        *((f"TEXT_{word}", "", None) for word in ("QUEUED", "PENDING", "SENT", "UNKNOWN", "NEW")),
        ("TEXT_UNREACHABLE", "", "AWS: TEXT_UNREACHABLE"),
        ("TEXT_TTL_EXPIRED", "", "AWS: TEXT_TTL_EXPIRED"),
        ("TEXT_SPAM", "", "AWS: TEXT_SPAM"),
    )
    sign = staticmethod(sign)

    @property
    def url(self):
        return f"{URL}&{TOPICS}&base_url={sns()}"

    @property
    def another_secret(self):
        return key("another")

    def change(self, callback, fields):
        told = json.loads(callback.body) | {"Message": json.dumps(fields)}
        return callback._replace(body=json.dumps(told).encode())

    def report(self, status, code="", *, message_id=None, **signed):
        kind = {"delivered": "TEXT_DELIVERED"}.get(status, status)
        context = {"context": {"m": message_id}} if message_id else {}
        return sign(event(kind, **context), **signed)

    def reply(self, text, number=NUMBER, to=None, **signed):
        told = {"originationNumber": number, "destinationNumber": to or self.from_}
        told |= {"messageBody": text, "messageKeyword": "KEYWORD", "inboundMessageId": "in1"}
        return sign(told, "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        for body in (b"", b"\xff\xfe", b"[" * 60_000, b"[]", b"{}"):
            yield genuine._replace(body=body)
        told = json.loads(genuine.body)
        for name in told:
            for value in (None, "", "é", "\ud800", [], "x" * 300):
                yield genuine._replace(body=json.dumps(told | {name: value}).encode())
        yield sign(event("TEXT_DELIVERED"), age=timedelta(hours=25))


KIT = Kit(
    url=URL,
    bad_urls={
        "aws:": """
            path-token / // //AKID:s3cret //AKID:s3cret@ //AKID:s3cret@+15005550006
            //:s3cret@+15005550006?region=us-east-1 //AKID@+15005550006?region=us-east-1
            //AKID:s3cret@15005550006?region=us-east-1 //AKID:s3cret@a%20b?region=us-east-1
            //AKID:s3cret@+15005550006?region=s3cret //AKID:s3cret@+15005550006?region=us-east-1.s3
            //AKID:s3cret@+15005550006?region=evil.com/us-east-1
        """,
        f"{URL}&": """
            topics=s3cret topics=arn:aws:sns:us-west-2:123456789012:s3cret set=a%20 token=s3cret
            topics=arn:aws:sns:us-east-1:123456789012:a,,arn:aws:sns:us-east-1:123456789012:b
        """,
    },
    server=AwsServer,
    answer=answer,
    needs_json=True,
    for_now=("LAST_PHONE_NUMBER", "ValidationException", 301, 400, 500, 503),
    in_doubt=("InternalServerException", 502, 504),
    callbacks=AwsCallbacks(),
)
