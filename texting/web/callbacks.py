"""Carriers' callbacks: receipts and recipients' replies over HTTP."""

import re

from flask import Flask, Response, abort, current_app, request

from texting.carriers import Callback, CannotVerify, NotGenuine
from texting.database import clock
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.web.requests import read_body

PREFIX = "/carriers/"
ADDRESS = re.compile(PREFIX + "([A-Za-z0-9-]{1,64})/(status|inbound)")
REFUSAL = "No configured carrier signed this request for this address (see PUBLIC_URL)."


def register(app: Flask) -> None:
    """Answer all requests below the address of callbacks, whatever their path and method."""
    app.before_request(answer)


def answer() -> Response | None:
    """Record the events of a genuine callback, however often it comes; refuse all else there.

    The signature says whom it is from, not the name in the address, which may be a former one of
    the carrier. Strangers get the same answer, whatever they try and whichever carriers are set up.
    """
    if not request.path.startswith(PREFIX):
        return None
    body, address = read_body(), ADDRESS.fullmatch(request.path)
    settings = current_app.config["SETTINGS"]
    if not (settings.public_url and address):
        abort(403, REFUSAL)
    name, kind = address.groups()
    query = request.query_string.decode("latin-1")
    url = f"{settings.public_url}{address[0]}{query and '?'}{query}"
    headers = {header.lower(): value for header, value in request.headers}
    callback = Callback(kind, request.method, url, headers, body)
    heard, carriers, refusal = {}, current_app.extensions["carriers"], 403
    for each, carrier in carriers.items():
        if request.method in carrier.callback_methods:
            try:
                heard[each] = carrier.callback(callback)
            except NotGenuine:
                continue
            except CannotVerify:
                refusal = 503
    if not heard:
        abort(refusal, REFUSAL)

    def fits(each):
        is_named = carriers[each].is_named_in(callback)
        return carriers[each].calls_all_names and is_named, each == name, is_named

    sender = max(heard, key=fits)  # several may have one secret
    events = heard[sender]
    if kind == "status" and name not in carriers:
        sender = name  # its texts are stored under its name of that time
    inbound.record(events, clock.now(), ReplyRules.of(settings, sender, {name, *heard}))
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response
