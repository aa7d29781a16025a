"""SMSGate: its server, and callbacks that the phone signs by HMAC-SHA256."""

import hashlib
import hmac
import json
import time

from hypothesis import strategies as st

from carrier_servers import Answer, CarrierServer
from kits import NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

URL = "smsgate://user:s3cret@sms.example.com/3rdparty/v1"
KEY = "signing k3y"
TAKEN = Answer(202, {"state": "Pending"})
SIGNATURE, TIMESTAMP = "x-signature", "x-timestamp"


class SmsgateServer(CarrierServer):
    """Play SMSGate; with `keeps_ids` it knows a message that comes again, as SMSGate does."""

    keeps_ids = False

    def __init__(self):
        super().__init__()
        self.kept, self.hooks = {}, {}

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return (
            f"smsgate+http://user:s3cret@{self.address}/3rdparty/v1?key={KEY.replace(' ', '%20')}"
        )

    def read(self, request):
        body = json.loads(request.body)
        (number,) = body["phoneNumbers"]
        return number, body["textMessage"]["text"]

    def take(self, request):
        path = request.path.removeprefix("/3rdparty/v1")
        if request.method == "POST" and path == "/webhooks":
            hook = json.loads(request.body)
            self.hooks[hook["id"]] = hook
            return Answer(201, hook)
        if request.method == "POST" and path != "/messages?skipPhoneValidation=true":
            return refusal(404)
        id = json.loads(request.body)["id"] if request.method == "POST" else None
        if self.keeps_ids and id in self.kept:
            return refusal(409)
        answer = super().take(request)
        if answer == TAKEN:
            answer = answer._replace(body={"id": id, "state": "Pending", "recipients": []})
            self.kept[id] = answer.body
        return answer

    def yes(self, count):
        return TAKEN

    def told(self, request):
        id = request.path.rpartition("/")[2]
        if id.startswith("messages?"):
            return Answer(200, [])
        return Answer(200, self.kept[id]) if id in self.kept else refusal(404)


def refusal(status, words="no"):
    """Return a refusal of SMSGate's, with the number and the text in its words."""
    return Answer(status, {"message": f"{words}: {NUMBER} said 'attack at dawn'"})


def sign(fields, kind="status", *, secret=KEY, address="", timestamp=None):
    """Return the phone's callback with this JSON object."""
    body, timestamp = json.dumps(fields).encode(), str(timestamp or int(time.time()))
    mac = hmac.digest(secret.encode(), body + timestamp.encode(), hashlib.sha256).hex()
    headers = {"content-type": "application/json", SIGNATURE: mac, TIMESTAMP: timestamp}
    address = address or f"{PUBLIC_URL}/carriers/smsgate/{kind}"
    return Callback(kind, "POST", address, headers, body)


def event(name, payload, hook="texts-smsgate"):
    """Return the body of a callback of the phone's."""
    hook = f"{hook}-{name.removeprefix('sms:')}"
    return {"id": "ey5", "deviceId": "ph1", "webhookId": hook, "event": name, "payload": payload}


class SmsgateCallbacks(Callbacks):
    url = f"{URL}?key={KEY.replace(' ', '%20')}"
    from_ = "texts-smsgate"
    unverified = (URL,)
    fields = st.dictionaries(st.text(), st.recursive(st.none() | st.text(), st.lists), max_size=5)
    statuses = (
        ("sms:delivered", "", "delivered"),
        ("sms:sent", "", None),
        ("sms:failed", "", "SMSGate: sms:failed"),
        ("sms:another", "", None),
    )
    sign = staticmethod(sign)

    def change(self, callback, fields):
        return callback._replace(body=json.dumps(fields).encode())

    def report(self, status, code="", *, message_id=None, **signed):
        payload = {"messageId": message_id or REFERENCE, "recipient": NUMBER, "simNumber": 1}
        return sign(event(status if ":" in status else f"sms:{status}", payload), **signed)

    def reference(self, message_id):
        return message_id

    def reply(self, text, number=NUMBER, to=None, **signed):
        payload = {"messageId": "af1", "sender": number, "message": text}
        return sign(event("sms:received", payload, to or self.from_), "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        for body in (b"", b"\xff\xfe", b"[" * 60_000, b"[]", genuine.body + b" "):
            yield genuine._replace(body=body)
        for given in ({SIGNATURE: ""}, {SIGNATURE: "é"}, {SIGNATURE: "a" * 64}, {TIMESTAMP: ""}):
            yield genuine._replace(headers=genuine.headers | given)
        yield genuine._replace(headers={})
        yield self.report("delivered", timestamp=int(time.time()) - 86_400)


KIT = Kit(
    url=URL,
    bad_urls={
        "smsgate:": """
            path-token / // //s3cret //user@sms.example.com //user:s3cret@ //:s3cret@sms.example.com
            //user:s3cret@sms.example.com:s3cret //user:s3cret@/v1
        """,
        f"{URL}?": "sim=0 sim=4 sim=s3cret region=de region=XX base_url=http://127.0.0.1",
    },
    server=SmsgateServer,
    answer=refusal,
    for_now=(405, 418),
    in_doubt=(500, 502, 504),
    callbacks=SmsgateCallbacks(),
)
