"""The state of a carrier, shared by all schedulers: the latest pass, and whether it is in trouble.

A carrier in trouble refuses the account, so nothing is sent but one text after each pause.
"""

from datetime import datetime, timedelta
from typing import Self

from peewee import FloatField, TextField, fn

from database import CarrierTextField, InstantField, Table, on_postgres


class CarrierState(Table):
    name = TextField(primary_key=True)  # its scheme; "" where there is no carrier
    last_pass_at = InstantField(null=True)
    trouble = CarrierTextField(null=True)  # why it refuses the account
    trouble_since = InstantField(null=True)
    retry_at = InstantField(null=True)
    pause = FloatField(default=0)  # seconds

    FIRST_PAUSE, LONGEST_PAUSE = 5, 60  # seconds

    @classmethod
    def passed(cls, name: str, now: datetime) -> Self:
        """Note that a pass is made, and return the state."""
        cls.insert(name=name, last_pass_at=now).on_conflict(
            conflict_target=[cls.name], update={cls.last_pass_at: now}
        ).execute()
        return cls.get_by_id(name)

    @classmethod
    def latest(cls) -> Self | None:
        """Return the state of the carrier that the latest pass was made with, if there was one."""
        return cls.select().order_by(cls.last_pass_at.desc()).first()

    @classmethod
    def begin_trouble(cls, name: str, trouble: str, now: datetime) -> bool:
        """Stop sending by a carrier for a pause that grows; return whether it was fine before."""
        new = {
            cls.trouble: trouble,
            cls.trouble_since: now,
            cls.pause: cls.FIRST_PAUSE,
            cls.retry_at: now + timedelta(seconds=cls.FIRST_PAUSE),
        }
        if cls.update(new).where(cls.name == name, cls.trouble.is_null()).execute():
            return True
        longer = fn.MIN if not on_postgres() else fn.LEAST
        pause = longer(cls.pause * 2, cls.LONGEST_PAUSE)
        again = {
            cls.trouble: trouble,
            cls.pause: pause,
            cls.retry_at: cls.retry_at.db_value(now) + pause * 1000,
        }
        cls.update(again).where(cls.name == name, cls.retry_at <= now).execute()
        return False

    @classmethod
    def end_trouble(cls, name: str) -> bool:
        """Send by a carrier again; return whether there was trouble."""
        nothing = {"trouble": None, "trouble_since": None, "retry_at": None, "pause": 0}
        return bool(cls.update(nothing).where(cls.name == name, ~cls.trouble.is_null()).execute())
