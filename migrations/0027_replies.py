"""What recipients write back, and the texts that answer them."""

from peewee import (
    SQL,
    BigIntegerField,
    BooleanField,
    IntegerField,
    Model,
    SqliteDatabase,
    TextField,
    UUIDField,
)

INDEXES = (
    "message_answers ON message (send_at, id) WHERE status IN ('queued') AND approved "
    "AND answers IS NOT NULL",
    "reply_waiting ON reply (may_be_no, at, id) WHERE read_at IS NULL AND NOT opted_out",
    "reply_maybe ON reply (number) WHERE may_be_no",
    "reply_key ON reply (key, at, id) WHERE available_to_group",
    "reply_unread ON reply (at, id) WHERE read_at IS NULL",
    "reply_at ON reply (at, id)",
    "reply_number ON reply (number, at, id)",
    "reply_message ON reply (message_id)",
    "event_reply ON event (reply_id) WHERE reply_id IS NOT NULL",
    "reply_due ON reply (due_at) WHERE due_at IS NOT NULL",
)


def up(migrator, db):
    uuid = "TEXT" if isinstance(db, SqliteDatabase) else "UUID"
    db.execute_sql('ALTER TABLE "message" ADD COLUMN "answers" TEXT')
    db.execute_sql(f'ALTER TABLE "event" ADD COLUMN "reply_id" {uuid}')

    class Reply(Model):
        id = UUIDField(primary_key=True)
        carrier = TextField()
        number = TextField()
        text = TextField()
        at = BigIntegerField()
        received_at = BigIntegerField()
        message_id = UUIDField(null=True)
        key = IntegerField(null=True)
        available_to_group = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
        opted_out = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
        may_be_no = BooleanField(default=False, constraints=[SQL("DEFAULT false")])
        read_at = BigIntegerField(null=True)
        read_by = TextField(null=True)
        part_reference = TextField(null=True)
        parts = IntegerField(null=True)
        pieces = TextField(null=True)
        due_at = BigIntegerField(null=True)

        class Meta:
            table_name = "reply"

    db.bind([Reply])
    db.create_tables([Reply])
    for index in INDEXES:
        name, _, rest = index.partition(" ")
        db.execute_sql(f'CREATE INDEX "{name}" {rest}')
