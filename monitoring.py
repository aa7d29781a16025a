"""What the service says of itself: `/healthz`, `/metrics`, `/openapi.json`, `/docs`."""

import functools
import hmac
import importlib
import json
from datetime import datetime, timedelta
from pathlib import Path

import flask_swagger_ui
from flask import Blueprint, Flask, Response, abort, current_app, send_from_directory
from werkzeug.exceptions import Unauthorized

import models
from api import BEARER, bearer_token
from models import Message

STATIC = Path(__file__).parent / "static"
SWAGGER_UI = Path(flask_swagger_ui.__file__).parent / "dist"
DOCS = {  # what the page at /docs is made of, and nothing else of these folders
    "page.js": STATIC,
    "page.css": STATIC,
    "swagger-ui-bundle.js": SWAGGER_UI,
    "swagger-ui.css": SWAGGER_UI,
    "favicon-32x32.png": SWAGGER_UI,
}

blueprint = Blueprint("monitoring", __name__)


def register(app: Flask) -> None:
    """Give the application these pages; `/metrics` only where METRICS_TOKEN is set."""
    app.register_blueprint(blueprint)
    if app.config["SETTINGS"].metrics_token:
        # Not before: prometheus_client makes files as soon as it is imported
        app.extensions["metrics"] = importlib.import_module("metrics")
        app.add_url_rule("/metrics", view_func=show_metrics)


def observe(status: int, seconds: float) -> None:
    """Count an answered request, where somebody wants to know."""
    if metrics := current_app.extensions.get("metrics"):
        metrics.observe(status, seconds)


@blueprint.get("/healthz")
def health() -> dict:
    """Say that the database answers, and how many seconds the oldest due message has waited."""
    now = models.clock()
    return {"status": "ok", "oldest_due_seconds": seconds_since(Message.oldest_due(now), now)}


def show_metrics() -> Response:
    """Tell Prometheus about requests and messages; needs METRICS_TOKEN as a bearer token."""
    metrics, token = current_app.extensions["metrics"], current_app.config["SETTINGS"].metrics_token
    now = models.clock()
    if not hmac.compare_digest(bearer_token().encode(), token.encode()):
        raise Unauthorized("The token is missing or invalid.", www_authenticate=BEARER)
    gauges = [
        metrics.gauge("text_messages", "Messages by status.", Message.by_status()),
        metrics.gauge(
            "text_messages_ended_last_hour",
            "Sends by outcome, within the last hour.",
            Message.ended_since(now - timedelta(hours=1)),
        ),
        metrics.gauge(
            "text_messages_awaiting_approval",
            "Messages that wait for a yes.",
            {None: Message.awaiting_approval()},
        ),
        metrics.gauge(
            "text_messages_oldest_due_seconds",
            "How long the oldest due message has waited.",
            {None: seconds_since(Message.oldest_due(now), now)},
        ),
    ]
    return Response(metrics.render(gauges), content_type=metrics.CONTENT_TYPE)


@blueprint.get("/openapi.json")
def show_description() -> Response:
    """Describe the interface in OpenAPI."""
    text = description(current_app.config["SETTINGS"].max_message_length)
    return Response(text, content_type="application/json")


@functools.cache
def description(max_message_length: int) -> str:
    """Return the text of openapi.json, with the length of message that is allowed here."""
    described = json.loads((STATIC.parent / "openapi.json").read_text())
    request = described["paths"]["/v1/text-messages"]["post"]["requestBody"]
    fields = request["content"]["application/json"]["schema"]["properties"]
    fields["message"]["maxLength"] = max_message_length
    return json.dumps(described, indent=2) + "\n"


@blueprint.get("/docs")
def show_docs() -> Response:
    """Show openapi.json as a page on which a request can be tried."""
    response = send_from_directory(STATIC, "index.html")
    response.headers["Content-Security-Policy"] = (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
    )
    return response


@blueprint.get("/docs/<name>")
def show_docs_file(name: str) -> Response:
    """Hand out a part of the page."""
    if name not in DOCS:
        abort(404)
    return send_from_directory(DOCS[name], name)


def seconds_since(instant: datetime | None, now: datetime) -> int:
    """Return how many seconds ago an instant was; 0 where there is none."""
    return round((now - instant).total_seconds()) if instant else 0
