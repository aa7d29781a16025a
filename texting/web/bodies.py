"""JSON as it is read and written: the bodies of requests and answers."""

import hashlib
import json
from collections import Counter
from datetime import datetime
from typing import Any

from texting.database import isoformat

COMPACT = (",", ":")
MOST_PROBLEMS = 20  # that are listed; more are counted
LONGEST_NAME = 100  # characters of an unknown field that are repeated


class BadRequest(Exception):
    """The request is invalid; `problems` lists why, one text for each problem.

    Beyond MOST_PROBLEMS, a last text counts the others.
    """

    def __init__(self, *problems: str):
        listed, more = problems[:MOST_PROBLEMS], len(problems) - MOST_PROBLEMS
        if more > 0:
            listed += (f"body: has {more} more problem{'s' if more > 1 else ''}",)
        super().__init__(*listed)
        self.problems = list(listed)


def parse(body: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; raise BadRequest if it is not exactly one value."""
    try:
        return _DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise BadRequest("body: must be UTF-8") from None
    except RecursionError:
        raise BadRequest("body: is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"body: must be JSON: {error}") from None
    except ValueError:
        raise BadRequest("body: contains a number that is too long") from None


def dump(response: dict) -> str:
    """Return the JSON text of an answer, a line."""
    return json.dumps(response, separators=COMPACT) + "\n"


def dump_error(status: int, message: str, details: dict, now: datetime) -> str:
    """Return the JSON text of the error body."""
    error = {"error": True, "message": message, "statusCode": status, "details": details}
    return dump(error | {"timestamp": isoformat(now)})


def digest(value: Any) -> str:
    """Return a digest that is the same for equal JSON values, however they are written."""
    try:
        canonical = json.dumps(value, sort_keys=True, separators=COMPACT)
    except RecursionError:  # a value near the limit can be read but not written
        raise BadRequest("body: is nested too deeply") from None
    return hashlib.sha256(canonical.encode()).hexdigest()


def shortened(name: str) -> str:
    """Return a name of the client's, cut where it is too long to be repeated."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _named_once(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise BadRequest(
            *(f"{shortened(name)}: is given twice" for name in value if times[name] > 1)
        )
    return value


def _refuse_constant(name):
    raise BadRequest(f"body: must be JSON, which has no {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_named_once, parse_constant=_refuse_constant)
