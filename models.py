"""The database: its tables, every query, and every state transition of a message.

Instants go in and come out as aware UTC datetimes and are stored as whole milliseconds since
1970, so that they sort and compare alike on SQLite and Postgres.
"""

import hashlib
import itertools
import json
import math
import re
import secrets
import threading
import time
import uuid
from collections import deque
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path

from peewee import (
    SQL,
    BigIntegerField,
    BooleanField,
    DatabaseError,
    DatabaseProxy,
    DataError,
    ForeignKeyField,
    IntegerField,
    IntegrityError,
    InterfaceError,
    InternalError,
    Model,
    OperationalError,
    PostgresqlDatabase,
    ProgrammingError,
    SqliteDatabase,
    TextField,
    UUIDField,
    fn,
)
from playhouse.migrations import Runner

db = DatabaseProxy()

DATABASE_ERRORS = (OperationalError, InterfaceError, InternalError, ProgrammingError)
"""What a database raises that cannot be reached, is locked, full, read-only or not migrated."""
ALL_DATABASE_ERRORS = (DatabaseError, InterfaceError)
"""These, and what it raises where its file is damaged, or a value is none that it can keep."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
HOUR = timedelta(hours=1) // MILLISECOND  # as instants are stored


def clock() -> datetime:
    """Now, in UTC, cut to the milliseconds that are stored and answered."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class Refused(Exception):
    """Says, for an operator, why something cannot be done in the present state."""


class AlreadyAnswered(Exception):
    """Another request with the same idempotency key was stored first."""


class Status(StrEnum):
    SCHEDULED = "scheduled"  # waits for its time
    QUEUED = "queued"  # may be sent now
    SENDING = "sending"  # claimed by a sender, until the claim times out
    SENT = "sent"  # the carrier took it
    FAILED = "failed"  # refused for good, or every retry is used up
    BLOCKED = "blocked"  # on the Do Not Call list when its turn came
    CANCELLED = "cancelled"  # by an operator, who may also have refused approval


FINISHED = (Status.SENT, Status.FAILED, Status.BLOCKED, Status.CANCELLED)


PATIENCE = 5  # seconds


class Busy(OperationalError):
    """Says that other threads wait for the database, which gives them no answer."""


class Turn:
    """Held by a thread while it uses the connection, which all threads of a process share.

    Whose turn does not come in time is refused: behind a database that does not answer, each would
    wait as long as all before it together. A connection that failed is dropped.
    """

    def __init__(self):
        self._lock = threading.RLock()

    def __enter__(self):
        if not self._lock.acquire(timeout=PATIENCE):
            raise Busy("others have been waiting for it")

    def __exit__(self, kind, error, traceback):
        try:
            if error:
                self.drop()
        finally:
            self._lock.release()

    def drop(self):
        """Drop the connection, whatever state it is in; the next query opens another."""
        if db.obj is None or db.is_closed():
            return
        connection = db.connection()
        db.dispose()
        connection.close()


turn = Turn()


class Together:
    """Does at once what several threads want of the database at the same time.

    Whoever comes while nobody works leads: it works for all who came by then, wakes them, and hands
    over to the first of those who came meanwhile. `work` gets a list of what is wanted and returns
    the list of outcomes; it can be called again with the same list, where the connection had died.
    """

    MOST = 32  # SQLite may take no more than 999 parameters in one statement

    def __init__(self, work):
        self._work = work
        self._lock, self._waiting, self._led = threading.Lock(), deque(), False

    def __call__(self, wanted):
        mine = _Wish(wanted)
        with self._lock:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
        if not (mine.leads or mine.woken.acquire(timeout=PATIENCE)):
            self._give_up(mine)
        if mine.leads:
            self._lead()
        if mine.error:
            raise mine.error
        return mine.outcome

    def _lead(self):
        with self._lock:
            wishes = [self._waiting.popleft() for _ in range(min(self.MOST, len(self._waiting)))]
        try:
            outcomes = revive(lambda: self._work([wish.wanted for wish in wishes]))
            for wish, outcome in zip(wishes, outcomes, strict=True):
                wish.outcome = outcome
        except BaseException as error:
            for wish in wishes:
                wish.error = error
        finally:
            with self._lock:
                self._led = bool(self._waiting)
                if self._led:
                    self._waiting[0].leads = True
                    wishes.append(self._waiting[0])
            for wish in wishes:
                wish.woken.release()

    def _give_up(self, mine):
        """Take a wish back, unless somebody works at it right now: then its outcome is awaited."""
        with self._lock:
            if mine in self._waiting and not mine.leads:
                self._waiting.remove(mine)
                raise Busy("others have been waiting for it")
        mine.woken.acquire()


class _Wish:
    """What one thread wants, and what became of it."""

    __slots__ = ("error", "leads", "outcome", "wanted", "woken")

    def __init__(self, wanted):
        self.wanted, self.outcome, self.error = wanted, None, None
        self.leads, self.woken = False, threading.Lock()
        self.woken.acquire()


class Sqlite(SqliteDatabase):
    """A SQLite that serves writers in no time, and whose reason is heard when it fails.

    SQLite's own waiting for another process sleeps up to a tenth of a second, while the lock comes
    and goes.
    """

    def begin(self, lock_type=None):
        self._patiently(super().begin, lock_type)

    def execute_sql(self, sql, params=None):
        return self._patiently(super().execute_sql, sql, params)

    def _patiently(self, action, *arguments):
        give_up_at = None
        while True:
            try:
                return action(*arguments)
            except OperationalError as error:
                give_up_at = give_up_at or time.monotonic() + PATIENCE
                if "locked" not in str(error) or time.monotonic() > give_up_at:
                    raise
            time.sleep(0.0005)

    def rollback(self):
        """Roll back, unless SQLite has done so already because the disk was full."""
        if self.connection().in_transaction:
            super().rollback()


class Postgres(PostgresqlDatabase):
    """A PostgreSQL that does not let one who waits for another's lock wait for ever."""

    def _initialize_connection(self, conn):
        conn.execute(f"SET lock_timeout = '{PATIENCE}s'")

    def begin(self, isolation_level=None):
        """Begin a transaction; replace a kept connection that died meanwhile."""
        try:
            super().begin(isolation_level)
        except DATABASE_ERRORS:
            turn.drop()
            super().begin(isolation_level)


def connect(url: str) -> None:
    """Point every model at the database of a `sqlite:///` or `postgresql://` URL.

    Nothing is opened yet: a process opens a connection with its first query and keeps it, because
    closing SQLite's last one checkpoints the WAL and a new one to Postgres costs a round trip and
    a process there. One writer a process is also what SQLite is fastest with.
    """
    disconnect()
    db.initialize(_database(url))
    _leases.clear()


def _database(url):
    if url.startswith("sqlite:"):
        return Sqlite(
            url.removeprefix("sqlite:///"),
            pragmas={
                "journal_mode": "wal",
                "synchronous": "full",
                "foreign_keys": 1,
                "busy_timeout": 0,  # Sqlite waits by itself
            },
            lock_type="IMMEDIATE",
            timeout=PATIENCE,
            thread_safe=False,
            check_same_thread=False,
        )
    conninfo = "postgresql:" + url.partition(":")[2]
    limits = {"connect_timeout": PATIENCE, "tcp_user_timeout": 10_000}  # seconds, milliseconds
    limits = {name: limit for name, limit in limits.items() if f"{name}=" not in url}
    return Postgres(conninfo, prefer_psycopg3=True, thread_safe=False, **limits)


def disconnect() -> None:
    """Drop the connection; the next query opens another."""
    with turn:
        turn.drop()


def revive(query):
    """Run the first query of a request or a pass; replace a kept connection that died meanwhile."""
    with turn:
        try:
            return query()
        except DATABASE_ERRORS as error:
            if not db.for_update or "lock timeout" in str(error):
                raise  # SQLite's do not die: it was locked, and would be again
            turn.drop()
            return query()


@cache
def _sql(database, query):
    """The text of a query; peewee would build it anew, for half a millisecond, in each request."""
    return query().sql()[0]


def reason(error: Exception) -> str:
    """What the database said, in one line, unless that could repeat a value."""
    if isinstance(error, DataError | IntegrityError):
        return type(error).__name__
    return str(error).partition("\n")[0]


def upgrade() -> list[str]:
    """Create or migrate the tables in one transaction; the names of the migrations applied.

    Upgrades that start together wait for one another; all but the first find nothing to do.
    """
    with db.atomic():
        if db.for_update:  # Postgres; SQLite's BEGIN IMMEDIATE has let only one of us in
            db.execute_sql("SET LOCAL lock_timeout = 0")
            db.execute_sql("SELECT pg_advisory_xact_lock(hashtext('text-messages upgrade'))")
        return Runner(db.obj, str(Path(__file__).parent / "migrations")).up()


def new_id(now: datetime) -> uuid.UUID:
    """A UUID of version 7 (RFC 9562): it sorts by time, so it lands beside its neighbours."""
    milliseconds = (now - EPOCH) // MILLISECOND
    tail = secrets.randbits(74)
    return uuid.UUID(
        int=milliseconds << 80 | 7 << 76 | (tail >> 62) << 64 | 2 << 62 | tail & (1 << 62) - 1
    )


class InstantField(BigIntegerField):
    def db_value(self, value):
        return value if value is None else (value - EPOCH) // MILLISECOND

    def python_value(self, value):
        return value if value is None else EPOCH + value * MILLISECOND


class SaidField(TextField):
    """What a carrier said, without what no database can hold: it must not hide the outcome."""

    def db_value(self, value):
        return value and re.sub("[\0\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


class Table(Model):
    class Meta:
        database = db
        legacy_table_names = False


LEASE = 0.5  # seconds
"""How long a process takes a key as it read it: to ask each time would be a seventh of a request.

Who takes a key back waits as long, and so returns when it is refused in every process.
"""
_leases = {}  # by the secret's digest: the key's id, until when it is good, and the lease's end


class ApiKey(Table):
    name = TextField(unique=True)
    group = TextField(null=True)
    digest = TextField(unique=True)
    created_at = InstantField()
    revoked_at = InstantField(null=True)
    expires_at = InstantField(null=True)
    last_used_at = InstantField(null=True)  # to the hour
    old_digest = TextField(null=True, index=True)  # of the secret before the rotation
    old_expires_at = InstantField(null=True)

    @staticmethod
    def digest_of(secret):
        """Only this is stored: SHA-256 is enough for a secret of 256 random bits."""
        return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def issue(cls, name, group, now, expires_at=None):
        """Store a new key; its secret, which is not kept. Refused where the name is taken."""
        secret = cls._new_secret()
        try:
            cls.create(
                name=name,
                group=group,
                digest=cls.digest_of(secret),
                created_at=now,
                expires_at=expires_at,
            )
        except IntegrityError:
            raise Refused(f"a key named {name!r} exists already") from None
        return secret

    @classmethod
    def authenticate(cls, secret, now):
        """The id of this secret's key, or None where it is unknown, expired or revoked.

        Asked of the database no more than once a LEASE.
        """
        digest, instant = cls.digest_of(secret), cls.expires_at.db_value(now)
        key_id, expires_at, lease_ends = _leases.get(digest, (None, 0, 0))
        asked = time.monotonic()
        if instant < expires_at and asked < lease_ends:
            return key_id
        sql = _sql(db.obj, cls._with_secret)
        values = (instant, digest, digest, instant)
        row = revive(lambda: db.execute_sql(sql, values).fetchone())
        if row is None:
            return None
        key_id, last_used_at, current, expires_at, old_expires_at = row
        if last_used_at is None or instant - last_used_at >= HOUR:
            hour = now.replace(minute=0, second=0, microsecond=0)
            revive(cls.update(last_used_at=hour).where(cls.id == key_id).execute)
        ends = (expires_at, None if current == digest else old_expires_at)
        _leases[digest] = key_id, min(filter(None, ends), default=math.inf), asked + LEASE
        return key_id

    @classmethod
    def _with_secret(cls):
        old = (cls.old_digest == "") & (cls.old_expires_at > EPOCH)
        return cls.select(
            cls.id, cls.last_used_at, cls.digest, cls.expires_at, cls.old_expires_at
        ).where(
            cls.revoked_at.is_null(),
            cls.expires_at.is_null() | (cls.expires_at > EPOCH),
            (cls.digest == "") | old,
        )

    @staticmethod
    def _new_secret():
        return "tms_" + secrets.token_urlsafe(32)  # a prefix that secret scanners can look for

    @classmethod
    def named(cls, name):
        key = cls.get_or_none(cls.name == name)
        if key is None:
            raise Refused(f"there is no key named {name!r}")
        return key

    def rotate(self, old_expires_at):
        """Give this key a new secret, which is not kept; the old one is good until an instant."""
        secret = self._new_secret()
        changed = (
            ApiKey.update(
                digest=self.digest_of(secret),
                old_digest=self.digest,
                old_expires_at=old_expires_at,
            )
            .where(ApiKey.id == self.id, ApiKey.digest == self.digest, ApiKey.revoked_at.is_null())
            .execute()
        )
        if not changed:
            raise Refused(f"the key {self.name!r} is revoked, or was rotated just now")
        time.sleep(LEASE)
        return secret

    def revoke(self, now):
        """Refuse this key in every process, before this returns; False where it was revoked."""
        live = (ApiKey.id == self.id) & ApiKey.revoked_at.is_null()
        done = ApiKey.update(revoked_at=now).where(live).execute() == 1
        time.sleep(LEASE)
        return done


class DoNotCall(Table):
    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()

    @classmethod
    def lists(cls, number):
        return cls.select().where(cls.number == number).exists()

    @classmethod
    def listed(cls, numbers):
        """Those of these numbers that are on the list."""
        numbers = list(numbers)
        found = cls.select().where(cls.number.in_(numbers)) if numbers else ()
        return {row.number for row in found}

    @classmethod
    def add(cls, numbers, now):
        """Put numbers on the list, in one quick statement; how many were not on it yet.

        Sorted, so that Postgres cannot find two that do this at once in a deadlock.
        """
        values = "json_array_elements_text" if db.for_update else "json_each"
        sql = (
            f"INSERT INTO do_not_call (number, added_at) SELECT value, {db.param} "
            f"FROM {values}({db.param}) WHERE true ON CONFLICT DO NOTHING"
        )
        parameters = (cls.added_at.db_value(now), json.dumps(sorted(numbers)))
        return db.execute_sql(sql, parameters).rowcount

    @classmethod
    def remove(cls, numbers):
        """Take numbers off the list; how many were on it."""
        return cls.delete().where(cls.number.in_(list(numbers))).execute()


class Message(Table):
    id = UUIDField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    to = TextField(null=True)  # E.164; null once redacted, like the message
    message = TextField(null=True)
    send_date = InstantField(null=True)  # asked for
    send_at = InstantField()  # decided; moves with every retry
    status = TextField()
    manual_mode = BooleanField()
    available_to_group = BooleanField()
    check_dnc = BooleanField()
    approved = BooleanField()
    attempts = IntegerField(default=0)
    max_retries = IntegerField()
    claimed_by = UUIDField(null=True)
    claimed_at = InstantField(null=True)
    finished_at = InstantField(null=True)
    last_error = SaidField(null=True)
    carrier_reference = SaidField(null=True)
    created_at = InstantField()
    idempotency_key = TextField(null=True)
    request_digest = TextField(null=True)
    answer = TextField(null=True)  # the body of the 201, kept where there is an idempotency key

    # The way in

    @classmethod
    def store(cls, **columns):
        """Keep a new message for good; AlreadyAnswered where its idempotency key is taken.

        What other threads want stored meanwhile is committed together with it: the wait for the
        disk is most of the cost, and the same for one message as for ten.
        """
        row = [field.db_value(columns.get(field.name, field.default)) for field in _FIELDS]
        if not _store(row):
            raise AlreadyAnswered

    @classmethod
    def _store_all(cls, rows):
        """Store messages in one statement; of each, whether it is stored now, or was already."""
        if db.for_update:  # Postgres; to psycopg, each row of values costs more than all of this
            rows_as_json = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
            values = [json.dumps(rows_as_json, ensure_ascii=False)]
            source = f"SELECT {_NAMES} FROM json_populate_recordset(NULL::message, %s)"
        else:
            values = [value for row in rows for value in row]
            source = "VALUES " + ", ".join([_MARKS] * len(rows))
        sql = f"INSERT INTO message ({_NAMES}) {source} ON CONFLICT DO NOTHING"
        if db.execute_sql(sql, values).rowcount == len(rows):
            return [True] * len(rows)
        ids = (cls.id.python_value(row[0]) for row in rows)  # somebody's idempotency key is taken
        return [cls.get_or_none(cls.id == message_id) is not None for message_id in ids]

    @classmethod
    def answered(cls, key, idempotency_key):
        """The message that this key's request with this idempotency key created, or None."""
        return cls.get_or_none(cls.key == key, cls.idempotency_key == idempotency_key)

    # Transitions by the scheduler

    @classmethod
    def take_over(cls, before):
        """Queue again what a sender claimed before this instant and never finished; how many."""
        dead = _in(Status.SENDING) & (cls.claimed_at < before)
        return cls.update(status=Status.QUEUED, claimed_by=None).where(dead).execute()

    @classmethod
    def block_listed(cls, now):
        """Block what is due but joined the Do Not Call list meanwhile; how many."""
        listed = cls.to.in_(DoNotCall.select(DoNotCall.number))
        return (
            cls.update(status=Status.BLOCKED, finished_at=now)
            .where(_in(Status.SCHEDULED), cls.send_at <= now, cls.check_dnc, listed)
            .execute()
        )

    @classmethod
    def promote(cls, now):
        """Queue all that is scheduled and due; how many."""
        due = _in(Status.SCHEDULED) & (cls.send_at <= now)
        return cls.update(status=Status.QUEUED).where(due).execute()

    @classmethod
    def claim(cls, claimant, limit, now):
        """Take up to `limit` messages that may be sent, the longest due first.

        Nobody else gets them until they are finished, put back or taken over.
        """
        if not limit:
            return []
        with db.atomic():
            messages = list(cls.raw(_sql(db.obj, cls._free), limit))
            if messages:
                these, ids = _among(message.id for message in messages)
                sql = (
                    f"UPDATE message SET status = '{Status.SENDING}', claimed_by = {db.param}, "
                    f"claimed_at = {db.param} WHERE {these}"
                )
                claim = (cls.claimed_by.db_value(claimant), cls.claimed_at.db_value(now))
                db.execute_sql(sql, (*claim, *ids))
        for message in messages:
            message.claimed_by = claimant
        return messages

    @classmethod
    def _free(cls):
        free = cls.select().where(_sendable()).order_by(cls.send_at).limit(1)
        return free.for_update("FOR UPDATE SKIP LOCKED") if db.for_update else free

    @classmethod
    def renew(cls, claimant, messages, now):
        """Say that their sender is alive, so that nobody takes these messages over."""
        if messages:
            mine = _in(Status.SENDING) & (cls.claimed_by == claimant)
            these = cls.id.in_([message.id for message in messages])
            cls.update(claimed_at=now).where(mine, these).execute()

    @classmethod
    def sent(cls, references, now):
        """Record the carrier's yes to messages, its references by their ids; how many.

        It happened, whatever became of the claims meanwhile. One statement, because a scheduler
        does little else.
        """
        if not references:
            return 0
        these, ids = _among(references)
        said = map(cls.carrier_reference.db_value, references.values())
        mark = db.param
        sql = (
            f"UPDATE message SET status = '{Status.SENT}', claimed_by = NULL, claimed_at = NULL, "
            f"finished_at = {mark}, attempts = attempts + 1, last_error = NULL, "
            f"carrier_reference = CASE id {f'WHEN {mark} THEN {mark} ' * len(ids)}END "
            f"WHERE {these} AND status <> '{Status.SENT}'"
        )
        pairs = itertools.chain(*zip(ids, said, strict=True))
        return db.execute_sql(sql, (cls.finished_at.db_value(now), *pairs, *ids)).rowcount

    def retry_at(self, instant, error, counted=True):
        """Schedule this claimed message again after a failed send."""
        return self._move(
            {Status.SENDING},
            status=Status.SCHEDULED,
            send_at=instant,
            attempts=self.attempts + counted,
            last_error=error,
        )

    def fail(self, error, now, counted=True):
        """Give this claimed message up."""
        return self._move(
            {Status.SENDING},
            status=Status.FAILED,
            finished_at=now,
            attempts=self.attempts + counted,
            last_error=error,
        )

    def block(self, now):
        """Keep this claimed message from a recipient on the Do Not Call list."""
        return self._move({Status.SENDING}, status=Status.BLOCKED, finished_at=now)

    def reschedule(self, instant):
        """Put this claimed message back until the recipient's next opening."""
        return self._move({Status.SENDING}, status=Status.SCHEDULED, send_at=instant)

    # Transitions by an operator

    def approve(self):
        """Let this message be sent when its time comes; once more changes nothing."""
        return self._move({Status.SCHEDULED, Status.QUEUED}, approved=True)

    def cancel(self, now):
        """Keep this message, which no sender holds yet, from ever being sent."""
        waiting = {Status.SCHEDULED, Status.QUEUED}
        return self._move(waiting, status=Status.CANCELLED, finished_at=now)

    def retry(self, now):
        """Have this failed or blocked message sent again, with all its retries."""
        return self._move(
            {Status.FAILED, Status.BLOCKED},
            status=Status.SCHEDULED,
            send_at=now,
            finished_at=None,
            attempts=0,
        )

    # Growing old: in batches, so that nobody else waits long

    @classmethod
    def purge(cls, before):
        """Delete some messages that were finished before an instant; how many."""
        old = cls._is_old(before)
        return cls.delete().where(old, cls.id.in_(cls._some(old))).execute()

    @classmethod
    def redact(cls, before):
        """Forget number and text of some messages that were finished before an instant."""
        old = cls._is_old(before) & cls.message.is_null(False)
        nothing = {"to": None, "message": None, "answer": None}
        return cls.update(nothing).where(old, cls.id.in_(cls._some(old))).execute()

    @classmethod
    def _is_old(cls, before):
        return _in(*FINISHED) & (cls.finished_at < before)

    @classmethod
    def _some(cls, condition):
        """The ids of a batch; who changes them asks again, for what is tried again meanwhile."""
        return cls.select(cls.id).where(condition).limit(1000)

    # Questions

    @classmethod
    def awaiting_approval(cls):
        """How many messages wait for somebody's yes."""
        return cls.select().where(_awaiting()).count()

    @classmethod
    def awaiting_carrier(cls):
        """How many messages may be sent now."""
        return cls.select().where(_sendable()).count()

    @classmethod
    def oldest_due(cls, now):
        """When the message that has waited longest to be sent was due; None where none waits."""
        due = cls.select(fn.MIN(cls.send_at)).where(_in(Status.SCHEDULED), cls.send_at <= now)
        sendable = cls.select(fn.MIN(cls.send_at)).where(_sendable())
        instants = [query.scalar() for query in (due, sendable)]
        return min(filter(None, instants), default=None)

    @classmethod
    def by_status(cls):
        """How many messages there are in each status; each count is served by an index."""
        waiting = {
            Status.SCHEDULED: [_in(Status.SCHEDULED)],
            Status.QUEUED: [_sendable(), _awaiting() & _in(Status.QUEUED)],
            Status.SENDING: [_in(Status.SENDING)],
        }
        return {
            status: sum(cls.select().where(condition).count() for condition in conditions)
            for status, conditions in waiting.items()
        } | cls.ended_since(EPOCH)

    @classmethod
    def ended_since(cls, instant):
        """How many messages were finished from an instant on, by status."""
        ended = (
            cls.select(cls.status, fn.COUNT(cls.id))
            .where(_in(*FINISHED), cls.finished_at >= instant)
            .group_by(cls.status)
        )
        return dict.fromkeys(FINISHED, 0) | dict(ended.tuples())

    @classmethod
    def listing(cls, status=None, awaiting_approval=False, visible_to=None):
        """Messages with their keys, the oldest first."""
        messages = cls.select(cls, ApiKey).join(ApiKey).order_by(cls.id)
        if status:
            messages = messages.where(cls.status == status)
        if awaiting_approval:
            messages = messages.where(_awaiting())
        if visible_to:
            visible = cls.key == visible_to
            if visible_to.group:
                visible |= (ApiKey.group == visible_to.group) & cls.available_to_group
            messages = messages.where(visible)
        return messages.iterator()

    @classmethod
    def find(cls, message_id):
        message = cls.select(cls, ApiKey).join(ApiKey).where(cls.id == message_id).first()
        if message is None:
            raise Refused("there is no such message")
        return message

    def state(self):
        """Where this message stands, in an operator's words."""
        if self.status == Status.SENDING:
            return "being sent right now"
        if self.finished_at:
            return f"{self.status} at {self.finished_at:%Y-%m-%d %H:%M:%S} UTC"
        return self.status if self.approved else f"{self.status}, awaiting approval"

    def _move(self, among, **changes):
        """Change this message where its status is among these, in one statement; whether it did.

        Out of `sending`, only the sender that claimed it may move it; what was redacted, nobody
        may send. Written out, because peewee needs half a millisecond to build this, and a
        scheduler does little else.
        """
        if "status" in changes:
            changes |= {"claimed_by": None, "claimed_at": None}
        names, fields, mark = list(changes), self._meta.fields, db.param
        values = [fields[name].db_value(changes[name]) for name in names]
        assignments = ", ".join(f"{name} = {mark}" for name in names)
        statuses = ", ".join(f"'{status}'" for status in sorted(among))
        sql = f"UPDATE message SET {assignments} WHERE id = {mark} AND status IN ({statuses})"
        values.append(fields["id"].db_value(self.id))
        if among == {Status.SENDING}:
            sql += f" AND claimed_by = {mark}"
            values.append(fields["claimed_by"].db_value(self.claimed_by))
        if changes.get("status") == Status.SCHEDULED:
            sql += ' AND "to" IS NOT NULL'
        return db.execute_sql(sql, values).rowcount == 1


# A new message has no value in these, and what is not written costs nothing
_LATER = {"claimed_by", "claimed_at", "finished_at", "last_error", "carrier_reference"}
_FIELDS = [field for field in Message._meta.sorted_fields if field.name not in _LATER]
_COLUMNS = [field.column_name for field in _FIELDS]
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_MARKS = "(" + ", ".join("?" * len(_COLUMNS)) + ")"

_store = Together(Message._store_all)


def _in(*statuses):
    """The condition on the status, written out so that partial indexes serve it."""
    return SQL("status IN ({})".format(", ".join(f"'{status}'" for status in statuses)))


def _among(ids):
    """The condition that a message is one of these, written out, and its parameters."""
    values = [Message.id.db_value(message_id) for message_id in ids]
    return f"id IN ({', '.join([db.param] * len(values))})", values


def _sendable():
    return _in(Status.QUEUED) & SQL("approved")


def _awaiting():
    return _in(Status.SCHEDULED, Status.QUEUED) & SQL("NOT approved")


for _name, _columns, _where in (
    ("message_due", [Message.send_at], _in(Status.SCHEDULED)),
    ("message_sendable", [Message.send_at], _sendable()),
    ("message_awaiting", [Message.send_at], _awaiting()),
    ("message_claimed", [Message.claimed_at], _in(Status.SENDING)),
    ("message_finished", [Message.status, Message.finished_at], _in(*FINISHED)),
    ("message_key", [Message.key, Message.id], None),
):
    Message.add_index(Message.index(*_columns, where=_where, name=_name))
Message.add_index(
    Message.index(
        Message.key,
        Message.idempotency_key,
        unique=True,
        where=SQL("idempotency_key IS NOT NULL"),
        name="message_idempotency",
    )
)

TABLES = (ApiKey, DoNotCall, Message)
