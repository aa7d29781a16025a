"""The state of each carrier, shared by all schedulers of a database: its pauses and troubles.

A carrier pauses where it says "too fast", refuses the account, or gives no answer of its own. After
a pause one text goes first, one over all schedulers; the others wait for its answer. Only this
text, the probe, ends the pause or doubles it: other sends may have started before their scheduler
learned of the pause.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from operator import itemgetter
from typing import Any, NamedTuple, Self
from uuid import UUID

from peewee import (
    SQL,
    BigIntegerField,
    BooleanField,
    FloatField,
    ForeignKeyField,
    IntegerField,
    TextField,
    Value,
    fn,
)

from texting.database import EPOCH, PAST, CarrierTextField, InstantField, Table, db
from texting.database.clock import SKEW
from texting.database.statements import statement
from texting.messages.heartbeat import Heartbeat

MICROSECOND = timedelta(microseconds=1)

MOST_UNANSWERED = 5
"""After this many texts in a row without an answer of its own, a carrier is down."""

NO_TROUBLE = {"trouble": None, "trouble_since": None, "is_down": False}
NO_TROUBLE |= {"by_texts": False, "serves": False}
"""The values of these columns while a carrier is in no trouble."""

LONG_PAUSE = timedelta(minutes=1)
"""During a longer pause, texts go through another carrier, if one may be used."""

HOUR = timedelta(hours=1)

LATELY = timedelta(seconds=15)
"""If no scheduler has run for longer, a carrier is unused, and incoming texts may be missed."""


class Permission(Enum):
    """Who may send now."""

    ALL = "everybody"
    PROBE = "one text, before all others"
    NONE = "nobody"


class Cause(NamedTuple):
    """Why a carrier pauses, by its answer to a text or to a question."""

    trouble: str | None = None  # None if it only says "too fast"
    is_down: bool = False
    asked_for: float | None = None  # seconds
    by_text: bool = False


class CarrierState(Table):
    name = TextField(primary_key=True)  # "" if there is no carrier
    last_pass_at = InstantField(PAST, null=True)
    heard_until = InstantField(PAST, null=True)  # how far its list of incoming texts was read
    trouble = CarrierTextField(null=True)  # why nothing is sent; null if it only says "too fast"
    # The trouble is an outage, not about the account
    is_down = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    trouble_since = InstantField(PAST, null=True)
    # It began with refused texts: only a text can end it
    by_texts = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    # check() has succeeded since the pause; only a text can prove the rest
    serves = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
    paused_at = InstantField(PAST, null=True)  # when the present pause began
    retry_at = InstantField(null=True)  # when it ends; null if all may send
    pause = FloatField(default=0)  # seconds
    # When the probe was claimed; identifies it to its scheduler
    probe_claimed_at = InstantField(PAST, null=True)
    probe_claimed_by = ForeignKeyField(  # the scheduler that claimed it
        Heartbeat, null=True, on_delete="SET NULL", column_name="probe_claimed_by", index=False
    )
    last_accepted_at = InstantField(PAST, null=True)  # when the carrier last accepted a probe
    # Texts in a row without an answer of its own
    unanswered = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    # When unmatched receipts were last logged
    unmatched_logged_at = InstantField(PAST, null=True)
    # What else of it was last logged, and when
    logged = CarrierTextField(null=True)
    logged_at = InstantField(PAST, null=True)
    rate_used_until = BigIntegerField(null=True)  # see Rate
    place = IntegerField(null=True)  # in the order of preference, when a scheduler last noted it
    stand_ins = TextField(null=True)  # the names of carriers that may take its place, in order

    FIRST_PAUSE, LONGEST_PAUSE = 5, 60  # seconds

    @classmethod
    def record_pass(cls, now: datetime, stand_ins: Mapping[str, Sequence[str]]) -> None:
        """Note that a pass begins.

        `stand_ins` has all carriers in the order of preference, each with those that may take its
        place. One statement notes them all, so that nobody sees only some.
        """
        rows = [
            {"name": name, "last_pass_at": now, "place": place, "stand_ins": " ".join(others)}
            for place, (name, others) in enumerate((stand_ins or {"": ()}).items())
        ]
        rows.sort(key=itemgetter("name"))  # or there could be a deadlock
        noted = cls.last_pass_at, cls.place, cls.stand_ins
        cls.insert_many(rows).on_conflict(conflict_target=[cls.name], preserve=noted).execute()

    @classmethod
    def record_heard(cls, name: str, until: datetime) -> None:
        """Note that the list of incoming texts was read up to an instant."""
        cls.update(heard_until=until).where(cls.name == name).execute()

    def was_paused(self, now: datetime) -> bool:
        """Return whether no scheduler has run lately."""
        return self.last_pass_at is not None and self.last_pass_at < now - LATELY

    @classmethod
    def prepare(cls, name: str) -> None:
        """Create the row of a carrier if it is missing."""
        cls.insert(name=name).on_conflict_ignore().execute()

    @classmethod
    def date_back(cls, now: datetime) -> int:
        """Move to now the pauses that began in the future, and the use of SEND_RATE."""
        instant = Value(cls.retry_at.db_value(now), converter=False)
        pause = {"paused_at": now, "retry_at": cls.retry_at - cls.paused_at + instant}
        paused = cls.retry_at.is_null(False) & (cls.paused_at > now + SKEW)
        cls.update(pause).where(paused).execute()
        used = cls.update(rate_used_until=(now - EPOCH) // MICROSECOND)
        used.where(cls.rate_used_until > (now + SKEW - EPOCH) // MICROSECOND).execute()
        return super().date_back(now)

    @classmethod
    def is_behind(cls, now: datetime) -> bool:
        """Return whether the clock was set back since a scheduler last noted that it runs.

        One whose clock is wrong notes that by the database's, but has dated pauses by its own.
        """
        ahead = (cls.last_pass_at > now + SKEW) | (cls.paused_at > now + SKEW)
        return cls.select().where(ahead).exists()

    @classmethod
    def of_latest_pass(cls) -> list[Self]:
        """Return the states of the carriers of the latest pass, in the order of preference."""
        latest = cls.select(fn.MAX(cls.last_pass_at))
        return list(cls.select().where(cls.last_pass_at == latest).order_by(cls.place))

    @classmethod
    def in_trouble(cls, names: Collection[str], now: datetime | None = None) -> set[str]:
        """Return which of these carriers are in trouble, so that their texts go through others.

        With `now`, leave out those whose pause is over: they are due to be tried.
        """
        if not names:
            return set()
        is_paused = cls.retry_at > now if now else cls.retry_at.is_null(False)
        paused = cls.select().where(cls.name.in_(names), is_paused)
        return {state.name for state in paused if in_trouble(state)}

    @classmethod
    def stand_in(cls, name: str) -> str | None:
        """Return the first carrier that takes the place of this one in trouble, if any."""
        names = (cls.get_by_id(name).stand_ins or "").split()
        trouble = cls.in_trouble(names)
        return next((each for each in names if each not in trouble), None)

    def permission(self, now: datetime, sender: UUID) -> Permission:
        """Return who may send now; PROBE if a pause is over, to whoever claims the probe.

        The others wait for its answer, or until its scheduler is dead. `sender` is sending no
        probe: if it has claimed one, the database failed at that moment.
        """
        if self.retry_at is None:
            return Permission.ALL
        is_free = self.probe_claimed_at is None or self.probe_claimed_by_id in (None, sender)
        return Permission.PROBE if is_free and self.retry_at <= now else Permission.NONE

    @classmethod
    def claim_probe(cls, name: str, sender: UUID, now: datetime) -> bool:
        """Claim the probe after a pause; return False if another scheduler was faster."""
        free = cls.probe_claimed_at.is_null() | cls.probe_claimed_by.is_null()
        free |= cls.probe_claimed_by == sender
        claim = cls.update(probe_claimed_at=now, probe_claimed_by=sender)
        return claim.where(cls.name == name, cls.retry_at <= now, free).execute() == 1

    @classmethod
    def use_rate(cls, name: str, before: int | None, after: int) -> bool:
        """Note how far SEND_RATE is used; return False if another scheduler was faster."""
        used = cls.update(rate_used_until=after)
        return used.where(cls.name == name, cls.rate_used_until == before).execute() == 1

    @classmethod
    def end_probe(cls, name: str, probe: datetime, serves: bool = False) -> None:
        """Let another text go first: there was none to send, or the answer to this one has come.

        `serves` notes that check() has succeeded in the meantime.
        """
        changes = {"probe_claimed_at": None} | ({"serves": True} if serves else {})
        cls.update(changes).where(cls.name == name, cls.probe_claimed_at == probe).execute()

    @classmethod
    def reset_unanswered(cls, name: str) -> None:
        """Count unanswered texts from zero again: the carrier has given an answer of its own."""
        cls.update(unanswered=0).where(cls.name == name, cls.unanswered > 0).execute()

    @classmethod
    def end_pause(
        cls,
        name: str,
        probe: datetime,
        only_outage: bool = False,
        accepted_at: datetime | None = None,
    ) -> bool:
        """End the pause before this probe; return whether that ended a trouble.

        Do nothing if another pause has begun, or this one was extended. With `only_outage`, end
        only an outage that began without a text. `accepted_at` is when the carrier took it.
        """
        nothing = {"retry_at": None, "pause": 0, "probe_claimed_at": None, "paused_at": None}
        nothing |= {"unanswered": 0} | NO_TROUBLE
        if accepted_at:
            nothing["last_accepted_at"] = accepted_at
        mine = (cls.name == name) & (cls.probe_claimed_at == probe)
        if only_outage:
            mine &= cls.is_down & ~cls.by_texts
        with db.atomic():
            had_trouble = cls.select().where(mine, cls.trouble.is_null(False)).exists()
            return bool(cls.update(nothing).where(mine).execute()) and had_trouble

    @classmethod
    def count_unanswered(cls, name: str) -> bool:
        """Count a text without an answer of the carrier's own; return whether it is down now."""
        cls.update(unanswered=cls.unanswered + 1).where(cls.name == name).execute()
        return cls.get_by_id(name).unanswered >= MOST_UNANSWERED

    @classmethod
    def may_report_unmatched(cls, name: str, now: datetime) -> bool:
        """Return True once an hour, over all schedulers, for the log line on unmatched receipts."""
        reported = cls.unmatched_logged_at
        due = reported.is_null() | (reported <= now - HOUR)
        return cls.update(unmatched_logged_at=now).where(cls.name == name, due).execute() == 1

    @classmethod
    def may_log(cls, name: str, line: str, now: datetime) -> bool:
        """Return True once an hour, over all schedulers, for the same log line about a carrier.

        Otherwise cron, which starts a scheduler each minute, would send mail as often.
        """
        is_other = cls.logged.is_null() | (cls.logged != cls.logged.db_value(line))
        due = is_other | (cls.logged_at <= now - HOUR)
        noted = cls.update(logged=line, logged_at=now).where(cls.name == name, due)
        return noted.execute() == 1

    @classmethod
    def begin_pause(
        cls, name: str, now: datetime, probe: datetime | None = None, **cause: Any
    ) -> bool:
        """Send nothing for a while because of a Cause: the answer to a text or to a question.

        Return whether this is news. The text may be the probe.
        """
        with db.atomic():
            state = db.lock_rows(cls.select().where(cls.name == name)).get()
            by_probe = probe is not None and probe == state.probe_claimed_at
            changes = changes_for_pause(state, by_probe, now, *Cause(**cause))
            cls.update(changes).where(cls.name == name).execute()
        before, after = state.__data__, state.__data__ | changes
        is_another = any(bool(before[each]) != bool(after[each]) for each in ("trouble", "is_down"))
        return state.retry_at is None or is_another


def state_of(name: str) -> CarrierState:
    """Return the state of a carrier."""
    sql, values = statement("carrier_state", name=name)
    return CarrierState.raw(sql, *values).get()


def known_to_others(names: Collection[str], now: datetime) -> set[str]:
    """Return which of these carriers, missing in CARRIER_URL, another scheduler is still using.

    This happens in a rolling restart.
    """
    if not names:
        return set()
    lately = CarrierState.last_pass_at > now - LATELY
    found = CarrierState.select(CarrierState.name).where(CarrierState.name.in_(names), lately)
    return {state.name for state in found}


def in_trouble(state: CarrierState) -> bool:
    """Return whether a carrier is down or pauses for long, so that texts go through others."""
    if state.trouble:
        return True
    pauses = bool(state.retry_at and state.paused_at)
    return pauses and state.retry_at - state.paused_at > LONG_PAUSE


def changes_for_pause(state: CarrierState, by_probe: bool, now: datetime, *cause: Any) -> dict:
    """Return what changes in a state when a pause begins or is extended; pure.

    Unless the carrier asked for a time, a pause after a probe is twice as long as the one before,
    up to a minute. A carrier that says "too fast" to a probe is no longer down, unless the probe is
    a question and the outage began with texts.
    """
    trouble, is_down, asked_for, by_text = cause
    is_back = by_probe and state.is_down and not trouble and (by_text or not state.by_texts)
    before = 0 if is_back else state.pause * (1 + by_probe)
    pause = max(min(before, state.LONGEST_PAUSE), state.FIRST_PAUSE if trouble else 1)
    until = now + timedelta(seconds=asked_for or pause)
    # A probe under way must not end a pause that has been extended since
    changes = {"pause": pause, "paused_at": now, "probe_claimed_at": None, "serves": False}
    changes["retry_at"] = max(until, state.retry_at or until)
    if trouble:
        since = state.trouble_since or now
        changes |= {"trouble": trouble, "trouble_since": since, "is_down": is_down}
        changes["by_texts"] = by_text or state.by_texts
    elif is_back:
        changes |= NO_TROUBLE
    return changes
