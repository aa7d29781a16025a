"""What the interface looks like: the request, the response, the error body."""

import hashlib
import json
import re
from datetime import UTC, datetime

from marshmallow import RAISE, Schema, ValidationError, fields
from marshmallow.experimental.context import Context

import recipients


class BadRequest(Exception):
    """The request cannot be served as it is; `problems` lists why, one text each."""

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

    def parse(self, value):
        return value


class Flag(StrictField):
    json_type, type_problem = bool, "must be true or false"


class PhoneNumber(StrictField):
    """A number in its own E.164 form; loads to a Recipient."""

    def parse(self, value):
        try:
            return recipients.find(value)
        except recipients.InvalidNumber as error:
            raise ValidationError(str(error)) from None


class Text(StrictField):
    """A text that every carrier can send and every database can hold; kept as it came."""

    UNSENDABLE = re.compile("[\0\ud800-\udfff]")

    def parse(self, value):
        most = Context.get()["max_message_length"]
        problems = []
        if not value.strip():
            problems.append("must not be empty or only white space")
        if len(value) > most:
            problems.append(f"must have at most {most} characters, has {len(value)}")
        if self.UNSENDABLE.search(value):
            problems.append("must not hold U+0000 or a lone surrogate, which no carrier can send")
        if problems:
            raise ValidationError(problems)
        return value


class FutureInstant(StrictField):
    """An ISO 8601 date-time later than now; loads to UTC, cut to milliseconds."""

    # datetime.fromisoformat alone would take a bare date and any separator
    SHAPE = re.compile(r"[\d-]+(W\d\d-?\d)?T[\d:.,]+(Z|[+-][\d:]+)?", re.ASCII)

    def parse(self, value):
        try:
            if not self.SHAPE.fullmatch(value):
                raise ValueError
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise ValidationError(
                "must be an ISO 8601 date and time, like 2026-03-02T14:00:00Z"
            ) from None
        try:
            instant = instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
        except OverflowError:
            raise ValidationError("must have a UTC instant in the years 1 to 9999") from None
        instant = instant.replace(microsecond=instant.microsecond // 1000 * 1000)
        if instant <= Context.get()["now"]:
            raise ValidationError("must be in the future")
        return instant


class Instant(fields.Field):
    """An aware datetime, written in UTC with milliseconds and a Z."""

    def _serialize(self, value, attr, obj, **kwargs):
        return isoformat(value)


class TextMessageRequest(Schema):
    error_messages = {"unknown": "is not a field of this request"}  # noqa: RUF012

    to = PhoneNumber(required=True)
    message = Text(required=True)
    send_date = FutureInstant()
    manual_mode = Flag(load_default=False)
    available_to_group = Flag(load_default=False)
    check_dnc = Flag(load_default=False)

    class Meta:
        unknown = RAISE


class TextMessageResponse(Schema):
    """The interface's fields in the interface's order."""

    message_id = fields.UUID()
    status = fields.String()
    to_phone_number = fields.String()
    to_phone_normalized = fields.String()
    recipient_country = fields.String()
    recipient_timezone = fields.String()
    recipient_location = fields.String()
    recipient_local_time = fields.String()
    timezone_offset = fields.Raw()
    is_dst = fields.Boolean()
    scheduled_send_date = Instant()
    within_business_hours = fields.Boolean()
    can_send_now = fields.Boolean()
    manual_mode = fields.Boolean()
    available_to_group = fields.Boolean()
    check_dnc = fields.Boolean()
    business_hours = fields.String()
    message_length = fields.Integer()
    max_retries = fields.Integer()
    message = fields.String()


class Error(Schema):
    error = fields.Boolean(dump_default=True)
    message = fields.String()
    statusCode = fields.Integer()
    details = fields.Dict()
    timestamp = Instant()


def isoformat(instant: datetime) -> str:
    """`2026-03-02T14:00:00.000Z`."""
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse(body: bytes):
    """The value of a JSON text in UTF-8; BadRequest where it has none, or more than one."""
    try:
        return _DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise BadRequest("body: must be UTF-8") from None
    except RecursionError:
        raise BadRequest("body: is nested too deep") from None
    except json.JSONDecodeError as error:
        raise BadRequest(f"body: must be JSON: {error}") from None
    except ValueError:
        raise BadRequest("body: has a number that is too long") from None


def load(value, now: datetime, max_message_length: int) -> dict:
    """The fields of a request; BadRequest with every problem, each beginning with its field."""
    if not isinstance(value, dict):
        raise BadRequest("body: must be a JSON object")
    try:
        with Context({"now": now, "max_message_length": max_message_length}):
            return _REQUEST.load(value)
    except ValidationError as error:
        raise BadRequest(
            *(f"{field}: {problem}" for field, texts in error.messages.items() for problem in texts)
        ) from None


def dump(response: dict) -> str:
    """The JSON text of a TextMessageResponse."""
    return _ENCODER.encode(_RESPONSE.dump(response))


def dump_error(status: int, message: str, details: dict, now: datetime) -> str:
    """The JSON text of an Error."""
    error = {"error": True, "message": message, "statusCode": status}
    return _ENCODER.encode(_ERROR.dump(error | {"details": details, "timestamp": now}))


def digest(value) -> str:
    """The same for the same JSON value, however it was written."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _named_once(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise BadRequest(*(f"{name}: is given twice" for name in value if names.count(name) > 1))
    return value


def _refuse_constant(name):
    raise BadRequest(f"body: must be JSON, which has no {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_named_once, parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_REQUEST, _RESPONSE, _ERROR = TextMessageRequest(), TextMessageResponse(), Error()
