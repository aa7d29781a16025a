"""One renderer of errors, with the body of the interface whatever the path."""

import logging
import traceback
from collections.abc import Callable

from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from texting import database
from texting.database import clock
from texting.web import bodies

log = logging.getLogger("web")

OWN_WORDS = {
    NotFound.description: "There is nothing at this address.",
    MethodNotAllowed.description: "This address does not take this method: see the Allow header.",
}
"""Our words in place of Werkzeug's descriptions."""

NO_SLASH = "This address has no slash at the end: POST to /v1/text-messages."
NOT_HERE = (
    "Messages cannot be read here. Use webhook events, the desk or `flask messages show ID` to see "
    "a message's status."
)


def register(
    app: Flask,
    fields: frozenset[str],
    error_page: Callable[[int, str, Response], Response | None],
) -> None:
    """Render every error of an application.

    `fields` are those of a request that the log may name. `error_page` returns the page that
    people see in place of the body; None for programs.
    """
    app.extensions["fields"], app.extensions["error_page"] = fields, error_page
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(bodies.BadRequest, bad_request)
    for kind in database.ERRORS:
        app.register_error_handler(kind, database_error)
    app.register_error_handler(Exception, unexpected_error)


def render_error(
    status: int, message: str, details: dict | None = None, response: Response | None = None
) -> Response:
    """Render any error of the application; keep the headers of `response`.

    The body is the same on every path, except that the desk shows people a page.
    """
    key, fields = g.get("key"), ",".join(g.get("fields", ()))
    name = key.name if key else None
    if reason := g.get("abuse"):
        current_app.extensions["abuse"].note(name, reason)
    else:
        about = f" about {fields}" if fields else ""
        log.info("answered %s to key %s%s", status, name or "-", about, extra={"key": name})
    response = response or Response(status=status)
    words = OWN_WORDS.get(message, message)
    try:
        page = current_app.extensions["error_page"](status, message, response)
    except Exception as error:  # it may fail for the reason for which the page before it did
        log_bug(error)
        response.set_data(f"{words}\n")
        response.content_type = "text/plain; charset=utf-8"
        return response
    if page:
        return page
    response.set_data(bodies.dump_error(status, words, details or {}, clock.now()))
    response.content_type = "application/json"
    return response


def http_error(error: HTTPException) -> Response:
    """Render an error that Flask or a view aborted with."""
    details = {"validationErrors": [f"body: {error.description}"]} if error.code == 400 else {}
    words = error.description
    if error.code == 404 and request.path.startswith("/v1/text-messages/"):
        is_slash = request.path == "/v1/text-messages/" and request.method == "POST"
        words = NO_SLASH if is_slash else NOT_HERE
    return render_error(error.code, words, details, error.get_response())


def bad_request(error: bodies.BadRequest) -> Response:
    """Render all problems of a request; keep their fields for the log."""
    named = {problem.partition(":")[0] for problem in error.problems}
    g.fields = sorted(named & current_app.extensions["fields"])
    return render_error(400, "The request is not valid.", {"validationErrors": error.problems})


def database_error(error: Exception) -> Response:
    """Render an outage of the database; treat any other database error as a bug."""
    if not database.is_outage(error):
        return unexpected_error(error)
    database.db.close_idle()  # the other connections may have died with this one
    log.error("the database failed: %s", database.reason(error))
    if request.endpoint == "api.create_text_message":
        current_app.extensions["health"].not_stored_at = clock.now()
    return render_error(503, "The service cannot reach its database. Try again later.")


def unexpected_error(error: Exception) -> Response:
    """Render a bug; log its traceback."""
    log_bug(error)
    return render_error(500, "Something went wrong on our side.")


def log_bug(error: Exception) -> None:
    """Log the traceback of an error that nothing expects."""
    # Without the exception's message, which may repeat data of the client
    trace = "".join(traceback.format_tb(error.__traceback__))
    log.error("unexpected %s\n%s", type(error).__name__, trace)
