"""Static files, served whole from memory: a slow reader holds no descriptor of a file."""

import gzip
import mimetypes
from functools import cache
from pathlib import Path

from flask import Response, request
from werkzeug.http import generate_etag


@cache
def read(path: Path) -> tuple[bytes, bytes, str, str]:
    """Return a file's content, plain and compressed, its type and its ETag.

    It is ours, so it does not change while the process runs.
    """
    plain = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return plain, gzip.compress(plain, mtime=0), kind, generate_etag(plain)


def serve(path: Path) -> Response:
    """Return a file of ours; a browser that has it already gets 304."""
    plain, compressed, kind, etag = read(path)
    response = Response(plain, mimetype=kind)
    response.headers["Vary"] = "Accept-Encoding"
    if request.accept_encodings["gzip"] and len(compressed) < len(plain):
        response.data = compressed
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Cache-Control"] = "no-cache"  # ask whether it has changed
    response.set_etag(etag, weak=True)
    return response.make_conditional(request)
