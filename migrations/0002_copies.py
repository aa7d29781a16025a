"""Each attempt says which copy of its message it gives."""

OF_OPEN = """
UPDATE attempt SET copy = (
    SELECT count(*) FROM attempt AS earlier
    WHERE earlier.message_id = attempt.message_id AND earlier.claim_number < attempt.claim_number
        AND earlier.result = 'taken' AND earlier.carrier = attempt.carrier
)
WHERE result IS NULL OR result = 'unclear'
"""
"""What may be given again keeps its id: its carrier's own earlier copies were counted before."""


def up(migrator, db):
    db.execute_sql("ALTER TABLE attempt ADD COLUMN copy INTEGER NOT NULL DEFAULT 0")
    db.execute_sql(OF_OPEN)
