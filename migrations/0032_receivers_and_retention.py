"""Since when a receiver of events has taken none; how far texts were redacted by age."""

from peewee import BigIntegerField, IntegerField, Model


def up(migrator, db):
    class Retention(Model):
        id = IntegerField(primary_key=True)
        next_at = BigIntegerField(null=True)
        redacted_until = BigIntegerField(null=True)

        class Meta:
            table_name = "retention"

    db.bind([Retention])
    db.create_tables([Retention])
    migrator.migrate(
        migrator.add_column("event_address", "failing_since", BigIntegerField(null=True))
    )
