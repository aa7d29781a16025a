"""The countries that keys text: a text to a new one may show that a key has leaked."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from peewee import SQL, CompositeKey, ForeignKeyField, TextField, Value

from texting.access.keys import ApiKey, Role
from texting.database import MILLISECOND, InstantField, Table, db

DAY = timedelta(days=1)
UNLESS_KNOWN = "ON CONFLICT DO NOTHING RETURNING key_id"


class KeyCountry(Table):
    """A country that a key has texted."""

    key = ForeignKeyField(ApiKey, index=False)
    country = TextField()  # ISO 3166, or 001
    first_at = InstantField()
    told_at = InstantField(null=True)

    class Meta:
        primary_key = CompositeKey("key", "country")

    @classmethod
    def note(cls, texts: Mapping[tuple[int, str], datetime]) -> None:
        """Note when keys, by id, first text countries; known ones stay as they are.

        This goes in order: two batches that note the same ones in another order could deadlock.
        """
        rows = [
            {"key_id": key, "country": country, "first_at": cls.first_at.db_value(at)}
            for (key, country), at in sorted(texts.items())
        ]
        if rows:
            db.insert_rows("key_country", rows, UNLESS_KNOWN)

    @classmethod
    def claim_news(cls, now: datetime) -> list[tuple[ApiKey, list[str]]]:
        """Return the keys that have begun in the last day to text countries, with those countries.

        Each country of a key is returned once, over all processes. Those of a key's first day are
        never returned, since all are new then; nor are those of testers, whose texts go nowhere.
        """
        second_day = ApiKey.created_at + Value(DAY // MILLISECOND, converter=False)
        news = cls.select(cls.country, ApiKey).join(ApiKey)
        news = news.where(cls.told_at.is_null(), cls.first_at > now - DAY)
        news = news.where(cls.first_at >= second_day, ApiKey.role == Role.SENDER)
        keys, countries = {}, defaultdict(list)
        for each in news.where(ApiKey.revoked_at.is_null()):
            keys[each.key.id] = each.key
            countries[each.key.id].append(each.country)
        taken = ((keys[id], cls._take(id, countries[id], now)) for id in sorted(keys))
        return [(key, found) for key, found in taken if found]

    @classmethod
    def _take(cls, key, countries, now):
        """Mark these countries of a key as reported; return those that were not yet."""
        untold = (cls.key == key) & cls.country.in_(countries) & cls.told_at.is_null()
        taken = cls.update(told_at=now).where(untold).returning(cls.country).execute()
        return sorted(each.country for each in taken)


_untold = SQL("told_at IS NULL")
KeyCountry.add_index(
    KeyCountry.index(KeyCountry.first_at, where=_untold, name="key_country_untold")
)
