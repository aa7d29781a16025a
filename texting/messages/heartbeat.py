"""The schedulers that are alive: what one has in hand is a lease that lives as long as its row.

Attempts, questions and probes refer to it, and lose their owner together with it.
"""

import uuid
from datetime import datetime

from peewee import IntegerField, UUIDField

from texting.database import PAST, InstantField, Table
from texting.database.statements import run


class Heartbeat(Table):
    """A scheduler that is alive, or that died while it had texts."""

    sender = UUIDField(primary_key=True)
    beats = IntegerField(default=0)
    beat_at = InstantField(PAST)

    @classmethod
    def beat(cls, sender: uuid.UUID, now: datetime) -> bool:
        """Beat once; return False if the sender has been declared dead.

        Within a transaction, nobody can declare it dead before that ends.
        """
        return run("beat", sender=sender.hex, now=cls.beat_at.db_value(now)).rowcount == 1

    @classmethod
    def end(cls, sender: uuid.UUID, beats: int | None = None) -> bool:
        """Delete a sender that ends, or one that is dead if it has not beaten again."""
        this = cls.sender == sender
        if beats is not None:
            this &= cls.beats == beats
        return cls.delete().where(this).execute() == 1
