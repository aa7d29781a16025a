"""The Do Not Call list: the numbers that get no texts, and everything that happened to them.

These are two lists: of recipients who opted out, whoever noted that, and of our own entries.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import ClassVar, Self

from peewee import SQL, Expression, Field, TextField, fn

from texting.access.audit import Action, Audit
from texting.access.keys import ApiKey
from texting.database import LAST, PAST, InstantField, Table, db, in_pages
from texting.database.clock import SKEW
from texting.database.statements import array, run

# In SQL: peewee takes five times as long to write thousands of rows as a database to insert them.
# {numbers} is a table of an array of numbers

JOIN = """\
INSERT INTO {table} (number, added_at, source)
SELECT value, {param}, {param} FROM {numbers} WHERE true
ON CONFLICT (number) DO NOTHING
RETURNING number
"""
"""Put numbers on a list; return those that were not on it."""

NOTE = """\
INSERT INTO do_not_call_history (number, kind, at, what, why, who, said_at)
SELECT value, {param}, {param}, {param}, {param}, {param}, {param} FROM {numbers}
"""
"""Add a row of the history for each number."""

SAID = """\
INSERT INTO last_reply (number, said_at)
SELECT value, {param} FROM {numbers} WHERE true
ON CONFLICT (number) DO UPDATE SET said_at = excluded.said_at
"""
"""Note when numbers last said STOP or START, or a person said so of them."""


def _execute(statement, *values, numbers, table=None):
    array = db.rows_of_array("numbers", "text")
    sql = statement.format(param=db.param, numbers=array, table=table)
    return db.execute_sql(sql, (*values, db.array(numbers)))


class OnDoNotCallList(Exception):
    """A text is refused because its number is on the list, perhaps by the recipient's own wish."""


class _NumberList:
    """What both lists have in common."""

    kind: ClassVar[str]  # in the history, the audit and the commands

    @classmethod
    def lists(cls, number: str) -> bool:
        """Return whether a number is on this list."""
        return cls.select().where(cls.number == number).exists()

    @classmethod
    def entry(cls, number: str) -> Self | None:
        """Return the entry of a number, or None if it is not on this list."""
        return cls.get_or_none(cls.number == number)

    @classmethod
    def among(cls, numbers: Collection[str]) -> set[str]:
        """Return which of these numbers are on this list."""
        found = cls.select(cls.number).where(cls.number.in_([*numbers]))
        return {number for (number,) in found.tuples()}

    @classmethod
    def has(cls, number: Field) -> Expression:
        """Match numbers that are on this list."""
        return fn.EXISTS(cls.select(SQL("1")).where(cls.number == number))

    @classmethod
    def size(cls) -> int:
        """Return how many numbers are on this list."""
        return cls.select().count()

    @classmethod
    def entries(cls) -> Iterator[Self]:
        """Read the whole list by number, in pages: no query stays open between them."""
        rows = cls.select().order_by(cls.number)
        return in_pages(rows, None, lambda last: cls.number > last.number)

    @classmethod
    def add(
        cls,
        numbers: Iterable[str],
        now: datetime,
        source: str,
        who: str | None = None,
        said_at: datetime | None = None,
    ) -> int:
        """Put numbers on this list; return how many were not on it yet.

        `who` is the person who did it, and `said_at` the carrier's time of a reply. The numbers are
        sorted, so that two concurrent calls cannot deadlock on Postgres.
        """
        added_at, table = cls.added_at.db_value(now), cls._meta.table_name
        with db.atomic():
            rows = _execute(JOIN, added_at, source, numbers=sorted(numbers), table=table)
            joined = [number for (number,) in rows.fetchall()]
            cls._note(joined, now, "joined", source, who, said_at)
            if source == "import" and joined:  # the history lists each of them
                Audit.note(Action.IMPORTED, now, count=len(joined), details=cls.kind)
            elif source == "operator":
                Audit.note_each(Action.ADDED, now, Audit.number, joined, cls.kind)
        return len(joined)

    @classmethod
    def drop(
        cls,
        numbers: Iterable[str],
        now: datetime,
        why: str,
        who: str | None = None,
        said_at: datetime | None = None,
    ) -> list[str]:
        """Take numbers off this list; return those that were on it.

        `why` is "operator" or "reply".
        """
        gone = cls.delete().where(cls.number.in_([*numbers])).returning(cls.number)
        with db.atomic():
            left = [row.number for row in gone]
            cls._note(left, now, "left", why, who, said_at)
            if why == "operator":
                Audit.note_each(Action.REMOVED, now, Audit.number, left, cls.kind)
        return left

    @classmethod
    def _note(cls, numbers, now, what, why, who, said_at):
        """Add a row of the history for each number."""
        instant = cls.added_at.db_value
        _execute(NOTE, cls.kind, instant(now), what, why, who, instant(said_at), numbers=numbers)


class OptedOut(_NumberList, Table):
    """The recipients who want no texts; START takes them off."""

    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()
    source = TextField()  # reply or carrier, or operator or import if people noted it

    kind = "opt-out"

    class Meta:
        table_name = "opt_out"

    @classmethod
    def add(
        cls,
        numbers: Iterable[str],
        now: datetime,
        source: str,
        who: str | None = None,
        said_at: datetime | None = None,
    ) -> int:
        """Put numbers on this list, as of now if people note it; return how many are new."""
        numbers = sorted(numbers)
        with db.atomic():
            if source in ("operator", "import"):
                _execute(SAID, cls.added_at.db_value(now), numbers=numbers)
            return super().add(numbers, now, source, who, said_at)

    @classmethod
    def end(cls, number: str, now: datetime, said_at: datetime | None) -> None:
        """Take a number off this list, because it replied START."""
        cls.drop([number], now, "reply", said_at=said_at)


class DoNotCall(_NumberList, Table):
    """The numbers that people or files put on the list; only people remove them."""

    number = TextField(primary_key=True)  # E.164
    added_at = InstantField()
    source = TextField()  # operator or import

    kind = "entry"


LISTS = OptedOut, DoNotCall


def is_listed(number: str) -> bool:
    """Return whether a number is on either list."""
    return OptedOut.lists(number) or DoNotCall.lists(number)


def listed(numbers: Collection[str]) -> dict[str, bool]:
    """Return the numbers that are on either list, each with whether it opted out."""
    if not numbers:  # as for most claims of an idle sender
        return {}
    found = {}
    for number, opted_out in run("listed", numbers=array(numbers)).fetchall():
        found[number] = found.get(number, False) or bool(opted_out)
    return found


def remove(numbers: Iterable[str], now: datetime, who: str, *, opted_out: bool = False) -> int:
    """Remove our own entries of numbers for a person; return how many numbers were listed.

    With `opted_out` end opt-outs, too: a later word than any that a carrier has from before.
    """
    numbers = sorted(numbers)
    with db.atomic():
        gone = []
        if opted_out:  # that word first: in this order a recipient's own locks them
            ended = sorted(OptedOut.among(numbers))
            _execute(SAID, OptedOut.added_at.db_value(now), numbers=ended)
            gone += OptedOut.drop(numbers, now, "operator", who)
        gone += DoNotCall.drop(numbers, now, "operator", who)
    return len({*gone})


def gets(which: type[OptedOut] | type[DoNotCall], check_dnc: str) -> str:
    """Describe the texts that a number on one of the lists does not get.

    `check_dnc` is the setting for keys without a rule of their own.
    """
    all_stop = ["always", "opted-out"] if which is OptedOut else ["always"]
    if check_dnc in all_stop:
        words, differ = "gets no texts", ApiKey.check_dnc.not_in(all_stop)
    else:
        words, differ = "gets no texts that set check_dnc", ApiKey.check_dnc.in_(all_stop)
    if ApiKey.select().where(differ, ApiKey.revoked_at.is_null()).exists():
        words += ", unless a key's own rule says otherwise"
    return words


class DoNotCallHistory(Table):
    """Every change of both lists; rows are only ever added."""

    number = TextField(index=True)
    kind = TextField()  # opt-out or entry: which of the two lists
    at = InstantField()
    what = TextField()  # joined or left
    why = TextField()  # operator, import, reply or carrier
    who = TextField(null=True)  # the name of a key, or "shell"; null for reply and carrier
    said_at = InstantField(null=True)  # the carrier's time of a reply, if it gave one

    @classmethod
    def of(cls, number: str) -> list[Self]:
        """Return what happened to a number, oldest first."""
        return list(cls.select().where(cls.number == number).order_by(cls.id))

    @classmethod
    def newest(cls, count: int) -> Iterator[Self]:
        """Read the last changes, the newest first."""
        return iter(cls.select().order_by(cls.id.desc()).limit(count))

    @classmethod
    def why_at(cls, number: str, at: datetime) -> str | None:
        """Return why the list blocked texts to a number at an instant; None if not known."""
        last = {each.kind: each for each in cls.of(number) if each.at <= at}
        if (opted_out := last.get(OptedOut.kind)) and opted_out.what == "joined":
            return f"the recipient opted out on {opted_out.at:%Y-%m-%d}"
        if (entry := last.get(DoNotCall.kind)) and entry.what == "joined":
            return f"the number has been on the Do Not Call list since {entry.at:%Y-%m-%d}"
        return None


class LastReply(Table):
    """When each number last said STOP or START, whether or not that changed the list.

    A STOP that a carrier reports, or that people note, counts, too, and so does a person's removal.
    """

    number = TextField(primary_key=True)
    # By the carrier's clock if it gave the time, otherwise the arrival
    said_at = InstantField(PAST)

    @classmethod
    def note(cls, number: str, said_at: datetime | None, now: datetime) -> bool:
        """Note a reply; return False if a newer one was noted already.

        Carriers report whole seconds, so replies of the same second count in the order of arrival.
        On Postgres this locks the number, so that its replies take effect one after the other.
        """
        in_order = said_at is None or said_at > now + SKEW  # then the carrier's clock is wrong
        reply = cls.insert(number=number, said_at=now if in_order else said_at)
        if not in_order:
            ends = said_at.replace(microsecond=0) + timedelta(seconds=1)
            in_order = cls.said_at < ends
        noted = reply.on_conflict(
            conflict_target=[cls.number], preserve=[cls.said_at], where=in_order
        )
        return bool(list(noted.returning(cls.number).execute()))

    @classmethod
    def forget(cls, numbers: Collection[str], until: datetime = LAST) -> None:
        """Forget when numbers last replied, up to an instant, unless the list's history has them.

        While they are, an older word that arrives late must still change nothing.
        """
        kept = DoNotCallHistory.select().where(DoNotCallHistory.number == cls.number)
        old = cls.number.in_([*numbers]) & (cls.said_at <= until)
        cls.delete().where(old, ~fn.EXISTS(kept)).execute()
