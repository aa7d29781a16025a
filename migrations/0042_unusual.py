"""What is usual for a key, by country and day; why a message waits that is not."""

from peewee import CompositeKey, IntegerField, Model, SqliteDatabase, TextField


def up(migrator, db):
    class KeyDay(Model):
        key_id = IntegerField()
        country = TextField()
        day = IntegerField()
        parts = IntegerField()

        class Meta:
            table_name = "key_day"
            primary_key = CompositeKey("key_id", "country", "day")

    with db.bind_ctx([KeyDay]):
        db.create_tables([KeyDay], safe=False)
    flag = "INTEGER" if isinstance(db, SqliteDatabase) else "BOOLEAN"
    db.execute_sql(f"ALTER TABLE api_key ADD COLUMN hold_odd {flag}")
    db.execute_sql("ALTER TABLE message ADD COLUMN held_because TEXT")
    where = "WHERE approved_at IS NOT NULL"
    db.execute_sql(f"CREATE INDEX message_approved ON message (key_id, approved_at) {where}")
