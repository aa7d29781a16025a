"""Events for the systems of keys, and when a key was told of a message."""

from peewee import (
    BigAutoField,
    BigIntegerField,
    ForeignKeyField,
    IntegerField,
    Model,
    TextField,
    UUIDField,
)


def up(migrator, db):
    migrator.migrate(migrator.add_column("message", "told_at", BigIntegerField(null=True)))

    class ApiKey(Model):
        class Meta:
            table_name = "api_key"

    class EventAddress(Model):
        key = ForeignKeyField(ApiKey, primary_key=True)
        url = TextField()
        secret = TextField()
        old_secret = TextField(null=True)
        old_secret_until = BigIntegerField(null=True)
        off = TextField(null=True)

        class Meta:
            table_name = "event_address"

    class Event(Model):
        id = BigAutoField()
        webhook_id = TextField()
        key = ForeignKeyField(ApiKey, index=False)
        message_id = UUIDField()
        at = BigIntegerField()
        body = TextField()
        tries = IntegerField(default=0)
        next_try_at = BigIntegerField(null=True)
        last_answer = TextField(null=True)
        given_up_at = BigIntegerField(null=True)

        class Meta:
            table_name = "event"

    tables = [EventAddress, Event]
    db.bind(tables)
    db.create_tables(tables)
    for index in (
        "event_due ON event (key_id, next_try_at) WHERE next_try_at IS NOT NULL",
        "event_given_up ON event (given_up_at) WHERE given_up_at IS NOT NULL",
    ):
        db.execute_sql(f"CREATE INDEX {index}")
