"""What carriers say later, and what people decided."""

from peewee import BigIntegerField, BooleanField, FloatField, ForeignKeyField, Model, TextField


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
    waiting = "status IN ('scheduled', 'queued')"
    awaiting = f"{waiting} AND NOT approved"
    for index in (
        "UNIQUE INDEX api_key_live_name ON api_key (name) WHERE revoked_at IS NULL",
        "INDEX message_due ON message (send_at, id) WHERE status IN ('scheduled')",
        f"INDEX message_awaiting ON message (status, send_at, id) WHERE {awaiting}",
        "INDEX message_awaiting_key ON message (key_id, send_at, id) "
        f"WHERE {awaiting} AND available_to_group",
        "INDEX message_finished ON message (status, finished_at) WHERE finished_at IS NOT NULL",
        f"INDEX message_retrying ON message (due_since) WHERE {waiting} AND due_since IS NOT NULL",
        "INDEX message_last_error ON message (last_error_at) "
        f"WHERE {waiting} AND last_error_at IS NOT NULL",
        "INDEX message_reference ON message (carrier_reference) "
        "WHERE carrier_reference IS NOT NULL",
        "INDEX message_ended ON message (status, id) WHERE finished_at IS NOT NULL",
        'INDEX message_to ON message ("to")',
    ):
        db.execute_sql(f"CREATE {index}")

    class EarlyReceipt(Model):
        reference = TextField(primary_key=True)
        delivered = BooleanField()
        reason = TextField(null=True)
        received_at = BigIntegerField(index=True)

        class Meta:
            table_name = "early_receipt"

    class CarrierState(Model):
        name = TextField(primary_key=True)
        last_pass_at = BigIntegerField(null=True)
        trouble = TextField(null=True)
        trouble_since = BigIntegerField(null=True)
        retry_at = BigIntegerField(null=True)
        pause = FloatField(default=0)

        class Meta:
            table_name = "carrier_state"

    class ApiKey(Model):
        class Meta:
            table_name = "api_key"

    class SignIn(Model):
        id = TextField(primary_key=True)
        key = ForeignKeyField(ApiKey, index=False)
        digest = TextField()
        began_at = BigIntegerField(index=True)

        class Meta:
            table_name = "sign_in"

    tables = [EarlyReceipt, CarrierState, SignIn]
    db.bind(tables)
    db.create_tables(tables)
