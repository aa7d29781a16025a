"""What people were told already, by all schedulers."""

from peewee import SQL, BigIntegerField, IntegerField, Model, TextField


def up(migrator, db):
    class Notice(Model):
        subject = TextField(primary_key=True)
        told_at = BigIntegerField(null=True)
        level = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
        newest = TextField(null=True)

        class Meta:
            table_name = "notice"

    db.bind([Notice])
    db.create_tables([Notice])
