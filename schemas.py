"""The schema of a request.

openapi.json describes the same fields to clients; tests/monitoring/test_openapi.py compares them.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, fields
from marshmallow.experimental.context import Context

from texting import recipients
from texting.database import isoformat
from texting.database.clock import read_instant
from texting.recipients.hours import BusinessHours, NeverOpens
from texting.web.bodies import LONGEST_NAME, MOST_PROBLEMS, BadRequest, shortened

CLOSE = 0.88
"""From this similarity on (difflib's), an unknown field is a misspelt one."""


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
            return Context.get()["find"](value)
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


def load(
    value: Any,
    now: datetime,
    max_message_length: int,
    find: Callable[[str], recipients.Recipient],
    hours: Callable[[recipients.Recipient], BusinessHours],
) -> dict:
    """Return every field of a request, the optional ones with their defaults.

    Raise BadRequest with all problems, each after the name of its field.
    """
    if not isinstance(value, dict):
        raise BadRequest("body: must be a JSON object")
    try:
        with Context({"now": now, "max_message_length": max_message_length, "find": find}):
            order, problems = _REQUEST.load(value, unknown=EXCLUDE), []
    except ValidationError as error:
        order, texts = error.valid_data, error.messages.items()
        problems = [f"{field}: {problem}" for field, each in texts for problem in each]
    unknown = [name for name in value if name not in _REQUEST.fields]
    hints = {name: _hint(name) for name in unknown[:MOST_PROBLEMS]}  # no more are listed
    problems += [
        f"{shortened(name)}: is not a field of this request{hints.get(name, '')}"
        for name in unknown
    ]
    if order.get("to") and order.get("send_date"):
        problems += _quiet_problems(order["to"], order["send_date"], hours(order["to"]))
    if problems:
        raise BadRequest(*problems)
    return order


def _hint(name):
    """Return, for the problem of an unknown field, which one may be meant."""
    plain = re.sub("[^a-z]", "", name[:LONGEST_NAME].lower())
    near = get_close_matches(plain, _MEANT, 1, CLOSE)
    return f"; did you mean {_MEANT[near[0]]}?" if near else ""


def _quiet_problems(recipient, send_date, hours):
    """Yield the problem of a send_date in the recipient's quiet hours."""
    if not hours.are_ever_quiet:
        return
    after = "they never end"
    try:
        quiet_time = hours.quiet_time(recipient.clocks, send_date)
        window = quiet_time and quiet_time.window
        local_time = recipients.local_time(recipient, send_date)
        with suppress(NeverOpens):
            if end := hours.quiet_until(recipient.clocks, send_date):
                after = f"the first instant after them is {isoformat(end)}"
    except OverflowError:
        yield "send_date: must be before the last days of the year 9999"
        return
    if quiet_time:
        main = send_date.astimezone(recipient.zone_at(send_date))
        here = quiet_time.local.utcoffset() == main.utcoffset()
        name = recipients.quiet_name(quiet_time.hours, recipient)
        elsewhere = "" if here else " (quiet hours hold in another of its zones)"
        yield (
            f"send_date: must not be in {name}, {window}: it is {local_time} for the recipient "
            f"then{elsewhere}; {after}"
        )


_REQUEST = TextMessageRequest()
_MEANT = {name.replace("_", ""): name for name in _REQUEST.fields}
_MEANT |= dict.fromkeys(("phone", "phonenumber", "number", "recipient", "tonumber"), "to")
_MEANT |= dict.fromkeys(("text", "body", "content", "textmessage"), "message")
_MEANT |= dict.fromkeys(("sendat", "date", "scheduledat", "scheduledsenddate"), "send_date")
"""The fields by their letters, and by what other services call them."""
FIELDS = frozenset(_REQUEST.fields)
"""The names of the interface's fields."""
