"""The blueprint of the one public operation: key, body, idempotency and the decision."""

import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, abort, current_app, g, request
from werkzeug.exceptions import HTTPException, TooManyRequests, Unauthorized

import acceptance
import recipients
import schemas
from acceptance import AlreadyAnswered, KeyChanged, NewMessage
from access.do_not_call import DoNotCall
from access.keys import MAY_SEND, Identity, Role
from access.limits import SECOND, LimitReached
from access.rules import Rules, end
from carriers.alphabets import count_parts
from carriers.lanes import new_lane
from carriers.ways import Way
from database import clock, db
from models import Message, Status, new_id
from recipients import Recipient
from recipients.hours import BusinessHours, Facts, NeverOpens
from schemas import BadRequest
from settings import Settings
from web.requests import BEARER, bearer_token, read_body

blueprint = Blueprint("api", __name__, url_prefix="/v1")
log = logging.getLogger("web")


@blueprint.post("/text-messages")
def create_text_message() -> Response:
    """Queue or schedule one text message."""
    recent = current_app.extensions["keys"]
    sender(recent.recall)
    db.close()  # or slow bodies would hold all connections
    try:
        value = read_json()
        idempotency_key, digest = idempotency(value)
    except (BadRequest, HTTPException):
        sender(recent.authenticate)
        raise
    key = sender(recent.recall)  # it may have expired while the body arrived
    while True:
        try:
            return create(value, key, idempotency_key, digest)
        except (KeyChanged, AlreadyAnswered, BadRequest, HTTPException) as refusal:
            known, key = key, sender(recent.authenticate)
            # What is refused now may have been accepted before
            if idempotency_key and (earlier := Message.answered(key.id, idempotency_key)):
                return repeat(earlier, digest)
            if key == known and isinstance(refusal, (BadRequest, HTTPException)):
                raise


def create(value: Any, key: Identity, idempotency_key: str | None, digest: str | None) -> Response:
    """Store a message as a request describes it, and answer; raise what is wrong with it."""
    now = clock.now()  # after a slow client has sent the last byte
    settings = current_app.config["SETTINGS"]
    rules = current_app.extensions["rules"].of(key.rules)
    order = schemas.load(value, now, settings.max_message_length, rules.hours)
    order["check_dnc"] |= rules.check_dnc == "always"
    refuse(order, rules, settings)

    recipient = order["to"]
    hours = rules.hours(recipient)
    facts = hours.facts(recipient.clocks, now)
    times = decide(order, facts, hours, now)
    message = NewMessage(
        **order | {"to": recipient.e164, "country": recipient.country},
        **times,
        expires_at=end(times["send_at"], rules.expire_after),
        id=new_id(now),
        key=key.id,
        parts=count_parts(order["message"]),
        max_retries=settings.max_retries,
        created_at=now,
        idempotency_key=idempotency_key,
        request_digest=digest,
        answer=None,
        lane=new_lane(recipient.country, key.role == Role.TESTER),
    )
    answer = schemas.dump(describe(message, recipient, facts))
    if idempotency_key:
        message = message._replace(answer=answer)
    keep(message, key, settings)
    about = {"message_id": str(message.id), "key": key.name}
    log.info("message %s %s", message.id, message.status, extra=about)
    return respond(answer)


def refuse(order: dict, rules: Rules, settings: Settings) -> None:
    """Refuse a valid request whose recipient may get no texts, or not this one."""
    recipient, allowed = order["to"], settings.allowed_countries
    if allowed and recipient.country not in allowed:
        country = recipients.country_name(recipient.country)
        abort(403, f"The recipient's country is not one that texts may go to: {country}.")
    if not has_carrier(settings.ways, recipient.country, g.key):
        country = recipients.country_name(recipient.country)
        abort(403, f"There is no carrier for this country, or not for this key: {country}.")
    if recipient.costly and not settings.allow_premium_rate:
        g.abuse = "premium_rate"
        abort(403, f"{recipient.costly} numbers cannot be texted.")
    opted_out = DoNotCall.listed([recipient.e164]).get(recipient.e164)
    if opted_out and rules.check_dnc == "opted-out":
        abort(403, "The recipient has opted out of texts.")
    if opted_out is not None and order["check_dnc"]:
        abort(403, "The recipient is on the Do Not Call list.")


def decide(order: dict, facts: Facts, hours: BusinessHours, now: datetime) -> dict:
    """Return the status of a new message and when to send it, by the recipient's own clock."""
    if order["send_date"]:
        return {"status": Status.SCHEDULED, "send_at": order["send_date"]}
    if facts.within_business_hours:
        return {"status": Status.QUEUED, "send_at": now}
    try:
        opening = hours.next_opening(order["to"].clocks, now)
    except NeverOpens:  # settings were changed after the rules of the key
        abort(403, "The rules of this key leave no minute for the recipient's country.")
    return {"status": Status.SCHEDULED, "send_at": opening}


def describe(message: NewMessage, recipient: Recipient, facts: Facts) -> dict:
    """Return the fields of the answer to a new message."""
    queued, send_at = message.status == Status.QUEUED, schemas.isoformat(message.send_at)
    when = "queued for immediate sending" if queued else f"scheduled for {send_at}"
    approval = "; it awaits manual approval and is not sent before"
    return {
        "message_id": message.id,
        "status": message.status,
        "to_phone_number": recipient.international,
        "to_phone_normalized": recipient.e164,
        "recipient_country": recipient.country,
        "recipient_timezone": facts.timezone,
        "recipient_location": recipients.location(recipient),
        "recipient_local_time": facts.local_time,
        "timezone_offset": facts.timezone_offset,
        "is_dst": facts.is_dst,
        "scheduled_send_date": message.send_at,
        "within_business_hours": facts.within_business_hours,
        "can_send_now": queued,
        "manual_mode": message.manual_mode,
        "available_to_group": message.available_to_group,
        "check_dnc": message.check_dnc,
        "business_hours": facts.business_hours,
        "message_length": len(message.message),
        "max_retries": message.max_retries,
        "message": f"Text message {when}{approval if message.manual_mode else ''}.",
    }


def has_carrier(ways: Sequence[Way], country: str, key: Identity) -> bool:
    """Say whether a key's text to a country can be given to anybody, by CARRIER_URL.

    Testers' texts go to the simulator, and without a carrier all wait for one.
    """
    if not ways or key.role == Role.TESTER:
        return True
    return any(way.may_serve(country, key.name) for way in ways)


def keep(message: NewMessage, key: Identity, settings: Settings) -> None:
    """Store a message; refuse the request if a limit does not allow it."""
    try:
        acceptance.store(message, settings.key_limits, settings.recipient_limit, key)
    except LimitReached as refusal:
        g.abuse = f"{refusal.whose}_limit"
        wait = max(1, -((message.created_at - refusal.free_at) // SECOND))  # rounded up
        raise TooManyRequests(str(refusal), retry_after=wait) from None
    current_app.extensions["health"].not_stored_at = None


# The key


def sender(identify: Callable[[str, datetime], Identity | None]) -> Identity:
    """Return the key of the request; refuse the request if the key may not send."""
    secret = request.headers.get("X-Api-Key")
    if secret is None:
        secret = bearer_token()
    key = identify(secret, clock.now()) if secret else None
    if key is None:
        raise unauthorized()
    g.key = key
    if key.role not in MAY_SEND:
        abort(403, f"A key of role {key.role} signs in to the desk and sends nothing.")
    return key


def unauthorized() -> Unauthorized:
    """Return the error of a request without a valid key."""
    words = "The API key is missing or invalid: send it as X-Api-Key or Authorization: Bearer."
    return Unauthorized(words, www_authenticate=BEARER)


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
    if message.answer is None:  # redacted, with the digest
        raise BadRequest("Idempotency-Key: was used before; the answer is no longer kept")
    if message.request_digest != digest:
        raise BadRequest("Idempotency-Key: was used before, with another request body")
    return respond(message.answer)


def respond(text: str) -> Response:
    """Return the answer with status 201."""
    return Response(text, 201, content_type="application/json")
