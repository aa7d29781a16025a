"""What is true of a text is its lane; schedulers beat; carriers are asked about attempts."""

from peewee import BigIntegerField, IntegerField, Model, SqliteDatabase, UUIDField

LANES = """
UPDATE message SET lane = CASE
    WHEN key_id IN (SELECT id FROM api_key WHERE role = 'tester') THEN '=(testers)'
    WHEN answers IS NOT NULL THEN '=' || COALESCE(substr(lane, 9), carrier, '')
    ELSE COALESCE(country, '')
END
WHERE status IN ('scheduled', 'queued', 'sending')
"""
IN_DOUBT = """
SELECT message_id, attempt.carrier, lane FROM attempt
JOIN message ON message.id = attempt.message_id
WHERE result = 'unclear' AND in_doubt > 0 AND status IN ('scheduled', 'queued', 'sending')
ORDER BY message_id, number
"""
ASKED = """
UPDATE attempt SET ask_at = begun_at WHERE result = 'unclear' AND message_id IN (
    SELECT id FROM message WHERE in_doubt > 0 AND status IN ('scheduled', 'queued', 'sending')
)
"""
BEATING = """
INSERT INTO heartbeat (sender, beats, beat_at)
SELECT sender, 0, MIN(begun_at) FROM attempt WHERE result IS NULL AND sender IS NOT NULL
GROUP BY sender
"""
ASKING = """
UPDATE message SET status = 'queued', claimed_by = NULL, claimed_at = NULL, claimed_for = NULL
WHERE status = 'sending' AND NOT EXISTS (
    SELECT 1 FROM attempt WHERE message_id = message.id AND result IS NULL
)
"""
"""Questions of before were claims, and are asked anew."""

INDEXES = (
    "attempt_reference ON attempt (reference) WHERE reference IS NOT NULL",
    "attempt_reference_form ON attempt (ltrim(lower(reference), '0')) WHERE reference IS NOT NULL",
    "attempt_ask ON attempt (carrier, ask_at) WHERE result = 'unclear' AND ask_at IS NOT NULL",
    "attempt_sender ON attempt (sender) WHERE result IS NULL",
    "api_key_urgent ON api_key (id) WHERE urgent",
)


def up(migrator, db):
    class Heartbeat(Model):
        sender = UUIDField(primary_key=True)
        beats = IntegerField(default=0)
        beat_at = BigIntegerField()

        class Meta:
            table_name = "heartbeat"

    db.bind([Heartbeat])
    db.create_tables([Heartbeat])
    instant = "INTEGER" if isinstance(db, SqliteDatabase) else "BIGINT"
    db.execute_sql("ALTER TABLE message ADD COLUMN tries_before INTEGER NOT NULL DEFAULT 0")
    db.execute_sql(f"ALTER TABLE attempt ADD COLUMN ask_at {instant}")
    for index in INDEXES:
        db.execute_sql(f"CREATE INDEX {index}")
    for statement in (ASKED, LANES, BEATING, ASKING):
        db.execute_sql(statement)
    lanes = {}
    for id, carrier, lane in db.execute_sql(IN_DOUBT).fetchall():
        lanes[id] = lanes.get(id, lane) + f"?{carrier or ''}"
    for id, lane in lanes.items():
        db.execute_sql(f"UPDATE message SET lane = {db.param} WHERE id = {db.param}", (lane, id))
