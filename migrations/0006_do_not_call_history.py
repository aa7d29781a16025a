"""Every change of the Do Not Call list, and when each number replied last."""

from peewee import BigIntegerField, Model, TextField


def up(migrator, db):
    class DoNotCallHistory(Model):
        number = TextField(index=True)
        at = BigIntegerField()
        what = TextField()
        why = TextField(null=True)
        who = TextField(null=True)
        said_at = BigIntegerField(null=True)

        class Meta:
            table_name = "do_not_call_history"

    class LastReply(Model):
        number = TextField(primary_key=True)
        said_at = BigIntegerField()

        class Meta:
            table_name = "last_reply"

    tables = [DoNotCallHistory, LastReply]
    db.bind(tables)
    db.create_tables(tables)
    db.execute_sql(
        "INSERT INTO do_not_call_history (number, at, what, why) "
        "SELECT number, added_at, 'joined', source FROM do_not_call ORDER BY added_at, number"
    )
    db.execute_sql(
        "INSERT INTO last_reply (number, said_at) "
        "SELECT number, added_at FROM do_not_call WHERE source = 'reply'"
    )
