"""Where the owners of numbers live, as far as an operator has said so."""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import lru_cache
from time import monotonic
from typing import Self

from peewee import DateField, TextField

from texting import recipients
from texting.access.audit import Action, Audit
from texting.database import InstantField, Table, db
from texting.recipients import Recipient, Residence

REPLACE = """\
ON CONFLICT (number)
DO UPDATE SET place = excluded.place, until = excluded.until, imported_at = excluded.imported_at
RETURNING number
"""


class KnownPlace(Table):
    """The place where the owner of a number lives, see Residence."""

    number = TextField(primary_key=True)  # E.164
    place = TextField()
    until = DateField(null=True)
    imported_at = InstantField()

    @classmethod
    def entry(cls, number: str) -> Self | None:
        """Return what is known of a number, or None."""
        return cls.get_or_none(cls.number == number)

    @classmethod
    def put(cls, places: Mapping[str, Residence], now: datetime) -> None:
        """Note where some people live, by their numbers, in place of what was known.

        The numbers are sorted, so that two concurrent calls cannot deadlock on Postgres.
        """
        at = cls.imported_at.db_value(now)
        rows = [
            {
                "number": number,
                "place": each.place,
                "until": each.until and str(each.until),
                "imported_at": at,
            }
            for number, each in sorted(places.items())
        ]
        if not rows:
            return
        with db.atomic():
            db.insert_rows("known_place", rows, REPLACE)
            Audit.note(Action.IMPORTED_PLACES, now, count=len(rows))
        _are_some.cache_clear()

    @classmethod
    def remove(cls, numbers: Collection[str], now: datetime) -> list[str]:
        """Forget where people live; return those of these numbers of which it was known."""
        gone = cls.delete().where(cls.number.in_([*numbers])).returning(cls.number)
        with db.atomic():
            known = [row.number for row in gone]
            Audit.note_each(Action.REMOVED_PLACE, now, Audit.number, known)
        return known

    @classmethod
    def forget(cls, number: str) -> None:
        """Forget where the owner of a number lives, without a word in the audit."""
        cls.delete().where(cls.number == number).execute()


def residences(numbers: Collection[str]) -> dict[str, Residence]:
    """Return where the owners of some numbers live, as far as it is known."""
    if not numbers or not _are_some(db.url, int(monotonic())):
        return {}
    columns = KnownPlace.number, KnownPlace.place, KnownPlace.until
    found = KnownPlace.select(*columns).where(KnownPlace.number.in_([*numbers])).tuples()
    return {number: Residence(place, until) for number, place, until in found}


def find(number: str) -> Recipient:
    """Return the recipient of an E.164 number, who may be known to live somewhere else.

    Raise InvalidNumber if it is not one.
    """
    recipients.find(number)  # which refuses what is none before the database is asked
    return recipients.find(number, residences([number]).get(number))


@lru_cache(1)
def _are_some(url, second):
    """Return whether any place is known.

    It is read again in each second of the monotonic clock, so that texts cost the same as ever
    where no places are imported.
    """
    return KnownPlace.select().exists()
