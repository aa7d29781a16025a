"""Infobip: its SMS API, checked by its own description, and callbacks with a password."""

import base64
import functools
import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hypothesis import strategies as st

from carrier_servers import Answer, CarrierServer
from kits import NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

URL = "infobip://s3cret@15005550006"
SECRET = "callback s3cret/?"
GROUPS = {26: "PENDING", 7: "PENDING", 5: "DELIVERED", 2: "DELIVERED", 9: "UNDELIVERABLE"}
GROUPS |= {15: "EXPIRED", 29: "EXPIRED", 87: "EXPIRED"}


@functools.cache
def description():
    """Return what checks a request by Infobip's own description."""
    from openapi_schema_validator import OAS31Validator  # takes 0.2 s

    return OAS31Validator(json.loads(Path(__file__).with_name("infobip_request.json").read_text()))


class InfobipServer(CarrierServer):
    """Play Infobip; with `keeps_ids` it knows a message that comes again, as Infobip does.

    `logs` has the status of each text by its id, `balance` is what is left on the account.
    """

    keeps_ids = False

    def __init__(self):
        super().__init__()
        self.logs, self.balance = {}, Answer(200, {"balance": 47.79, "currency": "EUR"})

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"{URL}?base_url=http://{self.address}&secret=callbacks3cret"

    def read(self, request):
        body = json.loads(request.body)
        description().validate(body)
        ((destination,),) = [each["destinations"] for each in body["messages"]]
        return f"+{destination['to']}", body["messages"][0]["content"]["text"]

    def take(self, request):
        if request.headers.get("Authorization") != "App s3cret":
            return refusal(401)
        if request.method == "GET":
            return super().take(request)
        if request.path != "/sms/3/messages":
            return refusal(404)
        id = json.loads(request.body)["messages"][0]["destinations"][0]["messageId"]
        is_known = self.keeps_ids and id in self.logs
        return self.about(request, verdict(23) if is_known else super().take(request))

    def about(self, request, answer):
        """Return an answer with the id of the text in a request; note what is taken."""
        id = json.loads(request.body)["messages"][0]["destinations"][0]["messageId"]
        if not (isinstance(answer, Answer) and isinstance(answer.body, dict)):
            return answer
        told = [{"messageId": id} | each for each in answer.body.get("messages") or ()]
        for each in told:
            if each["status"]["groupName"] != "REJECTED":
                self.logs.setdefault(id, each["status"])
        return answer._replace(body=answer.body | {"messages": told}) if told else answer

    def yes(self, count):
        return verdict(26)

    def told(self, request):
        path, query = urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)
        if path == "/account/1/balance":
            return self.balance
        id = query.get("messageId", [""])[0]
        found = [{"messageId": id, "status": self.logs[id]}] if id in self.logs else []
        return Answer(200, {"results": found})


def status_of(code):
    """Return a status as Infobip tells it, with the number and the text in its words."""
    words = f"{NUMBER} said 'attack at dawn'"
    return {"id": code, "groupName": GROUPS.get(code, "REJECTED"), "name": words}


def verdict(code):
    """Return Infobip's answer about a text; a no comes with a 200, too."""
    return Answer(200, {"bulkId": "b", "messages": [{"status": status_of(code)}]})


def refusal(code, *violated):
    """Return a refusal of the request."""
    words = {"description": f"{NUMBER} said 'attack at dawn'", "action": "Check."}
    violations = [{"property": each, "violation": NUMBER} for each in violated]
    return Answer(code, {"errorCode": f"E{code}", "violations": violations} | words)


def answer(code):
    """Return the answer with one of Infobip's statuses, or with an HTTP status without one."""
    if code == 87:
        return Answer(200, {"messages": [{"status": status_of(code) | {"groupName": "REJECTED"}}]})
    return Answer(code) if code >= 300 else verdict(code)


def sign(fields, kind="status", *, secret=SECRET, address=""):
    """Return Infobip's callback with this JSON object."""
    login = base64.b64encode(f"infobip:{secret}".encode()).decode()
    headers = {"content-type": "application/json", "authorization": f"Basic {login}"}
    address = address or f"{PUBLIC_URL}/carriers/infobip/{kind}"
    return Callback(kind, "POST", address, headers, json.dumps(fields).encode())


class InfobipCallbacks(Callbacks):
    url = f"{URL}?secret=callback%20s3cret%2F%3F"
    from_ = "15005550006"
    covers_body = False
    unverified = (URL,)
    fields = st.dictionaries(
        st.just("results") | st.text(), st.recursive(st.none() | st.text(), st.lists), max_size=5
    )
    statuses = (
        ("5", "", "delivered"),
        *((code, "", None) for code in ("7", "26", "2", "29", "23")),
        ("9", "27", "Infobip: the phone was not reachable (error 27)"),
        ("9", "603", "Infobip: the recipient has opted out (error 603)"),
        ("15", "", "Infobip: EXPIRED"),
        ("12", "9999", "Infobip: REJECTED (error 9999)"),
    )
    sign = staticmethod(sign)

    def report(self, status, code="", *, message_id=None, **signed):
        told = status_of(5 if status == "delivered" else int(status))
        result = {"messageId": message_id or REFERENCE, "to": NUMBER[1:], "sender": self.from_}
        result |= {"status": told, "error": {"id": int(code or 0)}}
        return sign({"results": [result]}, **signed)

    def reference(self, message_id):
        return message_id

    def reply(self, text, number=NUMBER, to=None, **signed):
        result = {"messageId": "81779", "from": number.removeprefix("+"), "text": text}
        result |= {"to": (to or self.from_).removeprefix("+"), "cleanText": "", "keyword": "STOP"}
        return sign({"results": [result], "messageCount": 1}, "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        for body in (b"", b"\xff\xfe", b"[" * 60_000):
            yield genuine._replace(body=body)
        for given in ("", "Basic", "Basic é", "Basic aW5mb2JpcDo=", "Bearer s3cret", SECRET):
            yield genuine._replace(headers=genuine.headers | {"authorization": given})
        yield genuine._replace(headers={})


KIT = Kit(
    url=URL,
    bad_urls={
        "infobip:": """
            path-token / // //s3cret //s3cret@ //@15005550006 //s3cret@a-name-too-long
        """,
        f"{URL}?": """
            base=https://xyz.api.infobip.com base=s3cret base=xyz.api.infobip.com/s3cret
            base=user@infobip.com region=s3cret
        """,
    },
    server=InfobipServer,
    answer=answer,
    needs_json=True,
    for_now=(20, 21, 100, 299, 301, 400, 500, 503),
    in_doubt=(502, 504),
    callbacks=InfobipCallbacks(),
)
