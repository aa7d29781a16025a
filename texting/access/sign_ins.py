"""Sessions at the desk, and links that begin one."""

import hashlib
import secrets
from datetime import datetime, timedelta

from itsdangerous import BadData, URLSafeSerializer
from peewee import ForeignKeyField, TextField

from texting.access.audit import Action, Actor, Audit
from texting.access.keys import MAY_SEND, ApiKey, digest_of
from texting.database import EPOCH, MILLISECOND, PAST, InstantField, Refused, Table, db, isoformat
from texting.database.clock import SKEW

MARK = 12  # characters of the key's digest in a link, which is void once the digest changes


class SignIn(Table):
    """A session at the desk. It ends at sign-out, after LASTS, or when the key changes.

    It opens nothing while its key is paused.
    """

    id = TextField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    digest = TextField()  # of the key; a rotation changes it
    began_at = InstantField(PAST, index=True)
    looks_for = TextField(null=True)  # the latest search, which no cookie may show

    LASTS = timedelta(hours=12)
    LINK_LASTS = timedelta(minutes=10)

    @classmethod
    def begin(cls, secret: str, now: datetime, before: str | None = None) -> str | None:
        """Sign in with a key's secret and return an id, or None if it is no valid key.

        End the session `before`, which the browser had. Raise Refused if the key is a
        program's. The old secret of a rotated key opens nothing.
        """
        key = cls._keys(now).where(ApiKey.digest == digest_of(secret)).first()
        if key is None:
            return None
        if key.role in MAY_SEND:
            raise Refused(f"This is a {key.role}'s key: it can send texts but not sign in.")
        return cls._begin(key, now, before)

    @classmethod
    def make_link(cls, key: ApiKey, secret_key: str, now: datetime) -> str:
        """Return the token of a link that signs a person in, once, within LINK_LASTS.

        Raise Refused if the key does not open the desk.
        """
        if key.role in MAY_SEND:
            raise Refused(f"{key.name!r} is a {key.role}'s key: it can send texts but not sign in")
        with db.transaction():
            if not cls._keys(now).where(ApiKey.id == key.id).exists():
                raise Refused(f"the key {key.name!r} is revoked, expired or paused")
            Audit.note(Action.LINKED_KEY, now, key=key.id, key_name=key.name)
        made = (now - EPOCH) // MILLISECOND
        return _signer(secret_key).dumps([key.id, key.digest[:MARK], made])

    @classmethod
    def begin_by_link(
        cls, token: str, secret_key: str, now: datetime, before: str | None = None
    ) -> str | None:
        """Sign in with a token of `make_link`; return None if it was used or is no longer valid.

        The audit tells which links were used, and whether the key has been paused since. The key is
        locked for this, so that one of several processes is first.
        """
        try:
            id, mark, made = _signer(secret_key).loads(token)
        except BadData:
            return None
        made_at = EPOCH + made * MILLISECOND
        if not now - cls.LINK_LASTS < made_at <= now + SKEW:
            return None
        with db.transaction():
            key = db.lock_rows(cls._keys(now).where(ApiKey.id == id)).first()
            used = (Audit.who_key == id) & (Audit.link_made_at == made_at)
            paused = (Audit.key == id) & (Audit.what == Action.PAUSED_KEY) & (Audit.at >= made_at)
            ended = Audit.select().where(Audit.at > made_at - cls.LINK_LASTS, used | paused)
            if not key or key.digest[:MARK] != mark or ended.exists():
                return None
            return cls._begin(key, now, before, made_at)

    @staticmethod
    def _keys(now):
        """Select the keys that may open the desk: not revoked, expired or paused."""
        return ApiKey.live(now).where(ApiKey.paused_at.is_null())

    @classmethod
    def _begin(cls, key, now, before, link_made_at=None):
        key.record_use(now)
        cls.delete().where(cls.began_at <= now - cls.LASTS).execute()
        with db.transaction():
            if before:
                cls.end(before, now)
            details = link_made_at and f"by the link of {isoformat(link_made_at)}"
            about = {"details": details, "link_made_at": link_made_at}
            Audit.note(Action.SIGNED_IN, now, Actor(key.name, key.id), **about)
            id = secrets.token_urlsafe()
            return cls.create(id=id, key=key, digest=key.digest, began_at=now).id

    @classmethod
    def find(cls, id: str, now: datetime) -> ApiKey | None:
        """Return the key of a session, or None if it has ended."""
        valid = (cls.digest == ApiKey.digest) & (cls.began_at > now - cls.LASTS)
        signed_in = cls._keys(now).join(cls, on=(cls.key == ApiKey.id))
        return signed_in.where(cls.id == id, valid).first()

    @classmethod
    def keep_search(cls, id: str, words: str) -> None:
        """Store a session's search in place of the one before; "" for none."""
        cls.update(looks_for=words or None).where(cls.id == id).execute()

    @classmethod
    def kept_search(cls, id: str) -> str:
        """Return a session's search; "" for none."""
        return cls.select(cls.looks_for).where(cls.id == id).scalar() or ""

    @classmethod
    def forget_searches(cls) -> None:
        """Delete all searches, which may contain numbers."""
        cls.update(looks_for=None).where(cls.looks_for.is_null(False)).execute()

    @classmethod
    def end(cls, id: str, now: datetime) -> None:
        """Sign out, and audit it if the session was still valid."""
        with db.transaction():
            person = cls.find(id, now)
            if cls.delete().where(cls.id == id).execute() and person:
                Audit.note(Action.SIGNED_OUT, now, Actor(person.name, person.id))


def _signer(secret_key):
    """Return a signer like that of the desk's cookies, with a salt so that no link is a cookie."""
    how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    return URLSafeSerializer(secret_key, salt="sign-in link", signer_kwargs=how)
