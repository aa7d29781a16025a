"""Limits of keys, what they have used up, and an index that counts a number's latest messages."""

from peewee import BigIntegerField, IntegerField, Model


def up(migrator, db):
    class KeyUse(Model):
        key_id = IntegerField(primary_key=True)
        second = BigIntegerField()
        used_s = IntegerField()
        used_min = IntegerField()
        used_h = IntegerField()
        used_d = IntegerField()

        class Meta:
            table_name = "key_use"

    db.bind([KeyUse])
    db.create_tables([KeyUse])
    # Not by add_column, which would rebuild SQLite's table
    db.execute_sql("ALTER TABLE api_key ADD COLUMN limits TEXT")
    db.execute_sql("DROP INDEX message_to")
    db.execute_sql('CREATE INDEX message_to ON message ("to", id)')
