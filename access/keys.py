"""Keys: who may send, and who may sign in to the desk and see what."""

import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self

from peewee import (
    SQL,
    BooleanField,
    IntegrityError,
    ModelSelect,
    TextField,
    Value,
    fn,
)

from access.audit import Action, Audit
from access.limits import KeyUse, Limit
from access.rules import NO_RULES, OWN, KeyRules
from database import InstantField, Refused, Table, db, isoformat
from database.clock import is_within

HOUR = timedelta(hours=1)


class Role(StrEnum):
    SENDER = "sender"  # calls the public operation
    TESTER = "tester"  # the same, but its texts go to the simulator
    APPROVER = "approver"  # signs in to the desk, and sees what its group may see
    OPERATOR = "operator"  # signs in to the desk, and sees everything


MAY_SEND = (Role.SENDER, Role.TESTER)


class Identity(NamedTuple):
    """What a request may know of the key that it was sent with; equal until the key is changed."""

    id: int
    name: str
    group: str | None
    role: str
    limits: str | None = None
    digest: str | None = None
    old_digest: str | None = None
    # Milliseconds, as they are stored
    old_expires_at: int | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    rules: KeyRules = NO_RULES

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Return the identity of a row of COLUMNS, as they are stored."""
        own, rules = row[: -len(OWN)], row[-len(OWN) :]
        return cls(*own, KeyRules(*rules[:-1], bool(rules[-1])))

    def admits(self, digest: str, at: int) -> bool:
        """Return whether a secret of this digest is valid at an instant, in milliseconds."""
        if self.revoked_at or (self.expires_at is not None and self.expires_at <= at):
            return False
        return digest == self.digest or (digest == self.old_digest and self.old_expires_at > at)


COLUMNS = (*Identity._fields[:-1], *OWN)
IDENTITY = ", ".join(f'"{name}"' for name in COLUMNS)

FIND = f"""\
SELECT {IDENTITY}, last_used_at FROM api_key WHERE digest = {{param}} OR old_digest = {{param}}
"""
"""Select the key of a digest, or of one that was its own before a rotation.

As SQL: for peewee to write it and to make a model of it would be half the cost of a request.
"""

HELD = f"SELECT {IDENTITY} FROM api_key WHERE id IN ({{ids}}) ORDER BY id {{lock}}"
"""Return what decides about a message of some keys when it is stored."""

RULES = f"SELECT id, {', '.join(OWN)} FROM api_key WHERE id IN ({{ids}})"
"""Return the rules of some keys. As SQL, since the sender asks between any two sends."""


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
    limits = TextField(null=True)  # "5/s,1000/d"; null: KEY_LIMITS
    # The rules of its own, see KeyRules
    hours = TextField(null=True)
    quiet_hours = TextField(null=True)
    check_dnc = TextField(null=True)
    expire_after = TextField(null=True)
    urgent = BooleanField(default=False, constraints=[SQL("DEFAULT false")])

    @staticmethod
    def digest_of(secret: str) -> str:
        """Return what is stored. SHA-256 is enough for a secret of 256 random bits."""
        return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def issue(
        cls,
        name: str,
        group: str | None,
        now: datetime,
        expires_at: datetime | None = None,
        role: Role = Role.SENDER,
        limits: tuple[Limit, ...] = (),
        rules: KeyRules = NO_RULES,
    ) -> str:
        """Store a new key and return its secret; raise Refused if the name is taken."""
        secret = cls._new_secret()
        values = {"name": name, "group": group, "role": role, "digest": cls.digest_of(secret)}
        values |= {"limits": _written(limits)} | rules._asdict()
        details = [f"role {role}", group and f"group {group}", _written(limits), _until(expires_at)]
        details.append(rules.differences(NO_RULES))
        try:
            with db.atomic():
                key = cls.create(**values, created_at=now, expires_at=expires_at)
                key._audit(Action.CREATED_KEY, now, ", ".join(filter(None, details)))
        except IntegrityError:
            raise Refused(f"a key named {name!r} exists already") from None
        return secret

    @classmethod
    def authenticate(cls, secret: str, now: datetime) -> Identity | None:
        """Return the identity of a secret, or None if it is unknown, expired or revoked."""
        digest = cls.digest_of(secret)
        found = db.execute_sql(FIND.format(param=db.param), (digest, digest)).fetchone()
        if not found:
            return None
        *row, used_at = found
        key = Identity.of(row)
        if not key.admits(digest, cls.expires_at.db_value(now)):
            return None
        cls.note_use(key.id, cls.last_used_at.python_value(used_at), now)
        return key

    @staticmethod
    def hold(ids: Collection[int]) -> dict[int, Identity]:
        """Return those of these keys that there are, by id.

        A change of one of them waits until the transaction ends.
        """
        marks = ", ".join([db.param] * len(ids))
        sql = HELD.format(ids=marks, lock=db.row_lock("FOR SHARE"))
        rows = db.execute_sql(sql, [*ids]).fetchall()
        return {key.id: key for key in map(Identity.of, rows)}

    def identity(self) -> Identity:
        """Return what a request may know of this key."""
        fields = ApiKey._meta.fields
        return Identity.of([fields[name].db_value(getattr(self, name)) for name in COLUMNS])

    @property
    def rules(self) -> KeyRules:
        """The rules that this key has of its own."""
        return KeyRules(*(getattr(self, name) for name in OWN))

    @classmethod
    def note_use(cls, id: int, last_used_at: datetime | None, now: datetime) -> None:
        """Store the hour in which a key is used, unless that was its last hour already."""
        if last_used_at is None or not is_within(last_used_at, HOUR, now):
            cls.update(last_used_at=_hour(now)).where(cls.id == id).execute()

    @classmethod
    def live(cls, now: datetime) -> ModelSelect:
        """Select the keys that are neither revoked nor expired."""
        unexpired = cls.expires_at.is_null() | (cls.expires_at > now)
        return cls.select().where(cls.revoked_at.is_null(), unexpired)

    @classmethod
    def testers(cls) -> ModelSelect:
        """Select the ids of the keys whose texts go to the simulator."""
        keys = cls.alias("api_key")
        return keys.select(keys.id).where(keys.role == Role.TESTER)

    @classmethod
    def in_group(cls, group: str | None) -> ModelSelect:
        """Select the keys of a group; none without a group."""
        # As a Value, so that None becomes "= NULL", which is never true
        return cls.select(cls.id).where(cls.group == Value(group))

    @classmethod
    def names_of_senders(cls) -> list[str]:
        """Return the names of the keys that send texts, revoked ones too, each name once."""
        names = cls.select(cls.name).where(cls.role.in_(MAY_SEND)).distinct().order_by(cls.name)
        return [name for (name,) in names.tuples()]

    @staticmethod
    def _new_secret():
        return "tms_" + secrets.token_urlsafe(32)  # a prefix that secret scanners can look for

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the live key with this name, else a revoked one; raise Refused without either."""
        latest = (cls.revoked_at.is_null().desc(), cls.id.desc())
        key = cls.select().where(cls.name == name).order_by(*latest).first()
        if key is None:
            raise Refused(f"there is no key named {name!r}")
        return key

    @classmethod
    def everyone(cls) -> list[Self]:
        """Return all keys by name, including the revoked ones."""
        return list(cls.select().order_by(cls.name, cls.id))

    def rotate(self, old_expires_at: datetime, now: datetime) -> str:
        """Give this key a new secret and return it; the old one stays valid until an instant."""
        secret = self._new_secret()
        changes = {"digest": self.digest_of(secret), "old_digest": self.digest}
        changes["old_expires_at"] = old_expires_at
        details = f"the old secret {_until(old_expires_at)}"
        unrotated = ApiKey.digest == self.digest
        if not self._change(Action.ROTATED_KEY, now, details, unrotated, **changes):
            raise Refused(f"the key {self.name!r} is revoked, or was rotated just now")
        return secret

    def extend(self, expires_at: datetime | None, now: datetime) -> None:
        """Make this key valid until an instant (None: for ever); raise Refused if it is revoked."""
        details = _until(expires_at) or "no end"
        if not self._change(Action.EXTENDED_KEY, now, details, expires_at=expires_at):
            raise Refused(f"the key {self.name!r} is revoked")

    def revoke(self, now: datetime) -> bool:
        """Refuse this key from now on; return False if it was refused before."""
        done = self._change(Action.REVOKED_KEY, now, None, revoked_at=now)
        KeyUse.delete().where(KeyUse.key_id == self.id).execute()
        return done

    def limit(self, limits: tuple[Limit, ...], now: datetime) -> None:
        """Set the limits of this key; raise Refused if it is revoked.

        Requests under way go by them as well when this returns: see `hold`.
        """
        written = _written(limits)
        if not self._change(Action.LIMITED_KEY, now, written or "KEY_LIMITS", limits=written):
            raise Refused(f"the key {self.name!r} is revoked")

    @classmethod
    def rules_of(cls, ids: Collection[int]) -> dict[int, KeyRules]:
        """Return the rules of keys, by their ids, as they are now."""
        if not ids:
            return {}
        sql = RULES.format(ids=", ".join([db.param] * len(ids)))
        found = db.execute_sql(sql, [*ids]).fetchall()
        return {id: KeyRules(*own[:-1], bool(own[-1])) for id, *own in found}

    @classmethod
    def checking(cls, how: str, setting: str) -> ModelSelect:
        """Select the ids of keys whose rule of the Do Not Call list is this one of CHECKS.

        The `setting` holds for keys without a rule of their own.
        """
        keys = cls.alias("api_key")
        return keys.select(keys.id).where(fn.COALESCE(keys.check_dnc, setting) == how)

    def rule(self, changes: dict, now: datetime, check: Callable[[KeyRules], None]) -> None:
        """Set some rules of this key; raise Refused if it is revoked, or as `check` of them does.

        They are those of this moment, whoever sets others of them at the same time.
        """
        with db.transaction():
            this = ApiKey.select().where(ApiKey.id == self.id)
            before = db.lock_rows(this).get().rules
            after = before._replace(**changes)
            check(after)
            details = after.differences(before)
            if not self._change(Action.RULED_KEY, now, details or "no change", **changes):
                raise Refused(f"the key {self.name!r} is revoked")

    @classmethod
    def names(cls, ids: Collection[int]) -> dict[int, str]:
        """Return the names of keys by their ids."""
        return dict(cls.select(cls.id, cls.name).where(cls.id.in_([*ids])).tuples())

    @classmethod
    def ids_of(cls, names: Collection[str]) -> dict[int, str]:
        """Return the names of all keys that have one of these, by their ids, revoked ones too."""
        return dict(cls.select(cls.id, cls.name).where(cls.name.in_([*names])).tuples())

    @classmethod
    def names_used_again(cls) -> set[str]:
        """Return the names that more than one key has had."""
        again = cls.select(cls.name).group_by(cls.name).having(fn.COUNT(cls.id) > 1)
        return {name for (name,) in again.tuples()}

    def _change(self, action, now, details, *conditions, **changes):
        """Change this key unless it is revoked; return whether it was changed."""
        live = (ApiKey.id == self.id) & ApiKey.revoked_at.is_null()
        with db.transaction():
            done = ApiKey.update(changes).where(live, *conditions).execute() == 1
            if done:
                self._audit(action, now, details)
        return done

    def _audit(self, action, now, details):
        Audit.note(action, now, key=self.id, key_name=self.name, details=details)


class RecentKeys:
    """The keys that requests of this process have sent texts with, so that few are read again.

    They may have changed since. So whoever stores a message by one compares it with `hold`, and
    whoever refuses a request authenticates it first.
    """

    MOST = 1000

    def __init__(self):
        self._identities = {}  # by digest, each with the hour in which its use was noted

    def authenticate(self, secret: str, now: datetime) -> Identity | None:
        """Return the identity of a secret as it is now, or None if there is no valid one."""
        key = ApiKey.authenticate(secret, now)
        if key and key.role in MAY_SEND:
            if len(self._identities) >= self.MOST:
                self._identities.clear()
            self._identities[ApiKey.digest_of(secret)] = key, _hour(now)
        return key

    def recall(self, secret: str, now: datetime) -> Identity | None:
        """Return the identity of a secret as it was lately; authenticate one that is not known."""
        digest = ApiKey.digest_of(secret)
        key, hour = self._identities.get(digest, (None, None))
        if hour == _hour(now) and key.admits(digest, ApiKey.expires_at.db_value(now)):
            return key
        return self.authenticate(secret, now)


def _hour(at):
    return at.replace(minute=0, second=0, microsecond=0)


def _written(limits):
    return ",".join(map(str, limits)) or None


def _until(instant):
    return instant and f"until {isoformat(instant)}"


_live = SQL("revoked_at IS NULL")
ApiKey.add_index(ApiKey.index(ApiKey.name, unique=True, where=_live, name="api_key_live_name"))
ApiKey.add_index(ApiKey.index(ApiKey.id, where=SQL("urgent"), name="api_key_urgent"))
