"""The outbox: webhook events that tell the keys' systems what happened to their messages.

An event is written in the same transaction as the change it reports, and deleted once it is
delivered. `delivery.py` delivers them.
"""

import base64
import json
import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple, Self

import peewee
from peewee import SQL, BigAutoField, Case, ForeignKeyField, IntegerField, TextField, UUIDField, fn

from texting import database
from texting.access.audit import Action, Audit
from texting.access.keys import ApiKey, ids_of, names_of
from texting.carriers import urls
from texting.database import PAST, InstantField, Refused, Table, db, isoformat, locked
from texting.database.clock import SKEW

LONGEST_DELAY = timedelta(hours=1.2 * 24)
"""How far ahead the next try of an event can be, see `delivery`."""

OVERLAP = timedelta(hours=24)
"""How long after a rotation events are signed by the old secret as well."""

GIVEN_UP_KEPT = timedelta(days=30)
"""How long an event is kept after it was given up."""

FEWEST_TRIES = 3
"""Failed tries after which a receiver may count as dead."""

BY_RECEIPT = ("delivered", "undelivered")
WITH_REASON = ("failed", "undelivered")
REPLIED = "text_message.replied"
TEST = "text_message.test"


class EventAddress(Table):
    """The address for the events of a key; a key without a row has none."""

    key = ForeignKeyField(ApiKey, primary_key=True)
    url = TextField()
    secret = TextField()
    old_secret = TextField(null=True)  # before the rotation
    old_secret_until = InstantField(null=True)
    off = TextField(null=True)  # why it is switched off
    # Since it last accepted an event: the first failed try, and their number, up to FEWEST_TRIES
    failing_since = InstantField(PAST, null=True)
    failures = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        """Return the address of a key; raise Refused if it has none."""
        address = cls.get_or_none(cls.key == key)
        if address is None:
            raise Refused(f"{key.name} has no address for events")
        return address

    @classmethod
    def by_key(cls) -> dict[int, Self]:
        """Return all addresses by key id."""
        return {address.key_id: address for address in cls.select()}

    @classmethod
    def set(cls, key: ApiKey, url: str, now: datetime) -> None:
        """Set the address for the events of a key; make a secret if it is the first one."""
        row = cls.insert(key=key, url=url, secret=_new_secret())
        anew = {cls.url: url, cls.off: None, cls.failing_since: None, cls.failures: 0}
        with db.transaction():
            row.on_conflict(conflict_target=[cls.key], update=anew).execute()
            _audit(Action.SET_EVENTS, now, key, details=urls.masked(url))

    @classmethod
    def switch_off(cls, key: int, why: str, now: datetime, url: str | None = None) -> bool:
        """Send no more events of a key; return whether that is news.

        The first batch of waiting events is given up. With a URL, its receiver asked for this: do
        it only if that is still the address. Without one, an operator asked for it: do nothing if
        the address is off already.
        """
        mine = (cls.key == key) & (cls.url == url if url else cls.off.is_null())
        with db.transaction():
            done = cls.update(off=fn.COALESCE(cls.off, why)).where(mine).execute() == 1
            if done:
                Event.give_up(now)
            if done and url is None:
                _audit(Action.STOPPED_EVENTS, now, ApiKey.get_by_id(key))
        return done

    @classmethod
    def rotate(cls, key: ApiKey, now: datetime) -> None:
        """Make a new secret for a key; for a day, both sign its events."""
        old = {cls.old_secret: cls.secret, cls.old_secret_until: now + OVERLAP}
        with db.transaction():
            if not cls.update({cls.secret: _new_secret(), **old}).where(cls.key == key).execute():
                cls.of(key)
            _audit(Action.ROTATED_EVENTS, now, key)

    @classmethod
    def record_success(cls, keys: Collection[int]) -> None:
        """Note that the receivers of these keys have just accepted an event."""
        failing = cls.key.in_([*keys]) & cls.failing_since.is_null(False)
        cls.update(failing_since=None, failures=0).where(failing).execute()

    @classmethod
    def record_failure(cls, key: int, url: str, now: datetime) -> None:
        """Note that the receiver of a key, at this address, did not accept an event."""
        mine = (cls.key == key) & (cls.url == url) & (cls.failures < FEWEST_TRIES)
        since = Case(
            None,
            [(cls.failing_since.is_null(), cls.failing_since.db_value(now))],
            cls.failing_since,
        )
        cls.update(failing_since=since, failures=cls.failures + 1).where(mine).execute()

    @classmethod
    def receiving(cls, key: peewee.Field) -> peewee.ModelSelect:
        """Select the key as `receiver` if it has an address that is on."""
        return cls.select(cls.key).where(cls.key == key, cls.off.is_null()).alias("receiver")

    def secrets(self, now: datetime) -> list[str]:
        """Return the secrets that sign now, newest first."""
        if self.old_secret_until and now < self.old_secret_until:
            return [self.secret, self.old_secret]
        return [self.secret]


def _audit(action, now, key, **about):
    name = {"key": key.id, "key_name": key.name} if key else {}
    Audit.note(action, now, **name, **about)


def _is_of_name(name):
    """Match the events that `by_name` counts under this name."""
    return Event.key.in_([*ids_of({name})])


def _new_secret():
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


# The outbox


def body(message: Any, at: datetime) -> str:
    """Return the body of an event about a message, without its number and text."""
    reason = message.last_error if message.status in WITH_REASON else None
    if message.status == "cancelled":
        reason = message.note
    data = {"message_id": str(message.id), "status": message.status, "reason": reason}
    data |= {"attempts": message.attempts, "parts": message.parts}
    content = {"type": f"text_message.{message.status}", "timestamp": isoformat(at), "data": data}
    return json.dumps(content)


def body_of_test(at: datetime) -> str:
    """Return the body of a test event, about a message that does not exist."""
    return json.dumps(
        {"type": TEST, "timestamp": isoformat(at), "data": {"message_id": str(uuid.uuid4())}}
    )


def new_webhook_id() -> str:
    """Return an id by which a receiver recognizes a repeated event."""
    return f"evt_{uuid.uuid4().hex}"


class Backlog(NamedTuple):
    """How many events of a key are waiting, and how many were given up."""

    waiting: int = 0
    given_up: int = 0
    oldest: datetime | None = None  # of those waiting

    def __add__(self, other: Self) -> Self:
        oldest = min(filter(None, (self.oldest, other.oldest)), default=None)
        return Backlog(self.waiting + other.waiting, self.given_up + other.given_up, oldest)


class Event(Table):
    """An event until it is delivered; it outlives its message.

    A claim moves `next_try_at` to the end of its lease.
    """

    id = BigAutoField()  # never used again: AUTOINCREMENT on SQLite, see migrations
    webhook_id = TextField()
    key = ForeignKeyField(ApiKey, index=False)
    message_id = UUIDField()
    at = InstantField()  # of the change
    body = TextField()
    tries = IntegerField(default=0)
    next_try_at = InstantField(LONGEST_DELAY, null=True)  # null once given up
    last_answer = database.CarrierTextField(null=True)
    given_up_at = InstantField(PAST, null=True)
    reply_id = UUIDField(null=True)  # of the reply that it reports

    @classmethod
    def write(cls, ended: Iterable[Any]) -> None:
        """Write an event for each of these messages; `receiver` is its key's id."""
        for some in peewee.chunked(map(cls._row, ended), database.PAGE):
            cls.insert_many(some).as_rowcount().execute()

    @classmethod
    def write_reply(cls, key: int, message_id: uuid.UUID, data: dict, now: datetime) -> None:
        """Write an event about a reply to a message, if the key has an address that is on.

        `data` has its `reply_id`, its text, and what it led to.
        """
        on = (EventAddress.key == key) & EventAddress.off.is_null()
        if EventAddress.select().where(on).exists():
            data = {"message_id": str(message_id)} | data
            content = {"type": REPLIED, "timestamp": isoformat(now), "data": data}
            row = cls._new(key, message_id, now, json.dumps(content))
            cls.insert(row | {"reply_id": data["reply_id"]}).execute()

    @classmethod
    def forget_texts(cls, replies: Collection[uuid.UUID]) -> None:
        """Empty the texts of replies in the kept events."""
        for event in cls.select().where(cls.reply_id.in_([*replies])):
            content = json.loads(event.body)
            content["data"]["text"] = ""
            cls.update(body=json.dumps(content)).where(cls.id == event.id).execute()

    @classmethod
    def _row(cls, message):
        at = message.finished_at
        if message.status in BY_RECEIPT:  # a receipt comes after `sent`, even if recorded first
            at = max(message.receipt_at, at + database.MILLISECOND)
        return cls._new(message.receiver, message.id, at, body(message, at))

    @classmethod
    def _new(cls, key, message_id, at, content):
        of_whom = {"webhook_id": new_webhook_id(), "key": key, "message_id": message_id}
        return of_whom | {"at": at, "body": content, "next_try_at": at}

    # Delivery

    @classmethod
    def receivers(cls, now: datetime, began_at: datetime | None) -> list[EventAddress]:
        """Return the addresses that are on and have due events, with their keys."""
        due = cls.select().where(cls.key == EventAddress.key, cls._due(now, began_at))
        addresses = EventAddress.select(EventAddress, ApiKey).join(ApiKey)
        return [*addresses.where(EventAddress.off.is_null(), fn.EXISTS(due))]

    @classmethod
    def claim(
        cls,
        key: int,
        limit: int,
        now: datetime,
        until: datetime,
        began_at: datetime | None,
        among: Collection[int] | None = None,
    ) -> list[Self]:
        """Claim up to `limit` due events of a key, longest due first.

        Nobody else gets them before they are recorded, or before `until`. With `began_at`, events
        that were tried since then are not due. `among` limits the choice to these ids.
        """
        due = cls._first_due(key, limit, now, began_at)
        if among is not None:
            due = due.where(cls.id.in_([*among]))
        claim = cls.update(next_try_at=until).where(locked(cls.id, due))
        claimed = claim.returning(cls).execute()
        return sorted(claimed, key=lambda event: event.id)

    @classmethod
    def ids_due(cls, key: int, limit: int, now: datetime, began_at: datetime | None) -> list[int]:
        """Return the ids of the events that `claim` would take."""
        return [event.id for event in cls._first_due(key, limit, now, began_at)]

    @classmethod
    def put_off(cls, id: int, now: datetime, until: datetime) -> None:
        """Do not try a due event before an instant."""
        cls.update(next_try_at=until).where(cls.id == id, cls.next_try_at <= now).execute()

    @classmethod
    def _first_due(cls, key, limit, now, began_at):
        due = cls.select(cls.id).where(cls.key == key, cls._due(now, began_at))
        return due.order_by(cls.next_try_at).limit(limit)

    @classmethod
    def _due(cls, now, began_at):
        due = cls.next_try_at <= now
        return due & ((cls.tries == 0) | (cls.next_try_at <= began_at)) if began_at else due

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Make events due now that were never tried, and date back the others as in any table."""
        ahead = (cls.tries == 0) & (cls.next_try_at > now + SKEW)
        return cls._change_some(cls.update(next_try_at=now), ahead) or super().date_back(now)

    def delivered(self) -> bool:
        """Delete a delivered event, also if it has been given up meanwhile; return whether it was.

        Do nothing if another scheduler has claimed it since we did.
        """
        unclaimed = self._is_unclaimed() | Event.next_try_at.is_null()
        return Event.delete().where(self._is_untried(), unclaimed).execute() == 1

    def failed(self, answer: str, next_try_at: datetime | None, now: datetime) -> bool:
        """Record a failed try, and when the next is due; None gives this event up.

        Do nothing if another scheduler has claimed it since we did, or if it has been given up;
        return whether the try was recorded.
        """
        changes = {"tries": self.tries + 1, "last_answer": answer, "next_try_at": next_try_at}
        changes["given_up_at"] = None if next_try_at else now
        counts = self._is_untried() & self._is_unclaimed()
        return Event.update(changes).where(counts).execute() == 1

    def _is_untried(self):
        """Match the row if no try has been recorded since it was claimed."""
        return (Event.id == self.id) & (Event.tries == self.tries)

    def _is_unclaimed(self):
        """Match the row if nobody has claimed it since: that would be until after our lease."""
        return Event.next_try_at <= self.next_try_at

    @classmethod
    def give_up(cls, now: datetime) -> int:
        """Give up a batch of events that wait for addresses that are off; return how many.

        Events that are written or recorded at this moment may be missed: the scheduler gives them
        up a little later.
        """
        off = EventAddress.select(EventAddress.key).where(EventAddress.off.is_null(False))
        waiting = cls.select(cls.id).where(cls.next_try_at.is_null(False), cls.key.in_(off))
        give_up = cls.update(next_try_at=None, given_up_at=now)
        return give_up.where(locked(cls.id, waiting.limit(database.FEW))).execute()

    @classmethod
    def forget(cls, now: datetime) -> int:
        """Delete a batch of events that were given up long ago; return how many."""
        return cls.delete_some(cls.given_up_at < now - GIVEN_UP_KEPT)

    # For people

    @classmethod
    def retry(cls, key: ApiKey | None, now: datetime) -> int:
        """Queue again a batch of given-up events whose addresses are on; return how many."""
        on = EventAddress.select(EventAddress.key).where(EventAddress.off.is_null())
        again = cls.given_up_at.is_null(False) & cls.key.in_(on)
        if key:
            again &= _is_of_name(key.name)
        changes = {"tries": 0, "next_try_at": now, "given_up_at": None}
        some = cls.select(cls.id).where(again).limit(database.FEW)
        with db.transaction():
            if count := cls.update(changes).where(locked(cls.id, some)).execute():
                _audit(Action.RETRIED_EVENTS, now, key, count=count)
        return count

    @classmethod
    def listing(cls, key: ApiKey | None) -> Iterator[Self]:
        """Read events that wait or were given up, with their keys, oldest first, in pages."""
        events = cls.select(cls, ApiKey).join(ApiKey).order_by(cls.id)
        if key:
            events = events.where(_is_of_name(key.name))
        return database.in_pages(events, None, lambda last: cls.id > last.id)

    @classmethod
    def latest_of(cls, key: int, message_id: uuid.UUID) -> Self | None:
        """Return the latest event of a message that waits or was given up, if there is one."""
        events = cls.select().where(cls.key == key, cls.message_id == message_id)
        kept = cls.next_try_at.is_null(False), cls.given_up_at.is_null(False)  # as the indexes
        return max(
            (each for which in kept for each in events.where(which)),
            default=None,
            key=lambda event: event.id,
        )

    @classmethod
    def backlogs(cls) -> dict[int, Backlog]:
        """Return the backlog of each key that has events, by its id; only indexes are read."""
        count, found = fn.COUNT(SQL("*")), {}
        given_up = cls.select(cls.key, count).where(cls.given_up_at.is_null(False))
        for key, events in given_up.group_by(cls.key).tuples():
            found[key] = Backlog(given_up=events)
        waiting = cls.select(cls.key, count, fn.MIN(cls.at)).where(cls.next_try_at.is_null(False))
        for key, events, oldest in waiting.group_by(cls.key).tuples():
            found[key] = found.get(key, Backlog())._replace(waiting=events, oldest=oldest)
        return found

    @classmethod
    def by_name(cls) -> dict[str, Backlog]:
        """Return the backlog of the keys that have events, by name, which several may share."""
        backlogs, found = cls.backlogs(), {}
        for key, name in sorted(names_of(backlogs).items(), key=itemgetter(1)):
            found[name] = found.get(name, Backlog()) + backlogs[key]
        return found

    @property
    def type(self) -> str:
        return json.loads(self.body)["type"]


for _name, _columns, _where in (
    ("event_due", [Event.key, Event.next_try_at, Event.at], SQL("next_try_at IS NOT NULL")),
    ("event_reply", [Event.reply_id], SQL("reply_id IS NOT NULL")),
    ("event_given_up", [Event.given_up_at, Event.key], SQL("given_up_at IS NOT NULL")),
):
    Event.add_index(Event.index(*_columns, where=_where, name=_name))
