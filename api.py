"""The blueprint of the one public operation: key, body, idempotency and the decision."""

import hmac
import logging
import re
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, abort, current_app, g, request
from werkzeug.exceptions import HTTPException, TooManyRequests, Unauthorized

import schemas
from texting import recipients
from texting.access import places
from texting.access.do_not_call import OnDoNotCallList
from texting.access.keys import MAY_SEND, ApiKey, KeyPaused, KeyRevoked, Role
from texting.access.limits import SECOND, LimitReached, TooManyParts
from texting.access.rules import Rules, end_of
from texting.carriers.alphabets import count_parts
from texting.carriers.lanes import new_lane
from texting.database import clock, db, isoformat
from texting.messages import storing
from texting.messages.admission import AlreadyAnswered, NewMessage, Request
from texting.messages.model import Message, Status, new_id
from texting.messages.storing import stored_before
from texting.recipients import Recipient
from texting.recipients.hours import BusinessHours, Facts, NeverOpens
from texting.settings import Settings
from texting.web import bodies
from texting.web.bodies import BadRequest
from texting.web.requests import BEARER, bearer_token, read_body

blueprint = Blueprint("api", __name__, url_prefix="/v1")
log = logging.getLogger("web")

NO_KEY = "The API key is missing: send it as X-Api-Key, or as Authorization: Bearer KEY."
UNKNOWN_KEY = "The API key is not valid: it is misspelt, or was revoked, replaced or has expired."
PAUSED_KEY = "The key is paused."


@blueprint.post("/text-messages")
def create_text_message() -> Response:
    """Queue or schedule one text message."""
    sender()
    db.close()  # or slow bodies would hold all connections
    value = read_json()
    key = sender()  # it may have changed while the body arrived
    names, digest = idempotency(value)
    try:
        answer = create(value, key, names, digest)
    except AlreadyAnswered as first:
        answer = repeat(first.earlier, digest)
    except (BadRequest, HTTPException):  # what is refused now may have been accepted before
        earlier = names and stored_before(key.id, *names)
        if not earlier:
            raise
        answer = repeat(earlier, digest)
    return Response(answer, 201, content_type="application/json")


def create(value: Any, key: ApiKey, names: tuple[str, str] | None, digest: str | None) -> str:
    """Store the message of a request, and return the answer; raise what is wrong with it."""
    now = clock.now()  # after a slow client has sent the last byte
    idempotency_key, idempotency_digest = names or (None, None)
    settings = current_app.config["SETTINGS"]
    rules = current_app.extensions["rules"].of(key.rules)
    order = schemas.load(value, now, settings.max_message_length, places.find, rules.hours)
    order["check_dnc"] |= rules.check_dnc == "always"
    refuse(order, key, rules, settings)

    recipient, is_tester = order["to"], key.role == Role.TESTER
    hours = rules.hours(recipient)
    facts = hours.facts(recipient.clocks, now)
    status, send_at = decide(order, hours, now)
    message = NewMessage(
        **order | {"to": recipient.e164, "country": recipient.country},
        status=status,
        send_at=send_at,
        expires_at=end_of(send_at, rules.expire_after),
        id=new_id(now),
        key=key.id,
        parts=count_parts(order["message"]),
        max_retries=settings.max_retries,
        created_at=now,
        idempotency_key=idempotency_key,
        idempotency_digest=idempotency_digest,
        request_digest=digest,
        lane=new_lane(recipient.country, is_tester),
    )

    waits = send_at not in (now, order["send_date"])
    begins = recipients.what_changes(recipient, hours, send_at) if waits else None
    answer = bodies.dump(describe(message, recipient, facts, begins))
    if idempotency_key:
        message = message._replace(response=answer)
    limits = settings.key_limits, settings.recipient_limit
    store(Request(message, *limits, spare_opted_out=rules.check_dnc == "opted-out"))
    about = {"message_id": str(message.id), "key": key.name}
    log.info("message %s %s", message.id, message.status, extra=about)
    return answer


def refuse(order: dict, key: ApiKey, rules: Rules, settings: Settings) -> None:
    """Refuse a valid request to a number that nobody may text, or not with this key."""
    recipient = order["to"]
    if not rules.allow(recipient.country):
        country = recipients.country_name(recipient.country)
        of_key = " for this key" if key.countries else ""
        abort(403, f"Texts to this country are not allowed{of_key}: {country}.")
    # Without carriers, all texts wait
    configs = [] if key.role == Role.TESTER else settings.carrier_configs
    if configs and not any(config.may_serve(recipient.country, key.name) for config in configs):
        country = recipients.country_name(recipient.country)
        abort(403, f"No carrier serves {country} for this key.")
    if recipient.costly and not settings.allow_premium_rate:
        g.abuse = "premium_rate"
        abort(403, f"{recipient.costly} numbers cannot be texted.")


def decide(order: dict, hours: BusinessHours, now: datetime) -> tuple[Status, datetime]:
    """Return the status of a new message and when to send it, by the recipient's own clock."""
    if order["send_date"]:
        return Status.SCHEDULED, order["send_date"]
    try:
        send_at = hours.opens_at(order["to"].clocks, now)
    except NeverOpens:
        abort(403, "Business hours and quiet hours leave no time to text this country.")
    return (Status.QUEUED if send_at == now else Status.SCHEDULED), send_at


def describe(message: NewMessage, recipient: Recipient, facts: Facts, begins: str | None) -> dict:
    """Return the fields of the answer to a new message, in the order of the interface.

    `begins` says what happens at the time for which it is scheduled, unless that is a send_date.
    """
    queued, send_at = message.status == Status.QUEUED, isoformat(message.send_at)
    when = "queued for immediate sending" if queued else f"scheduled for {send_at}"
    when += f", when {begins}" if begins else ""
    comma = "," if begins else ""
    when += f"{comma} once it is approved" if message.manual_mode else ""
    return {
        "message_id": str(message.id),
        "status": message.status,
        "to_phone_number": recipient.international,
        "to_phone_normalized": recipient.e164,
        "recipient_country": recipient.country,
        "recipient_timezone": facts.timezone,
        "recipient_location": recipients.location(recipient),
        "recipient_local_time": facts.local_time,
        "timezone_offset": facts.timezone_offset,
        "is_dst": facts.is_dst,
        "scheduled_send_date": send_at,
        "within_business_hours": facts.within_business_hours,
        "can_send_now": queued,
        "manual_mode": message.manual_mode,
        "available_to_group": message.available_to_group,
        "check_dnc": message.check_dnc,
        "business_hours": facts.business_hours,
        "message_length": len(message.message),
        "max_retries": message.max_retries,
        "message": f"Text message {when}.",
    }


def store(wanted: Request) -> None:
    """Store a message; refuse it if its key, a list or a limit says so."""
    try:
        storing.store(wanted)
    except (OnDoNotCallList, TooManyParts) as refusal:
        abort(403, str(refusal))
    except KeyRevoked:
        raise unauthorized(UNKNOWN_KEY) from None
    except KeyPaused:
        abort(403, PAUSED_KEY)
    except LimitReached as refusal:
        g.abuse = f"{refusal.whose}_limit"
        wait = max(1, -((wanted.message.created_at - refusal.free_at) // SECOND))  # rounded up
        raise TooManyRequests(str(refusal), retry_after=wait) from None
    current_app.extensions["health"].not_stored_at = None


# The key


def sender() -> ApiKey:
    """Return the key of the request; refuse the request if the key may not send."""
    secret = secret_of_request()
    key = ApiKey.authenticate(secret, clock.now()) if secret else None
    if key is None:
        raise unauthorized(UNKNOWN_KEY if secret else NO_KEY)
    g.key = key
    if key.role not in MAY_SEND:
        abort(403, f"Keys with role {key.role} cannot send texts.")
    if key.paused_at:
        abort(403, PAUSED_KEY)
    return key


def secret_of_request() -> str | None:
    """Return the secret that the request has, if it has any."""
    secret = request.headers.get("X-Api-Key")
    return bearer_token() if secret is None else secret


def unauthorized(words: str) -> Unauthorized:
    """Return a 401 that names the scheme."""
    return Unauthorized(words, www_authenticate=BEARER)


# The body


def read_json() -> Any:
    """Return the request's JSON value; check first its size, then its type, then its syntax."""
    body = read_body()
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BadRequest("Content-Encoding: must be absent, because compressed bodies are not read")
    if request.mimetype != "application/json":
        raise BadRequest("Content-Type: must be application/json")
    return bodies.parse(body)


# Idempotency


def idempotency(value: Any) -> tuple[tuple[str, str] | None, str | None]:
    """Return the idempotency key with its digest, and the body's digest; Nones without a key.

    The first digest is keyed by the API key's secret, which is stored nowhere: so it can be kept
    where the idempotency key, which may be made of a number, is forgotten.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None, None
    if not re.fullmatch("[!-~]{1,255}", key):
        raise BadRequest("Idempotency-Key: must be 1 to 255 visible ASCII characters")
    secret = secret_of_request().encode()
    return (key, hmac.new(secret, key.encode(), "sha256").hexdigest()), bodies.digest(value)


def repeat(message: Message, digest: str) -> str:
    """Return the answer to the first request with this idempotency key."""
    if message.response is None:  # redacted, with the digest
        raise BadRequest("Idempotency-Key: was used before; the answer is no longer kept")
    if message.request_digest != digest:
        raise BadRequest("Idempotency-Key: was used before, with another request body")
    return message.response
