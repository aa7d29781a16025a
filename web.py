"""What the views share: the body of a request and its bearer token."""

from flask import abort, request
from werkzeug.datastructures import WWWAuthenticate

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
