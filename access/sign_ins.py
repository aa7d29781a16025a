"""Sessions at the desk."""

import secrets
from datetime import datetime, timedelta

from peewee import ForeignKeyField, TextField

from access.audit import Action, Actor, Audit
from access.keys import MAY_SEND, ApiKey
from database import InstantField, Refused, Table, db


class SignIn(Table):
    """A session at the desk. It ends at the sign-out, after LASTS, or when the key changes."""

    id = TextField(primary_key=True)
    key = ForeignKeyField(ApiKey, index=False)
    digest = TextField()  # of the key; a rotation changes it
    began_at = InstantField(index=True)

    LASTS = timedelta(hours=12)

    @classmethod
    def begin(cls, secret: str, now: datetime, before: str | None = None) -> str | None:
        """Sign in with a key's secret and return an id, or None if it is no valid key.

        End the session `before`, which the browser forgets. Raise Refused if the key is a
        program's. The old secret of a rotated key opens nothing.
        """
        digest = ApiKey.digest_of(secret)
        key = ApiKey.live(now).where(ApiKey.digest == digest).first()
        if key is None:
            return None
        if key.role in MAY_SEND:
            raise Refused(f"This is a {key.role}'s key: it can send texts but not sign in.")
        key.note_use(now)
        cls.delete().where(cls.began_at <= now - cls.LASTS).execute()
        with db.transaction():
            if before:
                cls.end(before, now)
            Audit.note(Action.SIGNED_IN, now, Actor(key.name, key.id))
            return cls.create(id=secrets.token_urlsafe(), key=key, digest=digest, began_at=now).id

    @classmethod
    def find(cls, id: str, now: datetime) -> ApiKey | None:
        """Return the key of a session, or None if it has ended."""
        cls.count_as_now(cls.began_at, now)
        valid = (cls.digest == ApiKey.digest) & (cls.began_at > now - cls.LASTS)
        signed_in = ApiKey.live(now).join(cls, on=(cls.key == ApiKey.id))
        return signed_in.where(cls.id == id, valid).first()

    @classmethod
    def end(cls, id: str, now: datetime) -> None:
        """Sign out, which the audit records if the session was still valid."""
        with db.transaction():
            person = cls.find(id, now)
            if cls.delete().where(cls.id == id).execute() and person:
                Audit.note(Action.SIGNED_OUT, now, Actor(person.name, person.id))
