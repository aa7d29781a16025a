"""The schemas of the interface: the request, the response and the error body."""

import hashlib
import json
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields
from marshmallow.experimental.context import Context

import recipients

COMPACT = (",", ":")


class BadRequest(Exception):
    """The request is invalid; `problems` lists why, one text for each problem."""

    def __init__(self, *problems: str):
        super().__init__(*problems)
        self.problems = list(problems)


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
    # What str.strip removes. The description needs it spelt out: \s differs between languages.
    WHITE_SPACE = (
        r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    )

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

    # datetime.fromisoformat alone accepts a bare date and any separator, and reads a fraction of
    # an hour or a minute as one of a second.
    PATTERN = (
        "^[0-9-]+(W[0-9]{2}-?[0-9])?"
        "T[0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.,][0-9]+)?)?)?"
        "(Z|[+-][0-9]{2}(:?[0-5][0-9](:?[0-5][0-9]([.][0-9]+)?)?)?)?$"
    )

    def parse(self, value: str) -> datetime:
        try:
            if not re.fullmatch(self.PATTERN, value):
                raise ValueError
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise ValidationError(
                "must be an ISO 8601 date and time, like 2026-03-02T14:00:00Z"
            ) from None
        read_as = "" if instant.tzinfo else "; without an offset it was read as UTC"
        try:
            instant = instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
        except OverflowError:
            raise ValidationError("must have a UTC instant in the years 1 to 9999") from None
        instant = instant.replace(microsecond=instant.microsecond // 1000 * 1000)
        if instant <= Context.get()["now"]:
            raise ValidationError(f"must be in the future{read_as}")
        return instant


def described(field: fields.Field, text: str, example: Any = None, **more: Any) -> fields.Field:
    """Return a field with its metadata for openapi.json: all but its type."""
    example = {} if example is None else {"example": example}
    field.metadata = {"description": text} | example | more
    return field


class TextMessageRequest(Schema):
    error_messages = {"unknown": "is not a field of this request"}  # noqa: RUF012

    to = described(
        PhoneNumber(required=True),
        "Recipient phone number in E.164 format: a plus sign followed by the digits.",
        "+12125550123",
        pattern=r"^\+[0-9]+$",
    )
    message = described(
        Text(required=True),
        "Text message body, sent unchanged. It must not be empty or only white space, nor "
        "contain U+0000 or lone surrogates.",
        "Your table is ready.",
        maxLength=1600,
        pattern=rf"^[^\u0000]*[^\u0000{Text.WHITE_SPACE}][^\u0000]*$",
    )
    send_date = described(
        FutureInstant(),
        "Schedules the sending, also outside business hours: an ISO 8601 date-time in the "
        "future. Without an offset it is UTC.",
        "2099-11-05T14:05:00-05:00",
        pattern=FutureInstant.PATTERN,
    )
    manual_mode = described(
        Flag(load_default=False), "When true, manual approval is required before sending."
    )
    available_to_group = described(
        Flag(load_default=False), "When true, the message is visible to the group of the API key."
    )
    check_dnc = described(
        Flag(load_default=False), "When true, the Do Not Call list is checked before queueing."
    )

    class Meta:
        unknown = RAISE
        title = "TextMessageRequest"  # apispec writes it into openapi.json


class TextMessageResponse(Schema):
    """The fields of the interface, in its order."""

    message_id = described(
        fields.UUID(), "Identifier of the created message.", "019cb4a1-5480-7d3e-9f62-3b1d6c0a8e57"
    )
    status = described(
        fields.String(),
        "`queued` for sending now, or `scheduled` for a later time.",
        "queued",
        enum=["queued", "scheduled"],
    )
    to_phone_number = described(
        fields.String(), "The recipient number as formatted for display.", "+1 212-555-0123"
    )
    to_phone_normalized = described(
        fields.String(), "The recipient number in E.164 form.", "+12125550123", format="phone"
    )
    recipient_country = described(
        fields.String(),
        "Country of the recipient, ISO 3166 alpha-2; `001` for a number of no country.",
        "US",
        pattern="^([A-Z]{2}|001)$",
    )
    recipient_timezone = described(
        fields.String(),
        "Time zone label of the recipient.",
        "GMT-5",
        pattern=r"^GMT[+-][0-9]{1,2}(\.[0-9]+)?$",
    )
    recipient_location = described(
        fields.String(), "Place of the recipient: city and country name.", "New York, United States"
    )
    recipient_local_time = described(
        fields.String(), "The recipient's local time as text.", "12:00 PM, Tuesday, Mar 3"
    )
    timezone_offset = described(
        fields.Raw(),
        "Offset of the recipient's time zone in hours; if the number can be in zones with "
        "different offsets, all of them, ascending.",
        -5,
        oneOf=[{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 2}],
    )
    is_dst = described(
        fields.Boolean(), "Whether daylight saving time applies to the recipient.", False
    )
    scheduled_send_date = described(
        fields.DateTime(),
        "Time at which the message is to be sent, UTC.",
        "2026-03-03T17:00:00.000Z",
    )
    within_business_hours = described(
        fields.Boolean(), "Whether the recipient is currently within business hours.", True
    )
    can_send_now = described(fields.Boolean(), "Whether the message can be sent now.", True)
    manual_mode = described(fields.Boolean(), "The option as applied.", False)
    available_to_group = described(fields.Boolean(), "The option as applied.", False)
    check_dnc = described(fields.Boolean(), "The option as applied.", False)
    business_hours = described(
        fields.String(), "The business-hours window.", "9:00 AM - 5:00 PM local time"
    )
    message_length = described(fields.Integer(), "Length of the message body in characters.", 20)
    max_retries = described(
        fields.Integer(), "Maximum number of send retries for the message.", 3, minimum=0
    )
    message = described(
        fields.String(), "Human-readable status text.", "Text message queued for immediate sending."
    )


class Error(Schema):
    error = described(fields.Boolean(), "Always true.", enum=[True])
    message = described(fields.String(), "Short description of the error.")
    statusCode = described(fields.Integer(), "HTTP status code of the error.")
    details = described(
        fields.Dict(),
        "Additional information; empty if there is none.",
        properties={
            "validationErrors": {
                "type": "array",
                "items": {"type": "string"},
                "description": "One entry per problem, beginning with the field's name.",
            }
        },
    )
    timestamp = described(fields.DateTime(), "Time at which the error was produced, UTC.")


def isoformat(instant: datetime) -> str:
    """Return an aware UTC datetime as text, like `2026-03-02T14:00:00.000Z`."""
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


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


def load(value: Any, now: datetime, max_message_length: int) -> dict:
    """Return the fields of a request; raise BadRequest with every problem, each after its field."""
    if not isinstance(value, dict):
        raise BadRequest("body: must be a JSON object")
    try:
        with Context({"now": now, "max_message_length": max_message_length}):
            return _REQUEST.load(value)
    except ValidationError as error:
        raise BadRequest(
            *(f"{field}: {problem}" for field, texts in error.messages.items() for problem in texts)
        ) from None


def fields_in(problems: list[str]) -> list[str]:
    """Return the fields of the interface that these problems name, for the log."""
    names = {problem.partition(":")[0] for problem in problems}
    return sorted(names & _REQUEST.fields.keys())


def dump(response: dict) -> str:
    """Return the JSON text of a TextMessageResponse, its fields in the interface's order.

    marshmallow would convert each value again, which takes a twentieth of a request's time.
    """
    return _ENCODER.encode({name: response[name] for name in _RESPONSE.fields})


def dump_error(status: int, message: str, details: dict, now: datetime) -> str:
    error = {"error": True, "message": message, "statusCode": status, "details": details}
    return _ENCODER.encode(error | {"timestamp": now})


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
        raise BadRequest(*(f"{name}: is given twice" for name in value if times[name] > 1))
    return value


def _refuse_constant(name):
    raise BadRequest(f"body: must be JSON, which has no {name}")


def _written(value):
    return isoformat(value) if isinstance(value, datetime) else str(value)


_DECODER = json.JSONDecoder(object_pairs_hook=_named_once, parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(separators=COMPACT, default=_written)
_REQUEST, _RESPONSE = TextMessageRequest(), TextMessageResponse()
