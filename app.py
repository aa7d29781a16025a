"""The web application: one blueprint with the one operation, and one renderer of errors."""

import functools
import hmac
import json
import logging
import re
import secrets
import time
import traceback
from contextvars import ContextVar
from datetime import timedelta
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
)
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import HTTPException, Unauthorized

import cli
import logs
import models
import recipients
import schemas
import settings as environment
from hours import BusinessHours
from models import AlreadyAnswered, ApiKey, DoNotCall, Message, Status, clock
from schemas import BadRequest

MAX_BODY = 64 * 1024
HERE = Path(__file__).parent
SWAGGER_UI = Path(flask_swagger_ui.__file__).parent / "dist"
DOCS = {  # what the page at /docs is made of, and nothing else of these folders
    "page.js": HERE / "static",
    "swagger-ui-bundle.js": SWAGGER_UI,
    "swagger-ui.css": SWAGGER_UI,
    "favicon-32x32.png": SWAGGER_UI,
}

api = Blueprint("api", __name__, url_prefix="/v1")
log = logging.getLogger("web")
request_id = ContextVar("request_id", default=None)


def create_app(settings: environment.Settings | None = None) -> Flask:
    """Build the application from the environment, or from the given settings."""
    if settings is None:
        try:
            settings = environment.load()
        except environment.SettingsError as problems:
            raise SystemExit(str(problems)) from None
    logs.start(settings).addFilter(name_record)
    models.connect(settings.database_url)
    app = Flask(__name__, static_folder=None)
    app.config["SETTINGS"] = settings
    app.extensions["business_hours"] = BusinessHours.from_settings(settings)
    app.json.sort_keys = False
    app.url_map.merge_slashes = False  # a redirect would be HTML
    app.register_blueprint(api)
    app.add_url_rule("/healthz", view_func=health)
    app.add_url_rule("/openapi.json", view_func=show_description)
    app.add_url_rule("/docs", view_func=show_docs)
    app.add_url_rule("/docs/<name>", view_func=show_docs_file)
    observe = None
    if settings.metrics_token:
        import metrics

        observe, app.extensions["metrics"] = metrics.observe, metrics
        app.add_url_rule("/metrics", view_func=show_metrics)
    app.wsgi_app = name_requests(app.wsgi_app, observe)
    for kind, handler in (
        (HTTPException, http_error),
        (BadRequest, bad_request),
        *((kind, database_error) for kind in models.ALL_DATABASE_ERRORS),
        (Exception, unexpected_error),
    ):
        app.register_error_handler(kind, handler)
    cli.register(app)
    return app


def name_requests(wsgi_app, observe=None):
    """Give each request an id, which its answer and its lines in the log carry.

    Around Flask, whose hooks take ten times as long.
    """

    def serve(environ, start_response):
        began_at = time.perf_counter()
        name = secrets.token_hex(8)
        before = request_id.set(name)

        def start(status, headers, *error):
            if observe:
                observe(int(status[:3]), time.perf_counter() - began_at)
            return start_response(status, [*headers, ("X-Request-Id", name)], *error)

        try:
            return wsgi_app(environ, start)
        finally:
            request_id.reset(before)

    return serve


def name_record(record):
    """Give a line of the log its request's id."""
    if name := request_id.get():
        record.request_id = name
    return True


def with_key(view):
    """Let nobody past without a valid key, before the body is read; the view gets the key's id."""

    @functools.wraps(view)
    def checked():
        secret = request.headers.get("X-Api-Key")
        if secret is None:
            secret = bearer_token()
        key = secret and ApiKey.authenticate(secret, clock())
        if not key:
            raise Unauthorized("The API key is missing or invalid.", www_authenticate=BEARER)
        return view(key)

    return checked


def bearer_token():
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@api.post("/text-messages")
@with_key
def create_text_message(key):
    """Queue or schedule one text message."""
    value = read_json()
    now = clock()  # not before a slow client has sent the last byte
    idempotency_key, digest = idempotency(value)
    if idempotency_key and (earlier := answered(key, idempotency_key)):
        return repeat(earlier, digest)

    settings = current_app.config["SETTINGS"]
    order = schemas.load(value, now, settings.max_message_length)
    recipient = order.pop("to")
    if order["check_dnc"] and on_do_not_call_list(recipient):
        abort(403, "The recipient is on the Do Not Call list.")

    hours = current_app.extensions["business_hours"]
    facts = recipients.facts(recipient, now, hours)
    message = order | {
        "id": models.new_id(now),
        "to": recipient.e164,
        "max_retries": settings.max_retries,
        **decide(order, recipient, facts, hours, now),
    }
    answer = schemas.dump(describe(message, recipient, facts, hours))
    try:
        Message.store(
            **message,
            key=key,
            approved=not order["manual_mode"],
            created_at=now,
            idempotency_key=idempotency_key,
            request_digest=digest,
            answer=answer if idempotency_key else None,
        )
    except AlreadyAnswered:
        return repeat(answered(key, idempotency_key), digest)
    log.info("message %s %s", message["id"], message["status"])
    return respond(answer, 201)


def decide(order, recipient, facts, hours, now):
    """Whether the text goes now or later, by what was asked for and the recipient's own clock."""
    if send_date := order.get("send_date"):
        return {"status": Status.SCHEDULED, "send_at": send_date}
    if facts.within_business_hours:
        return {"status": Status.QUEUED, "send_at": now}
    opening = recipients.next_opening(recipient, now, hours)
    return {"status": Status.SCHEDULED, "send_at": opening}


def describe(message, recipient, facts, hours):
    """The interface's words for a new message."""
    options = ("manual_mode", "available_to_group", "check_dnc", "max_retries", "status")
    queued, send_at = message["status"] == Status.QUEUED, schemas.isoformat(message["send_at"])
    when = "queued for immediate sending" if queued else f"scheduled for {send_at}"
    approval = "; it awaits manual approval and is not sent before"
    return {name: message[name] for name in options} | {
        "message_id": str(message["id"]),
        "to_phone_number": recipient.international,
        "to_phone_normalized": recipient.e164,
        "recipient_country": recipient.country,
        "recipient_timezone": facts.timezone,
        "recipient_location": recipients.location(recipient),
        "recipient_local_time": facts.local_time,
        "timezone_offset": facts.timezone_offset,
        "is_dst": facts.is_dst,
        "scheduled_send_date": send_at,
        "within_business_hours": facts.within_business_hours,
        "can_send_now": queued,
        "business_hours": str(hours),
        "message_length": len(message["message"]),
        "message": f"Text message {when}{approval if message['manual_mode'] else ''}.",
    }


def on_do_not_call_list(recipient):
    return models.revive(lambda: DoNotCall.lists(recipient.e164))


def answered(key, idempotency_key):
    """The message that was created with this idempotency key of this API key, or None."""
    return models.revive(lambda: Message.answered(key, idempotency_key))


def health():
    """Say that the database answers, and how many seconds the oldest due message has waited."""
    now = clock()
    oldest = models.revive(lambda: Message.oldest_due(now))
    return {"status": "ok", "oldest_due_seconds": seconds_since(oldest, now)}


def show_metrics():
    """Tell Prometheus about requests and messages; needs METRICS_TOKEN as a bearer token."""
    metrics, now = current_app.extensions["metrics"], clock()
    token = current_app.config["SETTINGS"].metrics_token
    if not hmac.compare_digest(bearer_token().encode(), token.encode()):
        raise Unauthorized("The token is missing or invalid.", www_authenticate=BEARER)
    with models.turn:
        waited = seconds_since(models.revive(lambda: Message.oldest_due(now)), now)
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
                {None: waited},
            ),
        ]
    return Response(metrics.render(gauges), content_type=metrics.CONTENT_TYPE)


def show_description():
    """Describe the interface in OpenAPI."""
    return respond(description(current_app.config["SETTINGS"].max_message_length), 200)


@functools.cache
def description(max_message_length):
    """The text of openapi.json, with the length of message that is allowed here."""
    described = json.loads((HERE / "openapi.json").read_text())
    fields = described["components"]["schemas"]["TextMessageRequest"]["properties"]
    fields["message"]["maxLength"] = max_message_length
    return json.dumps(described, indent=2) + "\n"


def show_docs():
    """Show openapi.json as a page on which a request can be tried."""
    response = send_from_directory(HERE / "static", "index.html")
    response.headers["Content-Security-Policy"] = (
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'"
    )
    return response


def show_docs_file(name):
    """Hand out a part of the page."""
    if name not in DOCS:
        abort(404)
    return send_from_directory(DOCS[name], name)


def seconds_since(instant, now):
    return round((now - instant).total_seconds()) if instant else 0


def read_json():
    """The request's JSON value; its size is checked before its type, its type before its text."""
    body = read_body()
    if request.mimetype != "application/json":
        raise BadRequest("Content-Type: must be application/json")
    return schemas.parse(body)


def read_body():
    """The bytes of the request, all that were announced and no more than MAX_BODY.

    Not by Flask's `get_data()`, which ends a body that is too long or too short and says nothing.
    """
    length = request.content_length
    announced = length or 0
    if announced > MAX_BODY:
        abort(413)
    chunked = length is None and request.environ.get("wsgi.input_terminated")
    try:
        body = request.environ["wsgi.input"].read(MAX_BODY + 1 if chunked else announced)
    except Exception:  # gunicorn's errors have no base of their own
        raise BadRequest("body: is not encoded as announced") from None
    if len(body) > MAX_BODY:
        abort(413)
    if len(body) < announced:
        raise BadRequest("body: is shorter than announced")
    return body


def idempotency(value):
    """The request's idempotency key and the digest of its body; two Nones where there is no key."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None, None
    if not re.fullmatch("[!-~]{1,255}", key):
        raise BadRequest("Idempotency-Key: must be 1 to 255 visible ASCII characters")
    return key, schemas.digest(value)


def repeat(message, digest):
    """Answer as the first request with this idempotency key was answered."""
    if message.request_digest != digest:
        raise BadRequest("Idempotency-Key: was used before, with another request body")
    if message.answer is None:
        raise BadRequest("Idempotency-Key: was used before; the answer is no longer kept")
    return respond(message.answer, 201)


def respond(text, status):
    return Response(text, status, content_type="application/json")


def render_error(status, message, details=None, response=None):
    """Every error of the application, whatever the path; keeps the headers of `response`."""
    response = response or respond("", status)
    response.set_data(schemas.dump_error(status, message, details or {}, clock()))
    response.content_type = "application/json"
    return response


def http_error(error):
    details = {"validationErrors": [f"body: {error.description}"]} if error.code == 400 else {}
    return render_error(error.code, error.description, details, error.get_response())


def bad_request(error):
    return render_error(400, "The request is not valid.", {"validationErrors": error.problems})


def database_error(error):
    log.error("the database failed: %s", models.reason(error))
    return render_error(503, "The service cannot reach its database. Try again later.")


def unexpected_error(error):
    # without the exception's own text, which may repeat what the client sent
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return render_error(500, "Something went wrong on our side.")


BEARER = WWWAuthenticate("bearer")
