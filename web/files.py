"""Static files, served whole from memory: a slow reader holds no descriptor of a file."""

import gzip
import mimetypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

from flask import Response, request
from werkzeug.http import generate_etag


class File(NamedTuple):
    """A file's content, plain and compressed, its type and its ETag."""

    plain: bytes
    compressed: bytes
    kind: str
    etag: str


@cache
def read(path: Path) -> File:
    """Read a file of ours; it does not change while the process runs."""
    plain = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return File(plain, gzip.compress(plain, mtime=0), kind, generate_etag(plain))


def serve(path: Path) -> Response:
    """Return a file of ours; a browser that has it already gets 304."""
    file = read(path)
    response = Response(file.plain, mimetype=file.kind)
    response.headers["Vary"] = "Accept-Encoding"
    if request.accept_encodings["gzip"] and len(file.compressed) < len(file.plain):
        response.data = file.compressed
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Cache-Control"] = "no-cache"  # ask whether it has changed
    response.set_etag(file.etag, weak=True)
    return response.make_conditional(request)
