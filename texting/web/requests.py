"""What the views share: the body of a request, its bearer token, its id, its connection."""

import logging
import random
import time
from collections.abc import Callable
from urllib.parse import quote

from flask import Flask, Response, abort, current_app, g, has_request_context, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.routing import RequestRedirect
from werkzeug.wsgi import get_host

from texting import database
from texting.web.bodies import BadRequest

MAX_BODY = 64 * 1024  # bytes
TOO_LARGE = f"The body has more than {MAX_BODY // 1024} KiB."
BEARER = WWWAuthenticate("bearer")
REFUSED = "text_messages.refused"  # in the environ: the error of a request that cannot be served


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
        abort(413, TOO_LARGE)
    chunked = length is None and request.environ.get("wsgi.input_terminated")
    try:
        body = request.environ["wsgi.input"].read(MAX_BODY + 1 if chunked else announced)
    except TimeoutError:
        raise BadRequest("body: is shorter than announced") from None
    except Exception:  # gunicorn's errors have no common base class
        raise BadRequest("body: is not encoded as announced") from None
    if len(body) > MAX_BODY:
        abort(413, TOO_LARGE)
    if len(body) < announced:
        raise BadRequest("body: is shorter than announced")
    return body


# Around each request


def register(app: Flask) -> None:
    """Give each request an id and a valid host; return its connection to the pool afterwards."""
    app.wsgi_app = with_parsable_address(app.wsgi_app)
    app.before_request(begin_request)
    app.after_request(add_headers)
    app.teardown_request(release_connection)


def with_parsable_address(serve: Callable) -> Callable:
    """Wrap a WSGI application so that every host can be part of an address.

    A request with another host is refused, but the page that says so needs addresses. Non-ASCII
    bytes of a query are quoted, because Werkzeug raises UnicodeDecodeError if they are not UTF-8.
    """

    def serve_request(environ, start_response):
        try:
            get_host(environ).partition(":")[0].encode("idna")
        except UnicodeError:
            problem = BadRequest("Host: must be the name of a host")
            environ |= {"HTTP_HOST": "invalid", REFUSED: problem}  # nobody is called so (RFC 6761)
        if not environ.get("QUERY_STRING", "").isascii():
            query = environ["QUERY_STRING"].encode("latin-1")
            environ["QUERY_STRING"] = quote(query, safe=bytes(range(128)))
        return serve(environ, start_response)

    return serve_request


def begin_request() -> None:
    """Give the request an id and note when it began; raise the error of one that is refused."""
    g.request_id, g.began_at = f"{random.getrandbits(64):016x}", time.perf_counter()
    if problem := request.environ.get(REFUSED):
        raise problem
    if isinstance(request.routing_exception, RequestRedirect):  # to the client's Host, in HTML
        raise MethodNotAllowed(current_app.create_url_adapter(request).allowed_methods())


def add_headers(response: Response) -> Response:
    """Add the request's id to its answer, and the headers that all answers have."""
    response.headers["X-Request-Id"] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers.setdefault("Cache-Control", "no-store")
    if (current_app.config["SETTINGS"].public_url or "").startswith("https:"):
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    return response


def release_connection(error: BaseException | None) -> None:
    """Return the connection of the database to its pool, also after an error."""
    database.db.close()


def add_request_id(record: logging.LogRecord) -> bool:
    """Add the request's id to a log line."""
    if has_request_context() and (name := g.get("request_id")):
        record.request_id = name
    return True
