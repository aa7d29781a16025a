"""Carriers' callbacks: receipts and recipients' replies over HTTP."""

from flask import Blueprint, Flask, Response, abort, current_app, request

from carriers import Callback, NotGenuine
from database import clock
from sending import inbound
from sending.inbound import ReplyRules
from web.requests import read_body

USUAL = {"twilio": ("POST",), "vonage": ("GET", "POST")}
"""The names under which carriers without one of their own call back, and the methods."""

REFUSAL = "This is signed by no carrier that is set up here with this address below PUBLIC_URL."


def register(app: Flask) -> None:
    """Add the addresses that carriers call: the usual ones, and those of CARRIER_URL's names."""
    blueprint = Blueprint("callbacks", __name__, url_prefix="/carriers")
    own = {
        way.name: app.extensions["carriers"][way.name].callback_methods
        for way in app.config["SETTINGS"].ways
    }
    for name, methods in (USUAL | own).items():
        if methods:
            rule, default = f"/{name}/<any(status, inbound):kind>", {"name": name}
            blueprint.add_url_rule(rule, name, callback, defaults=default, methods=methods)
    app.register_blueprint(blueprint)


def callback(name: str, kind: str) -> Response:
    """Record the events of a genuine callback, however often it comes; refuse any other.

    Strangers are answered alike, whichever carriers are set up.
    """
    if request.method == "HEAD":  # which must change nothing
        return _understood()
    body = read_body()
    settings = current_app.config["SETTINGS"]
    way = next((way for way in settings.ways if way.name == name), None)
    if not (settings.public_url and way):
        abort(403, REFUSAL)
    query = request.query_string.decode("latin-1")
    url = f"{settings.public_url}/carriers/{name}/{kind}{query and '?'}{query}"
    headers = {header.lower(): value for header, value in request.headers}
    callback = Callback(kind, request.method, url, headers, body)
    try:
        events = current_app.extensions["carriers"][name].callback(callback)
    except NotGenuine:
        abort(403, REFUSAL)
    inbound.record(events, clock.now(), ReplyRules.of(settings, way))
    return _understood()


def _understood():
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response
