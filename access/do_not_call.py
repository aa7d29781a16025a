"""The Do Not Call list: the numbers that get no text, and everything that happened to them."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Self

from peewee import TextField, fn

from access.audit import Action, Audit
from database import InstantField, Refused, Table, db, in_pages
from database.clock import is_ahead

# As SQL: peewee takes five times as long to write thousands of rows as a database to insert them.
# {numbers} is a table of an array of numbers

LIST = """\
INSERT INTO do_not_call (number, added_at, source)
SELECT value, {param}, {param} FROM {numbers} WHERE true
ON CONFLICT (number) DO UPDATE SET source = excluded.source
WHERE do_not_call.source = 'reply' AND excluded.source IN ('operator', 'import')
RETURNING number, added_at
"""
"""Put numbers on the list; an entry of people replaces one made by a reply. Return what changed."""

NOTE = """\
INSERT INTO do_not_call_history (number, at, what, why, who, said_at)
SELECT value, {param}, {param}, {param}, {param}, {param} FROM {numbers}
"""
"""Add a row of the history for each number."""


def _execute(statement, *values, numbers):
    table = db.rows_of_array("numbers", "text")
    sql = statement.format(param=db.param, numbers=table)
    return db.execute_sql(sql, (*values, db.array(numbers)))


class DoNotCall(Table):
    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()
    source = TextField(null=True)  # operator, import, reply or carrier; null before that was kept

    @classmethod
    def lists(cls, number: str) -> bool:
        """Return whether a number is on the list."""
        return cls.select().where(cls.number == number).exists()

    @classmethod
    def listed(cls, numbers: Iterable[str]) -> set[str]:
        """Return the numbers that are on the list."""
        return {row.number for row in cls.select().where(cls.number.in_([*numbers]))}

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
        people add stays after a START, even if a reply listed it first. The numbers are sorted,
        so two calls at once cannot deadlock on Postgres.
        """
        added_at = cls.added_at.db_value(now)
        with db.atomic():
            changed = _execute(LIST, added_at, source, numbers=sorted(numbers)).fetchall()
            numbers = [number for number, _ in changed]
            _note(numbers, now, "joined", source, who, said_at)
            if source == "import" and numbers:  # the history has each of them
                Audit.note(Action.IMPORTED, now, count=len(numbers))
            elif source == "operator":
                Audit.note_each(Action.ADDED, now, Audit.number, numbers)
        return sum(since == added_at for _, since in changed)

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

        `why` is "operator" or "reply". A reply removes only what a reply has listed.
        """
        listed = cls.number.in_(list(numbers))
        if why == "reply":
            listed &= cls.source == "reply"
        with db.atomic():
            gone = [row.number for row in cls.delete().where(listed).returning(cls.number)]
            _note(gone, now, "left", why, who, said_at)
            if why == "operator":
                Audit.note_each(Action.REMOVED, now, Audit.number, gone)
        return len(gone)

    @classmethod
    def undo(cls, change: int, who: str, since: datetime, now: datetime) -> str:
        """Take back what a person did to a number since an instant: `change` of its history.

        Return the number. One that was removed is listed as it was before. Raise Refused if that
        was not the last thing that happened to the number, or if the recipient has replied.
        """
        with db.transaction():
            done = DoNotCallHistory.get_or_none(DoNotCallHistory.id == change)
            *earlier, last = DoNotCallHistory.of(done.number) if done else [None]
            theirs = last and (last.id, last.why, last.who) == (change, "operator", who)
            if not theirs or last.at <= since or is_ahead(last.at, now):
                raise Refused("Undo works for one minute, and only until something else happens.")
            if last.what == "left":
                cls.add([last.number], now, "operator", who)
                for before in earlier[-1:]:
                    as_before = cls.update(source=before.why, added_at=before.at)
                    as_before.where(cls.number == last.number).execute()
            else:
                cls.remove([last.number], now, "operator", who)
                # Looked at last: a STOP that comes from now on waits for this transaction
                if LastReply.of(last.number, since):
                    raise Refused("The recipient has replied meanwhile, so the number stays.")
        return last.number

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

    @classmethod
    def of(cls, number: str) -> list[Self]:
        """Return what happened to a number, the oldest first."""
        return list(cls.select().where(cls.number == number).order_by(cls.id))

    @classmethod
    def latest(cls, number: str) -> Self | None:
        """Return what happened to a number last."""
        return cls.select().where(cls.number == number).order_by(cls.id.desc()).first()


def _note(numbers, now, what, why, who, said_at):
    """Add a row of the history for each number, in one statement."""
    instant = DoNotCallHistory.at.db_value
    _execute(NOTE, instant(now), what, why, who, instant(said_at), numbers=numbers)


class LastReply(Table):
    """When each number last replied STOP or START, whether or not that changed the list."""

    number = TextField(primary_key=True)
    said_at = InstantField()  # by the carrier's clock if it told the time, otherwise the arrival

    @classmethod
    def of(cls, number: str, since: datetime) -> Self | None:
        """Return the last reply of a number if it came since an instant."""
        return cls.get_or_none(cls.number == number, cls.said_at >= since)

    @classmethod
    def note(cls, number: str, said_at: datetime | None, now: datetime) -> bool:
        """Note a reply; return False if a newer reply was already noted.

        Carriers tell the time without its fraction, so those of one second count as they come. On
        Postgres this locks the number, so its replies take effect one after the other.
        """
        reply = cls.insert(number=number, said_at=said_at or now)
        in_order = said_at is None
        if said_at:
            ends = said_at.replace(microsecond=0) + timedelta(seconds=1)
            in_order = (cls.said_at < ends) | is_ahead(cls.said_at, now)
        noted = reply.on_conflict(
            conflict_target=[cls.number], preserve=[cls.said_at], where=in_order
        )
        return bool(list(noted.returning(cls.number).execute()))

    @classmethod
    def forget(cls, number: str) -> None:
        """Forget what a number replied, unless the list's history keeps the number anyway.

        There, an older word that comes late must change nothing.
        """
        kept = DoNotCallHistory.select().where(DoNotCallHistory.number == number)
        cls.delete().where(cls.number == number, ~fn.EXISTS(kept)).execute()
