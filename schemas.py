"""The schema of a request, and JSON as it is read and written.

openapi.json describes the same fields to clients; tests/monitoring/test_openapi.py compares them.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, fields
from marshmallow.experimental.context import Context

import recipients
from database import isoformat
from recipients.hours import BusinessHours, NeverOpens, written_window

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


class StrictField(fields.Field):
    """A field of exactly one JSON type: never null, never converted."""

    json_type, type_problem = str, "must be a string"
    default_error_messages = {"required": "is required", "null": "must not be null"}  # noqa: RUF012

    def _deserialize(self, value, attr, data, **kwargs):
        if type(value) is not self.json_type:
            raise ValidationError(self.type_problem)
        return self.parse(value)

    def parse(self, value: Any) -> Any:
        """Return the loaded value; raise ValidationError if it breaks a rule."""
        return value


class Flag(StrictField):
    json_type, type_problem = bool, "must be true or false"


class PhoneNumber(StrictField):
    """A number in its own E.164 form; loads to a Recipient."""

    def parse(self, value: str) -> recipients.Recipient:
        try:
            return recipients.find(value)
        except recipients.InvalidNumber as error:
            raise ValidationError(str(error)) from None


class Text(StrictField):
    """A text that every carrier can send and every database can store; kept unchanged."""

    UNSENDABLE = re.compile("[\0\ud800-\udfff]")

    def parse(self, value: str) -> str:
        most = Context.get()["max_message_length"]
        problems = []
        if not value.strip():
            problems.append("must not be empty or only white space")
        if len(value) > most:
            problems.append(f"must have at most {most} characters, has {len(value)}")
        if self.UNSENDABLE.search(value):
            problems.append(
                "must not contain U+0000 or a lone surrogate, which no carrier can send"
            )
        if problems:
            raise ValidationError(problems)
        return value


class FutureInstant(StrictField):
    """An ISO 8601 date-time later than now; loads to UTC, cut to milliseconds."""

    def parse(self, value: str) -> datetime:
        try:
            instant = read_instant(value)
        except ValueError as problem:
            raise ValidationError(str(problem)) from None
        if instant <= Context.get()["now"]:
            has_offset = datetime.fromisoformat(value).tzinfo
            read_as = "" if has_offset else "; without an offset it was read as UTC"
            raise ValidationError(f"must be in the future{read_as}")
        return instant


class TextMessageRequest(Schema):
    """The fields of a request; `load` reports unknown ones in order, which marshmallow does not."""

    to = PhoneNumber(required=True)
    message = Text(required=True)
    send_date = FutureInstant(load_default=None, allow_none=False)
    manual_mode = Flag(load_default=False)
    available_to_group = Flag(load_default=False)
    check_dnc = Flag(load_default=False)

    class Meta:
        unknown = RAISE


# datetime.fromisoformat alone accepts a bare date and any separator, and reads a fraction of an
# hour or a minute as one of a second.
INSTANT = (
    "^[0-9-]+(W[0-9]{2}-?[0-9])?"
    "T[0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.,][0-9]+)?)?)?"
    "(Z|[+-][0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.][0-9]+)?)?)?)?$"
)


def read_instant(text: str) -> datetime:
    """Return the instant of an ISO 8601 date-time in UTC, which it is in by default.

    It is cut to milliseconds. Raise ValueError, with words for people, if the text is none.
    """
    try:
        if not re.fullmatch(INSTANT, text):
            raise ValueError
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be an ISO 8601 date and time, like 2026-03-02T14:00:00Z") from None
    try:
        instant = instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("must have a UTC instant in the years 1 to 9999") from None
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


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


def load(
    value: Any,
    now: datetime,
    max_message_length: int,
    hours: Callable[[recipients.Recipient], BusinessHours],
) -> dict:
    """Return every field of a request, the optional ones with their defaults.

    Raise BadRequest with all problems, each after the name of its field.
    """
    if not isinstance(value, dict):
        raise BadRequest("body: must be a JSON object")
    try:
        with Context({"now": now, "max_message_length": max_message_length}):
            order, problems = _REQUEST.load(value, unknown=EXCLUDE), []
    except ValidationError as error:
        order, texts = error.valid_data, error.messages.items()
        problems = [f"{field}: {problem}" for field, each in texts for problem in each]
    unknown = [name for name in value if name not in _REQUEST.fields]
    problems += [f"{_short(name)}: is not a field of this request" for name in unknown]
    if order.get("to") and order.get("send_date"):
        problems += _quiet_problems(order["to"], order["send_date"], hours(order["to"]))
    if problems:
        raise BadRequest(*problems)
    return order


def _quiet_problems(recipient, send_date, hours):
    """Yield the problem of a send_date in the recipient's quiet hours."""
    if not hours.quiet:
        return
    after = "they never end"
    try:
        quiet_time = hours.quiet_time(recipient.clocks, send_date)
        local_time = recipients.local_time(recipient, send_date)
        with suppress(NeverOpens):
            if end := hours.quiet_until(recipient.clocks, send_date):
                after = f"the first instant after them is {isoformat(end)}"
    except OverflowError:
        yield "send_date: must be before the last days of the year 9999"
        return
    if quiet_time:
        here = quiet_time.local.utcoffset() == send_date.astimezone(recipient.zone).utcoffset()
        name = recipients.quiet_name(quiet_time.hours, recipient)
        window = written_window(quiet_time.window)
        elsewhere = "" if here else " (quiet hours hold in another of its zones)"
        yield (
            f"send_date: must not be in {name}, {window}: it is {local_time} for the recipient "
            f"then{elsewhere}; {after}"
        )


def fields_in(problems: list[str]) -> list[str]:
    """Return the fields of the interface that these problems name, for the log."""
    names = {problem.partition(":")[0] for problem in problems}
    return sorted(names & _REQUEST.fields.keys())


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


def _named_once(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        times = Counter(name for name, _ in pairs)
        raise BadRequest(*(f"{_short(name)}: is given twice" for name in value if times[name] > 1))
    return value


def _short(name):
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _refuse_constant(name):
    raise BadRequest(f"body: must be JSON, which has no {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_named_once, parse_constant=_refuse_constant)
_REQUEST = TextMessageRequest()
