"""Decide on new messages in order; pure functions of what the transaction has read."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from texting.access.do_not_call import OnDoNotCallList
from texting.access.keys import ApiKey, KeyPaused, KeyRevoked
from texting.access.limits import SECOND, Limit, LimitReached, Window, needs, recipient_reached
from texting.database import EPOCH
from texting.messages.model import Message, Status


class NewMessage(NamedTuple):
    """All that is decided about a message before it is stored."""

    id: UUID
    key: int
    to: str  # E.164
    country: str
    message: str
    parts: int
    send_date: datetime | None
    send_at: datetime
    expires_at: datetime
    status: Status
    manual_mode: bool
    available_to_group: bool
    check_dnc: bool
    max_retries: int
    created_at: datetime
    lane: str
    idempotency_key: str | None = None
    idempotency_digest: str | None = None
    request_digest: str | None = None
    response: str | None = None  # for a repeated request

    @property
    def second(self) -> int:
        """The second since 1970 in which it was accepted."""
        return (self.created_at - EPOCH) // SECOND

    @property
    def unique_key(self) -> tuple[int, str] | None:
        """The pair of key and idempotency key, if there is one."""
        return (self.key, self.idempotency_key) if self.idempotency_key else None

    def row(self) -> dict[str, Any]:
        """Return its columns' values; the other columns have the table's defaults."""
        more = {"first_send_at": self.send_at, "approved": not self.manual_mode, "attempts": 0}
        return self._asdict() | more


class AlreadyAnswered(Exception):
    """Another request with the same idempotency key was stored first, as this message."""

    def __init__(self, earlier: Message | NewMessage):
        super().__init__()
        self.earlier = earlier


class Request(NamedTuple):
    """A message to be stored, and the limits that the settings set."""

    message: NewMessage
    default_limits: tuple[Limit, ...] = ()  # for keys without limits of their own
    recipient_limit: Limit | None = None
    spare_opted_out: bool = False  # refuse opted-out numbers, whatever the message's check_dnc


Decision = Exception | NewMessage
"""A message to be stored, or why it is not."""


class Known(NamedTuple):
    """A snapshot of keys, limits and used idempotency keys, valid within its transaction."""

    keys: dict[int, ApiKey]
    earlier: dict[tuple[int, str], Message | NewMessage]  # by their unique keys
    listed: dict[str, bool]  # the numbers on either list, each with whether it opted out
    most: dict[Window, int]  # what the keys' limits allow
    used: Counter[Window]  # how much of that is used
    added: Counter[Window]  # how much the accepted messages add
    refused: dict[Window, int]  # the fewest parts for which the rest was too small
    # Latest first, by number, limit, and the key if the limit is its own
    accepted_at: dict[tuple[str, Limit, int | None], list[datetime]]

    def key_limits(self, request: Request) -> tuple[Limit, ...]:
        """Return the limits that apply to a message's key."""
        key = self.keys.get(request.message.key)
        return key.limits_or(request.default_limits) if key else request.default_limits

    def recipient_limit(self, request: Request) -> tuple[str, Limit, int | None] | None:
        """Return the limit of a message's recipient as in `accepted_at`, or None."""
        key, limit = self.keys.get(request.message.key), request.recipient_limit
        if key:
            limit = key.recipient_limit_or(limit)
        own = key.id if key and key.recipient_limit else None
        return (request.message.to, limit, own) if limit else None

    def refusal(self, request: Request) -> Exception | None:
        """Return why a message may not be stored, or None; of several limits, the longest wait."""
        message, reached, too_small = request.message, [], []
        key = self.keys.get(message.key)
        if key and key.revoked_at:
            return KeyRevoked()
        if key and key.paused_at:
            return KeyPaused()
        if earlier := self.earlier.get(message.unique_key):  # limits do not apply to repeats
            return AlreadyAnswered(earlier)
        if self.listed.get(message.to) and request.spare_opted_out:
            return OnDoNotCallList("The recipient has opted out of texts.")
        if message.to in self.listed and message.check_dnc:
            return OnDoNotCallList("The recipient is on the Do Not Call list.")
        for each in self.key_limits(request):
            window = each.window_of(message.key, message.second)
            used = self.used[window] + self.added[window]
            reached.append(each.refusal(used, message.second, message.parts))
            if reached[-1] and used < each.number:
                too_small.append(window)
        if limited := self.recipient_limit(request):
            accepted_at = self.accepted_at[limited]
            reached += recipient_reached(accepted_at, limited[1], message.created_at)
        refusal = max(filter(None, reached), key=lambda each: each.free_at, default=None)
        if isinstance(refusal, LimitReached):
            for window in too_small:
                parts = self.refused.get(window, message.parts)
                self.refused[window] = min(parts, message.parts)
        return refusal

    def accept(self, request: Request) -> NewMessage:
        """Count an accepted message, and return it."""
        message = request.message
        if message.unique_key:
            self.earlier[message.unique_key] = message
        limits = self.key_limits(request)
        self.added.update(needs(limits, message.key, message.second, message.parts))
        key = self.keys.get(message.key)
        owners = {message.key} if key and key.is_counted_apart else {message.key, None}
        for (to, _, own), accepted_at in self.accepted_at.items():
            if to == message.to and own in owners:
                insort(accepted_at, message.created_at, key=lambda each: EPOCH - each)
        return message


def decide(requests: Iterable[Request], known: Known) -> list[Decision]:
    """Return each message, if it may be stored after those before it, or why it may not be."""
    return [known.refusal(request) or known.accept(request) for request in requests]
