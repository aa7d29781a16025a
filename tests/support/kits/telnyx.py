"""Telnyx: its Messaging API, checked by its own description, and callbacks signed by Ed25519."""

import base64
import functools
import json
import time
import uuid
from pathlib import Path
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import strategies as st

from carrier_servers import Answer, CarrierServer
from kits import NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

OURS, ANOTHERS = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
PUBLIC_KEY = base64.b64encode(OURS.public_key().public_bytes_raw()).decode()
PROFILE = "40017b2a-5d4c-4b1e-9a39-0c8c1d0a7f11"
URL = "telnyx://s3cret@+15005550006"
JSON = {"content-type": "application/json"}
SIGNATURE = "telnyx-signature-ed25519"


@functools.cache
def description():
    """Return what checks a request by Telnyx's own description."""
    from openapi_schema_validator import OAS30Validator  # takes 0.2 s

    return OAS30Validator(json.loads(Path(__file__).with_name("telnyx_request.json").read_text()))


class TelnyxServer(CarrierServer):
    """Play Telnyx; with `keeps_ids` it answers a repeated key as Telnyx does."""

    keeps_ids = False

    def __init__(self):
        super().__init__()
        self.kept, self.opt_outs = {}, []

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"{URL}?base_url=http://{self.address}/v2&public_key={quote(PUBLIC_KEY)}"

    def read(self, request):
        body = json.loads(request.body)
        description().validate(body)
        assert body["encoding"] in ("gsm7", "ucs2")
        return body["to"], body["text"]

    def take(self, request):
        if request.headers.get("Authorization") != "Bearer s3cret":
            return refusal(10009, 401)
        if request.method == "POST" and request.path != "/v2/messages":
            return refusal(10005, 404)
        if self.keeps_ids and (kept := self.kept.get(request.headers.get("Idempotency-Key"))):
            body, answer = kept
            return answer if body == request.body else refusal(10015, 422)
        answer = super().take(request)
        if request.method == "POST" and getattr(answer, "status", 0) == 200:
            self.kept[request.headers["Idempotency-Key"]] = request.body, answer
        return answer

    def yes(self, count):
        told = {"id": str(uuid.UUID(int=count)), "record_type": "message", "errors": []}
        return Answer(200, {"data": told | {"to": [{"status": "queued"}], "parts": 1}})

    def told(self, request):
        if request.path.startswith("/v2/messaging_optouts?"):
            return Answer(200, {"data": self.opt_outs})
        return Answer(200, {"data": {"balance": "300.00", "currency": "USD"}})


def refusal(code, status=400):
    """Return a refusal of Telnyx's, with the number and the text in its words."""
    words = f"Error {code}: {NUMBER} said 'attack at dawn'"
    return Answer(status, {"errors": [{"code": str(code), "title": words, "detail": words}]})


def answer(code):
    """Return the answer with one of Telnyx's codes, or with an HTTP status without one."""
    return Answer(code) if code < 600 else refusal(code, 500 if code in (10007, 10008) else 400)


def sign(fields, kind="status", *, secret=OURS, address="", timestamp=None):
    """Return Telnyx's callback with this JSON object."""
    body, timestamp = json.dumps(fields).encode(), str(timestamp or int(time.time()))
    signature = base64.b64encode(secret.sign(f"{timestamp}|".encode() + body)).decode()
    headers = JSON | {SIGNATURE: signature, "telnyx-timestamp": timestamp}
    address = address or f"{PUBLIC_URL}/carriers/telnyx/{kind}"
    return Callback(kind, "POST", address, headers, body)


def event(kind, payload):
    """Return the body of a callback of Telnyx's."""
    return {"data": {"event_type": kind, "id": str(uuid.uuid4()), "payload": payload}, "meta": {}}


class TelnyxCallbacks(Callbacks):
    url = f"{URL}?public_key={quote(PUBLIC_KEY)}"
    from_ = "+15005550006"
    another_secret = ANOTHERS
    unverified = (URL,)
    fields = st.dictionaries(st.text(), st.recursive(st.none() | st.text(), st.lists), max_size=5)
    statuses = (
        ("delivered", "", "delivered"),
        *((status, "", None) for status in ("queued", "sending", "sent", "delivery_unconfirmed")),
        (
            "delivery_failed",
            "40006",
            "Telnyx: the recipient's network does not answer (error 40006)",
        ),
        ("sending_failed", "40999", "Telnyx: sending_failed (error 40999)"),
        ("expired", "", "Telnyx: expired"),
        ("delivery_failed", f"40006 {NUMBER}", "Telnyx: delivery_failed"),
        ("delivery_failed", "40300", "Telnyx: the recipient has opted out (error 40300)"),
    )
    sign = staticmethod(sign)

    def change(self, callback, fields):
        return callback._replace(body=json.dumps(fields).encode())

    def report(self, status, code="", *, message_id=None, **signed):
        address = f"{PUBLIC_URL}/carriers/telnyx/status"
        payload = {"id": REFERENCE, "to": [{"phone_number": NUMBER, "status": status}]}
        payload |= {
            "from": {"phone_number": self.from_},
            "errors": [{"code": code}] if code else [],
        }
        payload |= {"webhook_url": f"{address}?m={message_id}" if message_id else address}
        return sign(event("message.finalized", payload), **signed)

    def reply(self, text, number=NUMBER, to=None, **signed):
        payload = {"id": REFERENCE, "from": {"phone_number": number}, "text": text}
        payload |= {"to": [{"phone_number": to or self.from_}]}
        return sign(event("message.received", payload), "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        for body in (b"", b"\xff\xfe", b"[" * 60_000, b"[]", genuine.body + b" "):
            yield genuine._replace(body=body)
        for given in ({}, {SIGNATURE: ""}, {SIGNATURE: "é"}, {SIGNATURE: "A" * 88}):
            yield genuine._replace(headers=genuine.headers | {SIGNATURE: ""} | given)
        for timestamp in ("", "now", "1", str(int(time.time()) + 1)):
            yield genuine._replace(headers=genuine.headers | {"telnyx-timestamp": timestamp})
        yield self.report("delivered", timestamp=int(time.time()) - 3600)


KIT = Kit(
    url=URL,
    bad_urls={
        "telnyx:": """
            path-token / // //s3cret //s3cret@ //@+15005550006 //s3cret@15005550006
            //s3cret@a-name-too-long //s3cret@ACME
        """,
        f"{URL}?": "public_key=s3cret public_key=AAAA region=s3cret",
    },
    server=TelnyxServer,
    answer=answer,
    needs_json=True,
    for_now=(40002, 40006, 40011, 40999, 301, 400, 500, 503),
    in_doubt=(10007, 10008, 409, 422, 502, 504),
    callbacks=TelnyxCallbacks(),
)
