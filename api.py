"""The blueprint of the one public operation: key, body, idempotency and the decision."""

import logging
import re
import time
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, abort, current_app, g, request
from werkzeug.exceptions import TooManyRequests, Unauthorized

import acceptance
import models
import recipients
import schemas
from acceptance import AlreadyAnswered
from carriers.alphabets import count_parts
from database import db
from do_not_call import DoNotCall
from keys import MAY_SEND, ApiKey, Identity
from limits import SECOND, LimitReached
from models import Message, Status
from recipients import Recipient
from recipients.hours import BusinessHours, Facts
from schemas import BadRequest
from web import BEARER, bearer_token, read_body

SLOW_BODY = 0.05  # seconds, after which the key is looked at again

blueprint = Blueprint("api", __name__, url_prefix="/v1")
log = logging.getLogger("web")


@blueprint.post("/text-messages")
def create_text_message() -> Response:
    """Queue or schedule one text message."""
    key, began_at = sender(), time.monotonic()
    db.close()  # or slow bodies would hold all connections
    value = read_json()
    if time.monotonic() - began_at > SLOW_BODY:
        key = sender()  # it, or its limits, may have changed meanwhile
    now = models.clock()  # after a slow client has sent the last byte
    idempotency_key, digest = idempotency(value)
    if idempotency_key and (earlier := Message.answered(key.id, idempotency_key)):
        return repeat(earlier, digest)

    settings = current_app.config["SETTINGS"]
    hours = current_app.extensions["business_hours"]
    order = schemas.load(value, now, settings.max_message_length, hours)
    order["check_dnc"] |= settings.check_dnc
    recipient = order.pop("to")
    if settings.allowed_countries and recipient.country not in settings.allowed_countries:
        country = recipients.country_name(recipient.country)
        abort(403, f"The recipient's country is not one that texts may go to: {country}.")
    if recipient.is_premium_rate and not settings.allow_premium_rate:
        g.abuse = "premium_rate"
        abort(403, "The recipient's number is premium-rate, which texts may not go to.")
    if order["check_dnc"] and DoNotCall.lists(recipient.e164):
        abort(403, "The recipient is on the Do Not Call list.")

    facts = hours.facts(recipient.clocks, now)
    message = order | {
        "id": models.new_id(now),
        "to": recipient.e164,
        "country": recipient.country,
        "parts": count_parts(order["message"]),
        "max_retries": settings.max_retries,
        **decide(order, recipient, facts, hours, now),
    }
    answer = schemas.dump(describe(message, recipient, facts))
    try:
        acceptance.store(
            **message,
            key=key.id,
            created_at=now,
            idempotency_key=idempotency_key,
            request_digest=digest,
            answer=answer if idempotency_key else None,
            limits=key.limits or settings.key_limits,
            recipient_limit=settings.recipient_limit,
        )
    except AlreadyAnswered:
        return repeat(Message.answered(key.id, idempotency_key), digest)
    except LimitReached as refusal:
        g.abuse = f"{refusal.whose}_limit"
        wait = max(1, -((now - refusal.free_at) // SECOND))  # rounded up
        raise TooManyRequests(str(refusal), retry_after=wait) from None
    current_app.extensions["health"].not_stored_at = None
    about = {"message_id": str(message["id"]), "key": key.name}
    log.info("message %s %s", message["id"], message["status"], extra=about)
    return respond(answer)


def decide(
    order: dict, recipient: Recipient, facts: Facts, hours: BusinessHours, now: datetime
) -> dict:
    """Return the status of a new message and when to send it, by the recipient's own clock."""
    if send_date := order.get("send_date"):
        return {"status": Status.SCHEDULED, "send_at": send_date}
    if facts.within_business_hours:
        return {"status": Status.QUEUED, "send_at": now}
    opening = hours.next_opening(recipient.clocks, now)
    return {"status": Status.SCHEDULED, "send_at": opening}


def describe(message: dict, recipient: Recipient, facts: Facts) -> dict:
    """Return the fields of the answer to a new message."""
    options = ("manual_mode", "available_to_group", "check_dnc", "max_retries", "status")
    queued, send_at = message["status"] == Status.QUEUED, schemas.isoformat(message["send_at"])
    when = "queued for immediate sending" if queued else f"scheduled for {send_at}"
    approval = "; it awaits manual approval and is not sent before"
    return {name: message[name] for name in options} | {
        "message_id": message["id"],
        "to_phone_number": recipient.international,
        "to_phone_normalized": recipient.e164,
        "recipient_country": recipient.country,
        "recipient_timezone": facts.timezone,
        "recipient_location": recipients.location(recipient),
        "recipient_local_time": facts.local_time,
        "timezone_offset": facts.timezone_offset,
        "is_dst": facts.is_dst,
        "scheduled_send_date": message["send_at"],
        "within_business_hours": facts.within_business_hours,
        "can_send_now": queued,
        "business_hours": facts.business_hours,
        "message_length": len(message["message"]),
        "message": f"Text message {when}{approval if message['manual_mode'] else ''}.",
    }


# The key


def sender() -> Identity:
    """Return the key of the request; refuse the request if the key may not send."""
    secret = request.headers.get("X-Api-Key")
    if secret is None:
        secret = bearer_token()
    key = ApiKey.authenticate(secret, models.clock()) if secret else None
    if key is None:
        raise Unauthorized(
            "The API key is missing or invalid: send it as X-Api-Key or Authorization: Bearer.",
            www_authenticate=BEARER,
        )
    g.key = key
    if key.role not in MAY_SEND:
        abort(403, f"A key of role {key.role} signs in to the desk and sends nothing.")
    return key


# The body


def read_json() -> Any:
    """Return the request's JSON value; check first its size, then its type, then its syntax."""
    body = read_body()
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BadRequest("Content-Encoding: must be absent, because compressed bodies are not read")
    if request.mimetype != "application/json":
        raise BadRequest("Content-Type: must be application/json")
    return schemas.parse(body)


# Idempotency


def idempotency(value: Any) -> tuple[str | None, str | None]:
    """Return the request's idempotency key and the digest of its body; two Nones without a key."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None, None
    if not re.fullmatch("[!-~]{1,255}", key):
        raise BadRequest("Idempotency-Key: must be 1 to 255 visible ASCII characters")
    return key, schemas.digest(value)


def repeat(message: Message, digest: str) -> Response:
    """Repeat the answer to the first request with this idempotency key."""
    if message.request_digest != digest:
        raise BadRequest("Idempotency-Key: was used before, with another request body")
    if message.answer is None:
        raise BadRequest("Idempotency-Key: was used before; the answer is no longer kept")
    return respond(message.answer)


def respond(text: str) -> Response:
    """Return the answer with status 201."""
    return Response(text, 201, content_type="application/json")
