"""What carriers say later, and what people decided."""

from peewee import (
    SQL,
    BigIntegerField,
    BooleanField,
    FloatField,
    ForeignKeyField,
    Model,
    TextField,
    UUIDField,
)


def up(migrator, db):
    migrator.migrate(
        migrator.drop_index("api_key", "apikey_name"),
        migrator.add_column("do_not_call", "source", TextField(null=True)),
        migrator.add_column("message", "first_send_at", BigIntegerField(null=True)),
        migrator.add_column("message", "due_since", BigIntegerField(null=True)),
        migrator.add_column("message", "in_doubt_since", BigIntegerField(null=True)),
        migrator.add_column("message", "last_error_at", BigIntegerField(null=True)),
        migrator.add_column("message", "approved_by", TextField(null=True)),
        migrator.add_column("message", "approved_at", BigIntegerField(null=True)),
        migrator.add_column("message", "cancelled_by", TextField(null=True)),
        migrator.add_column("message", "receipt_at", BigIntegerField(null=True)),
        migrator.drop_index("message", "message_awaiting"),
        migrator.drop_index("message", "message_due"),
        migrator.drop_index("message", "message_finished"),
    )
    # Not by add_column, which would rebuild SQLite's tables: other tables refer to their rows
    for table, column in (
        ("api_key", "role TEXT NOT NULL DEFAULT 'sender'"),
        ("message", "in_doubt INTEGER NOT NULL DEFAULT 0"),
        ("message", "take_overs INTEGER NOT NULL DEFAULT 0"),
    ):
        db.execute_sql(f"ALTER TABLE {table} ADD COLUMN {column}")
    db.execute_sql(
        "UPDATE message SET first_send_at = send_at "
        "WHERE status IN ('scheduled', 'queued', 'sending')"
    )
    add_indexes(db)
    add_tables(db)


def add_indexes(db):
    class ApiKey(Model):
        name = TextField()
        revoked_at = BigIntegerField(null=True)

        class Meta:
            database = db
            table_name = "api_key"

    class Message(Model):
        id = UUIDField(primary_key=True)
        key = ForeignKeyField(ApiKey, index=False)
        to = TextField(null=True)
        send_at = BigIntegerField()
        status = TextField()
        due_since = BigIntegerField(null=True)
        finished_at = BigIntegerField(null=True)
        last_error_at = BigIntegerField(null=True)
        carrier_reference = TextField(null=True)

        class Meta:
            database = db
            table_name = "message"

    awaiting = "status IN ('scheduled', 'queued') AND NOT approved"
    for table, name, columns, where in (
        (ApiKey, "api_key_live_name", ["name"], "revoked_at IS NULL"),
        (Message, "message_due", ["send_at", "id"], "status IN ('scheduled')"),
        (Message, "message_awaiting", ["status", "send_at", "id"], awaiting),
        (
            Message,
            "message_awaiting_key",
            ["key", "send_at", "id"],
            f"{awaiting} AND available_to_group",
        ),
        (Message, "message_finished", ["status", "finished_at"], "finished_at IS NOT NULL"),
        (
            Message,
            "message_retrying",
            ["due_since"],
            "status IN ('scheduled', 'queued') AND due_since IS NOT NULL",
        ),
        (
            Message,
            "message_last_error",
            ["last_error_at"],
            "status IN ('scheduled', 'queued') AND last_error_at IS NOT NULL",
        ),
        (Message, "message_reference", ["carrier_reference"], "carrier_reference IS NOT NULL"),
        (Message, "message_ended", ["status", "id"], "finished_at IS NOT NULL"),
        (Message, "message_to", ["to"], None),
    ):
        index = table.index(
            *(getattr(table, column) for column in columns),
            unique=table is ApiKey,
            where=where and SQL(where),
            name=name,
        )
        db.execute(index)


def add_tables(db):
    class EarlyReceipt(Model):
        reference = TextField(primary_key=True)
        delivered = BooleanField()
        reason = TextField(null=True)
        received_at = BigIntegerField(index=True)

        class Meta:
            database = db
            table_name = "early_receipt"

    class CarrierState(Model):
        name = TextField(primary_key=True)
        last_pass_at = BigIntegerField(null=True)
        trouble = TextField(null=True)
        trouble_since = BigIntegerField(null=True)
        retry_at = BigIntegerField(null=True)
        pause = FloatField(default=0)

        class Meta:
            database = db
            table_name = "carrier_state"

    class ApiKey(Model):
        class Meta:
            database = db
            table_name = "api_key"

    class SignIn(Model):
        id = TextField(primary_key=True)
        key = ForeignKeyField(ApiKey, index=False)
        digest = TextField()
        began_at = BigIntegerField(index=True)

        class Meta:
            database = db
            table_name = "sign_in"

    db.create_tables([EarlyReceipt, CarrierState, SignIn])
