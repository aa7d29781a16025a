"""The web application: its parts, request ids, and one renderer of errors."""

import logging
import random
import traceback

from flask import Flask, Response, current_app, g, has_request_context, request
from werkzeug.exceptions import HTTPException

import api
import callbacks
import carriers
import cli
import database
import desk
import logs
import models
import recipients
import schemas
import settings as environment
from carriers import Carrier
from monitoring import pages
from recipients.hours import BusinessHours
from schemas import BadRequest

log = logging.getLogger("web")


def create_app(settings: environment.Settings | None = None) -> Flask:
    """Build the application from the environment, or from the given settings."""
    from_environment = settings is None
    if from_environment:
        settings = environment.load_or_exit()
    check_countries(settings)
    check_quiet_hours(settings)
    carrier = connect_carrier(settings)
    logs.start(settings.log_level, settings.log_format).addFilter(add_request_id)
    if from_environment:
        environment.warn_of_misspelt()
    database.connect(settings.database_url)
    app = Flask(__name__, static_folder=None)
    app.config["SETTINGS"] = settings
    app.config["VERSION"] = environment.VERSION
    app.extensions["business_hours"] = BusinessHours.from_settings(settings)
    app.extensions["carrier"] = carrier
    app.json.sort_keys = False
    app.url_map.merge_slashes = False  # a redirect would be HTML
    app.before_request(begin_request)
    app.after_request(show_request_id)
    app.teardown_request(release_connection)
    app.register_blueprint(api.blueprint)
    app.register_blueprint(callbacks.blueprint)
    pages.register(app)
    desk.register(app)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(BadRequest, bad_request)
    for kind in database.ERRORS:
        app.register_error_handler(kind, database_error)
    app.register_error_handler(Exception, unexpected_error)
    cli.register(app)
    return app


def check_countries(settings: environment.Settings) -> None:
    """End the process if ALLOWED_COUNTRIES has an unknown code, such as UK for GB."""
    known = {*recipients.REGIONS, recipients.NO_COUNTRY}
    if unknown := sorted((settings.allowed_countries or frozenset()) - known):
        environment.exit_with(
            f"ALLOWED_COUNTRIES: no country with telephone numbers has the ISO 3166 code "
            f"{', '.join(unknown)}"
        )


def check_quiet_hours(settings: environment.Settings) -> None:
    """End the process if QUIET_HOURS leave no minute open in all zones of a country's numbers."""
    if not settings.quiet_hours:
        return
    hours, allowed = BusinessHours.from_settings(settings), settings.allowed_countries
    closed = recipients.never_open(hours, models.clock())
    if names := sorted(recipients.country_name(c) for c in closed if not allowed or c in allowed):
        environment.exit_with(
            f"QUIET_HOURS: leave no minute of BUSINESS_HOURS open on all clocks of numbers in "
            f"{', '.join(names)}"
        )


def connect_carrier(settings: environment.Settings) -> Carrier | None:
    """Return the carrier that verifies callbacks; end the process if CARRIER_URL is invalid."""
    if not settings.carrier_url:
        return None
    try:
        return carriers.connect(settings.carrier_url, public_url=settings.public_url, sending=False)
    except ValueError as problem:
        environment.exit_with(f"CARRIER_URL: {problem}")


# Around each request


def begin_request() -> None:
    """Give the request an id."""
    g.request_id = f"{random.getrandbits(64):016x}"


def show_request_id(response: Response) -> Response:
    """Add the request's id to its answer."""
    response.headers["X-Request-Id"] = g.request_id
    return response


def release_connection(error: BaseException | None) -> None:
    """Return the connection of the database to its pool, also after an error."""
    database.db.close()


def add_request_id(record: logging.LogRecord) -> bool:
    """Add the request's id to a log line."""
    if has_request_context() and (name := g.get("request_id")):
        record.request_id = name
    return True


# Errors


def render_error(
    status: int, message: str, details: dict | None = None, response: Response | None = None
) -> Response:
    """Render any error of the application; keep the headers of `response`.

    The body is the same on every path, except that the desk shows people a page.
    """
    key, fields = g.get("key"), ",".join(g.get("fields", ())) or "-"
    name = key.name if key else None
    if reason := g.get("abuse"):
        current_app.extensions["abuse"].note(name, reason)
    else:
        words = "refused with %s: key %s, fields %s"
        log.info(words, status, name or "-", fields, extra={"key": name})
    response = response or Response(status=status)
    if desk.serves_request():
        return desk.render_error(status, message, response)
    response.set_data(schemas.dump_error(status, message, details or {}, models.clock()))
    response.content_type = "application/json"
    return response


def http_error(error: HTTPException) -> Response:
    """Render an error that Flask or a view aborted with."""
    details = {"validationErrors": [f"body: {error.description}"]} if error.code == 400 else {}
    return render_error(error.code, error.description, details, error.get_response())


def bad_request(error: BadRequest) -> Response:
    """Render all problems of a request; keep their fields for the log."""
    g.fields = schemas.fields_in(error.problems)
    return render_error(400, "The request is not valid.", {"validationErrors": error.problems})


def database_error(error: Exception) -> Response:
    """Render an outage of the database; treat any other database error as a bug."""
    if not database.is_outage(error):
        return unexpected_error(error)
    database.db.close_idle()  # the other connections may have died with this one
    log.error("the database failed: %s", database.reason(error))
    if request.endpoint == "api.create_text_message":
        current_app.extensions["health"].not_stored_at = models.clock()
    return render_error(503, "The service cannot reach its database. Try again later.")


def unexpected_error(error: Exception) -> Response:
    """Render a bug; log its traceback."""
    # Without the exception's message, which may repeat data of the client
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return render_error(500, "Something went wrong on our side.")
