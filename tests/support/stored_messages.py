"""Messages stored without the web: as many as a test needs, in any state."""

import contextlib
import sqlite3
import uuid
from functools import partial

import psycopg

from samples import DAY, HOUR, NEW_YORK, TUESDAY_NOON
from texting.access.keys import ApiKey, rules_of
from texting.access.places import KnownPlace
from texting.access.rules import end_of
from texting.carriers.alphabets import count_parts
from texting.carriers.configs import CarrierConfig
from texting.carriers.lanes import Lane, Routes, new_lane
from texting.database import clock, db
from texting.messages import doubts, storing, waiting
from texting.messages.admission import NewMessage, Request
from texting.messages.attempts import Attempt, Result
from texting.messages.decisions import Selection
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import ANSWER_WITHIN, TAKEN, Message, Status, new_id
from texting.recipients import Residence
from texting.reports import queue
from texting.sending.claims import Turns

FAKE = "fake"
"""The carrier that has the messages of most tests."""

SENDER = uuid.UUID(int=1)
"""The scheduler that has claimed the messages that are being sent."""


def store(now=TUESDAY_NOON, **columns):
    """Store a message and return it; by default it is to New York and queued now."""
    row, tries = _row(now, columns)
    first = row["claim_number"] - len(tries) + 1
    message = Message.create(**row)
    for number, each in enumerate(tries, first):
        Attempt.create(message=message, claim_number=number, **each)
    return again(message)


def _tries(row):
    """What a message in this state has gone through, the first try first."""
    carrier, doubts = row.get("carrier") or FAKE, row.get("in_doubt", 0)
    names = (row.get("in_doubt_with") or "").split()
    names = [carrier] * (doubts - len(names)) + names
    since = row.get("in_doubt_since") or row["send_at"]
    for name in names:
        yield {"carrier": name, "ask_at": row["send_at"]} | _ended(since, Result.UNCLEAR)
    if row["status"] == Status.SENDING:
        sender, at = row.get("claimed_by", SENDER), row.get("claimed_at", row["send_at"])
        Heartbeat.insert(sender=sender, beat_at=at).on_conflict_ignore().execute()
        name = row.get("claimed_for") or carrier
        yield {"carrier": name, "sender": sender, "begun_at": at}
    if row["status"] in TAKEN:
        at = row.get("finished_at") or row["send_at"]
        receipt = None if row["status"] == Status.SENT else row["status"]
        said = {"receipt": receipt, "receipt_at": row.get("receipt_at")}
        reference = row.get("carrier_reference")
        yield {"carrier": carrier, "reference": reference} | said | _ended(at, Result.TAKEN)


def _ended(at, result):
    return {"begun_at": at, "ended_at": at, "result": result}


def decide_on(*messages):
    """Messages that a person decides on."""
    return Selection(message.id for message in messages)


def may_take(lane, key, carrier="fake"):
    """Whether a carrier that may be used for all is given a text."""
    return Routes([CarrierConfig(FAKE)], []).may_take(carrier, lane, key, trouble=())


def turns(carrier="fake"):
    """The keys in turn, as of now."""
    found = Turns(Routes([CarrierConfig(FAKE)], []))
    found.refresh(partial(may_take, carrier=carrier))
    return found


def claim(limit, of=None, carrier="fake"):
    """Claim messages as SENDER does, for a carrier that may be used for all."""
    with db.atomic():
        claimed = (of or turns(carrier)).claim(limit, partial(may_take, carrier=carrier))
        Heartbeat.insert(sender=SENDER, beat_at=clock.now()).on_conflict_ignore().execute()
        Attempt.begin(claimed, "fake", SENDER, clock.now())
    return claimed


def die_with_one(now):
    """Have a scheduler claim a message that is due, if any is, and die; return how many that was.

    It beat an hour ago.
    """
    waiting.promote(now)
    claimed = claim(1)
    Heartbeat.update(beat_at=now - HOUR).where(Heartbeat.sender == SENDER).execute()
    return len(claimed)


def live_at(number, place, until=None):
    """Have the owner of a number be known to live at a place."""
    KnownPlace.put({number: Residence(place, until)}, TUESDAY_NOON)


def take_over(now, unable=()):
    """Take over what schedulers had in hand, as if all were dead; count it."""
    Heartbeat.delete().execute()
    return doubts.take_over(now, unable)


def new_message(text="Hello", **fields):
    """A message as the operation makes it, not stored yet."""
    now = clock.now()
    if "key" not in fields:  # threads that create at once bring the same one
        fields["key"] = key_named("app").id
    usual = {"to": NEW_YORK, "country": "US", "parts": 1, "send_date": None, "send_at": now}
    usual |= {"status": Status.QUEUED, "max_retries": 3, "id": new_id(now), "created_at": now}
    usual |= dict.fromkeys(("manual_mode", "available_to_group", "check_dnc"), False)
    usual |= dict.fromkeys(("idempotency_key", "request_digest", "response"))
    is_testers = fields["key"] in {key.id for key in ApiKey.testers()}
    usual["lane"] = new_lane(fields.get("country", "US"), is_testers)
    usual["expires_at"] = fields.get("send_at", now) + 3 * DAY
    return NewMessage(message=text, **usual | fields)


def create(text, limits=(), recipient_limit=None, **fields):
    """Create a message as the operation does."""
    storing.store(Request(new_message(text, **fields), limits, recipient_limit))


def _row(now, columns):
    """The columns of a message, and the tries that it has gone through."""
    row = {
        "id": new_id(now),
        "key": columns.get("key") or key_named("app"),
        "to": NEW_YORK,
        "message": "Hello",
        "send_at": now,
        "status": Status.QUEUED,
        "manual_mode": False,
        "available_to_group": False,
        "check_dnc": False,
        "max_retries": 3,
        "created_at": now,
        "country": "US",
    } | columns
    first_send_at = max(row["send_at"], clock.now())  # or it would have expired
    parts = count_parts(row["message"] or "redacted")
    others = {"approved": not row["manual_mode"], "first_send_at": first_send_at, "parts": parts}
    row = others | row
    key = getattr(row["key"], "id", row["key"])
    lane = Lane.read(new_lane(row["country"], key in {each.id for each in ApiKey.testers()}))
    unclear = [each["carrier"] for each in _tries(row) if each.get("result") == Result.UNCLEAR]
    row.setdefault("lane", str(lane.with_doubts(unclear)))
    if "expires_at" not in row:
        row["expires_at"] = _expires_at(Message(**row))
    tries = [*_tries(row)]
    row["claim_number"] = max(row.get("claim_number", 0), len(tries))
    return row, tries


def _expires_at(message):
    """When it is too late to send a message, by its key's rule or the default of EXPIRE_AFTER."""
    lifetime = rules_of({message.key_id})[message.key_id].lifetime(3 * DAY)
    return end_of(message.first_send_at, ANSWER_WITHIN if message.auto_reply_to else lifetime)


def held(status, **columns):
    """A message in a status, claimed by SENDER if it is being sent."""
    claim = {"claimed_by": SENDER, "claimed_at": TUESDAY_NOON} if status == Status.SENDING else {}
    return store(status=status, **claim | columns)


def store_many(count, now=TUESDAY_NOON, **columns):
    """Store messages to as many numbers, and return these numbers in the order of the ids."""
    numbers = [f"+1212555{n:04}" for n in range(count)]
    whole, tries = _row(now, columns)
    usual, fields = Message(**whole).__data__, Message._meta.fields
    row = {fields[name]: fields[name].db_value(value) for name, value in usual.items()}
    ids = sorted(new_id(now) for _ in numbers)
    rows = [
        [*(row | {Message.id: Message.id.db_value(id), Message.to: number}).values()]
        for id, number in zip(ids, numbers, strict=True)
    ]
    names = ", ".join(f'"{field.column_name}"' for field in row)
    marks = ", ".join([db.param] * len(row))
    with db.atomic():  # insert_many() takes five times as long
        db.cursor().executemany(f"INSERT INTO message ({names}) VALUES ({marks})", rows)
        given = [
            {"message": id, "claim_number": number} | each
            for id in ids
            for number, each in enumerate(tries, 1)
        ]
        if given:
            Attempt.insert_many(given).execute()
    return numbers


def store_history():
    """Store messages that ended, recently or long ago, are due, or wait for a time or approval."""
    store(status=Status.SENT, finished_at=TUESDAY_NOON - HOUR / 2)
    store(status=Status.SENT, finished_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 2 * DAY)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - DAY, manual_mode=True, approved=False)


def key_named(name, group=None, now=TUESDAY_NOON):
    key = ApiKey.get_or_none(ApiKey.name == name)
    return key or ApiKey.create(name=name, group=group, digest=name, created_at=now)


def again(message):
    """Read a message anew."""
    return Message.get_by_id(message.id)


def statuses():
    """The number of messages in each status that has any."""
    return {status: count for status, count in queue.by_status().items() if count}


def connection_of(url):
    """A connection of a test's own, without peewee; the caller closes it."""
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:///")
        return sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    return psycopg.connect(url, autocommit=True)


def look(url, query):
    """The rows of a query, over a connection of its own; safe in any thread."""
    with contextlib.closing(connection_of(url)) as connection:
        return connection.execute(query).fetchall()
