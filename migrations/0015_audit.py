"""Who did what and when."""

from peewee import BigAutoField, BigIntegerField, IntegerField, Model, TextField, UUIDField


def up(migrator, db):
    class Audit(Model):
        id = BigAutoField()
        at = BigIntegerField(index=True)
        who = TextField()
        who_key = IntegerField(null=True)
        what = TextField()
        message_id = UUIDField(null=True)
        key = IntegerField(null=True)
        key_name = TextField(null=True)
        number = TextField(null=True)
        count = IntegerField(null=True)
        details = TextField(null=True)

        class Meta:
            table_name = "audit"

    db.bind([Audit])
    db.create_tables([Audit])
