"""When schedulers make passes, so that a dead one is noticed before something is due."""

import time

from peewee import SQL, BigIntegerField, IntegerField, Model, TextField


def up(migrator, db):
    class Passes(Model):
        id = IntegerField(primary_key=True)
        expected_since = BigIntegerField(null=True)
        single_at = BigIntegerField(null=True)
        distances = TextField(default="[]", constraints=[SQL("DEFAULT '[]'")])

        class Meta:
            table_name = "passes"

    db.bind([Passes])
    db.create_tables([Passes])
    Passes.insert(id=1, expected_since=round(time.time() * 1000)).execute()
