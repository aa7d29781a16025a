"""Each time that a text was given to a carrier; of before, what is known of it."""

from peewee import (
    BigIntegerField,
    CompositeKey,
    ForeignKeyField,
    IntegerField,
    Model,
    TextField,
    UUIDField,
)

TAKEN = """
INSERT INTO attempt
    (message_id, number, carrier, begun_at, ended_at, result, reference, receipt, receipt_at)
SELECT id, claim_number, carrier, finished_at, finished_at, 'taken', carrier_reference,
    CASE WHEN status = 'sent' THEN NULL ELSE status END, receipt_at
FROM message WHERE status IN ('sent', 'delivered', 'undelivered') AND finished_at IS NOT NULL
"""
UNDER_WAY = """
INSERT INTO attempt (message_id, number, carrier, sender, begun_at)
SELECT id, claim_number, claimed_for, claimed_by, claimed_at FROM message
WHERE status = 'sending' AND claimed_at IS NOT NULL
"""
IN_DOUBT = """
SELECT id, claim_number, in_doubt, in_doubt_with, carrier, in_doubt_since, created_at FROM message
WHERE in_doubt > 0
"""


def up(migrator, db):
    class Message(Model):
        id = UUIDField(primary_key=True)

        class Meta:
            table_name = "message"

    class Attempt(Model):
        message = ForeignKeyField(Message, on_delete="CASCADE", index=False)
        number = IntegerField()
        carrier = TextField(null=True)
        sender = UUIDField(null=True)
        begun_at = BigIntegerField()
        ended_at = BigIntegerField(null=True)
        result = TextField(null=True)
        reference = TextField(null=True)
        words = TextField(null=True)
        receipt = TextField(null=True)
        receipt_at = BigIntegerField(null=True)

        class Meta:
            table_name = "attempt"
            primary_key = CompositeKey("message", "number")

    db.bind([Message, Attempt])
    db.create_tables([Attempt])
    db.execute_sql(TAKEN)
    db.execute_sql(UNDER_WAY)
    for id, number, count, names, carrier, since, created_at in db.execute_sql(IN_DOUBT).fetchall():
        named = (names or "").split()[-count:]
        begun_at = since or created_at
        for before, name in enumerate(reversed([carrier] * (count - len(named)) + named), 1):
            Attempt.insert(
                message=id,
                number=number - before,
                carrier=name,
                begun_at=begun_at,
                ended_at=begun_at,
                result="unclear",
            ).execute()
