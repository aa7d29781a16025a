"""The pages of monitoring: `/`, `/healthz`, `/metrics`, `/openapi.json`, `/docs`."""

import hmac
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import flask_swagger_ui
from flask import Blueprint, Flask, Response, current_app, g, render_template, request, url_for
from werkzeug.exceptions import NotFound, Unauthorized

from texting.database import EPOCH, clock
from texting.events.outbox import Event
from texting.messages import receipts
from texting.monitoring import health, metrics
from texting.monitoring.abuse import Abuse
from texting.replies import opt_outs
from texting.reports import queue
from texting.reports.arrivals import Arrivals
from texting.web import bodies, files
from texting.web.requests import BEARER, bearer_token

HERE = Path(__file__).parent
STATIC = HERE / "static"
SWAGGER_UI = Path(flask_swagger_ui.__file__).parent / "dist"
DOCS = {"page.js": STATIC, "page.css": STATIC}
DOCS |= dict.fromkeys(("swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"), SWAGGER_UI)
"""The files of the page at /docs, and their folders, of which nothing else is served."""

ARRIVALS = {  # of each carrier that reports whether texts arrived
    "delivered": "Texts taken 10 to 60 minutes ago that were delivered.",
    "undelivered": "Texts taken 10 to 60 minutes ago that were not delivered.",
    "unheard": "Texts taken 10 to 60 minutes ago of which nothing was heard.",
    "median_seconds": "The median time until such texts were delivered.",
    "ended": "Texts that failed, were delivered or were not in the last hour.",
    "failed": "Texts that failed in the last hour.",
}

blueprint = Blueprint("monitoring", __name__, template_folder="templates")


def register(app: Flask) -> None:
    """Add these pages to the application, `/metrics` only if METRICS_TOKEN is set."""
    app.register_blueprint(blueprint)
    app.extensions["health"] = health.Reader(app.config["SETTINGS"])
    app.extensions["abuse"] = Abuse()
    if app.config["SETTINGS"].metrics_token:
        app.add_url_rule("/metrics", view_func=show_metrics)
        app.after_request(observe)


def observe(response: Response) -> Response:
    """Count the answer by its status, and record how long it took."""
    metrics.REQUESTS.labels(response.status_code).observe(time.perf_counter() - g.began_at)
    return response


@blueprint.get("/", strict_slashes=False)  # otherwise Flask redirects "//", in HTML
def show_addresses() -> Response:
    """Show the addresses of the service, as a page to browsers; the desk's only if there is one."""
    views = {
        "text_messages": "api.create_text_message",
        "docs": "monitoring.show_docs",
        "openapi": "monitoring.show_description",
        "health": "monitoring.show_health",
        "desk": "desk.waiting",
    }
    there = current_app.view_functions
    addresses = {name: url_for(view) for name, view in views.items() if view in there}
    # Not parsed: that would cost more than everything else, and anyone may ask
    named = re.search("application/json|text/html", request.headers.get("Accept", "").lower())
    if named and named[0] == "text/html":
        response = Response(render_template("addresses.html", addresses=addresses))
        response.headers["Content-Security-Policy"] = (
            "default-src 'none'; style-src 'self'; img-src 'self'; "
            "base-uri 'none'; frame-ancestors 'none'"
        )
    else:
        response = current_app.json.response(addresses)
    response.headers["Vary"] = "Accept"
    return response


@blueprint.get("/healthz")
def show_health() -> dict | Response:
    """Report that the database answers, and the health of the service.

    Anyone may ask, so it names only the kinds of problems. With `?strict`, answer 503 if there is
    one.
    """
    reader = current_app.extensions["health"]
    state = reader.read()
    problems = reader.problems(state, clock.now())
    told = {
        "version": current_app.config["VERSION"],
        "oldest_due_seconds": state.seconds_since(state.oldest_due) or 0,
        "retrying": state.retrying,
        "last_sent_seconds": state.seconds_since(state.last_sent_at),
        "last_pass_seconds": state.seconds_since(state.last_pass_at),
        "problems": [*dict.fromkeys(each.kind for each in problems)],
    }
    if "strict" in request.args and told["problems"]:
        text = bodies.dump_error(
            503, "There are problems; flask stats describes them.", told, state.now
        )
        return Response(text, 503, content_type="application/json")
    return {"status": "ok"} | told


def show_metrics() -> Response:
    """Return the metrics for Prometheus; METRICS_TOKEN is the bearer token."""
    now, token = clock.now(), current_app.config["SETTINGS"].metrics_token
    # WSGI decodes headers as Latin-1
    if not hmac.compare_digest(bearer_token().encode("latin-1"), token.encode()):
        raise Unauthorized("The token is missing or invalid.", www_authenticate=BEARER)
    reader, day_ago = current_app.extensions["health"], now - timedelta(days=1)
    state = reader.read()
    due, ended = state.seconds_since(state.oldest_due), queue.ended_since(now - health.HOUR)
    sent, passed = ((at or EPOCH).timestamp() for at in (state.last_sent_at, state.last_pass_at))
    events = Event.by_name()
    waiting = {key: each.waiting for key, each in events.items()}
    waits = {key: (now - (each.oldest or now)).total_seconds() for key, each in events.items()}
    given_up = {key: each.given_up for key, each in events.items()}
    problems = Counter(each.kind for each in reader.problems(state, now))
    problems = {kind: problems[kind] for kind in health.KINDS}
    carriers = state.carriers or [state]
    down = {each.carrier or "": int(bool(each.trouble)) for each in carriers}
    unmatched, ignored = receipts.unmatched(day_ago, now), opt_outs.ignored_opt_outs(day_ago)
    gauges = [
        ("", "Messages that have not ended, by status.", queue.waiting(), "status"),
        ("_ended_last_hour", "Messages that ended in the last hour, by status.", ended, "status"),
        ("_awaiting_approval", "Awaiting approval.", queue.awaiting_approval()),
        ("_oldest_due_seconds", "How long the oldest due message has waited.", due or 0),
        ("_retrying", "Messages that are retried.", state.retrying),
        ("_last_sent_timestamp_seconds", "When a carrier last took a text.", sent),
        ("_last_pass_timestamp_seconds", "When a scheduler last ran.", passed),
        ("_events_waiting", "Events that wait to be delivered, by key.", waiting, "key"),
        ("_events_oldest_seconds", "How long the oldest event has waited, by key.", waits, "key"),
        ("_events_given_up", "Events that were given up, by key.", given_up, "key"),
        ("_carrier_trouble", "1 if the carrier refuses the account or is down.", down, "carrier"),
        *(
            (f"_carrier_{name}", help, of_carriers(state.arrivals, name), "carrier")
            for name, help in ARRIVALS.items()
        ),
        ("_problems", "Problems that /healthz?strict reports, by kind.", problems, "kind"),
        ("_receipts_unmatched_last_day", "Receipts that belong to no message.", unmatched),
        (
            "_opt_outs_ignored_last_day",
            "STOPs and STARTs whose number was not understood.",
            ignored,
        ),
    ]
    told = [metrics.gauge(f"text_messages{name}", *about) for name, *about in gauges]
    return Response(metrics.render(told), content_type=metrics.CONTENT_TYPE)


def of_carriers(arrivals: Sequence[Arrivals], name: str) -> dict[str, int]:
    """Return a figure of the carriers that have it, by name."""
    figures = {each.carrier: getattr(each, name) for each in arrivals}
    return {carrier: figure for carrier, figure in figures.items() if figure is not None}


@blueprint.get("/openapi.json")
def show_description() -> Response:
    """Return openapi.json with this service's address and longest message."""
    settings = current_app.config["SETTINGS"]
    described = json.loads((HERE / "openapi.json").read_text())
    described["servers"][0]["url"] = settings.public_url or request.script_root or "/"
    fields = described["components"]["schemas"]["TextMessageRequest"]["properties"]
    fields["message"]["maxLength"] = settings.max_message_length
    return Response(json.dumps(described, indent=2) + "\n", content_type="application/json")


@blueprint.get("/docs")
def show_docs() -> Response:
    """Show openapi.json as a page where requests can be tried."""
    response = files.serve(STATIC / "index.html")
    response.headers["Content-Security-Policy"] = (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
    )
    return response


@blueprint.get("/docs/<name>")
def show_docs_file(name: str) -> Response:
    if name not in DOCS:
        raise NotFound
    return files.serve(DOCS[name] / name)
