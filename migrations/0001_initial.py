"""The first tables: keys, the Do Not Call list, messages."""

from peewee import (
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
            table_name = "api_key"

    class DoNotCall(Model):
        number = TextField(primary_key=True)
        added_at = BigIntegerField()

        class Meta:
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
            table_name = "message"

    tables = [ApiKey, DoNotCall, Message]
    db.bind(tables)
    db.create_tables(tables)
    awaiting = "status IN ('scheduled', 'queued') AND NOT approved"
    ended = "status IN ('sent', 'failed', 'blocked', 'cancelled')"
    for index in (
        "INDEX message_due ON message (send_at) WHERE status IN ('scheduled')",
        "INDEX message_sendable ON message (send_at) WHERE status IN ('queued') AND approved",
        f"INDEX message_awaiting ON message (send_at) WHERE {awaiting}",
        "INDEX message_claimed ON message (claimed_at) WHERE status IN ('sending')",
        f"INDEX message_finished ON message (status, finished_at) WHERE {ended}",
        "INDEX message_key ON message (key_id, id)",
        "UNIQUE INDEX message_idempotency ON message (key_id, idempotency_key) "
        "WHERE idempotency_key IS NOT NULL",
    ):
        db.execute_sql(f"CREATE {index}")
