"""The Do Not Call list: the numbers that get no text, and everything that happened to them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Self

from peewee import SQL, Expression, Field, TextField, fn

from access.audit import Action, Audit
from access.rules import LAST
from database import PAST, InstantField, Table, db, in_pages

# As SQL: peewee takes five times as long to write thousands of rows as a database to insert them.
# {numbers} is a table of an array of numbers

LIST = """\
INSERT INTO do_not_call (number, added_at, source, opted_out_at)
SELECT value, {param}, {param}, {param} FROM {numbers} WHERE true
ON CONFLICT (number) DO UPDATE SET
    source = CASE WHEN excluded.opted_out_at IS NULL
        THEN excluded.source ELSE do_not_call.source END,
    opted_out_at = COALESCE(excluded.opted_out_at, do_not_call.opted_out_at, do_not_call.added_at)
WHERE (excluded.opted_out_at IS NULL) = (COALESCE(do_not_call.source, '') IN ('reply', 'carrier'))
    AND (excluded.opted_out_at IS NULL OR do_not_call.opted_out_at IS NULL)
RETURNING number, added_at, opted_out_at
"""
"""Put numbers on the list; merge what people enter with what recipients have said.

Return the rows that it changed.
"""

NOTE = """\
INSERT INTO do_not_call_history (number, at, what, why, who, said_at, opted_out_at)
SELECT value, {param}, {param}, {param}, {param}, {param}, {param} FROM {numbers}
"""
"""Add a row of the history for each number."""


def _execute(statement, *values, numbers):
    table = db.rows_of_array("numbers", "text")
    sql = statement.format(param=db.param, numbers=table)
    return db.execute_sql(sql, (*values, db.array(numbers)))


OPTED_OUT_BY = ("reply", "carrier")
"""The sources of numbers that opted out by themselves."""

# A version before migration 0038, which may run beside, writes the source alone
OPTED_OUT = SQL("(opted_out_at IS NOT NULL OR source IN ('reply', 'carrier'))")
"""The condition that a number on the list opted out by itself."""


class OnDoNotCallList(Exception):
    """A text is refused: its number is on the list, maybe because the recipient opted out."""


class DoNotCall(Table):
    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()
    # operator, import, reply or carrier; the first two replace the others. Null before this was
    # kept
    source = TextField(null=True)
    opted_out_at = InstantField(null=True)  # when the recipient did so, whoever else lists it

    @classmethod
    def lists(cls, number: str) -> bool:
        """Return whether a number is on the list."""
        return cls.select().where(cls.number == number).exists()

    @classmethod
    def listed(cls, numbers: Collection[str]) -> dict[str, bool]:
        """Return which numbers are on the list, each with whether it opted out by itself."""
        if not numbers:  # as in most claims of an idle sender
            return {}
        found = cls.select(cls.number, OPTED_OUT).where(cls.number.in_([*numbers]))
        return {number: bool(opted_out) for number, opted_out in found.tuples()}

    @classmethod
    def has_opted_out(cls, number: Field) -> Expression:
        """Return the condition that a number opted out by itself."""
        return fn.EXISTS(cls.select(SQL("1")).where(cls.number == number, OPTED_OUT))

    @classmethod
    def entry(cls, number: str) -> Self | None:
        """Return the entry of a number, or None if it is not on the list."""
        return cls.get_or_none(cls.number == number)

    @classmethod
    def size(cls) -> int:
        """Return how many numbers are on the list."""
        return cls.select().count()

    @classmethod
    def add(
        cls,
        numbers: Iterable[str],
        now: datetime,
        source: str,
        who: str | None = None,
        said_at: datetime | None = None,
    ) -> int:
        """Put numbers on the list; return how many were not on it yet.

        `who` is the person who did it, and `said_at` the carrier's time of a reply. A number that
        people add stays after a START, even if a reply listed it first; a recipient who opted out
        stays so, whoever else lists the number. The numbers are sorted, so two calls at once cannot
        deadlock on Postgres.
        """
        added_at = cls.added_at.db_value(now)
        opted_out_at = added_at if source in OPTED_OUT_BY else None
        with db.atomic():
            rows = _execute(LIST, added_at, source, opted_out_at, numbers=sorted(numbers))
            changed = rows.fetchall()
            new = {number for number, since, _ in changed if since == added_at}
            if source in OPTED_OUT_BY:  # a number that is listed keeps no second reason
                changed = [each for each in changed if each[0] in new]
            joined = {number: opted_out for number, _, opted_out in changed}
            _note(joined, now, "joined", source, who, said_at)
            if source == "import" and joined:  # the history has each of them
                Audit.note(Action.IMPORTED, now, count=len(joined))
            elif source == "operator":
                Audit.note_each(Action.ADDED, now, Audit.number, joined)
        return len(new)

    @classmethod
    def remove(
        cls,
        numbers: Iterable[str],
        now: datetime,
        why: str,
        who: str | None = None,
        said_at: datetime | None = None,
    ) -> int:
        """Take numbers off the list; return how many were on it.

        `why` is "operator" or "reply". A reply ends what the recipient or its carrier has said, but
        no entry by people.
        """
        listed = cls.number.in_(list(numbers))
        gone = cls.delete().where(listed)
        with db.atomic():
            if why == "reply":
                gone = gone.where(cls.source.in_(OPTED_OUT_BY))
            rows = gone.returning(cls.number, cls.opted_out_at)
            gone = {row.number: cls.opted_out_at.db_value(row.opted_out_at) for row in rows}
            if why == "reply":  # last: the deletion waits for people who list a number just now
                by_people = cls.source.is_null() | cls.source.not_in(OPTED_OUT_BY)
                cls.update(opted_out_at=None).where(listed, by_people).execute()
            _note(gone, now, "left", why, who, said_at)
            if why == "operator":
                Audit.note_each(Action.REMOVED, now, Audit.number, gone)
        return len(gone)

    @classmethod
    def entries(cls) -> Iterator[Self]:
        """Read the whole list by number, in pages: no query stays open between them."""
        rows = cls.select().order_by(cls.number)
        return in_pages(rows, None, lambda last: cls.number > last.number)


class DoNotCallHistory(Table):
    """Every change of the list; rows are only ever added."""

    number = TextField(index=True)
    at = InstantField()
    what = TextField()  # joined or left
    why = TextField(null=True)  # operator, import, reply or carrier; null before that was kept
    who = TextField(null=True)  # the name of a key, or "shell"; null for reply and carrier
    said_at = InstantField(null=True)  # the carrier's time of a reply, if it told one
    opted_out_at = InstantField(null=True)  # when the recipient had done so, as of this change

    @classmethod
    def of(cls, number: str) -> list[Self]:
        """Return what happened to a number, the oldest first."""
        return list(cls.select().where(cls.number == number).order_by(cls.id))

    @classmethod
    def why_at(cls, number: str, at: datetime) -> str | None:
        """Return why the list kept texts from a number at an instant; None if it is not known."""
        changes = cls.of(number)
        before = [each for each in changes if each.at <= at]
        if not before or before[-1].what == "left":
            return None
        last = before[-1]
        # Where people list a number, its opt-out has no row of its own
        later = *changes[len(before) :], DoNotCall.entry(number)
        known = [last.at if last.why in OPTED_OUT_BY else None, last.opted_out_at]
        known += [each.opted_out_at for each in later if each]
        if opted_out_at := next((each for each in known if each and each <= at), None):
            return f"the recipient opted out on {opted_out_at:%Y-%m-%d}"
        return f"the number has been on the Do Not Call list since {last.at:%Y-%m-%d}"


def _note(changed, now, what, why, who, said_at):
    """Add a row of the history for each number; `changed` says when its recipient opted out."""
    instant, alike = DoNotCallHistory.at.db_value, defaultdict(list)
    for number, opted_out_at in changed.items():
        alike[opted_out_at].append(number)
    for opted_out_at, numbers in alike.items():
        values = instant(now), what, why, who, instant(said_at), opted_out_at
        _execute(NOTE, *values, numbers=numbers)


class LastReply(Table):
    """When each number last said STOP or START, whether or not that changed the list.

    A STOP that a carrier reports counts, too.
    """

    number = TextField(primary_key=True)
    # By the carrier's clock if it told the time, otherwise the arrival
    said_at = InstantField(PAST)

    @classmethod
    def note(cls, number: str, said_at: datetime | None, now: datetime) -> bool:
        """Note a reply; return False if a newer reply was already noted.

        Carriers tell whole seconds, so replies of the same second count in the order of arrival.
        On Postgres this locks the number, so its replies take effect one after the other.
        """
        reply = cls.insert(number=number, said_at=said_at or now)
        in_order = said_at is None
        if said_at:
            ends = said_at.replace(microsecond=0) + timedelta(seconds=1)
            in_order = cls.said_at < ends
        noted = reply.on_conflict(
            conflict_target=[cls.number], preserve=[cls.said_at], where=in_order
        )
        return bool(list(noted.returning(cls.number).execute()))

    @classmethod
    def forget(cls, numbers: Collection[str], until: datetime = LAST) -> None:
        """Forget when numbers last replied, up to an instant, unless the list's history keeps them.

        If it is kept there, an older word that comes late must still change nothing.
        """
        kept = DoNotCallHistory.select().where(DoNotCallHistory.number == cls.number)
        old = cls.number.in_([*numbers]) & (cls.said_at <= until)
        cls.delete().where(old, ~fn.EXISTS(kept)).execute()
