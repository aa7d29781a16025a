"""What the service says of itself: `/`, `/healthz`, `/metrics`, `/openapi.json`, `/docs`."""

import functools
import hmac
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import flask_swagger_ui
from flask import (
    Blueprint,
    Flask,
    Response,
    abort,
    current_app,
    request,
    send_from_directory,
    url_for,
)
from werkzeug.exceptions import Unauthorized

import models
import reports
import schemas
from monitoring import health
from schemas import BadRequest
from web import BEARER, bearer_token

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "monitoring/static"
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
        app.add_url_rule("/metrics", view_func=show_metrics)


def observer(app: Flask) -> Callable[[int, float], None]:
    """Return what counts an answered request: its status, and the seconds that it took."""
    if not app.config["SETTINGS"].metrics_token:
        return lambda status, seconds: None

    def observe(status, seconds):
        from monitoring import (
            metrics,  # which makes files: the commands, which answer no requests, need none
        )

        metrics.observe(status, seconds)

    return observe


@blueprint.get("/", strict_slashes=False)  # or "//" is redirected, in HTML
def show_addresses() -> dict:
    """Say where things are, the desk too where there is one."""
    views = {
        "text_messages": "api.create_text_message",
        "docs": "monitoring.show_docs",
        "openapi": "monitoring.show_description",
        "health": "monitoring.show_health",
        "desk": "desk.waiting",
    }
    there = current_app.view_functions
    return {name: url_for(view) for name, view in views.items() if view in there}


@blueprint.get("/healthz")
def show_health() -> dict | Response:
    """Report that the database answers, and how the service is.

    With `?strict`, answer 503 where texts that should go do not; `?strict=600` has more patience.
    """
    state, patience = health.read(models.clock()), patience_asked_for()
    told = {
        "oldest_due_seconds": state.seconds_since(state.oldest_due) or 0,
        "retrying": state.retrying,
        "last_sent_seconds": state.seconds_since(state.last_sent_at),
        "last_pass_seconds": state.seconds_since(state.last_pass_at),
        "commonest_error": state.error(),
        "problems": state.problems(patience),
    }
    if "strict" in request.args and told["problems"]:
        text = schemas.dump_error(503, "Texts that should go do not.", told, state.now)
        return Response(text, 503, content_type="application/json")
    return {"status": "ok"} | told


def patience_asked_for() -> timedelta:
    """Return how long nothing may go before that is a problem."""
    seconds = request.args.get("strict")
    if not seconds:
        return health.PATIENCE
    if not re.fullmatch("[1-9][0-9]{0,5}", seconds):
        raise BadRequest("strict: must be a number of seconds")
    return timedelta(seconds=int(seconds))


def show_metrics() -> Response:
    """Report requests and messages to Prometheus; needs METRICS_TOKEN as a bearer token."""
    from monitoring import metrics

    now, token = models.clock(), current_app.config["SETTINGS"].metrics_token
    # WSGI has a header's octets as Latin-1
    if not hmac.compare_digest(bearer_token().encode("latin-1"), token.encode()):
        raise Unauthorized("The token is missing or invalid.", www_authenticate=BEARER)
    state = health.read(now)
    error, errors = state.commonest_error or ("", 0)
    gauges = [
        metrics.gauge(
            "text_messages",
            "Messages that have not ended, by status.",
            reports.waiting(),
        ),
        metrics.gauge(
            "text_messages_ended_last_hour",
            "Sends by outcome, within the last hour.",
            reports.ended_since(now - timedelta(hours=1)),
        ),
        metrics.gauge(
            "text_messages_awaiting_approval",
            "Messages that wait for a yes.",
            {None: reports.awaiting_approval()},
        ),
        metrics.gauge(
            "text_messages_oldest_due_seconds",
            "How long the oldest due message has waited.",
            {None: state.seconds_since(state.oldest_due) or 0},
        ),
        metrics.gauge(
            "text_messages_retrying", "Messages whose sends fail.", {None: state.retrying}
        ),
        metrics.gauge(
            "text_messages_last_sent_timestamp_seconds",
            "When a carrier took a text, latest.",
            {None: timestamp(state.last_sent_at)},
        ),
        metrics.gauge(
            "text_messages_last_pass_timestamp_seconds",
            "When a scheduler began a pass, latest.",
            {None: timestamp(state.last_pass_at)},
        ),
        metrics.gauge(
            "text_messages_commonest_error",
            "Messages with the commonest error of the last hour.",
            {error: errors},
            label="error",
        ),
        metrics.gauge(
            "text_messages_carrier_trouble",
            "1 where the carrier refuses the account.",
            {state.carrier or "": int(bool(state.trouble))},
            label="carrier",
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
    described = json.loads((ROOT / "openapi.json").read_text())
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
    """Serve a part of the page."""
    if name not in DOCS:
        abort(404)
    return send_from_directory(DOCS[name], name)


def timestamp(instant: datetime | None) -> float:
    """Return an instant in seconds since 1970, as Prometheus has it; 0 where there is none."""
    return instant.timestamp() if instant else 0
