"""Keys: who may send, who may sign in to the desk, and what they see there."""

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from time import monotonic
from typing import Self

from peewee import SQL, BooleanField, IntegrityError, ModelSelect, TextField, Value, fn

from texting.access.audit import Action, Audit
from texting.access.limits import Limit, parse, read_recipient_limit
from texting.access.rules import NO_RULES, NONE, KeyRules
from texting.database import InstantField, Refused, Table, db, isoformat


class Role(StrEnum):
    SENDER = "sender"  # calls the public operation
    TESTER = "tester"  # the same, but its texts go to the simulator
    APPROVER = "approver"  # signs in to the desk, and sees what its group may see
    OPERATOR = "operator"  # signs in to the desk, and sees everything


MAY_SEND = (Role.SENDER, Role.TESTER)


class KeyRevoked(Exception):
    """The key has been revoked since the request was authenticated."""


class KeyPaused(Exception):
    """The key has been paused since the request was authenticated."""


FIND = "SELECT * FROM api_key WHERE digest = {param} OR old_digest = {param}"
"""In SQL: with many keys, peewee would take a quarter of a create to write it."""


class ApiKey(Table):
    name = TextField()  # unique among the keys that are not revoked
    group = TextField(null=True)
    role = TextField(default=Role.SENDER, constraints=[SQL("DEFAULT 'sender'")])
    digest = TextField(unique=True)
    created_at = InstantField()
    revoked_at = InstantField(null=True)
    expires_at = InstantField(null=True)
    last_used_at = InstantField(null=True)  # to the hour
    old_digest = TextField(null=True, index=True)  # of the secret before the rotation
    old_expires_at = InstantField(null=True)
    limits = TextField(null=True)  # "5/s,20000p/mo"; null: KEY_LIMITS
    paused_at = InstantField(null=True)  # its requests are refused, and its texts wait
    # Its own rules, see KeyRules
    hours = TextField(null=True)
    quiet_hours = TextField(null=True)
    check_dnc = TextField(null=True)
    expire_after = TextField(null=True)
    urgent = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    countries = TextField(null=True)
    recipient_limit = TextField(null=True)

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
        secret = _new_secret()
        values = {"name": name, "group": group, "role": role, "digest": digest_of(secret)}
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
    def authenticate(cls, secret: str, now: datetime) -> Self | None:
        """Return a secret's key, or None if it is unknown, expired or revoked; note its use.

        It may be up to a second stale.
        """
        digest = digest_of(secret)
        key = _find(digest, int(monotonic()))
        if key is None or key.revoked_at or (key.expires_at and key.expires_at <= now):
            return None
        if digest != key.digest and key.old_expires_at <= now:
            return None
        key.record_use(now)
        return key

    def record_use(self, now: datetime) -> None:
        """Record, to the hour, that this key was used."""
        hour = now.replace(minute=0, second=0, microsecond=0)
        if self.last_used_at != hour:
            ApiKey.update(last_used_at=hour).where(ApiKey.id == self.id).execute()
            self.last_used_at = hour

    @property
    def rules(self) -> KeyRules:
        """This key's own rules."""
        return KeyRules(*(getattr(self, name) for name in KeyRules._fields))

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
    def paused(cls) -> ModelSelect:
        """Select the ids of the keys whose texts wait until somebody resumes them."""
        keys = cls.alias("api_key")
        return keys.select(keys.id).where(SQL("paused_at IS NOT NULL"))

    @classmethod
    def in_group(cls, group: str | None) -> ModelSelect:
        """Select the keys of a group; none without a group."""
        # A Value, so that None becomes "= NULL", which is never true
        return cls.select(cls.id).where(cls.group == Value(group))

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the live key of this name, or else a revoked one; raise Refused for neither."""
        latest = (cls.revoked_at.is_null().desc(), cls.id.desc())
        key = cls.select().where(cls.name == name).order_by(*latest).first()
        if key is None:
            raise Refused(f"there is no key named {name!r}")
        return key

    def rotate(self, old_expires_at: datetime, now: datetime) -> str:
        """Give this key a new secret and return it; the old one stays valid until an instant.

        Raise Refused if the secret before that is still valid, since it would end at once though
        programs may use it; but not if the old one is to end at once, too.
        """
        secret = _new_secret()
        changes = {"digest": digest_of(secret), "old_digest": self.digest}
        changes["old_expires_at"] = old_expires_at
        details = f"the old secret {_until(old_expires_at)}"
        unrotated = ApiKey.digest == self.digest
        if old_expires_at > now and self.old_expires_at and self.old_expires_at > now:
            raise Refused(
                f"the key {self.name!r} was rotated before, and its old secret is valid "
                f"{_until(self.old_expires_at)}; --overlap 0 ends all its secrets at once"
            )
        if not self._change(Action.ROTATED_KEY, now, details, unrotated, **changes):
            raise Refused(f"the key {self.name!r} is revoked, or was rotated just now")
        return secret

    def extend(self, expires_at: datetime | None, now: datetime) -> None:
        """Make this key valid until an instant (None: for ever); raise Refused if it is revoked."""
        details = _until(expires_at) or "no end"
        if not self._change(Action.EXTENDED_KEY, now, details, expires_at=expires_at):
            raise Refused(f"the key {self.name!r} is revoked")

    def revoke(self, now: datetime) -> bool:
        """Refuse this key from now on; return False if it has been revoked, paused or resumed."""
        as_read = ApiKey.paused_at.is_null(self.paused_at is None)
        return self._change(Action.REVOKED_KEY, now, None, as_read, revoked_at=now)

    def pause(self, now: datetime) -> bool:
        """Refuse this key's requests, and let its texts wait; return False if it was paused before.

        Raise Refused if it is revoked.
        """
        return self._pause(Action.PAUSED_KEY, now, now)

    def resume(self, now: datetime) -> bool:
        """End the pause of this key; return False if it was not paused.

        Raise Refused if it is revoked.
        """
        return self._pause(Action.RESUMED_KEY, now, None)

    def _pause(self, action, now, paused_at):
        if self.revoked_at:
            raise Refused(f"the key {self.name!r} is revoked")
        before = ApiKey.paused_at.is_null(paused_at is not None)
        return self._change(action, now, None, before, paused_at=paused_at)

    def limit(self, limits: tuple[Limit, ...], now: datetime) -> None:
        """Set this key's limits, from the next message on; raise Refused if it is revoked."""
        written = _written(limits)
        if not self._change(Action.LIMITED_KEY, now, written or "KEY_LIMITS", limits=written):
            raise Refused(f"the key {self.name!r} is revoked")

    def limits_or(self, defaults: tuple[Limit, ...]) -> tuple[Limit, ...]:
        """Return the limits of this key, or the defaults if it has none of its own."""
        return parse(self.limits) if self.limits else defaults

    def recipient_limit_or(self, default: Limit | None) -> Limit | None:
        """Return the limit of this key's recipients: its own, if it has one, or the default."""
        own = self.recipient_limit
        if own is None:
            return default
        return None if own == NONE else read_recipient_limit(own)

    @classmethod
    def counted_apart(cls) -> ModelSelect:
        """Select the ids of the keys whose texts do not count for RECIPIENT_LIMIT."""
        keys = cls.alias("api_key")
        has_own = keys.recipient_limit.is_null(False)
        return keys.select(keys.id).where(has_own | (keys.role == Role.TESTER))

    @property
    def is_counted_apart(self) -> bool:
        """Whether this key is one of `counted_apart`."""
        return self.recipient_limit is not None or self.role == Role.TESTER

    @classmethod
    def checking(cls, how: str, setting: str) -> ModelSelect:
        """Select the ids of keys whose Do Not Call rule is `how`, one of CHECKS.

        The `setting` is for keys without a rule of their own.
        """
        keys = cls.alias("api_key")
        return keys.select(keys.id).where(fn.COALESCE(keys.check_dnc, setting) == how)

    def rule(self, changes: dict, now: datetime) -> None:
        """Set some rules of this key; raise Refused if it is revoked."""
        details = self.rules._replace(**changes).differences(self.rules)
        if not self._change(Action.RULED_KEY, now, details, **changes):
            raise Refused(f"the key {self.name!r} is revoked")

    def _change(self, action, now, details, *conditions, **changes):
        """Change this key; return False if it is revoked, or does not meet the conditions.

        Add no row to the audit if it has these values already.
        """
        live = (ApiKey.id == self.id) & ApiKey.revoked_at.is_null()
        with db.transaction():
            before = ApiKey.get_by_id(self.id)  # unlocked, so as not to wait for requests under way
            done = ApiKey.update(changes).where(live, *conditions).execute() == 1
            if done and any(getattr(before, name) != value for name, value in changes.items()):
                self._audit(action, now, details)
        return done

    def _audit(self, action, now, details):
        Audit.note(action, now, key=self.id, key_name=self.name, details=details)


def digest_of(secret: str) -> str:
    """Return what is stored of a secret. SHA-256 is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def names_of_senders() -> list[str]:
    """Return the names of the keys that send texts, including revoked ones, each once."""
    senders = ApiKey.select(ApiKey.name).where(ApiKey.role.in_(MAY_SEND)).distinct()
    return [key.name for key in senders.order_by(ApiKey.name)]


def senders() -> list[ApiKey]:
    """Return the keys that send texts and are not revoked, by name."""
    live = ApiKey.select().where(ApiKey.role.in_(MAY_SEND), ApiKey.revoked_at.is_null())
    return list(live.order_by(ApiKey.name))


def all_keys() -> list[ApiKey]:
    """Return all keys by name, including the revoked ones."""
    return list(ApiKey.select().order_by(ApiKey.name, ApiKey.id))


def rules_of(ids: Collection[int]) -> dict[int, KeyRules]:
    """Return the present rules of keys, by key id."""
    if not ids:
        return {}
    columns = (getattr(ApiKey, name) for name in KeyRules._fields)
    found = ApiKey.select(ApiKey.id, *columns).where(ApiKey.id.in_([*ids])).tuples()
    return {id: KeyRules(*own) for id, *own in found}


def names_of(ids: Collection[int]) -> dict[int, str]:
    """Return the names of keys by their ids."""
    return dict(ApiKey.select(ApiKey.id, ApiKey.name).where(ApiKey.id.in_([*ids])).tuples())


def ids_of(names: Collection[str]) -> dict[int, str]:
    """Return the ids of all keys with these names, including revoked ones, each with its name."""
    return dict(ApiKey.select(ApiKey.id, ApiKey.name).where(ApiKey.name.in_([*names])).tuples())


@lru_cache(1000)
def _find(digest, second):
    """Return the key whose present digest, or the one before a rotation, is this.

    It is read again in each second of the monotonic clock, since others may change it.
    """
    return next(iter(ApiKey.raw(FIND.format(param=db.param), digest, digest)), None)


def _new_secret():
    return "tms_" + secrets.token_urlsafe(32)  # a prefix that secret scanners can look for


def _written(limits):
    return ",".join(map(str, limits)) or None


def _until(instant):
    return instant and f"until {isoformat(instant)}"


_live = SQL("revoked_at IS NULL")
ApiKey.add_index(ApiKey.index(ApiKey.name, unique=True, where=_live, name="api_key_live_name"))
ApiKey.add_index(ApiKey.index(ApiKey.id, where=SQL("urgent"), name="api_key_urgent"))
_paused = SQL("paused_at IS NOT NULL")
ApiKey.add_index(ApiKey.index(ApiKey.id, where=_paused, name="api_key_paused"))
