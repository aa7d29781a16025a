"""What the views share: the body of a request, its bearer token, its id, its connection."""

import logging
import random
from collections.abc import Callable

from flask import Flask, Response, abort, g, has_request_context, request
from werkzeug.datastructures import WWWAuthenticate

import database
from schemas import BadRequest

MAX_BODY = 64 * 1024  # bytes
BEARER = WWWAuthenticate("bearer")


def bearer_token() -> str:
    """Return the token of the Authorization header, or an empty string."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def read_body() -> bytes:
    """Return the whole body of the request, at most MAX_BODY bytes.

    Unlike Flask's `get_data()`, refuse a body that is too long or shorter than announced.
    """
    length = request.content_length
    announced = length or 0
    if announced > MAX_BODY:
        _too_large()
    chunked = length is None and request.environ.get("wsgi.input_terminated")
    try:
        body = request.environ["wsgi.input"].read(MAX_BODY + 1 if chunked else announced)
    except TimeoutError:
        raise BadRequest("body: is shorter than announced") from None
    except Exception:  # gunicorn's errors have no common base class
        raise BadRequest("body: is not encoded as announced") from None
    if len(body) > MAX_BODY:
        _too_large()
    if len(body) < announced:
        raise BadRequest("body: is shorter than announced")
    return body


def _too_large():
    abort(413, f"The body has more than {MAX_BODY // 1024} KiB.")


# Around each request


def register(app: Flask) -> None:
    """Give each request an id and a host that parses, and its connection back to the pool."""
    app.wsgi_app = with_parsable_host(app.wsgi_app)
    app.before_request(begin_request)
    app.after_request(show_request_id)
    app.teardown_request(release_connection)


def with_parsable_host(serve: Callable) -> Callable:
    """Return a WSGI application that serves the requests for a host that is no name, too.

    Flask could make no address of such a host, and so no page of an error.
    """

    def serve_request(environ, start_response):
        try:
            environ.get("HTTP_HOST", "").partition(":")[0].encode("idna")
        except UnicodeError:
            environ["HTTP_HOST"] = "invalid"  # RFC 6761: a name that nobody has
        return serve(environ, start_response)

    return serve_request


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
