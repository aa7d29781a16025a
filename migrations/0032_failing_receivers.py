"""Since when a receiver of events has taken none, so that a dead one is a problem."""

from peewee import BigIntegerField


def up(migrator, db):
    migrator.migrate(
        migrator.add_column("event_address", "failing_since", BigIntegerField(null=True))
    )
