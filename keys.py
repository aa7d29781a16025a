"""Keys: who may send, and who may sign in to the desk and see what."""

import hashlib
import secrets
import time
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

from peewee import SQL, ForeignKeyField, IntegrityError, ModelSelect, TextField

from database import EPOCH, InstantField, Refused, Table, db

HOUR = timedelta(hours=1)

LEASE = 0.5  # seconds
"""How long a process takes a key as it read it: to ask each time would be a tenth of a request.

A change to a key waits so long, so that no process goes by the old one afterwards; only that of
`rotate` is its caller's, so that the new secret is printed before.
"""
_leases = {}  # by database and digest of the secret: the identity, and until when it is good


def wait_for_leases() -> None:
    """Wait until every process has read the keys anew."""
    time.sleep(LEASE)


class Role(StrEnum):
    SENDER = "sender"  # calls the public operation
    APPROVER = "approver"  # signs in to the desk, and sees what its group may see
    OPERATOR = "operator"  # signs in to the desk, and sees everything


class Identity(NamedTuple):
    """What a request may know of the key that it was sent with."""

    id: int
    name: str
    group: str | None
    role: str


class ApiKey(Table):
    name = TextField()  # unique among those that are not revoked
    group = TextField(null=True)
    role = TextField(default=Role.SENDER, constraints=[SQL("DEFAULT 'sender'")])
    digest = TextField(unique=True)
    created_at = InstantField()
    revoked_at = InstantField(null=True)
    expires_at = InstantField(null=True)
    last_used_at = InstantField(null=True)  # to the hour
    old_digest = TextField(null=True, index=True)  # of the secret before the rotation
    old_expires_at = InstantField(null=True)

    @staticmethod
    def digest_of(secret: str) -> str:
        """Return what is stored: SHA-256 is enough for a secret of 256 random bits."""
        return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def issue(
        cls,
        name: str,
        group: str | None,
        now: datetime,
        expires_at: datetime | None = None,
        role: Role = Role.SENDER,
    ) -> str:
        """Store a new key and return the secret, which is not; Refused where the name is taken."""
        secret = cls._new_secret()
        try:
            cls.create(
                name=name,
                group=group,
                role=role,
                digest=cls.digest_of(secret),
                created_at=now,
                expires_at=expires_at,
            )
        except IntegrityError:
            raise Refused(f"a key named {name!r} exists already") from None
        return secret

    @classmethod
    def authenticate(cls, secret: str, now: datetime) -> Identity | None:
        """Return the identity of a secret, or None where it is unknown, expired or revoked.

        The database is asked no more than once a LEASE.
        """
        digest = cls.digest_of(secret)
        known, expires_at, lease_ends = _leases.get((db.obj, digest), (None, EPOCH, 0))
        asked = time.monotonic()
        if asked < lease_ends and (expires_at is None or now < expires_at):
            return known
        is_old = (cls.old_digest == digest) & (cls.old_expires_at > now)
        key = cls.live(now).where((cls.digest == digest) | is_old).first()
        if key is None:
            return None
        key.note_use(now)
        ends = (key.expires_at, None if key.digest == digest else key.old_expires_at)
        known = key.identity()
        _leases[db.obj, digest] = known, min(filter(None, ends), default=None), asked + LEASE
        return known

    def identity(self) -> Identity:
        """Return what a request may know of this key."""
        return Identity(self.id, self.name, self.group, self.role)

    def note_use(self, now: datetime) -> None:
        """Keep the hour in which this key was last used."""
        if self.last_used_at is None or now - self.last_used_at >= HOUR:
            hour = now.replace(minute=0, second=0, microsecond=0)
            ApiKey.update(last_used_at=hour).where(ApiKey.id == self.id).execute()

    @classmethod
    def live(cls, now: datetime) -> ModelSelect:
        """Select the keys that are neither revoked nor expired."""
        unexpired = cls.expires_at.is_null() | (cls.expires_at > now)
        return cls.select().where(cls.revoked_at.is_null(), unexpired)

    @staticmethod
    def _new_secret():
        return "tms_" + secrets.token_urlsafe(32)  # a prefix that secret scanners can look for

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the key of this name, the live one before those revoked; Refused if none is."""
        latest = (cls.revoked_at.is_null().desc(), cls.id.desc())
        key = cls.select().where(cls.name == name).order_by(*latest).first()
        if key is None:
            raise Refused(f"there is no key named {name!r}")
        return key

    @classmethod
    def everyone(cls) -> list[Self]:
        """Return all keys, also the revoked ones, by name."""
        return list(cls.select().order_by(cls.name, cls.id))

    def rotate(self, old_expires_at: datetime) -> str:
        """Give this key a new secret and return it; the old one is good until an instant.

        The caller prints it, then calls `wait_for_leases`.
        """
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
        return secret

    def extend(self, expires_at: datetime | None) -> None:
        """Let this key be good until an instant, None for ever; Refused where it is revoked."""
        live = (ApiKey.id == self.id) & ApiKey.revoked_at.is_null()
        if not ApiKey.update(expires_at=expires_at).where(live).execute():
            raise Refused(f"the key {self.name!r} is revoked")
        wait_for_leases()

    def revoke(self, now: datetime) -> bool:
        """Refuse this key in every process, before this returns; False where it was revoked."""
        live = (ApiKey.id == self.id) & ApiKey.revoked_at.is_null()
        done = ApiKey.update(revoked_at=now).where(live).execute() == 1
        wait_for_leases()
        return done


class SignIn(Table):
    """A person at the desk: until the sign-out, for LASTS, and while the key is what it was."""

    id = TextField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    digest = TextField()  # the key's: one that is rotated has another
    began_at = InstantField(index=True)

    LASTS = timedelta(hours=12)

    @classmethod
    def begin(cls, secret: str, now: datetime) -> str | None:
        """Sign in by a key's secret and return an id; None where it opens no desk.

        The desk has no overlap: a secret from before a rotation opens nothing.
        """
        digest = ApiKey.digest_of(secret)
        people = (ApiKey.digest == digest) & ApiKey.role.in_([Role.APPROVER, Role.OPERATOR])
        key = ApiKey.live(now).where(people).first()
        if key is None:
            return None
        key.note_use(now)
        cls.delete().where(cls.began_at <= now - cls.LASTS).execute()
        return cls.create(id=secrets.token_urlsafe(), key=key, digest=digest, began_at=now).id

    @classmethod
    def find(cls, id: str, now: datetime) -> Identity | None:
        """Return the key of a session at the desk, or None where it is good no longer."""
        signed_in = (
            (cls.id == id) & (cls.digest == ApiKey.digest) & (cls.began_at > now - cls.LASTS)
        )
        key = ApiKey.live(now).join(cls, on=(cls.key == ApiKey.id)).where(signed_in).first()
        return key and key.identity()

    @classmethod
    def end(cls, id: str) -> None:
        """Sign out."""
        cls.delete().where(cls.id == id).execute()


ApiKey.add_index(
    ApiKey.index(
        ApiKey.name, unique=True, where=SQL("revoked_at IS NULL"), name="api_key_live_name"
    )
)
