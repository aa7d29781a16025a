"""Vonage: its SMS API, and callbacks signed by its own library."""

import functools
import json
import time
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from hypothesis import strategies as st

from carrier_servers import Answer, CarrierServer
from kits import FORM, NUMBER, PUBLIC_URL, REFERENCE, Callbacks, Kit
from texting.carriers import Callback

URL = "vonage://key:s3cret@15005550006"
SECRET = "signature s3cret"
JSON = {"content-type": "application/json; charset=utf-8"}


class VonageServer(CarrierServer):
    """Play Vonage's `POST /sms/json`, whose yes or no is in the body of a 200."""

    key, secret, sender = "abcd1234", "s3cret", "15005550006"

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"vonage://{self.key}:{self.secret}@{self.sender}?base_url=http://{self.address}"

    def read(self, request):
        form = parse_qs(request.body.decode("ascii"), keep_blank_values=True, strict_parsing=True)
        ((number,), (text,)) = form["to"], form["text"]
        assert (form["api_key"], form["api_secret"]) == ([self.key], [self.secret])
        return f"+{number}", text

    def yes(self, count):
        return verdict({"status": "0", "message-id": f"0A{count:014X}"})

    def told(self, request):
        return Answer(200, {"value": 10.28, "autoReload": False})


def verdict(*parts):
    """Return an answer of Vonage's: an object for each part of a text."""
    return Answer(200, {"message-count": str(len(parts)), "messages": list(parts)})


def answer(code):
    """Return the answer with one of Vonage's statuses, or with an HTTP status without one."""
    return Answer(code) if 300 <= code < 600 else verdict({"status": str(code)})


@functools.cache
def signer(secret, method):
    """Return what signs the fields of Vonage's callbacks."""
    from vonage_http_client.auth import Auth  # takes 0.2 s

    return Auth(api_key="key", api_secret="s", signature_secret=secret, signature_method=method)


def sign(
    fields, kind="status", *, secret=None, address="", how="form", method="sha256", timestamp=None
):
    """Return Vonage's callback: a form, JSON, or a GET with a query."""
    fields = {"timestamp": str(timestamp or int(time.time()))} | fields
    fields |= {"sig": signer(secret or SECRET, method).sign_params(dict(fields)).upper()}
    return write(fields, kind, how, address)


def write(fields, kind="status", how="form", address=""):
    """Return a callback with these fields and nothing else."""
    url = address or f"{PUBLIC_URL}/carriers/vonage/{kind}"
    match how:
        case "query":
            return Callback(kind, "GET", f"{url}?{urlencode(fields)}", {}, b"")
        case "json":
            return Callback(kind, "POST", url, JSON, json.dumps(fields).encode())
    return Callback(kind, "POST", url, {"content-type": FORM}, urlencode(fields).encode())


class VonageCallbacks(Callbacks):
    url = f"vonage://key:s3cret@ACME?signature_secret={quote(SECRET)}"
    from_ = "ACME"
    unverified = ("vonage://key:s3cret@ACME",)
    names = st.text(st.sampled_from("abcXYZ09_é -"), min_size=1)
    fields = st.dictionaries(names, st.text(max_size=20), max_size=8)
    statuses = (
        ("delivered", "0", "delivered"),
        *((status, "0", None) for status in ("accepted", "buffered", "another")),
        ("unknown", "1", None),
        ("expired", "", "Vonage: expired"),
        ("failed", "6", "Vonage: filtered as unwanted (error 6)"),
        ("rejected", "99", "Vonage: rejected (error 99)"),
        ("rejected", f"99 {NUMBER}", "Vonage: rejected"),
        ("rejected", "9", "Vonage: the recipient has opted out (error 9)"),
    )
    sign = staticmethod(sign)

    def change(self, callback, fields):
        is_query = callback.method == "GET"
        told = urlsplit(callback.url).query if is_query else callback.body.decode()
        told = dict(parse_qsl(told, keep_blank_values=True))
        fields = {"timestamp": told["timestamp"]} | fields | {"sig": told["sig"]}
        return write(fields, callback.kind, "query" if is_query else "form")

    def report(self, status, code="", *, message_id=None, **signed):
        fields = {"messageId": REFERENCE, "msisdn": NUMBER[1:], "to": self.from_}
        fields |= {"status": status, "err-code": code}
        return sign(fields | ({"client-ref": message_id} if message_id else {}), **signed)

    def reply(self, text, number=NUMBER, to=None, **signed):
        fields = {"messageId": REFERENCE, "msisdn": number.removeprefix("+"), "text": text}
        return sign(fields | {"to": (to or self.from_).removeprefix("+")}, "inbound", **signed)

    def forgeries(self):
        genuine = self.report("delivered")
        surrogate = {"timestamp": str(int(time.time())), "sig": "a", "text": "\ud800"}
        for body in (b"", b"\xff\xfe", b"&".join([b"a=b"] * 100_000), b"sig=&timestamp=1"):
            yield genuine._replace(body=body)
        yield genuine._replace(method="GET")
        yield genuine._replace(headers=JSON)
        for body in (
            *(b"[" * 60_000, b"[]", b'{"sig": 1, "timestamp": 2}', json.dumps(surrogate).encode()),
            b'{"timestamp": ' + b"9" * 5000,
        ):
            yield genuine._replace(headers=JSON, body=body)


KIT = Kit(
    url=URL,
    bad_urls={
        "vonage:": """
            path-token?base_url=http://a:b@127.0.0.1 //key:s3cret //s3cret@15005550006/{to} //{to}
            //s3cret:s3cret@{to} //key:s3cret@15005550006/12125550199/{to}
            //key:s3cret@a-name-too-long/{to}
        """,
        f"{URL}?": "signature_method=s3cret signature_method=md5 ttl=s3cret",
    },
    server=VonageServer,
    answer=answer,
    needs_json=True,
    for_now=(2, 5, 10, 99, 400, 500, 503),
    in_doubt=(502, 504),
    callbacks=VonageCallbacks(),
)
