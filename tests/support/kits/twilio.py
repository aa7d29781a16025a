"""Twilio: its Messages API, and callbacks signed by its own library."""

import base64
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import parse_qs, urlencode

from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from carrier_servers import Answer, CarrierServer
from kits import FORM, NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

URL = "twilio://AC1:s3cret@+15005550006"
TOKEN = "auth-t0ken"
SIGNATURE, METHOD = "x-twilio-signature", "x-twilio-webhooks-signature-settings"
SEEN = "https://www.twilio.com/docs/errors/30999"


class TwilioServer(CarrierServer):
    """Play Twilio's messages and account; `messages` is its list, the newest first."""

    sid, token, sender = "AC" + "5" * 32, "a token: /?#@&+%é", "+15005550006"
    login = (sid, token)
    page_size = 2

    def __init__(self):
        super().__init__()
        self.messages, self.status = [], "active"

    @property
    def base_url(self):
        return f"http://{self.address}"

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        token = "a%20token%3A%20%2F%3F%23%40%26%2B%25%C3%A9"
        return f"twilio://{self.sid}:{token}@{self.sender}?base_url={self.base_url}"

    def read(self, request):
        form = parse_qs(request.body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        ((number,), (text,)) = form["To"], form["Body"]
        return number, text

    def take(self, request):
        answer = super().take(request)
        login = base64.b64encode(":".join(self.login).encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            return refusal(20003, 401)
        if f"/2010-04-01/Accounts/{self.sid}" not in request.path:
            return refusal(20404, 404)
        if request.method == "POST" and answer[0] == 201 and isinstance(answer.body, dict):
            self.list(request, answer.body)
        return answer

    def list(self, request, answer):
        """Add a text to the list of messages."""
        number, text = self.read(request)
        message = {"to": number, "body": text, "from": self.sender, "status": "sent"}
        dates = {"date_created": format_datetime(datetime.now(UTC))}
        self.messages.insert(0, message | dates | {"sid": answer.get("sid")})

    def yes(self, count):
        return Answer(201, {"sid": f"SM{count:032x}", "status": "queued", "error_code": None})

    def told(self, request):
        path, _, query = request.path.partition("?")
        if not path.endswith("/Messages.json"):
            return Answer(200, {"sid": self.sid, "status": self.status})
        query = {name: values[0] for name, values in parse_qs(query).items()}
        listed = [each for each in self.messages if each["to"] == query.get("To", each["to"])]
        first = int(query.get("Page", 0)) * self.page_size
        more = listed[first + self.page_size :]
        query = urlencode(query | {"Page": int(query.get("Page", 0)) + 1, "PageToken": "PASM1"})
        page = {
            "messages": listed[first : first + self.page_size],
            "next_page_uri": f"{path}?{query}" if more else None,
        }
        return Answer(200, page)


def refusal(code, status=400, headers=None):
    """Return a refusal of Twilio's, with the number and the text in its words."""
    words = f"Error {code}: +12125550123 said 'attack at dawn'"
    more = f"https://www.twilio.com/docs/errors/{code}"
    body = {"code": code, "message": words, "more_info": more, "status": status}
    return Answer(status, body, headers or {})


def answer(code):
    """Return the answer with one of Twilio's codes, or with an HTTP status without one."""
    return Answer(code) if code < 600 else refusal(code, 503 if code == 20503 else 400)


def sign(fields, kind="status", *, secret=None, address="", signed="", **headers):
    """Return a POST from Twilio; `signed` is the address that it signs, if that is another one."""
    address = address or f"{PUBLIC_URL}/carriers/twilio/{kind}"
    signature = RequestValidator(secret or TOKEN).compute_signature(signed or address, fields)
    headers = {SIGNATURE: signature, "content-type": FORM} | headers
    return Callback(kind, "POST", address, headers, urlencode(fields).encode())


class TwilioCallbacks(Callbacks):
    url = f"twilio://AC1:{TOKEN}@+15005550006"
    from_ = "+15005550006"
    unverified = ("twilio://SK1:s3cret@+15005550006?account=AC1",)
    names = st.text(st.sampled_from("abcXYZ09"), min_size=1)
    # A reply whose own text holds the name of a field could be divided elsewhere
    texts = st.text(max_size=20).filter(lambda text: "From" not in text)
    fields = st.dictionaries(names, texts, max_size=8)
    statuses = (
        *((status, "", "delivered") for status in ("delivered", "read")),
        *((status, "", None) for status in ("accepted", "queued", "sending", "sent", "another")),
        ("undelivered", "30005", "Twilio: the number is not in service (error 30005)"),
        ("failed", "30999", f"Twilio: failed, see {SEEN} (error 30999)"),
        ("failed", "", "Twilio: failed"),
        ("canceled", "", "Twilio: canceled"),
        ("failed", f"30005 {NUMBER}", "Twilio: failed"),
        ("failed", "21610", "Twilio: the recipient has opted out (error 21610)"),
    )
    no_numbers = ("12345", "whatsapp:+12125550123", "ACME", "", "+0", "+1 212")
    sign = staticmethod(sign)

    def change(self, callback, fields):
        return callback._replace(body=urlencode(fields).encode())

    def report(self, status, code="", *, message_id=None, address="", **signed):
        address = address or f"{PUBLIC_URL}/carriers/twilio/status"
        address += f"?m={message_id}" if message_id else ""
        fields = {"MessageSid": REFERENCE, "MessageStatus": status, "To": NUMBER}
        fields |= {"From": self.from_} | ({"ErrorCode": code} if code else {})
        return sign(fields, address=address, **signed)

    def reply(self, text, number=NUMBER, to=None, **signed):
        fields = {"MessageSid": REFERENCE, "From": number, "To": to or self.from_, "Body": text}
        return sign(fields, "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        for body in (b"", b"\xff\xfe", b"&".join([b"a=b"] * 100_000)):
            yield genuine._replace(body=body)
        for headers in (
            *({SIGNATURE: given} for given in ("", "é", "A" * 28)),
            {},
            dict.fromkeys((SIGNATURE, METHOD), "algorithm=NONE"),
        ):
            yield genuine._replace(headers=headers)
        for url in (
            "https://other.example.com/staging/carriers/twilio/status",
            "http://sms.example.com/staging/carriers/twilio/status",
            f"{genuine.url}?a=b",
        ):
            yield genuine._replace(url=url)


KIT = Kit(
    url=URL,
    bad_urls={
        "twilio:": """
            / // /AC1:s3cret@+15005550006 //AC1:s3cret //AC1@+15005550006 //s3cret@+15005550006
            //:s3cret@+15005550006 //AC1:@+15005550006 //AC1:s3cret@ //AC1:s3cret@15005550006
            //AC1:s3cret@+1500555/0006 //AC1:s3cret@a-name-too-long //SK1:s3cret@+15005550006
            //AC1:s3cret@MG0000000000000000000000000000000
        """,
        f"{URL}?": """
            base_uri=http://127.0.0.1 region=s3cret
            smart_encoding=yes smart_encoding=1 smart_encoding=True
        """,
    },
    server=TwilioServer,
    answer=answer,
    needs_json=True,
    for_now=(21999, 20500, 20503, 301, 307, 400, 500, 503, 599),
    in_doubt=(502, 504),
    callbacks=TwilioCallbacks(),
)
