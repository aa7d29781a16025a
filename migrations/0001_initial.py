"""The first tables: keys, the Do Not Call list, messages."""

from peewee import (
    SQL,
    BigIntegerField,
    BooleanField,
    ForeignKeyField,
    IntegerField,
    Model,
    SqliteDatabase,
    TextField,
    UUIDField,
)


def up(migrator, db):
    class ApiKey(Model):
        name = TextField(unique=True)
        group = TextField(null=True)
        digest = TextField(unique=True)
        created_at = BigIntegerField()
        revoked_at = BigIntegerField(null=True)

        class Meta:
            database = db
            table_name = "api_key"

    class DoNotCall(Model):
        number = TextField(primary_key=True)
        added_at = BigIntegerField()

        class Meta:
            database = db
            table_name = "do_not_call"
            without_rowid = isinstance(db, SqliteDatabase)

    class Message(Model):
        id = UUIDField(primary_key=True)
        key = ForeignKeyField(ApiKey, index=False)
        to = TextField(null=True)
        message = TextField(null=True)
        send_date = BigIntegerField(null=True)
        send_at = BigIntegerField()
        status = TextField()
        manual_mode = BooleanField()
        available_to_group = BooleanField()
        check_dnc = BooleanField()
        approved = BooleanField()
        attempts = IntegerField(default=0)
        max_retries = IntegerField()
        claimed_by = UUIDField(null=True)
        claimed_at = BigIntegerField(null=True)
        finished_at = BigIntegerField(null=True)
        last_error = TextField(null=True)
        carrier_reference = TextField(null=True)
        created_at = BigIntegerField()
        idempotency_key = TextField(null=True)
        request_digest = TextField(null=True)
        answer = TextField(null=True)

        class Meta:
            database = db
            table_name = "message"

    for name, columns, where in (
        ("message_due", [Message.send_at], "status IN ('scheduled')"),
        ("message_sendable", [Message.send_at], "status IN ('queued') AND approved"),
        (
            "message_awaiting",
            [Message.send_at],
            "status IN ('scheduled', 'queued') AND NOT approved",
        ),
        ("message_claimed", [Message.claimed_at], "status IN ('sending')"),
        (
            "message_finished",
            [Message.status, Message.finished_at],
            "status IN ('sent', 'failed', 'blocked', 'cancelled')",
        ),
    ):
        Message.add_index(Message.index(*columns, where=SQL(where), name=name))
    Message.add_index(Message.index(Message.key, Message.id, name="message_key"))
    Message.add_index(
        Message.index(
            Message.key,
            Message.idempotency_key,
            unique=True,
            where=SQL("idempotency_key IS NOT NULL"),
            name="message_idempotency",
        )
    )
    db.create_tables([ApiKey, DoNotCall, Message])
